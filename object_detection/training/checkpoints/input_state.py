"""Where the input pipelines of a run stand: what checkpoints store of it, and how a run goes on.

Beside the weights a checkpoint holds

    input/seed      int64 scalar, of the whole run: initial weights, order, augmentation, sampling
    input/layout    int64 scalar, a number made of what the order of records depends on
    input/places    int64 [pipelines, 1 + W, R], see `data.record_order` and `data.stream_state`
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
class SavedPlaces:
    """What a checkpoint says of the input.

    Attributes:
      seed: of the run.
      layout: see `tf_records.layout`.
      places: int64 [pipelines, 1 + W, R].
    """

    seed: int
    layout: int
    places: np.ndarray


def read(prefix: str) -> SavedPlaces | None:
    """Reads them of a checkpoint; None if it does not say where the input stood.

    So it is with those of earlier versions, and after steps whose batches came from a data service.
    """
    values = read_values(prefix, INPUT)
    if not {'seed', 'layout', 'places'} <= values.keys():
        return None
    if not len(values['places']) and read_step(prefix) > 0:
        return None
    return SavedPlaces(int(values['seed']), int(values['layout']), values['places'])


class InputPlaces:
    """Tells input pipelines where to begin, and collects for checkpoints where they stand.

    To be made outside of the strategy's scope.

    Args:
      strategy: of the devices.
      seed: of the run.
      layout: what the order of the records depends on now, see `tf_records.layout`.
      former_layout: the same, as checkpoints of earlier versions have it; None where none is read.
      row_size: R.
      saved: of the checkpoint that the run goes on from; None begins.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        *,
        seed: int,
        layout: int,
        row_size: int,
        former_layout: int | None = None,
        saved: SavedPlaces | None = None,
    ):
        self.seed = seed
        self._strategy = strategy
        self._row_size = row_size
        self._saved = saved
        self._layouts = (layout, former_layout)
        self._local_pipelines: list[int] = []
        self._has_told = False
        with tf.device('CPU:0'):
            self._places = tf.Variable(
                tf.zeros([0, 1, row_size], tf.int64), shape=[None, None, row_size], trainable=False
            )
            self.variables: Mapping[str, tf.Variable] = {
                f'{INPUT}seed': tf.Variable(seed, dtype=tf.int64, trainable=False),
                f'{INPUT}layout': tf.Variable(layout, dtype=tf.int64, trainable=False),
                f'{INPUT}places': self._places,
            }

    def start(self, context: tf.distribute.InputContext) -> np.ndarray:
        """Returns int64 [1 + w, R]: from where one input pipeline of this process reads."""
        self._local_pipelines.append(context.input_pipeline_id)
        if self._saved is None or not len(self._saved.places):
            return np.zeros([1, self._row_size], np.int64)
        pipelines = context.num_input_pipelines
        places = self._saved.places
        if self._saved.layout in self._layouts and len(places) == pipelines:
            rows = places[context.input_pipeline_id]
            return rows[(rows >= 0).any(axis=1)]
        row = similar_row(places[:, 0], pipelines, self._row_size)
        if not self._has_told:
            self._has_told = True
            _logger.info(
                'the files, the settings of train_input_reader or the number of input pipelines '
                '(%d before, %d now) have changed since the checkpoint: the records go on in '
                'another order, at the same part of epoch %d',
                len(places),
                pipelines,
                row[-1] // EPOCH + 1,
            )
        return row[np.newaxis]

    def collect(self, states: np.ndarray) -> None:
        """Takes in where the pipelines stand, for the next save. Collective.

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
        self._places.assign(of_all.reshape(-1, states.shape[1] // self._row_size, self._row_size))


def state_spec(element_spec: Mapping[str, tf.TypeSpec]) -> tuple[int, int]:
    """Replicas of this process, and K, of the batches of a distributed dataset."""
    if InputFields.STREAM_STATE not in element_spec:
        return 1, 0
    specs = tf.nest.flatten(element_spec[InputFields.STREAM_STATE], expand_composites=True)
    return len(specs), specs[0].shape[0]


def similar_row(rows: np.ndarray, pipelines: int, row_size: int) -> np.ndarray:
    """Finds where each of `pipelines` goes on, after as many records in all.

    Args:
      rows: int64 [pipelines before, R before].
      pipelines: how many there are now.
      row_size: R now.

    Returns:
      int64 [R]: the newest epoch, in which each gets an equal part of the records read so far.
    """
    columns = [_similar_place(rows[:, index], pipelines) for index in range(rows.shape[1])]
    if rows.shape[1] == row_size:
        if row_size > 1:
            columns[0] = int(rows[:, 0].sum()) // pipelines  # draws, no place
        return np.array(columns, np.int64)
    # Of a mixture, or now one: all sets stand at the same place.
    row = np.full([row_size], columns[-1], np.int64)
    if row_size > 1:
        row[0] = 0
    return row


def _similar_place(places: Sequence[int], pipelines: int) -> int:
    epoch = max(int(place) // EPOCH for place in places)
    position = sum(int(place) % EPOCH for place in places if int(place) // EPOCH == epoch)
    return epoch * EPOCH + position // pipelines
