"""Single-shot detectors: SSD (https://arxiv.org/abs/1512.02325), RetinaNet, EfficientDet."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import sampling, tracing
from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum
from object_detection.core.post_processing import Suppressed
from object_detection.core.shapes import dimensions, smaller
from object_detection.errors import expected
from object_detection.meta_architectures.detection_model import AnchorPredictions, DetectionModel
from object_detection.meta_architectures.ssd import loss_names
from object_detection.meta_architectures.ssd.anchor_losses import AnchorLosses
from object_detection.meta_architectures.ssd.anchor_tasks import AnchorTask
from object_detection.meta_architectures.ssd.predictions import Predictions
from object_detection.meta_architectures.ssd.variable_names import SSD_NAMES
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.targets.anchors import AnchorGenerator
from object_detection.targets.targets import Targets

# Distinguish the seeds of the sample of anchors and of dropout. Added to even numbers.
_SAMPLE, _DROPOUT = (0, 0), (1, 0)


@dataclasses.dataclass(frozen=True)
class PostProcessing:
    """How predictions become detections.

    Attributes:
      nms: multi-class non-maximum suppression, `(boxes [B, N, 1, 4], scores [B, N, K], ...) ->
        Suppressed`.
      score_converter: logits -> scores.
      drops_background: whether column 0 of the scores is background.
      changes_frame: whether `nms` returns boxes relative to the true images; otherwise they are
        relative to the preprocessed ones.
      returns_raw_boxes: whether `predict` returns decoded boxes.
      detects_background: whether column 0 is a class of detections all the same, of the id 0, which
        is -1 before ids are made of classes.
      topk_per_level: how many pairs of a box and a class of each level take part in `nms`; 0 is
        all.
      topk_per_class: how many boxes of each class take part in `nms`; 0 is all.
    """

    nms: Callable[..., Suppressed]
    score_converter: Callable[[tf.Tensor], tf.Tensor]
    drops_background: bool = True
    changes_frame: bool = True
    returns_raw_boxes: bool = False
    detects_background: bool = False
    topk_per_level: int = 0
    topk_per_class: int = 0


class Ssd(DetectionModel):
    """A detector that predicts a box and scores of classes for each anchor of its feature maps.

    As in the reference, images are normalised and then padded, and losses are divided by the number
    of matched anchors of the batch; unlike there, of the batches of all replicas.

    Args:
      num_classes: K, without background unless the ground truth has a background class of its own.
      resizer: the image resizer.
      feature_extractor: backbone and neck.
      anchor_generator: makes the anchors of each feature map.
      box_predictor: `(maps, training, seeds) -> (codes [B, N, D], logits [B, N, C], ...)`, with one
        more output for each of `tasks`.
      anchor_losses: the targets of anchors, and the losses.
      post_processing: what turns predictions into detections.
      tasks: what is learnt of anchors in addition to boxes and classes.
    """

    variable_names = SSD_NAMES
    pads_normalized = True

    def __init__(
        self,
        *,
        num_classes: int,
        resizer: Callable,
        feature_extractor: FeatureExtractor,
        anchor_generator: AnchorGenerator,
        box_predictor: keras.layers.Layer,
        anchor_losses: AnchorLosses,
        post_processing: PostProcessing,
        tasks: Sequence[AnchorTask] = (),
        name: str = 'ssd',
    ):
        super().__init__(num_classes=num_classes, resizer=resizer, name=name)
        levels = anchor_generator.num_anchors_per_location()
        if len(levels) != feature_extractor.num_levels:
            raise expected(
                name, f'anchors for {feature_extractor.num_levels} maps', f'{len(levels)} levels'
            )
        self.feature_extractor = feature_extractor
        self.box_predictor = box_predictor
        self.anchor_generator = anchor_generator
        self._anchor_losses = anchor_losses
        self._post_processing = post_processing
        self._tasks = {task.output.name: task for task in tasks}

    def parts(self) -> dict[str, keras.layers.Layer]:
        return {**self.feature_extractor.parts(), 'box_predictor': self.box_predictor}

    def build_variables(self) -> None:
        # The heads are convolutions, whose variables do not depend on the sizes of the maps.
        self.box_predictor([tf.zeros([1, 1, 1, depth]) for depth in self.feature_extractor.depths])

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
        """Runs the network; see the base class.

        With ground truth, anchors are matched to it.
        """
        del true_shapes
        if training and groundtruth is None and self._anchor_losses.differs_in_training:
            raise expected(f'{self.name}: use_confidences_as_targets', '`groundtruth` in training')
        (maps,) = self.feature_extractor.feature_stacks(images, training)
        anchors = self._anchors(images, maps)
        levels = _levels(anchors)
        codes, logits, *further = self.box_predictor(
            maps, training=training, seeds=sampling.fold_in(seeds, _DROPOUT)
        )
        predictions = Predictions(
            images=images,
            features=maps,
            anchors=tf.concat(anchors, axis=0),
            box_codes=codes,
            class_logits=logits,
            further=dict(zip(self._tasks, further, strict=True)),
        )
        if groundtruth is not None:
            predictions = predictions._replace(
                targets=self._anchor_losses.assign(
                    predictions.anchors,
                    groundtruth,
                    training,
                    sampling.fold_in(seeds, _SAMPLE),
                    levels,
                )
            )
        if self.box_predictor.converts_to_probabilities and not training:
            predictions = predictions._replace(class_probabilities=tf.sigmoid(logits))
        if not self._post_processing.returns_raw_boxes:
            return predictions
        (batch,) = dimensions(codes, 0)
        return predictions._replace(
            raw_boxes=self._decode(predictions),
            level_of_anchor=tf.tile(levels[tf.newaxis], [batch, 1]),
        )

    @tracing.named('postprocess')
    def postprocess(self, predictions: Predictions, true_shapes: tf.Tensor) -> dict[str, tf.Tensor]:
        options = self._post_processing
        boxes = predictions.raw_boxes
        if boxes is None:
            boxes = self._decode(predictions)
        scores = self._scores(predictions)
        batch, count = dimensions(scores, 0, 1)
        fields = {
            'multiclass_scores': scores,
            'anchor_indices': tf.tile(tf.range(count, dtype=tf.int32)[tf.newaxis], [batch, 1]),
        }
        for name, task in self._tasks.items():
            fields |= task.fields(predictions.further[name])
        coder = self._anchor_losses.box_coder
        if self.needs_keypoints:
            codes = tf.cast(predictions.box_codes, tf.float32)
            fields['keypoints'] = coder.decode_keypoints(codes, predictions.anchors)
        window = _true_windows(predictions.images, true_shapes)
        columns = scores if options.detects_background else self._of_objects(scores)
        candidates = boxes
        if options.topk_per_level:
            rows, columns = self._best_of_levels(columns, predictions.features)
            candidates, fields = tf.nest.map_structure(
                lambda values: tf.gather(values, rows, batch_dims=1), (boxes, fields)
            )
        if options.topk_per_class:
            columns = self._best_of_classes(columns)
        detections = options.nms(
            candidates[:, :, tf.newaxis],
            columns,
            clip_window=window,
            additional_fields=fields,
        )
        carried = dict(detections.additional_fields)
        named = {
            DetectionFields.BOXES: detections.boxes,
            DetectionFields.SCORES: detections.scores,
            DetectionFields.CLASSES: detections.classes - float(options.detects_background),
            DetectionFields.MULTICLASS_SCORES: carried.pop('multiclass_scores'),
            DetectionFields.ANCHOR_INDICES: tf.cast(carried.pop('anchor_indices'), tf.float32),
            DetectionFields.NUM_DETECTIONS: tf.cast(detections.num_detections, tf.float32),
            DetectionFields.RAW_BOXES: boxes,
            DetectionFields.RAW_SCORES: scores,
        }
        if 'keypoints' in carried:
            keypoints = carried.pop('keypoints')  # [B, T, P, 2]
            if options.changes_frame:
                keypoints /= window[:, tf.newaxis, tf.newaxis, 2:]
            named['detection_keypoints'] = keypoints
        return named | carried

    def anchor_predictions(self, predictions: Predictions) -> AnchorPredictions:
        return AnchorPredictions(
            tf.cast(predictions.box_codes, tf.float32),
            self._of_objects(self._scores(predictions)),
            predictions.anchors,
        )

    @tracing.named('loss')
    def loss_sums(
        self, predictions: Predictions, groundtruth: Groundtruth, seeds: tf.Tensor | None
    ) -> dict[str, LossSum]:
        """Returns the losses; see the base class.

        Anchors are matched here if `predict` was not given the ground truth.
        """
        targets = self._targets(predictions, groundtruth, seeds)
        sums = self._anchor_losses.compute(predictions, targets)
        for name, task in self._tasks.items():
            sums |= task.loss_sums(predictions.further[name], predictions, targets)
        return sums

    def loss_names(self) -> tuple[str, ...]:
        return sum((tuple(task.loss_names) for task in self._tasks.values()), loss_names.NAMES)

    @property
    def needs_keypoints(self) -> bool:
        """Whether boxes are coded together with keypoints."""
        return hasattr(self._anchor_losses.box_coder, 'num_keypoints')

    def _scores(self, predictions: Predictions) -> tf.Tensor:
        """Returns the scores of all columns, float32 [B, N, C]."""
        outputs = tf.cast(predictions.class_outputs, tf.float32)
        scores = self._post_processing.score_converter(outputs)
        for name, task in self._tasks.items():
            scores = task.rescore(scores, predictions.further[name])
        return scores

    def _of_objects(self, scores: tf.Tensor) -> tf.Tensor:
        return scores[..., 1:] if self._post_processing.drops_background else scores

    def _best_of_levels(
        self, scores: tf.Tensor, maps: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Chooses boxes that the best pairs of a box and a class of each level are of.

        The best k pairs are of the k boxes that have the best scores of any class: few scores are
        looked at once these are known.

        Args:
          scores: [B, N, K].
          maps: the feature maps.

        Returns:
          Indices of boxes, int32 [B, M], ascending, and their scores [B, M, K], which are -1 but
          for the best pairs of each level.
        """
        topk, columns = self._post_processing.topk_per_level, scores.shape[2]
        cells = [math.prod(dimensions(each, 1, 2)) for each in maps]
        per_cell = self.anchor_generator.num_anchors_per_location()
        best_of_box = tf.reduce_max(scores, axis=2)
        rows, kept, start = [], [], 0
        for count, anchors in zip(cells, per_cell, strict=True):
            end = start + count * anchors
            most = smaller(count * anchors, topk)
            best = tf.math.top_k(best_of_box[:, start:end], most, sorted=False).indices
            rows.append(tf.sort(best, axis=1) + start)
            level = tf.gather(scores, rows[-1], batch_dims=1)
            pairs = tf.reshape(level, [-1, most * columns])
            pairs = tf.math.top_k(pairs, smaller(most * columns, topk), sorted=False).values
            least = tf.reduce_min(pairs, axis=1)[:, tf.newaxis, tf.newaxis]
            kept.append(tf.where(level >= least, level, -1.0))
            start = end
        return tf.concat(rows, axis=1), tf.concat(kept, axis=1)

    def _best_of_classes(self, scores: tf.Tensor) -> tf.Tensor:
        """Sets scores [B, N, K] to -1 but for those of the best boxes of each class."""
        topk = smaller(dimensions(scores, 1)[0], self._post_processing.topk_per_class)
        of_classes = tf.transpose(scores, [0, 2, 1])
        least = tf.reduce_min(tf.math.top_k(of_classes, topk, sorted=False).values, axis=-1)
        return tf.where(scores >= least[:, tf.newaxis], scores, -1.0)

    def _targets(
        self, predictions: Predictions, groundtruth: Groundtruth, seeds: tf.Tensor | None
    ) -> Targets:
        """The targets of the anchors: those of `predict`, or else matched here."""
        if predictions.targets is not None:
            return predictions.targets
        seeds = sampling.fold_in(seeds, _SAMPLE)
        levels = _levels(self._anchors(predictions.images, predictions.features))
        return self._anchor_losses.assign(
            predictions.anchors, groundtruth, seeds=seeds, levels=levels
        )

    def _anchors(self, images: tf.Tensor, maps: list[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the anchors of each level, float32 [N_l, 4], normalized to the images."""
        height, width = dimensions(images, 1, 2)
        shapes = [dimensions(features, 1, 2) for features in maps]
        anchors = self.anchor_generator.generate(shapes, height, width)
        if self.anchor_generator.normalized:
            return anchors
        return [box_ops.absolute_to_normalized(rows, height, width) for rows in anchors]

    def _decode(self, predictions: Predictions) -> tf.Tensor:
        """Returns the predicted boxes, float32 [B, N, 4], normalized to the images."""
        coder = self._anchor_losses.box_coder
        return coder.decode(tf.cast(predictions.box_codes, tf.float32), predictions.anchors)


def _levels(anchors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the index of the level of each anchor, int32 [N], of levels of float32 [N_l, 4]."""
    levels = [tf.fill(tf.shape(rows)[:1], level) for level, rows in enumerate(anchors)]
    return tf.concat(levels, axis=0)


def _true_windows(images: tf.Tensor, true_shapes: tf.Tensor) -> tf.Tensor:
    """Returns the true images within the preprocessed ones, float32 [B, 4], normalized."""
    sizes = tf.cast(true_shapes[:, :2], tf.float32) / tf.cast(tf.shape(images)[1:3], tf.float32)
    return tf.concat([tf.zeros_like(sizes), sizes], axis=1)
