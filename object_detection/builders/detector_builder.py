"""Builds the detector of a pipeline config, with variables, precision and weight decay."""

from object_detection.builders import model_builder, precision_exemptions, variables_builder
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models import precision as precisions
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig


def build(
    pipeline: TrainEvalPipelineConfig,
    *,
    is_training: bool,
    precision: str | None = None,
    has_penalty: bool = True,
) -> DetectionModel:
    """Builds the detector with its variables, which have random values.

    Args:
      pipeline: of which `model` and `train_config` are read.
      is_training: False freezes all batch norms, for evaluation and export.
      precision: a name that `precision.canonical` knows; None takes the config's.
      has_penalty: whether `train_config.weight_decay` is installed; a detector that computes no
        losses needs none.

    Raises:
      ValueError: if no model is set, an option is not supported or does not fit another, or the
        precision is unknown.
      ConfigError: if an expression for names of variables or layers does not fit the detector.
    """
    config = pipeline.train_config
    chosen = precisions.resolve(config, precision)
    with precisions.scope(chosen):
        detector = model_builder.build(pipeline.model, is_training=is_training)
        detector.build_variables()
    precision_exemptions.apply(detector, config.precision_exempt_patterns, chosen)
    if has_penalty:
        variables_builder.install_weight_decay(detector, config)
    return detector
