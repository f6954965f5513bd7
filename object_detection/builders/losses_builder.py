"""Builds the losses that Loss, LocalizationLoss and ClassificationLoss protos describe."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from object_detection.builders.oneof import build_oneof
from object_detection.losses.classification import (
    BootstrappedSigmoidLoss,
    DiceLoss,
    PenaltyReducedFocalLoss,
    SigmoidFocalLoss,
    SigmoidLoss,
    SoftmaxAgainstLogitsLoss,
    SoftmaxLoss,
)
from object_detection.losses.localization import (
    GiouLocalizationLoss,
    IouLocalizationLoss,
    L1LocalizationLoss,
    L2LocalizationLoss,
    SmoothL1LocalizationLoss,
)
from object_detection.protos import losses_pb2

LossFunction = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]

LOCALIZATION: dict[str, Callable[[Any], LossFunction]] = {
    'weighted_l2': lambda config: L2LocalizationLoss(),
    'weighted_smooth_l1': lambda config: SmoothL1LocalizationLoss(delta=config.delta),
    'weighted_iou': lambda config: IouLocalizationLoss(),
    'l1_localization_loss': lambda config: L1LocalizationLoss(),
    'weighted_giou': lambda config: GiouLocalizationLoss(),
}

CLASSIFICATION: dict[str, Callable[[Any], LossFunction]] = {
    'weighted_sigmoid': lambda config: SigmoidLoss(),
    'weighted_sigmoid_focal': lambda config: SigmoidFocalLoss(
        gamma=config.gamma, alpha=config.alpha if config.HasField('alpha') else None
    ),
    'weighted_softmax': lambda config: SoftmaxLoss(logit_scale=config.logit_scale),
    'weighted_logits_softmax': lambda config: SoftmaxAgainstLogitsLoss(
        logit_scale=config.logit_scale
    ),
    'bootstrapped_sigmoid': lambda config: BootstrappedSigmoidLoss(
        alpha=config.alpha, hard=config.hard_bootstrap
    ),
    'penalty_reduced_logistic_focal_loss': lambda config: PenaltyReducedFocalLoss(
        alpha=config.alpha, beta=config.beta
    ),
    'weighted_dice_classification_loss': lambda config: DiceLoss(
        squared_normalization=config.squared_normalization,
        is_prediction_probability=config.is_prediction_probability,
    ),
}

# Fields of `Loss` that change which anchors count.
_UNSUPPORTED = (
    'hard_example_miner',
    'random_example_sampler',
    'equalization_loss',
    'expected_loss_weights',
)


@dataclasses.dataclass(frozen=True)
class Losses:
    """What a `Loss` message describes.

    Attributes:
      localization, classification: the losses of each anchor.
      localization_weight, classification_weight: factors of their sums.
    """

    localization: LossFunction
    classification: LossFunction
    localization_weight: float
    classification_weight: float


def build_localization(config: losses_pb2.LocalizationLoss) -> LossFunction:
    """Builds `(predictions, targets, weights) -> losses` of boxes or their codes.

    Raises:
      ValueError: if no loss is set, or a number is out of range.
    """
    return _build(config, 'localization_loss', LOCALIZATION)


def build_classification(config: losses_pb2.ClassificationLoss) -> LossFunction:
    """Builds `(logits, targets, weights) -> losses` of classes.

    Raises:
      ValueError: if no loss is set, or a number is out of range.
    """
    return _build(config, 'classification_loss', CLASSIFICATION)


def build(config: losses_pb2.Loss) -> Losses:
    """Builds both losses and their weights.

    Raises:
      ValueError: if a loss is not set, a number is out of range, or an option is not supported.
    """
    for field in _UNSUPPORTED:
        if config.HasField(field) and getattr(config, field) != losses_pb2.Loss.NONE:
            raise ValueError(f'{config.DESCRIPTOR.full_name}.{field} is not supported; remove it.')
    return Losses(
        localization=build_localization(config.localization_loss),
        classification=build_classification(config.classification_loss),
        localization_weight=config.localization_weight,
        classification_weight=config.classification_weight,
    )


def _build(config: Any, oneof: str, builders: dict[str, Callable[[Any], Any]]) -> Any:
    try:
        return build_oneof(config, oneof, builders)
    except ValueError as error:
        field = config.WhichOneof(oneof)
        if field is None:
            raise
        raise ValueError(f'{getattr(config, field).DESCRIPTOR.full_name}: {error}') from error
