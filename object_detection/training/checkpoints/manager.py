"""Checkpoints `ckpt-N`: saved completely, restored strictly.

A checkpoint holds nested dicts of variables, one level for each component of a name:

    model/backbone/conv1_conv/kernel/.ATTRIBUTES/VARIABLE_VALUE
    optimizer/momentum/backbone/conv1_conv/kernel/.ATTRIBUTES/VARIABLE_VALUE
    step/.ATTRIBUTES/VARIABLE_VALUE
    input/places/.ATTRIBUTES/VARIABLE_VALUE

N counts the saves from 1, as in the reference; `step` is the number of training steps done. The
state file `checkpoint` names the complete checkpoints of a directory; others are never restored.
`recovery.prepare` cleans a directory after a kill.
"""

import contextlib
import logging
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from object_detection.core.variable_names import PLAIN_NAMES, VariableNames
from object_detection.errors import CheckpointError, DivergenceError, format_list
from object_detection.system import disk
from object_detection.training.checkpoints import recovery
from object_detection.training.checkpoints.input_state import InputState
from object_detection.weights import checkpoint_files, checkpoints
from object_detection.weights.arrays import nest
from object_detection.weights.checkpoint_contents import check_fits

_logger = logging.getLogger(__name__)


class Checkpoints:
    """Saves a model, its optimizer's state, the step and the input; restores all but the input.

    Args:
      directory: the folder of the checkpoints.
      model: the model's variables by name, components separated by '/'.
      optimizer: slot name -> variable name -> variable.
      step: int64 scalar, the number of steps done.
      input_state: the position in the data, saved with them; `resume.resume_input` restores it.
      max_to_keep: number of checkpoints; older ones are deleted. None keeps all.
      keep_every_n_hours: one checkpoint in so many hours is never deleted; None deletes any.
      names: of the model's family, for advice in errors.
    """

    def __init__(
        self,
        directory: str,
        *,
        model: Mapping[str, tf.Variable],
        optimizer: Mapping[str, Mapping[str, tf.Variable]],
        step: tf.Variable,
        input_state: InputState | None = None,
        max_to_keep: int | None = 7,
        keep_every_n_hours: float | None = None,
        names: VariableNames = PLAIN_NAMES,
    ):
        self._variables = {'step': step, **checkpoints.prefixed('model', model)}
        for slot, variables in optimizer.items():
            self._variables |= checkpoints.prefixed(f'optimizer/{slot}', variables)
        self._input_state = input_state
        of_input = {} if input_state is None else input_state.variables
        self._checkpoint = tf.train.Checkpoint(**nest({**self._variables, **of_input}))
        self._directory = directory
        self._names = names
        self._options = {
            'max_to_keep': max_to_keep,
            'keep_checkpoint_every_n_hours': keep_every_n_hours,
        }
        self._manager = self._make_manager()

    def collect(self, states: np.ndarray) -> None:
        """Collects the state of the input for the next save: `InputState.collect`. Collective."""
        if self._input_state is not None:
            self._input_state.collect(states)

    def save(self) -> str:
        """Saves a checkpoint and returns its prefix.

        Raises:
          DivergenceError: if a variable holds a NaN or infinite number; nothing is saved then.
          CheckpointError: if it cannot be written; earlier ones stay, and the newest is named.
        """
        broken = [name for name, value in self._variables.items() if not _is_finite(value)]
        if broken:
            raise DivergenceError(
                f'NaN or infinite values in {len(broken)} variables, among them '
                f'{format_list(broken)}; not saved. The last good checkpoint is '
                f'{self.latest or "none"}.'
            )
        try:
            with disk.writing(self._directory, 'A checkpoint', self.num_bytes):
                return self._manager.save(options=checkpoints.durable_options())
        except CheckpointError as error:
            with contextlib.suppress(OSError):
                recovery.sweep(self._directory)
            # The old manager may count the checkpoint that was not saved.
            self._manager = self._make_manager()
            raise CheckpointError(
                f'{error} The newest checkpoint is {self.latest or "none"}.'
            ) from error

    @property
    def latest(self) -> str | None:
        """The prefix of the newest checkpoint, if there is one."""
        return self._manager.latest_checkpoint

    @property
    def num_bytes(self) -> int:
        """The size of one checkpoint, without its names."""
        return checkpoints.num_bytes(self._variables)

    def check_room(self, num_snapshots: int = 0) -> None:
        """Checks the disk space for one checkpoint, and warns without space for all to be kept.

        Args:
          num_snapshots: how many may be kept for evaluation after they are deleted here.

        Raises:
          CheckpointError: if there is no space for one.
        """
        disk.check_writable(self._directory, self.num_bytes)
        free = disk.free_bytes(self._directory)
        to_keep = self._options['max_to_keep']
        if free is None or to_keep is None:
            return
        # One more is written before the oldest is deleted.
        needed = to_keep + 1 + num_snapshots - len(self._manager.checkpoints)
        if free < needed * self.num_bytes:
            also = f' and {num_snapshots} that wait to be evaluated' if num_snapshots else ''
            _logger.warning(
                '%s: %s of disk space are free, and %d checkpoints to be kept%s will need %s more; '
                'a lower --max_to_keep%s needs less',
                self._directory,
                disk.format_bytes(free),
                to_keep,
                also,
                disk.format_bytes(needed * self.num_bytes),
                ' or async_evaluation.max_waiting' if num_snapshots else '',
            )

    def restore_latest(self) -> str | None:
        """Restores the newest checkpoint, if there is one, and returns its prefix.

        Raises:
          CheckpointError: if it is corrupt, or its variables are not exactly those of this model
            and optimizer.
        """
        if self.latest is None:
            return None
        check_fits(self.latest, self._variables, exact=True, names=self._names)
        restored = tf.train.Checkpoint(**nest(self._variables))
        with checkpoint_files.reading(self.latest):
            restored.restore(self.latest).expect_partial().assert_existing_objects_matched()
        self._checkpoint.save_counter.assign(restored.save_counter)
        return self.latest

    def _make_manager(self) -> tf.train.CheckpointManager:
        # This raises for a corrupt state file, which TensorFlow would treat as absent.
        checkpoint_files.read_state(self._directory)
        return tf.train.CheckpointManager(
            self._checkpoint, self._directory, checkpoint_name='ckpt', **self._options
        )


def _is_finite(variable: tf.Variable) -> bool:
    if not variable.dtype.is_floating:
        return True
    return bool(tf.reduce_all(tf.math.is_finite(variable)))
