"""What a checkpoint holds, and how that differs from what a config describes."""

import re
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from object_detection.errors import CheckpointError
from object_detection.weights.checkpoint_files import VALUE_SUFFIX, open_reader, reading
from object_detection.weights.variable_names import PLAIN_NAMES, VariableNames

_OBJECT_GRAPH = '_CHECKPOINTABLE_OBJECT_GRAPH'
_STEP = 'step'
_MODEL = 'model/'
_OPTIMIZER = 'optimizer/'
# What a run stores of its input; it is no part of the training's variables.
INPUT = 'input/'
AVERAGES = f'{_OPTIMIZER}average/'
# How many names an error lists.
_LISTED = 5

# What programs keep beside the weights of a model, by its name in checkpoints of TensorFlow 2 or 1.
_NO_WEIGHT = re.compile(
    r'(^|/)(optimizer|\.OPTIMIZER_SLOT)/'
    r'|/(Adagrad|Adam|Adam_1|ExponentialMovingAverage|Momentum|RMSProp|RMSProp_1)$'
    rf'|^{INPUT}(layout|places|seed)(/|:|$)'
    r'|^(beta[12]_power|global_step|learning_rate|loss_scale|save_counter|step)(/|:|$)'
    rf'|^{_OBJECT_GRAPH}$'
)

# The optimizer by the names of what it keeps for a variable.
OPTIMIZERS = {
    frozenset({'momentum'}): 'momentum_optimizer',
    frozenset({'m', 'v'}): 'adam_optimizer',
    frozenset({'rms', 'momentum'}): 'rms_prop_optimizer',
}
# What a training may keep beside that -> its name, and the field that asks for it.
_OPTIONAL = {
    'average': ('moving averages', 'train_config.optimizer.use_moving_average'),
    'loss_scale': ('a dynamic loss scale', 'train_config.precision and loss_scale'),
}


def is_weight(name: str) -> bool:
    """Whether a name in a checkpoint, of any program, is of a model's variable.

    That leaves out what an optimizer keeps, moving averages, counters and TensorFlow's bookkeeping.
    """
    return _NO_WEIGHT.search(name) is None


def read_shapes(prefix: str) -> dict[str, list[int]]:
    """Returns variable name -> shape of what a checkpoint of our making holds, but for the input.

    Raises:
      CheckpointError: if it is absent or damaged.
    """
    shapes = open_reader(prefix).get_variable_to_shape_map()
    return {
        key.removesuffix(VALUE_SUFFIX): shape
        for key, shape in shapes.items()
        if key.endswith(VALUE_SUFFIX) and not key.startswith(('save_counter', INPUT))
    }


def read_values(prefix: str, within: str) -> dict[str, np.ndarray]:
    """Returns what a checkpoint of our making holds below a name such as `INPUT`, by the rest.

    Raises:
      CheckpointError: if it is absent or damaged.
    """
    with reading(prefix):
        reader = open_reader(prefix)
        return {
            key.removeprefix(within).removesuffix(VALUE_SUFFIX): reader.get_tensor(key)
            for key in reader.get_variable_to_shape_map()
            if key.startswith(within) and key.endswith(VALUE_SUFFIX)
        }


def read_step(prefix: str) -> int:
    """Returns the step that a checkpoint was saved at."""
    check_is_ours(prefix)
    with reading(prefix):
        return int(open_reader(prefix).get_tensor(f'{_STEP}{VALUE_SUFFIX}'))


def check_is_ours(prefix: str, *, needs_step: bool = True) -> None:
    """Tells the checkpoints of other programs by their names.

    Args:
      prefix: prefix of one checkpoint.
      needs_step: whether one without `step` is none of ours.

    Raises:
      CheckpointError: if it is one.
    """
    keys = open_reader(prefix).get_variable_to_shape_map().keys()
    names = {key.removesuffix(VALUE_SUFFIX) for key in keys if key.endswith(VALUE_SUFFIX)}
    if any(name.startswith((f'{_MODEL}_feature_extractor', f'{_MODEL}_box')) for name in names):
        whose = 'the TensorFlow Object Detection API'
    elif _OBJECT_GRAPH not in keys:
        whose = 'TensorFlow 1'
    elif (needs_step and _STEP not in names) or not any(name.startswith(_MODEL) for name in names):
        whose = 'another program'
    else:
        return
    others = keys - {_OBJECT_GRAPH, f'save_counter{VALUE_SUFFIX}'}
    sample = sorted(others, key=lambda key: (not key.startswith(_MODEL), key))
    raise CheckpointError(
        f'{prefix}: expected a checkpoint with `step` and the variables of a model under '
        f'`{_MODEL}`. Received one of {whose}, which cannot be gone on from; it holds '
        f'{format_names(name.removesuffix(VALUE_SUFFIX) for name in sample) or "nothing"}.'
    )


def check_fits(
    prefix: str,
    variables: Mapping[str, tf.Variable],
    *,
    exact: bool,
    within: str = '',
    needs_step: bool = True,
    names: VariableNames = PLAIN_NAMES,
) -> None:
    """Compares names and shapes of a checkpoint with those of `variables`.

    Args:
      prefix: prefix of one checkpoint.
      variables: by full name.
      exact: whether the checkpoint may hold no variable that `variables` lacks.
      within: beginning of the checkpoint's names that are looked at.
      needs_step: see `check_is_ours`.
      names: names of the model's family, for advice.

    Raises:
      CheckpointError: if it is another program's, or naming what is missing, left over or of
        another shape.
    """
    check_is_ours(prefix, needs_step=needs_step)
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
    differences = '; '.join(
        f'{what}: {format_names(names)}'
        for what, names in (
            ('of another shape', reshaped.values()),
            ('not in the checkpoint', missing),
            ('only in the checkpoint', left_over),
        )
        if names
    )
    if all(name.startswith(_OPTIMIZER) for name in differing):
        raise CheckpointError(
            f'{prefix} {_describe_optimizers(found, variables)}; variables {differences}. Use the '
            'train_config that it was trained with; or another model_dir, with this checkpoint as '
            'train_config.fine_tune_checkpoint, to take over the weights alone.'
        )
    here = {name: variable.shape.as_list() for name, variable in variables.items()}
    advice = names.advice(found, here)
    advice = advice or 'Use the config that it was trained with, or another model_dir.'
    raise CheckpointError(
        f'{prefix} is a checkpoint of another model than the config describes; variables '
        f'{differences}. {advice}'
    )


def describe_end(directory: str, step: int, num_steps: int) -> str | None:
    """Says that a training has nothing left to do; None if it has.

    Args:
      directory: folder of the model.
      step: step of its newest checkpoint.
      num_steps: that are asked for.
    """
    if step < num_steps:
        return None
    if step == num_steps:
        return f'{directory} is at step {step} of {num_steps}: nothing left to do'
    return (
        f'{directory} is at step {step}, beyond the {num_steps} steps asked for: nothing left to '
        f'do. Ask for more than {step} (train_config.num_steps or --num_train_steps) to go on, or '
        'choose another model_dir to start anew'
    )


def format_names(names: Iterable[str]) -> str:
    """Returns the first names, and how many more there are."""
    names = list(names)
    more = f' and {len(names) - _LISTED} more' if len(names) > _LISTED else ''
    return ', '.join(names[:_LISTED]) + more


def _describe_optimizers(found: Iterable[str], variables: Iterable[str]) -> str:
    """Says how the optimizer of a checkpoint, by its slots, differs from the config's."""
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
    known = OPTIMIZERS.get(slots)
    return known or (f'one that keeps {", ".join(sorted(slots))}' if slots else 'one without state')
