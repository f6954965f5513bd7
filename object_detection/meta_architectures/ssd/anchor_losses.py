"""The losses of the anchors of a single-shot detector, and their targets."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum
from object_detection.errors import expected
from object_detection.losses.anchor_sampling import ExpectedLossWeights, RandomExampleSampler
from object_detection.losses.federated import FederatedClasses
from object_detection.losses.hard_example_miner import HardExampleMiner
from object_detection.losses.localization import fill_nan_targets
from object_detection.meta_architectures.ssd import loss_names
from object_detection.meta_architectures.ssd.predictions import Predictions
from object_detection.targets.assigners import Assigner, Candidates
from object_detection.targets.targets import Columns, Targets, confidence_targets, encode_targets


@dataclasses.dataclass(frozen=True)
class TargetOptions:
    """Options of the targets of anchors.

    Attributes:
      num_columns: C, number of classification targets of an anchor.
      adds_background: whether a background column is put before the classes of the ground truth.
      labels_background: whether the first class of the ground truth is background.
      background_as_zeros: whether anchors without an object have no class at all, as they do
        without a background column; otherwise their class is that column.
      from_confidences: whether the classes of the ground truth are confidences in training; see
        `confidence_targets`.
      implicit_weight: with `from_confidences`, class weight of implicit examples.
      unmatched_weight: class weight of anchors without an object.
      use_matmul_gather: whether rows are gathered by matrix products, see `encode_targets`.
    """

    num_columns: int
    adds_background: bool = True
    labels_background: bool = False
    background_as_zeros: bool = False
    from_confidences: bool = False
    implicit_weight: float = 1.0
    unmatched_weight: float = 1.0
    use_matmul_gather: bool = False

    @property
    def first_class(self) -> int:
        """The first column of an object's class: 1 if column 0 is background, otherwise 0."""
        return int(self.adds_background or self.labels_background)

    @property
    def has_background_class(self) -> bool:
        """Whether anchors without an object have a class, column 0."""
        return self.first_class == 1 and not self.background_as_zeros

    def unmatched_label(self) -> tf.Tensor:
        """Returns the targets of an anchor without an object, float32 [C]."""
        return tf.one_hot(0 if self.has_background_class else -1, self.num_columns)


@dataclasses.dataclass(frozen=True)
class LossOptions:
    """The losses of anchors, and what divides their sums.

    Attributes:
      localization: `(predictions [B, N, D], targets [B, N, D], weights [B, N]) -> [B, N]`.
      classification: `(logits [B, N, C], targets [B, N, C], weights [B, N, C or 1])`, which returns
        [B, N, C], [B, N] or [B, C].
      localization_weight, classification_weight: factors of the losses.
      compares_boxes: whether `localization` compares decoded boxes, not codes.
      divides_by_matches: whether both losses are divided by the sum of the weights of matched
        anchors, over the batches of all replicas.
      divides_per_image: whether, in place of that, the losses of an image are divided by the sum of
        its own matched anchors, at least 1, and their mean over the images is the loss.
      divides_by_code_size: whether the localization loss is also divided by D.
      hard_example_miner: selects the anchors that contribute by their losses; None: all do.
      random_example_sampler: selects the anchors that contribute at random; None: all do.
      expected_loss_weights: weights of the losses against label and background; None: none.
      federated: in training, samples the classes that have losses in an image; None: all have.
    """

    localization: Callable
    classification: Callable
    localization_weight: float = 1.0
    classification_weight: float = 1.0
    compares_boxes: bool = False
    divides_by_matches: bool = True
    divides_per_image: bool = False
    divides_by_code_size: bool = False
    hard_example_miner: HardExampleMiner | None = None
    random_example_sampler: RandomExampleSampler | None = None
    expected_loss_weights: ExpectedLossWeights | None = None
    federated: FederatedClasses | None = None


class AnchorLosses:
    """Assigns targets to anchors, and computes the localization and classification losses.

    SSD (https://arxiv.org/abs/1512.02325, sec. 2.2) with its training objectives since: focal loss,
    hard example mining, sampling, expected losses.

    Args:
      assigner: matches anchors to ground truth.
      box_coder: encodes the targets of boxes, and decodes the codes.
      targets: options of the targets.
      losses: options of the losses.
    """

    def __init__(
        self, assigner: Assigner, box_coder: Any, targets: TargetOptions, losses: LossOptions
    ):
        self.assigner = assigner
        self.box_coder = box_coder
        self._target_options = targets
        self._options = losses

    @property
    def differs_in_training(self) -> bool:
        """Whether the targets of a training are others than those of an evaluation."""
        return self._target_options.from_confidences

    def assign(
        self,
        anchors: tf.Tensor,
        groundtruth: Groundtruth,
        training: bool = False,
        seeds: tf.Tensor | None = None,
        levels: tf.Tensor | None = None,
    ) -> Targets:
        """Returns the targets of the anchors; `class_weights` are [B, N, C or 1].

        Args:
          anchors: float32 [N, 4], normalized to the preprocessed image.
          groundtruth: the objects.
          training: whether they are for a training, where labels may be confidences.
          seeds: int32 [B, 2], of the samples; None draws from the global generator.
          levels: int32 [N], index of the feature map of each anchor, for assigners that need it.

        Raises:
          UserError: if the ground truth has another number of classes than the model, or lacks
            keypoints that the box coder needs.
        """
        options = self._target_options
        labels = self._labels(groundtruth)
        self._check_keypoints(groundtruth)
        candidates = Candidates(anchors, levels)
        found = encode_targets(
            self.assigner.assign(candidates, groundtruth),
            candidates,
            groundtruth,
            self.box_coder,
            Columns(labels, options.unmatched_label(), options.unmatched_weight),
            options.use_matmul_gather,
        )
        if training and options.from_confidences:
            found = confidence_targets(
                found,
                has_background=options.adds_background,
                implicit_weight=options.implicit_weight,
            )
        else:
            found = found._replace(class_weights=found.class_weights[..., tf.newaxis])
        sampler = self._options.random_example_sampler
        if sampler is not None:
            found = self._sample(found, sampler, seeds)
        federated = self._options.federated
        return federated(found, groundtruth, seeds) if training and federated else found

    def _labels(self, groundtruth: Groundtruth) -> tf.Tensor:
        """Returns the classes of the objects, float32 [B, M, C]."""
        options, classes = self._target_options, groundtruth.classes
        count = options.num_columns - options.adds_background
        if classes.shape[-1] != count:
            raise expected('ssd', f'{count} columns of classes (num_classes)', classes.shape)
        if not options.adds_background:
            return classes
        return tf.pad(classes, [[0, 0], [0, 0], [1, 0]])

    def _check_keypoints(self, groundtruth: Groundtruth) -> None:
        if hasattr(self.box_coder, 'num_keypoints') and groundtruth.keypoints is None:
            raise expected('ssd: keypoint_box_coder', 'keypoints in the ground truth')

    def compute(self, predictions: Predictions, targets: Targets) -> dict[str, LossSum]:
        """Returns the sums of the weighted losses, under the reference's names.

        Args:
          predictions: of `Ssd.predict`.
          targets: of `assign`.
        """
        options = self._options
        localization = self._localization(predictions, targets)
        if options.expected_loss_weights is not None:
            localization, classification = self._expected(localization, predictions, targets)
        else:
            classification = self._classification(predictions, targets)
        if options.hard_example_miner is not None:
            localization, classification = self._mine(
                localization, classification, predictions, targets
            )
        # 0 divides nothing.
        number = tf.reduce_sum(targets.box_weights) if options.divides_by_matches else tf.zeros([])
        if options.divides_by_matches and options.divides_per_image:
            matches = tf.reduce_sum(targets.box_weights, axis=1, keepdims=True)  # [B, 1]
            localization, classification = (
                losses / tf.maximum(matches, 1.0) for losses in (localization, classification)
            )
            number = tf.cast(tf.shape(matches)[0], tf.float32)
        code_size = self.box_coder.code_size if options.divides_by_code_size else 1
        localization = options.localization_weight * tf.reduce_sum(localization) / code_size
        classification = options.classification_weight * tf.reduce_sum(classification)
        return {
            loss_names.LOCALIZATION: LossSum(localization, number),
            loss_names.CLASSIFICATION: LossSum(classification, number),
        }

    def _sample(
        self, targets: Targets, sampler: RandomExampleSampler, seeds: tf.Tensor | None
    ) -> Targets:
        """Sets the weights of anchors that are not sampled to 0."""
        weights = tf.reduce_mean(targets.class_weights, axis=-1)
        labels = targets.class_targets[..., self._target_options.first_class :]
        sampled = sampler(weights != 0, tf.reduce_sum(labels, axis=-1) != 0, seeds)
        keep = tf.cast(sampled, tf.float32)
        return targets._replace(
            class_weights=targets.class_weights * keep[..., tf.newaxis],
            box_weights=targets.box_weights * keep,
        )

    def _localization(self, predictions: Predictions, targets: Targets) -> tf.Tensor:
        """Returns the localization loss of each anchor, [B, N]."""
        codes = tf.cast(predictions.box_codes, tf.float32)
        goals = fill_nan_targets(targets.box_targets, codes)
        if self._options.compares_boxes:
            # The gradient of a box that overflows is not finite even if its loss has no weight.
            codes = tf.where(targets.box_weights[..., tf.newaxis] > 0, codes, goals)
            codes, goals = (
                self.box_coder.decode(rows, predictions.anchors) for rows in (codes, goals)
            )
        return self._options.localization(codes, goals, targets.box_weights)

    def _class_losses(
        self, predictions: Predictions, targets: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        logits = tf.cast(predictions.class_logits, tf.float32)
        return self._options.classification(logits, targets, weights)

    def _classification(self, predictions: Predictions, targets: Targets) -> tf.Tensor:
        """Returns the classification losses: of each anchor, [B, N]; of dice, [B, C]."""
        losses = self._class_losses(predictions, targets.class_targets, targets.class_weights)
        return tf.reduce_sum(losses, axis=2) if losses.shape.rank == 3 else losses

    def _expected(
        self, localization: tf.Tensor, predictions: Predictions, targets: Targets
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the expected losses of each anchor, both [B, N].

        An anchor's label counts by its probability, and so does background; see
        `ExpectedLossWeights`. With a loss of independent classes, each class of an anchor counts
        for itself, and the anchor is an object as far as its most probable class is. If background
        is one of these classes, it says whether the whole anchor is an object.
        """
        options, goals, weights = self._target_options, targets.class_targets, targets.class_weights
        unmatched = tf.broadcast_to(options.unmatched_label(), tf.shape(goals))
        of_labels = self._class_losses(predictions, goals, weights)
        of_background = self._class_losses(predictions, unmatched, weights)
        if of_labels.shape.rank == 3 and not options.has_background_class:
            is_candidate = tf.broadcast_to(weights != 0, tf.shape(goals))
            foreground, background = self._options.expected_loss_weights(goals, is_candidate)
            share = tf.reduce_max(foreground[..., options.first_class :], axis=-1)
            losses = tf.reduce_sum(foreground * of_labels + background * of_background, axis=2)
            return localization * share, losses
        if of_labels.shape.rank == 3:
            of_labels = tf.reduce_sum(of_labels, axis=2)
            of_background = tf.reduce_sum(of_background, axis=2)
        probabilities = tf.reduce_max(goals[..., options.first_class :], axis=-1)
        is_candidate = tf.reduce_any(weights != 0, axis=-1)
        foreground, background = self._options.expected_loss_weights(probabilities, is_candidate)
        losses = foreground * of_labels + background * of_background
        return localization * foreground, losses

    def _mine(
        self,
        localization: tf.Tensor,
        classification: tf.Tensor,
        predictions: Predictions,
        targets: Targets,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Sets the losses of easy anchors to zero; returns both [B, N]."""
        codes = tf.cast(predictions.box_codes, tf.float32)
        boxes = self.box_coder.decode(codes, predictions.anchors)
        is_hard = self._options.hard_example_miner(
            localization, classification, boxes, matches=targets.matches
        )
        is_hard = tf.cast(is_hard, tf.float32)
        return localization * is_hard, classification * is_hard
