"""The second stage of Faster R-CNN (https://arxiv.org/abs/1506.01497): boxes and classes.

Several of them are a cascade (Cascade R-CNN, https://arxiv.org/abs/1712.00726): each takes the
boxes that the one before refined, and the scores of a detection are the mean over all of them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import sampling, tracing
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum
from object_detection.core.post_processing import Suppressed
from object_detection.core.shapes import dimensions
from object_detection.core.suppression.nms_tiles import NEVER
from object_detection.losses.federated import FederatedClasses
from object_detection.losses.hard_example_miner import HardExampleMiner
from object_detection.meta_architectures.faster_rcnn import loss_names
from object_detection.meta_architectures.faster_rcnn.predictions import (
    BoxPredictions,
    RegionPredictions,
)
from object_detection.meta_architectures.faster_rcnn.proposals import (
    Proposals,
    Regions,
    is_large_enough,
    true_image_windows,
    with_objects,
)
from object_detection.targets.assigners import Assigner, Candidates
from object_detection.targets.matchers import IGNORED, UNMATCHED
from object_detection.targets.targets import Columns, Targets, encode_targets, without_crowds


@dataclasses.dataclass(frozen=True)
class BoxStageParams:
    """Parameters of the second stage.

    Attributes:
      batch_size: number of proposals per image that training samples.
      positive_fraction: at most this share of them is positive.
      localization_weight, classification_weight: factors of the losses.
      use_matmul_gather: gather rows by one-hot products where XLA compiles.
      fill_samples: other rows, including padding, fill up missing samples; see
        `sampling.sample_balanced`.
      add_objects: training also samples from the boxes of the objects.
      mean_over_coordinates: the localization loss is the mean over the coordinates of all positive
        proposals of the batch; otherwise it is divided by the number of proposals of an image.
      crowd_ioa_threshold: proposals with this share of their area on a crowd do not train, and
        crowds are no objects; with 0, crowds are objects.
      min_box_size: boxes of smaller height or width, clipped, in pixels, are no detections; above
        0, boxes are clipped before suppression.
    """

    batch_size: int
    positive_fraction: float
    localization_weight: float
    classification_weight: float
    use_matmul_gather: bool
    fill_samples: bool = False
    add_objects: bool = False
    mean_over_coordinates: bool = False
    crowd_ioa_threshold: float = 0.0
    min_box_size: float = 0.0

    @property
    def max_positives(self) -> int:
        """Maximum number of positive proposals that training samples in an image."""
        return int(self.batch_size * self.positive_fraction)


class BoxStage(keras.layers.Layer):
    """Classifies proposals and refines their boxes.

    Args:
      head: `(features [R, h, w, C], training, seeds [B, 2] or None) -> (codes [R, K or 1, 4],
        logits [R, K + 1])`.
      assigner: matches proposals to ground truth.
      box_coder: encodes the targets of boxes, and decodes the codes.
      localization_loss: `(codes, targets, weights [B, P]) -> [B, P]`.
      classification_loss: `(logits, targets, weights [B, P, 1 or K + 1]) -> [B, P] or
        [B, P, K + 1]`.
      nms: multi-class non-maximum suppression.
      score_converter: logits -> scores.
      params: the numbers.
      num_classes: K.
      hard_example_miner: selects the training proposals from all proposals by their losses; None
        draws a balanced sample.
      federated: in training, samples the classes that have losses in an image; None: all have.
      classifier: layer from crops [R, h, w, C] to the features that the head sees; None is that of
        the feature extractor.
    """

    def __init__(
        self,
        *,
        head: keras.layers.Layer,
        assigner: Assigner,
        box_coder: Any,
        localization_loss: Callable,
        classification_loss: Callable,
        nms: Callable[..., Suppressed],
        score_converter: Callable[[tf.Tensor], tf.Tensor],
        params: BoxStageParams,
        num_classes: int,
        hard_example_miner: HardExampleMiner | None = None,
        federated: FederatedClasses | None = None,
        classifier: keras.layers.Layer | None = None,
        name: str = 'box_stage',
    ):
        super().__init__(name=name)
        self.head = head
        self.classifier = classifier
        self.assigner = assigner
        self.box_coder = box_coder
        self.params = params
        self.federated = federated
        self._localization_loss = localization_loss
        self._classification_loss = classification_loss
        self._nms = nms
        self._score_converter = score_converter
        self._num_classes = num_classes
        self._hard_example_miner = hard_example_miner

    def parts(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers with the variables by name; see `DetectionModel.parts`."""
        head = {'box_head': self.head}
        return head if self.classifier is None else {'box_classifier': self.classifier} | head

    def assign(
        self, boxes: tf.Tensor, groundtruth_boxes: tf.Tensor, groundtruth: Groundtruth
    ) -> Targets:
        """Matches boxes to ground truth, and returns their targets.

        With a crowd threshold, boxes on crowds are ignored: they are background of weight 0.

        Args:
          boxes: float32 [B, P, 4], absolute.
          groundtruth_boxes: float32 [B, M, 4], absolute.
          groundtruth: ground truth with classes, weights and crowds.

        Raises:
          ValueError: if there is a crowd threshold and the ground truth has no `is_crowd`.
        """
        groundtruth = groundtruth._replace(boxes=groundtruth_boxes)
        return self._targets(self._match(boxes, groundtruth), boxes, groundtruth)

    def _match(self, boxes: tf.Tensor, groundtruth: Groundtruth) -> tf.Tensor:
        """Returns the matches of `assign`, int32 [B, P]; the ground truth has absolute boxes."""
        is_on_crowd, threshold = None, self.params.crowd_ioa_threshold
        if threshold > 0:
            groundtruth, is_on_crowd = without_crowds(boxes, groundtruth, threshold)
        matches = self.assigner.assign(Candidates(boxes), groundtruth)
        return matches if is_on_crowd is None else tf.where(is_on_crowd, IGNORED, matches)

    def _targets(self, matches: tf.Tensor, boxes: tf.Tensor, groundtruth: Groundtruth) -> Targets:
        """Returns the targets of `assign` of boxes with known matches."""
        background = tf.zeros_like(groundtruth.weights)[..., tf.newaxis]
        labels = tf.concat([background, groundtruth.classes], axis=-1)
        return encode_targets(
            matches,
            Candidates(boxes),
            groundtruth,
            self.box_coder,
            Columns(labels, unmatched=tf.one_hot(0, self._num_classes + 1)),
            self.params.use_matmul_gather,
        )

    @tracing.named('sampling')
    def sample(
        self,
        proposals: Proposals,
        groundtruth_boxes: tf.Tensor,
        groundtruth: Groundtruth,
        seeds: tf.Tensor | None,
    ) -> tuple[Proposals, Targets]:
        """Samples `batch_size` proposals per image for training, in the order of the proposals.

        With `add_objects`, objects are sampled like proposals and follow them. Hard examples are
        mined from all proposals, so that mining keeps all of them here.

        Args:
          proposals: the proposals to sample from.
          groundtruth_boxes, groundtruth: see `assign`.
          seeds: int32 [B, 2], or None.

        Returns:
          The sample, and its targets; the sample's padding is unmatched.
        """
        if self._hard_example_miner is not None:
            return proposals, self.assign(proposals.boxes, groundtruth_boxes, groundtruth)
        candidates = Regions(proposals.boxes, proposals.scores, proposals.is_valid())
        if self.params.add_objects:
            candidates = with_objects(candidates, groundtruth_boxes, groundtruth)
        batch, rows = tf.unstack(tf.shape(candidates.scores))
        groundtruth = groundtruth._replace(boxes=groundtruth_boxes)
        matches = self._match(candidates.boxes, groundtruth)
        found = self._targets(matches, candidates.boxes, groundtruth)
        sampled = sampling.sample_balanced(
            candidates.is_valid & (found.class_weights > 0),
            is_positive(found),
            self.params.batch_size,
            self.params.positive_fraction,
            sampling.sampling_noise(seeds, rows, batch),
            fill=self.params.fill_samples,
        )
        indices, is_valid = sampling.sampled_indices(sampled, self.params.batch_size)
        keep = tf.cast(is_valid, tf.float32)

        def take(rows: tf.Tensor) -> tf.Tensor:
            use_matmul = self.params.use_matmul_gather and tracing.is_compiled()
            return sampling.gather_rows(rows, indices, use_matmul)

        sample = Proposals(
            boxes=take(candidates.boxes) * keep[..., tf.newaxis],
            scores=take(candidates.scores) * keep,
            count=tf.reduce_sum(tf.cast(is_valid, tf.int32), axis=1),
        )
        matches = tf.gather(matches, indices, batch_dims=1)
        matches = tf.where(is_valid, matches, UNMATCHED)
        return sample, self._targets(matches, sample.boxes, groundtruth)

    def loss_sums(
        self, regions: RegionPredictions, proposals: Proposals, targets: Targets
    ) -> dict[str, LossSum]:
        """Returns the localization and classification losses.

        Args:
          regions: predictions of the proposals.
          proposals: P proposals per image.
          targets: targets of the proposals.
        """
        batch, rows = tf.unstack(tf.shape(proposals.scores))
        count = tf.maximum(tf.cast(proposals.count, tf.float32)[:, tf.newaxis], 1.0)
        share = tf.cast(proposals.is_valid(), tf.float32) / count
        codes = regions.box_codes
        codes = tf.reshape(codes, [batch, rows, *codes.shape[1:]])
        if codes.shape[2] == 1:
            codes = codes[:, :, 0]
        else:
            target_class = tf.argmax(targets.class_targets, axis=-1)
            # Background (-1 after the shift) selects no row and gives zeros of weight zero.
            rows_of_class = tf.one_hot(target_class - 1, self._num_classes)
            # A matrix product would round the codes to TF32 on GPUs.
            codes = tf.reduce_sum(rows_of_class[..., tf.newaxis] * codes, axis=2)
        logits = tf.reshape(regions.class_logits, [batch, rows, self._num_classes + 1])
        localization = share * self._localization_loss(
            codes, targets.box_targets, targets.box_weights
        )
        weights = targets.class_weights
        if weights.shape.rank == 2:
            weights = weights[..., tf.newaxis]
        classification = self._classification_loss(
            logits, targets.class_targets, weights * share[..., tf.newaxis]
        )
        if self._hard_example_miner is not None:
            localization, classification = self._mine(
                localization, classification, proposals, targets
            )
        number = images = tf.cast(batch, tf.float32)
        if self.params.mean_over_coordinates:
            localization *= count
            is_learnt = proposals.is_valid() & (targets.box_weights > 0)
            positives = tf.math.count_nonzero(is_learnt, dtype=tf.float32)
            number = positives * targets.box_targets.shape[-1]
        localization = self.params.localization_weight * tf.reduce_sum(localization)
        classification = self.params.classification_weight * tf.reduce_sum(classification)
        return {
            loss_names.BOX_LOCALIZATION: LossSum(localization, number),
            loss_names.BOX_CLASSIFICATION: LossSum(classification, images),
        }

    def decode(self, codes: tf.Tensor, proposals: Proposals) -> tf.Tensor:
        """Decodes [B * P, K or 1, D] to the refined boxes, float32 [B, P, K or 1, 4], absolute."""
        codes = tf.reshape(codes, [*dimensions(proposals.scores, 0, 1), *codes.shape[1:]])
        return self.box_coder.decode(codes, proposals.boxes[:, :, tf.newaxis])

    def _mine(
        self,
        localization: tf.Tensor,
        classification: tf.Tensor,
        proposals: Proposals,
        targets: Targets,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Sets the losses of easy proposals to zero; returns both float32 [B, P].

        The reference mines only in the first image of a batch, and does not pass the matches to its
        miner, so that `max_negatives_per_positive` does nothing there.
        """
        if classification.shape.rank == 3:
            classification = tf.reduce_sum(classification, axis=2)
        is_hard = self._hard_example_miner(
            localization,
            classification,
            proposals.boxes,
            matches=targets.matches,
            num_valid=proposals.count,
        )
        is_hard = tf.cast(is_hard, tf.float32)
        return localization * is_hard, classification * is_hard

    def scores(self, logits: tf.Tensor, batch: Any, rows: Any) -> tf.Tensor:
        """Logits [B * P, K + 1] -> the scores of all classes, [B, P, K + 1]; background first."""
        return self._score_converter(tf.reshape(logits, [batch, rows, self._num_classes + 1]))

    def refine(self, predicted: BoxPredictions, true_shapes: tf.Tensor) -> Proposals:
        """Returns the proposals with their refined boxes, of the best class if each has one.

        They are clipped to the true images; a box without area there, and padding, stays as it was.

        Args:
          predicted: of this stage.
          true_shapes: int32 [B, 3].
        """
        proposals, regions = predicted.proposals, predicted.regions
        scores = self.scores(regions.class_logits, *dimensions(proposals.scores, 0, 1))
        boxes = _of_best_class(self.decode(regions.box_codes, proposals), scores)
        boxes = box_ops.clip(boxes, true_image_windows(true_shapes))
        is_refined = proposals.is_valid() & (box_ops.area(boxes) > 0)
        boxes = tf.where(is_refined[..., tf.newaxis], boxes, proposals.boxes)
        return proposals._replace(boxes=boxes)

    def suppress(
        self, boxes: tf.Tensor, scores: tf.Tensor, counts: tf.Tensor, true_shapes: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Suppresses the boxes, and re-frames them to the true images.

        Args:
          boxes: float32 [B, P, K or 1, 4], absolute.
          scores: float32 [B, P, K + 1], background first.
          counts: int32 [B], how many rows of an image are no padding, the first ones.
          true_shapes: int32 [B, 3].

        Returns:
          The detections by the names of `DetectionFields`.
        """
        batch, rows = tf.unstack(tf.shape(scores)[:2])
        windows = true_image_windows(true_shapes)
        anchor_indices = tf.tile(tf.range(rows, dtype=tf.int32)[tf.newaxis], [batch, 1])
        scores_of_classes = scores[..., 1:]
        if self.params.min_box_size > 0:
            boxes = box_ops.clip(boxes, windows[:, tf.newaxis])
            is_counted = is_large_enough(boxes, self.params.min_box_size)
            scores_of_classes = tf.where(is_counted, scores_of_classes, NEVER)
        detections = self._nms(
            boxes,
            scores_of_classes,
            clip_window=windows,
            num_valid_boxes=counts,
            change_coordinate_frame=True,
            additional_fields={'multiclass_scores': scores, 'anchor_indices': anchor_indices},
        )
        return {
            'detection_boxes': detections.boxes,
            'detection_scores': detections.scores,
            'detection_classes': detections.classes,
            'detection_multiclass_scores': detections.additional_fields['multiclass_scores'],
            'detection_anchor_indices': tf.cast(
                detections.additional_fields['anchor_indices'], tf.float32
            ),
            'num_detections': tf.cast(detections.num_detections, tf.float32),
            'raw_detection_boxes': box_ops.change_frame(
                box_ops.clip(_of_best_class(boxes, scores), windows), windows
            ),
            'raw_detection_scores': scores,
        }


def is_positive(targets: Targets) -> tf.Tensor:
    """Returns which proposals match an object of a class other than background: bool [B, P]."""
    return tf.argmax(targets.class_targets, axis=-1) > 0


def mean_scores(
    stages: Sequence[BoxStage], regions: Sequence[RegionPredictions], batch: Any, rows: Any
) -> tf.Tensor:
    """Returns the mean scores of regions over stages, float32 [B, P, K + 1], background first.

    Args:
      stages: the stages.
      regions: predictions of each stage for the same B * P regions, or for boxes refined from them.
      batch, rows: B and P.
    """
    scores = [
        stage.scores(predicted.class_logits, batch, rows)
        for stage, predicted in zip(stages, regions, strict=True)
    ]
    return tf.add_n(scores) / len(scores)


@tracing.named('detections')
def detect(
    stages: Sequence[BoxStage], predicted: Sequence[BoxPredictions], true_shapes: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Returns the detections: the boxes of the last stage, with the mean scores of all stages.

    Args:
      stages: the stages.
      predicted: what each of them predicted.
      true_shapes: int32 [B, 3].
    """
    proposals, regions, _ = predicted[-1]
    batch, rows = tf.unstack(tf.shape(proposals.scores))
    boxes = stages[-1].decode(regions.box_codes, proposals)
    scores = mean_scores(stages, [each.regions for each in predicted], batch, rows)
    return stages[-1].suppress(boxes, scores, proposals.count, true_shapes)


def _of_best_class(boxes: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Returns the box of each region, [B, P, 4], of [B, P, K or 1, 4] and scores [B, P, K + 1]."""
    if boxes.shape[2] == 1:
        return boxes[:, :, 0]
    return tf.gather(boxes, tf.argmax(scores[..., 1:], axis=-1), axis=2, batch_dims=2)
