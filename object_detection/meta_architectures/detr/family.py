"""The row of the DETR family; loads no TensorFlow before a detector is built."""

from object_detection import registry
from object_detection.config.families import ModelFamily, Needs
from object_detection.core.detector import Detector
from object_detection.meta_architectures.detr import loss_names, rules
from object_detection.protos.detr_pb2 import Detr


def _build(config: Detr, is_training: bool) -> Detector:
    build = registry.load('object_detection.meta_architectures.detr.build:build_detector')
    return build(config, is_training)


FAMILY = ModelFamily(
    title='DETR',
    build=_build,
    loss_names=lambda config: tuple(loss_names.names(config)),
    needs=lambda config: Needs(padding_multiple=rules.padding_multiple(config)),
    rules=rules.check,
)
