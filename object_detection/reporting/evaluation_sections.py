"""The parts of a report that come from the stored boxes of an evaluation."""

import html
from collections.abc import Mapping, Sequence

import numpy as np

from object_detection.metrics.analysis import errors, thresholds
from object_detection.metrics.analysis.errors import Curve, Group, calibrate, confusion_matrix
from object_detection.metrics.analysis.images import EvaluatedImages
from object_detection.visualization import charts
from object_detection.visualization.report import Cell, grid_table, note, picture_grid, section

# More would not be legible; the others are in the tables.
_MAX_MATRIX = 20
_MAX_CURVES = 5
_MAX_CONFUSED = 15
_IOUS = (0.5, 0.75, 0.9)
_MEANINGS = {
    errors.CLASSIFICATION: 'the box of an object (IoU 0.5 or more) with the wrong class',
    errors.LOCALISATION: 'the right class, but an IoU of 0.1 to 0.5',
    errors.BOTH: 'the wrong class, and an IoU of 0.1 to 0.5',
    errors.DUPLICATE: 'an object that a better detection has found',
    errors.BACKGROUND: 'no object there (IoU up to 0.1)',
    errors.MISSED: 'an object that no detection finds, not even with a wrong class or box',
}


def sections(evaluated: EvaluatedImages) -> list[str]:
    """Returns the sections of one evaluation, without AP by category (see `category_curves`)."""
    images, ids = evaluated.images, list(evaluated.names)
    if not images:
        return []
    return [
        section('Precision and recall', _curves(evaluated)),
        section('Score threshold', _thresholds(evaluated)),
        section('Errors by kind', error_table({'': evaluated})),
        section('Confusion of classes', _confusion(evaluated)),
        section('Calibration of scores', _calibration(evaluated)),
        section(
            'AP by object size and by number of objects',
            note('AP of boxes at IoU 0.5, mean over the categories that have such objects.')
            + _groups('Size', errors.by_size(images, ids))
            + _groups('Objects in the image', errors.by_number(images, ids)),
        ),
        section('Worst images', _pictures(evaluated, is_best=False)),
        section('Best images', _pictures(evaluated, is_best=True)),
    ]


def category_curves(evaluated: EvaluatedImages) -> dict[str, Curve]:
    """Returns the curve at IoU 0.5 of each category, by its name."""
    found = errors.curves(evaluated.images, evaluated.names)
    return {evaluated.names[id_]: each for id_, each in found.items()}


def error_table(runs: Mapping[str, EvaluatedImages]) -> str:
    """Returns a table of the errors by kind, with the numbers of each run in columns of its own."""
    found = {name: errors.measure(each.images, list(each.names)) for name, each in runs.items()}
    heads = ['Kind']
    for name in found:
        heads += [f'{name} errors'.strip(), f'{name} dAP'.strip()]
    rows = [
        [
            f'{kind}: {_MEANINGS[kind]}',
            *(cell for each in found.values() for cell in _error_cells(each[index])),
        ]
        for index, kind in enumerate(errors.KINDS)
    ]
    text = (
        'Kinds as TIDE defines them. dAP is by how much AP of boxes at IoU 0.5 would rise if all '
        'errors of the kind were repaired; the numbers do not add up.'
    )
    return note(text) + grid_table(heads, rows)


def _error_cells(error: errors.ErrorKind) -> list[Cell]:
    return [Cell(error.count, f'{error.count:,}'), Cell(error.cost, f'{error.cost:.3f}', True)]


def _curves(evaluated: EvaluatedImages) -> str:
    ids, names = list(evaluated.names), evaluated.names
    by_iou = {iou: errors.curves(evaluated.images, ids, iou=iou) for iou in _IOUS}
    lines = {}
    for iou, found in by_iou.items():
        mean = errors.mean_precisions(found)
        if mean is not None:
            lines[f'mean, IoU {iou:g}: AP {errors.mean_ap(found):.3f}'] = mean
    if not lines:
        return ''
    first = by_iou[_IOUS[0]]
    worst = sorted((i for i in ids if first[i].num_objects), key=lambda id_: first[id_].ap)
    for id_ in worst[:_MAX_CURVES] if len(worst) > 1 else ():
        lines[f'{names[id_][:24]}, IoU 0.5: AP {first[id_].ap:.3f}'] = first[id_].precisions
    text = 'Precision of boxes at each recall: the mean over categories'
    if len(worst) > 1:
        text += f', and the {min(len(worst), _MAX_CURVES)} categories with the lowest AP'
    return note(f'{text}.') + charts.unit_chart(
        {name: (errors.RECALLS, values) for name, values in lines.items()},
        x_label='recall',
        y_label='precision',
    )


def _thresholds(evaluated: EvaluatedImages) -> str:
    found = thresholds.by_score(evaluated.images, evaluated.names)
    if found is None:
        return ''
    best = found.advice()
    text = (
        f'Advised: {best["score_threshold"]:.2f}, where F1 is greatest: precision '
        f'{best["precision"]:.1%}, recall {best["recall"]:.1%}, F1 {best["f1"]:.1%}, of the boxes '
        'of all categories together at IoU 0.5. A higher threshold gives fewer false detections, '
        'a lower one misses fewer objects.'
    )
    shown = {'precision': found.precisions, 'recall': found.recalls, 'F1': found.f1}
    return note(text) + charts.unit_chart(
        {name: (thresholds.SCORES, values) for name, values in shown.items()},
        x_label='least score',
        y_label='share',
        mark=best['score_threshold'],
    )


def _confusion(evaluated: EvaluatedImages) -> str:
    ids = list(evaluated.names)
    names = [*evaluated.names.values(), 'background']
    matrix = confusion_matrix(evaluated.images, ids)
    if not matrix.any():
        return note('No object, and no detection with a score of 0.5 or more.')
    text = (
        'Rows are annotated, columns detected, with a score of 0.5 or more and an IoU of 0.5 or '
        'more; percentages are shares of the row. In the column "background" are missed objects, '
        'in the row "background" false detections.'
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
            f'<td style="--share:{0.75 * share:.2f}" title="{share:.0%} of {name}">{count}'
            + (f'<br><small>{share:.0%}</small></td>' if count else '</td>')
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
        [names[rows[i]], names[columns[i]], Cell(n := int(between[rows[i], columns[i]]), f'{n:,}')]
        for i in order
    ]
    return '<h3>Most confused</h3>' + grid_table(['Annotated', 'Detected', 'Objects'], table)


def _calibration(evaluated: EvaluatedImages) -> str:
    found = calibrate(evaluated.images)
    if found.ece is None:
        return note('No detection with a score of 0.05 or more.')
    text = (
        f'Expected calibration error {found.ece:.3f}, over {int(found.counts.sum()):,} detections '
        'with a score of 0.05 or more. Bars are the share of detections that match an object (IoU '
        '0.5) by their score: below the line, scores are too high.'
    )
    return note(text) + charts.unit_chart(
        {}, x_label='score', y_label='precision', bars=found.precisions, has_diagonal=True
    )


def _groups(title: str, groups: Sequence[Group]) -> str:

    rows = [[g.name, Cell(g.num_objects, f'{g.num_objects:,}'), Cell.share(g.ap)] for g in groups]
    return grid_table([title, 'Objects', 'AP'], rows)


def _pictures(evaluated: EvaluatedImages, *, is_best: bool) -> str:
    chosen = [each for each in evaluated.pictures if each.is_best == is_best]
    if not chosen:
        return ''
    text = (
        'Ground truth on the left, detections on the right. Images are ordered by the harmonic '
        'mean of precision and recall at IoU 0.5.'
    )
    pictures = [(f'{each.name}: {each.caption}', each.jpeg) for each in chosen]
    return note(text) + picture_grid(pictures, is_wide=True)
