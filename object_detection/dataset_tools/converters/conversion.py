"""Converts a data set of any annotation format to TFRecords, see `shard_job`.

    PREFIX-00000-of-00010 ...    PREFIX_label_map.pbtxt    PREFIX.report.json

The entries of the images are written to a scratch file beside the outputs, which the local
processes share, or are grouped by a runner; the worker that writes a shard reads its images one at
a time, so that memory does not grow with the data set. Entries that cannot be converted are left
out and listed in the report.
Earlier outputs of the same prefix are not changed until the new ones are complete, and are then
replaced; files that a killed job left behind are removed.
"""

import contextlib
import dataclasses
import errno
import itertools
import marshal
import math
import os
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from google.protobuf import text_format

from object_detection.data import annotated_image, file_access, tf_examples
from object_detection.data import label_map as label_map_reader
from object_detection.data.coco.keypoints import KeypointLayout
from object_detection.data.formats import formats
from object_detection.data.formats import source as formats_source
from object_detection.data.formats.source import DataSet, ImageEntry, Reader, Source
from object_detection.dataset_tools.converters import (
    beam_runners,
    conversion_report,
    output_lock,
    shard_job,
    sharded_writer,
)
from object_detection.dataset_tools.converters.conversion_report import Tally
from object_detection.dataset_tools.converters.shard_job import ConversionError, Element
from object_detection.dataset_tools.converters.sharded_writer import BeamFiles, Output
from object_detection.errors import UnusableError, UserError
from object_detection.protos import string_int_label_map_pb2

# How LVIS calls them.
_FREQUENCIES = {
    'f': string_int_label_map_pb2.FREQUENT,
    'c': string_int_label_map_pb2.COMMON,
    'r': string_int_label_map_pb2.RARE,
}


def label_map_of(
    labels: Mapping[Any, annotated_image.ClassLabel],
) -> string_int_label_map_pb2.StringIntLabelMap:
    """Returns the label map of all categories, in the same order."""
    label_map = string_int_label_map_pb2.StringIntLabelMap()
    for label in labels.values():
        label_map.item.add(name=label.text, id=label.label)
    return label_map


def add_keypoints(
    label_map: string_int_label_map_pb2.StringIntLabelMap,
    labels: Mapping[Any, annotated_image.ClassLabel],
    layout: KeypointLayout,
) -> None:
    """Adds the keypoints of each category to its item in `label_map`, in place.

    The id of a keypoint is its index among the keypoints of all categories, as in records. Of
    categories without names of keypoints, those that are called person have COCO's.
    """
    items = {item.id: item for item in label_map.item}
    slots = layout.slots
    if not slots:
        every = list(range(len(layout.names)))
        slots = {key: every for key, label in labels.items() if label.text == 'person'}
    for category_id in slots.keys() & labels.keys():
        item = items[labels[category_id].label]
        unknown = itertools.repeat(None)
        for slot, mirrored in zip(
            slots[category_id], layout.mirrored.get(category_id, unknown), strict=False
        ):
            item.keypoints.add(id=slot, label=layout.names[slot], mirrored=mirrored)
        for start, end in layout.skeletons.get(category_id, ()):
            item.skeleton.add(start=start, end=end)


def add_frequencies(
    label_map: string_int_label_map_pb2.StringIntLabelMap,
    labels: Mapping[Any, annotated_image.ClassLabel],
    categories: Mapping[Any, Mapping[str, Any]],
) -> None:
    """Adds how common each category of LVIS is to its item in `label_map`, in place.

    The label map's own values stay.
    """
    items = {item.id: item for item in label_map.item}
    for key, label in labels.items():
        category, item = categories.get(key, {}), items[label.label]
        frequency = _FREQUENCIES.get(str(category.get('frequency')))
        if frequency and not item.HasField('frequency'):
            item.frequency = frequency
        for name in ('instance_count', 'image_count'):
            count = category.get(name)
            is_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 2**31
            if frequency and is_count and not item.HasField(name):
                setattr(item, name, count)


def read_label_map(path: str) -> string_int_label_map_pb2.StringIntLabelMap:
    """Reads a label map by the rules of `data.label_map`, from any file system that Beam knows.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: as `data.label_map.load`.
    """
    file_access.check_exists(path, 'label map', BeamFiles())
    proto = label_map_reader.parse(BeamFiles().read(path), path)
    label_map_reader.classes(proto, path)  # Called only for its errors.
    return proto


def to_text(label_map: string_int_label_map_pb2.StringIntLabelMap) -> str:
    return text_format.MessageToString(label_map, as_utf8=True)


@dataclasses.dataclass(frozen=True)
class Job:
    """A conversion, see `shard_job.ShardJob`.

    Only the report is published if nothing could be converted (no image, or none of the
    annotations), or if there is a problem and `strict` is true.

    Attributes:
      source: the data set; workers list its images, as its annotations may exceed a runner's
        message size.
      reader: reads its images.
      num_images: number of entries.
      label_map: the label map that is published with the shards, as text.
      facts: entries of the report that are known in advance.
      tally: problems that do not belong to an image.
      strict: whether nothing is published if there is any problem.
      index: file of the entries, see `_write_index`, where workers run here; '' groups them by the
        runner.
    """

    source: Source
    reader: Reader
    num_images: int
    label_map: str
    facts: dict[str, Any]
    tally: Tally
    strict: bool = False
    index: str = ''

    def elements(self, pipeline: beam.Pipeline, output: Output) -> beam.PCollection:
        if self.index:
            numbers = range(output.num_shards)
            shards = [(i, (f'{i} {output.num_shards}', b'')) for i in numbers]
            return pipeline | 'Index' >> beam.Create(shards)
        return (
            pipeline
            | 'Source' >> beam.Create([self.source])
            | 'Read' >> beam.FlatMap(entries, output.num_shards, self.reader)
        )

    def new_counts(self) -> Tally:
        return Tally()

    def make(self, elements: Iterable[tuple[str, bytes]], counts: Tally) -> Iterator[bytes]:
        contents = (content for _, content in elements)
        if self.index:
            contents = (each for key, _ in elements for each in _indexed(self.index, key))
        for content in contents:
            if example := self.convert(_unpacked(content), counts):
                yield example

    def report(self, counts: Sequence[Tally], error: str) -> dict[str, Any]:
        tally = conversion_report.total([self.tally, *counts])
        tally.add_doubt()
        tally.add_duplicates()
        found = tally.counts
        has_something = found['examples'] > 0 and (found['objects'] or not found['annotations'])
        is_wanted = bool(has_something) and not (self.strict and tally.problems)
        is_complete = is_wanted and not error
        return {**self.facts, 'complete': is_complete, 'error': error, **tally.report()}

    def texts(self, prefix: str) -> dict[str, str]:
        return {label_map_path(prefix): self.label_map}

    def convert(self, entry: ImageEntry, tally: Tally) -> bytes:
        """Returns the record of an image, or of a clip; b'' if it has none. Counts in `tally`."""
        is_clip = self.reader.provided.clips
        frames = formats_source.frames_of(entry)
        images = [self._read(frame, tally) for frame in frames]
        usable = [image for image in images if image is not None]
        if not usable or (self.source.drop_empty and not any(map(len, usable))):
            return b''
        tally.counts['examples'] += 1
        for image in usable:
            tally.add_objects(image)
        if not is_clip:
            return tf_examples.to_example(usable[0])
        read = [frame for frame, image in zip(frames, images, strict=True) if image is not None]
        return tf_examples.to_sequence_example(usable, formats_source.clip_of(entry, read))

    def _read(self, entry: ImageEntry, tally: Tally) -> annotated_image.AnnotatedImage | None:
        """Returns an image, or None if it cannot be used; counts in `tally`."""
        image = entry.image
        tally.counts['images'] += 1
        try:
            result = formats_source.read(self.reader, entry, BeamFiles())
        except UnusableError as error:
            tally.counts['bad_images'] += 1
            tally.counts['annotations'] += len(entry.annotations)
            tally.add_problem(error, image)
            return None
        tally.counts['annotations'] += len(result.image) + len(result.problems)
        tally.changed_images.update(result.image_changes)
        tally.notes.update(result.notes)
        if annotated_image.NO_ANNOTATIONS in result.notes:
            tally.name_files(annotated_image.NO_ANNOTATIONS, [str(image['file_name'])])
        for annotation_id, error in result.problems:
            if error.reason == annotated_image.NOT_IN_LABEL_MAP:
                tally.left_out_objects[str(error)] += 1
            elif error.reason == annotated_image.NOT_WANTED:
                tally.unwanted_objects[str(error)] += 1
            else:
                tally.add_problem(error, image, annotation_id)
        source_id, image_id = result.image.source_id, str(image['id'])
        if image_id not in (source_id, file_access.without_suffix(source_id)):
            tally.source_ids.append(source_id)
        tally.counts['images_without_objects'] += len(result.image) == 0
        tally.counts['clipped_boxes'] += result.num_clipped
        return result.image


# The reader is a `Reader`, a protocol, which the type checks of Beam refuse.
def entries(source: Source, num_shards: int, reader: Any = None) -> Iterator[Element]:
    """Yields the images of a data set, see `entries_of`, and assigns them to shards in turn."""
    for index, item in enumerate(formats_source.entries_of(source, BeamFiles(), reader)):
        content = zlib.compress(marshal.dumps(tuple(item)), 1)
        yield index % num_shards, (f'{index:012d}', content)


def _unpacked(content: bytes) -> ImageEntry:
    """Returns an entry of `entries`; reading it executes nothing."""
    return ImageEntry(*marshal.loads(zlib.decompress(content)))


def _write_index(path: str, source: Source, reader: Reader) -> None:
    """Writes the `entries` of a data set to an SQLite database, by their numbers."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        # If it is interrupted, nothing reads it.
        for setting in ('journal_mode = OFF', 'synchronous = OFF'):
            database.execute(f'PRAGMA {setting}')
        database.execute('CREATE TABLE entries (number INTEGER PRIMARY KEY, content BLOB)')
        database.execute('BEGIN')
        rows = ((int(key), content) for _, (key, content) in entries(source, 1, reader))
        try:
            database.executemany('INSERT INTO entries VALUES (?, ?)', rows)
            database.execute('COMMIT')
        except sqlite3.OperationalError as error:
            raise OSError(errno.EIO, str(error), path) from error


def _indexed(path: str, key: str) -> Iterator[bytes]:
    """Yields the contents of a shard in turn; `key` is its number and that of all shards."""
    shard, num_shards = map(int, key.split())
    with contextlib.closing(sqlite3.connect(path)) as database:
        [[last]] = database.execute('SELECT MAX(number) FROM entries')
        for number in range(shard, (last or 0) + 1, num_shards):
            query = 'SELECT content FROM entries WHERE number = ?'
            for (content,) in database.execute(query, [number]):
                yield content


def label_map_path(prefix: str) -> str:
    """Returns the path of the label map of a set."""
    return f'{prefix}_label_map.pbtxt'


_IMAGES_PER_SHARD, _MAX_SHARDS = 100, 10


def convert(
    source: Source,
    output_prefix: str,
    num_shards: int | None,
    *,
    is_single_file: bool = False,
    strict: bool = False,
    workers: int = 1,
    runner: str = '',
    beam_options: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Converts a data set to sharded TFRecords.

    Args:
      source: the data set and the options of its conversion.
      output_prefix: prefix of the paths of all outputs.
      num_shards: number of TFRecord files; each is written by one worker. None takes one for each
        100 images, up to 10, and at least as many as workers; 10 with a runner.
      is_single_file: whether the only TFRecord file is named as the prefix.
      strict: publishes nothing if there is any problem; the report lists them all.
      workers: number of local processes.
      runner: name of a Beam runner; '' is the local runner.
      beam_options: Beam's command line options, e.g. ['--dask_npartitions=8'].
      progress: called every half second, from another thread, with the number of examples written
        so far and the total number of images; not called if the outputs are not on this machine.

    Returns:
      The report, as in PREFIX.report.json.

    Raises:
      FileNotFoundError, ValueError: if an input is missing or broken, before the job starts, or
        another job is writing to the prefix.
      ConversionError: if no image, or none of the annotations, can be used, or if there is a
        problem and `strict` is true.
    """
    chosen_runner = beam_runners.create(runner)
    options = beam_runners.options(workers=workers, runner=runner, beam_options=beam_options)
    output_lock.check_free(output_prefix)
    # Broken inputs are found before anything is written.
    job = _job(source, strict)
    if num_shards is None:
        whole = math.ceil(job.num_images / _IMAGES_PER_SHARD)
        num_shards = _MAX_SHARDS if runner else max(1, workers, min(whole, _MAX_SHARDS))
    opened = sharded_writer.open_output(output_prefix, num_shards, is_single_file=is_single_file)
    with opened as output, contextlib.ExitStack() as stack:
        if not runner:
            index = output.scratch_path()
            if file_access.is_url(index):
                # The outputs are in an object store, where a database cannot be.
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                index = os.path.join(folder, 'index')
            job = dataclasses.replace(job, index=index)
            _write_index(index, source, job.reader)
        report = shard_job.run(
            job,
            output,
            chosen_runner,
            options,
            raises=bool(runner),
            total=job.num_images,
            progress=progress,
        )
    if not report['complete']:
        raise ConversionError(
            f'Nothing was published, because of what {output.report_path} lists: '
            f'{conversion_report.summary(report)}'
        )
    return report


def _job(source: Source, strict: bool) -> Job:
    data, label_map = _open(source)
    if not data.num_images and not data.problems:
        given = [value for value in dataclasses.asdict(source).values() if value]
        raise UserError(
            'expected a data set with at least one image. Received one without: '
            f'{", ".join(value for value in given if isinstance(value, str))}.'
        )
    tally = Tally()
    for item in data.problems:
        tally.add_entry_problem(item)
    tally.counts['unlisted_images'] = len(data.unlisted)
    tally.name_files('unlisted_images', data.unlisted)
    tally.notes.update(data.notes)
    return Job(
        source=source,
        reader=data.reader,
        num_images=data.num_images,
        label_map=label_map,
        facts={
            'format': formats.name_of(source),
            'source': dataclasses.asdict(source),
            'label_map_is_renumbered': data.is_renumbered,
        },
        tally=tally,
        strict=strict,
    )


def _open(source: Source) -> tuple[DataSet, str]:
    """Opens a data set; returns it with its label map, as text."""
    files = BeamFiles()
    if path := source.label_map_file:
        given = read_label_map(path)
        data = source.open(files, label_map_reader.classes(given, path))
        add_frequencies(given, data.labels, data.categories)
        return data, to_text(given)
    data = source.open(files, None)
    label_map = label_map_of(data.labels)
    if data.keypoints:
        add_keypoints(label_map, data.labels, data.keypoints)
    add_frequencies(label_map, data.labels, data.categories)
    return data, to_text(label_map)
