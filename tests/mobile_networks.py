"""The variables of mobile networks in checkpoints of TensorFlow 1, from tables of their own.

Columns of the tables: the scope of a block, the size of its kernel, its channels of the input,
within it and of the output, and those of squeezed maps, if there are any. A star marks a block of
fused convolutions.
"""

Shapes = dict[str, tuple[int, ...]]

_V3_LARGE = """
Conv 3 3 - 16
expanded_conv 3 16 16 16
expanded_conv_1 3 16 64 24
expanded_conv_2 3 24 72 24
expanded_conv_3 5 24 72 40 24
expanded_conv_4 5 40 120 40 32
expanded_conv_5 5 40 120 40 32
expanded_conv_6 3 40 240 80
expanded_conv_7 3 80 200 80
expanded_conv_8 3 80 184 80
expanded_conv_9 3 80 184 80
expanded_conv_10 3 80 480 112 120
expanded_conv_11 3 112 672 112 168
expanded_conv_12 5 112 672 80 168
expanded_conv_13 5 80 480 80 120
expanded_conv_14 5 80 480 80 120
Conv_1 1 80 - 480
"""
_V3_SMALL = """
Conv 3 3 - 16
expanded_conv 3 16 16 16 8
expanded_conv_1 3 16 72 24
expanded_conv_2 3 24 88 24
expanded_conv_3 5 24 96 40 24
expanded_conv_4 5 40 240 40 64
expanded_conv_5 5 40 240 40 64
expanded_conv_6 5 40 120 48 32
expanded_conv_7 5 48 144 48 40
expanded_conv_8 5 48 288 48 72
expanded_conv_9 5 48 288 48 72
expanded_conv_10 5 48 288 48 72
Conv_1 1 48 - 288
"""
_EDGETPU = """
Conv 3 3 - 32
expanded_conv* 1 32 32 16
expanded_conv_1* 3 16 128 32
expanded_conv_2* 3 32 128 32
expanded_conv_3* 3 32 128 32
expanded_conv_4* 3 32 128 32
expanded_conv_5* 3 32 256 48
expanded_conv_6* 3 48 192 48
expanded_conv_7* 3 48 192 48
expanded_conv_8* 3 48 192 48
expanded_conv_9 3 48 384 96
expanded_conv_10 3 96 384 96
expanded_conv_11 3 96 384 96
expanded_conv_12 3 96 384 96
expanded_conv_13 3 96 768 96
expanded_conv_14 3 96 384 96
expanded_conv_15 3 96 384 96
expanded_conv_16 3 96 384 96
expanded_conv_17 5 96 768 160
expanded_conv_18 5 160 640 160
expanded_conv_19 5 160 640 160
expanded_conv_20 5 160 640 160
expanded_conv_21 3 160 1280 192
"""
_CPU = """
Conv 3 3 - 16
IBNNoExpansion 3 16 16 8 8
IBN 3 8 32 16 8
IBN_1 3 16 128 32 32
IBN_2 3 32 128 32 32
IBN_3 3 32 128 32 32
IBN_4 3 32 128 32 32
IBN_5 5 32 256 72 64
IBN_6 3 72 576 72 144
IBN_7 5 72 288 72 72
IBN_8 3 72 288 72 72
IBN_9 3 72 576 72 144
IBN_10 3 72 576 72 144
IBN_11 3 72 576 72 144
IBN_12 3 72 576 72 144
IBN_13 5 72 576 104 144
IBN_14 5 104 416 104 104
IBN_15 5 104 416 104 104
IBN_16 3 104 416 104 104
IBN_17 3 104 832 144 208
"""
_DSP = """
Conv 3 3 - 32
IBNNoExpansion 3 32 32 24
FusedConv 3 24 96 32
FusedConv_1 3 32 128 32
IBN 3 32 128 32
TuckerConv 3 32 8/24 32
FusedConv_2 3 32 256 64
IBN_1 3 64 256 64
FusedConv_3 3 64 256 64
FusedConv_4 3 64 256 64
FusedConv_5 3 64 512 120
IBN_2 3 120 480 120
IBN_3 3 120 960 120
IBN_4 3 120 960 120
FusedConv_6 3 120 960 144
IBN_5 3 144 1152 144
IBN_6 3 144 1152 144
IBN_7 3 144 1152 144
IBN_8 3 144 576 160
IBN_9 3 160 640 160
FusedConv_7 3 160 640 160
TuckerConv_1 3 160 120/120 160
IBN_10 3 160 1280 240
"""
_DET_EDGETPU = """
Conv 3 3 - 32
TuckerConv 3 32 8/16 16
FusedConv 3 16 128 16
FusedConv_1 3 16 64 16
FusedConv_2 3 16 128 16
FusedConv_3 3 16 64 16
FusedConv_4 5 16 128 40
FusedConv_5 3 40 160 40
FusedConv_6 3 40 160 40
FusedConv_7 3 40 160 40
IBN 3 40 320 72
IBN_1 3 72 576 72
FusedConv_8 3 72 288 72
FusedConv_9 3 72 288 72
IBN_2 5 72 576 96
IBN_3 5 96 768 96
IBN_4 3 96 768 96
IBN_5 3 96 768 96
IBN_6 5 96 768 120
IBN_7 3 120 960 120
IBN_8 5 120 480 120
IBN_9 3 120 960 120
IBN_10 5 120 960 384
"""
_GPU = """
Conv 3 3 - 32
TuckerConv 3 32 8/8 16
FusedConv 3 16 128 32
TuckerConv_1 3 32 8/8 32
TuckerConv_2 3 32 8/8 32
TuckerConv_3 3 32 8/8 32
FusedConv_1 3 32 256 64
FusedConv_2 3 64 512 64
FusedConv_3 3 64 512 64
FusedConv_4 3 64 256 64
FusedConv_5 3 64 512 128
FusedConv_6 3 128 512 128
FusedConv_7 3 128 512 128
FusedConv_8 3 128 512 128
FusedConv_9 3 128 1024 128
FusedConv_10 3 128 1024 128
FusedConv_11 3 128 1024 128
FusedConv_12 3 128 1024 128
FusedConv_13 3 128 512 128
FusedConv_14 3 128 512 128
FusedConv_15 3 128 512 128
FusedConv_16 3 128 512 128
IBN 3 128 1024 384
"""
# Backbone -> scope, table, and the scope and channels of the two maps of SSD.
NETWORKS = {
    'mobilenet_v3_large': ('MobilenetV3', _V3_LARGE, 'layer_17', (672, 480)),
    'mobilenet_v3_small': ('MobilenetV3', _V3_SMALL, 'layer_13', (288, 288)),
    'mobilenet_edgetpu': ('MobilenetEdgeTPU', _EDGETPU, 'layer_23', (384, 192)),
    'mobiledet_cpu': ('MobileDetCPU', _CPU, 'C5', (72, 144)),
    'mobiledet_dsp': ('MobileDetDSP', _DSP, 'C5', (144, 240)),
    'mobiledet_edgetpu': ('MobileDetEdgeTPU', _DET_EDGETPU, 'C5', (96, 384)),
    'mobiledet_gpu': ('MobileDetGPU', _GPU, 'C5', (128, 384)),
}
_FILTERS = (512, 256, 256, 128)


def backbone(name: str) -> Shapes:
    """Key -> shape of the variables of a backbone of `NETWORKS`, with a factor of 1."""
    scope, table, *_ = NETWORKS[name]
    block_keys = _mobiledet_block if scope.startswith('MobileDet') else _v3_block
    keys: Shapes = {}
    for line in table.strip().split('\n'):
        block, kernel_size, inputs, inner, outputs, *squeezed = line.split()
        size, ends = int(kernel_size), (int(inputs), int(outputs))
        if inner == '-':
            found = convolution(block, size, *ends)
        else:
            found = block_keys(block, size, ends, [*map(int, inner.split('/'))], squeezed)
        keys |= {f'FeatureExtractor/{scope}/{key}': shape for key, shape in found.items()}
    return keys


def _v3_block(
    block: str, size: int, ends: tuple[int, int], inner: list[int], squeezed: list[str]
) -> Shapes:
    (inputs, outputs), (width,), is_fused = ends, inner, block.endswith('*')
    block = block.rstrip('*')
    keys = {}
    if width > inputs:
        keys |= convolution(f'{block}/expand', size if is_fused else 1, inputs, width)
    if not is_fused:
        keys |= depthwise(f'{block}/depthwise', size, width)
    for count in squeezed:
        keys |= _squeeze(f'{block}/squeeze_excite', width, int(count))
    return keys | convolution(f'{block}/project', 1, width, outputs)


def _mobiledet_block(
    block: str, size: int, ends: tuple[int, int], inner: list[int], squeezed: list[str]
) -> Shapes:
    (inputs, outputs), kind = ends, block.partition('_')[0]
    last = f'{block}/Conv_2' if kind == 'TuckerConv' else f'{block}/Conv_1'
    if kind == 'IBNNoExpansion':
        keys, last = {}, f'{block}/Conv'
    else:
        keys = convolution(f'{block}/Conv', size if kind == 'FusedConv' else 1, inputs, inner[0])
    if kind == 'TuckerConv':
        keys |= convolution(f'{block}/Conv_1', size, *inner)
    if kind.startswith('IBN'):
        keys |= depthwise(f'{block}/SeparableConv2d', size, inner[0])
    for count in squeezed:
        keys |= _squeeze(f'{block}/SqueezeExcite', inner[0], int(count))
    return keys | convolution(last, 1, inner[-1], outputs)


def extra_maps(name: str, *, separable: bool = True) -> Shapes:
    """Key -> shape of the maps after those of the backbone, with a factor of 1."""
    scope, _, base, (_, channels) = NETWORKS[name]
    return maps_after(f'FeatureExtractor/{scope}/{base}', channels, _FILTERS, separable=separable)


def maps_after(
    base: str,
    channels: int,
    filters: tuple[int, ...],
    *,
    separable: bool,
    last_kernel_size: int = 3,
) -> Shapes:
    """Key -> shape of the maps after two of `channels` channels; `base` begins their scopes."""
    keys: Shapes = {}
    for index, depth in enumerate(filters, start=2):
        size = last_kernel_size if index == len(filters) + 1 else 3
        squeezed = f'{base}_1_Conv2d_{index}_1x1_{depth // 2}'
        strided = f'{base}_2_Conv2d_{index}_{size}x{size}_s2_{depth}'
        keys |= convolution(squeezed, 1, channels, depth // 2)
        if separable:
            keys |= depthwise(f'{strided}_depthwise', size, depth // 2)
        keys |= convolution(strided, 1 if separable else size, depth // 2, depth)
        channels = depth
    return keys


def predictor(channels: tuple[int, ...], num_classes: int, anchors: tuple[int, ...]) -> Shapes:
    """Key -> shape of separable 3x3 heads of each map, with a background class."""
    keys: Shapes = {}
    for index, (count, boxes) in enumerate(zip(channels, anchors, strict=True)):
        for kind, outputs in (('BoxEncoding', 4), ('Class', num_classes + 1)):
            scope = f'BoxPredictor_{index}/{kind}Predictor'
            keys |= depthwise(f'{scope}_depthwise', 3, count)
            keys[f'{scope}/weights'] = (1, 1, count, boxes * outputs)
            keys[f'{scope}/biases'] = (boxes * outputs,)
    return keys


def convolution(scope: str, size: int, inputs: int, outputs: int) -> Shapes:
    return {f'{scope}/weights': (size, size, inputs, outputs), **_norm(scope, outputs)}


def depthwise(scope: str, size: int, channels: int) -> Shapes:
    return {f'{scope}/depthwise_weights': (size, size, channels, 1), **_norm(scope, channels)}


def _norm(scope: str, channels: int) -> Shapes:
    names = ('gamma', 'beta', 'moving_mean', 'moving_variance')
    return {f'{scope}/BatchNorm/{name}': (channels,) for name in names}


def _squeeze(scope: str, channels: int, squeezed: int) -> Shapes:
    return {
        f'{scope}/Conv/weights': (1, 1, channels, squeezed),
        f'{scope}/Conv/biases': (squeezed,),
        f'{scope}/Conv_1/weights': (1, 1, squeezed, channels),
        f'{scope}/Conv_1/biases': (channels,),
    }
