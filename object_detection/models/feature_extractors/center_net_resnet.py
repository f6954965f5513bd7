"""Feature extractors of CenterNet on ResNets."""

from object_detection.models.backbones import resnet_v1, resnet_v2
from object_detection.models.feature_extractor import ExtractorType, FeatureExtractor
from object_detection.models.feature_extractors import center_net
from object_detection.models.feature_extractors.center_net import CenterNetOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.necks.multi_resolution import merged_pyramid
from object_detection.models.necks.resizing import upsampling
from object_detection.models.normalization import BatchNormParams

# Networks of keras.applications: convolutions have a bias although a norm follows.
_BACKBONE = LayerHyperparams(
    batch_norm=BatchNormParams(momentum=0.99, epsilon=1.001e-5, scale=True), force_use_bias=True
)
_PYRAMID = LayerHyperparams(
    batch_norm=BatchNormParams(momentum=0.99, epsilon=1e-3, scale=True), force_use_bias=True
)
_LEVELS = (2, 3, 4, 5)
# Depths whose blocks begin with norm and ReLU, in the reference too.
_PREACTIVATED = (18, 34)


def _resnet_v1_fpn(depth: int) -> ExtractorType:
    def build(options: CenterNetOptions) -> FeatureExtractor:
        trains_norms = options.batch_norm_trainable
        if depth in _PREACTIVATED:
            backbone = resnet_v2.trunk(
                depth, stages=_LEVELS, batch_norm_trainable=trains_norms, name='backbone'
            )
        else:
            backbone = resnet_v1.trunk(
                depth,
                levels=_LEVELS,
                hyperparams=_BACKBONE,
                batch_norm_trainable=trains_norms,
                options=resnet_v1.Options(padding=resnet_v1.Padding.SYMMETRIC_ALL),
                name='backbone',
            )
        return FeatureExtractor(
            backbone=backbone,
            pyramid=merged_pyramid(
                [output.shape[-1] for output in backbone.outputs],
                hyperparams=_PYRAMID,
                batch_norm_trainable=trains_norms,
                bilinear=options.bilinear,
            ),
            strides=[center_net.STRIDE],
            pad_to_multiple=center_net.LAST_STRIDE,
            normalize=center_net.normalization(options, center_net.caffe),
        )

    return ExtractorType(build)


def _resnet_v2(depth: int) -> ExtractorType:
    def build(options: CenterNetOptions) -> FeatureExtractor:
        backbone = resnet_v2.trunk(
            depth, stages=[5], batch_norm_trainable=options.batch_norm_trainable, name='backbone'
        )
        return FeatureExtractor(
            backbone=backbone,
            pyramid=upsampling(
                backbone.outputs[0].shape[-1],
                hyperparams=_PYRAMID,
                batch_norm_trainable=options.batch_norm_trainable,
            ),
            strides=[center_net.STRIDE],
            pad_to_multiple=center_net.LAST_STRIDE,
            normalize=center_net.normalization(options, center_net.to_unit),
        )

    return ExtractorType(build)


ROWS: dict[str, ExtractorType] = {
    'resnet_v1_18_fpn': _resnet_v1_fpn(18),
    'resnet_v1_34_fpn': _resnet_v1_fpn(34),
    'resnet_v1_50_fpn': _resnet_v1_fpn(50),
    'resnet_v1_101_fpn': _resnet_v1_fpn(101),
    'resnet_v2_50': _resnet_v2(50),
    'resnet_v2_101': _resnet_v2(101),
}
