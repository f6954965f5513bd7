"""Errors of the builders of those components of a single-shot detector that are cheap to build."""

from collections.abc import Iterator

from object_detection.builders.ssd.rules import ROOT
from object_detection.protos.ssd_pb2 import Ssd
from object_detection.validation.building import problems


def check(config: Ssd) -> Iterator[str]:
    """Yields one sentence per problem; loads TensorFlow."""
    from object_detection.builders import (
        anchor_generator_builder,
        box_coder_builder,
        image_resizer_builder,
        losses_builder,
        matcher_builder,
        post_processing_builder,
        region_similarity_calculator_builder,
    )
    from object_detection.builders.ssd import feature_extractor_builder

    for name, build in {
        'image_resizer': image_resizer_builder.build,
        'feature_extractor': feature_extractor_builder.check,
        'anchor_generator': anchor_generator_builder.build,
        'box_coder': box_coder_builder.build,
        'matcher': matcher_builder.build,
        'similarity_calculator': region_similarity_calculator_builder.build,
        'loss': losses_builder.build,
        'post_processing': post_processing_builder.build,
    }.items():
        yield from problems(build, getattr(config, name), f'{ROOT}.{name}')
    yield from _predictor(config)


def _predictor(config: Ssd) -> Iterator[str]:
    from object_detection.builders.ssd import predictor_builder

    def build(message):
        return predictor_builder.build(
            message,
            num_outputs=config.num_classes + config.add_background_class,
            num_anchors=[1],
            batch_norm_trainable=False,
        )

    yield from problems(build, config.box_predictor, f'{ROOT}.box_predictor')
