"""Types for the tables of feature extractors of all families."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from object_detection.errors import UserError
from object_detection.models.feature_extractors.feature_extractor import FeatureExtractor
from object_detection.models.hyperparams import LayerHyperparams


@dataclasses.dataclass(frozen=True)
class BackboneOptions:
    """Options of a config for one kind of backbones; each kind has a subclass.

    A field of a subclass is None if the config does not set it.
    """

    # The text after "only feature extractors on ".
    TITLE: ClassVar[str]

    def given(self) -> dict[str, Any]:
        """Returns the fields that the config sets."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class ExtractorOptions:
    """Options of a config for any feature extractor; families of detectors add own fields.

    Attributes:
      batch_norm_trainable: False freezes all batch norms of the extractor.
      hyperparams: hyperparameters of the layers on the backbone; None if the config has none.
      override_backbone: whether `hyperparams` also apply to the backbone.
      pad_to_multiple: multiple to which images are padded; None is the extractor's default.
      backbone: options for this kind of backbone; None if the config has none.
    """

    batch_norm_trainable: bool
    hyperparams: LayerHyperparams | None = None
    override_backbone: bool = False
    pad_to_multiple: int | None = None
    backbone: BackboneOptions | None = None

    def backbone_hyperparams(self, default: LayerHyperparams) -> LayerHyperparams:
        """Returns the hyperparameters of the backbone, which are `default` unless overridden."""
        return self.hyperparams if self.override_backbone else default


@dataclasses.dataclass(frozen=True)
class ExtractorType:
    """One feature extractor: a row of a table.

    Attributes:
      build: builds the extractor from valid options.
      check: raises ValueError for options that do not fit, without building the extractor.
      backbone_options: class of the options of its backbone; None if it takes none.
    """

    build: Callable[[Any], FeatureExtractor]
    check: Callable[[Any], None] = lambda options: None
    backbone_options: type[BackboneOptions] | None = None


def build(
    types: Mapping[str, ExtractorType], type_name: str, options: ExtractorOptions
) -> FeatureExtractor:
    """Builds the feature extractor that `type_name` names in a table.

    Raises:
      ValueError: in the cases of `check`.
    """
    check(types, type_name, options)
    return types[type_name].build(options)


def check(types: Mapping[str, ExtractorType], type_name: str, options: ExtractorOptions) -> None:
    """Checks the arguments of `build` without building the extractor.

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
