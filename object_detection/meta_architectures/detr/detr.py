"""Detection transformers: DETR, RT-DETR, D-FINE, RF-DETR."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.core import boxes as corner_ops
from object_detection.core import sampling, tracing
from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum
from object_detection.core.shapes import dimensions
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.meta_architectures.detr import boxes as box_ops
from object_detection.meta_architectures.detr import queries as query_ops
from object_detection.meta_architectures.detr.losses import SetLosses, without_crowds
from object_detection.meta_architectures.detr.predictions import Predictions
from object_detection.meta_architectures.detr.queries import Tokens
from object_detection.meta_architectures.detr.variable_names import DETR_NAMES
from object_detection.models.feature_extractor import FeatureExtractor

# Distinguishes the seeds of noisy queries.
_NOISE = (0, 0)
# Side of the image that variables are built for.
_PROBE_SIZE = 64


class Network(NamedTuple):
    """The parts of a detector, in the order of computation.

    Attributes:
      feature_extractor: the backbone.
      encoder: one of `encoders`.
      queries: one of `queries`.
      decoder: one of `decoder`.
    """

    feature_extractor: FeatureExtractor
    encoder: keras.layers.Layer
    queries: keras.layers.Layer
    decoder: keras.layers.Layer


@dataclasses.dataclass(frozen=True)
class DetectionOptions:
    """How queries become detections.

    Attributes:
      score_converter: class logits -> scores [..., K].
      max_detections: number of detections of an image; 0 is that of the queries.
      one_class: whether a query detects its best class alone, as in DETR.
    """

    score_converter: Callable[[tf.Tensor], tf.Tensor]
    max_detections: int = 0
    one_class: bool = False


class Detr(DetectionModel):
    """A detector that predicts a set of boxes, which is not suppressed.

    Args:
      num_classes: K, without background.
      resizer: the image resizer.
      network: the parts.
      losses: matches predictions to objects, and computes the losses.
      loss_names: the names of these losses.
      detections: how queries become detections.
      sees_padding: whether cells beyond the true images are seen, and boxes are shares of what the
        maps cover. Otherwise these cells are masked, and boxes are shares of the true images.
    """

    variable_names = DETR_NAMES

    def __init__(
        self,
        *,
        num_classes: int,
        resizer: Callable,
        network: Network,
        losses: SetLosses,
        loss_names: Sequence[str],
        detections: DetectionOptions,
        sees_padding: bool,
    ):
        super().__init__(num_classes=num_classes, resizer=resizer, name='detr')
        self.feature_extractor, self.encoder, self.queries, self.decoder = network
        self._set_losses = losses
        self._loss_names = tuple(loss_names)
        self._detections = detections
        self._sees_padding = sees_padding

    def parts(self) -> dict[str, keras.layers.Layer]:
        return {
            **self.feature_extractor.parts(),
            'encoder': self.encoder,
            'queries': self.queries,
            'decoder': self.decoder,
        }

    def build_variables(self) -> None:
        tokens = self.encoder.encode(self.feature_extractor.empty_features(_PROBE_SIZE)).tokens()
        # Enough cells for all queries to be selected from.
        count, further = self.queries.options.count, len(tokens.sizes) - 1
        shape = [count + further, tokens.values.shape[-1]]
        tokens = Tokens(
            tf.zeros([1, *shape], tokens.values.dtype),
            [(count, 1), *[(1, 1)] * further],
            positions=None if tokens.positions is None else tf.zeros(shape),
        )
        self.decoder.decode(self.queries.begin(tokens, training=True), tokens)

    def normalize(self, images: tf.Tensor) -> tf.Tensor:
        return self.feature_extractor.normalize(images)

    def forward(
        self,
        images: tf.Tensor,
        true_shapes: tf.Tensor,
        training: bool,
        groundtruth: Groundtruth | None,
        seeds: tf.Tensor | None,
    ) -> Predictions:
        """Runs the network; see `predict` of the base class."""
        (features,) = self.feature_extractor.feature_stacks(images, training)
        size = self.feature_extractor.padded_size(*dimensions(images, 1, 2))
        frame, windows = self._frames(images, true_shapes, size)
        encoded = self.encoder.encode(
            features,
            true=None if self._sees_padding else true_shapes[:, :2],
            size=size,
            training=training,
        )
        tokens, noisy = encoded.tokens(), None
        if training and groundtruth is not None:
            noisy = query_ops.make_noisy(
                self.queries.options,
                _in_frame(without_crowds(groundtruth), frame),
                sampling.fold_in(seeds, _NOISE),
            )
        queries = self.queries.begin(tokens, noisy, training=training)
        layers, first = self.decoder.decode(queries, tokens, training=training)
        return Predictions(
            maps=encoded.maps,
            layers=layers,
            windows=windows,
            frame=frame,
            selection=queries.selection,
            first_boxes=queries.boxes,
            noisy=noisy,
            first=first,
            num_groups=queries.num_groups,
        )

    def _frames(
        self, images: tf.Tensor, true_shapes: tf.Tensor, size: Sequence
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns `Predictions.frame` and `Predictions.windows`; `size` is what the maps cover."""
        total = tf.cast(tf.stack(dimensions(images, 1, 2)), tf.float32)
        true = tf.cast(true_shapes[:, :2], tf.float32)
        base = tf.cast(tf.stack(size), tf.float32) if self._sees_padding else true
        shares = tf.broadcast_to(true / base, tf.shape(true))
        frame = tf.broadcast_to(total / base, tf.shape(true))
        windows = tf.concat([tf.zeros_like(shares), shares], axis=-1)
        return tf.tile(frame, [1, 2])[:, tf.newaxis], windows

    @tracing.named('postprocess')
    def postprocess(self, predictions: Predictions, true_shapes: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the best of all pairs of a query and a class; see `DetectionOptions`."""
        last, count, options = predictions.layers[-1], self.queries.options.count, self._detections
        start = 0 if predictions.noisy is None else predictions.noisy.matches.shape[1]
        own = slice(start, start + count)
        corners = box_ops.to_corners(last.boxes[:, own])
        scores = options.score_converter(last.class_logits[:, own])
        clipped = corner_ops.clip(corners, predictions.windows)
        batch, queries = dimensions(scores, 0, 1)
        pairs = tf.where(corner_ops.area(clipped)[..., tf.newaxis] > 0.0, scores, 0.0)
        if options.one_class:
            best_class = tf.argmax(scores, axis=-1, output_type=tf.int32)
            pairs *= tf.one_hot(best_class, self.num_classes)
        best, indices = tf.math.top_k(
            tf.reshape(pairs, [batch, queries * self.num_classes]),
            min(options.max_detections or count, count * self.num_classes),
        )
        rows, is_found = indices // self.num_classes, best > 0.0
        chosen = tf.gather(clipped, rows, batch_dims=1)
        framed = corner_ops.change_frame(chosen, predictions.windows)
        return {
            DetectionFields.BOXES: tf.where(is_found[..., tf.newaxis], framed, 0.0),
            DetectionFields.SCORES: best,
            DetectionFields.CLASSES: tf.cast(indices % self.num_classes, tf.float32),
            DetectionFields.MULTICLASS_SCORES: tf.gather(scores, rows, batch_dims=1),
            DetectionFields.ANCHOR_INDICES: tf.cast(rows, tf.float32),
            DetectionFields.NUM_DETECTIONS: tf.reduce_sum(tf.cast(is_found, tf.float32), axis=1),
            DetectionFields.RAW_BOXES: corners,
            DetectionFields.RAW_SCORES: scores,
        }

    @tracing.named('loss')
    def loss_sums(
        self, predictions: Predictions, groundtruth: Groundtruth, seeds: tf.Tensor | None
    ) -> dict[str, LossSum]:
        """Returns the losses; see the base class."""
        del seeds
        groundtruth = _in_frame(without_crowds(groundtruth), predictions.frame)
        return self._set_losses.compute(predictions, groundtruth)

    def loss_names(self) -> Sequence[str]:
        return self._loss_names


def _in_frame(groundtruth: Groundtruth, frame: tf.Tensor) -> Groundtruth:
    """Changes boxes from shares of the images to those of the predictions."""
    return groundtruth._replace(boxes=groundtruth.boxes * frame)
