"""Keypoints and DensePose points of COCO annotations."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from object_detection.errors import UnusableError

# For files whose categories do not list their keypoints.
PERSON_KEYPOINTS = (
    *('nose', 'left_eye', 'right_eye', 'left_ear', 'right_ear', 'left_shoulder'),
    *('right_shoulder', 'left_elbow', 'right_elbow', 'left_wrist', 'right_wrist', 'left_hip'),
    *('right_hip', 'left_knee', 'right_knee', 'left_ankle', 'right_ankle'),
)

KEYPOINT_KEYS = ('keypoints', 'num_keypoints')
DENSEPOSE_KEYS = ('dp_I', 'dp_x', 'dp_y', 'dp_U', 'dp_V')
# DensePose annotates points in a frame of this size over the object's box.
_DENSEPOSE_BOX_SIZE = 256.0
# Not annotated, covered, visible.
_VISIBILITIES = (0, 1, 2)


class KeypointLayout(NamedTuple):
    """The keypoints of every object of a data set.

    Attributes:
      names: names of all categories' keypoints, K in total.
      slots: category id -> positions of the category's keypoints in `names`; a category without an
        entry has all keypoints.
      skeletons: category id -> lines of its `skeleton`, as pairs of positions in `names`.
      mirrored: category id -> for each of its `slots`, the position of the keypoint that takes its
        place in a mirrored image.
    """

    names: tuple[str, ...]
    slots: dict[Any, list[int]]
    skeletons: Mapping[Any, list[tuple[int, int]]] = MappingProxyType({})
    mirrored: Mapping[Any, list[int]] = MappingProxyType({})


def keypoint_layout(categories: Sequence[Mapping[str, Any]]) -> KeypointLayout:
    """Returns the layout of the keypoints of all categories of a file."""
    own = {category['id']: category.get('keypoints') for category in categories}
    own = {category_id: names for category_id, names in own.items() if names}
    listed = dict.fromkeys(name for names in own.values() for name in names)
    names = tuple(listed) or PERSON_KEYPOINTS
    position = {name: index for index, name in enumerate(names)}
    slots = {category_id: [position[name] for name in own[category_id]] for category_id in own}
    skeletons = {
        category['id']: _skeleton(category.get('skeleton'), slots[category['id']])
        for category in categories
        if category['id'] in slots
    }
    return KeypointLayout(names, slots, {key: lines for key, lines in skeletons.items() if lines})


def _skeleton(lines: Any, slots: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the lines of a category, [[1, 2], ...], as positions; what is no line is left out."""
    found = []
    for line in lines if isinstance(lines, list) else []:
        is_pair = isinstance(line, list) and len(line) == 2
        if is_pair and all(isinstance(end, int) and 1 <= end <= len(slots) for end in line):
            found.append((slots[line[0] - 1], slots[line[1] - 1]))
    return found


def read_keypoints(annotation: dict[str, Any], layout: KeypointLayout) -> np.ndarray:
    """Returns an object's keypoints.

    Returns:
      float64 [K, 3], rows (x, y, visibility), pixels; zeros where the annotation has none.

    Raises:
      UnusableError: if their number differs from the number of the category's keypoints.
    """
    keypoints = np.zeros((len(layout.names), 3))
    annotated = annotation.get('keypoints')
    if not annotated:
        return keypoints
    slots = layout.slots.get(annotation.get('category_id'), list(range(len(layout.names))))
    try:
        keypoints[slots] = np.asarray(annotated, np.float64).reshape(len(slots), 3)
    except (TypeError, ValueError) as error:
        raise UnusableError(
            'bad_keypoints', f'keypoints must be {len(slots)} times x, y, visibility: {error}'
        ) from error
    is_visible = keypoints[:, 2] != 0
    # A keypoint that is not annotated has no coordinates.
    keypoints[~is_visible, :2] = np.nan_to_num(keypoints[~is_visible, :2])
    if not (np.isfinite(keypoints).all() and np.isin(keypoints[:, 2], _VISIBILITIES).all()):
        raise UnusableError('bad_keypoints', 'keypoints must be finite, their visibility 0, 1 or 2')
    return keypoints


def read_densepose(
    annotation: dict[str, Any], box: Sequence[float], size: tuple[int, int]
) -> np.ndarray:
    """Returns an object's DensePose points.

    Args:
      annotation: annotation with a valid `bbox`.
      box: (ymin, xmin, ymax, xmax) of the object, normalized to the image, which bounds the points.
      size: (height, width) of the image in pixels.

    Returns:
      float64 [n, 5], rows (part from 0, x, y, u, v), x and y normalized to the image.

    Raises:
      UnusableError: if the lists of the annotation have different lengths.
    """
    try:
        columns = [np.asarray(annotation.get(key, []), np.float64) for key in DENSEPOSE_KEYS]
        part, x, y, u, v = np.stack(columns)
    except (TypeError, ValueError) as error:
        raise UnusableError('bad_densepose', f'{", ".join(DENSEPOSE_KEYS)}: {error}') from error
    if not np.isfinite([part, x, y, u, v]).all():
        raise UnusableError('bad_densepose', f'{", ".join(DENSEPOSE_KEYS)} must be finite')
    left, top, width, height = map(float, annotation['bbox'])
    ymin, xmin, ymax, xmax = box
    x = np.clip((left + x * width / _DENSEPOSE_BOX_SIZE) / size[1], xmin, xmax)
    y = np.clip((top + y * height / _DENSEPOSE_BOX_SIZE) / size[0], ymin, ymax)
    return np.stack([part - 1, x, y, u, v], axis=1)
