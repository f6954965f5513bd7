"""Builds the reduction of gradients that a config describes."""

from object_detection.optimizers.gradient_reduction import GradientReduction
from object_detection.protos import train_pb2


def build(config: train_pb2.TrainConfig) -> GradientReduction:
    """Builds from `train_config.gradient_reduction`."""
    reduction = config.gradient_reduction
    kinds = train_pb2.GradientReduction.Implementation
    return GradientReduction(
        bytes_per_pack=reduction.bytes_per_pack,
        implementation=kinds.Name(reduction.implementation),
        in_bfloat16=reduction.in_bfloat16,
    )
