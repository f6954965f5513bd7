"""The `type` names of Faster R-CNN's feature extractors, known without loading TensorFlow."""

import re

from object_detection.config import overrides

_FPN_DEPTHS = (18, 34, 50, 101, 152, 200)
_DEPTHS = (50, 101, 152)

TYPES = (
    *(f'faster_rcnn_resnet{depth}_fpn_keras' for depth in _FPN_DEPTHS),
    *(f'faster_rcnn_resnet{depth}_keras' for depth in _DEPTHS),
    'faster_rcnn_inception_resnet_v2_keras',
    # Networks of the reference implementation under TensorFlow 1.
    *(f'faster_rcnn_resnet{depth}' for depth in _DEPTHS),
    'faster_rcnn_inception_v2',
    'faster_rcnn_inception_resnet_v2',
)
# Types whose box classifier keeps the size of crops; the other types halve it.
_KEEP_CROPS = tuple(f'faster_rcnn_resnet{depth}' for depth in _DEPTHS)
# Types of the reference implementation that have no counterpart here.
_NOT_BUILT = ('faster_rcnn_nas', 'faster_rcnn_pnas', 'faster_rcnn_mobilenet_v1')
_NETWORK = re.compile(r'inception_resnet_v2|inception_v2|resnet\d+')


def problem(type_name: str) -> str | None:
    """Returns what is wrong with a feature extractor's type, or None.

    A type is suggested only if it is the same network, since another network needs other weights.
    """
    if type_name in TYPES:
        return None
    note = overrides.NOT_BUILT if type_name in _NOT_BUILT else ''
    same = [name for name in TYPES if _network(name) == _network(type_name)]
    return overrides.unknown_choice(type_name, TYPES, similar=same, cutoff=0, note=note)


def halves_crops(type_name: str) -> bool:
    """Returns whether the box classifier of an extractor without a pyramid halves crops."""
    return type_name not in _KEEP_CROPS


def _network(type_name: str) -> str | None:
    """Returns the network in the name of a type, such as 'resnet50', or the whole name."""
    found = _NETWORK.search(type_name)
    return found[0] if found else type_name
