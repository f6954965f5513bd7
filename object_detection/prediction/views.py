"""The views of an image in which a `Predictor` looks for objects: tiles, flips and scales."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from object_detection.core.detections import Detections
from object_detection.data import label_map
from object_detection.data.label_map import LabelMap
from object_detection.errors import UserError, expected
from object_detection.prediction import merging
from object_detection.prediction.merging import Tile

FLIP = 'flip'
MERGES: dict[str, Callable[[Sequence[Detections]], Detections]] = {
    'wbf': merging.fused,
    'nms': merging.suppressed_views,
}
_MIN_TILE, _MAX_OVERLAP = 32, 0.75
_MIN_SCALE, _MAX_SCALE = 0.25, 4.0


@dataclasses.dataclass(frozen=True)
class Tiling:
    """Cuts a large image into tiles, in which its small objects are large enough to be found.

    Attributes:
      size: height and width of a tile in pixels; a smaller image is one tile.
      overlap: the least share of a tile that its neighbour shows too, 0 to 0.75. Detections up to
        this size are complete in one tile at least.
      whole_image: whether the image as a whole is looked at too, for objects that are larger than
        tiles.

    Raises:
      UserError: if a value is out of its range.
    """

    size: int
    overlap: float = 0.2
    whole_image: bool = True

    def __post_init__(self) -> None:
        if self.size < _MIN_TILE:
            raise expected('tile', f'a size of at least {_MIN_TILE} pixels', self.size)
        if not 0 <= self.overlap <= _MAX_OVERLAP:
            raise expected('tile_overlap', f'a share from 0 to {_MAX_OVERLAP}', self.overlap)

    def tiles(self, height: int, width: int) -> list[Tile]:
        """Returns the tiles of an image, all of one size, in the order of rows."""
        return _grid((height, width), (self.size, self.size), self.overlap)


class Variant(NamedTuple):
    """Images of one size, and how the objects of all of them become those of the image."""

    images: list[np.ndarray]
    merge: Callable[[Sequence[Detections]], Detections]


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Looks at an image several times, flipped and at other scales, and merges what is found.

    Images of each scale have the size of the image, so that objects are larger or smaller for
    every model, at any size that it resizes images to: a smaller one is padded with black, and a
    larger one is cut into tiles.

    Attributes:
      flip: whether each image is looked at mirrored, left to right, too.
      scales: factors besides 1, from 0.25 to 4.
      merge: 'wbf', weighted boxes fusion, or 'nms', non-maximum suppression.

    Raises:
      UserError: if a value is out of its range.
    """

    flip: bool = False
    scales: tuple[float, ...] = ()
    merge: str = 'wbf'

    def __post_init__(self) -> None:
        wrong = [each for each in self.scales if not _MIN_SCALE <= each <= _MAX_SCALE]
        if wrong:
            raise expected('tta', f'scales from {_MIN_SCALE} to {_MAX_SCALE}', wrong[0])
        if self.merge not in MERGES:
            raise expected('tta_merge', f'one of {", ".join(MERGES)}', repr(self.merge))

    @classmethod
    def parse(cls, text: str, merge: str = 'wbf') -> 'Augmentation':
        """Reads a list such as 'flip,0.8,1.25'.

        Raises:
          UserError: if an entry is neither 'flip' nor a scale.
        """
        entries = [entry.strip() for entry in text.split(',')]
        scales = []
        for entry in entries:
            if entry == FLIP:
                continue
            try:
                scales.append(float(entry))
            except ValueError as error:
                raise expected(
                    'tta', f'a list of {FLIP!r} and scales, such as flip,0.8,1.25', repr(entry)
                ) from error
        return cls(FLIP in entries, tuple(s for s in dict.fromkeys(scales) if s != 1), merge)

    def variants(self, image: np.ndarray, max_pixels: int, labels: LabelMap) -> list[Variant]:
        """Returns the image itself and its flips and scales.

        Args:
          image: uint8 or float32 [H, W, 3].
          max_pixels: maximum number of pixels of an enlarged image.
          labels: the classes; the names of their keypoints determine what a flip exchanges.

        Raises:
          UserError: if an enlarged image has more pixels.
        """
        plain = [_scaled(image, scale, max_pixels) for scale in (1.0, *self.scales)]
        return plain + [_mirrored(each, labels) for each in plain] if self.flip else plain


def _mirrored(variant: Variant, labels: LabelMap) -> Variant:
    width = variant.images[0].shape[1]

    def merge(found: Sequence[Detections]) -> Detections:
        return variant.merge([_unmirrored(each, width, labels) for each in found])

    return Variant([image[:, ::-1] for image in variant.images], merge)


def _unmirrored(objects: Detections, width: int, labels: LabelMap) -> Detections:
    boxes = objects.boxes.copy()
    boxes[:, [1, 3]] = width - objects.boxes[:, [3, 1]]
    masks = None if objects.masks is None else objects.masks[..., ::-1]
    movements = None if objects.movements is None else objects.movements * [1, -1]
    objects = dataclasses.replace(objects, boxes=boxes, masks=masks, movements=movements)
    if objects.keypoints is None:
        return objects
    scores, count = objects.keypoint_scores, objects.keypoints.shape[1]
    # CenterNet's detections have places beyond the positions of all classes, which stay empty.
    named = min(count, label_map.num_keypoints(labels))
    order = label_map.mirrored_keypoints(labels, named)
    if order is None or (named < count and (scores is None or scores[:, named:].any())):
        raise UserError(
            f'tta: {FLIP!r} exchanges left and right keypoints, and which ones these are is not '
            'known. Expected a label map (--label_map) with keypoints.mirrored, or names such as '
            f'left_eye and right_eye, for all {count} keypoints, or scales alone.'
        )
    order = [*order, *range(named, count)]
    points = objects.keypoints[:, order]
    points[..., 1] = width - points[..., 1]
    if scores is not None:
        scores = scores[:, order]
        # Keypoints that a class does not have stay 0.
        points[scores == 0] = 0
    return dataclasses.replace(objects, keypoints=points, keypoint_scores=scores)


def _scaled(image: np.ndarray, scale: float, max_pixels: int) -> Variant:
    if scale == 1:
        return Variant([image], lambda found: found[0])
    size = image.shape[:2]
    height, width = (max(1, round(side * scale)) for side in size)
    if height * width > max_pixels:
        raise UserError(
            f'tta: at scale {scale:g} the image would be {height} pixels high and {width} wide; '
            f'expected at most {max_pixels} pixels.'
        )
    resized = _resized(image, width, height)
    back = (size[0] / height, size[1] / width)
    tiles = _grid((height, width), size, Tiling.overlap)

    def merge(found: Sequence[Detections]) -> Detections:
        shifted = [
            merging.moved(each, (tile.top, tile.left), (1, 1), (height, width))
            for each, tile in zip(found, tiles, strict=True)
        ]
        whole = merging.joined(shifted, tiles, (height, width)) if len(tiles) > 1 else shifted[0]
        return merging.moved(whole, (0, 0), back, size)

    return Variant([_padded(crop(resized, tile), size) for tile in tiles], merge)


def _resized(image: np.ndarray, width: int, height: int) -> np.ndarray:
    def resize(values: np.ndarray) -> np.ndarray:
        resized = Image.fromarray(values).resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(resized)

    if image.dtype == np.uint8 and image.shape[-1] == 3:
        return resize(image)
    # PIL has no colours of floats, nor any number of channels.
    channels = np.moveaxis(image, -1, 0)
    return np.stack([resize(np.ascontiguousarray(each)) for each in channels], axis=-1)


def crop(image: np.ndarray, tile: Tile) -> np.ndarray:
    """Returns the pixels of a tile, not copied."""
    return image[tile.top : tile.bottom, tile.left : tile.right]


def _padded(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    missing = [(0, side - own) for side, own in zip(size, image.shape[:2], strict=True)]
    return np.pad(image, [*missing, (0, 0)])


def _grid(size: tuple[int, int], tile: tuple[int, int], overlap: float) -> list[Tile]:
    """Returns tiles of one size, spread evenly over (height, width)."""
    rows, columns = (_starts(*each, overlap) for each in zip(size, tile, strict=True))
    height, width = (min(each) for each in zip(size, tile, strict=True))
    return [Tile(top, left, top + height, left + width) for top in rows for left in columns]


def _starts(length: int, tile: int, overlap: float) -> list[int]:
    if tile >= length:
        return [0]
    step = max(1, math.floor(tile * (1 - overlap)))
    count = math.ceil((length - tile) / step) + 1
    return [round(place) for place in np.linspace(0, length - tile, count)]
