"""A Beam job that makes TFRecords of TFRecords; the records themselves are no elements of it.

What is grouped and sent between workers is where a record is in the input files, and what is known
of it. The worker that writes a shard reads the records of the shard one after the other, so that
memory does not grow with the data. The shards are published together when all are complete, and
PREFIX.report.json says what was done.
"""

import collections
import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from object_detection.data import shard_names, tf_record_files
from object_detection.dataset_tools.context_rcnn import records
from object_detection.dataset_tools.context_rcnn.records import Place
from object_detection.dataset_tools.converters import beam_runners, shard_progress, sharded_writer
from object_detection.dataset_tools.converters.sharded_writer import Draft, Output
from object_detection.errors import UserError

Counts = collections.Counter[str]
# Shard -> (sort key within the shard, JSON of an entry or an error).
Element = tuple[int, tuple[str, bytes]]

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


class Job(NamedTuple):
    """A job on records.

    Attributes:
      pattern: pattern of the input files; commas separate several.
      flag: name of the flag of `pattern`, for errors.
      prefix: prefix of the output files.
      num_shards: number of output files; 0 takes the number of input files.
      plan: makes a collection of `Element` of one of input files (number, path); also takes the
        output.
      maker: makes the records.
      counts: names of what `maker` counts, which are in every report.
      drops: why records of the input may be missing in the output, for errors; '' if none is.
    """

    pattern: str
    flag: str
    prefix: str
    num_shards: int
    plan: Callable[[beam.PCollection, Output], beam.PCollection]
    maker: RecordMaker
    counts: Sequence[str]
    drops: str = ''


class WrittenShard(NamedTuple):
    """A shard: its temporary file, what was counted, and why it could not be written."""

    number: int
    draft: Draft | None
    counts: Mapping[str, int]
    error: str = ''


def run(
    job: Job,
    *,
    workers: int,
    runner: str,
    beam_options: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Runs a job to its end.

    Args:
      job: the job.
      workers, runner, beam_options: as of `beam_runners.options`.
      progress: as of `shard_progress.watched`.

    Returns:
      The report, as in PREFIX.report.json: 'num_shards', 'complete', 'error' and the counts.

    Raises:
      UserError: if an input cannot be used, or nothing was published.
    """
    chosen = beam_runners.create(runner)
    options = beam_runners.options(workers=workers, runner=runner, beam_options=beam_options)
    files = input_files(job.pattern, job.flag)
    with sharded_writer.open_output(job.prefix, job.num_shards or len(files)) as output:
        lost = sorted({*files} & {*output.replaced_paths()}) if job.drops else []
        if lost:
            raise UserError(
                f'--{job.flag}: expected other files than those that the output {output.prefix} '
                f'replaces, as {job.drops}. Received: {lost[0]}.'
            )
        pipeline = beam.Pipeline(runner=chosen, options=options)
        _add_steps(pipeline, job, files, output, raises=bool(runner))
        with shard_progress.watched(output, _count(files), progress):
            beam_runners.run(pipeline)
        return _check_report(output)


def _add_steps(
    pipeline: beam.Pipeline, job: Job, files: Sequence[str], output: Output, *, raises: bool
) -> None:
    facts = {'input': job.pattern, **dict.fromkeys(job.counts, 0)}
    inputs = pipeline | 'Files' >> beam.Create(list(enumerate(files)))
    # Shards without records are written too.
    shards = (
        pipeline
        | 'ShardNumbers' >> beam.Create(range(output.num_shards))
        | 'Shards' >> beam.Map(lambda shard: (shard, ('', b'')))
    )
    _ = (
        (job.plan(inputs, output), shards)
        | beam.Flatten()
        | 'GroupByShard' >> beam.GroupByKey()
        | 'Write' >> beam.ParDo(WriteShard(job.maker, output, raises=raises))
        | 'GroupShards' >> beam.GroupByKey()
        | 'Publish' >> beam.ParDo(Publish(output, facts, raises=raises))
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
    return 0, (_ERROR, json.dumps({_ERROR: describe(error)}).encode())


def describe(error: Exception) -> str:
    """Returns the sentence of an error, without a full stop at its end."""
    if isinstance(error, OSError) and error.filename is not None:
        return f'{error.filename}: {error.strerror}'
    return str(error).removesuffix('.')


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


class WriteShard(beam.DoFn):
    """Writes a shard to a temporary file: (shard, entries) -> (0, `WrittenShard`).

    Args:
      maker: makes the records.
      output: where the job writes.
      raises: whether a file that cannot be written is an error of the runner, which may retry.
    """

    def __init__(self, maker: RecordMaker, output: Output, *, raises: bool):
        self._maker = maker
        self._output = output
        self._raises = raises

    def process(
        self, item: tuple[int, Iterable[tuple[str, bytes]]]
    ) -> Iterator[tuple[int, WrittenShard]]:
        shard, elements = item
        counts, draft, error = Counts(), None, ''
        try:
            with self._output.writing(shard) as file:
                for record in self._maker.make(_entries(sorted(elements)), counts):
                    sharded_writer.write_record(file, record)
                    counts['records'] += 1
            draft = file.draft()
        except UserError as problem:
            error = describe(problem)
        except OSError as problem:
            if self._raises:
                raise
            error = f'shard {shard} of {self._output.prefix}: {describe(problem)}'
        yield 0, WrittenShard(shard, draft, dict(counts), error)


def _entries(elements: Iterable[tuple[str, bytes]]) -> Iterator[Any]:
    for order, text in elements:
        if order == _ERROR:
            raise UserError(json.loads(text)[_ERROR])
        # An element without order creates the shard.
        if order:
            yield json.loads(text)


class Publish(beam.DoFn):
    """Publishes the shards and a report: (0, all `WrittenShard`) -> path of the report.

    Args:
      output: where the job writes.
      facts: entries of the report that are known in advance.
      raises: whether a file that cannot be written is an error of the runner, which may retry.
    """

    def __init__(self, output: Output, facts: Mapping[str, Any], *, raises: bool):
        self._output = output
        self._facts = facts
        self._raises = raises

    def process(self, item: tuple[int, Iterable[WrittenShard]]) -> Iterator[str]:
        shards = sorted(item[1], key=lambda shard: shard.number)
        path = self._output.report_path
        report = self._report(shards)
        try:
            if report['complete']:
                drafts = {shard.number: shard.draft for shard in shards}
                self._output.publish(drafts, {path: _as_text(report)})
            else:
                self._output.write_text(path, _as_text(report))
        except OSError as error:
            if self._raises:
                raise
            report |= {'complete': False, 'error': describe(error)}
            with contextlib.suppress(OSError):
                self._output.write_text(path, _as_text(report))
        yield path

    def _report(self, shards: Sequence[WrittenShard]) -> dict[str, Any]:
        counts = Counts()
        for shard in shards:
            counts.update(shard.counts)
        error = next((shard.error for shard in shards if shard.error), '')
        if not error and not counts['records']:
            error = 'no record would be written'
        return {
            'records': 0,
            'job': self._output.job,
            **self._facts,
            **counts,
            'num_shards': self._output.num_shards,
            'complete': not error,
            'error': error,
        }


def _as_text(report: Mapping[str, Any]) -> str:
    return json.dumps(report, indent=1, ensure_ascii=False)


def summary(report: Mapping[str, Any]) -> str:
    """Summarizes a report in a line."""
    left_out = ('records', 'num_shards', 'complete', 'error', 'job', 'input')
    counts = [f'{name.replace("_", " ")} {report[name]}' for name in report if name not in left_out]
    text = f'{report["records"]} records in {report["num_shards"]} shards'
    return '; '.join([text, ', '.join(counts)]) if counts else text


def _check_report(output: Output) -> dict[str, Any]:
    path = output.report_path
    if not FileSystems.exists(path):
        raise UserError(f'{path} cannot be written.')
    with FileSystems.open(path) as file:
        report = json.loads(file.read())
    if report['job'] != output.job:
        raise UserError(f'{path} is that of another job, as this one could not be written.')
    if report['error']:
        raise UserError(f'{output.state_after_failure()}: {report["error"]}.')
    return report


def read_places(entries: Iterable[Sequence[Any]]) -> Iterator[records.Example]:
    """Reads the images of `all_records`, one record at a time."""
    for entry in entries:
        yield from records.Reader().read_all(Place(*entry))
