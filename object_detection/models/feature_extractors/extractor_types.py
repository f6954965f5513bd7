"""What the tables of feature extractors of all families have in common."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from object_detection.errors import UserError
from object_detection.models.feature_extractors.feature_extractor import FeatureExtractor
from object_detection.models.hyperparams import LayerHyperparams


@dataclasses.dataclass(frozen=True)
class BackboneOptions:
    """What a config says about backbones of one kind alone: the base of one class a kind.

    Each field of such a class is None where the config does not say it.
    """

    # What comes after "only feature extractors on ".
    TITLE: ClassVar[str]

    def given(self) -> dict[str, Any]:
        """Returns the fields that the config says."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class ExtractorOptions:
    """What a config says about any feature extractor; families of detectors add their own fields.

    Attributes:
      batch_norm_trainable: False freezes all batch norms of the extractor.
      hyperparams: set-up of the layers on the backbone; None if the config has none.
      override_backbone: whether `hyperparams` also hold for the backbone.
      pad_to_multiple: images are padded to a multiple of it; None is the extractor's default.
      backbone: what the config says about this kind of backbone; None is nothing.
    """

    batch_norm_trainable: bool
    hyperparams: LayerHyperparams | None = None
    override_backbone: bool = False
    pad_to_multiple: int | None = None
    backbone: BackboneOptions | None = None

    def backbone_hyperparams(self, default: LayerHyperparams) -> LayerHyperparams:
        """Returns the set-up of the backbone, whose own one is `default`."""
        return self.hyperparams if self.override_backbone else default


@dataclasses.dataclass(frozen=True)
class ExtractorType:
    """One feature extractor: a row of a table.

    Attributes:
      build: makes it of options that fit it.
      check: raises ValueError for options that do not fit it, without building it.
      backbone_options: the class of options that its backbone takes; None means that it takes none.
    """

    build: Callable[[Any], FeatureExtractor]
    check: Callable[[Any], None] = lambda options: None
    backbone_options: type[BackboneOptions] | None = None


def build(
    types: Mapping[str, ExtractorType], type_name: str, options: ExtractorOptions
) -> FeatureExtractor:
    """Builds the feature extractor that `type_name` names in a table.

    Raises:
      ValueError: as `check`.
    """
    check(types, type_name, options)
    return types[type_name].build(options)


def check(types: Mapping[str, ExtractorType], type_name: str, options: ExtractorOptions) -> None:
    """Checks what `build` would get, without building it.

    Raises:
      ValueError: if there is no extractor of that name, or `options` do not fit it.
    """
    if type_name not in types:
        raise UserError(f'type: expected one of {", ".join(types)}. Received: {type_name!r}.')
    if options.override_backbone and options.hyperparams is None:
        raise UserError(
            '`override_base_feature_extractor_hyperparams: true` needs `conv_hyperparams`. '
            'Received: none.'
        )
    if options.pad_to_multiple is not None and options.pad_to_multiple < 1:
        raise UserError(
            f'pad_to_multiple: expected at least 1. Received: {options.pad_to_multiple}.'
        )
    row = types[type_name]
    row.check(options)
    _check_kind(options.backbone, row.backbone_options)


def _check_kind(given: BackboneOptions | None, expected: type[BackboneOptions] | None) -> None:
    if given is None or (expected is not None and isinstance(given, expected)):
        return
    for field, value in given.given().items():
        raise UserError(
            f'{field}: only feature extractors on {given.TITLE} have it. Received: {value}.'
        )
