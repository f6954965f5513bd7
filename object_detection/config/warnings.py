"""Cautions about the components that several families of detectors have."""

from collections.abc import Iterator

from google.protobuf.message import Message

from object_detection.config.walk import among, is_set
from object_detection.protos.losses_pb2 import ClassificationLoss
from object_detection.protos.post_processing_pb2 import PostProcessing

_CONVERTERS = {
    'weighted_softmax': PostProcessing.SOFTMAX,
    'weighted_logits_softmax': PostProcessing.SOFTMAX,
    'weighted_sigmoid': PostProcessing.SIGMOID,
    'weighted_sigmoid_focal': PostProcessing.SIGMOID,
    'bootstrapped_sigmoid': PostProcessing.SIGMOID,
}
_HARD = 'use_hard_nms suppresses outright'
_ONE_TOTAL = 'use_class_agnostic_nms has max_total_detections as its only limit'
_DECAYS = 'soft_nms_sigma lets scores decay; no box is suppressed by its overlap'
_NO_RATIO = 'it widens the limit of max_negatives_per_positive, which is not set'


def suppression(config: Message, post_processing: str) -> Iterator[tuple[str, str]]:
    """Yields paths of fields of a suppression that have no effect, and why.

    Args:
      config: a family's message.
      post_processing: the name of its PostProcessing.
    """
    nms = getattr(config, post_processing).batch_non_max_suppression
    path = f'{post_processing}.batch_non_max_suppression'
    limit = f'{path}.max_detections_per_class'
    if nms.use_class_agnostic_nms and is_set(config, limit, nms.max_total_detections):
        yield limit, _ONE_TOTAL
    if nms.use_hard_nms:
        yield from among(config, [f'{path}.soft_nms_sigma'], _HARD)
    elif nms.soft_nms_sigma > 0:
        yield from among(config, [f'{path}.iou_threshold'], _DECAYS)


def miner(config: Message, path: str) -> Iterator[tuple[str, str]]:
    """Yields paths of fields of the HardExampleMiner at `path` without effect, and why."""
    if not is_set(config, f'{path}.max_negatives_per_positive'):
        yield from among(config, [f'{path}.min_negatives_per_image'], _NO_RATIO)


def converter_of(loss: ClassificationLoss, default: str = '') -> 'PostProcessing.ScoreConverter':
    """Returns what makes scores of the logits that a loss trains; None if that is not known."""
    return _CONVERTERS.get(loss.WhichOneof('classification_loss') or default)


def scores(
    post: PostProcessing,
    path: str,
    loss: ClassificationLoss,
    loss_path: str,
    *,
    converted: str = '',
) -> Iterator[str]:
    """Yields a sentence for each setting that makes scores of another kind than the loss trains.

    Args:
      post: how logits become scores.
      path: path of `post`.
      loss: what trains the logits; weighted_softmax if none is set.
      loss_path: path of `loss`.
      converted: path of the field by which the predictor gives sigmoids in inference; '' for
        logits.
    """
    name = PostProcessing.ScoreConverter.Name
    kind = loss.WhichOneof('classification_loss') or 'weighted_softmax'
    trained, received = converter_of(loss, kind), post.score_converter
    if converted and trained == PostProcessing.SOFTMAX:
        yield (
            f'{converted} is SIGMOID, but {loss_path}.{kind} trains logits whose scores are made '
            'by SOFTMAX.'
        )
    elif converted and received != PostProcessing.IDENTITY:
        yield (
            f'{path}.score_converter is {name(received)}, but {converted} is SIGMOID, which makes '
            'scores already: set IDENTITY.'
        )
    elif not converted and trained not in (None, received):
        yield (
            f'{path}.score_converter is {name(received)}, but {loss_path}.{kind} trains logits '
            f'whose scores are made by {name(trained)}.'
        )
    threshold = post.batch_non_max_suppression.score_threshold
    if threshold >= 1 and (converted or received != PostProcessing.IDENTITY):
        yield (
            f'{path}.batch_non_max_suppression.score_threshold is {threshold:g}, which no score '
            'exceeds: nothing is detected.'
        )
