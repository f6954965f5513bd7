"""Builds the detector that a DetectionModel proto describes."""

from collections.abc import Callable
from typing import Any

from object_detection.builders.faster_rcnn import build as faster_rcnn
from object_detection.builders.oneof import build_oneof
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.protos import model_pb2
from object_detection.weights import inference_weights


def build(model_config: model_pb2.DetectionModel, is_training: bool = True) -> DetectionModel:
    """Builds a detector, with random weights.

    `tf.train.Checkpoint(model=detector).restore(prefix)` gives it those of a checkpoint, and
    `object_detection.load` does all at once.

    Args:
      model_config: `pipeline.model`.
      is_training: False freezes all batch norms, for evaluation and export.

    Raises:
      ValueError: if no model is set, or an option is not supported or does not fit another.
    """
    builders: dict[str, Callable[[Any], DetectionModel]] = {
        'faster_rcnn': lambda config: faster_rcnn.build(config, is_training),
    }
    detector = build_oneof(model_config, 'model', builders)
    detector.checkpoint_view.restore = inference_weights.restore_by_path
    return detector
