"""What the types of feature extractors are made of; loads no TensorFlow."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from object_detection.config import overrides
from object_detection.models.backbones.table import (
    BACKBONES,
    KERAS,
    KERAS_MULTIPLE,
    is_backbone,
)


class Extractor(NamedTuple):
    """A feature extractor of a family: a row of the table of its types.

    Attributes:
      backbone: name in `BACKBONES`; None leaves it to the field `backbone` of the config.
      neck: name in `NECKS`; None returns the maps of the backbone.
      levels: of the maps of the backbone that the neck takes; None leaves them to the config.
      settings: arguments of the parts that the type determines.
      padding_multiple: multiple to which images are padded unless the config has one.
    """

    backbone: str | None
    neck: str | None
    levels: range | None = None
    settings: Mapping[str, Any] = {}
    padding_multiple: int = 1


def backbone_problem(type_name: str, extractor: Extractor, backbone: str) -> str | None:
    """Returns what is wrong with the field `backbone` of a config, '' if it is not set, or None.

    It continues the name of the field, such as 'expected ...'.
    """
    if extractor.backbone is not None:
        if not backbone:
            return None
        return (
            f'expected none, as the type {type_name} has the backbone {extractor.backbone}. '
            f'Received: {backbone!r}.'
        )
    if not backbone:
        return f'not set; the type {type_name} expects e.g. {KERAS}ConvNeXtTiny or resnet_v1_50.'
    if is_backbone(backbone):
        return None
    return overrides.unknown_choice(backbone, [*BACKBONES, f'{KERAS}<network>'])


def problems(extractors: Mapping[str, Extractor], config: Any, root: str) -> Iterator[str]:
    """Yields what is wrong with the backbone of a feature extractor of a known type.

    Args:
      extractors: the table of the family.
      config: message of the extractor.
      root: path of the message of the model.
    """
    problem = backbone_problem(config.type, extractors[config.type], config.backbone)
    if problem:
        yield f'{root}.feature_extractor.backbone: {problem}'


def padding_multiple(extractor: Extractor, backbone: str, given: int | None) -> int:
    """Returns the multiple to which images are padded.

    Args:
      extractor: the row of the type.
      backbone: field of the config, '' if it is not set.
      given: `pad_to_multiple` of the config; None if it is not set.
    """
    multiple = given or extractor.padding_multiple
    if extractor.backbone is None and backbone.startswith(KERAS):
        return math.lcm(multiple, KERAS_MULTIPLE)
    if extractor.backbone is None and backbone in BACKBONES:
        return math.lcm(multiple, BACKBONES[backbone].padding_multiple)
    return multiple
