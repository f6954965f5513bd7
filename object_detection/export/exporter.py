"""From a config and a checkpoint to an exported model."""

import os
from collections.abc import Sequence

import numpy as np
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.export import saved_model, verification
from object_detection.export.inference import SavedDetector, read_image
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.protos import pipeline_pb2
from object_detection.training import checkpoints


def load_detector(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig, checkpoint: str
) -> DetectionModel:
    """Builds a detector for inference and restores it.

    Args:
      pipeline: the config that the checkpoint was trained with.
      checkpoint: a directory, of which the newest is taken, or the prefix of one.

    Raises:
      CheckpointError: if there is none, or it is of another model.
    """
    prefix = checkpoints.find(checkpoint)
    detector = model_builder.build(pipeline.model, is_training=False)
    detector.build_variables()
    checkpoints.restore_model(prefix, detector.named_variables())
    return detector


def export(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig,
    checkpoint: str,
    output_directory: str | os.PathLike,
    *,
    input_type: str = 'image_tensor',
) -> None:
    """Exports a checkpoint as `saved_model/`, with `checkpoint/ckpt-0` and `pipeline.config`.

    Args:
      pipeline: the config that the checkpoint was trained with.
      checkpoint: a directory or a prefix.
      output_directory: created; an earlier export there is replaced.
      input_type: a key of `saved_model.INPUT_TYPES`.
    """
    if input_type not in saved_model.INPUT_TYPES:
        raise ValueError(
            f'input_type must be one of {", ".join(saved_model.INPUT_TYPES)}. '
            f'Received: {input_type!r}.'
        )
    prefix = checkpoints.find(checkpoint)
    detector = load_detector(pipeline, prefix)
    saved_model.export(
        detector,
        output_directory,
        input_type=input_type,
        save_checkpoint=lambda directory: checkpoints.save_model(
            directory, detector.named_variables(), checkpoints.read_step(prefix)
        ),
        pipeline_text=text_format.MessageToString(pipeline),
    )


def verify(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig,
    checkpoint: str,
    output_directory: str | os.PathLike,
    image_paths: Sequence[os.PathLike],
) -> verification.Comparison:
    """Compares an export's detections with those of the model in process, on image files."""
    images: list[np.ndarray] = [read_image(path)[0] for path in image_paths]
    return verification.compare(
        SavedDetector(output_directory), load_detector(pipeline, checkpoint), images
    )
