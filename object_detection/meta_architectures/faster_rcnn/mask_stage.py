"""The third stage of Mask R-CNN (https://arxiv.org/abs/1703.06870): a mask in each region."""

import keras
import tensorflow as tf

from object_detection.core import masks as mask_ops
from object_detection.core import sampling, tracing
from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum
from object_detection.errors import expected
from object_detection.meta_architectures.faster_rcnn import loss_names
from object_detection.meta_architectures.faster_rcnn.box_stage import is_positive
from object_detection.meta_architectures.faster_rcnn.croppers import RoiAlignCropper
from object_detection.meta_architectures.faster_rcnn.extra_outputs import of_detections
from object_detection.targets.targets import Targets


class MaskStage(keras.layers.Layer):
    """Predicts a mask inside each region.

    Args:
      head: `(features [R, h, w, C], training) -> logits [R, K or 1, mask height, mask width]`.
      from_crops: whether `features` are the crops of the feature maps, before any pooling;
        otherwise they are the outputs of the box classifier for the crops.
      loss_weight: factor of the loss.
      use_matmul: crop targets by matrix products where XLA compiles.
      max_regions: maximum number of positive regions per image whose masks train; None: no limit.
      pad_regions: whether training predicts masks of a fixed number of regions; see
        `positive_rows`.
      binarize_threshold: targets are 1 from this value on and 0 below; 0 keeps
        interpolated targets.
      cropper: makes the crops for the masks; None takes those of the box stage.
    """

    def __init__(
        self,
        *,
        head: keras.layers.Layer,
        from_crops: bool,
        loss_weight: float,
        use_matmul: bool,
        max_regions: int | None = None,
        pad_regions: bool = True,
        binarize_threshold: float = 0.0,
        cropper: RoiAlignCropper | None = None,
        name: str = 'mask_stage',
    ):
        super().__init__(name=name)
        self.head = head
        self.cropper = cropper
        self.from_crops = from_crops
        self.max_regions = max_regions
        self.pad_regions = pad_regions
        self._binarize_threshold = binarize_threshold
        self._loss_weight = loss_weight
        self._use_matmul = use_matmul

    def loss_sums(
        self, logits: tf.Tensor, boxes: tf.Tensor, targets: Targets, groundtruth: Groundtruth
    ) -> dict[str, LossSum]:
        """Returns the mask loss: the mean over the pixels of all positive regions of the batch.

        With a mean over images, as for the losses of boxes, the weight of an object would depend on
        the number of objects in its image.

        Args:
          logits: float32 [B * S, K or 1, h, w].
          boxes: float32 [B, S, 4], normalized to the padded image.
          targets: targets of the regions.
          groundtruth: ground truth with masks.

        Raises:
          ValueError: if the ground truth has no masks.
        """
        if groundtruth.masks is None:
            raise expected('mask loss', 'masks in the ground truth; set load_instance_masks: true')
        size = tuple(logits.shape[2:4])
        matches = tf.maximum(targets.matches, 0)
        if groundtruth.masks_are_crops:
            wanted = mask_ops.mask_targets_from_crops(
                groundtruth.masks,
                groundtruth.boxes,
                boxes,
                matches,
                size,
                use_matmul=self._use_matmul and tracing.is_compiled(),
            )
        else:
            wanted = mask_ops.mask_targets_from_images(groundtruth.masks, boxes, matches, size)
        if self._binarize_threshold > 0:
            wanted = tf.cast(wanted >= self._binarize_threshold, tf.float32)
        predicted = self.select_class(logits, _target_class(targets))
        predicted = tf.reshape(predicted, tf.shape(wanted))
        weights = tf.cast(targets.box_weights > 0, tf.float32)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=wanted, logits=predicted)
        total = tf.reduce_sum(losses * weights[:, :, tf.newaxis, tf.newaxis])
        number = tf.reduce_sum(weights) * size[0] * size[1]
        return {loss_names.MASK: LossSum(self._loss_weight * total, number)}

    def detect(self, features: tf.Tensor, detections: dict[str, tf.Tensor]) -> tf.Tensor:
        """Predicts the masks of final detections, float32 [B, T, h, w], probabilities.

        Args:
          features: of the detections, [B * T, h', w', C].
          detections: classes, scores and numbers of detections.
        """
        logits = tf.cast(self.head(features, training=False), tf.float32)
        classes = tf.cast(detections[DetectionFields.CLASSES], tf.int32)
        return of_detections(tf.sigmoid(self.select_class(logits, classes)), detections)

    @staticmethod
    def select_class(logits: tf.Tensor, classes: tf.Tensor) -> tf.Tensor:
        """Takes each region's channel: [R, K or 1, h, w] and int32 [B, S] -> [R, h, w]."""
        if logits.shape[1] == 1:
            return logits[:, 0]
        return tf.gather(logits, tf.reshape(classes, [-1]), axis=1, batch_dims=1)


def positive_rows(
    targets: Targets, is_valid: tf.Tensor, size: int, *, pad: bool = True
) -> tf.Tensor:
    """Chooses the rows whose masks train: the first S positives, filled up with other rows.

    Args:
      targets: targets of P regions per image.
      is_valid: bool [B, P].
      size: S.
      pad: if False, S is the maximum number of positives of an image, at least 1 and at most
        `size`. XLA needs, and gets, `size` rows.

    Returns:
      Row indices int32 [B, S] in ascending order.
    """
    rows = tf.shape(is_valid)[1]
    order = tf.range(rows, dtype=tf.int32)[tf.newaxis]
    is_wanted = is_positive(targets) & is_valid
    if not pad and not tracing.is_compiled():
        most = tf.reduce_max(tf.math.count_nonzero(is_wanted, axis=1, dtype=tf.int32))
        size = tf.clip_by_value(most, 1, size)
    rank = tf.where(is_wanted, order - rows, order)
    return tf.sort(tf.math.top_k(-rank, size, sorted=True).indices, axis=1)


def take_rows(targets: Targets, indices: tf.Tensor, use_matmul: bool) -> Targets:
    """Gathers rows [B, S] of every field [B, P, ...]; by products only where XLA compiles."""
    use_matmul = use_matmul and tracing.is_compiled()
    return Targets(
        *(
            # Matches may be negative, which only the plain gather keeps at any size.
            tf.gather(field, indices, batch_dims=1)
            if field.dtype.is_integer
            else sampling.gather_rows(field, indices, use_matmul)
            for field in targets
        )
    )


def _target_class(targets: Targets) -> tf.Tensor:
    """int32 [B, P], 0-based without background; 0 for background (its weight is zero)."""
    with_background = tf.argmax(targets.class_targets, axis=-1, output_type=tf.int32)
    return tf.maximum(with_background - 1, 0)
