"""Tasks of videos: embeddings of objects for tracking, and their movement since the last frame."""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from object_detection.core.fields import DetectionFields
from object_detection.core.fields import InputFields as F
from object_detection.core.loss_sum import LossSum, add
from object_detection.meta_architectures.center_net.tasks import task
from object_detection.models.composite import Composite
from object_detection.models.convolutions import Dense
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import BatchNormParams

_REID, _OFFSET = 'track/reid', 'track/offset'
_HYPERPARAMS = LayerHyperparams(batch_norm=BatchNormParams(momentum=0.99, epsilon=1e-3, scale=True))


class TrackClassifier(Composite):
    """Fully connected layers from embeddings to the ids of objects, for the loss alone.

    Their norms always take the moving statistics, since half of the rows of a batch are padding.

    Args:
      embedding_size: numbers of an embedding, and of the hidden layers.
      num_ids: number of different objects in the training data.
      num_layers: number of layers, at least 1.
    """

    def __init__(self, *, embedding_size: int, num_ids: int, num_layers: int):
        super().__init__(name='track_classifier')
        self._hidden = [
            (
                Dense(embedding_size, name=f'dense_{i}'),
                _HYPERPARAMS.norm(frozen=True, name=f'dense_{i}_bn'),
            )
            for i in range(num_layers - 1)
        ]
        self._output = Dense(num_ids, name=f'dense_{num_layers - 1}')
        self(tf.zeros([1, embedding_size]))

    def call(self, embeddings: tf.Tensor) -> tf.Tensor:
        """Returns logits float32 [N, num_ids] of embeddings [N, D]."""
        x = embeddings
        for dense, norm in self._hidden:
            x = tf.nn.relu(norm(dense(x)))
        return tf.cast(self._output(x), tf.float32)


class Track(task.Task):
    """Predicts an embedding of each object, which is like that of the same object in other frames.

    Args:
      head: as many channels as an embedding has numbers.
      classifier: from embeddings to ids.
      num_ids: number of ids.
      loss: `(logits [1, N, I], targets, weights [1, N, 1]) -> losses`.
      weight: factor of the loss.
    """

    loss_names = (f'Loss/{_REID}',)

    def __init__(
        self,
        *,
        head: task.Head,
        classifier: TrackClassifier,
        num_ids: int,
        loss: Callable,
        weight: float,
    ):
        self.heads = {_REID: head}
        self.layers = {'track_classifier': classifier}
        self._num_ids = num_ids
        self._loss = loss
        self._weight = weight

    def loss_sums(
        self, maps: Mapping[str, Sequence[tf.Tensor]], cells: task.Cells
    ) -> dict[str, LossSum]:
        ids = cells.field(F.GROUNDTRUTH_TRACK_IDS, 'load_track_id of the input readers')
        points, _ = task.centers(cells.boxes)
        targets = tf.reshape(tf.one_hot(ids, self._num_ids), [1, -1, self._num_ids])
        weights = tf.reshape(cells.groundtruth.weights, [1, -1, 1])
        losses = []
        for stack in maps[_REID]:
            embeddings = tf.reshape(task.gather_points(stack, points), [-1, stack.shape[-1]])
            logits = self.layers['track_classifier'](embeddings)[tf.newaxis]
            losses.append(self._loss(logits, targets, weights))
        return {self.loss_names[0]: add(losses, cells.num_objects, self._weight)}

    def detect(self, maps: Mapping[str, tf.Tensor], found: task.Found) -> dict[str, tf.Tensor]:
        embeddings = found.gather(maps[_REID])
        return {DetectionFields.EMBEDDINGS: tf.math.l2_normalize(embeddings, axis=-1)}


class TemporalOffset(task.Task):
    """Predicts by how much an object has moved since the last frame, in the ground truth's unit.

    Args:
      head: 2 channels.
      loss: `(predictions [B, N, 2], targets, weights [B, N]) -> [B, N]`.
      weight: factor of the loss.
    """

    loss_names = (f'Loss/{_OFFSET}',)

    def __init__(self, *, head: task.Head, loss: Callable, weight: float):
        self.heads = {_OFFSET: head}
        self._loss = loss
        self._weight = weight

    def loss_sums(
        self, maps: Mapping[str, Sequence[tf.Tensor]], cells: task.Cells
    ) -> dict[str, LossSum]:
        origin = '`temporal_offsets` and `track_match_flags` of Groundtruth.from_lists'
        offsets = cells.field(F.GROUNDTRUTH_TEMPORAL_OFFSETS, origin)
        matched = cells.field(F.GROUNDTRUTH_TRACK_MATCH_FLAGS, origin)
        points, _ = task.centers(cells.boxes)
        weights = matched * cells.groundtruth.weights  # [B, M]
        losses = [
            self._loss(task.gather_points(each, points), offsets, weights) for each in maps[_OFFSET]
        ]
        return {self.loss_names[0]: add(losses, cells.num_objects, self._weight)}

    def detect(self, maps: Mapping[str, tf.Tensor], found: task.Found) -> dict[str, tf.Tensor]:
        return {DetectionFields.TEMPORAL_OFFSETS: found.gather(maps[_OFFSET])}
