"""Builds the losses that Loss, LocalizationLoss and ClassificationLoss protos describe."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from google.protobuf.message import Message

from object_detection.config import plugins, reading
from object_detection.config.oneof import build_oneof, find_facts
from object_detection.data.pipeline import image_counts
from object_detection.errors import Problems, UserError, expected, format_list, within
from object_detection.losses import classification as class_losses
from object_detection.losses import localization as box_losses
from object_detection.losses.anchor_sampling import (
    Expectation,
    ExpectedLossWeights,
    RandomExampleSampler,
)
from object_detection.losses.federated import FederatedClasses
from object_detection.losses.hard_example_miner import HardExampleMiner
from object_detection.protos import losses_pb2, options_pb2
from object_detection.registry import Registry

LossFunction = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]

_LOSSES: dict[str, Callable[[Any], LossFunction]] = {
    'weighted_l2': lambda config: box_losses.L2LocalizationLoss(),
    'weighted_smooth_l1': lambda config: box_losses.SmoothL1LocalizationLoss(delta=config.delta),
    'weighted_iou': lambda config: box_losses.IouLocalizationLoss(),
    'l1_localization_loss': lambda config: box_losses.L1LocalizationLoss(),
    'weighted_giou': lambda config: box_losses.GiouLocalizationLoss(),
    'weighted_sigmoid': lambda config: class_losses.SigmoidLoss(
        label_smoothing=config.label_smoothing
    ),
    'weighted_sigmoid_focal': lambda config: class_losses.SigmoidFocalLoss(
        gamma=config.gamma,
        alpha=config.alpha if config.HasField('alpha') else None,
        label_smoothing=config.label_smoothing,
    ),
    'weighted_softmax': lambda config: class_losses.SoftmaxLoss(
        logit_scale=config.logit_scale, label_smoothing=config.label_smoothing
    ),
    'weighted_logits_softmax': lambda config: class_losses.SoftmaxAgainstLogitsLoss(
        logit_scale=config.logit_scale
    ),
    'bootstrapped_sigmoid': lambda config: class_losses.BootstrappedSigmoidLoss(
        alpha=config.alpha, hard=config.hard_bootstrap
    ),
    'penalty_reduced_logistic_focal_loss': lambda config: class_losses.PenaltyReducedFocalLoss(
        alpha=config.alpha, beta=config.beta
    ),
    'weighted_dice_classification_loss': lambda config: class_losses.DiceLoss(
        squared_normalization=config.squared_normalization,
        is_prediction_probability=config.is_prediction_probability,
    ),
}
# The score converter of losses that compare each class for itself.
_SIGMOID = 'SIGMOID'
# Option of a loss's message -> function from the option to the loss. A loss of a plug-in is a
# dataclass of its options, a `LossFunction` whose attribute `compares` is one of these.
LOSSES: Registry[Callable[..., LossFunction]] = Registry('loss', _LOSSES)
CLASSES, CODES, BOXES = 'classes', 'codes', 'boxes'

# Whether the miner compares losses of classes, and losses of boxes.
_COMPARED = {
    losses_pb2.HardExampleMiner.BOTH: (True, True),
    losses_pb2.HardExampleMiner.CLASSIFICATION: (True, False),
    losses_pb2.HardExampleMiner.LOCALIZATION: (False, True),
}

_EXPECTATIONS = {
    losses_pb2.Loss.EXPECTED_SAMPLING: Expectation.SAMPLING,
    losses_pb2.Loss.REWEIGHTING_UNMATCHED_ANCHORS: Expectation.REWEIGHTING,
}
_EXPECTED_FIELDS = ('min_num_negative_samples', 'desired_negative_sampling_ratio')
_NO_EXPECTATION = 'without loss.expected_loss_weights it is not read'
_NO_RATIO = 'it widens the limit of max_negatives_per_positive, which is not set'
# Fields of `Loss` that need a loss of each anchor.
_NEED_ANCHORS = ('hard_example_miner', 'expected_loss_weights')


@dataclasses.dataclass(frozen=True)
class Losses:
    """The losses that a `Loss` message describes.

    Attributes:
      localization: `(predictions [B, N, D], targets [B, N, D], weights [B, N]) -> [B, N]`, the loss
        of each anchor.
      classification: `(logits [B, N, C], targets [B, N, C], weights [B, N, C or 1])`, which returns
        [B, N, C], [B, N], or [B, C] (dice).
      localization_weight, classification_weight: factors of the sums of the losses.
      compares_boxes: whether `localization` takes boxes, decoded from codes and targets, not codes.
      hard_example_miner: selects the anchors that contribute; None: all anchors do.
      random_example_sampler: selects the anchors that contribute, before the losses; None: all do.
      expected_loss_weights: weights of the losses of an anchor against its label and against
        background; None: each anchor has one target. It holds `min_num_negative_samples` and
        `desired_negative_sampling_ratio`.
      federated: samples the classes that have losses in an image; None: all have.
    """

    localization: LossFunction
    classification: LossFunction
    localization_weight: float
    classification_weight: float
    compares_boxes: bool = False
    hard_example_miner: HardExampleMiner | None = None
    random_example_sampler: RandomExampleSampler | None = None
    expected_loss_weights: ExpectedLossWeights | None = None
    federated: FederatedClasses | None = None


def build_localization(config: losses_pb2.LocalizationLoss) -> LossFunction:
    """Builds `(predictions, targets, weights) -> losses` of boxes or their codes.

    Raises:
      ValueError: if no loss is set, or a number is out of range.
    """
    return _build(config, 'localization_loss', (CODES, BOXES))


def build_localization_of_codes(config: losses_pb2.LocalizationLoss) -> LossFunction:
    """Builds a localization loss of codes: `[B, N, D], [B, N, D], [B, N] -> [B, N]`.

    Raises:
      ValueError: if no loss is set, the loss compares boxes, or a number is out of range.
    """
    kind = config.WhichOneof('localization_loss')
    if find_facts(config, 'localization_loss', options_pb2.loss).compares_boxes:
        expected = _others(config, 'compares_boxes')
        raise UserError(
            f'{config.DESCRIPTOR.full_name}.{kind} compares boxes, not their codes; expected one '
            f'of: {expected}. Received: {kind}.'
        )
    return _of_anchors(_build(config, 'localization_loss', (CODES,)))


def build_classification(config: losses_pb2.ClassificationLoss) -> LossFunction:
    """Builds `(logits, targets, weights) -> losses` of classes, of which all have losses.

    Raises:
      ValueError: if no loss is set, a number is out of range, or there is a `federated_loss`.
    """
    if config.HasField('federated_loss'):
        raise UserError(
            f'{config.DESCRIPTOR.full_name}.federated_loss: expected none, as it is for '
            'single-shot detectors and the second stage of others. Received: one.'
        )
    return _build(config, 'classification_loss', (CLASSES,))


def build_federated(config: losses_pb2.ClassificationLoss) -> FederatedClasses | None:
    """Builds the sampling of the classes that have losses; None if all have.

    Raises:
      ValueError: if the loss does not compare each class for itself.
    """
    if not config.HasField('federated_loss'):
        return None
    if find_facts(config, 'classification_loss', options_pb2.loss).score_converter != _SIGMOID:
        raise expected(
            f'{config.DESCRIPTOR.full_name}.federated_loss',
            'a loss of each class for itself, such as weighted_sigmoid',
            config.WhichOneof('classification_loss'),
        )
    options = config.federated_loss
    path = options.image_counts_path
    if not path:
        reading.unused(options, 'power', 'without image_counts_path all classes are equal')

    def counts() -> Mapping[int, int]:
        with within(f'{options.DESCRIPTOR.full_name}.image_counts_path'):
            return image_counts.read_classes(path)

    return FederatedClasses(
        options.num_classes,
        power=options.power,
        image_counts=counts if path else None,
        use_image_labels=options.use_image_labels,
    )


def build_classification_of_pixels(config: losses_pb2.ClassificationLoss) -> LossFunction:
    """Builds the loss of maps, whose targets are no choices between classes.

    Raises:
      ValueError: in the cases of `build_classification`, and if the loss smooths its targets.
    """
    kind = config.WhichOneof('classification_loss')
    if kind and getattr(getattr(config, kind), 'label_smoothing', 0):
        raise expected(
            f'{config.DESCRIPTOR.full_name}.{kind}.label_smoothing',
            '0, as the targets are maps',
            getattr(config, kind).label_smoothing,
        )
    return build_classification(config)


def build_second_stage_classification(config: losses_pb2.ClassificationLoss) -> LossFunction:
    """Builds the classification loss of proposals, which is softmax if no loss is set.

    The reference builds softmax for every loss other than softmax and sigmoid, focal or not.

    Raises:
      ValueError: if the loss does not apply to proposals, or a number is out of range.
    """
    kind = config.WhichOneof('classification_loss')
    if kind is None:
        return class_losses.SoftmaxLoss()
    if find_facts(config, 'classification_loss', options_pb2.loss).is_of_pixels:
        expected = _others(config, 'is_of_pixels')
        raise UserError(
            f'{config.DESCRIPTOR.full_name}.{kind} is a loss of pixels, not of proposals; expected '
            f'one of: {expected}. Received: {kind}.'
        )
    return _build(config, 'classification_loss', (CLASSES,))


def build_hard_example_miner(
    config: losses_pb2.HardExampleMiner,
    classification: losses_pb2.ClassificationLoss,
    classification_weight: float,
    localization_weight: float,
) -> HardExampleMiner:
    """Builds the selection of hard examples; a limit that is not positive is none.

    Args:
      config: the message.
      classification: the classification loss of the examples.
      classification_weight, localization_weight: factors of the losses, used if both losses are
        compared.

    Raises:
      ValueError: if the loss of the classes is a focal loss, or a number is out of range.
    """
    name = config.DESCRIPTOR.full_name
    if classification.WhichOneof('classification_loss') == 'weighted_sigmoid_focal':
        raise expected(
            name, 'hard_example_miner or weighted_sigmoid_focal, which do the same', 'both'
        )
    if config.max_negatives_per_positive <= 0:
        reading.unused(config, 'min_negatives_per_image', _NO_RATIO)
    of_classes, of_boxes = _COMPARED[config.loss_type]
    if of_classes != of_boxes:
        classification_weight, localization_weight = float(of_classes), float(of_boxes)
    with within(name):
        return HardExampleMiner(
            num_hard_examples=_positive(config.num_hard_examples),
            iou_threshold=config.iou_threshold,
            classification_weight=classification_weight,
            localization_weight=localization_weight,
            max_negatives_per_positive=_positive(config.max_negatives_per_positive),
            min_negatives_per_image=max(0, config.min_negatives_per_image),
        )


def _positive(limit: int) -> int | None:
    return limit if limit > 0 else None


def build(config: losses_pb2.Loss) -> Losses:
    """Builds both losses, their weights and the selection of anchors of a single-stage detector.

    Raises:
      ValueError: if a loss is not set, a number is out of range, an option is not supported, or
        two contradict each other.
    """
    weights = {
        'localization_weight': config.localization_weight,
        'classification_weight': config.classification_weight,
    }
    miner, problems = None, Problems()
    with problems:
        _check_options(config)
    with problems:
        if config.HasField('hard_example_miner'):
            miner = build_hard_example_miner(
                config.hard_example_miner, config.classification_loss, **weights
            )
    with problems:
        localization = build_localization(config.localization_loss)
    with problems:
        classification = _build(config.classification_loss, 'classification_loss', (CLASSES,))
    with problems:
        federated = build_federated(config.classification_loss)
    with problems:
        sampler = _random_example_sampler(config)
    with problems:
        expected = _expected_loss_weights(config)
    problems.raise_if_any()
    facts = find_facts(config.localization_loss, 'localization_loss', options_pb2.loss)
    return Losses(
        localization=_of_anchors(localization),
        compares_boxes=facts.compares_boxes or getattr(localization, 'compares', None) == BOXES,
        classification=classification,
        hard_example_miner=miner,
        random_example_sampler=sampler,
        expected_loss_weights=expected,
        federated=federated,
        **weights,
    )


def _check_options(config: losses_pb2.Loss) -> None:
    name = config.DESCRIPTOR.full_name
    if config.equalization_loss.weight:
        raise UserError(
            f'{name}.equalization_loss.weight: the loss is not defined, as the reference reads it '
            f'and never computes it; expected 0. Received: {config.equalization_loss.weight:g}.'
        )
    loss, oneof = config.classification_loss, 'classification_loss'
    if not find_facts(loss, oneof, options_pb2.loss).is_of_all_anchors:
        return
    for field in _NEED_ANCHORS:
        if config.HasField(field) and getattr(config, field) != losses_pb2.Loss.NONE:
            raise UserError(
                f'{name}.{field} needs a loss of each anchor; expected another classification loss '
                f'than {loss.WhichOneof(oneof)}, which compares all anchors of a class at once. '
                'Received: both.'
            )


def _random_example_sampler(config: losses_pb2.Loss) -> RandomExampleSampler | None:
    if not config.HasField('random_example_sampler'):
        return None
    with within(f'{config.DESCRIPTOR.full_name}.random_example_sampler'):
        return RandomExampleSampler(config.random_example_sampler.positive_sample_fraction)


def _expected_loss_weights(config: losses_pb2.Loss) -> ExpectedLossWeights | None:
    if config.expected_loss_weights == losses_pb2.Loss.NONE:
        reading.unused(config, _EXPECTED_FIELDS, _NO_EXPECTATION)
        return None
    for name, message in (
        ('hard_example_miner', config),
        ('federated_loss', config.classification_loss),
    ):
        if message.HasField(name):
            raise expected(config.DESCRIPTOR.full_name, f'{name} or expected_loss_weights', 'both')
    with within(config.DESCRIPTOR.full_name):
        return ExpectedLossWeights(
            _EXPECTATIONS[config.expected_loss_weights],
            negatives_per_positive=config.desired_negative_sampling_ratio,
            min_negatives=config.min_num_negative_samples,
        )


def _of_anchors(loss: LossFunction) -> LossFunction:
    """Returns a localization loss that sums over the code, `[B, N, D], ..., [B, N] -> [B, N]`."""
    if not isinstance(loss, box_losses.L1LocalizationLoss):
        return loss
    return lambda predictions, targets, weights: tf.reduce_sum(
        loss(predictions, targets, weights[..., tf.newaxis]), axis=-1
    )


def _others(config: Message, fact: str) -> str:
    """Returns the options of the only oneof of a message of which a fact is not true."""
    options = {f.name: f.GetOptions() for f in config.DESCRIPTOR.oneofs[0].fields}
    facts = {name: each.Extensions[options_pb2.loss] for name, each in options.items()}
    return ', '.join(sorted(name for name in facts if not getattr(facts[name], fact)))


def _build(config: Any, oneof: str, compared: Sequence[str]) -> LossFunction:
    """Builds the option that is set; `compared` are what a loss of a plug-in may compare."""
    field = config.WhichOneof(oneof)
    try:
        loss = build_oneof(config, oneof, LOSSES)
    except ValueError as error:
        if field in (None, plugins.FIELD):
            raise
        raise UserError(f'{getattr(config, field).DESCRIPTOR.full_name}: {error}') from error
    if field != plugins.FIELD:
        return loss
    compares = getattr(loss, 'compares', CLASSES)
    if compares not in compared:
        raise UserError(
            f'{config.DESCRIPTOR.full_name}.plugin: expected a loss whose attribute `compares` is '
            f'{format_list(compared)}. Received: {config.plugin.name}, which compares {compares}.'
        )
    return PluginLoss(config.plugin.name, loss, compares)


@dataclasses.dataclass(frozen=True)
class PluginLoss:
    """A loss of a plug-in, whose result is checked: a mean would be broadcast in silence.

    Attributes:
      name: its name in the config.
      loss: the loss; it returns [B, N], or [B, N, C] if it compares classes.
      compares: CLASSES, CODES or BOXES.
    """

    name: str
    loss: LossFunction
    compares: str

    def __call__(self, predictions: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns the losses.

        Raises:
          UserError: if they have another shape.
        """
        losses = tf.convert_to_tensor(self.loss(predictions, targets, weights))
        ranks = (2, 3) if self.compares == CLASSES else (2,)
        shapes = [predictions.shape[:rank] for rank in ranks]
        if losses.shape.rank not in ranks or not any(map(losses.shape.is_compatible_with, shapes)):
            raise UserError(
                f'loss {self.name!r}: expected a result of shape {" or ".join(map(str, shapes))}, '
                f'the loss of each anchor. Received: {losses.shape}.'
            )
        return losses
