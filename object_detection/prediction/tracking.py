"""Tracks objects through the frames of a video: an object has the same number in all of them."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from object_detection.core.detections import Detections
from object_detection.system import extras

# Objects with a lower share of the threshold have no part in tracking.
_FAINT_SHARE = 0.5
# From which overlap on two objects of any classes are one.
_SAME_PLACE = 0.7
# The least overlap of an object with the place where its track is expected.
_MIN_IOU = 0.3
DEFAULT_RATE = 30.0
# How long an object that is not found keeps its number.
_SECONDS_LOST = 1.0
# Of appearance: how alike an object must be to its track, and the share of the past in a track.
_MIN_LIKENESS = 0.4
_PAST = 0.9

_Found = TypeVar('_Found', bound=Detections)


def check_packages(what: str) -> None:
    """Raises UserError, which names the extra, unless the packages for tracking are installed."""
    extras.check_packages(what, ('trackers', 'supervision', 'scipy'), 'track')


def faint(score_threshold: float) -> float:
    """Returns the lowest score with which an object continues a track."""
    return _FAINT_SHARE * score_threshold


class Tracker:
    """Gives the objects of one video their numbers, frame by frame; a track may change its class.

    Objects are associated by ByteTrack (Zhang et al., 2022, https://arxiv.org/abs/2110.06864) of
    the package trackers; those of a CenterNet with a track head by its embeddings, as FairMOT does
    (Zhang et al., 2021, https://arxiv.org/abs/2004.01888), near where its temporal offsets, if it
    has them, say that they come from; with these offsets alone by them, as CenterTrack does (Zhou
    et al., 2020, https://arxiv.org/abs/2004.01177). Of objects of any classes in one place, the
    best alone is tracked: detectors often find a second class there, with a low score.

    Args:
      score_threshold: an object begins a track with at least this score; it is followed with lower
        ones, of at least half of it.
      rate: frames in a second.

    Raises:
      UserError: if the packages of the extra `track` are not installed.
    """

    def __init__(self, *, score_threshold: float = 0.5, rate: float = DEFAULT_RATE):
        check_packages('tracking')
        self._threshold, self._rate = score_threshold, rate
        self._tracks: _ByteTrack | _Heads | None = None

    def update(self, found: _Found) -> _Found:
        """Returns the objects of the next frame, of any score, with `track_ids`; 0 is no track."""
        if self._tracks is None:
            has_heads = found.embeddings is not None or found.movements is not None
            self._tracks = (_Heads if has_heads else _ByteTrack)(self._threshold, self._rate)
        rows = np.flatnonzero(found.scores >= faint(self._threshold))
        rows = rows[_distinct(found.take(rows))]
        ids = np.zeros(len(found), np.int64)
        ids[rows] = self._tracks.update(found.take(rows)) + 1
        return dataclasses.replace(found, track_ids=ids)


def _distinct(found: Detections) -> np.ndarray:
    """Returns bool [n], the objects that no better one overlaps."""
    import supervision

    rows = np.concatenate([found.boxes[:, [1, 0, 3, 2]], found.scores[:, np.newaxis]], axis=1)
    if not len(rows):
        return np.zeros(0, bool)
    return supervision.box_non_max_suppression(rows, iou_threshold=_SAME_PLACE)


class _ByteTrack:
    """Tracks by the overlap of boxes, which are numbered from their second frame on."""

    def __init__(self, threshold: float, rate: float):
        import trackers

        self._tracker = trackers.ByteTrackTracker(
            lost_track_buffer=round(30 * _SECONDS_LOST),  # The package scales it by the rate.
            frame_rate=rate,
            track_activation_threshold=threshold,
            high_conf_det_threshold=threshold,
            minimum_consecutive_frames=1,
            minimum_iou_threshold=_MIN_IOU,
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
    """An object: its last box [4], its embedding, how it moves in a frame, frames since then."""

    number: int
    box: np.ndarray
    embedding: np.ndarray | None
    velocity: np.ndarray
    missed: int = 0


class _Heads:
    """Tracks by what a CenterNet says of the objects, near where they were.

    With embeddings, of length 1, it is their likeness; without, the distance between where the
    objects say that they come from and where tracks were.
    """

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
                _follow(track, found.boxes[row], _embedding(found, row))
            left = [track for track in left if track.missed]
        for row in np.flatnonzero(is_sure & (ids < 0)):
            ids[row], self._count = self._count, self._count + 1
            box, embedding = found.boxes[row].astype(float), _embedding(found, row)
            self._tracks.append(_Track(int(ids[row]), box, embedding, np.zeros(4)))
        self._tracks = [track for track in self._tracks if track.missed <= self._longest]
        return ids


def _embedding(found: Detections, row: int) -> np.ndarray | None:
    return None if found.embeddings is None else found.embeddings[row]


def _associated(
    tracks: Sequence[_Track], rows: np.ndarray, found: Detections
) -> list[tuple[_Track, int]]:
    """Returns which tracks some objects continue."""
    from scipy.optimize import linear_sum_assignment

    if not tracks or not len(rows):
        return []
    missed = np.array([track.missed for track in tracks])
    frames, boxes = missed, found.boxes[rows]
    if found.movements is not None:
        # Tracks move to the frame before, and objects say where they were in it.
        frames, boxes = missed - 1, boxes - np.tile(found.movements[rows], 2)
    steps = zip(frames, tracks, strict=True)
    moved = np.stack([track.box + count * track.velocity for count, track in steps])
    (centers, sides), (others, _) = _centers(moved), _centers(boxes)
    distances = np.linalg.norm(centers[:, np.newaxis] - others, axis=-1)
    if found.embeddings is None:
        pairs = _nearest(distances, found.take(rows))
        return [(tracks[i], int(rows[j])) for i, j in pairs]
    likeness = np.stack([track.embedding for track in tracks]) @ found.embeddings[rows].T
    # What has not been seen for longer may have come farther.
    is_near = distances <= (sides * np.sqrt(1 + missed))[:, np.newaxis]
    values = np.where(is_near & (likeness >= _MIN_LIKENESS), likeness, -1.0)
    pairs = zip(*linear_sum_assignment(values, maximize=True), strict=True)
    return [(tracks[i], int(rows[j])) for i, j in pairs if values[i, j] >= 0]


def _nearest(distances: np.ndarray, found: Detections) -> list[tuple[int, int]]:
    """Returns pairs of a track and an object: the best object takes the nearest track, and so on.

    Args:
      distances: [T, n], in pixels. None is larger than the object, the root of its area.
      found: n objects.
    """
    sides = np.sqrt(np.prod(found.boxes[:, 2:] - found.boxes[:, :2], axis=1))
    free = np.where(distances <= sides, distances, np.inf)
    pairs = []
    for column in np.argsort(-found.scores, kind='stable'):
        row = int(free[:, column].argmin())
        if np.isfinite(free[row, column]):
            pairs.append((row, int(column)))
            free[row] = np.inf
    return pairs


def _centers(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the middles [n, 2] of boxes and the longer sides [n]."""
    return (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]).max(1)


def _follow(track: _Track, box: np.ndarray, embedding: np.ndarray | None) -> None:
    """Moves a track to an object."""
    track.velocity = (track.velocity + (box - track.box) / track.missed) / 2
    track.box, track.missed = box.astype(float), 0
    if embedding is None:
        return
    mixed: Any = _PAST * track.embedding + (1 - _PAST) * embedding
    track.embedding = mixed / max(float(np.linalg.norm(mixed)), 1e-6)
