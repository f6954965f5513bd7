"""A job that makes TFRecords of TFRecords, see `shard_job`; records are no elements of it.

What is grouped and sent between workers is where a record is in the input files, and what is known
of it. The worker that writes a shard reads the records of the shard one after the other.
PREFIX.report.json says what was done.
"""

import collections
import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from object_detection.data import shard_names, tf_record_files
from object_detection.dataset_tools.context_rcnn import records
from object_detection.dataset_tools.context_rcnn.options import (
    ContextOptions,
    DetectionOptions,
    EmbeddingOptions,
)
from object_detection.dataset_tools.context_rcnn.records import Place
from object_detection.dataset_tools.converters import beam_runners, shard_job, sharded_writer
from object_detection.dataset_tools.converters.shard_job import Element
from object_detection.dataset_tools.converters.sharded_writer import Output
from object_detection.errors import UserError

Counts = collections.Counter[str]

_TEMPORARY = '.tmp-'
_ERROR = 'error'


class RecordMaker(Protocol):
    """Makes the records of a shard; it is pickled."""

    def make(self, entries: Iterable[Any], counts: Counts) -> Iterator[bytes]:
        """Yields serialized records.

        Args:
          entries: entries as they were given to `element`, in order.
          counts: to count in, for the report.

        Raises:
          UserError, OSError: which end the job.
        """


@dataclasses.dataclass(frozen=True)
class Job:
    """A job on records, see `shard_job.ShardJob`.

    Attributes:
      options: its options, of which `name`input_tfrecord is the pattern of the input files (commas
        separate several), and `name`output_tfrecord the prefix of the output files.
      name: see `options`.
      plan: makes a collection of `Element` of one of input files (number, path); also takes the
        output.
      maker: makes the records.
      counts: names of what `maker` counts, which are in every report.
      drops: why records of the input may be missing in the output, for errors; '' if none is.
    """

    options: DetectionOptions | EmbeddingOptions | ContextOptions
    name: str
    plan: Callable[[beam.PCollection, Output], beam.PCollection]
    maker: RecordMaker
    counts: Sequence[str]
    drops: str = ''

    def files(self) -> list[str]:
        """Returns the input files, see `input_files`."""
        flag = f'{self.name}input_tfrecord'
        return input_files(getattr(self.options, flag), flag)

    def elements(self, pipeline: beam.Pipeline, output: Output) -> beam.PCollection:
        return self.plan(pipeline | 'Files' >> beam.Create(list(enumerate(self.files()))), output)

    def new_counts(self) -> Counts:
        return Counts()

    def make(self, elements: Iterable[tuple[str, bytes]], counts: Counts) -> Iterator[bytes]:
        for record in self.maker.make(_entries(elements), counts):
            counts['records'] += 1
            yield record

    def report(self, counts: Sequence[Counts], error: str) -> dict[str, Any]:
        total = Counts()
        for each in counts:
            total.update(each)
        if not error and not total['records']:
            error = 'no record would be written'
        zeros = dict.fromkeys(('records', *self.counts), 0)
        pattern = getattr(self.options, f'{self.name}input_tfrecord')
        state = {'input': pattern, 'complete': not error, 'error': error}
        return {**zeros, **total, **state}

    def texts(self, prefix: str) -> dict[str, str]:
        del prefix
        return {}


def run(
    job: Job, beam_options: Iterable[str] = (), progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Runs a job to its end.

    Args:
      job: the job.
      beam_options: as of `beam_runners.options`.
      progress: as of `shard_job.watched`.

    Returns:
      The report, as in PREFIX.report.json: 'num_shards', 'complete', 'error' and the counts.

    Raises:
      UserError: if an input cannot be used, or nothing was published.
    """
    options = job.options
    runner = beam_runners.create(options.runner)
    chosen = beam_runners.options(
        workers=options.workers, runner=options.runner, beam_options=list(beam_options)
    )
    files = job.files()
    prefix = getattr(options, f'{job.name}output_tfrecord')
    with sharded_writer.open_output(prefix, options.num_shards or len(files)) as output:
        lost = sorted({*files} & {*output.replaced_paths()}) if job.drops else []
        if lost:
            raise UserError(
                f'--{job.name}input_tfrecord: expected other files than those that the output '
                f'{output.prefix} replaces, as {job.drops}. Received: {lost[0]}.'
            )
        raises, total = bool(options.runner), _count(files)
        return shard_job.run(
            job, output, runner, chosen, raises=raises, total=total, progress=progress
        )


def input_files(pattern: str, flag: str) -> list[str]:
    """Returns the files that match a pattern, in order.

    Raises:
      UserError: if there is none, or a set of shards is incomplete.
    """
    found: list[str] = []
    for part in filter(None, pattern.split(',')):
        matched = _glob(part)
        if not matched:
            raise UserError(f'--{flag}: expected TFRecord files. Received: {part}, which is none.')
        if problem := shard_names.problem(matched, part, glob=_glob, exists=FileSystems.exists):
            raise UserError(f'--{flag}: {problem}')
        found += matched
    return list(dict.fromkeys(found))


def _glob(pattern: str) -> list[str]:
    # Beam finds no files by a pattern without a folder.
    pattern = pattern if '://' in pattern else os.path.abspath(pattern)
    matched = FileSystems.match([pattern])[0].metadata_list
    return sorted(file.path for file in matched if _TEMPORARY not in os.path.basename(file.path))


def _count(files: Sequence[str]) -> int:
    """Returns the number of records, if all files are on this machine; else 0."""
    if any('://' in path for path in files):
        return 0
    # A corrupt file is reported by the job.
    with contextlib.suppress(UserError, OSError):
        return sum(1 for path in files for _ in tf_record_files.positions(path))
    return 0


def element(shard: int, order: str, entry: Any) -> Element:
    """Returns an entry of a shard, for `RecordMaker.make`.

    Args:
      shard: number of the shard.
      order: sort key within the shard; not ''.
      entry: what JSON can hold.
    """
    return shard, (order, json.dumps(entry).encode())


def error_element(error: Exception) -> Element:
    """Returns an element that ends the job with an error."""
    return 0, (_ERROR, json.dumps({_ERROR: shard_job.describe(error)}).encode())


def all_records(files: beam.PCollection, output: Output) -> beam.PCollection:
    """The plan of a job that makes a record of each image: (number, path) -> `Element`."""
    return files | 'Records' >> beam.FlatMap(_elements_of_file, output.num_shards)


def _elements_of_file(file: tuple[int, str], num_shards: int) -> Iterator[Element]:
    number, path = file
    try:
        for index, place in enumerate(records.places(path)):
            yield element((number + index) % num_shards, f'{number:06d}/{index:012d}', place)
    except (UserError, OSError) as error:
        yield error_element(error)


def _entries(elements: Iterable[tuple[str, bytes]]) -> Iterator[Any]:
    for order, text in elements:
        if order == _ERROR:
            raise UserError(json.loads(text)[_ERROR])
        yield json.loads(text)


def summary(report: Mapping[str, Any]) -> str:
    """Summarizes a report in a line."""
    left_out = ('records', 'num_shards', 'complete', 'error', 'job', 'input')
    counts = [f'{name.replace("_", " ")} {report[name]}' for name in report if name not in left_out]
    text = f'{report["records"]} records in {report["num_shards"]} shards'
    return '; '.join([text, ', '.join(counts)]) if counts else text


def read_places(entries: Iterable[Sequence[Any]]) -> Iterator[records.Example]:
    """Reads the images of `all_records`, one record at a time."""
    for entry in entries:
        yield from records.Reader().read_all(Place(*entry))
