r"""Makes TFRecords of a data set in the format COCO Camera Traps.

    python -m object_detection.dataset_tools.context_rcnn.create_cococameratraps_tfexample_main \
        --image_directory=images --input_annotations_file=annotations.json \
        --output_tfrecord_prefix=records/train

Writes PREFIX-?????-of-?????, a label map and a report. `tfod context camera-traps` runs the same
job.
"""

from typing import Any

from object_detection.dataset_tools.context_rcnn import scripts
from object_detection.dataset_tools.context_rcnn.options import CameraTrapsOptions


def _load() -> scripts.Loaded:
    from object_detection.dataset_tools.context_rcnn import camera_traps
    from object_detection.dataset_tools.converters import conversion_report

    def describe(report: dict[str, Any]) -> str:
        lines = [conversion_report.summary(report), conversion_report.warning(report)]
        return '\n'.join(filter(None, lines))

    return camera_traps.run, describe


def run() -> None:
    scripts.run(CameraTrapsOptions, _load)


if __name__ == '__main__':
    run()
