"""Recorded arrays of other systems' detectors, and how ours are compared with them.

Scores that are equal have no order, so that what is chosen by them may differ: `without_ties` and
`tied_at_the_cut` say what is then left out of a comparison.
"""

import json
import pathlib
from typing import Any

import numpy as np
from recorded_images import recorded_images

TENSOR_TOLERANCE, DETECTION_TOLERANCE = 2e-4, 1e-3
# Scores that differ by the last two digits of a sigmoid are equal; overlaps that suppress.
_TIE, _OVERLAP = 4 * 2.0**-24, 0.5
_HEADER = {'float32': 'F32', 'int64': 'I64'}
# Of the stages that differ, those that a line names.
_SHOWN = 12


class Recorded:
    """The arrays of a recorded detector.

    Args:
      folder, name: where they lie.
    """

    def __init__(self, folder: pathlib.Path, name: str):
        self.about = json.loads((folder / f'{name}.json').read_text())
        self._arrays = np.load(folder / f'{name}.npz')

    def __contains__(self, name: str) -> bool:
        return name in self.about['tensors']

    def whole(self, name: str) -> np.ndarray:
        """Returns an array that is stored whole; raises a ValueError if it is not."""
        if name not in self._arrays:
            raise ValueError(f'{name} is not stored whole, which a comparison needs')
        return self._arrays[name]

    def pair(self, name: str, ours: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns the recorded values, and ours in the same places; NaN of ours stands for none."""
        ours = np.asarray(ours, np.float64)
        shape = tuple(self.about['tensors'][name]['shape'])
        if ours.shape != shape:
            raise ValueError(f'{name}: expected shape {shape}. Received: {ours.shape}.')
        if f'{name}#idx' in self._arrays:
            theirs, ours = self._arrays[f'{name}#val'], ours.ravel()[self._arrays[f'{name}#idx']]
        else:
            theirs, ours = self.whole(name).ravel(), ours.ravel()
        is_given = ~np.isnan(ours)
        return theirs[is_given].astype(np.float64), ours[is_given]

    def pictures(self) -> np.ndarray:
        """Returns the images, uint8 [B, H, W, 3], which may be stored as some of their pixels.

        Raises:
          ValueError: if pixels are stored that are not those of `recorded_images`.
        """
        if 'images' in self._arrays:
            return self.whole('images')
        images = recorded_images(*self.about['tensors']['images']['shape'][:3])
        theirs, ours = self.pair('images', images)
        if np.any(theirs != ours):
            raise ValueError('images is stored as pixels of other images than those known here')
        return images

    def images(self, kind: str) -> list[int]:
        """Returns the numbers of the images of which arrays `kind.NUMBER` are recorded."""
        names = (name.rpartition('.') for name in self.about['tensors'])
        return sorted(int(number) for name, _, number in names if name == kind)


class Results:
    """The largest difference of each stage, by its tolerance.

    Attributes:
      worst: stage -> its largest difference.
      proposals: how many were recorded where some are left out, and how many these are.
    """

    def __init__(self) -> None:
        self.worst: dict[str, float] = {}
        self.proposals, self.left_out = 0, 0

    def add(self, stage: str, theirs: np.ndarray, ours: np.ndarray, spread: float, limit: float):
        """Adds a difference; 1 is the tolerance."""
        difference = np.max(np.abs(theirs - ours), initial=0.0) / (spread or 1.0) / limit
        self.worst[stage] = float(difference)

    def line(self, name: str) -> str:
        bad = {stage: worst for stage, worst in self.worst.items() if not worst <= 1}
        count, total = len(self.worst) - len(bad), len(self.worst)
        text = f'{count}/{total} within tolerance, worst {max(self.worst.values()):.2g} of it'
        if self.left_out:
            text += f', {self.left_out} of {self.proposals} proposals left out: tied at the cut'
        if not bad:
            return f'ok {name}: {text}'
        shown = [f'{stage} {worst:.3g}' for stage, worst in list(bad.items())[:_SHOWN]]
        further = [f'{len(bad) - _SHOWN} others'] if len(bad) > _SHOWN else []
        return f'FAIL {name}: {text}; {", ".join(shown + further)}'


def write_weights(path: pathlib.Path, recorded: Recorded, recipe: Any) -> None:
    """Writes the weights of the recipe as a file of safetensors."""
    numbers = recorded.about['recipe']
    header, blobs, end = {}, [], 0
    rows = recorded.about['variables']
    for name, array in recipe.state_dict(rows, numbers['s'], numbers['factors']).items():
        values = np.ascontiguousarray(array)
        blobs.append(values.tobytes())
        header[name] = {
            'dtype': _HEADER[values.dtype.name],
            'shape': list(array.shape),
            'data_offsets': [end, end + len(blobs[-1])],
        }
        end += len(blobs[-1])
    text = json.dumps(header).encode()
    with path.open('wb') as file:
        file.write(len(text).to_bytes(8, 'little') + text)
        file.writelines(blobs)


def nearest(theirs: np.ndarray, ours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns for each row the nearest of ours, by the largest difference, and that difference."""
    distances = np.abs(theirs[:, np.newaxis] - ours).max(axis=-1)
    return distances.argmin(axis=1), distances.min(axis=1)


def compare_rows(
    results: Results, stage: str, theirs: np.ndarray, ours: np.ndarray, tolerance: float
) -> np.ndarray | None:
    """Adds how far rows, in any order, differ; returns which of ours each is, None without."""
    if len(theirs) != len(ours):
        results.worst[stage] = float('inf')
        return None
    if not len(theirs):
        results.worst[stage] = 0.0
        return np.zeros(0, int)
    rows, distances = nearest(theirs, ours)
    is_paired = len(set(rows.tolist())) == len(rows)
    results.worst[stage] = float(distances.max() / tolerance) if is_paired else float('inf')
    return rows if is_paired else None


def without_ties(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Leaves out detections that others lack since scores that are equal have no order.

    A saturated sigmoid gives many detections one score. Of two that overlap, either may suppress
    the other, and of those with the lowest score any may be the last.

    Args:
      rows, others: [n, 6], detections of two systems: x1, y1, x2, y2, class and score.
    """
    is_missing = nearest(rows, others)[1] > DETECTION_TOLERANCE
    same_class = rows[:, np.newaxis, 4] == others[:, 4]
    same_score = np.abs(rows[:, np.newaxis, 5] - others[:, 5]) <= _TIE
    is_tied = (same_class & same_score & (_overlaps(rows, others) > _OVERLAP)).any(axis=1)
    is_last = np.abs(rows[:, 5] - others[:, 5].min(initial=1.0)) <= _TIE
    return rows[~(is_missing & (is_tied | is_last))]


def tied_at_the_cut(
    theirs: np.ndarray,
    ours: np.ndarray,
    scores: tuple[np.ndarray, np.ndarray],
    box_tolerance: float,
    logit_tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the proposals that one system has and the other lacks since equal scores have no order.

    Of those with the score of the last proposal, any may be the last. Such a proposal has a score
    that is equal to the last ones of both systems, within what the logits may differ by.

    Args:
      theirs, ours: [n, 4] and [m, 4], the proposals of both.
      scores: theirs [n] and ours [m], probabilities.
      box_tolerance: boxes that differ by no more are the same.
      logit_tolerance: of the logits of objectness.

    Returns:
      Which of theirs, and which of ours: bool [n] and [m].
    """
    cuts = np.array([each.min() for each in scores], np.float64)
    # The slope of the sigmoid; scores have its rounding, too.
    limits = logit_tolerance * cuts * (1 - cuts) + _TIE
    found = []
    for boxes, others, of_boxes in ((theirs, ours, scores[0]), (ours, theirs, scores[1])):
        is_missing = nearest(boxes, others)[1] > box_tolerance
        is_last = (np.abs(of_boxes[:, np.newaxis] - cuts) <= limits).all(axis=1)
        found.append(is_missing & is_last)
    return found[0], found[1]


def _overlaps(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns the intersections over unions of boxes, [n, m]."""
    low = np.maximum(rows[:, np.newaxis, :2], others[:, :2])
    high = np.minimum(rows[:, np.newaxis, 2:4], others[:, 2:4])
    common = np.prod(np.maximum(high - low, 0), axis=-1)
    areas = [np.prod(each[:, 2:4] - each[:, :2], axis=-1) for each in (rows, others)]
    return common / np.maximum(areas[0][:, np.newaxis] + areas[1] - common, 1e-12)
