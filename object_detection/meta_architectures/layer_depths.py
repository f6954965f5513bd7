"""How deep below the heads the layers of a backbone lie, for layer-wise decay of learning rates."""

from collections.abc import Iterator, Sequence

import keras

from object_detection.errors import UserError
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.system import private_names

_FIELD = 'train_config.optimizer.layer_decay'
# What has more kernels than these, and more than this share of all of a backbone, is no block: its
# layers lie at many depths, which the graph does not order.
_MAX_KERNELS = 8
_MAX_SHARE = 1 / 3


def of_variables(detector: DetectionModel) -> dict[str, int]:
    """Returns the depth of each variable of the backbone by name: 1 for the last block.

    A block is a part of the graph that one map enters and one leaves, with at least one kernel.
    Layers without a kernel, such as norms, belong to the block before them. A stage over crops
    continues the backbone. Layers that the last map does not depend on are as deep as what they
    depend on.

    Args:
      detector: with all variables built.

    Raises:
      UserError: if the blocks of the backbone do not follow one another.
    """
    parts = detector.parts()
    first, *others = detector.variable_names.backbone_parts
    if not isinstance(parts.get(first), keras.Function):
        raise _not_ordered(f'one of {detector.name} that is no functional model of Keras')
    # Over a pyramid, what follows it is a head.
    above = [parts[name] for name in others if name in parts and 'fpn' not in parts]
    blocks: dict[int, int] = {}
    count = 0
    for model in [parts[first], *above]:
        for layer, block in _blocks(model) if isinstance(model, keras.Function) else ():
            blocks |= {id(each.value): count + block for each in getattr(layer, 'weights', ())}
        count = max(blocks.values(), default=0)
    named = detector.named_variables()
    return {
        name: count + 1 - blocks[id(value)] for name, value in named.items() if id(value) in blocks
    }


def _blocks(model: keras.Function) -> Iterator[tuple[keras.layers.Layer, int]]:
    """Yields each layer, and the number of its block, counted from 1 at the image.

    Raises:
      UserError: as `of_variables`.
    """
    calls = private_names.calls_in(model)
    layers = [call.layer for call in calls if _weights(call)]
    for layer in layers:
        if layers.count(layer) > 1:
            raise _not_ordered(f'one that calls its layer {layer.name} several times')
    blocks: list[list[private_names.Call]] = [[]]
    for segment in _segments(_calls_to(calls, model.outputs[-1])):
        if _num_kernels(segment) and _num_kernels(blocks[-1]):
            blocks.append([])
        blocks[-1] += segment
    sizes = [_num_kernels(block) for block in blocks]
    if max(sizes) > max(_MAX_KERNELS, _MAX_SHARE * sum(sizes)):
        raise _not_ordered(f'one with {max(sizes)} of {sum(sizes)} kernels in parallel')
    numbers = {id(call.layer): number for number, block in enumerate(blocks, 1) for call in block}
    of_maps: dict[int, int] = {}
    for call in calls:
        below = max((of_maps[id(each)] for each in call.inputs), default=1)
        number = numbers.get(id(call.layer), below)
        of_maps |= dict.fromkeys(map(id, call.outputs), number)
        yield call.layer, number


def _calls_to(calls: Sequence[private_names.Call], output: keras.KerasTensor) -> list:
    """Returns those of the calls, inputs first, that an output depends on."""
    needed, found = {id(output)}, []
    for call in reversed(calls):
        if needed.intersection(map(id, call.outputs)):
            needed.update(map(id, call.inputs))
            found.append(call)
    return found[::-1]


def _segments(calls: Sequence[private_names.Call]) -> Iterator[list[private_names.Call]]:
    """Cuts calls wherever all that follow depend on a single map of those before."""
    last_use = {id(each): place for place, call in enumerate(calls) for each in call.inputs}
    segment, alive = [], set()
    for place, call in enumerate(calls):
        segment.append(call)
        alive.update(map(id, call.outputs))
        alive = {each for each in alive if last_use.get(each, -1) > place}
        if len(alive) <= 1:
            yield segment
            segment = []


def _weights(call: private_names.Call) -> list[keras.Variable]:
    return getattr(call.layer, 'weights', [])


def _num_kernels(calls: Sequence[private_names.Call]) -> int:
    """Returns the number of layers with a kernel, a variable with more axes than one."""
    return sum(any(len(each.shape) > 1 for each in _weights(call)) for call in calls)


def _not_ordered(reason: str) -> UserError:
    return UserError.expected(_FIELD, 'a backbone whose blocks follow one another', reason)
