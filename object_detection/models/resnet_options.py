"""Options of feature extractors on a ResNet v1, for all families of detectors."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import tensorflow as tf

from object_detection.errors import UserError
from object_detection.models.backbones import resnet_v1
from object_detection.models.feature_extractor import (
    BackboneOptions,
    ExtractorOptions,
    Preprocess,
    subtract_means,
)
from object_detection.models.hyperparams import LayerHyperparams

# Factor of the sum of squares of a backbone under TensorFlow 1: TF-Slim's weight decay is 1e-4, and
# its penalty is half of the sum of squares.
SLIM_PENALTY = 0.5 * 1e-4


@dataclasses.dataclass(frozen=True)
class ResnetOptions(BackboneOptions):
    """Options of a config for a ResNet.

    Attributes:
      stride_in_1x1, padding_mode, frozen_stages: see `resnet_v1.Options`; None is the default
        there.
      freeze_affine: whether offset and scale of frozen batch norms are frozen too; None is False.
      preprocess: normalization of images; None subtracts the means of ImageNet.
    """

    TITLE: ClassVar[str] = 'a ResNet'

    stride_in_1x1: bool | None = None
    padding_mode: resnet_v1.Padding | None = None
    frozen_stages: int | None = None
    freeze_affine: bool | None = None
    preprocess: Preprocess | None = None


def resnet_options(options: ExtractorOptions) -> ResnetOptions:
    """Returns the options for the ResNet; all fields are None if the config sets none."""
    return options.backbone or ResnetOptions()


def network_options(options: ExtractorOptions, default: LayerHyperparams) -> dict[str, Any]:
    """Returns the common arguments of the components of a ResNet.

    Args:
      options: the options of the config.
      default: hyperparameters of the layers unless the config overrides them.
    """
    resnet = resnet_options(options)
    chosen = {
        'stride_in_1x1': resnet.stride_in_1x1,
        'padding': resnet.padding_mode,
        'frozen_stages': resnet.frozen_stages,
    }
    chosen = {name: value for name, value in chosen.items() if value is not None}
    return {
        'hyperparams': with_freezing(options.backbone_hyperparams(default), options),
        'batch_norm_trainable': options.batch_norm_trainable,
        'options': resnet_v1.Options(**chosen),
    }


def normalization(options: ExtractorOptions) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the function that converts images to the input of the network."""
    return resnet_options(options).preprocess or subtract_means


def with_freezing(hyperparams: LayerHyperparams, options: ExtractorOptions) -> LayerHyperparams:
    """Adds `freeze_affine` to the batch norms of hyperparameters."""
    if not resnet_options(options).freeze_affine or hyperparams.batch_norm is None:
        return hyperparams
    norm = dataclasses.replace(hyperparams.batch_norm, freeze_affine=True)
    return dataclasses.replace(hyperparams, batch_norm=norm)


def check_resnet(options: ExtractorOptions, top_level: int) -> None:
    """Checks the options of ResNets; the last stage of the trunk has stride 2**top_level.

    Raises:
      ValueError: if a number is out of its range, or an option does not fit another.
    """
    resnet = resnet_options(options)
    if not 0 <= (resnet.frozen_stages or 0) <= top_level:
        raise UserError(
            f'frozen_stages: expected 0 to {top_level}, the stages of the backbone. '
            f'Received: {resnet.frozen_stages}.'
        )
    if resnet.freeze_affine and options.override_backbone and not options.hyperparams.batch_norm:
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
