"""Adds the embeddings of other images of the same camera to each image, as context features.

Only a row of each image, without its file and its embeddings, is grouped by camera. The plan of a
bank says where the embeddings and the images are; a bank is written to a temporary file once, and
the worker that writes a shard reads the bank and the images of the shard one after the other.
"""

import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam

from object_detection.data import file_access, tf_examples, tf_record_files
from object_detection.dataset_tools.context_rcnn import banks, context_records, record_job, records
from object_detection.dataset_tools.context_rcnn import options as job_options
from object_detection.dataset_tools.context_rcnn.banks import Plan, Row
from object_detection.dataset_tools.context_rcnn.context_records import Frame
from object_detection.dataset_tools.context_rcnn.options import (
    ALL_IMAGES,
    TF_SEQUENCE_EXAMPLE,
    ContextOptions,
)
from object_detection.dataset_tools.context_rcnn.record_job import Counts
from object_detection.dataset_tools.context_rcnn.records import Place
from object_detection.dataset_tools.converters import shard_job, sharded_writer
from object_detection.dataset_tools.converters.shard_job import Element
from object_detection.dataset_tools.converters.sharded_writer import BeamFiles, Output
from object_detection.errors import UserError, expected

# The key of rows that stand for errors; no group has it, as the values of keys are not empty.
_ERRORS = ''

# What the report counts.
COUNTS = ('images', *banks.COUNTS, 'images_reduced', 'images_not_reduced')


def run(
    options: ContextOptions,
    beam_options: Iterable[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Runs the job.

    Returns:
      The report: 'records', 'num_shards', 'images' written, 'groups', 'banks',
      'context_features' and the other counts of `banks.plan`, 'images_reduced' and
      'images_not_reduced', which cannot be decoded.

    Raises:
      UserError: if an option or an input cannot be used.
    """
    check(options)
    image_ids = read_image_ids(options.image_ids_to_keep)
    job = record_job.Job(
        options,
        '',
        _Planner(options, image_ids),
        ContextMaker(options),
        COUNTS,
        drops='' if image_ids is None else '--image_ids_to_keep leaves images out',
    )
    return record_job.run(job, beam_options, progress)


def check(options: ContextOptions) -> None:
    """Raises a UserError if options cannot be used, also together."""
    job_options.check(options)
    if not options.add_context_features:
        for name in ('keep_context_features_image_id_list', 'pad_context_features'):
            if getattr(options, name):
                raise UserError(f'--{name}: expected --add_context_features with it.')
    is_sequence = options.output_type == TF_SEQUENCE_EXAMPLE
    reduced = '--reduce_image_size instead of --noreduce_image_size'
    positives = options.keep_only_positives
    for name, is_used, other in (
        ('max_clip_length', is_sequence, f'--output_type {TF_SEQUENCE_EXAMPLE}'),
        ('max_image_dimension', options.reduce_image_size, reduced),
        ('context_features_score_threshold', positives, '--keep_only_positives'),
    ):
        value = getattr(options, name)
        if not is_used and value != getattr(ContextOptions, name):
            raise expected(f'--{name}', f'{other} with it, without which it has no effect', value)


def read_image_ids(path: str) -> frozenset[str] | None:
    """Reads the ids of the images to keep; None for 'All'.

    Raises:
      UserError: if the file is no JSON file with a list of texts and whole numbers.
    """
    if path == ALL_IMAGES:
        return None
    try:
        ids = file_access.parse_json(BeamFiles().read(path), path)
    except OSError as error:
        raise UserError(f'--image_ids_to_keep: {path} cannot be read: {error}.') from error
    except UserError as error:
        raise UserError(f'--image_ids_to_keep: {error}') from error
    if not isinstance(ids, list) or not all(type(each) in (str, int) for each in ids):
        raise UserError(f'--image_ids_to_keep: expected a list of source ids in {path}.')
    return frozenset(map(str, ids))


class _Planner:
    """The plan of the job, see `record_job.Job`.

    Args:
      options: the options of the job.
      image_ids: the source ids of the images to write; None for all.
    """

    def __init__(self, options: ContextOptions, image_ids: frozenset[str] | None):
        self._options = options
        self._image_ids = image_ids

    def __call__(self, files: beam.PCollection, output: Output) -> beam.PCollection:
        options = self._options
        build = BuildBanks(options, self._image_ids, output)
        return (
            files
            | 'Rows' >> beam.FlatMap(rows_of_file, options.sequence_key, options.time_horizon)
            | 'GroupByKey' >> beam.GroupByKey()
            | 'Plan' >> beam.FlatMap(plans_of_group, options, output.num_shards)
            | 'GroupBanks' >> beam.GroupByKey()
            | 'Banks' >> beam.ParDo(build)
        )


def rows_of_file(
    file: tuple[int, str], sequence_key: str, time_horizon: str | None
) -> Iterator[tuple[str, bytes]]:
    """Yields (key of the group, JSON of the row) of the images of a file, see `banks`."""
    _, path = file
    try:
        for place in records.places(path):
            for number, example in enumerate(records.Reader().read_all(place)):
                key = banks.group_key(example, sequence_key, time_horizon)
                row = banks.row_of(example, place._replace(frame=number))
                yield key, banks.to_json(row)
    except (UserError, OSError) as error:
        yield _ERRORS, shard_job.describe(error).encode()


def plans_of_group(
    group: tuple[str, Iterable[bytes]], options: ContextOptions, num_shards: int
) -> Iterator[tuple[int, bytes]]:
    """Yields (number of the file of banks, JSON of a plan and of its counts) of a group."""
    key, rows = group
    if key == _ERRORS:
        yield 0, json.dumps([_ERRORS, min(rows).decode()]).encode()
        return
    counts = Counts()
    plans = banks.plan(key, [banks.from_json(row) for row in rows], options, counts)
    for plan in plans:
        yield zlib.crc32(plan.key.encode()) % num_shards, json.dumps([*plan, counts]).encode()
        # They are counted once for the group.
        counts = Counts()


class BuildBanks(beam.DoFn):
    """Writes banks to a temporary file: (number of the file, plans) -> `record_job.Element`.

    Args:
      options: the options of the job.
      image_ids: the source ids of the images to write; None for all.
      output: where the job writes.
    """

    def __init__(self, options: ContextOptions, image_ids: frozenset[str] | None, output: Output):
        self._options = options
        self._image_ids = image_ids
        self._output = output

    def process(self, item: tuple[int, Iterable[bytes]]) -> Iterator[Element]:
        path = self._output.scratch_path()
        try:
            with sharded_writer.open_for_writing(path) as file:
                position = 0
                for key, *rest in sorted(map(json.loads, item[1]), key=lambda plan: plan[0]):
                    if key == _ERRORS:
                        yield record_job.error_element(UserError(rest[0]))
                        continue
                    rows, chosen, length, counts = rest
                    plan = Plan(key, [Row(*row) for row in rows], chosen, length)
                    place = None
                    frames = context_records.frames(plan, self._image_ids, self._options)
                    if self._options.add_context_features and frames:
                        features = context_records.bank_features(plan, self._options)
                        content = tf_examples.serialize(features)
                        sharded_writer.write_record(file, content)
                        place = Place(path, position + tf_record_files.HEADER_SIZE)
                        position += len(content) + tf_record_files.FRAME_SIZE
                    yield from self._elements(plan.key, frames, place, counts)
        except (UserError, OSError) as error:
            yield record_job.error_element(error)

    def _elements(
        self, key: str, frames: list[Frame], bank: Place | None, counts: Counts
    ) -> Iterator[Element]:
        is_sequence = self._options.output_type == TF_SEQUENCE_EXAMPLE
        length = self._options.max_clip_length if is_sequence else 1
        first = zlib.crc32(key.encode())
        sizes = [frame.size for frame in frames]
        clips = [
            clip
            for window in banks.windows(len(frames), length)
            for clip in banks.within_bytes(window, sizes, context_records.CLIP_BYTES)
        ]
        for number, window in enumerate(clips):
            entry = [f'{key}_{number}', bank, [frames[i] for i in window], counts]
            order = f'{key}\0{number:012d}'
            yield record_job.element((first + number) % self._output.num_shards, order, entry)
            counts = {}
        if not frames:
            # A bank whose images are all left out counts nevertheless.
            entry = [key, None, [], counts]
            yield record_job.element(first % self._output.num_shards, f'{key}\0', entry)


class ContextMaker:
    """Writes images or clips with their context, see `record_job.RecordMaker`.

    Args:
      options: the options of the job.
    """

    def __init__(self, options: ContextOptions):
        self._options = options

    def make(self, entries: Iterable[Any], counts: Counts) -> Iterator[bytes]:
        read = records.Reader().read
        # One bank is in memory at a time: images of a bank follow each other.
        for place, group in itertools.groupby(entries, key=lambda entry: entry[1]):
            bank = records.read(Place(*place)).raw() if place else None
            for name, _, clip, counted in group:
                counts.update(counted)
                frames = [Frame(Place(*where), own, size) for where, own, size in clip]
                counts['images'] += len(frames)
                if not frames:
                    continue
                if self._options.output_type == TF_SEQUENCE_EXAMPLE:
                    yield context_records.to_sequence_example(
                        name, frames, bank, self._options, counts, read
                    )
                else:
                    yield context_records.to_example(frames[0], bank, self._options, counts, read)
