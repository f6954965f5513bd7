"""Makes records of a data set in the format COCO Camera Traps."""

from collections.abc import Callable, Iterable
from typing import Any

from object_detection.data.formats import coco
from object_detection.data.formats.camera_traps import CameraTrapsSource
from object_detection.dataset_tools.context_rcnn import options as job_options
from object_detection.dataset_tools.context_rcnn.options import CameraTrapsOptions
from object_detection.dataset_tools.converters import conversion, conversion_report
from object_detection.dataset_tools.converters.sharded_writer import BeamFiles


def run(
    options: CameraTrapsOptions,
    beam_options: Iterable[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Runs the job.

    Returns:
      The report of a conversion, see `conversion.convert`.

    Raises:
      UserError, FileNotFoundError, ConversionError: if an option or an input cannot be used.
    """
    job_options.check(options)
    groups = coco.Scan(options.input_annotations_file, BeamFiles(), content=bool).groups
    source = CameraTrapsSource(
        image_dir=options.image_directory, annotations_file=options.input_annotations_file
    )
    return conversion.convert(
        source,
        options.output_tfrecord_prefix,
        max(1, -(-groups.num_images() // options.num_images_per_shard)),
        workers=options.workers,
        runner=options.runner,
        beam_options=list(beam_options),
        progress=progress,
    )


def summary(report: dict[str, Any]) -> str:
    """Summarizes a report in a few lines, with its warning."""
    lines = [conversion_report.summary(report), conversion_report.warning(report)]
    return '\n'.join(filter(None, lines))
