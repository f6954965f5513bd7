"""The sections of a report about the images of one evaluation, from what it has stored of them."""

import html
import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from object_detection.metrics.analysis import errors, thresholds
from object_detection.metrics.analysis.errors import Curve, Group, calibrate, confusion_matrix
from object_detection.metrics.analysis.images import EvaluatedImages, Picture
from object_detection.metrics.analysis.thresholds import Thresholds
from object_detection.visualization import charts
from object_detection.visualization.charts import line_chart
from object_detection.visualization.drawing import class_color
from object_detection.visualization.report import (
    Cell,
    folded,
    grid_table,
    note,
    picture_grid,
    section,
    side_by_side,
)

# Of all pictures of a page, which has a third more as text and is to be smaller than 5 MB.
_MAX_PICTURE_BYTES = 3_000_000
# More would not be legible; the others are in the tables.
_MAX_MATRIX = 20
_MAX_CURVES = 5
_MAX_CONFUSED = 15
_ALL = 'all categories'
_IOUS = (0.5, 0.75, 0.9)
_MEANINGS = {
    errors.CLASSIFICATION: 'the place of an object ({} 0.5 or more) with the wrong class',
    errors.LOCALISATION: 'the right class, but an {} of 0.1 to 0.5',
    errors.BOTH: 'the wrong class, and an {} of 0.1 to 0.5',
    errors.DUPLICATE: 'an object that a better detection has found',
    errors.BACKGROUND: 'no object there ({} up to 0.1)',
    errors.MISSED: 'an object that no detection finds, not even with a wrong class or place',
}


class _Compared(NamedTuple):
    """What of detections and objects is compared, and the name of its measure."""

    things: str = 'boxes'
    measure: str = 'IoU'


_BOXES = _Compared()


def reduced(evaluated: Mapping[str, EvaluatedImages]) -> dict[str, list[Picture]]:
    """Returns reader -> pictures, of fewer pixels if all together are too large for a page."""
    found = {reader: list(each.pictures) for reader, each in evaluated.items()}
    total = sum(len(picture.jpeg) for each in found.values() for picture in each)
    share = _MAX_PICTURE_BYTES / max(total, 1)
    if share >= 1:
        return found
    return {
        reader: [p._replace(jpeg=_smaller(p.jpeg, int(share * len(p.jpeg)))) for p in each]
        for reader, each in found.items()
    }


def _smaller(jpeg: bytes, limit: int) -> bytes:
    """Returns a JPEG file of at most so many bytes, or of one pixel."""
    image, smaller = Image.open(io.BytesIO(jpeg)), jpeg
    side = max(image.size)
    while len(smaller) > limit and side > 1:
        side = int(0.9 * side)
        image.thumbnail((side, side))
        file = io.BytesIO()
        image.save(file, 'JPEG', quality=85)
        smaller = file.getvalue()
    return smaller


def pictures(found: Sequence[Picture], title: str = '') -> list[str]:
    """Returns the sections of the worst and of the best images."""
    kinds = (('Worst images', False), ('Best images', True))
    return [section(name + title, _pictures(found, is_best=best)) for name, best in kinds]


def sections(evaluated: EvaluatedImages) -> list[str]:
    """Returns the sections of one evaluation, without pictures and AP by category."""
    if not evaluated.images:
        return []
    found = [section(title, text) for title, text in _parts(evaluated, _BOXES).items()]
    for each in evaluated.compared:
        measure = 'similarity of keypoints (OKS)' if each.title.startswith('keypoints') else 'IoU'
        parts = _parts(evaluated.by(each), _Compared(each.title, measure))
        content = ''.join(f'<h3>{title}</h3>{text}' for title, text in parts.items() if text)
        found.append(folded(f'The same by {each.title}', content))
    return found


def _parts(evaluated: EvaluatedImages, by: _Compared) -> dict[str, str]:
    """Returns title -> content."""
    images, ids = evaluated.images, list(evaluated.names)
    return {
        'Score threshold': _thresholds(evaluated, by),
        'Precision and recall': _curves(evaluated, by),
        'Errors by kind': error_table({'': evaluated}, by),
        'Confusion of classes': _confusion(evaluated, by),
        'Calibration of scores': _calibration(evaluated, by),
        'AP by object size and by number of objects': note(
            f'AP of {by.things} at {by.measure} 0.5, mean over the categories that have such '
            'objects. The size is that of the box.'
        )
        + _groups('Size', errors.by_size(images, ids))
        + _groups('Objects in the image', errors.by_number(images, ids)),
    }


def category_curves(evaluated: EvaluatedImages) -> dict[str, Curve]:
    """Returns the curve at IoU 0.5 of each category, by its name."""
    found = errors.curves(evaluated.images, evaluated.names)
    return {evaluated.names[id_]: each for id_, each in found.items()}


def error_table(runs: Mapping[str, EvaluatedImages], by: _Compared = _BOXES) -> str:
    """Returns a table of the errors by kind, with the numbers of each run in columns of its own."""
    found = {name: errors.measure(each.images, list(each.names)) for name, each in runs.items()}
    heads = ['Kind']
    for name in found:
        heads += [f'{name} errors'.strip(), f'{name} dAP'.strip()]
    rows = [
        [
            f'{kind}: {_MEANINGS[kind].format(by.measure)}',
            *(cell for each in found.values() for cell in _error_cells(each[index])),
        ]
        for index, kind in enumerate(errors.KINDS)
    ]
    text = (
        f'Kinds as TIDE defines them. dAP is by how much AP of {by.things} at {by.measure} 0.5 '
        'would rise if all errors of the kind were repaired; the numbers do not add up.'
    )
    return note(text) + grid_table(heads, rows)


def _error_cells(error: errors.ErrorKind) -> list[Cell]:
    return [Cell.count(error.count), Cell(error.cost, f'{error.cost:.3f}', True)]


def _curves(evaluated: EvaluatedImages, by: _Compared) -> str:
    ids, names = list(evaluated.names), evaluated.names
    by_iou = {iou: errors.curves(evaluated.images, ids, iou=iou) for iou in _IOUS}
    lines = {}
    for iou, found in by_iou.items():
        mean = errors.mean_precisions(found)
        if mean is not None:
            lines[f'mean, {by.measure} {iou:g}: AP {errors.mean_ap(found):.3f}'] = mean
    if not lines:
        return ''
    # The means are of one colour, which no class has.
    first, colors, groups = (
        by_iou[_IOUS[0]],
        dict.fromkeys(lines, charts.GREY),
        dict.fromkeys(lines, 0),
    )
    worst = sorted((i for i in ids if first[i].num_objects), key=lambda id_: first[id_].ap)
    for id_ in worst[:_MAX_CURVES] if len(worst) > 1 else ():
        name = f'{names[id_][:24]}, {by.measure} 0.5: AP {first[id_].ap:.3f}'
        lines[name], colors[name] = first[id_].precisions, _css_color(id_)
        groups[name] = len(groups)
    text = f'Precision of {by.things} at each recall: the mean over categories'
    if len(worst) > 1:
        text += f', and the {min(len(worst), _MAX_CURVES)} categories with the lowest AP'
    return note(f'{text}.') + line_chart(
        {name: np.stack([errors.RECALLS, values], axis=1) for name, values in lines.items()},
        x_label='recall',
        y_label='precision',
        colors=colors,
        groups=groups,
        is_share=True,
    )


def _known(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns the points, float64 [n, 2], where y is a number: no detection, no precision."""
    points = np.stack([x, y], axis=1)
    return points[np.isfinite(y)]


def _css_color(class_id: int) -> str:
    """Returns the colour that a class has in pictures."""
    return '#{:02x}{:02x}{:02x}'.format(*class_color(class_id))


def _thresholds(evaluated: EvaluatedImages, by: _Compared) -> str:
    found = thresholds.by_score(evaluated.images, evaluated.names)
    if found is None:
        return ''
    best = found.advice()
    text = (
        f'Advised: {best["score_threshold"]:.2f}, where F1 is greatest: precision '
        f'{best["precision"]:.1%}, recall {best["recall"]:.1%}, F1 {best["f1"]:.1%}, of the '
        f'{by.things} of all categories together at {by.measure} 0.5. A higher threshold gives '
        'fewer false detections, a lower one misses fewer objects.'
    )
    if by == _BOXES:
        text += ' Exports of this checkpoint keep it: tfod predict --score_threshold best.'
    by_class = thresholds.by_class(evaluated.images, evaluated.names)
    rows = [
        [
            evaluated.names[id_],
            Cell.number(each.advice()['score_threshold'], '{:.2f}'.format),
            *map(Cell.share, each.at(each.best).values()),
            *map(Cell.share, each.at(found.best).values()),
        ]
        for id_, each in by_class.items()
    ]
    heads = ['Category', 'Best threshold', 'Precision', 'Recall', 'F1']
    heads += [f'{name} at {best["score_threshold"]:.2f}' for name in heads[2:]]
    return note(text) + _threshold_charts(evaluated, found, by_class) + grid_table(heads, rows)


def _threshold_charts(
    evaluated: EvaluatedImages, found: Thresholds, by_class: Mapping[int, Thresholds]
) -> str:
    """Draws F1, precision and recall by score, of all categories together and of each."""
    charts_ = []
    for title, key in (('F1', 'f1'), ('Precision', 'precisions'), ('Recall', 'recalls')):
        lines, colors = {_ALL: getattr(found, key)}, {_ALL: charts.GREY}
        for id_, each in list(by_class.items())[:_MAX_MATRIX]:
            lines[evaluated.names[id_]] = getattr(each, key)
            colors[evaluated.names[id_]] = _css_color(id_)
        chart = line_chart(
            {name: _known(thresholds.SCORES, y) for name, y in lines.items()},
            x_label='score threshold',
            colors=colors,
            emphasized=_ALL,
            is_share=True,
            mark=float(thresholds.SCORES[found.best]),
        )
        charts_.append((f'{title} by score', chart))
    return side_by_side(charts_)


def _confusion(evaluated: EvaluatedImages, by: _Compared) -> str:
    ids = list(evaluated.names)
    names = [*evaluated.names.values(), 'background']
    found = thresholds.by_score(evaluated.images, ids)
    least = 0.5 if found is None else found.advice()['score_threshold']
    matrix = confusion_matrix(evaluated.images, ids, min_score=least)
    if not matrix.any():
        return note(f'No object, and no detection with a score of {least:g} or more.')
    text = (
        f'Rows are annotated, columns detected, with a score of {least:g} or more (the advised '
        f'threshold) and an {by.measure} of 0.5 or more: the share of the row, and the number '
        'below it. In the column "background" are missed objects, in the row "background" false '
        'detections.'
    )
    used = np.flatnonzero(matrix[:-1].sum(axis=1) + matrix[:, :-1].sum(axis=0))
    if len(used) > _MAX_MATRIX:
        mistakes = matrix + matrix.T
        np.fill_diagonal(mistakes, 0)
        used = np.sort(used[np.argsort(-mistakes[used].sum(axis=1), kind='stable')][:_MAX_MATRIX])
        text += f' Of {len(ids):,} categories, the {_MAX_MATRIX} with the most mistakes are shown.'
    used = np.append(used, len(ids))
    return (
        note(text)
        + _matrix_table([names[i] for i in used], matrix[np.ix_(used, used)])
        + _confused(names, matrix)
    )


def _matrix_table(names: Sequence[str], matrix: np.ndarray) -> str:
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    escaped = [html.escape(name) for name in names]
    head = ''.join(f'<th title="{name}">{name}</th>' for name in ['annotated', *escaped])
    rows = ''.join(
        f'<tr><th title="{name}">{name}</th>'
        + ''.join(
            f'<td style="--share:{0.75 * share:.2f}" title="{share:.0%} of {name}">'
            + (f'{share:.0%}<br><small>{count}</small></td>' if count else '</td>')
            for count, share in zip(counts.tolist(), parts.tolist(), strict=True)
        )
        + '</tr>'
        for name, counts, parts in zip(escaped, matrix, shares, strict=True)
    )
    return (
        f'<div class="tables"><table class="matrix"><thead><tr>{head}</tr></thead>'
        f'<tbody>{rows}</tbody></table></div>'
    )


def _confused(names: Sequence[str], matrix: np.ndarray) -> str:
    """Returns a table of the pairs of classes that are confused most often."""
    between = matrix[:-1, :-1].copy()
    np.fill_diagonal(between, 0)
    rows, columns = np.nonzero(between)
    order = np.argsort(-between[rows, columns], kind='stable')[:_MAX_CONFUSED]
    if not len(order):
        return ''
    table = [
        [names[rows[i]], names[columns[i]], Cell.count(int(between[rows[i], columns[i]]))]
        for i in order
    ]
    return '<h3>Most confused</h3>' + grid_table(['Annotated', 'Detected', 'Objects'], table)


def _calibration(evaluated: EvaluatedImages, by: _Compared) -> str:
    found = calibrate(evaluated.images)
    if found.ece is None:
        return note('No detection with a score of 0.05 or more.')
    text = (
        f'Expected calibration error {found.ece:.3f}, over {int(found.counts.sum()):,} detections '
        'with a score of 0.05 or more. Bars are the share of detections that match an object '
        f'({by.measure} 0.5) by their score: below the line, scores are too high.'
    )
    return note(text) + charts.reliability_chart(found.precisions)


def _groups(title: str, groups: Sequence[Group]) -> str:
    rows = [[g.name, Cell.count(g.num_objects), Cell.share(g.ap)] for g in groups]
    return grid_table([title, 'Objects', 'AP'], rows)


def _pictures(found: Sequence[Picture], *, is_best: bool) -> str:
    chosen = [each for each in found if each.is_best == is_best]
    if not chosen:
        return ''
    text = (
        'Ground truth on the left, detections on the right, from a score of '
        'eval_config.min_score_threshold (0.5 if not set) on; the advised threshold is known after '
        'the last image only. Images are ordered by the harmonic mean of precision and recall at '
        'IoU 0.5.'
    )
    shown = [(f'{each.name}: {each.caption}', each.jpeg) for each in chosen]
    return note(text) + picture_grid(shown, is_wide=True)
