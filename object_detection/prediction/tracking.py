"""Tracks objects through the frames of a video: an object has the same number in all of them."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from object_detection.core.detections import Detections
from object_detection.system import extras

# Objects with lower scores have no part in tracking, as in ByteTrack.
FAINT = 0.1
DEFAULT_RATE = 30.0
# How long an object that is not found keeps its number.
_SECONDS_LOST = 1.0
# Of appearance: how alike an object must be to its track, and the share of the past in a track.
_MIN_LIKENESS = 0.4
_PAST = 0.9

_Found = TypeVar('_Found', bound=Detections)


def check_packages(what: str) -> None:
    """Raises UserError, which names the extra, unless the packages for tracking are installed."""
    extras.check_packages(what, ('trackers', 'scipy'), 'track')


class Tracker:
    """Gives the objects of one video their numbers, frame by frame; each class has its own tracks.

    Objects are associated by ByteTrack (Zhang et al., 2022, https://arxiv.org/abs/2110.06864) of
    the package trackers; those of a CenterNet with a track head by its embeddings, as FairMOT does
    (Zhang et al., 2021, https://arxiv.org/abs/2004.01888).

    Args:
      score_threshold: an object begins a track with at least this score; it is followed with lower
        ones, of at least `FAINT`.
      rate: frames in a second.

    Raises:
      UserError: if the packages of the extra `track` are not installed.
    """

    def __init__(self, *, score_threshold: float = 0.5, rate: float = DEFAULT_RATE):
        check_packages('tracking')
        self._threshold, self._rate = score_threshold, rate
        self._of_class: dict[int, _ByteTrack | _Appearance] = {}
        self._numbers: dict[tuple[int, int], int] = {}

    def update(self, found: _Found) -> _Found:
        """Returns the objects of the next frame, of any score, with `track_ids`; 0 is no track."""
        ids, classes = np.zeros(len(found), np.int64), found.ids()
        is_clear = found.scores >= min(FAINT, self._threshold)
        # Tracks of a class without objects move on, too.
        for class_id in sorted({*self._of_class, *classes[is_clear].tolist()}):
            rows = np.flatnonzero(is_clear & (classes == class_id))
            if class_id not in self._of_class:
                kind = _ByteTrack if found.embeddings is None else _Appearance
                self._of_class[class_id] = kind(self._threshold, self._rate)
            for row, own in zip(
                rows, self._of_class[class_id].update(found.take(rows)), strict=True
            ):
                if own >= 0:
                    new = len(self._numbers) + 1
                    ids[row] = self._numbers.setdefault((class_id, int(own)), new)
        return dataclasses.replace(found, track_ids=ids)


class _ByteTrack:
    """The tracks of one class by the overlap of boxes, numbered from their second frame on."""

    def __init__(self, threshold: float, rate: float):
        import trackers

        self._tracker = trackers.ByteTrackTracker(
            lost_track_buffer=round(30 * _SECONDS_LOST),  # The package scales it by the rate.
            frame_rate=rate,
            track_activation_threshold=threshold,
            high_conf_det_threshold=threshold,
            minimum_consecutive_frames=1,
        )

    def update(self, found: Detections) -> np.ndarray:
        """Returns the numbers of the objects, int64 [n], from 0; -1 without one."""
        import supervision

        ids = np.full(len(found), -1, np.int64)
        given = supervision.Detections(
            xyxy=found.boxes[:, [1, 0, 3, 2]].astype(np.float64),
            confidence=found.scores,
            data={'row': np.arange(len(found))},
        )
        tracked = self._tracker.update(given)
        if len(tracked):
            ids[tracked.data['row']] = tracked.tracker_id
        return ids


@dataclasses.dataclass
class _Track:
    """An object: its last box [4], how it moves in a frame, its embedding, frames since then."""

    number: int
    box: np.ndarray
    embedding: np.ndarray
    velocity: np.ndarray
    missed: int = 0


class _Appearance:
    """The tracks of one class by the likeness of embeddings, of length 1, near where they were."""

    def __init__(self, threshold: float, rate: float):
        self._threshold, self._longest = threshold, max(1, round(_SECONDS_LOST * rate))
        self._tracks: list[_Track] = []
        self._count = 0

    def update(self, found: Detections) -> np.ndarray:
        """Returns the numbers of the objects, int64 [n], from 0; -1 without one."""
        ids = np.full(len(found), -1, np.int64)
        for track in self._tracks:
            track.missed += 1
        left = list(self._tracks)
        is_sure = found.scores >= self._threshold
        # As in ByteTrack, doubtful objects get the tracks that clear ones leave.
        for rows in (np.flatnonzero(is_sure), np.flatnonzero(~is_sure)):
            for track, row in _associated(left, rows, found):
                ids[row] = track.number
                _follow(track, found.boxes[row], found.embeddings[row])
            left = [track for track in left if track.missed]
        for row in np.flatnonzero(is_sure & (ids < 0)):
            ids[row], self._count = self._count, self._count + 1
            box, embedding = found.boxes[row].astype(float), found.embeddings[row]
            self._tracks.append(_Track(int(ids[row]), box, embedding, np.zeros(4)))
        self._tracks = [track for track in self._tracks if track.missed <= self._longest]
        return ids


def _associated(
    tracks: Sequence[_Track], rows: np.ndarray, found: Detections
) -> list[tuple[_Track, int]]:
    """Returns which tracks some objects continue."""
    from scipy.optimize import linear_sum_assignment

    if not tracks or not len(rows):
        return []
    missed = np.array([track.missed for track in tracks])
    moved = np.stack([track.box + track.missed * track.velocity for track in tracks])
    likeness = np.stack([track.embedding for track in tracks]) @ found.embeddings[rows].T
    (centers, sides), (others, _) = _centers(moved), _centers(found.boxes[rows])
    distances = np.linalg.norm(centers[:, np.newaxis] - others, axis=-1)
    # What has not been seen for longer may have come farther.
    is_near = distances <= (sides * np.sqrt(1 + missed))[:, np.newaxis]
    values = np.where(is_near & (likeness >= _MIN_LIKENESS), likeness, -1.0)
    pairs = zip(*linear_sum_assignment(values, maximize=True), strict=True)
    return [(tracks[i], int(rows[j])) for i, j in pairs if values[i, j] >= 0]


def _centers(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the middles [n, 2] of boxes and the longer sides [n]."""
    return (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]).max(1)


def _follow(track: _Track, box: np.ndarray, embedding: np.ndarray) -> None:
    """Moves a track to an object."""
    track.velocity = (track.velocity + (box - track.box) / track.missed) / 2
    track.box, track.missed = box.astype(float), 0
    mixed: Any = _PAST * track.embedding + (1 - _PAST) * embedding
    track.embedding = mixed / max(float(np.linalg.norm(mixed)), 1e-6)
