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


def loss(name: str, row: Any = None) -> Any:
    """Adds a loss: a dataclass of its options that is called as a `LossFunction`.

    Its attribute `compares` says what: 'classes' (the default), 'codes' of boxes, or 'boxes'.
    """
    from object_detection.builders.losses_builder import LOSSES

    return LOSSES.register(name, row)


def augmentation(name: str, row: Any = None) -> Any:
    """Adds a step: a dataclass of its options that is called as `(example, seed) -> example`."""
    from object_detection.builders.preprocessor_builder import AUGMENTATIONS

    return AUGMENTATIONS.register(name, row)


def metric_set(name: str, row: Any = None) -> Any:
    """Adds a `MetricSet`, which `eval_config.metrics_set` names."""
    from object_detection.builders.evaluator_builder import METRIC_SETS

    return METRIC_SETS.register(name, row)


def annotation_format(name: str, row: Any = None) -> Any:
    """Adds a `Format` of annotations, which becomes the command `tfod convert NAME`."""
    from object_detection.data.formats.formats import ANNOTATION_FORMATS

    return ANNOTATION_FORMATS.register(name, row)


def export_format(name: str, row: Any = None) -> Any:
    """Adds a `Format` of exported models, for `tfod export --format NAME`."""
    from object_detection.export.formats.formats import EXPORT_FORMATS

    return EXPORT_FORMATS.register(name, row)


def sink(name: str, row: Any = None) -> Any:
    """Adds a `Sink`: a dataclass of its options, which `train_config.sink` names."""
    from object_detection.builders.sink_builder import SINKS

    return SINKS.register(name, row)


def family(name: str, row: Any = None) -> Any:
    """Adds a `ModelFamily`, which `experimental_model` names."""
    from object_detection.config.families import FAMILIES

    return FAMILIES.register(name, row)


def backbone(name: str, row: Any = None) -> Any:
    """Adds a `Backbone`, which `feature_extractor.backbone` names."""
    from object_detection.models.backbones.table import BACKBONES

    return BACKBONES.register(name, row)


def neck(name: str, row: Any = None) -> Any:
    """Adds a `Neck`, which the feature extractors of a family name."""
    from object_detection.models.necks.table import NECKS

    return NECKS.register(name, row)
