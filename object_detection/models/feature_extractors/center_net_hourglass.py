"""Feature extractors of CenterNet that are stacked hourglass networks."""

from object_detection.models.backbones import hourglass
from object_detection.models.feature_extractor import ExtractorType, FeatureExtractor
from object_detection.models.feature_extractors import center_net
from object_detection.models.feature_extractors.center_net import CenterNetOptions


def _hourglass(variant: hourglass.Variant) -> ExtractorType:
    def build(options: CenterNetOptions) -> FeatureExtractor:
        return FeatureExtractor(
            backbone=hourglass.trunk(
                variant, batch_norm_trainable=options.batch_norm_trainable, name='backbone'
            ),
            strides=[center_net.STRIDE],
            num_stacks=variant.stacks,
            pad_to_multiple=hourglass.pad_multiple(variant),
            normalize=center_net.normalization(options),
        )

    return ExtractorType(build)


ROWS: dict[str, ExtractorType] = {
    f'hourglass_{depth}': _hourglass(variant) for depth, variant in hourglass.VARIANTS.items()
}
