"""Writes the page of `tfod data check`: tables, charts and pictures of data sets."""

import html
import os
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from object_detection.data import record_checks
from object_detection.dataset_tools.inspection import findings, label_errors, record_pictures
from object_detection.dataset_tools.inspection.check_job import RecordSet
from object_detection.dataset_tools.inspection.findings import CheckedSet
from object_detection.dataset_tools.inspection.record_pictures import RecordPicture
from object_detection.dataset_tools.inspection.summary import Duplicates, Finding, Place
from object_detection.system import files
from object_detection.visualization import charts, report

_MAX_BARS = 40
_MAX_ROWS = 20
_NUM_PICTURES = 12
# Pictures of each kind of problem, and in all.
_MAX_KIND_PICTURES, _MAX_BAD_PICTURES = 2, 16
# Pictures of pairs of each kind of duplicates.
_MAX_PAIRS = 8
_MEANINGS = {
    **record_checks.RECORD_KINDS,
    **record_checks.OBJECT_KINDS,
    **record_checks.WARNING_KINDS,
}
_SIZES = (
    ('size', 'size of boxes (root of the area), pixels'),
    ('relative_size', 'size of boxes, share of the image'),
    ('aspect_ratio', 'aspect of boxes, width / height'),
)
_STATUS = '<p style="color:{color};font-weight:600">{text}</p>'


def write(
    path: str | os.PathLike,
    sets: Sequence[CheckedSet],
    facts: dict[str, str],
    problems: Sequence[str] = (),
) -> None:
    """Writes the page; it needs no other files.

    Args:
      path: path of the page, replaced if it exists.
      sets: the data sets, one part of the page each.
      facts: name -> value, below the title.
      problems: sentences about what kept the data sets from being checked.
    """
    sections = [report.section('Problems', _list(problems))]
    sections += [section for checked in sets for section in _sections(checked, len(sets) > 1)]
    files.write_text(path, report.page('Data check', facts, sections))


def _sections(checked: CheckedSet, named: bool) -> Iterator[str]:
    prefix = f'{checked.records.name}: ' if named else ''
    sizes = findings.box_sizes(checked.summary)
    yield report.section(f'{prefix}Result', _result(checked))
    yield report.section(f'{prefix}Problems', _problems(checked))
    yield report.section(f'{prefix}Records with problems', report.picture_grid(_bad(checked)))
    yield report.section(f'{prefix}Labels that the model doubts', _suspects(checked))
    yield report.section(f'{prefix}Examples', report.picture_grid(_examples(checked)))
    yield report.section(f'{prefix}Classes', _classes(checked))
    yield report.section(f'{prefix}Anchors', _anchors(checked))
    yield report.section(
        f'{prefix}Objects',
        charts.histogram(
            np.repeat(*_counts(checked.summary.objects_per_image)), x_label='objects per image'
        )
        + ''.join(charts.histogram(sizes[key], x_label=label, is_log=True) for key, label in _SIZES)
        + charts.scatter(
            sizes['width'],
            sizes['height'],
            x_label='width of boxes, pixels',
            y_label='height of boxes, pixels',
        ),
    )
    yield report.section(f'{prefix}Images', _images(checked))
    yield report.section(f'{prefix}Duplicates', _duplicates(checked))


def _counts(counts: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
    # A histogram of a hundred thousand numbers looks like one of all.
    scale = max(1, sum(counts.values()) // 100_000)
    values = np.array(list(counts), np.int64)
    return values, np.array([-(-count // scale) for count in counts.values()], np.int64)


def _result(checked: CheckedSet) -> str:
    summary = checked.summary
    bad, odd = findings.harmful(checked), findings.warnings(checked)
    status = (
        _STATUS.format(color='#dc2626', text='There is something that would hurt training.')
        if bad
        else _STATUS.format(color='#059669', text='Nothing that would hurt training was found.')
    )
    rows = [
        ('', 'number'),
        ('files', f'{len(checked.records.files):,}'),
        ('records', f'{summary.num_records:,}'),
        ('records that training skips', f'{summary.num_skipped:,}'),
        ('images without usable objects', f'{summary.num_without_objects:,}'),
        ('objects', f'{summary.num_objects:,}'),
        ('objects that training uses', f'{summary.num_usable:,}'),
        ('classes with objects', f'{len(summary.objects_by_class):,}'),
    ]
    return status + _list(bad) + _list(odd) + report.text_table(rows)


def _list(sentences: Sequence[str]) -> str:
    items = ''.join(f'<li>{html.escape(text)}</li>' for text in sentences)
    return f'<ul>{items}</ul>' if items else ''


def _problems(checked: CheckedSet) -> str:
    summary, parts = checked.summary, []
    if not summary.problems:
        return ''
    rows = [('kind', 'count', 'records')]
    for kind, count in summary.problems.most_common():
        name = f'{kind}: {_MEANINGS[kind]}'
        rows.append((name, f'{count:,}', f'{summary.records_with[kind]:,}'))
    parts.append(report.text_table(rows))
    for kind, _ in summary.problems.most_common():
        rows = [('reason', 'source id', 'file', 'offset')]
        rows += [
            (
                finding.reason or _MEANINGS[kind],
                finding.source_id,
                os.path.basename(checked.file_name(finding.place)),
                str(finding.place.offset),
            )
            for finding in summary.findings[kind][:_MAX_ROWS]
        ]
        parts.append(
            f'<details><summary>{kind}: the first {len(rows) - 1}</summary>'
            f'{report.text_table(rows)}</details>'
        )
    return ''.join(parts)


def _classes(checked: CheckedSet) -> str:
    summary, values = checked.summary, findings.classes(checked)
    factors = findings.repeat_factors(checked)
    if not values:
        return ''
    shown = values[:_MAX_BARS]
    chart = charts.bar_chart(
        [checked.class_name(value) for value in shown],
        [summary.objects_by_class[value] for value in shown],
        x_label='objects',
    )
    rows = [('class', 'objects', 'images') + (('repeat factor',) if factors else ())] + [
        (
            checked.class_name(value),
            f'{summary.objects_by_class[value]:,}',
            f'{summary.images_by_class[value]:,}',
            *([f'{factors.get(value, 1.0):.2f}'] if factors else []),
        )
        for value in values
    ]
    table = f'<details><summary>All {len(values)} classes</summary>{report.text_table(rows)}'
    return f'{chart}{table}</details>'


def _anchors(checked: CheckedSet) -> str:
    share = checked.anchors
    if share is None or not len(share.best_iou):
        return ''
    text = (
        f'{share.unmatched:.1%} of {len(share.best_iou):,} objects have no anchor with an IoU of '
        f'at least {share.threshold:g}, at which the config matches them. At most their best '
        'anchor is trained. Images are as the resizer makes them, without augmentation.'
    )
    worst = [row for row in share.by_class(share.threshold) if row[2] > 0][:_MAX_BARS]
    return (
        f'<p>{text}</p>'
        + charts.histogram(
            share.best_iou,
            x_label='IoU of each object with its best anchor',
            marks=[share.threshold],
        )
        + charts.bar_chart(
            [checked.class_name(value) for value, _, _ in worst],
            [unmatched for _, _, unmatched in worst],
            x_label='share of the class without a matching anchor',
            is_share=True,
        )
        + charts.scatter(
            *_points(share.sizes[share.best_iou >= share.threshold]),
            x_label='width in the resized image, pixels',
            y_label='height in the resized image, pixels',
            groups=[('no matching anchor', share.sizes[share.best_iou < share.threshold, ::-1])],
        )
    )


def _points(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return sizes[:, 1], sizes[:, 0]


def _images(checked: CheckedSet) -> str:
    rows = checked.summary.images.rows
    sizes = np.unique(rows[:, :2], axis=0)
    if len(sizes) == 1:
        return f'<p>All images are {sizes[0, 0]:g} pixels high and {sizes[0, 1]:g} wide.</p>'
    return charts.scatter(
        rows[:, 1], rows[:, 0], x_label='width of images, pixels', y_label='height, pixels'
    )


def _duplicates(checked: CheckedSet) -> str:
    own, training = checked.records, checked.training
    compared = [
        ('Records with the source id of an earlier one', checked.same_id, own),
        ('Records with the image file of an earlier one', checked.same_content, own),
        ('Images almost the same as an earlier one', checked.similar, own),
        ('Images that are in the training data too', checked.in_training, training),
        (
            'Images almost the same as one of the training data',
            checked.similar_in_training,
            training,
        ),
    ]
    return ''.join(
        f'<p>{text}: {found.num_records:,}.</p>{_pairs(found, own, others)}'
        for text, found, others in compared
        if found is not None and found.num_records
    )


def _pairs(found: Duplicates, records: RecordSet, others: RecordSet) -> str:
    """Shows the first two of each group, of which the second is one of `others`."""
    rows = [('records', 'number')]
    for first, *rest in found.groups[:_MAX_ROWS]:
        places = [_where(records, first), *(_where(others, place) for place in rest[:2])]
        rows.append(('; '.join(places), str(len(rest) + 1)))
    pictures = (
        record_pictures.draw_pair(records, group[0], others, group[1])
        for group in found.groups[:_MAX_PAIRS]
    )
    shown = [(picture.name, picture.jpeg) for picture in pictures if picture is not None]
    table = f'<details><summary>Where they are</summary>{report.text_table(rows)}</details>'
    return report.picture_grid(shown, is_wide=True) + table


def _where(records: RecordSet, place: Place) -> str:
    name, where = record_pictures.name(records, place), os.path.basename(records.files[place.file])
    return f'{name} ({where} at {place.offset})' if name else f'{where} at {place.offset}'


def _suspects(checked: CheckedSet) -> str:
    ranking = checked.labels
    if ranking is None:
        return ''
    counts, shown = (
        Counter(each.kind for each in some) for some in (ranking.suspects, ranking.first)
    )
    rows = [('kind', 'all', f'of the first {len(ranking.first)}')]
    rows += [
        (f'{kind}: {meaning}', f'{counts[kind]:,}', str(shown[kind]))
        for kind, meaning in label_errors.KINDS.items()
    ]
    pictures = []
    for number, each in enumerate(ranking.first, start=1):
        picture = record_pictures.draw_suspect(ranking.records, each)
        if picture is not None:
            what = f'label {each.label}' if each.label >= 0 else 'no label'
            caption = f'{number}. {each.kind}: {picture.name}, {what}, score {each.score:.3f}'
            pictures.append((caption, picture.jpeg))
    note = report.note(ranking.said())
    return note + report.text_table(rows) + report.picture_grid(pictures, is_wide=True)


def _examples(checked: CheckedSet) -> Iterator[tuple[str, bytes]]:
    """Yields pictures of records from all over the data."""
    for place in checked.summary.examples(_NUM_PICTURES):
        picture = record_pictures.draw(checked.records, place)
        if picture is not None:
            yield _where(checked.records, place), picture.jpeg


def _bad(checked: CheckedSet) -> Iterator[tuple[str, bytes]]:
    """Yields pictures of records with problems, as far as their images decode."""
    shown: dict[Place, None] = {}
    for kind, _ in reversed(checked.summary.problems.most_common()):
        if kind == 'no_source_id':
            continue
        chosen: list[tuple[Finding, RecordPicture]] = []
        for finding in checked.summary.findings[kind]:
            if len(chosen) == _MAX_KIND_PICTURES or len(shown) == _MAX_BAD_PICTURES:
                break
            is_shown = finding.place in shown
            picture = None if is_shown else record_pictures.draw(checked.records, finding.place)
            if picture is not None:
                chosen.append((finding, picture))
                shown[finding.place] = None
        for finding, picture in chosen:
            yield f'{kind}: {picture.name or finding.source_id} {finding.reason}', picture.jpeg
