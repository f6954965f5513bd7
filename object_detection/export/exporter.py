"""From a config and a checkpoint to an exported model."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.export import input_types, saved_model, verification
from object_detection.export.inference import SavedDetector, read_image
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.protos import pipeline_pb2, train_pb2
from object_detection.training import checkpoints, inference_weights

_logger = logging.getLogger(__name__)


def load_detector(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig, checkpoint: str
) -> DetectionModel:
    """Builds a detector for inference, computing in float32, and restores it.

    The weights are their moving averages, where the training kept them.

    Args:
      pipeline: the config that the checkpoint was trained with.
      checkpoint: a directory, of which the newest is taken, or the prefix of one; of ours, or of
        the TensorFlow Object Detection API.

    Raises:
      CheckpointError: if there is none, or it is of another model.
    """
    prefix = checkpoints.find(checkpoint)
    detector = model_builder.build(pipeline.model, is_training=False)
    detector.build_variables()
    averages = pipeline.train_config.optimizer.use_moving_average
    inference_weights.restore(detector, prefix, averages=averages)
    return detector


def export(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig,
    checkpoint: str,
    output_directory: str | os.PathLike,
    *,
    input_type: str = input_types.IMAGE_TENSOR,
) -> None:
    """Exports a checkpoint as `saved_model/`, with `checkpoint/ckpt-0` and `pipeline.config`.

    The export computes in float32, whatever `train_config.precision` says; it is logged where that
    makes a difference.

    Args:
      pipeline: the config that the checkpoint was trained with.
      checkpoint: a directory or a prefix.
      output_directory: created; an earlier export there is replaced.
      input_type: one of `input_types.INPUT_TYPES`.
    """
    input_types.check(input_type)
    if pipeline.train_config.precision == train_pb2.TrainConfig.BFLOAT16:
        _logger.warning(
            'train_config.precision: BFLOAT16 is for training; the export computes in float32, as '
            'the variables are.'
        )
    prefix = checkpoints.find(checkpoint)
    detector = load_detector(pipeline, prefix)
    saved_model.export(
        detector,
        output_directory,
        input_type=input_type,
        save_checkpoint=lambda directory: checkpoints.save_model(
            directory, detector.named_variables(), inference_weights.read_step(prefix)
        ),
        pipeline_text=text_format.MessageToString(pipeline),
    )


def verify(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig,
    checkpoint: str,
    output_directory: str | os.PathLike,
    image_paths: Sequence[os.PathLike],
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> verification.Comparison:
    """Compares an export's detections with those of the model in process, on image files.

    `progress` is called with the numbers of images done and of all, before each image.
    """

    def images() -> Iterator[np.ndarray]:
        for index, path in enumerate(image_paths):
            progress(index, len(image_paths))
            yield read_image(path)[0]

    return verification.compare(
        SavedDetector(output_directory), load_detector(pipeline, checkpoint), images()
    )
