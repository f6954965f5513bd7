"""The `type` names of CenterNet's feature extractors, known without loading TensorFlow."""

import difflib

TYPES = (
    *(f'resnet_v1_{depth}_fpn' for depth in (18, 34, 50, 101)),
    *(f'resnet_v2_{depth}' for depth in (50, 101)),
    *(f'mobilenet_v2{neck}' for neck in ('', '_fpn', '_fpn_sep_conv')),
    *(f'hourglass_{depth}' for depth in (10, 20, 32, 52, 104)),
)


def problem(type_name: str) -> str | None:
    """Returns what is wrong with a feature extractor's type, or None.

    It is a sentence that continues the name of the field, such as 'expected ...'.
    """
    if type_name in TYPES:
        return None
    expected = f'expected one of {", ".join(TYPES)}. Received: {type_name!r}'
    near = difflib.get_close_matches(type_name, TYPES, n=1)
    return expected + (f'; did you mean {near[0]!r}?' if near else '.')
