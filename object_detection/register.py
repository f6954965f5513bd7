"""Registers parts of your own by the names that configs and commands call them by.

    from object_detection import register

    @register.loss('asymmetric')
    @dataclasses.dataclass(frozen=True)
    class Asymmetric: ...

Each function returns a decorator, or adds the row that it is given. A module that does so is named
by `--plugin MODULE`; an installed package may list its rows as entry points instead, of the groups
`object_detection.loss`, `object_detection.metric_set` and so on. docs/howto/plugins.md has an
example of each kind.

This module loads no TensorFlow. Each function imports the table of its kind when it is called, and
raises a UserError for a name that is taken.
"""

from typing import Any

from object_detection import registry


def loss(name: str, row: Any = None) -> Any:
    """Adds a loss: a dataclass of its options that is called as a `LossFunction`.

    Its attribute `compares` says what: 'classes' (the default), 'codes' of boxes, or 'boxes'.
    """
    return _register('builders.losses_builder:LOSSES', name, row)


def augmentation(name: str, row: Any = None) -> Any:
    """Adds a step: a dataclass of its options that is called as `(example, seed) -> example`."""
    return _register('builders.preprocessor_builder:AUGMENTATIONS', name, row)


def metric_set(name: str, row: Any = None) -> Any:
    """Adds a `MetricSet`, which `eval_config.metrics_set` names."""
    return _register('builders.evaluator_builder:METRIC_SETS', name, row)


def annotation_format(name: str, row: Any = None) -> Any:
    """Adds a `Format` of annotations, which becomes the command `tfod convert NAME`."""
    return _register('data.formats.formats:ANNOTATION_FORMATS', name, row)


def export_format(name: str, row: Any = None) -> Any:
    """Adds a `Format` of exported models, for `tfod export --format NAME`."""
    return _register('export.formats.formats:EXPORT_FORMATS', name, row)


def optimizer(name: str, row: Any = None) -> Any:
    """Adds an optimizer: a dataclass of its options, called as `(learning_rate) -> Optimizer`."""
    return _register('builders.optimizer_builder:OPTIMIZERS', name, row)


def learning_rate(name: str, row: Any = None) -> Any:
    """Adds a schedule: a dataclass of its options that is called as `(step) -> learning rate`."""
    return _register('builders.optimizer_builder:LEARNING_RATES', name, row)


def callback(name: str, row: Any = None) -> Any:
    """Adds a `Callback`: a dataclass of its options, which --callbacks or a config names."""
    return _register('builders.callback_builder:CALLBACKS', name, row)


def __getattr__(name: str) -> Any:
    if name == 'sink':  # the former name
        return callback
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def family(name: str, row: Any = None) -> Any:
    """Adds a `ModelFamily`, which `experimental_model` names."""
    return _register('config.families:FAMILIES', name, row)


def backbone(name: str, row: Any = None) -> Any:
    """Adds a `Backbone`, which `feature_extractor.backbone` names."""
    return _register('models.backbones.table:BACKBONES', name, row)


def neck(name: str, row: Any = None) -> Any:
    """Adds a `Neck`, which `feature_extractor.neck` names."""
    return _register('models.necks.table:NECKS', name, row)


def _register(table: str, name: str, row: Any) -> Any:
    return registry.load(f'object_detection.{table}').register(name, row)
