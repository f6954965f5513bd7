"""Warnings about the components that several families of detectors have."""

from collections.abc import Iterator

from object_detection.config.oneof import find_facts
from object_detection.protos import options_pb2
from object_detection.protos.losses_pb2 import ClassificationLoss
from object_detection.protos.post_processing_pb2 import PostProcessing


def converter_of(
    loss: ClassificationLoss, default: str = ''
) -> 'PostProcessing.ScoreConverter | None':
    """Returns what makes scores of the logits that a loss trains; None if that is not known."""
    name = find_facts(loss, 'classification_loss', options_pb2.loss, default).score_converter
    return PostProcessing.ScoreConverter.Value(name) if name else None


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
