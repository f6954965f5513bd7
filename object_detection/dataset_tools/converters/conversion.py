"""Converts a data set of any annotation format to TFRecords, by one Beam job.

    PREFIX-00000-of-00010 ...    PREFIX_label_map.pbtxt    PREFIX.report.json

Entries that cannot be converted are left out and listed in the report. Earlier outputs of the same
prefix are not changed until the new ones are complete, and are then replaced; files that a killed
job left behind are removed.

Label maps of data sets: maps that are written, and maps that the user gives.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from apache_beam.io.filesystems import FileSystems
from google.protobuf import text_format

from object_detection.data import label_map as label_map_reader
from object_detection.data.annotated_image import ClassLabel
from object_detection.data.coco.keypoints import KeypointLayout
from object_detection.data.formats import formats
from object_detection.data.formats.source import DataSet, Source
from object_detection.dataset_tools.converters import (
    beam_job,
    beam_runners,
    output_lock,
    sharded_writer,
)
from object_detection.dataset_tools.converters.beam_job import Job
from object_detection.dataset_tools.converters.conversion_report import Tally
from object_detection.dataset_tools.converters.sharded_writer import BeamFiles
from object_detection.errors import UserError, missing
from object_detection.protos import string_int_label_map_pb2

# How LVIS calls them.
_FREQUENCIES = {
    'f': string_int_label_map_pb2.FREQUENT,
    'c': string_int_label_map_pb2.COMMON,
    'r': string_int_label_map_pb2.RARE,
}


def label_map_of(
    labels: Mapping[Any, ClassLabel],
) -> string_int_label_map_pb2.StringIntLabelMap:
    """Returns the label map of all categories, in the same order."""
    label_map = string_int_label_map_pb2.StringIntLabelMap()
    for label in labels.values():
        label_map.item.add(name=label.text, id=label.label)
    return label_map


def add_keypoints(
    label_map: string_int_label_map_pb2.StringIntLabelMap,
    labels: Mapping[Any, ClassLabel],
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
        for slot in slots[category_id]:
            item.keypoints.add(id=slot, label=layout.names[slot])
        for start, end in layout.skeletons.get(category_id, ()):
            item.skeleton.add(start=start, end=end)


def add_frequencies(
    label_map: string_int_label_map_pb2.StringIntLabelMap,
    labels: Mapping[Any, ClassLabel],
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
        count = category.get('instance_count')
        is_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 2**31
        if frequency and is_count and not item.HasField('instance_count'):
            item.instance_count = count


def read_label_map(path: str) -> string_int_label_map_pb2.StringIntLabelMap:
    """Reads a label map by the rules of `data.label_map`, from any file system that Beam knows.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: as `data.label_map.load`.
    """
    if not FileSystems.exists(path):
        raise missing(path, 'label map')
    with FileSystems.open(path) as file:
        proto = label_map_reader.parse(file.read(), path)
    label_map_reader.classes(proto, path)  # Called only for its errors.
    return proto


def to_text(label_map: string_int_label_map_pb2.StringIntLabelMap) -> str:
    return text_format.MessageToString(label_map, as_utf8=True)


_IMAGES_OF_SHARD, _MOST_SHARDS = 100, 10


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
        whole = math.ceil(job.num_images / _IMAGES_OF_SHARD)
        num_shards = _MOST_SHARDS if runner else max(1, workers, min(whole, _MOST_SHARDS))
    with sharded_writer.open_output(
        output_prefix, num_shards, is_single_file=is_single_file
    ) as output:
        return beam_job.run(
            job, output, chosen_runner, options, raises=bool(runner), progress=progress
        )


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
