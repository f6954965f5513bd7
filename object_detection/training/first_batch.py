"""Looks at the first training batch for what no config tells: data in the wrong frame."""

import logging
from collections.abc import Mapping

import numpy as np

from object_detection.core.fields import InputFields as F
from object_detection.errors import ConfigError

_logger = logging.getLogger(__name__)

_MASKS = (F.GROUNDTRUTH_INSTANCE_MASK_CROPS, F.GROUNDTRUTH_INSTANCE_MASKS)
_MOST_IDS = 5
# So many objects are not all odd by chance; fewer are only told of.
_ENOUGH_OBJECTS = 4


def check(batch: Mapping[str, np.ndarray], *, num_classes: int, has_masks: bool) -> None:
    """Compares a batch with what the model trains on.

    Args:
      batch: keys of `InputFields`, as NumPy arrays.
      num_classes: K of the model.
      has_masks: whether the model has a mask head.

    Raises:
      ConfigError: saying in words what is wrong, for which images.
    """
    ids = [bytes(text).decode(errors='replace') for text in batch[F.SOURCE_ID]]
    told = ', '.join(map(repr, ids[:_MOST_IDS])) + (', ...' if len(ids) > _MOST_IDS else '')
    where = f'train_input_reader, first batch (source ids {told})'
    classes = batch[F.GROUNDTRUTH_CLASSES]
    if classes.shape[-1] != num_classes:
        raise ConfigError(
            f'{where}: expected labels of num_classes = {num_classes} classes. '
            f'Received: {classes.shape[-1]}.'
        )
    rows = np.arange(classes.shape[1]) < batch[F.NUM_GROUNDTRUTH_BOXES][:, np.newaxis]
    if not rows.any():
        _tell_of_no_objects(batch, where)
        return
    _check_boxes(batch, rows, where)
    if has_masks:
        _check_masks(batch, rows, where)


def _tell_of_no_objects(batch: Mapping[str, np.ndarray], where: str) -> None:
    invalid = int(batch[F.NUM_INVALID_OBJECTS].sum()) if F.NUM_INVALID_OBJECTS in batch else 0
    reason = (
        f'; {invalid} were left out for an unknown class, or a box without area or outside the '
        'image'
        if invalid
        else ''
    )
    _logger.warning('%s: no image has an object to learn from%s.', where, reason)


def _check_boxes(batch: Mapping[str, np.ndarray], rows: np.ndarray, where: str) -> None:
    boxes = batch[F.GROUNDTRUTH_BOXES][rows]
    low, high = boxes.min(), boxes.max()
    if not (np.isfinite(boxes).all() and low >= -1e-3 and high <= 1 + 1e-3):
        raise ConfigError(
            f'{where}: expected boxes within the image, normalized to 0..1. '
            f'Received: coordinates from {low:g} to {high:g}.'
        )
    sides = (boxes[:, 2:] - boxes[:, :2]) * batch[F.IMAGE].shape[1:3]
    if (sides.max(axis=1) < 1).all():
        _refuse(
            f'{where}: expected boxes of some pixels. Received: {len(boxes)} boxes, the largest of '
            f'{sides.max():.3g} pixels; were they divided by the image size twice?',
            len(boxes),
        )


def _check_masks(batch: Mapping[str, np.ndarray], rows: np.ndarray, where: str) -> None:
    key = next((key for key in _MASKS if key in batch), None)
    if key is None:
        raise ConfigError(
            f'{where}: expected masks, since the model has a mask head. Received: none; set '
            'train_input_reader.load_instance_masks: true.'
        )
    if not batch[key][rows].any():
        count = int(rows.sum())
        _refuse(
            f'{where}: expected masks that cover their objects. Received: {count} empty masks; are '
            'they as large as their images, and is mask_type that of the records?',
            count,
        )


def _refuse(problem: str, num_objects: int) -> None:
    if num_objects >= _ENOUGH_OBJECTS:
        raise ConfigError(problem)
    _logger.warning('%s', problem)
