"""Builds the loss scale that a TrainConfig proto describes."""

from collections.abc import Callable
from typing import Any

from object_detection.builders.oneof import build_oneof
from object_detection.optimizers.loss_scale import DynamicLossScale, LossScale
from object_detection.protos.train_pb2 import TrainConfig

BUILDERS: dict[str, Callable[[Any], LossScale]] = {
    'dynamic': lambda config: DynamicLossScale(config.initial, config.growth_steps),
    'static': LossScale,
}


def build(config: TrainConfig) -> LossScale | None:
    """Builds it in the scope of the strategy; None unless the precision is MIXED_FLOAT16.

    Raises:
      ValueError: if `loss_scale` is set, but not of what kind it is.
    """
    if config.precision != TrainConfig.MIXED_FLOAT16:
        return None
    if not config.HasField('loss_scale'):
        return DynamicLossScale()
    return build_oneof(config.loss_scale, 'kind', BUILDERS)
