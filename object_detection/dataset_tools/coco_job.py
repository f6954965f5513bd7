"""The steps of the Beam job that converts a data set in COCO format to TFRecords.

Only the entries of the annotation file are grouped, by shard; images are read where their shard is
written, one at a time. What happened to them travels as ordinary elements to one last step, which
publishes the shards together with a label map and a report. The report is written last.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from object_detection.data import image_files
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import examples as coco_examples
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco.annotations import CocoImage
from object_detection.dataset_tools import annotation_file, conversion_report, sharded_writer
from object_detection.dataset_tools.conversion_report import Tally
from object_detection.errors import UnusableError


@dataclasses.dataclass(frozen=True)
class CocoSource:
    """What is converted.

    Attributes:
      image_dir: folder that the file names in the annotation file are relative to.
      annotations_file: COCO JSON file.
      masks: whether instance masks are written.
      keypoints_file: COCO JSON file with the keypoints of the same annotations, told by their ids;
        may be the annotation file itself. '' writes no keypoints.
      densepose_file: the same for DensePose points.
      label_map_file: label map that gives the categories their integers, by name; '' takes the
        category ids.
      drop_empty: leaves out images without a usable object.
      only_objects_of: name of a category; objects of all others are left out. '' keeps all.
      only_images_with: name of a category; images without an object of it are left out.
      max_pixels: most pixels of an image; larger ones are left out before they are decoded.
    """

    image_dir: str
    annotations_file: str
    masks: bool = False
    keypoints_file: str = ''
    densepose_file: str = ''
    label_map_file: str = ''
    drop_empty: bool = False
    only_objects_of: str = ''
    only_images_with: str = ''
    max_pixels: int = image_files.MAX_PIXELS


@dataclasses.dataclass(frozen=True)
class Target:
    """Where the outputs go: `PREFIX-00000-of-00010`, ..., the label map and the report."""

    prefix: str
    num_shards: int

    @property
    def label_map_path(self) -> str:
        return f'{self.prefix}_label_map.pbtxt'

    @property
    def report_path(self) -> str:
        return f'{self.prefix}.report.json'


class WrittenShard(NamedTuple):
    """A shard in its temporary file, what is in it, and why it could not be written, or ''."""

    number: int
    path: str
    tally: Tally
    error: str = ''


class ReadAnnotations(beam.DoFn):
    """Path of the annotation file -> (shard, (index, image and annotations as JSON)).

    The file is read here and not sent along, as it may be larger than a runner takes at once.
    """

    def __init__(self, source: CocoSource, num_shards: int):
        self._source = source
        self._num_shards = num_shards

    def process(self, path: str) -> Iterator[tuple[int, tuple[int, bytes]]]:
        source = self._source
        file = annotation_file.read(path, segmentations=source.masks)
        for other, keys in (
            (source.keypoints_file, coco_keypoints.KEYPOINT_KEYS),
            (source.densepose_file, coco_keypoints.DENSEPOSE_KEYS),
        ):
            if other not in ('', path):
                coco_annotations.take_over(
                    file, annotation_file.read(other, segmentations=False), keys
                )
        for coco_image in coco_annotations.group_by_image(
            file,
            only_objects_of=source.only_objects_of,
            only_images_with=source.only_images_with,
        ):
            record = json.dumps([coco_image.image, coco_image.annotations]).encode()
            yield coco_image.index % self._num_shards, (coco_image.index, record)


def empty_shard(number: int) -> tuple[int, tuple[int, bytes]]:
    """Returns an element of `ReadAnnotations` that makes a shard of no images."""
    return number, (-1, b'')


class WriteShard(beam.DoFn):
    """(shard, images as JSON) -> (0, what is in the temporary file that now holds the shard).

    Args:
      source: what is converted.
      target: where the outputs go.
      contents: what the examples hold.
      raises: whether a file that cannot be written is an error for the runner, which may try again,
        and not one that `Publish` tells.
    """

    def __init__(
        self,
        source: CocoSource,
        target: Target,
        contents: coco_examples.Contents,
        *,
        raises: bool = True,
    ):
        self._raises = raises
        self._source = source
        self._target = target
        self._contents = contents

    def process(
        self, element: tuple[int, Iterable[tuple[int, bytes]]]
    ) -> Iterator[tuple[int, WrittenShard]]:
        shard, records = element
        path = sharded_writer.temporary_path(self._target.prefix, shard, self._target.num_shards)
        tally = Tally()
        error = ''
        try:
            with sharded_writer.open_for_writing(path) as file:
                for index, record in sorted(records):
                    if index < 0:
                        continue
                    example = self._convert(CocoImage(index, *json.loads(record)), tally)
                    if example:
                        sharded_writer.write_record(file, example)
        except OSError as problem:
            if self._raises:
                raise
            reason = problem.strerror or problem
            error = f'shard {shard} of {self._target.prefix} cannot be written: {reason}'
        # One key for all shards, so that they meet in one step.
        yield 0, WrittenShard(shard, path, tally, error)

    def _convert(self, coco_image: CocoImage, tally: Tally) -> bytes:
        """Returns the image's example, or b'' if it has none; counts in `tally`."""
        image = coco_image.image
        tally.counts['images'] += 1
        tally.counts['annotations'] += len(coco_image.annotations)
        try:
            path = coco_examples.image_path(self._source.image_dir, image['file_name'])
            converted = coco_examples.convert(coco_image, _read_image(path), self._contents)
        except UnusableError as error:
            tally.counts['bad_images'] += 1
            tally.add_problem(error, image)
            return b''
        tally.changed_images.update(converted.image_changes)
        for annotation_id, error in converted.problems:
            if error.reason == coco_examples.NOT_IN_LABEL_MAP:
                tally.left_out_objects[str(error)] += 1
            else:
                tally.add_problem(error, image, annotation_id)
        tally.counts['images_without_objects'] += not converted.objects
        if self._source.drop_empty and not converted.objects:
            return b''
        tally.counts['examples'] += 1
        tally.counts['objects'] += len(converted.objects)
        tally.counts['crowds'] += sum(item.is_crowd for item in converted.objects)
        tally.counts['clipped_boxes'] += sum(item.is_clipped for item in converted.objects)
        return converted.example


class Publish(beam.DoFn):
    """(0, what is in all shards) -> path of the report, after everything is in its place.

    Nothing but the report is published if nothing could be converted: no image, or none of the
    annotations; or if there is a problem and `strict` is true.

    Args:
      target: where the outputs go.
      label_map: the label map, as text.
      facts: entries of the report that are known already.
      tally: of what is known already.
      strict: whether any problem is one too many.
      raises: whether a file that cannot be written is an error for the runner, as for `WriteShard`.
    """

    def __init__(
        self,
        target: Target,
        *,
        label_map: str,
        facts: dict[str, Any],
        tally: Tally,
        strict: bool,
        raises: bool = True,
    ):
        self._raises = raises
        self._target = target
        self._label_map = label_map
        self._facts = facts
        self._tally = tally
        self._strict = strict

    def process(self, element: tuple[int, Iterable[WrittenShard]]) -> Iterator[str]:
        shards = sorted(element[1], key=lambda shard: shard.number)
        report = self._report(shards)
        try:
            self._publish(shards, report)
        except OSError as error:
            if self._raises:
                raise
            where = error.filename2 or error.filename or self._target.prefix
            reason = error.strerror or error
            report |= {'complete': False, 'error': f'{where} cannot be written: {reason}'}
            # The disk that has no room for shards may have some for this.
            with contextlib.suppress(OSError):
                self._write_report(report)
        yield self._target.report_path

    def _publish(self, shards: list[WrittenShard], report: dict[str, Any]) -> None:
        target = self._target
        if report['complete']:
            paths = {shard.number: shard.path for shard in shards}
            texts = {target.label_map_path: self._label_map}
            sharded_writer.publish(paths, target.prefix, target.num_shards, texts)
        else:
            sharded_writer.remove_temporary_files(target.prefix)
        self._write_report(report)

    def _write_report(self, report: dict[str, Any]) -> None:
        text = json.dumps(report, indent=1, ensure_ascii=False)
        sharded_writer.write_text(self._target.report_path, text)

    def _report(self, shards: list[WrittenShard]) -> dict[str, Any]:
        tally = conversion_report.total([self._tally, *(shard.tally for shard in shards)])
        counts = tally.counts
        has_something = counts['examples'] > 0 and (counts['objects'] or not counts['annotations'])
        error = next((shard.error for shard in shards if shard.error), '')
        is_wanted = bool(has_something) and not (self._strict and tally.problems)
        return {
            **self._facts,
            'complete': is_wanted and not error,
            'error': error,
            'num_shards': self._target.num_shards,
            **tally.report(),
        }


def _read_image(path: str) -> bytes:
    # Runners' file systems have errors of their own for a missing file.
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return file.read()
    except OSError as error:
        raise UnusableError('bad_image', f'cannot be read: {error}') from error
