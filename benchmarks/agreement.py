"""Compares what a timed step gives with what the plain execution of the same model gives.

The plain execution is eager, operation by operation, in float32 and with the same weights: neither
the graph's optimizer nor XLA has a part in it.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

# Boxes that overlap so much are the same detection.
_SAME_IOU = 0.9
# Random weights make boxes without area, too: their overlaps tell nothing. Of the image's side.
_SAME_CORNERS = 1e-4


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """Largest differences from the plain execution.

    Attributes:
      score: of the n-th best scores, absolute.
      matched: least share of detections that the plain execution has too. With random weights many
        scores are almost the same, and in 16 bits their order is not.
      mask: of the masks of those detections, absolute.
      loss: of each loss, relative; it is also the limit of the gradients' norm.
      raw: of what the layers give: the differences' norm by that of the values.
    """

    score: float
    matched: float
    box: float
    mask: float
    loss: float
    raw: float


_FLOAT32 = Tolerance(score=1e-4, matched=0.95, box=1e-2, mask=1e-2, loss=1e-3, raw=1e-4)
# Random weights' scores are nearly equal: rounding picks other detections, so that of these only
# the scores say something.
_SHORTER = Tolerance(score=5e-3, matched=0.0, box=1.0, mask=1.0, loss=5e-2, raw=5e-2)


# How much farther from float32 the timed step may be than the plain execution in its precision.
_SPREAD = 1.5


def tolerance(precision: str) -> Tolerance:
    return _FLOAT32 if precision == 'float32' else _SHORTER


def detections(
    timed: Mapping[str, np.ndarray],
    plain: Mapping[str, np.ndarray],
    precision: str,
    rounded: Mapping[str, np.ndarray] | None = None,
) -> dict:
    """Compares detections [B, T, ...]; returns the differences and whether they are allowed.

    Scores are compared by rank, so that two detections which change places do not count.

    Args:
      timed: what the timed step gives.
      plain: what the plain execution gives in float32.
      precision: of the timed step.
      rounded: what the plain execution gives in that precision. Where it differs more from `plain`
        than the limits, as of networks whose weights enlarge rounding, so may `timed`.
    """
    limit = tolerance(precision)
    if rounded is not None:
        limit = dataclasses.replace(
            limit, score=max(limit.score, _SPREAD * _score_difference(rounded, plain))
        )
    boxes, masks, matched, total = [0.0], [0.0], 0, 0
    for image in range(len(timed['num_detections'])):
        pairs = _matches(timed, plain, image)
        total += int(timed['num_detections'][image])
        matched += len(pairs)
        for i, j in pairs:
            boxes.append(_difference(timed, plain, 'detection_boxes', (image, i), (image, j)))
            if 'detection_masks' in timed:
                masks.append(_difference(timed, plain, 'detection_masks', (image, i), (image, j)))
    scores = _score_difference(timed, plain)
    result = {
        'score_difference': scores,
        'same_count': bool(np.array_equal(timed['num_detections'], plain['num_detections'])),
        'matched': matched / total if total else 1.0,
        'box_difference': float(np.max(boxes)),
        'mask_difference': float(np.max(masks)),
    }
    result['agrees'] = bool(
        result['same_count']
        and scores <= limit.score
        and result['matched'] >= limit.matched
        and result['box_difference'] <= limit.box
        and result['mask_difference'] <= limit.mask
    )
    return result


def _score_difference(timed: Mapping[str, np.ndarray], plain: Mapping[str, np.ndarray]) -> float:
    return float(np.abs(timed['detection_scores'] - plain['detection_scores']).max())


def losses(timed: Mapping[str, float], plain: Mapping[str, float], precision: str) -> dict:
    """Compares scalars by name; returns their relative differences and whether they are allowed."""
    differences = {
        name: abs(float(timed[name]) - float(value)) / max(abs(float(value)), 1e-6)
        for name, value in plain.items()
    }
    # Unlike Python's, NumPy's largest number is NaN where there is one, and that is no agreement.
    largest = float(np.max(list(differences.values())))
    return {
        'loss_difference': largest,
        'differences': differences,
        'agrees': largest <= tolerance(precision).loss,
    }


def arrays(
    timed: Mapping[str, np.ndarray],
    plain: Mapping[str, np.ndarray],
    precision: str,
    rounded: Mapping[str, np.ndarray] | None = None,
) -> dict:
    """Compares arrays by name; returns their relative differences and whether they are allowed.

    For the arguments see `detections`.
    """
    differences = _relative_differences(timed, plain)
    limits = dict.fromkeys(differences, tolerance(precision).raw)
    if rounded is not None:
        for name, of_rounding in _relative_differences(rounded, plain).items():
            limits[name] = max(limits[name], _SPREAD * of_rounding)
    return {
        'raw_difference': float(np.max(list(differences.values()))),
        'differences': differences,
        'limits': limits,
        'agrees': all(value <= limits[name] for name, value in differences.items()),
    }


def _relative_differences(
    timed: Mapping[str, np.ndarray], plain: Mapping[str, np.ndarray]
) -> dict[str, float]:
    return {
        name: float(np.linalg.norm(timed[name] - value) / max(np.linalg.norm(value), 1e-9))
        for name, value in plain.items()
    }


def line(result: Mapping, precision: str) -> str:
    """One line about a comparison."""
    numbers = ', '.join(
        f'{name} {value:.3g}'
        for name, value in result.items()
        if isinstance(value, float) and name != 'agrees'
    )
    verdict = 'agrees with' if result['agrees'] else 'DIFFERS FROM'
    return f'{precision} {verdict} the plain execution: {numbers}'


def _matches(timed: Mapping, plain: Mapping, image: int) -> list[tuple[int, int]]:
    """Pairs of the same class that overlap, each plain detection in one pair at most."""
    rows = int(timed['num_detections'][image])
    columns = int(plain['num_detections'][image])
    same = (
        timed['detection_classes'][image, :rows, np.newaxis]
        == plain['detection_classes'][image, :columns]
    )
    overlaps = same * _iou(
        timed['detection_boxes'][image, :rows], plain['detection_boxes'][image, :columns]
    )
    pairs = []
    for i in range(rows if columns else 0):
        j = int(overlaps[i].argmax())
        if overlaps[i, j] >= _SAME_IOU:
            pairs.append((i, j))
            overlaps[:, j] = 0
    return pairs


def _iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """[N, 4], [M, 4] -> [N, M]; 1 for boxes that are the same to rounding, even without area."""
    low = np.maximum(first[:, np.newaxis, :2], second[:, :2])
    high = np.minimum(first[:, np.newaxis, 2:], second[:, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=-1)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=-1) for boxes in (first, second)]
    union = areas[0][:, np.newaxis] + areas[1] - shared
    distances = np.abs(first[:, np.newaxis] - second).max(axis=-1)
    return np.where(distances < _SAME_CORNERS, 1.0, shared / np.maximum(union, 1e-12))


def _difference(timed: Mapping, plain: Mapping, name: str, row: tuple, other: tuple) -> float:
    return float(np.abs(timed[name][row] - plain[name][other]).max())
