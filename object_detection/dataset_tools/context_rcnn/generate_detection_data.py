r"""Adds detected boxes to images whose class is known.

    python -m object_detection.dataset_tools.context_rcnn.generate_detection_data \
        --detection_input_tfrecord='records/train-?????-of-00010' \
        --detection_output_tfrecord=records/boxes --detection_model_dir=exported/saved_model

`tfod context detections` runs the same job.
"""

from object_detection.dataset_tools.context_rcnn import scripts
from object_detection.dataset_tools.context_rcnn.options import DetectionOptions


def run() -> None:
    scripts.run(DetectionOptions, 'detections:run')


if __name__ == '__main__':
    run()
