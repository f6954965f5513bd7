"""What checkpoints of TensorFlow 1 hold, from the facts on the reference: key -> shape.

Nothing here asks the package: tables are those of the facts.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

Shapes = dict[str, tuple[int, ...]]
NORM = ('beta', 'gamma', 'moving_mean', 'moving_variance')


def norm(scope: str, depth: int) -> Shapes:
    return {f'{scope}/{name}': (depth,) for name in NORM}


def conv(scope: str, size: int | tuple[int, int], before: int, depth: int) -> Shapes:
    """A convolution and its norm."""
    height, width = size if isinstance(size, tuple) else (size, size)
    weights = {f'{scope}/weights': (height, width, before, depth)}
    return weights | norm(f'{scope}/BatchNorm', depth)


def depthwise(scope: str, size: int, depth: int) -> Shapes:
    """A depthwise convolution and its norm."""
    return {f'{scope}/depthwise_weights': (size, size, depth, 1)} | norm(
        f'{scope}/BatchNorm', depth
    )


def separable(scope: str, size: int, before: int, depth: int, multiplier: int = 1) -> Shapes:
    """A depthwise convolution and one of size 1, without a norm."""
    return {
        f'{scope}/depthwise_weights': (size, size, before, multiplier),
        f'{scope}/pointwise_weights': (1, 1, before * multiplier, depth),
    }


def biased(scope: str, size: int, before: int, depth: int) -> Shapes:
    return {f'{scope}/weights': (size, size, before, depth), f'{scope}/biases': (depth,)}


def truncated(multiplier: float, least: int = 16) -> Callable[[int], int]:
    """Returns the rule of numbers of channels of an Inception."""
    return lambda depth: max(int(depth * multiplier), least)


# Inception. A line is a branch: convolutions whose names end with their size, and their channels;
# two with a plus see the same map. 'pool' keeps the channels of the block before.
Depth = Callable[[int], int]
INCEPTION_V2 = """
Mixed_3b 0: Conv2d_0a_1x1 64
Mixed_3b 1: Conv2d_0a_1x1 64, Conv2d_0b_3x3 64
Mixed_3b 2: Conv2d_0a_1x1 64, Conv2d_0b_3x3 96, Conv2d_0c_3x3 96
Mixed_3b 3: Conv2d_0b_1x1 32
Mixed_3c 0: Conv2d_0a_1x1 64
Mixed_3c 1: Conv2d_0a_1x1 64, Conv2d_0b_3x3 96
Mixed_3c 2: Conv2d_0a_1x1 64, Conv2d_0b_3x3 96, Conv2d_0c_3x3 96
Mixed_3c 3: Conv2d_0b_1x1 64
Mixed_4a 0: Conv2d_0a_1x1 128, Conv2d_1a_3x3 160
Mixed_4a 1: Conv2d_0a_1x1 64, Conv2d_0b_3x3 96, Conv2d_1a_3x3 96
Mixed_4a 2: pool
Mixed_4b 0: Conv2d_0a_1x1 224
Mixed_4b 1: Conv2d_0a_1x1 64, Conv2d_0b_3x3 96
Mixed_4b 2: Conv2d_0a_1x1 96, Conv2d_0b_3x3 128, Conv2d_0c_3x3 128
Mixed_4b 3: Conv2d_0b_1x1 128
Mixed_4c 0: Conv2d_0a_1x1 192
Mixed_4c 1: Conv2d_0a_1x1 96, Conv2d_0b_3x3 128
Mixed_4c 2: Conv2d_0a_1x1 96, Conv2d_0b_3x3 128, Conv2d_0c_3x3 128
Mixed_4c 3: Conv2d_0b_1x1 128
Mixed_4d 0: Conv2d_0a_1x1 160
Mixed_4d 1: Conv2d_0a_1x1 128, Conv2d_0b_3x3 160
Mixed_4d 2: Conv2d_0a_1x1 128, Conv2d_0b_3x3 160, Conv2d_0c_3x3 160
Mixed_4d 3: Conv2d_0b_1x1 96
Mixed_4e 0: Conv2d_0a_1x1 96
Mixed_4e 1: Conv2d_0a_1x1 128, Conv2d_0b_3x3 192
Mixed_4e 2: Conv2d_0a_1x1 160, Conv2d_0b_3x3 192, Conv2d_0c_3x3 192
Mixed_4e 3: Conv2d_0b_1x1 96
Mixed_5a 0: Conv2d_0a_1x1 128, Conv2d_1a_3x3 192
Mixed_5a 1: Conv2d_0a_1x1 192, Conv2d_0b_3x3 256, Conv2d_1a_3x3 256
Mixed_5a 2: pool
Mixed_5b 0: Conv2d_0a_1x1 352
Mixed_5b 1: Conv2d_0a_1x1 192, Conv2d_0b_3x3 320
Mixed_5b 2: Conv2d_0a_1x1 160, Conv2d_0b_3x3 224, Conv2d_0c_3x3 224
Mixed_5b 3: Conv2d_0b_1x1 128
Mixed_5c 0: Conv2d_0a_1x1 352
Mixed_5c 1: Conv2d_0a_1x1 192, Conv2d_0b_3x3 320
Mixed_5c 2: Conv2d_0a_1x1 192, Conv2d_0b_3x3 224, Conv2d_0c_3x3 224
Mixed_5c 3: Conv2d_0b_1x1 128
"""
_WIDE = """
{block} 0: Conv2d_0a_1x1 192
{block} 1: Conv2d_0a_1x1 {m}, Conv2d_0b_1x7 {m}, Conv2d_0c_7x1 192
{block} 2: Conv2d_0a_1x1 {m}, Conv2d_0b_7x1 {m}, Conv2d_0c_1x7 {m}, Conv2d_0d_7x1 {m}, \
Conv2d_0e_1x7 192
{block} 3: Conv2d_0b_1x1 192
"""
INCEPTION_V3 = f"""
Mixed_5b 0: Conv2d_0a_1x1 64
Mixed_5b 1: Conv2d_0a_1x1 48, Conv2d_0b_5x5 64
Mixed_5b 2: Conv2d_0a_1x1 64, Conv2d_0b_3x3 96, Conv2d_0c_3x3 96
Mixed_5b 3: Conv2d_0b_1x1 32
Mixed_5c 0: Conv2d_0a_1x1 64
Mixed_5c 1: Conv2d_0b_1x1 48, Conv_1_0c_5x5 64
Mixed_5c 2: Conv2d_0a_1x1 64, Conv2d_0b_3x3 96, Conv2d_0c_3x3 96
Mixed_5c 3: Conv2d_0b_1x1 64
Mixed_5d 0: Conv2d_0a_1x1 64
Mixed_5d 1: Conv2d_0a_1x1 48, Conv2d_0b_5x5 64
Mixed_5d 2: Conv2d_0a_1x1 64, Conv2d_0b_3x3 96, Conv2d_0c_3x3 96
Mixed_5d 3: Conv2d_0b_1x1 64
Mixed_6a 0: Conv2d_1a_1x1 384
Mixed_6a 1: Conv2d_0a_1x1 64, Conv2d_0b_3x3 96, Conv2d_1a_1x1 96
Mixed_6a 2: pool
{_WIDE.format(block='Mixed_6b', m=128)}
{_WIDE.format(block='Mixed_6c', m=160)}
{_WIDE.format(block='Mixed_6d', m=160)}
{_WIDE.format(block='Mixed_6e', m=192)}
Mixed_7a 0: Conv2d_0a_1x1 192, Conv2d_1a_3x3 320
Mixed_7a 1: Conv2d_0a_1x1 192, Conv2d_0b_1x7 192, Conv2d_0c_7x1 192, Conv2d_1a_3x3 192
Mixed_7a 2: pool
Mixed_7b 0: Conv2d_0a_1x1 320
Mixed_7b 1: Conv2d_0a_1x1 384, Conv2d_0b_1x3 384 + Conv2d_0b_3x1 384
Mixed_7b 2: Conv2d_0a_1x1 448, Conv2d_0b_3x3 384, Conv2d_0c_1x3 384 + Conv2d_0d_3x1 384
Mixed_7b 3: Conv2d_0b_1x1 192
Mixed_7c 0: Conv2d_0a_1x1 320
Mixed_7c 1: Conv2d_0a_1x1 384, Conv2d_0b_1x3 384 + Conv2d_0c_3x1 384
Mixed_7c 2: Conv2d_0a_1x1 448, Conv2d_0b_3x3 384, Conv2d_0c_1x3 384 + Conv2d_0d_3x1 384
Mixed_7c 3: Conv2d_0b_1x1 192
"""
# These names say another size.
_REALLY_3X3 = ('Mixed_6a/Branch_0/Conv2d_1a_1x1', 'Mixed_6a/Branch_1/Conv2d_1a_1x1')


def inception_v2(depth: Depth) -> tuple[Shapes, dict[str, int]]:
    """Returns the variables, and the channels of each block."""
    first = depth(64)
    stem = separable('Conv2d_1a_7x7', 7, 3, first, multiplier=min(first // 3, 8))
    stem |= norm('Conv2d_1a_7x7/BatchNorm', first)
    stem |= conv('Conv2d_2b_1x1', 1, first, first) | conv('Conv2d_2c_3x3', 3, first, depth(192))
    return _inception(INCEPTION_V2, stem, depth)


def inception_v3(depth: Depth) -> tuple[Shapes, dict[str, int]]:
    """Returns the variables, and the channels of each block."""
    stem, before = {}, 3
    filters = {'1a_3x3': 32, '2a_3x3': 32, '2b_3x3': 64, '3b_1x1': 80, '4a_3x3': 192}
    for name, nominal in filters.items():
        stem |= conv(f'Conv2d_{name}', _size(name), before, depth(nominal))
        before = depth(nominal)
    return _inception(INCEPTION_V3, stem, depth)


def _inception(table: str, stem: Shapes, depth: Depth) -> tuple[Shapes, dict[str, int]]:
    shapes, channels, before, block = dict(stem), {}, depth(192), ''
    for line in filter(None, table.splitlines()):
        place, _, steps = line.partition(': ')
        if place.split()[0] != block:
            before = channels.get(block, before)
            block = place.split()[0]
            channels[block] = 0
        branch = place.split()[1]
        if steps == 'pool':
            channels[block] += before
            continue
        inner = before
        for step in steps.split(', '):
            depths = []
            for each in step.split(' + '):
                name, filters = each.split()
                scope = f'{block}/Branch_{branch}/{name}'
                size = (3, 3) if scope in _REALLY_3X3 else _size(name)
                shapes |= conv(scope, size, inner, depth(int(filters)))
                depths.append(depth(int(filters)))
            inner = sum(depths)
        channels[block] += inner
    return shapes, channels


def _size(name: str) -> tuple[int, int]:
    height, width = re.search(r'(\d)x(\d)$', name).groups()
    return int(height), int(width)


def extras(
    base: str, before: int, first: int, filters: Iterable[int], depth: Depth
) -> tuple[Shapes, list[int]]:
    """The maps of SSD after those of a backbone: variables, and channels of the maps."""
    shapes, channels = {}, []
    for index, nominal in enumerate(filters, start=first):
        half, full = depth(nominal // 2), depth(nominal)
        shapes |= conv(f'{base}_1_Conv2d_{index}_1x1_{half}', 1, before, half)
        shapes |= conv(f'{base}_2_Conv2d_{index}_3x3_s2_{full}', 3, half, full)
        channels.append(full)
        before = full
    return shapes, channels


def box_predictors(channels: Sequence[int], anchors: Sequence[int], classes: int) -> Shapes:
    """Predictors of 3x3 for each map; `classes` with background."""
    shapes = {}
    for i, (depth, count) in enumerate(zip(channels, anchors, strict=True)):
        shapes |= biased(f'BoxPredictor_{i}/BoxEncodingPredictor', 3, depth, 4 * count)
        shapes |= biased(f'BoxPredictor_{i}/ClassPredictor', 3, depth, classes * count)
    return shapes


def within(scope: str, shapes: Mapping[str, tuple[int, ...]]) -> Shapes:
    return {f'{scope}/{key}': shape for key, shape in shapes.items()}


# NASNet-A. Separable convolutions of a cell: side of a sum, size, and the state that it sees.
NORMAL = '0 left 5 0, 0 right 3 1, 1 left 5 1, 1 right 3 1, 4 left 3 0'
REDUCTION = '0 left 5 0, 0 right 7 1, 1 right 7 1, 2 right 5 1, 4 left 3 2'


def nasnet(
    cells: int, filters: int, stem_filters: int, *, first: str = '', second: str = ''
) -> Shapes:
    """All variables without the classifier; `first` and `second` are the scopes of the stages."""
    shapes = {f'{first}conv0/weights': (3, 3, 3, stem_filters)}
    shapes |= norm(f'{first}conv0_bn', stem_filters)
    # Of the last two cells: channels and stride.
    previous, current = None, (stem_filters, 2)

    def add(name: str, table: str, depth: int, *, skips: bool = False) -> None:
        nonlocal previous, current
        is_reduction = table is REDUCTION
        shapes.update(_cell(name, table, depth, previous, current))
        made = (
            depth * (4 if is_reduction else 6),
            current[1] * (2 if is_reduction else 1),
        )
        previous, current = previous if skips else current, made

    add(f'{first}cell_stem_0', REDUCTION, filters // 4)
    add(f'{first}cell_stem_1', REDUCTION, filters // 2)
    for stage in range(3):
        scope = second if stage == 2 else first
        if stage:
            name = f'{scope}reduction_cell_{stage - 1}'
            add(name, REDUCTION, filters * 2**stage, skips=True)
        for i in range(cells):
            add(f'{scope}cell_{stage * cells + i}', NORMAL, filters * 2**stage)
    return shapes


def _cell(
    name: str, table: str, depth: int, previous: tuple[int, int] | None, current: tuple[int, int]
) -> Shapes:
    shapes = {f'{name}/1x1/weights': (1, 1, current[0], depth)}
    shapes |= norm(f'{name}/beginning_bn', depth)
    inner = [depth, depth if previous else current[0], depth]
    if previous and previous[1] != current[1]:
        for i, half in ((1, depth // 2), (2, depth - depth // 2)):
            shapes[f'{name}/path{i}_conv/weights'] = (1, 1, previous[0], half)
        shapes |= norm(f'{name}/final_path_bn', depth)
    elif previous and previous[0] != depth:
        shapes[f'{name}/prev_1x1/weights'] = (1, 1, previous[0], depth)
        shapes |= norm(f'{name}/prev_bn', depth)
    for operation in table.split(', '):
        number, side, size, state = operation.split()
        before = inner[int(state)]
        for i in (1, 2):
            scope = f'{name}/comb_iter_{number}/{side}'
            kind = f'{size}x{size}_{i}'
            shapes |= separable(f'{scope}/separable_{kind}', int(size), before, depth)
            shapes |= norm(f'{scope}/bn_sep_{kind}', depth)
            before = depth
    return shapes


def dense(scope: str, before: int, depth: int) -> Shapes:
    return {f'{scope}/weights': (before, depth), f'{scope}/biases': (depth,)}


# MobileNet v2 up to its last block: stride, input, inner width and output of each block.
MOBILENET_V2 = (
    (1, 32, 32, 16), (2, 16, 96, 24), (1, 24, 144, 24), (2, 24, 144, 32), (1, 32, 192, 32),
    (1, 32, 192, 32), (2, 32, 192, 64), (1, 64, 384, 64), (1, 64, 384, 64), (1, 64, 384, 64),
    (1, 64, 384, 96), (1, 96, 576, 96), (1, 96, 576, 96), (2, 96, 576, 160), (1, 160, 960, 160),
    (1, 160, 960, 160), (1, 160, 960, 320),
)  # fmt: skip
# MnasFPN: inputs, their levels, level, size, inner width. Nodes 0 to 3 are of the levels 3 to 6.
MNASFPN = (
    ((1, 2), (4, 5), 4, 3, 256),
    ((0, 4), (3, 4), 3, 3, 128),
    ((5, 4), (3, 4), 4, 3, 128),
    ((4, 3), (4, 6), 5, 5, 128),
    ((4, 3), (4, 6), 6, 3, 96),
)


def mobilenet_v2() -> Shapes:
    shapes = conv('Conv', 3, 3, 32)
    for i, (_, before, inner, depth) in enumerate(MOBILENET_V2):
        scope = f'expanded_conv_{i}' if i else 'expanded_conv'
        if i:
            shapes |= conv(f'{scope}/expand', 1, before, inner)
        shapes |= depthwise(f'{scope}/depthwise', 3, inner)
        shapes |= conv(f'{scope}/project', 1, inner, depth)
    return shapes


def mnasfpn(
    channels: Sequence[int], depth: int, rounded: Callable[[int], int] = lambda depth: depth
) -> Shapes:
    """The cells on maps of the levels 3 to 5 with these channels."""
    shapes = conv('C6_Conv1x1', 1, channels[-1], depth)
    nodes = [*channels, depth]
    for cell in range(4):
        nodes = nodes if cell == 0 else [depth] * 4
        for i, (inputs, _, _, size, inner) in enumerate(MNASFPN):
            scope = f'cell_{cell}/block_{i}'
            for j, node in enumerate(inputs):
                shapes |= conv(f'{scope}/input_{j}/Conv1x1', 1, nodes[node], rounded(inner))
            shapes |= separable(f'{scope}/SepConv', size, rounded(inner), depth)
            shapes |= norm(f'{scope}/SepConv/BatchNorm', depth)
            nodes = [*nodes, depth]
    return shapes


def shared_predictor(
    maps: int, before: int, depth: int, layers: int, anchors: int, k: int
) -> Shapes:
    """A weight-shared predictor whose separable tower boxes and classes share, with its norms."""
    scope = 'WeightSharedConvolutionalBoxPredictor'
    shapes = {}
    for layer in range(layers):
        tower = f'{scope}/PredictionTower/conv2d_{layer}'
        shapes |= separable(tower, 3, before if layer == 0 else depth, depth)
        for i in range(maps):
            shapes |= norm(f'{tower}/BatchNorm/feature_{i}', depth)
    for name, outputs in (('BoxPredictor', 4 * anchors), ('ClassPredictor', k * anchors)):
        shapes |= separable(f'{scope}/{name}', 3, depth, outputs)
        shapes[f'{scope}/{name}/biases'] = (outputs,)
    return shapes
