"""Converts a data set in COCO format to TFRecords, by one Beam job.

    PREFIX-00000-of-00010 ...    PREFIX_label_map.pbtxt    PREFIX.report.json

Entries that cannot be converted are left out and listed in the report. Earlier outputs of the same
prefix are not changed until the new ones are complete, and are then replaced; files that a killed
job left behind are removed.
"""

import os
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from apache_beam.io.filesystems import FileSystems

from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import categories as coco_categories
from object_detection.data.coco import examples as coco_examples
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco.annotations import CocoFile
from object_detection.dataset_tools import (
    beam_job,
    beam_runners,
    category_labels,
    coco_job,
    sharded_writer,
)
from object_detection.dataset_tools.beam_job import Target
from object_detection.dataset_tools.coco_job import CocoSource
from object_detection.dataset_tools.conversion_report import Tally
from object_detection.errors import UnusableError


def convert_coco(
    source: CocoSource,
    output_prefix: str,
    num_shards: int,
    *,
    strict: bool = False,
    workers: int = 1,
    runner: str = '',
    beam_options: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Converts a data set in COCO format to sharded TFRecords.

    Args:
      source: the data set and the options of its conversion.
      output_prefix: prefix of the paths of all outputs.
      num_shards: number of TFRecord files; each is written by one worker.
      strict: publishes nothing if there is any problem; the report lists them all.
      workers: number of local processes.
      runner: name of a Beam runner; '' is the local runner.
      beam_options: Beam's command line options, e.g. ['--dask_npartitions=8'].
      progress: called every half second, from another thread, with the number of examples written
        so far and the total number of images; not called if the outputs are not on this machine.

    Returns:
      The report, as in PREFIX.report.json.

    Raises:
      FileNotFoundError, ValueError: if an input is missing or broken, before the job starts.
      ConversionError: if no image, or none of the annotations, can be used, or if there is a
        problem and `strict` is true.
    """
    chosen_runner = beam_runners.create(runner)
    options = beam_runners.options(workers=workers, runner=runner, beam_options=beam_options)
    file = _read_inputs(source)
    plan = _plan(source, file)
    target = Target(sharded_writer.prepare_output(output_prefix, num_shards), num_shards)
    job = beam_job.Job(
        inputs=[source.annotations_file],
        read_entries=coco_job.ReadAnnotations(source, num_shards),
        read_image=coco_job.CocoReader(source.image_dir, plan.contents),
        num_images=len(file.images),
        label_map=plan.label_map,
        facts={
            'annotations_file': source.annotations_file,
            'image_dir': source.image_dir,
            'job': uuid.uuid4().hex,
            'label_map_is_renumbered': plan.is_renumbered,
        },
        tally=_problems_of(file),
        drop_empty=source.drop_empty,
        strict=strict,
    )
    # The job reads the file itself; a second copy would dominate its memory.
    del file
    return beam_job.run(job, target, chosen_runner, options, raises=bool(runner), progress=progress)


def _read_inputs(source: CocoSource) -> CocoFile:
    if not _holds_anything(source.image_dir):
        raise FileNotFoundError(f'There is no image folder {source.image_dir}.')
    return coco_job.read_annotation_file(source.annotations_file, segmentations=False)


def _holds_anything(folder: str) -> bool:
    """Whether a folder exists; in object stores, whether it contains any files."""
    if '://' not in folder:
        return os.path.isdir(folder)
    return bool(FileSystems.match([FileSystems.join(folder, '*')], limits=[1])[0].metadata_list)


class _Plan(NamedTuple):
    """The contents of the examples, the label map as text, and whether ids were renumbered."""

    contents: coco_examples.Contents
    label_map: str
    is_renumbered: bool


def _plan(source: CocoSource, file: CocoFile) -> _Plan:
    # Raises errors now that would otherwise occur in the job.
    coco_annotations.check_categories(file, source.only_objects_of, source.only_images_with)
    files = {source.annotations_file: file}
    for path in {source.keypoints_file, source.densepose_file} - {'', *files}:
        files[path] = coco_job.read_annotation_file(path, segmentations=False)
    keypoints = None
    if source.keypoints_file:
        keypoints = coco_keypoints.keypoint_layout(files[source.keypoints_file])
    if source.label_map_file:
        label_map = category_labels.read_label_map(source.label_map_file)
        labels = category_labels.from_label_map(file.categories, label_map)
    else:
        labels = coco_categories.from_categories(file.categories)
        label_map = category_labels.label_map_of(labels)
        if keypoints:
            category_labels.add_keypoints(label_map, labels, keypoints)
    names = coco_categories.texts(file.categories)
    contents = coco_examples.Contents(
        labels,
        source.masks,
        keypoints,
        bool(source.densepose_file),
        max_pixels=source.max_pixels,
        left_out=tuple((key, name) for key, name in names.items() if key not in labels),
    )
    is_renumbered = not source.label_map_file and coco_categories.are_renumbered(labels)
    return _Plan(contents, category_labels.to_text(label_map), is_renumbered)


def _problems_of(file: CocoFile) -> Tally:
    """Returns the problems that do not belong to an image, which the job would not find."""
    tally = Tally()
    for item in file.problems:
        tally.add_entry_problem(item)
    seen: set[Any] = set()
    for image in file.images:
        if image['id'] in seen:
            tally.add_problem(UnusableError('duplicate_image', 'its id is used before'), image)
        seen.add(image['id'])
    for annotation in file.annotations:
        if annotation['image_id'] not in seen:
            error = UnusableError('unknown_image', f'there is no image {annotation["image_id"]}')
            tally.add_problem(error, None, annotation['id'])
    return tally
