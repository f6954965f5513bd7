"""The feature extractors of Faster R-CNN by their `type` in configs."""

from collections.abc import Mapping

from object_detection.models.extractors import Extractor

# Stride of the coarsest map of a backbone, to a multiple of which a pyramid pads by default.
_PYRAMID_MULTIPLE = 32
_ONE_MAP = range(4, 5)
# As in the reference's networks of TensorFlow 1, the stage over crops has stride 1, not 2.
_KEEPS_CROPS = {'keeps_crops': True}


def _pyramid(backbone: str | None) -> Extractor:
    """Returns the row of a network with dense layers over the crops of the levels of a pyramid."""
    return Extractor(backbone, 'fpn', padding_multiple=_PYRAMID_MULTIPLE)


EXTRACTORS: Mapping[str, Extractor] = {
    **{
        f'faster_rcnn_resnet{depth}_fpn_keras': _pyramid(f'resnet_v1_{depth}')
        for depth in (18, 34, 50, 101, 152, 200)
    },
    # As in torchvision: two maps of stride 32.
    'faster_rcnn_mobilenet_v3_large_fpn': _pyramid('mobilenet_v3_large_full'),
    # The other types have one map, and the rest of the backbone over its crops.
    **{
        f'faster_rcnn_resnet{depth}_keras': Extractor(
            f'resnet_v1_{depth}_unpenalized', None, _ONE_MAP
        )
        for depth in (50, 101, 152)
    },
    'faster_rcnn_inception_resnet_v2_keras': Extractor('inception_resnet_v2', None, _ONE_MAP),
    # Networks of the reference implementation under TensorFlow 1.
    **{
        f'faster_rcnn_resnet{depth}': Extractor(
            f'resnet_v1_{depth}_unpenalized', None, _ONE_MAP, _KEEPS_CROPS
        )
        for depth in (50, 101, 152)
    },
    'faster_rcnn_inception_v2': Extractor('inception_v2', None, _ONE_MAP),
    'faster_rcnn_inception_resnet_v2': Extractor('inception_resnet_v2_slim', None, _ONE_MAP),
    'faster_rcnn_nas': Extractor('nasnet_large', None, _ONE_MAP),
    # On the network that the field `backbone` names.
    'faster_rcnn_fpn': _pyramid(None),
    'faster_rcnn': Extractor(None, None, _ONE_MAP),
}
