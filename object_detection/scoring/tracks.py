"""CLEAR MOT, IDF1 and HOTA of tracks in files of MOT Challenge, by the package trackers."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from object_detection.errors import UserError, expected
from object_detection.system import extras

# Columns of a file: frame, id, x, y, width, height, and whether it counts.
_COLUMNS = 7
_MAX_BYTES = 1 << 30
# Public name -> its metric family and name there.
_SHOWN = {
    'HOTA': ('hota', 'HOTA'),
    'DetA': ('hota', 'DetA'),
    'AssA': ('hota', 'AssA'),
    'MOTA': ('clear', 'MOTA'),
    'MOTP': ('clear', 'MOTP'),
    'IDF1': ('identity', 'IDF1'),
    'IDP': ('identity', 'IDP'),
    'IDR': ('identity', 'IDR'),
    'id switches': ('clear', 'IDSW'),
    'missed': ('clear', 'CLR_FN'),
    'false': ('clear', 'CLR_FP'),
}


class TrackMetrics(NamedTuple):
    """The result of `evaluate`.

    Attributes:
      metrics: name -> value, of all sequences together.
      of_sequences: name of a sequence -> its metrics.
      objects, detections: numbers of boxes.
    """

    metrics: dict[str, float]
    of_sequences: dict[str, dict[str, float]]
    objects: int
    detections: int


def evaluate(detections: str, groundtruth: str) -> TrackMetrics:
    """Compares tracks of all classes with those of the ground truth, at an IoU of 0.5.

    Ground truth whose seventh column is 0 does not count, as in MOT Challenge; other rules of its
    data sets, such as those of classes, are not applied.

    Args:
      detections: a file, or a folder of NAME.txt of each sequence.
      groundtruth: a file, or a folder of NAME.txt or NAME/gt/gt.txt of the same sequences.

    Raises:
      UserError: if a file is absent or of another form, or the package is not installed.
    """
    extras.check_packages('metrics of tracks', ('trackers',), 'track')
    from trackers import eval as track_eval

    compute = {
        'clear': (track_eval.compute_clear_metrics, track_eval.aggregate_clear_metrics),
        'hota': (track_eval.compute_hota_metrics, track_eval.aggregate_hota_metrics),
        'identity': (track_eval.compute_identity_metrics, track_eval.aggregate_identity_metrics),
    }
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in compute}
    pairs = _sequences(pathlib.Path(detections), pathlib.Path(groundtruth))
    objects = boxes = 0
    for truth_path, path in pairs.values():
        truth, own = _read(truth_path), _read(path)
        truth = truth[truth[:, 6] != 0]
        objects, boxes = objects + len(truth), boxes + len(own)
        frames = sorted({*truth[:, 0], *own[:, 0]})
        known, ours = ([each[each[:, 0] == frame] for frame in frames] for each in (truth, own))
        overlaps = [
            track_eval.box_iou(a[:, 2:6], b[:, 2:6], box_format='xywh')
            for a, b in zip(known, ours, strict=True)
        ]
        # The package indexes arrays by the numbers of tracks.
        ids = [
            [np.searchsorted(np.unique(rows[:, 1]), each[:, 1]) for each in parts]
            for rows, parts in ((truth, known), (own, ours))
        ]
        for name, (measure, _) in compute.items():
            found[name].append(measure(*ids, overlaps))
    total = {name: aggregate(found[name]) for name, (_, aggregate) in compute.items()}
    of_each = {
        name: _shown({family: values[index] for family, values in found.items()})
        for index, name in enumerate(pairs)
    }
    return TrackMetrics(_shown(total), of_each, objects, boxes)


def lines(found: TrackMetrics) -> Iterator[str]:
    """Yields the lines of a table: each sequence, if there are several, and all together."""
    each = found.of_sequences.items() if len(found.of_sequences) > 1 else ()
    rows = [*each, ('all', found.metrics)]
    width = max(len(name) for name, _ in rows)
    yield ' '.join([' ' * width, *(f'{name:>11}' for name in found.metrics)])
    for name, values in rows:
        # Numbers of boxes and switches are whole, the others shares.
        cells = (f'{value:11.{3 if key[0].isupper() else 0}f}' for key, value in values.items())
        yield ' '.join([f'{name:{width}}', *cells])


def _shown(families: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {name: float(families[family][own]) for name, (family, own) in _SHOWN.items()}


def _sequences(
    detections: pathlib.Path, groundtruth: pathlib.Path
) -> dict[str, tuple[pathlib.Path, pathlib.Path]]:
    """Returns the name of each sequence -> its file of ground truth and of tracks."""
    for path, flag in ((detections, '--detections'), (groundtruth, '--groundtruth')):
        if not path.exists():
            raise UserError(f'{flag} {path}: no such file or folder.')
    if detections.is_file() != groundtruth.is_file():
        raise expected('tracks', 'two files, or two folders', f'{detections} and {groundtruth}')
    if detections.is_file():
        return {groundtruth.stem: (groundtruth, detections)}
    known = {path.stem: path for path in sorted(groundtruth.glob('*.txt'))}
    known |= {path.parts[-3]: path for path in sorted(groundtruth.glob('*/gt/gt.txt'))}
    if not known:
        raise expected(f'{groundtruth}', 'NAME.txt or NAME/gt/gt.txt of sequences', 'none')
    absent = sorted(name for name in known if not (detections / f'{name}.txt').is_file())
    if absent:
        raise expected(f'{detections}', 'a file of each sequence', f'no {absent[0]}.txt')
    return {name: (path, detections / f'{name}.txt') for name, path in known.items()}


def _read(path: pathlib.Path) -> np.ndarray:
    """Returns the rows of a file, float64 [n, 7]."""
    if path.stat().st_size > _MAX_BYTES:
        raise expected(f'{path}', f'at most {_MAX_BYTES} bytes', path.stat().st_size)
    rows: list[Sequence[float]] = []
    for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), start=1):
        if not line.strip():
            continue
        try:
            values = [float(text) for text in line.split(',')[:_COLUMNS]]
        except ValueError:
            values = []
        is_row = len(values) == _COLUMNS and np.isfinite(values).all()
        if not is_row or values[0] < 1 or values[1] < 0 or min(values[4:6]) < 0:
            text = 'frame,id,x,y,width,height,score,...'
            raise expected(f'{path}, line {number}', text, repr(line[:100]))
        rows.append(values)
    return np.array(rows, np.float64).reshape(-1, _COLUMNS)
