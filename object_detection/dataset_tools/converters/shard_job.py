"""A Beam job that writes the shards of a set of TFRecords, and publishes them with a report.

Only small elements are grouped by shard; the worker that writes a shard makes its records one at a
time, so that memory does not grow with the data. What became of the shards is sent as ordinary
elements to a single last step, which publishes them together; the report is written last.
"""

import contextlib
import json
import os
import shutil
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner

from object_detection.data import tf_record_files
from object_detection.dataset_tools.converters import beam_runners, sharded_writer
from object_detection.dataset_tools.converters.sharded_writer import BeamFiles, Draft, Output
from object_detection.errors import UserError

_POLL_SECONDS = 0.5
# Shard -> (sort key within the shard, content). The key '' has no content, and creates the shard.
Element = tuple[int, tuple[str, bytes]]


class ConversionError(UserError):
    """Nothing was published, or only a part.

    Outputs of earlier runs are unchanged unless the file `PREFIX.publishing` exists.
    """


class ShardJob(Protocol):
    """What a job writes; it is pickled."""

    def elements(self, pipeline: beam.Pipeline, output: Output) -> beam.PCollection:
        """Adds the steps that make the `Element`s."""

    def new_counts(self) -> Any:
        """Returns what counts the contents of a shard."""

    def make(self, elements: Iterable[tuple[str, bytes]], counts: Any) -> Iterator[bytes]:
        """Yields the serialized records of a shard.

        Args:
          elements: its elements, in order.
          counts: to count in, for the report.

        Raises:
          UserError, OSError: which end the job.
        """

    def report(self, counts: Sequence[Any], error: str) -> dict[str, Any]:
        """Returns the report; 'complete' says whether the shards are published, 'error' why not.

        Args:
          counts: of all shards.
          error: why a shard could not be written; '' if all are.
        """

    def texts(self, prefix: str) -> Mapping[str, str]:
        """Returns path -> content of the text files that are published with the shards."""


class WrittenShard(NamedTuple):
    """A shard: its temporary file, what was counted, and why it could not be written."""

    number: int
    draft: Draft | None
    counts: Any
    error: str = ''


def run(
    job: ShardJob,
    output: Output,
    runner: PipelineRunner,
    options: PipelineOptions,
    *,
    raises: bool,
    total: int,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Runs a job to its end.

    Args:
      job: what it writes.
      output: where it writes.
      runner, options: runner and options of `beam_runners`.
      raises: whether a file that cannot be written is an error of the runner, which may retry,
        instead of an error in the report.
      total, progress: as of `watched`.

    Returns:
      The report, as in PREFIX.report.json; with 'job' and 'num_shards'.

    Raises:
      ConversionError: if the report has an error, or cannot be written.
    """
    pipeline = beam.Pipeline(runner=runner, options=options)
    # Shards without records are written too. Also, some runners (Dask) divide the work into at most
    # as many parts as there were elements at the beginning.
    shards = (
        pipeline
        | 'ShardNumbers' >> beam.Create(range(output.num_shards))
        | 'Shards' >> beam.Map(lambda shard: (shard, ('', b'')))
    )
    _ = (
        (job.elements(pipeline, output), shards)
        | beam.Flatten()
        | 'GroupByShard' >> beam.GroupByKey()
        | 'WriteShard' >> beam.ParDo(WriteShard(job, output, raises=raises))
        | 'GroupShards' >> beam.GroupByKey()
        | 'Publish' >> beam.ParDo(Publish(job, output, raises=raises))
    )
    try:
        with watched(output, total, progress):
            beam_runners.run(pipeline)
    finally:
        # Beam removes it at the end of a run that nothing interrupts.
        shutil.rmtree(pipeline.local_tempdir, ignore_errors=True)
    return _checked_report(output)


def describe(error: Exception) -> str:
    """Returns the sentence of an error, without a full stop at its end."""
    if isinstance(error, OSError) and error.strerror:
        return ': '.join(filter(None, (error.filename2 or error.filename, error.strerror)))
    return str(error).removesuffix('.')


class WriteShard(beam.DoFn):
    """Writes a shard to a temporary file: (shard, elements) -> (0, `WrittenShard`).

    Args:
      job, output, raises: as of `run`.
    """

    def __init__(self, job: ShardJob, output: Output, *, raises: bool):
        self._job, self._output, self._raises = job, output, raises

    def process(
        self, item: tuple[int, Iterable[tuple[str, bytes]]]
    ) -> Iterator[tuple[int, WrittenShard]]:
        shard, elements = item
        counts, draft, error = self._job.new_counts(), None, ''
        try:
            with self._output.writing(shard) as file:
                ordered = (element for element in sorted(elements) if element[0])
                for record in self._job.make(ordered, counts):
                    sharded_writer.write_record(file, record)
            draft = file.draft()
        except UserError as problem:
            error = describe(problem)
        except OSError as problem:
            if self._raises:
                raise
            name = f'shard {shard} of {self._output.prefix}'
            error = f'{name} cannot be written: {describe(problem)}'
        # All shards have the same key, so that one step receives them all.
        yield 0, WrittenShard(shard, draft, counts, error)


class Publish(beam.DoFn):
    """Publishes all outputs: (0, all `WrittenShard`) -> path of the report.

    Only the report is published if it is not complete.

    Args:
      job, output, raises: as of `run`.
    """

    def __init__(self, job: ShardJob, output: Output, *, raises: bool):
        self._job, self._output, self._raises = job, output, raises

    def process(self, item: tuple[int, Iterable[WrittenShard]]) -> Iterator[str]:
        output, shards = self._output, sorted(item[1], key=lambda shard: shard.number)
        error = next((shard.error for shard in shards if shard.error), '')
        report = self._job.report([shard.counts for shard in shards], error)
        report |= {'job': output.job, 'num_shards': output.num_shards}
        path = output.report_path
        try:
            if report['complete']:
                drafts = {shard.number: shard.draft for shard in shards}
                texts = {**self._job.texts(output.prefix), path: _as_text(report)}
                output.publish(drafts, texts)
            else:
                output.write_text(path, _as_text(report))
        except OSError as problem:
            if self._raises:
                raise
            error = f'{output.prefix} cannot be written: {describe(problem)}'
            report |= {'complete': False, 'error': error}
            # A disk without space for shards may have enough for the report.
            with contextlib.suppress(OSError):
                output.write_text(path, _as_text(report))
        yield path


def _as_text(report: Mapping[str, Any]) -> str:
    return json.dumps(report, indent=1, ensure_ascii=False)


def _checked_report(output: Output) -> dict[str, Any]:
    path = output.report_path
    if not FileSystems.exists(path):
        raise ConversionError(f'{path} cannot be written.')
    report = json.loads(BeamFiles().read(path))
    if report.get('job') != output.job:
        raise ConversionError(f'{path} is that of another job, as this one could not be written.')
    if report['error']:
        raise ConversionError(f'{output.state_after_failure()}: {report["error"]}.')
    return report


def count_records(path: str, start: int = 0) -> tuple[int, int]:
    """Counts the complete records of a local file that may still grow; reads only their lengths.

    Args:
      path: path of the file.
      start: position of a record, or the end of the last one.

    Returns:
      The number of records from `start` on, and the position from which to continue later.
    """
    count, size = 0, os.path.getsize(path)
    with open(path, 'rb') as file:
        while start + tf_record_files.FRAME_SIZE <= size:
            file.seek(start)
            end = start + tf_record_files.FRAME_SIZE + struct.unpack('<Q', file.read(8))[0]
            if end > size:
                break
            count, start = count + 1, end
    return count, start


@contextlib.contextmanager
def watched(
    output: Output,
    total: int,
    progress: Callable[[int, int], None] | None,
    *,
    interval: float = _POLL_SECONDS,
) -> Iterator[None]:
    """Calls `progress` with the number of records so far, and `total`, while the block runs.

    Only the sizes of the files are read, so any process may write them. Files of other machines are
    not polled, as each poll would cost requests.

    Args:
      output: the output of a job.
      total: maximum number of records.
      progress: called from another thread; None disables polling.
      interval: seconds between two polls.
    """
    if progress is None or '://' in output.prefix:
        yield
        return
    done = threading.Event()
    records = GrowingShards(output)

    def poll() -> None:
        while not done.wait(interval):
            # If the runner repeats a step, a shard is written twice.
            progress(min(records.count(), total), total)

    thread = threading.Thread(target=poll, name='progress', daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class GrowingShards:
    """Counts the records of a job's temporary shards, incrementally.

    Args:
      output: a local output.
    """

    def __init__(self, output: Output):
        self._output = output
        # Path -> number of records, position after them.
        self._read: dict[str, tuple[int, int]] = {}

    def count(self) -> int:
        """Returns the number of complete records, including published shards."""
        for path in self._output.temporary_files():
            if sharded_writer.SCRATCH in path:
                continue
            count, position = self._read.get(path, (0, 0))
            # It may have been published since the folder was listed.
            with contextlib.suppress(FileNotFoundError):
                more, position = count_records(path, position)
                self._read[path] = count + more, position
        return sum(count for count, _ in self._read.values())
