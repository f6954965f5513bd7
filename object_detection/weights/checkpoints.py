"""Finds checkpoints, and saves and restores the variables of a model by their names.

Variables of a model are stored below `model/` in a checkpoint, one level for each component of the
name:

    model/backbone/conv1_conv/kernel/.ATTRIBUTES/VARIABLE_VALUE

`training.checkpoints.manager` also saves the state of the optimizer and of the input.
"""

import logging
import os
from collections.abc import Mapping

import tensorflow as tf

from object_detection.core.variable_names import PLAIN_NAMES, VariableNames
from object_detection.errors import CheckpointError
from object_detection.system import disk
from object_detection.weights import checkpoint_files
from object_detection.weights.arrays import nest
from object_detection.weights.checkpoint_contents import (
    AVERAGES,
    check_fits,
    read_shapes,
    read_step,
)
from object_detection.weights.checkpoint_files import exists

_logger = logging.getLogger(__name__)

# Of files of other systems that may hold a whole detector; see `weights.pytorch`.
_DETECTOR_SUFFIXES = ('.pth', '.pt', '.pkl', '.safetensors')


def save_model(
    directory: str, variables: Mapping[str, tf.Variable], step: int, *, number: int = 0
) -> str:
    """Saves only a model, replaces an older one, and returns its prefix.

    Args:
      directory: created if necessary; checkpoints in it with another number are deleted afterwards.
      variables: variables of the model, by name.
      step: number of steps that it was trained for.
      number: N of 'ckpt-N'.

    Raises:
      CheckpointError: if it cannot be written.
    """
    named = {'step': tf.Variable(step, dtype=tf.int64), **prefixed('model', variables)}
    checkpoint = tf.train.Checkpoint(**nest(named))
    with disk.writing(directory, 'A checkpoint', num_bytes(named)):
        checkpoint_files.read_state(directory)
        manager = tf.train.CheckpointManager(checkpoint, directory, 1, checkpoint_name='ckpt')
        return manager.save(checkpoint_number=number, options=durable_options())


def restore_model(
    prefix: str,
    variables: Mapping[str, tf.Variable],
    *,
    averages: bool = False,
    names: VariableNames = PLAIN_NAMES,
) -> int:
    """Restores a model's variables by name, without the optimizer's state.

    Args:
      prefix: prefix of one checkpoint, e.g. '/models/one/ckpt-3'.
      variables: variables of the model, as `named_variables()` gives them.
      averages: whether variables are restored from their moving averages, if the checkpoint has
        them.
      names: names of the model's family, for advice in errors.

    Returns:
      The step that the checkpoint was saved at; 0 if it does not store one, as those of
      `tf.train.Checkpoint(model=detector).save`.

    Raises:
      CheckpointError: if the checkpoint is absent or damaged, or is of another model.
    """
    named = prefixed('model', variables)
    check_fits(prefix, named, exact=True, within='model/', names=names)
    held = read_shapes(prefix)
    averaged = {name: v for name, v in variables.items() if f'{AVERAGES}{name}' in held}
    if averaged and not averages:
        _logger.info(
            '%s holds moving averages, which are not asked for (use_moving_average: false): taking '
            'the weights themselves',
            prefix,
        )
    if averages:
        if not averaged:
            _logger.info('%s holds no moving averages: taking the weights themselves', prefix)
        for name, variable in averaged.items():
            del named[f'model/{name}']
            named[f'{AVERAGES}{name}'] = variable
    _restore(prefix, named)
    return read_step(prefix)


def find(path: str) -> str:
    """Returns the prefix of one checkpoint, or the path of a file of weights.

    Args:
      path: a prefix ('dir/ckpt-3'); a folder, whose newest checkpoint is returned; an archive as
        described at `is_archive`; or a file as described at `is_weights_file`, which is returned.

    Raises:
      CheckpointError: if there is no checkpoint, or the state file names a missing one.
    """
    if exists(path) or is_weights_file(path):
        return path
    if is_archive(path):
        path = os.path.join(path, checkpoint_files.STATE_FILE)
    others = checkpoint_files.complete(path)
    hint = f'; {others[-1]} is complete, and can be named instead' if others else ''
    try:
        state = checkpoint_files.read_state(path)
    except CheckpointError as error:
        raise CheckpointError(f'{error}{hint}') from error
    if state is None:
        raise CheckpointError(
            f'{path}: no checkpoint found; expected a directory with a file `checkpoint` and files '
            f'ckpt-N.index, or a prefix such as {os.path.join(path, "ckpt-3")}{hint}.'
        )
    if not checkpoint_files.is_complete(state.newest):
        raise CheckpointError(f'{path}: files of {state.newest} are missing{hint}.')
    return state.newest


def is_weights_file(path: str) -> bool:
    """Whether a path is a file of another system that may hold a whole detector, by its name."""
    return path.endswith(_DETECTOR_SUFFIXES) and tf.io.gfile.exists(path)


def is_archive(path: str) -> bool:
    """Whether the checkpoints of a directory are in its sub-folder `checkpoint`.

    This holds for archives of trained models and for exports, but not for a model_dir.
    """
    return tf.io.gfile.isdir(os.path.join(path, checkpoint_files.STATE_FILE))


def _restore(prefix: str, named: Mapping[str, tf.Variable]) -> None:
    checkpoint = tf.train.Checkpoint(**nest(named))
    with checkpoint_files.reading(prefix):
        checkpoint.restore(prefix).expect_partial().assert_existing_objects_matched()


def prefixed(prefix: str, variables: Mapping[str, tf.Variable]) -> dict[str, tf.Variable]:
    """Returns the variables with `prefix` in front of their names."""
    return {f'{prefix}/{name}': variable for name, variable in variables.items()}


def num_bytes(variables: Mapping[str, tf.Variable]) -> int:
    """Returns the size of the values of variables, in bytes."""
    return sum(v.dtype.size * v.shape.num_elements() for v in variables.values())


def durable_options() -> tf.train.CheckpointOptions:
    """Returns options that flush a checkpoint's files to disk before the state file names it."""
    return tf.train.CheckpointOptions(experimental_write_callbacks=[checkpoint_files.make_durable])
