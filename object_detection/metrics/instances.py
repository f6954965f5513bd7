"""The objects of one image, annotated or detected, as COCO's metrics compare them.

Files of detections in the form of COCO's results (https://cocodataset.org/#format-results).
"""

import io
import json
import logging
import os
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pycocotools import mask as mask_api

from object_detection.errors import expected
from object_detection.metrics import detections
from object_detection.system import files


class Instances(NamedTuple):
    """Objects of one image, annotated or detected.

    Attributes:
      boxes: float64 [n, 4], [ymin, xmin, ymax, xmax] in pixels of the original image.
      classes: int64 [n], 1-based ids of the label map.
      areas: float64 [n], pixels.
      masks: n masks in COCO's compressed run-length encoding, or None.
      scores: float [n] of detections, or None.
      is_crowd: bool [n] of annotations, or None.
      is_difficult: bool [n] of annotations, or None: objects that PASCAL VOC does not count.
      is_group_of: bool [n] of annotations, or None: boxes of Open Images around several objects.
      is_ignored: bool [n], or None: annotations that never count, and detections that do not count
        if they match nothing.
      keypoints: float64 [n, P, 3], or None: (y, x) in pixels of the original image, and the
        visibility, which is 0 for a point that is not annotated.
      sides: float64 [n, 2], (height, width) of the boxes as a file states them, or None: the
        difference of the corners, which rounding may move by a bit.
    """

    boxes: np.ndarray
    classes: np.ndarray
    areas: np.ndarray
    masks: list[bytes] | None = None
    scores: np.ndarray | None = None
    is_crowd: np.ndarray | None = None
    is_difficult: np.ndarray | None = None
    is_group_of: np.ndarray | None = None
    is_ignored: np.ndarray | None = None
    keypoints: np.ndarray | None = None
    sides: np.ndarray | None = None

    def where(self, keep: np.ndarray) -> 'Instances':
        """Returns the objects for which `keep`, bool [n], is true, or those with its indices."""
        keep = np.flatnonzero(keep) if keep.dtype == bool else keep
        return Instances(*(_rows(values, keep) for values in self))


def encode_png(png: bytes, height: int, width: int, source_id: str) -> bytes:
    """Converts a mask stored as PNG (black is background) to COCO's run-length encoding.

    Raises:
      ValueError: if there is none, or it has another size than its image.
    """
    # Imported here because only the scoring of masks needs Pillow.
    from PIL import Image

    if not png:
        raise expected(f'image {source_id!r}', 'a mask of each object')
    try:
        # PNG only: Pillow's EPS reader, for example, would start a program.
        image = Image.open(io.BytesIO(png), formats=('PNG',))
    except Image.UnidentifiedImageError as error:
        raise expected(f'mask of image {source_id!r}', 'a PNG file', f'{png[:8]!r}...') from error
    # Checked before decoding, since the image may be arbitrarily large.
    if image.size != (width, height):
        raise expected(
            f'mask of image {source_id!r}', f'its size, {(height, width)}', image.size[::-1]
        )
    if image.mode == 'P':
        # Palette indices are converted to colours, as in training.
        image = image.convert('RGB')
    mask = np.asarray(image) > 0
    if mask.ndim == 3:
        mask = mask[..., [band != 'A' for band in image.getbands()]].any(axis=-1)
    return detections.encode_window(mask, 0, 0, height, width)


def mask_areas(masks: Sequence[bytes], height: int, width: int) -> np.ndarray:
    """Areas of encoded masks in pixels, float64 [n]."""
    # One by one: pycocotools counts the masks of a list in 8 bits.
    areas = [mask_api.area({'size': [height, width], 'counts': counts}) for counts in masks]
    return np.asarray(areas, np.float64)


def box_areas(boxes: np.ndarray) -> np.ndarray:
    """Areas of boxes [n, 4], [n]."""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def _rows(values: np.ndarray | list | None, keep: np.ndarray) -> np.ndarray | list | None:
    if isinstance(values, list):
        return [values[row] for row in keep.tolist()]
    return None if values is None else values[keep]


_logger = logging.getLogger(__name__)


def paths(path: str, reader: str, readers: Sequence[str], metrics: Sequence[str]) -> dict[str, str]:
    """Returns the path of the file of each set of metrics.

    One file has the given name. Several have the names of the reader and of the set before the
    suffix, as far as there are several: results.json becomes results-val-coco_mask_metrics.json.

    Args:
      path: `eval_config.export_path`.
      reader: name of the reader whose detections are written.
      readers: names of all readers.
      metrics: names of the sets of metrics that write detections.
    """
    stem, suffix = os.path.splitext(path)
    if len(readers) > 1:
        # The name may have characters that divide folders.
        stem = f'{stem}-{urllib.parse.quote(reader, safe=" ")}'
    if len(metrics) == 1:
        return {metrics[0]: f'{stem}{suffix}'}
    return {name: f'{stem}-{urllib.parse.quote(name, safe=" ")}{suffix}' for name in metrics}


def write(path: str, reader: str, readers: Sequence[str], evaluators: Mapping[str, Any]) -> None:
    """Writes the detections of the evaluators that store them, those of COCO's kind.

    Args:
      path, reader, readers: as in `paths`.
      evaluators: name of a set of metrics -> its evaluator.

    Raises:
      OSError: if a file cannot be written.
    """
    storing = {name: each for name, each in evaluators.items() if hasattr(each, 'coco_results')}
    for name, target in paths(path, reader, readers, list(storing)).items():
        results = storing[name].coco_results()
        files.write_text(target, json.dumps(results))
        _logger.info('%d detections of %s are in %s', len(results), name, target)
