"""The names of the losses of detection transformers; loads no TensorFlow."""

from collections.abc import Iterator

from object_detection.protos.detr_pb2 import Detr, DetrQueries

CLASS, L1, GIOU = 'class', 'l1', 'giou'
FINE_GRAINED, DISTILLATION = 'fine_grained', 'distillation'
_MAIN = (CLASS, L1, GIOU)


def full_name(kind: str, suffix: str = '') -> str:
    """Returns the name of a kind of loss; the suffix says of which predictions."""
    return f'Loss/{kind}{suffix}'


def auxiliary(layer: int) -> str:
    """Returns the suffix of the losses of a layer of the decoder that is not the last."""
    return f'/layer_{layer}'


def denoising(layer: int) -> str:
    """Returns the suffix of the losses of noisy queries in a layer."""
    return f'/denoising_{layer}'


# Suffixes of the losses of the queries' selection, and of D-FINE's boxes before distributions.
SELECTION, FIRST = '/selection', '/first'


def names(config: Detr) -> Iterator[str]:
    """Yields the names of the losses of a training."""
    queries, layers = config.queries, config.decoder.num_layers
    is_fine = config.decoder.HasField('fine_distributions')
    is_paired = is_fine and config.loss.pairs_layers
    last = (*_MAIN, FINE_GRAINED) if is_paired else _MAIN
    earlier = (*_MAIN, FINE_GRAINED, DISTILLATION) if is_fine else _MAIN
    sets = [('', last)]
    if config.loss.auxiliary:
        sets += [(auxiliary(i), earlier) for i in range(layers - 1)]
        sets += [(FIRST, _MAIN)] if is_paired else []
        sets += [(SELECTION, _MAIN)] if queries.boxes != DetrQueries.NONE else []
        if queries.denoising and queries.boxes == DetrQueries.SELECTED:
            sets += [(denoising(i), earlier) for i in range(layers - 1)]
            sets += [(denoising(layers - 1), last if is_paired else earlier)]
    for suffix, kinds in sets:
        yield from (full_name(kind, suffix) for kind in kinds)
