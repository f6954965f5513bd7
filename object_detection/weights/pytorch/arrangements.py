"""Puts the outputs of layers of torchvision and detectron2, their first axis, in our order."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

_CODE = 4


class Here(NamedTuple):
    """What the order of outputs depends on in a detector.

    Attributes:
      anchors: for each anchor of a cell, its number there.
      num_logits: number of logits of an anchor's objectness, 1 or 2 (background, object).
      has_background: whether a single-stage detector has a background class, the first one.
      crop_depth: channels of the crops of regions, where a fully connected layer sees them.
    """

    anchors: Sequence[int] = ()
    num_logits: int = 1
    has_background: bool = True
    crop_depth: int = 0


# Their array with the outputs as its first axis, and the detector -> the array with our outputs.
Arrange = Callable[[np.ndarray, Here], np.ndarray]


def codes(array: np.ndarray, here: Here) -> np.ndarray:
    """(x, y, w, h) of each class -> (y, x, h, w)."""
    del here
    return array.reshape(-1, _CODE, *array.shape[1:])[:, [1, 0, 3, 2]].reshape(array.shape)


def codes_of_objects(array: np.ndarray, here: Here) -> np.ndarray:
    """The same, without the codes of background, which come first; not of one box for all."""
    return codes(array[_CODE:] if len(array) > _CODE else array, here)


def codes_of_anchors(array: np.ndarray, here: Here) -> np.ndarray:
    """(x, y, w, h) of each anchor -> (y, x, h, w), in the order of the anchors here."""
    rows = codes(array, here).reshape(-1, _CODE, *array.shape[1:])
    return by_anchor(rows, here).reshape(array.shape)


def objectness(array: np.ndarray, here: Here) -> np.ndarray:
    """The softmax over (0, x) is the sigmoid of x."""
    array = by_anchor(array, here)
    if here.num_logits == 1:
        return array
    return np.stack([np.zeros_like(array), array], axis=1).reshape(-1, *array.shape[1:])


def classes_of_anchors(array: np.ndarray, here: Here) -> np.ndarray:
    """Classes of which the first is background, which is dropped if there is none here."""
    classes = by_anchor(array.reshape(max(1, len(here.anchors)), -1, *array.shape[1:]), here)
    classes = classes if here.has_background else classes[:, 1:]
    return classes.reshape(-1, *array.shape[1:])


def objects_of_anchors(array: np.ndarray, here: Here) -> np.ndarray:
    """Classes without background, for which here may be a logit, which detections do not see."""
    classes = by_anchor(array.reshape(max(1, len(here.anchors)), -1, *array.shape[1:]), here)
    if here.has_background:
        classes = np.concatenate([np.zeros_like(classes[:, :1]), classes], axis=1)
    return classes.reshape(-1, *array.shape[1:])


def by_anchor(array: np.ndarray, here: Here) -> np.ndarray:
    """Orders the first axis; with another number of anchors it does not fit, and stays."""
    return array[list(here.anchors)] if len(array) == len(here.anchors) else array


def without_first(array: np.ndarray, here: Here) -> np.ndarray:
    """Leaves out background, which comes first there."""
    del here
    return array[1:]


def last_to_first(array: np.ndarray, here: Here) -> np.ndarray:
    """Puts background, which comes last there, first."""
    del here
    return np.roll(array, 1, axis=0)


def same(array: np.ndarray, here: Here) -> np.ndarray:
    """Returns the array as it is."""
    del here
    return array
