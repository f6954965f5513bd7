"""The contents of a checkpoint, and their differences from the model of a config."""

import re
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from object_detection.core.variable_names import PLAIN_NAMES, RANGES, VariableNames
from object_detection.errors import CheckpointError, format_list
from object_detection.optimizers.optimizers import Optimizer
from object_detection.weights import comparison
from object_detection.weights.checkpoint_files import VALUE_SUFFIX, open_reader, reading

_OBJECT_GRAPH = '_CHECKPOINTABLE_OBJECT_GRAPH'
_STEP = 'step'
_MODEL = 'model/'
_OPTIMIZER = 'optimizer/'
# Names of the stored state of the input pipeline, which is not a variable of the model.
INPUT = 'input/'
AVERAGES = f'{_OPTIMIZER}average/'
# The end of the message about a checkpoint that a quantized detector cannot be restored from.
NO_RANGES = (
    'holds no ranges of activations, which graph_rewriter.quantization needs. Train with it first, '
    'in another model_dir, with this checkpoint as train_config.fine_tune_checkpoint; or leave '
    'graph_rewriter out.'
)
_UNREAD_RANGES = (
    'holds ranges of activations of a training with graph_rewriter.quantization, which the config '
    'does not set. Use the config that it was trained with; or train with another model_dir and '
    'this checkpoint as train_config.fine_tune_checkpoint, which takes the weights alone.'
)

_STEP_ALONE = (
    'holds `step`, but no variable of a model, so that nothing can be restored from it. The '
    'TensorFlow Object Detection API saves the first checkpoint of a training, ckpt-1, before the '
    'variables exist: name a later one.'
)
_WEIGHTS_ALONE = (
    'holds the weights of a model alone, without the `step` and the optimizer that a training '
    'resumes with. Train with another model_dir, and this checkpoint as '
    'train_config.fine_tune_checkpoint.'
)

# Names of values that programs store in addition to a model's weights, in TensorFlow or PyTorch.
_NO_WEIGHT = re.compile(
    r'(^|/)(optimizer|\.OPTIMIZER_SLOT)/'
    r'|/(Adagrad|Adam|Adam_1|ExponentialMovingAverage|Momentum|RMSProp|RMSProp_1)$'
    rf'|^{INPUT}(layout|places|seed)(/|:|$)'
    r'|^(beta[12]_power|global_step|learning_rate|loss_scale|save_counter|step)(/|:|$)'
    rf'|^{_OBJECT_GRAPH}$'
    # Buffers of PyTorch: counters, and constants of the images and anchors.
    r'|(^|\.)(num_batches_tracked|n_averaged|pixel_mean|pixel_std|cell_anchors\.\d+)$'
)

# Names of further optional state -> its description, and the field that enables it.
_OPTIONAL = {
    'average': ('moving averages', 'train_config.optimizer.use_moving_average'),
    'loss_scale': ('a dynamic loss scale', 'train_config.precision and loss_scale'),
    'plateau': ('a reduced learning rate', 'train_config.optimizer.reduce_on_plateau'),
}


def is_weight(name: str) -> bool:
    """Whether a name in a checkpoint of any program is the name of a model's weight.

    Optimizer state, moving averages, counters and TensorFlow's bookkeeping are not weights.
    """
    return _NO_WEIGHT.search(name) is None


def read_shapes(prefix: str) -> dict[str, list[int]]:
    """Returns variable name -> shape of a checkpoint of this toolkit, without the input state.

    Raises:
      CheckpointError: if the checkpoint is absent or corrupt.
    """
    shapes = open_reader(prefix).get_variable_to_shape_map()
    return {
        key.removesuffix(VALUE_SUFFIX): shape
        for key, shape in shapes.items()
        if key.endswith(VALUE_SUFFIX) and not key.startswith(('save_counter', INPUT))
    }


def read_values(prefix: str, within: str) -> dict[str, np.ndarray]:
    """Returns the values of a checkpoint of this toolkit whose names begin with `within`.

    The keys are the rest of the names; `within` is for example `INPUT`.

    Raises:
      CheckpointError: if the checkpoint is absent or corrupt.
    """
    with reading(prefix):
        reader = open_reader(prefix)
        return {
            key.removeprefix(within).removesuffix(VALUE_SUFFIX): reader.get_tensor(key)
            for key in reader.get_variable_to_shape_map()
            if key.startswith(within) and key.endswith(VALUE_SUFFIX)
        }


def read_step(prefix: str, *, is_ours: bool = True) -> int:
    """Returns the step at which a checkpoint was saved; 0 if it does not store one.

    Raises:
      CheckpointError: if it is damaged, or, with `is_ours`, if another program wrote it.
    """
    if is_ours:
        check_is_ours(prefix)
    with reading(prefix):
        reader, key = open_reader(prefix), f'{_STEP}{VALUE_SUFFIX}'
        return int(reader.get_tensor(key)) if reader.has_tensor(key) else 0


def check_is_ours(prefix: str, *, resumes: bool = False) -> None:
    """Checks that a checkpoint holds a detector of this toolkit, by the names in it.

    Args:
      prefix: prefix of one checkpoint.
      resumes: whether a training resumes from it, which needs more than the weights.

    Raises:
      CheckpointError: if another program wrote it, or if it holds too little.
    """
    keys = open_reader(prefix).get_variable_to_shape_map().keys()
    names = {key.removesuffix(VALUE_SUFFIX) for key in keys if key.endswith(VALUE_SUFFIX)}
    of_model = [name for name in names if name.startswith(_MODEL)]
    if any(name.startswith((f'{_MODEL}_feature_extractor', f'{_MODEL}_box')) for name in of_model):
        whose = 'the TensorFlow Object Detection API'
    elif _OBJECT_GRAPH not in keys:
        whose = 'TensorFlow 1'
    elif _STEP in names and not of_model:
        raise CheckpointError(f'{prefix} {_STEP_ALONE}')
    # Components that begin so are attributes of Keras's objects.
    elif not of_model or any('/_' in name for name in of_model):
        whose = 'another program'
    elif resumes and _STEP not in names:
        raise CheckpointError(f'{prefix} {_WEIGHTS_ALONE}')
    else:
        return
    others = keys - {_OBJECT_GRAPH, f'save_counter{VALUE_SUFFIX}'}
    sample = sorted(others, key=lambda key: (not key.startswith(_MODEL), key))
    raise CheckpointError(
        f'{prefix}: expected a checkpoint with the variables of a detector under `{_MODEL}`. '
        f'Received one of {whose}, which cannot be used here; it holds '
        f'{format_list(name.removesuffix(VALUE_SUFFIX) for name in sample) or "nothing"}.'
    )


def check_fits(
    prefix: str,
    variables: Mapping[str, tf.Variable],
    *,
    exact: bool,
    within: str = '',
    names: VariableNames = PLAIN_NAMES,
) -> None:
    """Compares names and shapes of a checkpoint with those of `variables`.

    Args:
      prefix: prefix of one checkpoint.
      variables: full name -> variable.
      exact: whether every variable of the checkpoint must be in `variables`.
      within: prefix of the checkpoint's names that are compared.
      names: names of the model's family, for advice.

    Raises:
      CheckpointError: if another program wrote the checkpoint, or if variables are missing, left
        over or of another shape; the message names them.
    """
    check_is_ours(prefix)
    found = {name: s for name, s in read_shapes(prefix).items() if name.startswith(within)}
    missing = sorted(variables.keys() - found.keys())
    left_over = sorted(found.keys() - variables.keys()) if exact else []
    reshaped = {
        name: f'{name} ({found[name]} there, {variables[name].shape.as_list()} in the model)'
        for name in sorted(variables.keys() & found.keys())
        if found[name] != variables[name].shape.as_list()
    }
    differing = [*missing, *left_over, *reshaped]
    if not differing:
        return
    differences = comparison.listed(
        {
            'of another shape': reshaped.values(),
            'not in the checkpoint': missing,
            'only in the checkpoint': left_over,
        }
    )
    if all(name.startswith(_OPTIMIZER) for name in differing):
        raise CheckpointError(
            f'{prefix} {_describe_optimizers(found, variables)}; variables {differences}. Use the '
            'train_config that it was trained with; or another model_dir, with this checkpoint as '
            'train_config.fine_tune_checkpoint, to take over the weights alone.'
        )
    for names_alone, reason in ((missing, NO_RANGES), (left_over, _UNREAD_RANGES)):
        if differing == names_alone and all(f'/{RANGES}' in name for name in differing):
            raise CheckpointError(f'{prefix} {reason}')
    here = {name: variable.shape.as_list() for name, variable in variables.items()}
    advice = names.advice(found, here)
    advice = advice or 'Use the config that it was trained with, or another model_dir.'
    raise CheckpointError(
        f'{prefix} is a checkpoint of another model than the config describes; variables '
        f'{differences}. {advice}'
    )


def describe_end(directory: str, step: int, num_steps: int) -> str | None:
    """Returns a sentence if a training has finished all its steps; else None.

    Args:
      directory: folder of the model.
      step: step of its newest checkpoint.
      num_steps: requested number of steps.
    """
    if step < num_steps:
        return None
    if step == num_steps:
        return f'{directory} is at step {step} of {num_steps}: nothing left to do'
    return (
        f'{directory} is at step {step}, beyond the {num_steps} steps asked for: nothing left to '
        f'do. Ask for more than {step} (train_config.num_steps or --num_train_steps) to go on, or '
        'choose another model_dir to start at step 0'
    )


def _describe_optimizers(found: Iterable[str], variables: Iterable[str]) -> str:
    """Describes how the optimizer of a checkpoint (seen by its slots) differs from the config's."""
    before, now = _slots(found), _slots(variables)
    if before - _OPTIONAL.keys() != now - _OPTIONAL.keys():
        return f'was trained with {_optimizer(before)}, and the config now says {_optimizer(now)}'
    kept = {True: 'with', False: 'without'}
    for slot, (what, field) in _OPTIONAL.items():
        if (slot in before) != (slot in now):
            return (
                f'was trained {kept[slot in before]} {what}, and the config is '
                f'{kept[slot in now]} ({field})'
            )
    return (
        'was trained with other variables frozen than the config now says '
        '(train_config.freeze_variables, update_trainable_variables, or layers of the model)'
    )


def _slots(names: Iterable[str]) -> frozenset[str]:
    return frozenset(
        name.removeprefix(_OPTIMIZER).partition('/')[0]
        for name in names
        if name.startswith(_OPTIMIZER)
    )


def _optimizer(slots: frozenset[str]) -> str:
    slots = slots.difference(_OPTIONAL)
    # Those of this package come first, and classes before subclasses with the same slots.
    kinds = Optimizer.__subclasses__()
    for kind in [*kinds, *(below for each in kinds for below in each.__subclasses__())]:
        if kind.title and slots == set(kind.slot_names):
            return kind.title
    return f'one that keeps {", ".join(sorted(slots))}' if slots else 'one without state'
