"""The feature extractors of single-shot detectors by their `type` in configs.

The types of the reference implementation under TensorFlow 1, without `_keras`, denote the networks
of TensorFlow 1, so that its detectors give the same results: a feature pyramid propagates maps
before they are smoothed, `depth_multiplier` counts once in MobileNet v1, a MobileNet v2 under a
separable pyramid ends with 256 channels, too, and the penalty of a ResNet is that of TF-Slim.
Penalties of MobileNets are those of the types with `_keras`: under TensorFlow 1, the depthwise
kernels of a MobileNet v2 that the config does not override have none. A ResNet there has its
strides at the ends of stages, which gives the same maps as those at the beginnings of the next
stages here.

Papers: SSD (arXiv:1512.02325), RetinaNet (1708.02002), PPN (1807.03284), MobileNet v3 (1905.02244),
EfficientDet (1911.09070), MnasFPN (1912.01106), MobileDet (2004.14525).
"""

from collections.abc import Mapping
from typing import Any

from object_detection.models.extractors import Extractor

# Levels of the backbone that the maps of SSD, and those of a pooling pyramid, begin with.
_LAST_TWO = range(4, 6)
_POOLED = range(4, 5)
# The pyramids of EfficientDet, by the size of the backbone.
_ITERATIONS = (3, 4, 5, 6, 7, 7, 8, 8)
_FILTERS = (64, 88, 112, 160, 224, 288, 384, 384)

_SLIM = {'propagate_sums': True}
# Maps of most types without a feature pyramid.
_NUM_MAPS = 6


def num_maps(extractor: Extractor) -> int:
    """Returns how many maps a type has that counts them, unless its config says otherwise.

    There are six. The setting `filters` of types for which this is not so are the channels of the
    maps after those of the backbone.
    """
    if 'filters' not in extractor.settings:
        return _NUM_MAPS
    return len(extractor.levels) + len(extractor.settings['filters'])


def least_side(extractor: Extractor, num_layers: int | None) -> int:
    """Returns from which side of images on, in pixels, the maps of a type all have cells.

    A map without padding has two cells less in height and width than the one before.

    Args:
      extractor: the row of the type.
      num_layers: field of the config; None if it is not set.
    """
    if 'num_valid' not in extractor.settings:
        return 1
    num_padded = num_maps(extractor) - extractor.settings['num_valid']
    num_valid = max(num_layers - num_padded, 0) if num_layers else extractor.settings['num_valid']
    return 2 ** (extractor.levels[0] + num_padded - 1) * 2 * num_valid + 1


def _slim(
    backbone: str, levels: range = _LAST_TWO, *, settings: Mapping[str, Any] = {}, **fields: Any
) -> Extractor:
    """Returns the row of a network of TensorFlow 1 with the coarser maps of SSD."""
    settings = {'depthwise_setup': 'DEPTHWISE', **settings}
    return Extractor(backbone, 'multi_resolution', levels, settings, **fields)


def _mobile(backbone: str, **fields: Any) -> Extractor:
    """Returns the row of a mobile network of TensorFlow 1, whose number of maps is its own."""
    return _slim(backbone, counts_maps=False, **fields)


def _bifpn(size: int) -> Extractor:
    settings = {'num_iterations': _ITERATIONS[size], 'num_filters': _FILTERS[size]}
    if size >= 6:
        settings['combine_method'] = 'sum'
    return Extractor(f'efficientnet-b{size}', 'bifpn', settings=settings)


EXTRACTORS: Mapping[str, Extractor] = {
    'ssd_mobilenet_v1_keras': Extractor('mobilenet_v1', 'multi_resolution', _LAST_TWO),
    'ssd_mobilenet_v2_keras': Extractor('mobilenet_v2_expanded', 'multi_resolution', _LAST_TWO),
    'ssd_mobilenet_v1_fpn_keras': Extractor('mobilenet_v1', 'fpn'),
    'ssd_mobilenet_v2_fpn_keras': Extractor('mobilenet_v2', 'fpn'),
    **{
        f'ssd_resnet{depth}_v1_fpn_keras': Extractor(f'resnet_v1_{depth}', 'fpn')
        for depth in (18, 34, 50, 101, 152)
    },
    **{f'ssd_efficientnet-b{size}_bifpn_keras': _bifpn(size) for size in range(len(_FILTERS))},
    # Networks of the reference implementation under TensorFlow 1.
    'ssd_mobilenet_v1': _slim('mobilenet_v1_slim'),
    'ssd_mobilenet_v2': _slim('mobilenet_v2_expanded'),
    'ssd_mobilenet_v1_fpn': Extractor('mobilenet_v1_slim', 'fpn', None, _SLIM),
    'ssd_mobilenet_v2_fpn': Extractor('mobilenet_v2_slim', 'fpn', None, _SLIM),
    'ssd_mobilenet_v1_ppn': Extractor('mobilenet_v1_slim', 'pooling_pyramid', _POOLED),
    **{
        f'ssd_resnet{depth}_v1_fpn': Extractor(f'resnet_v1_{depth}_slim', 'fpn', None, _SLIM)
        for depth in (50, 101, 152)
    },
    'ssd_inception_v2': _slim('inception_v2_mixed_4c', needs_override=True),
    'ssd_inception_v3': _slim(
        'inception_v3', range(3, 6), settings={'filters': (512, 256, 128)}, needs_override=True
    ),
    **{
        f'ssd_resnet{depth}_v1_ppn': Extractor(
            f'resnet_v1_{depth}_slim', 'pooling_pyramid', _POOLED, {'depth': 1024}
        )
        for depth in (50, 101, 152)
    },
    'ssd_mobilenet_v3_large': _mobile('mobilenet_v3_large_expanded'),
    'ssd_mobilenet_v3_small': _mobile('mobilenet_v3_small_expanded'),
    'ssd_mobilenet_edgetpu': _mobile('mobilenet_edgetpu_expanded'),
    **{
        f'ssd_mobiledet_{kind}': _mobile(f'mobiledet_{kind}', keeps_hyperparams=True)
        for kind in ('cpu', 'dsp', 'edgetpu', 'gpu')
    },
    'embedded_ssd_mobilenet_v1': _mobile(
        'mobilenet_v1_slim',
        settings={'filters': (512, 256, 256), 'last_kernel_size': 2},
        image_size=256,
    ),
    'ssd_mobilenet_v2_mnasfpn': Extractor(
        'mobilenet_v2_mnasfpn', 'mnasfpn', keeps_hyperparams=True
    ),
    # As in the paper and in torchvision.
    'ssd_vgg16': Extractor(
        'vgg16', 'multi_resolution', range(3, 5), {'filters': (512, 256, 256, 256), 'num_valid': 2}
    ),
    # On the network that the field `backbone` names.
    'ssd': Extractor(None, 'multi_resolution', _LAST_TWO),
    'ssd_fpn': Extractor(None, 'fpn'),
    'ssd_bifpn': Extractor(None, 'bifpn'),
    'ssd_ppn': Extractor(None, 'pooling_pyramid', _POOLED),
}
