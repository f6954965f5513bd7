"""Options of feature extractors on a ResNet v1, for all families of detectors."""

import dataclasses
import math
from typing import Any

from object_detection.errors import UserError
from object_detection.models.backbones import resnet_v1
from object_detection.models.backbones.table import BackboneOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import Preprocess

# Factor of the sum of squares of a backbone under TensorFlow 1: TF-Slim's weight decay is 1e-4, and
# its penalty is half of the sum of squares.
SLIM_PENALTY = 0.5 * 1e-4


@dataclasses.dataclass(frozen=True)
class ResnetOptions:
    """Options of a config for a ResNet v1; None where the config does not set the field.

    Attributes:
      stride_in_1x1, padding_mode, frozen_stages: see `resnet_v1.Options`; None is the default
        there.
      freeze_affine: whether offset and scale of frozen batch norms are frozen too; None is False.
      preprocess: normalization of images; None subtracts the means of ImageNet.
    """

    stride_in_1x1: bool | None = None
    padding_mode: resnet_v1.Padding | None = None
    frozen_stages: int | None = None
    freeze_affine: bool | None = None
    preprocess: Preprocess | None = None

    def given(self) -> dict[str, Any]:
        """Returns the fields that the config sets."""
        return {name: value for name, value in vars(self).items() if value is not None}


FIELDS = tuple(field.name for field in dataclasses.fields(ResnetOptions))


def network_options(options: BackboneOptions) -> resnet_v1.Options:
    """Returns the options of the network."""
    resnet = options.resnet or ResnetOptions()
    chosen = {
        'stride_in_1x1': resnet.stride_in_1x1,
        'padding': resnet.padding_mode,
        'frozen_stages': resnet.frozen_stages,
    }
    return resnet_v1.Options(
        depth_multiplier=options.depth_multiplier,
        min_depth=options.min_depth,
        **{name: value for name, value in chosen.items() if value is not None},
    )


def with_freezing(hyperparams: LayerHyperparams, resnet: ResnetOptions | None) -> LayerHyperparams:
    """Adds `freeze_affine` to the batch norms of hyperparameters."""
    if resnet is None or not resnet.freeze_affine or hyperparams.batch_norm is None:
        return hyperparams
    norm = dataclasses.replace(hyperparams.batch_norm, freeze_affine=True)
    return dataclasses.replace(hyperparams, batch_norm=norm)


def check_resnet(
    resnet: ResnetOptions | None, override: LayerHyperparams | None, top_level: int
) -> None:
    """Checks the options of ResNets.

    Args:
      resnet: None if the config has none.
      override: hyperparameters of the config that hold for the backbone, if any.
      top_level: the last stage of the trunk has stride 2**top_level.

    Raises:
      ValueError: if a number is out of its range, or an option does not fit another.
    """
    if resnet is None:
        return
    if not 0 <= (resnet.frozen_stages or 0) <= top_level:
        raise UserError(
            f'frozen_stages: expected 0 to {top_level}, the stages of the backbone. '
            f'Received: {resnet.frozen_stages}.'
        )
    if resnet.freeze_affine and override is not None and not override.batch_norm:
        raise UserError(
            'freeze_affine: expected batch norms in conv_hyperparams, which hold for the backbone. '
            'Received: none.'
        )
    if resnet.preprocess is not None:
        _check_preprocess(resnet.preprocess)


def _check_preprocess(preprocess: Preprocess) -> None:
    for name in ('mean', 'std'):
        if len(getattr(preprocess, name)) != 3:
            raise UserError(
                f'preprocess.{name}: expected three numbers, for red, green and blue. '
                f'Received: {list(getattr(preprocess, name))}.'
            )
    for name, value in [('scale', preprocess.scale), *(('std', std) for std in preprocess.std)]:
        if not 0 < value < math.inf:
            raise UserError(f'preprocess.{name}: expected a positive number. Received: {value:g}.')
