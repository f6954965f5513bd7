"""The report of a conversion: counts, and the first problems of each kind."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any

from object_detection.core import tf_example_keys as keys
from object_detection.data import annotation_checks, annotation_notes
from object_detection.data.annotated_image import AnnotatedImage
from object_detection.data.annotation_notes import MAX_NAMED
from object_detection.data.coco.annotations import EntryProblem
from object_detection.data.formats.source import DUPLICATE, NOT_ANNOTATED, UNKNOWN_FILE
from object_detection.errors import UnusableError

COUNTS = (
    *('images', 'bad_images', 'images_without_objects', 'examples', 'unlisted_images'),
    *('annotations', 'objects', 'crowds', 'clipped_boxes'),
)
# Maximum number of problems of one reason that a report lists; all are counted.
MAX_LISTED = 100
_MAX_EXAMPLES = 3
_SUMS = (
    *('counts', 'changed_images', 'left_out_objects', 'unwanted_objects', 'notes', 'classes'),
    'ignored',
)
# The problem that `annotation_checks.doubt` describes.
_DOUBT = 'doubtful_coordinates'
# If a larger share of images or annotations cannot be used, a warning is shown.
_MANY = 0.05
# The same for images without objects, which some formats do not distinguish from images that nobody
# has annotated.
_MANY_EMPTY = 1 / 3

_IMAGES = ('bad_image', 'bad_annotations', DUPLICATE, NOT_ANNOTATED, UNKNOWN_FILE)


@dataclasses.dataclass
class Tally:
    """Counts of a part of a conversion; `merge` adds parts.

    Attributes:
      counts: counts of images and annotations, by the names of `COUNTS`.
      changed_images: reason of `ImageFile.changes` -> number of images.
      left_out_objects: name of a category that the label map lacks -> number of annotations.
      unwanted_objects: what an option leaves out -> number of annotations.
      notes: what is worth saying of the annotations -> number, see `ImageAnnotations.notes`.
      classes: name of a class -> number of its objects.
      ignored: sums of `annotation_checks.ignored`.
      source_ids: the ids of images that their annotations name otherwise than the list of images.
      num_problems: reason -> number of problems.
      problems: the first `MAX_LISTED` of each reason, as `problem` makes them.
      named_files: name of a count or note -> the first few images that it counts.
    """

    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    changed_images: Counter[str] = dataclasses.field(default_factory=Counter)
    left_out_objects: Counter[str] = dataclasses.field(default_factory=Counter)
    unwanted_objects: Counter[str] = dataclasses.field(default_factory=Counter)
    notes: Counter[str] = dataclasses.field(default_factory=Counter)
    classes: Counter[str] = dataclasses.field(default_factory=Counter)
    ignored: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    source_ids: list[str] = dataclasses.field(default_factory=list)
    num_problems: Counter[str] = dataclasses.field(default_factory=Counter)
    problems: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    named_files: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def name_files(self, count: str, names: Iterable[str]) -> None:
        """Keeps the first few names of images that a count or note counts."""
        known = self.named_files.setdefault(count, [])
        known += [_writable(name) for name in itertools.islice(names, MAX_NAMED - len(known))]

    def add_problem(
        self, error: UnusableError, image: dict[str, Any] | None, annotation_id: Any = None
    ) -> None:
        """Counts why an image (`annotation_id` None), or an annotation of it, was left out."""
        self.num_problems[error.reason] += 1
        if self.num_problems[error.reason] <= MAX_LISTED:
            self.problems.append(
                {
                    'reason': error.reason,
                    'file_name': _writable(image and image['file_name']),
                    'image_id': _writable(image and image['id']),
                    'annotation_id': _writable(annotation_id),
                    'detail': _writable(str(error)),
                }
            )

    def add_entry_problem(self, item: EntryProblem) -> None:
        """Counts an entry of the annotation file that cannot be read."""
        image = {'file_name': item.file_name, 'id': item.image_id}
        # No image counts its annotations.
        self.counts['annotations'] += item.annotation_id is not None
        self.add_problem(item.error, image, item.annotation_id)

    def add_objects(self, image: AnnotatedImage) -> None:
        """Counts the objects of an image."""
        self.counts['objects'] += len(image)
        self.counts['crowds'] += int(image.is_crowd.sum())
        self.classes.update(image.class_texts)
        flags = {keys.IS_CROWD: image.is_crowd.astype(int), **image.object_details}
        flags = {key: flags[key] for key in annotation_checks.IGNORED if key in flags}
        self.ignored.update(annotation_checks.ignored(image.class_texts, flags))

    def add_doubt(self) -> None:
        """Counts it as a problem if the coordinates of all seem to mean something else."""
        outside = self.num_problems['box_outside_image']
        if text := annotation_checks.doubt(self.notes, self.counts['objects'], outside):
            self.add_problem(UnusableError(_DOUBT, text), None)

    def merge(self, other: 'Tally') -> None:
        """Adds the counts of another part."""
        for name in _SUMS:
            getattr(self, name).update(getattr(other, name))
        for item in other.problems:
            listed = sum(known['reason'] == item['reason'] for known in self.problems)
            if listed < MAX_LISTED:
                self.problems.append(item)
        for name, files in other.named_files.items():
            self.name_files(name, files)
        self.num_problems.update(other.num_problems)
        self.source_ids += other.source_ids

    def add_duplicates(self) -> None:
        """Counts the images that were written although others have the same `source_ids`."""
        for source_id, count in Counter(self.source_ids).items():
            for _ in range(count - 1):
                error = UnusableError(DUPLICATE, 'it was written, and another image has its id')
                self.add_problem(error, {'file_name': source_id, 'id': source_id})

    def report(self) -> dict[str, Any]:
        """Returns these counts as entries of the report."""
        return {
            **dict.fromkeys(COUNTS, 0),
            **self.counts,
            'changed_images': dict(self.changed_images),
            'left_out_objects': dict(self.left_out_objects),
            'unwanted_objects': dict(self.unwanted_objects),
            'notes': dict(self.notes),
            'objects_by_class': dict(self.classes),
            **self._ignored(),
            'num_problems': dict(self.num_problems),
            'named_files': {name: files for name, files in self.named_files.items() if files},
            'problems': self.problems,
        }

    def _ignored(self) -> dict[str, Any]:
        """Returns the objects that do not count as others do, and sentences about them."""
        by_kind: dict[str, dict[str, int]] = {}
        for (kind, name), count in self.ignored.items():
            by_kind.setdefault(kind, {})[name] = count
        ordinary = sum(by_kind.pop('', {}).values())
        nothing, remarks = annotation_checks.said_of_ignored(self.classes, self.ignored)
        remarks = [nothing] if nothing else remarks
        return {'ordinary_objects': ordinary, 'ignored_objects': by_kind, 'remarks': remarks}


def _writable(value: Any) -> Any:
    """Returns text in which lone surrogates, which JSON can contain, are escaped."""
    return value.encode(errors='backslashreplace').decode() if isinstance(value, str) else value


def total(tallies: Iterable[Tally]) -> Tally:
    """Returns the sum of all parts."""
    result = Tally()
    for tally in tallies:
        result.merge(tally)
    return result


def summary(report: dict[str, Any]) -> str:
    """Summarizes a report in a few lines."""
    lines = [
        '{examples} examples in {num_shards} shards of {images} images; {objects} objects of '
        '{annotations} annotations, {crowds} of them crowds; {images_without_objects} images '
        'without objects; {clipped_boxes} boxes clipped at the edge'.format(**report)
    ]
    named = report['named_files']
    if unlisted := report['unlisted_images']:
        text = f'{unlisted} image files have names that the annotations do not list'
        lines.append(text + annotation_notes.such_as(named['unlisted_images']))
    if report['label_map_is_renumbered']:
        lines.append('category ids are numbered from 1 in the label map')
    if changed := report['changed_images']:
        lines.append('images changed: ' + ', '.join(f'{n} x {why}' for why, n in changed.items()))
    if left_out := report['left_out_objects']:
        lines.append(
            f'{sum(left_out.values())} objects of categories that the label map lacks are left '
            f'out: {annotation_notes.most_frequent(left_out)}'
        )
    if unwanted := report['unwanted_objects']:
        lines.append(
            f'{sum(unwanted.values())} objects are left out as the options say: '
            f'{annotation_notes.most_frequent(unwanted)}'
        )
    lines += annotation_notes.sentences(report['notes'], named) + report['remarks']
    for reason, count in report['num_problems'].items():
        lines.append(f'{count} x {reason}, for example:')
        alike = [item for item in report['problems'] if item['reason'] == reason]
        lines += [_describe(item) for item in alike[:_MAX_EXAMPLES]]
    return '\n'.join(lines)


def warning(report: dict[str, Any]) -> str:
    """Returns sentences if an unusually large share is left out or seems to be wrong, or ''."""
    problems = report['num_problems']
    annotations = sum(n for reason, n in problems.items() if reason not in (*_IMAGES, _DOUBT))
    # Files that no image of the set belongs to, and images that are left out of a list.
    others = max(0, sum(problems.get(reason, 0) for reason in _IMAGES) - report['bad_images'])
    sentences = [
        f'{count} of {total} {what} could not be used and are left out'
        for count, total, what in (
            (report['bad_images'] + others, report['images'] + others, 'images'),
            (annotations, report['annotations'], 'annotations'),
        )
        if count > _MANY * total
    ]
    if report['images_without_objects'] > _MANY_EMPTY * report['images']:
        sentences.append(
            '{images_without_objects} of {images} images have no objects; leave them out by '
            '--drop_empty if they have not been annotated'.format(**report)
        )
    shares = [f'{"; ".join(sentences)}.'] if sentences else []
    doubts = [item['detail'] for item in report['problems'] if item['reason'] == _DOUBT]
    without_area = problems.get('box_without_area', 0)
    if text := annotation_checks.doubt_of_order(report['objects'], without_area):
        doubts.append(text)
    if report['objects'] and not report['ordinary_objects']:
        doubts += report['remarks']
    return ' '.join(shares + doubts)


def _describe(item: dict[str, Any]) -> str:
    where = item['file_name'] or 'no image'
    if item['annotation_id'] is not None:
        where += f', annotation {item["annotation_id"]}'
    return f'  {where}: {item["detail"]}'
