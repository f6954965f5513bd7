"""Builds the detector that a DetectionModel proto describes."""

from object_detection.builders import hyperparams_builder
from object_detection.builders.input_readers import channels
from object_detection.config import families, reading
from object_detection.core.detector import Detector
from object_detection.errors import Problems, raise_if_any
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
    config, problems = reading.plain(model_config), Problems()
    found = list(hyperparams_builder.problems(config, 'model'))
    if found:
        # The errors of the rest are listed with these.
        model_config = reading.tracked(hyperparams_builder.mended(config), 'model')
    with problems:
        raise_if_any(found)
    num_channels = 1 if channels.is_grey(model_config) else image_channels.current()
    with problems, image_channels.scope(num_channels):
        raise_if_any(families.named_problems(model_config))
        detector = families.find(model_config).build(families.options(model_config), is_training)
    problems.raise_if_any()
    return detector
