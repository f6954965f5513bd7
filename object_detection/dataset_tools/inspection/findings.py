"""What a check found, in the form that the page and programs show."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf import text_format

from object_detection.data import (
    annotation_checks,
    label_map,
    record_checks,
    tf_record_files,
)
from object_detection.data.pipeline import image_counts
from object_detection.data.pipeline.image_counts import ImageCounts
from object_detection.dataset_tools.inspection.check_job import RecordSet
from object_detection.dataset_tools.inspection.label_errors import Ranking
from object_detection.dataset_tools.inspection.summary import (
    Duplicates,
    Place,
    Summary,
    common,
    duplicates,
    similar,
)

if TYPE_CHECKING:
    from object_detection.dataset_tools.inspection.anchor_share import AnchorShare

# A larger share of objects without an anchor of this IoU hurts. The threshold of the matcher may be
# above it, as in the first stage of two, which trains the best anchor of each object anyway.
POOR_IOU, MAX_UNMATCHED = 0.5, 0.5
_MAX_GROUPS = 20
_PERCENTILES = (0, 5, 25, 50, 75, 95, 100)


@dataclasses.dataclass(frozen=True)
class CheckedSet:
    """A data set and what was found in it.

    Attributes:
      records: the data set.
      summary: counts and samples.
      same_id, same_content: its records that repeat an earlier one.
      similar: its pictures that look almost like an earlier one.
      training: the training data, unless this is it, or reads the same files.
      in_training: its images that are in the training data too.
      similar_in_training: its pictures that look almost like one of the training data.
      anchors: how the config's anchors fit its objects; None without a config or without anchors.
      labels: the labels that a model doubts; None without a model.
    """

    records: RecordSet
    summary: Summary
    same_id: Duplicates
    same_content: Duplicates
    similar: Duplicates
    training: RecordSet | None = None
    in_training: Duplicates | None = None
    similar_in_training: Duplicates | None = None
    anchors: 'AnchorShare | None' = None
    labels: Ranking | None = None

    def class_name(self, value: int | str) -> str:
        """Returns the name of a class that `Summary` counts."""
        return self.records.class_names.get(value, str(value))

    def file_name(self, place: Place) -> str:
        """Returns the name of the file of a record of this set."""
        return self.records.files[place.file]


def collect(
    records: RecordSet,
    summary: Summary,
    training: tuple[RecordSet, Summary] | None,
    anchors: 'AnchorShare | None',
) -> CheckedSet:
    """Returns a checked set; `training` is the training data that it is compared with, if any."""
    shared = {}
    if training is not None and set(training[0].files).isdisjoint(records.files):
        shared = {
            'training': training[0],
            'in_training': common(training[1].digests, summary.digests),
            'similar_in_training': similar(summary.digests, training[1].digests),
        }
    return CheckedSet(
        records=records,
        summary=summary,
        same_id=duplicates(summary.digests, 0),
        same_content=duplicates(summary.digests, 1),
        similar=similar(summary.digests),
        anchors=anchors,
        **shared,
    )


def harmful(checked: CheckedSet) -> list[str]:
    """Returns a sentence for each thing that hurts a training or an evaluation."""
    summary, problems = checked.summary, []
    kinds = [*record_checks.RECORD_KINDS, *record_checks.OBJECT_KINDS]
    for kind in kinds:
        if kind == tf_record_files.OTHER_FILE:
            problems += [f'{finding.reason}.' for finding in summary.findings[kind]]
        elif kind in summary.problems and kind != 'unknown_class':
            unit = 'record' if kind in record_checks.RECORD_KINDS else 'object'
            problems.append(f'{_count(summary.problems[kind], unit)} with {kind}.')
    if not summary.num_records:
        problems.append('The files have no records.')
    elif not summary.num_usable:
        problems.append('No record has an object that can be trained on.')
    elif text := _ignored(checked)[0]:
        problems.append(text)
    outside = summary.problems['box_outside_image']
    if text := annotation_checks.doubt(summary.notes, summary.num_usable, outside):
        problems.append(text)
    inverted = summary.problems['inverted_box']
    if text := annotation_checks.doubt_of_order(summary.num_usable, inverted):
        problems.append(text)
    without = [
        name
        for number, name in checked.records.class_names.items()
        if not summary.objects_by_class[number]
    ]
    if without and summary.num_usable and checked.records.name == 'train_input_reader':
        problems.append(f'Classes of the label map without any object: {", ".join(without)}.')
    if checked.in_training is not None and checked.in_training.num_records:
        count = _count(checked.in_training.num_records, 'image')
        problems.append(f'{count} of the training data: the metrics will be too good.')
    if checked.anchors is not None and checked.anchors.share_below(POOR_IOU) > MAX_UNMATCHED:
        problems.append(_anchor_problem(checked.anchors.share_below(POOR_IOU), 'objects'))
    return problems


def warnings(checked: CheckedSet) -> list[str]:
    """Returns a sentence for each thing that is worth a look, but may be meant."""
    summary, found = checked.summary, []
    if summary.problems['unknown_class']:
        count = _count(summary.problems['unknown_class'], 'object')
        found.append(f'Left out: {count} of a class that the label map lacks.')
    for kind, meaning in record_checks.WARNING_KINDS.items():
        if summary.records_with[kind]:
            found.append(f'{_count(summary.records_with[kind], "record")}: {meaning}.')
    found += _ignored(checked)[1]
    anchors = checked.anchors
    if anchors is not None and anchors.share_below(POOR_IOU) <= MAX_UNMATCHED:
        poor = [row for row in anchors.by_class(POOR_IOU) if row[2] > MAX_UNMATCHED]
        for number, _, share in poor:
            found.append(_anchor_problem(share, f'objects of {checked.class_name(number)}'))
    for same, what in ((checked.same_id, 'source id'), (checked.same_content, 'image file')):
        if same.num_records:
            count = _count(same.num_records, 'record')
            found.append(f'{count} with the same {what} as an earlier one.')
    if checked.similar.num_records:
        count = _count(checked.similar.num_records, 'image')
        found.append(f'Almost the same picture as an earlier one: {count}.')
    if checked.similar_in_training is not None and checked.similar_in_training.num_records:
        count = _count(checked.similar_in_training.num_records, 'image')
        found.append(
            f'Almost the same picture as one of the training data: {count}. The metrics may be too '
            'good.'
        )
    return found


def _ignored(checked: CheckedSet) -> tuple[str, list[str]]:
    """Returns what `annotation_checks.said_of_ignored` says."""
    summary = checked.summary
    objects = {checked.class_name(key): n for key, n in summary.objects_by_class.items()}
    counts = {(kind, checked.class_name(key)): n for (kind, key), n in summary.ignored.items()}
    return annotation_checks.said_of_ignored(objects, counts)


def _anchor_problem(share: float, objects: str) -> str:
    return (
        f'{share:.0%} of the {objects} have no anchor with an IoU of at least {POOR_IOU:g}; '
        '`tfod data anchors` proposes others.'
    )


def to_dict(checked: CheckedSet) -> dict[str, Any]:
    """Returns everything as values of JSON."""
    summary, factors, own = checked.summary, repeat_factors(checked), checked.records
    return {
        'name': checked.records.name,
        'files': list(checked.records.files),
        'records': summary.num_records,
        'skipped_records': summary.num_skipped,
        'records_without_objects': summary.num_without_objects,
        'objects': summary.num_objects,
        'usable_objects': summary.num_usable,
        'harmful': harmful(checked),
        'warnings': warnings(checked),
        'problems': {
            kind: {
                'count': count,
                'records': summary.records_with[kind],
                'first': [
                    {
                        'file': checked.file_name(finding.place),
                        'offset': finding.place.offset,
                        'source_id': finding.source_id,
                        'count': finding.count,
                        'reason': finding.reason,
                    }
                    for finding in summary.findings[kind]
                ],
            }
            for kind, count in sorted(summary.problems.items())
        },
        'classes': [
            {
                'name': checked.class_name(value),
                'objects': summary.objects_by_class[value],
                'images': summary.images_by_class[value],
                **({'repeat_factor': factors.get(value, 1.0)} if factors else {}),
            }
            for value in classes(checked)
        ],
        'objects_per_image': {
            str(number): count for number, count in sorted(summary.objects_per_image.items())
        },
        'images': percentiles(
            dict(zip(('height', 'width'), summary.images.rows.T[:2], strict=True))
        ),
        'boxes': percentiles(box_sizes(summary)),
        'duplicates': {
            'source_id': _duplicates(own, checked.same_id, own),
            'content': _duplicates(own, checked.same_content, own),
            'in_training': checked.in_training and checked.in_training.num_records,
            'similar': _duplicates(own, checked.similar, own),
            'similar_in_training': _duplicates(own, checked.similar_in_training, checked.training),
        },
        'anchors': checked.anchors and checked.anchors.to_dict(checked.class_name),
        'labels': checked.labels and checked.labels.to_list(),
    }


def classes(checked: CheckedSet) -> list[int | str]:
    """Returns all classes, those of the label map without objects too; the most frequent first."""
    counts = checked.summary.objects_by_class
    values = dict.fromkeys([*checked.records.class_names, *counts])
    return sorted(values, key=lambda value: (-counts[value], checked.class_name(value)))


def counts_of_images(checked: CheckedSet) -> ImageCounts:
    """Returns the records that can be read, and those with usable objects of each class."""
    summary = checked.summary
    return ImageCounts(summary.num_records - summary.num_skipped, summary.images_by_class)


def repeat_factors(checked: CheckedSet) -> Mapping[int, float]:
    """Returns the factor of each class by `repeat_factor_sampling`; {} without it."""
    threshold = checked.records.repeat_threshold
    return image_counts.repeat_factors(counts_of_images(checked), threshold) if threshold else {}


def label_map_with_counts(checked: CheckedSet) -> str:
    """Returns the text of the label map, with `image_count` of each item and `num_images`."""
    counts = counts_of_images(checked)
    proto = label_map.read(checked.records.label_map_path)
    proto.num_images = counts.num_images
    for item in proto.item:
        item.image_count = counts.by_class[item.id]
    return text_format.MessageToString(proto, as_utf8=True)


def box_sizes(summary: Summary) -> dict[str, np.ndarray]:
    """Returns height, width and size (root of the area) in pixels, share of the image and aspect.

    The aspect is width / height in pixels.
    """
    height, width, ymin, xmin, ymax, xmax = summary.boxes.rows.T[:6].astype(np.float64)
    heights, widths = (ymax - ymin) * height, (xmax - xmin) * width
    return {
        'height': heights,
        'width': widths,
        'size': np.sqrt(heights * widths),
        'relative_size': np.sqrt((ymax - ymin) * (xmax - xmin)),
        'aspect_ratio': widths / np.maximum(heights, 1e-9),
    }


def percentiles(values: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Returns name -> {'p0': smallest, ..., 'p100': largest}; {} for no values."""
    return {
        name: {
            f'p{number}': round(float(value), 4)
            for number, value in zip(
                _PERCENTILES, np.percentile(numbers, _PERCENTILES), strict=True
            )
        }
        if len(numbers)
        else {}
        for name, numbers in values.items()
    }


def _duplicates(
    own: RecordSet, found: Duplicates | None, others: RecordSet | None
) -> dict[str, Any] | None:
    """Describes duplicates, of which all but the first of a group are in `others`."""
    return found and {
        'records': found.num_records,
        'first': [
            [
                {'file': (others if number else own).files[place.file], 'offset': place.offset}
                for number, place in enumerate(group)
            ]
            for group in found.groups[:_MAX_GROUPS]
        ],
    }


def _count(number: int, unit: str) -> str:
    """Returns e.g. '1 record' or '1,000 records' for the unit 'record'."""
    plural = f'{unit}es' if unit.endswith('s') else f'{unit}s'
    return f'{number:,} {unit if number == 1 else plural}'


def overview(sets: Sequence[CheckedSet]) -> str:
    """Returns the lines that the command prints."""
    lines = []
    for checked in sets:
        summary = checked.summary
        lines.append(
            f'{checked.records.name}: {_count(len(checked.records.files), "file")}, '
            f'{_count(summary.num_records, "record")}, {_count(summary.num_usable, "object")}'
            f' of {_count(len(summary.objects_by_class), "class")}'
        )
        lines += [f'  HARMFUL  {text}' for text in harmful(checked)]
        lines += [f'  warning  {text}' for text in warnings(checked)]
        if checked.labels is not None:
            lines.append(f'  labels   {checked.labels.said()}')
    return '\n'.join(lines)
