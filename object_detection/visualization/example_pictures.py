"""Draws examples as augmentation steps take and return them."""

from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image

from object_detection.core.fields import InputFields as F
from object_detection.visualization import drawing

# Low, since the colours of objects are what many steps change.
_MASK_OPACITY = 0.25


def draw(
    example: Mapping[str, np.ndarray],
    names: Mapping[int, str] | None = None,
    *,
    keypoint_edges: Sequence[tuple[int, int]] = (),
    scale: float = 1.0,
    line_thickness: int | None = None,
) -> np.ndarray:
    """Draws an example with its boxes, masks, visible keypoints and class names.

    Args:
      example: the image, numbers [H, W, C], of which values outside of 0..255 are clipped and
        channels after the third are left out; boxes; classes, ids [n] or one-hot [n, K]; and, where
        there are any, masks in one of their two forms, keypoints and their visibilities.
      names: 1-based class id -> name; an empty name is not drawn.
      keypoint_edges: pairs of keypoints between which lines are drawn.
      scale: factor of the size of the picture.
      line_thickness: line thickness of boxes, in pixels; None chooses by the picture's size.

    Returns:
      uint8 [height, width, 3].
    """
    image = np.clip(np.round(np.asarray(example[F.IMAGE])), 0, 255).astype(np.uint8)
    image = image[..., :3] if image.shape[-1] >= 3 else image[..., :1]
    size = np.maximum(1, np.round(np.array(image.shape[:2]) * scale).astype(int))
    keypoints = _visible_keypoints(example)
    boxes = np.asarray(example[F.GROUNDTRUTH_BOXES])
    return drawing.draw_instances(
        _resize(image, size, Image.Resampling.BICUBIC),
        boxes * np.tile(size, 2),
        _class_ids(np.asarray(example[F.GROUNDTRUTH_CLASSES])),
        masks=_masks(example, size),
        keypoints=None if keypoints is None else keypoints * size,
        edges=keypoint_edges,
        names=names,
        max_boxes=len(boxes),
        line_thickness=line_thickness,
        mask_opacity=_MASK_OPACITY,
    )


def _resize(image: np.ndarray, size: np.ndarray, method: Image.Resampling) -> np.ndarray:
    """Resizes uint8 [H, W, 1 or 3] to `size`, (height, width): uint8 [height, width, 1 or 3]."""
    if image.shape[:2] == tuple(size):
        return image
    height, width = size.tolist()
    pixels = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    return np.asarray(pixels.resize((width, height), method)).reshape(height, width, -1)


def _class_ids(classes: np.ndarray) -> np.ndarray:
    return classes if classes.ndim == 1 else classes.argmax(axis=-1) + 1


def _masks(example: Mapping[str, np.ndarray], size: np.ndarray) -> list[np.ndarray] | None:
    """Returns masks relative to their boxes as probabilities, and masks of the image resized."""
    if F.GROUNDTRUTH_INSTANCE_MASK_CROPS in example:
        crops = np.asarray(example[F.GROUNDTRUTH_INSTANCE_MASK_CROPS])
        return list(crops.astype(np.float32) / 255.0)
    if F.GROUNDTRUTH_INSTANCE_MASKS not in example:
        return None
    masks = np.asarray(example[F.GROUNDTRUTH_INSTANCE_MASKS])
    return [_resize(mask[..., None], size, Image.Resampling.NEAREST)[..., 0] for mask in masks]


def _visible_keypoints(example: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Returns normalized keypoints, float [n, P, 2], with NaN in place of invisible ones."""
    if F.GROUNDTRUTH_KEYPOINTS not in example:
        return None
    keypoints = np.asarray(example[F.GROUNDTRUTH_KEYPOINTS])
    is_visible = np.asarray(example[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES])
    return np.where(is_visible[..., np.newaxis], keypoints, np.nan)
