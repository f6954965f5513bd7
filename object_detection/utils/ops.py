"""Tensor functions under the names of the reference; `object_detection.core` has them all."""

import tensorflow as tf

from object_detection.core import boxes as _boxes
from object_detection.core.crop_and_resize import crop_and_resize as _crop_and_resize
from object_detection.errors import UserError
from object_detection.utils import missing

_PIPELINE = 'the input pipeline does it for records (object_detection.data)'
__getattr__ = missing(
    __name__,
    {
        'matmul_crop_and_resize': 'call object_detection.core.crop_and_resize.crop_and_resize',
        'multilevel_native_crop_and_resize': (
            'call object_detection.core.crop_and_resize.multilevel_crop_and_resize'
        ),
        'multilevel_matmul_crop_and_resize': (
            'call object_detection.core.crop_and_resize.multilevel_crop_and_resize'
        ),
        'multilevel_roi_align': 'object_detection.core.roi_align has it',
        'position_sensitive_crop_regions': 'object_detection.core.roi_align has it',
        'batch_position_sensitive_crop_regions': 'object_detection.core.roi_align has it',
        'nearest_neighbor_upsampling': 'call keras.layers.UpSampling2D',
        'merge_boxes_with_multiple_labels': _PIPELINE,
        'retain_groundtruth': _PIPELINE,
        'retain_groundtruth_with_positive_classes': _PIPELINE,
        'filter_groundtruth_with_crowd_boxes': _PIPELINE,
        'filter_groundtruth_with_nan_box_coordinates': _PIPELINE,
        'filter_unrecognized_classes': _PIPELINE,
        'matmul_gather_on_zeroth_axis': 'call tf.gather',
        'meshgrid': 'call tf.meshgrid',
    },
)


def reframe_box_masks_to_image_masks(
    box_masks: tf.Tensor,
    boxes: tf.Tensor,
    image_height: int | tf.Tensor,
    image_width: int | tf.Tensor,
    resize_method: str = 'bilinear',
) -> tf.Tensor:
    """Pastes masks that are relative to their boxes into the image.

    `object_detection.paste_masks` does so with less memory, for NumPy arrays.

    Args:
      box_masks: [n, h, w], probabilities as floats, or uint8, whose nearest values are taken.
      boxes: float32 [n, 4], [ymin, xmin, ymax, xmax] relative to the image.
      image_height, image_width: of the image, in pixels.
      resize_method: 'bilinear' or 'nearest'.

    Returns:
      [n, image_height, image_width] of the type of `box_masks`, 0 outside of the boxes and for
      boxes without area.
    """
    # Notebooks replace `ops.tf` by tf.compat.v1, which has all functions that are called here.
    masks, boxes = tf.convert_to_tensor(box_masks), tf.cast(boxes, tf.float32)
    low, high = tf.split(boxes, 2, axis=1)
    whole_image = tf.constant([[0.0, 0.0, 1.0, 1.0]])
    size = tf.concat([high - low] * 2, axis=1)
    pasted = tf.image.crop_and_resize(
        tf.cast(masks, tf.float32)[..., tf.newaxis],
        tf.math.divide_no_nan(whole_image - tf.concat([low, low], axis=1), size),
        tf.range(tf.shape(boxes)[0]),
        tf.stack([image_height, image_width]),
        method='nearest' if masks.dtype == tf.uint8 else resize_method,
    )[..., 0]
    has_area = tf.cast(_boxes.area(boxes) > 0, tf.float32)
    return tf.cast(pasted * has_area[:, tf.newaxis, tf.newaxis], masks.dtype)


def normalized_to_image_coordinates(
    normalized_boxes: tf.Tensor, image_shape: tf.Tensor, parallel_iterations: int = 32
) -> tf.Tensor:
    """Converts boxes relative to images to pixels.

    Args:
      normalized_boxes: float32 [B, n, 4].
      image_shape: int32 [4], of a batch of images [B, H, W, C].
      parallel_iterations: has no effect.

    Returns:
      float32 [B, n, 4].
    """
    del parallel_iterations
    return _boxes.normalized_to_absolute(normalized_boxes, image_shape[1], image_shape[2])


def padded_one_hot_encoding(indices: tf.Tensor, depth: int, left_pad: int) -> tf.Tensor:
    """Returns one-hot rows with zeros in front.

    Args:
      indices: integers [n] in [0, depth).
      depth: number of classes.
      left_pad: number of columns of zeros, at least 0.

    Returns:
      float32 [n, depth + left_pad].

    Raises:
      UserError: if `depth` or `left_pad` is negative.
    """
    if depth < 0 or left_pad < 0:
        raise UserError(f'Expected depth and left_pad >= 0. Received: {depth} and {left_pad}.')
    return tf.pad(tf.one_hot(indices, depth), [[0, 0], [left_pad, 0]])


def native_crop_and_resize(
    image: tf.Tensor, boxes: tf.Tensor, crop_size: tuple[int, int], scope: str | None = None
) -> tf.Tensor:
    """Crops boxes, float32 [B, n, 4] normalized, from images [B, H, W, C], resized bilinearly.

    Returns:
      float32 [B, n, height, width, C].
    """
    del scope
    return _crop_and_resize(image, boxes, tuple(crop_size))
