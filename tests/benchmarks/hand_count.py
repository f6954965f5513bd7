"""Floating point operations of the Mask R-CNN recipe, by hand: products and sums of every layer."""

_CLASSES = 90
_CHANNELS = 256
# Blocks and width of each stage of ResNet-50.
_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
# Forward, the gradient of the weights, the gradient of the input.
_FORWARD, _WEIGHTS, _ALL = 1, 2, 3


def inference(height: int, width: int, proposals: int = 1000, detections: int = 100) -> int:
    """One image."""
    return (
        _stem(height, width)
        + sum(_stage(height, width, index, _FORWARD, _FORWARD) for index in range(4))
        + _pyramid(height, width, _FORWARD, _FORWARD)
        + proposals * _box()
        + detections * _mask()
    )


def training(height: int, width: int, rois: int = 512, mask_rois: int = 128) -> int:
    """One image; the stem and the first stage are frozen, and the input of what follows is too."""
    stages = [_stage(height, width, 0, _FORWARD, _FORWARD)]
    stages += [_stage(height, width, 1, _WEIGHTS, _ALL)]
    stages += [_stage(height, width, index, _ALL, _ALL) for index in (2, 3)]
    return (
        _stem(height, width)
        + sum(stages)
        + _pyramid(height, width, _WEIGHTS, _ALL)
        + _ALL * (rois * _box() + mask_rois * _mask())
    )


def _stem(height: int, width: int) -> int:
    return _convolution(_pixels(height, width, 1), 7, 3, 64)


def _stage(height: int, width: int, index: int, first: int, others: int) -> int:
    """`first`: how often the layers count that see the stage's input."""
    blocks, depth = _STAGES[index]
    inputs = 64 if index == 0 else 2 * depth
    # The stride is in the second layer, so the first sees the stage's input as it is.
    large = _pixels(height, width, index + 2 if index == 0 else index + 1)
    small = _pixels(height, width, index + 2)
    total = first * _convolution(large, 1, inputs, depth)
    total += first * _convolution(small, 1, inputs, 4 * depth)
    total += others * _convolution(small, 3, depth, depth)
    total += others * _convolution(small, 1, depth, 4 * depth)
    per_block = (
        _convolution(small, 1, 4 * depth, depth)
        + _convolution(small, 3, depth, depth)
        + _convolution(small, 1, depth, 4 * depth)
    )
    return total + others * (blocks - 1) * per_block


def _pyramid(height: int, width: int, finest: int, others: int) -> int:
    """The feature pyramid and the proposal head. `finest`: the projection of the first stage."""
    total = 0
    for level in range(2, 7):
        pixels = _pixels(height, width, level)
        if level < 6:
            depth = 4 * _STAGES[level - 2][1]
            total += (finest if level == 2 else others) * _convolution(pixels, 1, depth, _CHANNELS)
            total += others * _convolution(pixels, 3, _CHANNELS, _CHANNELS)
        head = _convolution(pixels, 3, _CHANNELS, _CHANNELS)
        # Three anchors a pixel: one logit and four numbers each.
        total += others * (head + _convolution(pixels, 1, _CHANNELS, 3 * (1 + 4)))
    return total


def _box() -> int:
    return 2 * (7 * 7 * _CHANNELS * 1024 + 1024 * 1024 + 1024 * (_CLASSES + 1 + 4 * _CLASSES))


def _mask() -> int:
    convolutions = 4 * _convolution(14 * 14, 3, _CHANNELS, _CHANNELS)
    deconvolution = 2 * 14 * 14 * _CHANNELS * (2 * 2 * _CHANNELS)
    return convolutions + deconvolution + _convolution(28 * 28, 1, _CHANNELS, _CLASSES)


def _pixels(height: int, width: int, level: int) -> int:
    return -(-height // 2**level) * -(-width // 2**level)


def _convolution(pixels: int, side: int, inputs: int, outputs: int) -> int:
    return 2 * pixels * side * side * inputs * outputs
