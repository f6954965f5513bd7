"""Checkpoints `ckpt-N`: saved whole, restored strictly, waited for.

A checkpoint holds nested dicts of variables under names of our own, one level a part of the name:

    model/backbone/conv1_conv/kernel/.ATTRIBUTES/VARIABLE_VALUE
    optimizer/momentum/backbone/conv1_conv/kernel/.ATTRIBUTES/VARIABLE_VALUE
    step/.ATTRIBUTES/VARIABLE_VALUE

N counts the saves from 1, as in the reference; `step` is the number of training steps done. The
state file `checkpoint` names the complete checkpoints of a directory.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from object_detection.training.errors import CheckpointError, DivergenceError

_logger = logging.getLogger(__name__)

_SUFFIX = '/.ATTRIBUTES/VARIABLE_VALUE'
_STEP = f'step{_SUFFIX}'
# How many names an error lists.
_LISTED = 5


class Checkpoints:
    """Saves and restores a model, its optimizer's state and the step.

    Args:
      directory: where the checkpoints lie.
      model: the model's variables by name, parts separated by '/'.
      optimizer: slot name -> variable name -> variable.
      step: int64 scalar, the number of steps done.
      max_to_keep: older checkpoints are deleted; None keeps all.
      keep_every_n_hours: one in so many hours is never deleted; None for none.
    """

    def __init__(
        self,
        directory: str,
        *,
        model: Mapping[str, tf.Variable],
        optimizer: Mapping[str, Mapping[str, tf.Variable]],
        step: tf.Variable,
        max_to_keep: int | None = 7,
        keep_every_n_hours: float | None = None,
    ):
        self._variables = {'step': step, **_prefixed('model', model)}
        for slot, variables in optimizer.items():
            self._variables |= _prefixed(f'optimizer/{slot}', variables)
        self._checkpoint = tf.train.Checkpoint(**nest(self._variables))
        self._manager = tf.train.CheckpointManager(
            self._checkpoint,
            directory,
            max_to_keep=max_to_keep,
            keep_checkpoint_every_n_hours=keep_every_n_hours,
            checkpoint_name='ckpt',
        )

    def save(self) -> str:
        """Saves a checkpoint and returns its prefix.

        Raises:
          DivergenceError: if a variable holds a NaN or infinite number; nothing is saved then.
        """
        broken = [name for name, value in self._variables.items() if not _is_finite(value)]
        if broken:
            raise DivergenceError(
                f'NaN or infinite values in {len(broken)} variables, among them '
                f'{_listing(broken)}; not saved. The last good checkpoint is '
                f'{self.latest or "none"}.'
            )
        return self._manager.save()

    @property
    def latest(self) -> str | None:
        """The prefix of the newest checkpoint, if there is one."""
        return self._manager.latest_checkpoint

    def restore_latest(self) -> str | None:
        """Restores the newest checkpoint, if there is one, and returns its prefix.

        Raises:
          CheckpointError: if its variables are not exactly those of this model and optimizer.
        """
        if self.latest is None:
            return None
        check_fits(self.latest, self._variables, exact=True)
        self._checkpoint.restore(self.latest).assert_existing_objects_matched()
        return self.latest


def save_model(directory: str, variables: Mapping[str, tf.Variable], step: int) -> str:
    """Saves a model alone, as `ckpt-0` of a new directory, and returns its prefix.

    Args:
      directory: created.
      variables: of the model, by name.
      step: number of steps that it was trained for.
    """
    named = {'step': tf.Variable(step, dtype=tf.int64), **_prefixed('model', variables)}
    checkpoint = tf.train.Checkpoint(**nest(named))
    manager = tf.train.CheckpointManager(checkpoint, directory, 1, checkpoint_name='ckpt')
    return manager.save(checkpoint_number=0)


def restore_model(prefix: str, variables: Mapping[str, tf.Variable]) -> int:
    """Restores a model's variables, by name, and leaves the optimizer's state.

    Args:
      prefix: of one checkpoint, e.g. '/models/one/ckpt-3'.
      variables: of the model, as `named_variables()` gives them.

    Returns:
      The step that the checkpoint was saved at.

    Raises:
      CheckpointError: if the checkpoint is absent, or is of a model with other variables.
    """
    named = _prefixed('model', variables)
    check_fits(prefix, named, exact=True, within='model/')
    checkpoint = tf.train.Checkpoint(**nest(named))
    checkpoint.restore(prefix).expect_partial().assert_existing_objects_matched()
    return read_step(prefix)


def check_fits(
    prefix: str, variables: Mapping[str, tf.Variable], *, exact: bool, within: str = ''
) -> None:
    """Compares names and shapes of a checkpoint with those of `variables`.

    Args:
      prefix: of one checkpoint.
      variables: by full name.
      exact: whether the checkpoint may hold no variable that `variables` lacks.
      within: beginning of the checkpoint's names that are looked at.

    Raises:
      CheckpointError: naming what is missing, left over or of another shape.
    """
    shapes = _open(prefix).get_variable_to_shape_map()
    found = {
        key.removesuffix(_SUFFIX): shape
        for key, shape in shapes.items()
        if key.startswith(within) and key.endswith(_SUFFIX) and not key.startswith('save_counter')
    }
    missing = sorted(variables.keys() - found.keys())
    left_over = sorted(found.keys() - variables.keys()) if exact else []
    reshaped = [
        f'{name} ({found[name]} there, {variables[name].shape.as_list()} in the model)'
        for name in sorted(variables.keys() & found.keys())
        if found[name] != variables[name].shape.as_list()
    ]
    problems = [
        f'{what}: {_listing(names)}'
        for what, names in (
            ('of another shape', reshaped),
            ('not in the checkpoint', missing),
            ('only in the checkpoint', left_over),
        )
        if names
    ]
    if problems:
        raise CheckpointError(
            f'{prefix} is a checkpoint of another model or optimizer than the config describes; '
            f'variables {"; ".join(problems)}. Use the config that it was trained with, or another '
            'model_dir.'
        )


def read_step(prefix: str) -> int:
    """Returns the step that a checkpoint was saved at."""
    reader = _open(prefix)
    if not reader.has_tensor(_STEP):
        raise CheckpointError(f'{prefix}: expected a checkpoint with `step`. Received one without.')
    return int(reader.get_tensor(_STEP))


def exists(prefix: str) -> bool:
    """Whether `prefix` names a checkpoint, rather than a directory of them."""
    return tf.io.gfile.exists(f'{prefix}.index')


def find(path: str) -> str:
    """Returns the prefix of one checkpoint.

    Args:
      path: a prefix ('dir/ckpt-3'), or a directory, of which the newest is taken.

    Raises:
      CheckpointError: if there is none.
    """
    if exists(path):
        return path
    latest = tf.train.latest_checkpoint(path)
    if latest is None:
        raise CheckpointError(
            f'{path}: no checkpoint found; expected a directory with a file `checkpoint` and files '
            f'ckpt-N.index, or a prefix such as {os.path.join(path, "ckpt-3")}.'
        )
    return latest


def follow(
    directory: str,
    *,
    timeout: float,
    poll_interval: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[str]:
    """Yields the newest checkpoint, then each newer one in turn as it appears.

    Args:
      directory: of the checkpoints; it may not exist yet.
      timeout: seconds to wait for the next one before giving up; 0 looks once.
      poll_interval: seconds between two looks.
    """
    seen: set[str] = set()
    waiting_since = clock()
    while True:
        state = tf.train.get_checkpoint_state(directory)
        known = list(state.all_model_checkpoint_paths) if state else []
        fresh = [prefix for prefix in known if prefix not in seen]
        if not seen:
            fresh = fresh[-1:]
        seen.update(known)
        for prefix in fresh:
            if exists(prefix):
                yield prefix
                waiting_since = clock()
            else:
                # The trainer may delete it while another one is evaluated.
                _logger.warning('%s was deleted before it could be read', prefix)
        if clock() - waiting_since >= timeout:
            return
        if not fresh:
            sleep(min(poll_interval, timeout))


def nest(variables: Mapping[str, tf.Variable]) -> dict[str, Any]:
    """Turns names with '/' into nested dicts, which checkpoint keys are made of.

    Raises:
      ValueError: if one name is the beginning of another.
    """
    tree: dict[str, Any] = {}
    for name, variable in variables.items():
        *parents, leaf = name.split('/')
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ValueError(f'{name!r} begins with the name of another variable.')
        if leaf in node:
            raise ValueError(f"{name!r} is the beginning of another variable's name.")
        node[leaf] = variable
    return tree


def _prefixed(prefix: str, variables: Mapping[str, tf.Variable]) -> dict[str, tf.Variable]:
    return {f'{prefix}/{name}': variable for name, variable in variables.items()}


def _open(prefix: str) -> Any:
    try:
        return tf.train.load_checkpoint(prefix)
    except (tf.errors.OpError, ValueError) as error:
        raise CheckpointError(f'{prefix}: cannot be read as a checkpoint: {error}') from error


def _is_finite(variable: tf.Variable) -> bool:
    if not variable.dtype.is_floating:
        return True
    return bool(tf.reduce_all(tf.math.is_finite(variable)))


def _listing(names: list[str]) -> str:
    more = f' and {len(names) - _LISTED} more' if len(names) > _LISTED else ''
    return ', '.join(names[:_LISTED]) + more
