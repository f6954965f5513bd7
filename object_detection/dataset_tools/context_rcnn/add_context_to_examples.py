r"""Adds the embeddings of other images of the same camera to each image.

    python -m object_detection.dataset_tools.context_rcnn.add_context_to_examples \
        --input_tfrecord='records/embedded-?????-of-00010' --output_tfrecord=records/context \
        --sequence_key=image/location --time_horizon=month

`tfod context add` runs the same job.
"""

from object_detection.dataset_tools.context_rcnn import scripts
from object_detection.dataset_tools.context_rcnn.options import ContextOptions


def run() -> None:
    scripts.run(ContextOptions, 'context:run')


if __name__ == '__main__':
    run()
