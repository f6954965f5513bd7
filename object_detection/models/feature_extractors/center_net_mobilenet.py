"""Feature extractors of CenterNet on MobileNet v2, with transposed convolutions or a pyramid."""

from object_detection.models.backbones import mobilenet, mobilenet_v2
from object_detection.models.feature_extractor import ExtractorType, FeatureExtractor
from object_detection.models.feature_extractors import center_net
from object_detection.models.feature_extractors.center_net import CenterNetOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.necks.multi_resolution import merged_pyramid
from object_detection.models.necks.resizing import upsampling
from object_detection.models.normalization import BatchNormParams

_BACKBONE = LayerHyperparams(
    activation='relu6', batch_norm=BatchNormParams(momentum=0.999, epsilon=1e-3, scale=True)
)
_NECK = LayerHyperparams(
    batch_norm=BatchNormParams(momentum=0.99, epsilon=1e-3, scale=True), force_use_bias=True
)
# Ends of blocks of the strides 4, 8, 16 and 32.
_MAPS = ('block_2', 'block_5', 'block_9', mobilenet_v2.LAST)
_DEPTHS = (64, 32, 24)


def _backbone(options: CenterNetOptions, outputs: tuple[str, ...]):
    return mobilenet_v2.trunk(
        outputs,
        hyperparams=_BACKBONE,
        batch_norm_trainable=options.batch_norm_trainable,
        options=mobilenet.Options(depth_multiplier=options.depth_multiplier),
        name='backbone',
    )


def _build(options: CenterNetOptions) -> FeatureExtractor:
    backbone = _backbone(options, (mobilenet_v2.LAST,))
    return FeatureExtractor(
        backbone=backbone,
        pyramid=upsampling(
            backbone.outputs[0].shape[-1],
            hyperparams=_NECK,
            batch_norm_trainable=options.batch_norm_trainable,
            kernel_size=1,
        ),
        strides=[center_net.STRIDE],
        pad_to_multiple=center_net.LAST_STRIDE,
        normalize=center_net.normalization(options, center_net.to_unit),
    )


def _with_pyramid(*, is_separable: bool) -> ExtractorType:
    """Returns the row of an extractor with a pyramid, separable by its name or by the config."""

    def build(options: CenterNetOptions) -> FeatureExtractor:
        backbone = _backbone(options, _MAPS)
        return FeatureExtractor(
            backbone=backbone,
            pyramid=merged_pyramid(
                [output.shape[-1] for output in backbone.outputs],
                hyperparams=_NECK,
                batch_norm_trainable=options.batch_norm_trainable,
                depths=_DEPTHS,
                use_separable=is_separable or options.use_separable_conv,
                bilinear=options.bilinear,
            ),
            strides=[center_net.STRIDE],
            pad_to_multiple=center_net.LAST_STRIDE,
            normalize=center_net.normalization(options, center_net.to_unit),
        )

    return ExtractorType(build)


ROWS: dict[str, ExtractorType] = {
    'mobilenet_v2': ExtractorType(_build),
    'mobilenet_v2_fpn': _with_pyramid(is_separable=False),
    'mobilenet_v2_fpn_sep_conv': _with_pyramid(is_separable=True),
}
