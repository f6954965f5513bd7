"""Builds the detector that a DetectionModel proto describes."""

from object_detection.builders import hyperparams_builder
from object_detection.builders.input_readers import channels
from object_detection.config import families, reading
from object_detection.core.detector import Detector
from object_detection.errors import raise_if_any
from object_detection.models import image_channels
from object_detection.protos import model_pb2


def build(model_config: model_pb2.DetectionModel, is_training: bool = True) -> Detector:
    """Builds a detector, a `DetectionModel`, with random weights.

    `tf.train.Checkpoint(model=detector).restore(prefix)` restores the weights of a checkpoint;
    `object_detection.load` builds and restores a detector.

    Args:
      model_config: `pipeline.model`.
      is_training: False freezes all batch norms, for evaluation and export.

    Raises:
      ValueError: if no model is set, a number is out of its range, or an option is not supported or
        does not fit another.
    """
    raise_if_any(hyperparams_builder.problems(reading.plain(model_config), 'model'))
    raise_if_any(families.named_problems(model_config))
    num_channels = 1 if channels.is_grey(model_config) else image_channels.current()
    with image_channels.scope(num_channels):
        return families.find(model_config).build(families.options(model_config), is_training)
