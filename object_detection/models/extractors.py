"""What the types of feature extractors are made of; loads no TensorFlow."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from object_detection.config import overrides
from object_detection.models.backbones.table import (
    BACKBONES,
    KERAS,
    KERAS_HUB,
    KERAS_MULTIPLE,
    is_backbone,
    is_foreign,
)
from object_detection.models.necks.table import NECKS


class Extractor(NamedTuple):
    """A feature extractor of a family: a row of the table of its types.

    Attributes:
      backbone: name in `BACKBONES`; None leaves it to the field `backbone` of the config.
      neck: name in `NECKS`, unless the field `neck` of the config names another; None returns the
        maps of the backbone.
      levels: of the maps of the backbone that the neck takes; None leaves them to the config.
      settings: arguments of the parts that the type determines.
      padding_multiple: multiple to which images are padded unless the config has one.
      image_size: side in pixels of the only images that it takes; None takes all.
      counts_maps: whether the field `num_layers` may say how many maps there are, if the neck reads
        it.
      keeps_hyperparams: whether the backbone keeps its hyperparameters if a config overrides them.
      needs_override: whether the config must override the hyperparameters of the backbone.
    """

    backbone: str | None
    neck: str | None
    levels: range | None = None
    settings: Mapping[str, Any] = {}
    padding_multiple: int = 1
    image_size: int | None = None
    counts_maps: bool = True
    keeps_hyperparams: bool = False
    needs_override: bool = False


def _backbone_problem(type_name: str, extractor: Extractor, backbone: str) -> str | None:
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
    others = (f'{KERAS}<network>', f'{KERAS_HUB}<preset>')
    return overrides.unknown_choice(backbone, [*BACKBONES, *others])


def _neck_problem(type_name: str, extractor: Extractor, neck: str) -> str | None:
    if not neck:
        return None
    if extractor.neck is None:
        return f'expected none, as the type {type_name} has no neck. Received: {neck!r}.'
    names = [extractor.neck, *(name for name in NECKS if name not in NECKS.built_in)]
    return None if neck in names else overrides.unknown_choice(neck, names)


def part_problems(type_name: str, extractor: Extractor, backbone: str, neck: str) -> Iterator[str]:
    """Yields what is wrong with the fields `backbone` and `neck` of a config, '' if not set.

    Each sentence begins with the name of the field.
    """
    if problem := _backbone_problem(type_name, extractor, backbone):
        yield f'backbone: {problem}'
    if problem := _neck_problem(type_name, extractor, neck):
        yield f'neck: {problem}'


def problems(extractors: Mapping[str, Extractor], config: Any, root: str) -> Iterator[str]:
    """Yields what is wrong with the parts of a feature extractor of a known type.

    Args:
      extractors: the table of the family.
      config: message of the extractor.
      root: path of the message of the model.
    """
    row = extractors[config.type]
    for problem in part_problems(config.type, row, config.backbone, config.neck):
        yield f'{root}.feature_extractor.{problem}'


def type_problems(
    extractors: Mapping[str, Extractor], config: Any, root: str, problem: str | None, example: str
) -> Iterator[str]:
    """Yields what is wrong with a feature extractor: its type, or the parts of a known type.

    Args:
      extractors, config, root: as for `problems`.
      problem: what is wrong with the type, or None.
      example: a type.
    """
    if not config.type:
        yield f'{root}.feature_extractor.type is not set; expected e.g. {example}.'
    elif problem:
        yield f'{root}.feature_extractor.type: {problem}'
    else:
        yield from problems(extractors, config, root)


def padding_multiple(extractor: Extractor, backbone: str, given: int | None) -> int:
    """Returns the multiple to which images are padded.

    Args:
      extractor: the row of the type.
      backbone: field of the config, '' if it is not set.
      given: `pad_to_multiple` of the config; None if it is not set.
    """
    multiple = given or extractor.padding_multiple
    if extractor.backbone is None and is_foreign(backbone):
        return math.lcm(multiple, KERAS_MULTIPLE)
    if extractor.backbone is None and backbone in BACKBONES:
        return math.lcm(multiple, BACKBONES[backbone].padding_multiple)
    return multiple
