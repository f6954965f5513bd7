"""The feature extractors of CenterNet by their `type` in configs; the map of all has stride 4."""

from collections.abc import Mapping

from object_detection.models.extractors import Extractor

_LEVELS = range(2, 6)
_LAST = range(5, 6)
# Stride of the last map of a backbone. Of images whose sides are multiples of it, all maps halve
# evenly, and a cell of the result covers 4 pixels.
_LAST_STRIDE = 32
# Channels of the merged maps on a MobileNet, coarse to fine.
_MOBILE = {'depths': (64, 32, 24)}
# Depth of a hourglass -> the stride of its smallest map.
_HOURGLASSES = {10: 8, 20: 16, 32: 32, 52: 128, 104: 128}


def _merged(backbone: str | None, **settings) -> Extractor:
    return Extractor(backbone, 'merged_pyramid', _LEVELS, settings, _LAST_STRIDE)


def _upsampled(backbone: str | None, **settings) -> Extractor:
    return Extractor(backbone, 'upsampling', _LAST, settings, _LAST_STRIDE)


EXTRACTORS: Mapping[str, Extractor] = {
    **{
        f'resnet_v1_{depth}_fpn': _merged(f'resnet_v1_{depth}_biased', is_separable=False)
        for depth in (18, 34, 50, 101)
    },
    **{f'resnet_v2_{depth}': _upsampled(f'resnet_v2_{depth}') for depth in (50, 101)},
    'mobilenet_v2': _upsampled('mobilenet_v2_center_net', kernel_size=1),
    'mobilenet_v2_fpn': _merged('mobilenet_v2_center_net', **_MOBILE),
    'mobilenet_v2_fpn_sep_conv': _merged('mobilenet_v2_center_net', is_separable=True, **_MOBILE),
    **{
        f'hourglass_{depth}': Extractor(
            f'hourglass_{depth}', None, range(2, 3), padding_multiple=multiple
        )
        for depth, multiple in _HOURGLASSES.items()
    },
    # On the network that the field `backbone` names.
    'center_net': _upsampled(None),
    'center_net_fpn': _merged(None),
}
