"""The `type` names of CenterNet's feature extractors, known without loading TensorFlow."""

from object_detection.config import overrides

TYPES = (
    *(f'resnet_v1_{depth}_fpn' for depth in (18, 34, 50, 101)),
    *(f'resnet_v2_{depth}' for depth in (50, 101)),
    *(f'mobilenet_v2{neck}' for neck in ('', '_fpn', '_fpn_sep_conv')),
    *(f'hourglass_{depth}' for depth in (10, 20, 32, 52, 104)),
)

# Depth of a hourglass -> the stride of its smallest map.
_HOURGLASS_MULTIPLES = {'10': 8, '20': 16, '32': 32, '52': 128, '104': 128}
_LAST_STRIDE = 32


def padding_multiple(type_name: str) -> int:
    """Returns the multiple to which an extractor pads the sides of images."""
    kind, _, depth = type_name.partition('_')
    return _HOURGLASS_MULTIPLES.get(depth, 1) if kind == 'hourglass' else _LAST_STRIDE


def problem(type_name: str) -> str | None:
    """Returns what is wrong with a feature extractor's type, or None.

    It continues the name of the field, such as 'expected ...'.
    """
    return None if type_name in TYPES else overrides.unknown_choice(type_name, TYPES)
