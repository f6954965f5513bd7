"""Errors of the builders of those components of a CenterNet that are cheap to build."""

from collections.abc import Iterator

from object_detection.builders.center_net.rules import ROOT
from object_detection.config import walk
from object_detection.meta_architectures.tracing import problems
from object_detection.protos.center_net_pb2 import CenterNet
from object_detection.protos.losses_pb2 import ClassificationLoss, LocalizationLoss


def check(config: CenterNet) -> Iterator[str]:
    """Yields one sentence per problem; loads TensorFlow."""
    from object_detection.builders import (
        image_resizer_builder,
        losses_builder,
        post_processing_builder,
    )
    from object_detection.builders.center_net import keypoints_builder

    parts = {'image_resizer': image_resizer_builder.build}
    if config.HasField('post_processing'):
        parts['post_processing'] = post_processing_builder.build
    for name, build in parts.items():
        yield from problems(build, getattr(config, name), f'{ROOT}.{name}')
    if config.keypoint_estimation_task:
        yield from problems(keypoints_builder.build_layouts, config, ROOT)
    builders = {
        ClassificationLoss: losses_builder.build_classification,
        LocalizationLoss: losses_builder.build_localization_of_codes,
    }
    for field in walk.set_fields(config, path=ROOT):
        if build := builders.get(type(field.value)):
            yield from problems(build, field.value, field.path)
