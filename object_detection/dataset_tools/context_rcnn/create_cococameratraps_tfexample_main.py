r"""Makes TFRecords of a data set in the format COCO Camera Traps.

    python -m object_detection.dataset_tools.context_rcnn.create_cococameratraps_tfexample_main \
        --image_directory=images --input_annotations_file=annotations.json \
        --output_tfrecord_prefix=records/train

Writes PREFIX-?????-of-?????, a label map and a report. `tfod context camera-traps` runs the same
job.
"""

from object_detection.dataset_tools.context_rcnn import scripts
from object_detection.dataset_tools.context_rcnn.options import CameraTrapsOptions


def run() -> None:
    scripts.run(CameraTrapsOptions, 'camera_traps:run', 'camera_traps:summary')


if __name__ == '__main__':
    run()
