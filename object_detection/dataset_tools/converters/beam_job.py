"""A Beam job that converts a data set of any annotation format to TFRecords.

Only the entries of the annotation files are grouped by shard; the worker that writes a shard reads
its images one at a time. The results are sent as ordinary elements to a single last step, which
publishes the shards together with a label map and a report. The report is written last.
"""

import contextlib
import dataclasses
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner

from object_detection.data import file_access, tf_examples
from object_detection.data.annotated_image import (
    NO_ANNOTATIONS,
    NOT_IN_LABEL_MAP,
    NOT_WANTED,
    AnnotatedImage,
)
from object_detection.data.formats import source as formats_source
from object_detection.data.formats.source import ImageEntry, Reader, Source
from object_detection.dataset_tools.converters import (
    beam_runners,
    conversion_report,
    shard_progress,
    sharded_writer,
)
from object_detection.dataset_tools.converters.conversion_report import Tally
from object_detection.dataset_tools.converters.sharded_writer import BeamFiles, Draft, Output
from object_detection.errors import UnusableError

# Shard, and one of its images: the index in the data set, and JSON of its `ImageEntry`, compressed,
# as the grouping step of the local runner holds all of them.
Entry = tuple[int, tuple[int, bytes]]


class ConversionError(Exception):
    """The data set was not converted.

    Outputs of earlier runs are unchanged unless the file `PREFIX.publishing` exists.
    """


@dataclasses.dataclass(frozen=True)
class Job:
    """A conversion.

    Attributes:
      source: the data set; workers list its images, as its annotations may exceed a runner's
        message size.
      reader: reads its images.
      num_images: number of entries.
      label_map: the label map that is published with the shards, as text.
      facts: entries of the report that are known in advance.
      tally: problems that do not belong to an image.
      strict: whether nothing is published if there is any problem.
    """

    source: Source
    reader: Reader
    num_images: int
    label_map: str
    facts: dict[str, Any]
    tally: Tally
    strict: bool = False


def run(
    job: Job,
    output: Output,
    runner: PipelineRunner,
    options: PipelineOptions,
    *,
    raises: bool,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Runs a conversion.

    Args:
      job: the conversion.
      output: where it writes.
      runner, options: runner and options of `beam_runners`.
      raises: whether a file that cannot be written is an error of the runner, which may retry,
        instead of an error in the report.
      progress: see `shard_progress.watched`.

    Returns:
      The report.

    Raises:
      ConversionError: if nothing was published, or only a part.
    """
    with shard_progress.watched(output, job.num_images, progress):
        beam_runners.run(_pipeline(job, output, runner, options, raises=raises))
    return _check_report(output)


def _pipeline(
    job: Job, output: Output, runner: PipelineRunner, options: PipelineOptions, *, raises: bool
) -> beam.Pipeline:
    write = WriteShard(job.reader, output, drop_empty=job.source.drop_empty, raises=raises)
    publish = Publish(
        output,
        label_map=job.label_map,
        facts=job.facts,
        tally=job.tally,
        strict=job.strict,
        raises=raises,
    )
    pipeline = beam.Pipeline(runner=runner, options=options)
    images = (
        pipeline
        | 'Source' >> beam.Create([job.source])
        | 'Read' >> beam.FlatMap(entries, output.num_shards, job.reader)
    )
    # Shards without images are written too. Also, some runners (Dask) divide the work into at most
    # as many parts as there were elements at the beginning.
    shards = (
        pipeline
        | 'ShardNumbers' >> beam.Create(range(output.num_shards))
        | 'Shards' >> beam.Map(empty_shard)
    )
    _ = (
        (images, shards)
        | beam.Flatten()
        | 'GroupByShard' >> beam.GroupByKey()
        | 'WriteShard' >> beam.ParDo(write)
        | 'GroupShards' >> beam.GroupByKey()
        | 'Publish' >> beam.ParDo(publish)
    )
    return pipeline


# The reader is a `Reader`, a protocol, which the type checks of Beam refuse.
def entries(source: Source, num_shards: int, reader: Any = None) -> Iterator[Entry]:
    """Yields the images of a data set, see `entries_of`, and assigns them to shards in turn."""
    for index, item in enumerate(formats_source.entries_of(source, BeamFiles(), reader)):
        yield index % num_shards, (index, zlib.compress(json.dumps(item).encode(), 1))


def empty_shard(number: int) -> Entry:
    """Returns an entry that creates a shard without images."""
    return number, (-1, b'')


class WrittenShard(NamedTuple):
    """A shard: its temporary file, its contents, and the reason if it could not be written."""

    number: int
    draft: Draft | None
    tally: Tally
    error: str = ''


class WriteShard(beam.DoFn):
    """Writes a shard to a temporary file: (shard, images as JSON) -> (0, `WrittenShard`).

    Args:
      reader: reads the images.
      output: where the job writes.
      drop_empty: whether images without a usable object are left out.
      raises: whether a file that cannot be written is an error of the runner, which may retry,
        instead of an error that `Publish` reports.
    """

    def __init__(
        self,
        reader: Reader,
        output: Output,
        *,
        drop_empty: bool = False,
        raises: bool = True,
    ):
        self._reader = reader
        self._output = output
        self._drop_empty = drop_empty
        self._raises = raises
        self._files = BeamFiles()

    def process(
        self, element: tuple[int, Iterable[tuple[int, bytes]]]
    ) -> Iterator[tuple[int, WrittenShard]]:
        shard, records = element
        tally, draft, error = Tally(), None, ''
        try:
            with self._output.writing(shard) as file:
                for index, record in sorted(records):
                    if index < 0:
                        continue
                    example = self._convert(ImageEntry(*json.loads(zlib.decompress(record))), tally)
                    if example:
                        sharded_writer.write_record(file, example)
            draft = file.draft()
        except OSError as problem:
            if self._raises:
                raise
            reason = problem.strerror or problem
            error = f'shard {shard} of {self._output.prefix} cannot be written: {reason}'
        # All shards have the same key, so that one step receives them all.
        yield 0, WrittenShard(shard, draft, tally, error)

    def _convert(self, entry: ImageEntry, tally: Tally) -> bytes:
        """Returns the record of an image, or of a clip; b'' if it has none. Counts in `tally`."""
        is_clip = self._reader.provided.clips
        frames = [ImageEntry(*each) for each in entry.image['frames']] if is_clip else [entry]
        images = [self._read(frame, tally) for frame in frames]
        usable = [image for image in images if image is not None]
        if not usable or (self._drop_empty and not any(map(len, usable))):
            return b''
        tally.counts['examples'] += 1
        for image in usable:
            tally.add_objects(image)
        if not is_clip:
            return tf_examples.to_example(usable[0])
        read = [frame for frame, image in zip(frames, images, strict=True) if image is not None]
        return tf_examples.to_sequence_example(usable, formats_source.clip_of(entry, read))

    def _read(self, entry: ImageEntry, tally: Tally) -> AnnotatedImage | None:
        """Returns an image, or None if it cannot be used; counts in `tally`."""
        image = entry.image
        tally.counts['images'] += 1
        try:
            result = formats_source.read(self._reader, entry, self._files)
        except UnusableError as error:
            tally.counts['bad_images'] += 1
            tally.counts['annotations'] += len(entry.annotations)
            tally.add_problem(error, image)
            return None
        tally.counts['annotations'] += len(result.image) + len(result.problems)
        tally.changed_images.update(result.image_changes)
        tally.notes.update(result.notes)
        if NO_ANNOTATIONS in result.notes:
            tally.name_files(NO_ANNOTATIONS, [str(image['file_name'])])
        for annotation_id, error in result.problems:
            if error.reason == NOT_IN_LABEL_MAP:
                tally.left_out_objects[str(error)] += 1
            elif error.reason == NOT_WANTED:
                tally.unwanted_objects[str(error)] += 1
            else:
                tally.add_problem(error, image, annotation_id)
        if file_access.without_suffix(result.image.source_id) != str(image['id']):
            tally.source_ids.append(result.image.source_id)
        tally.counts['images_without_objects'] += len(result.image) == 0
        tally.counts['clipped_boxes'] += result.num_clipped
        return result.image


class Publish(beam.DoFn):
    """Publishes all outputs: (0, all `WrittenShard`) -> path of the report.

    Only the report is published if nothing could be converted (no image, or none of the
    annotations), or if there is a problem and `strict` is true.

    Args:
      output: where the job writes.
      label_map: the label map, as text.
      facts: entries of the report that are known in advance.
      tally: problems that are known in advance.
      strict: whether any problem prevents publishing.
      raises: whether a file that cannot be written is an error of the runner, as for `WriteShard`.
    """

    def __init__(
        self,
        output: Output,
        *,
        label_map: str,
        facts: dict[str, Any],
        tally: Tally,
        strict: bool,
        raises: bool = True,
    ):
        self._raises = raises
        self._output = output
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
            where = error.filename2 or error.filename or self._output.prefix
            reason = error.strerror or error
            report |= {'complete': False, 'error': f'{where} cannot be written: {reason}'}
            # A disk without space for shards may have enough for the report.
            with contextlib.suppress(OSError):
                self._write_report(report)
        yield self._output.report_path

    def _publish(self, shards: list[WrittenShard], report: dict[str, Any]) -> None:
        if not report['complete']:
            self._write_report(report)
            return
        drafts = {shard.number: shard.draft for shard in shards}
        texts = {
            label_map_path(self._output.prefix): self._label_map,
            self._output.report_path: _as_text(report),
        }
        self._output.publish(drafts, texts)

    def _write_report(self, report: dict[str, Any]) -> None:
        self._output.write_text(self._output.report_path, _as_text(report))

    def _report(self, shards: list[WrittenShard]) -> dict[str, Any]:
        tally = conversion_report.total([self._tally, *(shard.tally for shard in shards)])
        tally.add_doubt()
        tally.add_duplicates()
        counts = tally.counts
        has_something = counts['examples'] > 0 and (counts['objects'] or not counts['annotations'])
        error = next((shard.error for shard in shards if shard.error), '')
        is_wanted = bool(has_something) and not (self._strict and tally.problems)
        return {
            **self._facts,
            'job': self._output.job,
            'complete': is_wanted and not error,
            'error': error,
            'num_shards': self._output.num_shards,
            **tally.report(),
        }


def label_map_path(prefix: str) -> str:
    """Returns the path of the label map of a set."""
    return f'{prefix}_label_map.pbtxt'


def _as_text(report: dict[str, Any]) -> str:
    return json.dumps(report, indent=1, ensure_ascii=False)


def _check_report(output: Output) -> dict[str, Any]:
    path = output.report_path
    if not FileSystems.exists(path):
        raise ConversionError(f'{path} cannot be written.')
    report = json.loads(BeamFiles().read(path))
    if report.get('job') != output.job:
        raise ConversionError(f'{path} is that of another job, as this one could not be written.')
    if report['error']:
        raise ConversionError(f'{output.state_after_failure()}: {report["error"]}.')
    if not report['complete']:
        raise ConversionError(
            f'Nothing was published, because of what {path} lists: '
            f'{conversion_report.summary(report)}'
        )
    return report
