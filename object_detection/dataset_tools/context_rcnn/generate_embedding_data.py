r"""Adds embeddings of detected objects to images.

    python -m object_detection.dataset_tools.context_rcnn.generate_embedding_data \
        --embedding_input_tfrecord='records/boxes-?????-of-00010' \
        --embedding_output_tfrecord=records/embedded --embedding_model_dir=exported/saved_model

`tfod context embeddings` runs the same job.
"""

from object_detection.dataset_tools.context_rcnn import scripts
from object_detection.dataset_tools.context_rcnn.options import EmbeddingOptions


def run() -> None:
    scripts.run(EmbeddingOptions, 'detections:run_embeddings')


if __name__ == '__main__':
    run()
