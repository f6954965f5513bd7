"""The state of a run's input pipelines: how checkpoints store it, and how a run resumes from it.

In addition to the weights a checkpoint holds

    input/seed      int64 scalar, of the whole run: initial weights, order, augmentation, sampling
    input/layout    int64 scalar, the fingerprint of what the order of records depends on
    input/places    int64 [pipelines, 1 + W, R], the state of each pipeline: the cursor in the order
                    of its records, then the cursors of the W examples in its buffers; a cursor has
                    R numbers, see `record_order` and `iterator_state`
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from object_detection.core.fields import InputFields
from object_detection.data.pipeline.record_order import EPOCH
from object_detection.training.distribution import collectives
from object_detection.weights.checkpoint_contents import INPUT, read_step, read_values

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class SavedInputState:
    """The state of the input in a checkpoint.

    Attributes:
      seed: the seed of the run.
      fingerprint: see `tf_records.fingerprint`.
      cursors: int64 [pipelines, 1 + W, R].
    """

    seed: int
    fingerprint: int
    cursors: np.ndarray


def read(prefix: str) -> SavedInputState | None:
    """Reads the input state of a checkpoint; None if it holds none.

    Checkpoints of earlier versions hold none, nor do those of steps whose batches came from a data
    service.
    """
    values = read_values(prefix, INPUT)
    if not {'seed', 'layout', 'places'} <= values.keys():
        return None
    if not len(values['places']) and read_step(prefix) > 0:
        return None
    return SavedInputState(int(values['seed']), int(values['layout']), values['places'])


class InputState:
    """Gives input pipelines their place, and collects their iterator states for checkpoints.

    To be made outside of the strategy's scope.

    Args:
      strategy: of the devices.
      seed: of the run.
      fingerprint: of what the order of the records depends on now, see `tf_records.fingerprint`.
      former_fingerprint: the same, as checkpoints of earlier versions hold it; None if none is
        read.
      cursor_size: R.
      saved: the state of the checkpoint that the run resumes from; None begins.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        *,
        seed: int,
        fingerprint: int,
        cursor_size: int,
        former_fingerprint: int | None = None,
        saved: SavedInputState | None = None,
    ):
        self.seed = seed
        self._strategy = strategy
        self._cursor_size = cursor_size
        self._saved = saved
        self._fingerprints = (fingerprint, former_fingerprint)
        self._local_pipelines: list[int] = []
        self._has_logged = False
        with tf.device('CPU:0'):
            self._cursors = tf.Variable(
                tf.zeros([0, 1, cursor_size], tf.int64),
                shape=[None, None, cursor_size],
                trainable=False,
            )
            self.variables: Mapping[str, tf.Variable] = {
                f'{INPUT}seed': tf.Variable(seed, dtype=tf.int64, trainable=False),
                f'{INPUT}layout': tf.Variable(fingerprint, dtype=tf.int64, trainable=False),
                f'{INPUT}places': self._cursors,
            }

    def start(self, context: tf.distribute.InputContext) -> np.ndarray:
        """Returns int64 [1 + w, R]: the cursors that one pipeline of this process reads from."""
        self._local_pipelines.append(context.input_pipeline_id)
        if self._saved is None or not len(self._saved.cursors):
            return np.zeros([1, self._cursor_size], np.int64)
        pipelines = context.num_input_pipelines
        saved = self._saved.cursors
        if self._saved.fingerprint in self._fingerprints and len(saved) == pipelines:
            own = saved[context.input_pipeline_id]
            return own[(own >= 0).any(axis=1)]
        cursor = similar_cursor(saved[:, 0], pipelines, self._cursor_size)
        if not self._has_logged:
            self._has_logged = True
            _logger.info(
                'the files, the settings of train_input_reader or the number of input pipelines '
                '(%d before, %d now) have changed since the checkpoint: the records go on in '
                'another order, at the same part of epoch %d',
                len(saved),
                pipelines,
                cursor[-1] // EPOCH + 1,
            )
        return cursor[np.newaxis]

    def restart(self) -> None:
        """Lets input pipelines that are built from now on begin at the state of `collect`."""
        seed, fingerprint = (int(self.variables[f'{INPUT}{name}']) for name in ('seed', 'layout'))
        self._saved = SavedInputState(seed, fingerprint, self._cursors.numpy())
        self._local_pipelines.clear()

    def collect(self, states: np.ndarray) -> None:
        """Collects the iterator states of all pipelines, for the next save. Collective.

        Args:
          states: int64 [replicas of this process, K], the `STREAM_STATE` of the newest batches; K =
            0 where batches carry none.
        """
        if not states.shape[1]:
            return
        # The replicas of a pipeline follow each other; the last has its newest batch.
        each = len(states) // max(1, len(self._local_pipelines))
        newest = states[each - 1 :: each]
        of_all = collectives.gather_rows(self._strategy, newest.reshape(-1))
        size = self._cursor_size
        self._cursors.assign(of_all.reshape(-1, states.shape[1] // size, size))


def state_spec(element_spec: Mapping[str, tf.TypeSpec]) -> tuple[int, int]:
    """Returns the number of replicas of this process, and K, for a distributed dataset."""
    if InputFields.STREAM_STATE not in element_spec:
        return 1, 0
    specs = tf.nest.flatten(element_spec[InputFields.STREAM_STATE], expand_composites=True)
    return len(specs), specs[0].shape[0]


def similar_cursor(cursors: np.ndarray, pipelines: int, cursor_size: int) -> np.ndarray:
    """Finds where each of `pipelines` resumes, so that as many records are read in all.

    Args:
      cursors: int64 [pipelines before, R before].
      pipelines: how many there are now.
      cursor_size: R now.

    Returns:
      int64 [R]: in the newest epoch, an equal part of the records read so far.
    """
    columns = [_similar_position(column, pipelines) for column in cursors.T]
    if cursors.shape[1] == cursor_size:
        if cursor_size > 1:
            columns[0] = int(cursors[:, 0].sum()) // pipelines  # draws, not a position
        return np.array(columns, np.int64)
    # The input was a mixture, or is one now: all sets get the same position.
    cursor = np.full([cursor_size], columns[-1], np.int64)
    if cursor_size > 1:
        cursor[0] = 0
    return cursor


def _similar_position(positions: Sequence[int], pipelines: int) -> int:
    epoch = max(int(position) // EPOCH for position in positions)
    index = sum(int(position) % EPOCH for position in positions if int(position) // EPOCH == epoch)
    return epoch * EPOCH + index // pipelines
