"""MobileNet v2 (https://arxiv.org/abs/1801.04381) as a functional Keras model.

Layers are named as in `keras.applications`. As in the reference implementation, padding is SAME
unless `Options` say otherwise (`keras.applications` pads layers of stride 2 as the size of their
input requires).
"""

import dataclasses
from collections.abc import Mapping, Sequence

import keras

from object_detection.errors import expected
from object_detection.models import image_channels, rounding
from object_detection.models.backbones import mobilenet
from object_detection.models.backbones.mobilenet import Layers, Options, round_to_eights
from object_detection.models.backbones.table import Backbone, BackboneOptions
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.image_values import to_unit
from object_detection.models.normalization import BatchNormParams

# Names of outputs: the end of a block, the expansion in a block, and the last convolution.
LAST = 'out_relu'
BEFORE_LAST_STRIDE = 'block_13_expand_relu'
# Level l, of stride 2**l -> the last output of that stride (of level 4, of few channels).
LEVELS = {2: 'block_2', 3: 'block_5', 4: 'block_12', 5: LAST}

_FIRST_FILTERS = 32
_LAST_FILTERS = 1280
# Under a pyramid with separable convolutions.
_THIN_FILTERS = 256
# Factor of the channels within a block; block 0 has no expansion.
_EXPANSION = 6
# Channels of the blocks 0 to 16.
_FILTERS = (16, *[24] * 2, *[32] * 3, *[64] * 4, *[96] * 3, *[160] * 3, 320)
# Blocks that halve the resolution.
_STRIDED = (1, 3, 6, 13)
_DEFAULTS = Options()


def trunk(
    outputs: Sequence[str],
    *,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
    options: Options = _DEFAULTS,
    last_filters: int = _LAST_FILTERS,
    depthwise: LayerHyperparams | None = None,
    is_slim: bool = False,
) -> keras.Model:
    """Builds the network from the image up to the last of `outputs`.

    Numbers of channels are multiplied by the options' factor and rounded to multiples of 8; those
    at the end do not become more.

    Args:
      outputs: names of outputs, in the order of the layers: `block_<i>` is the end of block i, and
        `block_<i>_expand_relu` lies within it; or LAST.
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.
      name: name of the model.
      options: variant of the network.
      last_filters: channels at the end, before the factor of the options.
      depthwise: set-up of the depthwise convolutions; None is that of all layers.
      is_slim: whether it is the network of TF-Slim: numbers of channels are no whole numbers before
        they are rounded, and blocks whose number the minimum of the options raises have a shortcut
        too.

    Returns:
      A model from images [B, H, W, 3] to a list of [B, ceil(H / stride), ceil(W / stride), C].

    Raises:
      ValueError: if there is no such output.
    """
    layers = Layers(hyperparams, batch_norm_trainable, options)
    images = keras.Input((None, None, image_channels.current()), name='images')
    depth = max(round_to_eights(_FIRST_FILTERS * options.depth_multiplier), options.min_depth)
    x = layers.conv_norm(images, depth, 3, strides=2, name='Conv1', norm_name='bn_Conv1')
    x = layers.activate(x, name='Conv1_relu')
    ends = {}
    for block in range(len(_FILTERS)):
        x = _block(layers, x, block, ends, depthwise, is_slim)
    ends[LAST] = _last(layers, x, last_filters)
    if not outputs or list(outputs) != [end for end in ends if end in outputs]:
        raise expected('MobileNet v2', f'some of {", ".join(ends)}, in order', list(outputs))
    return keras.Model(images, [ends[output] for output in outputs], name=name)


def _block(
    layers: Layers,
    x,
    block: int,
    ends: dict,
    hyperparams: LayerHyperparams | None,
    is_slim: bool,
):
    """Appends an inverted residual block and adds its outputs to `ends`."""
    name = f'block_{block}' if block else 'expanded_conv'
    inputs = x
    if block:
        expanded = _EXPANSION * x.shape[-1]
        x = layers.conv_norm(x, expanded, 1, name=f'{name}_expand', norm_name=f'{name}_expand_BN')
        x = layers.activate(x, name=f'{name}_expand_relu')
        ends[f'{name}_expand_relu'] = x
    strides = 2 if block in _STRIDED else 1
    depthwise = f'{name}_depthwise'
    x = layers.depthwise_norm(
        x,
        strides=strides,
        name=depthwise,
        norm_name=f'{depthwise}_BN',
        hyperparams=hyperparams,
    )
    x = layers.activate(x, name=f'{depthwise}_relu')
    channels = _FILTERS[block] * layers.options.depth_multiplier
    filters = round_to_eights(channels if is_slim else int(channels))
    depth = max(filters, layers.options.min_depth)
    x = layers.conv_norm(x, depth, 1, name=f'{name}_project', norm_name=f'{name}_project_BN')
    # As in the reference, a number of channels that `min_depth` raises usually has no shortcut.
    if strides == 1 and inputs.shape[-1] == depth and (is_slim or filters == depth):
        x = rounding.Add(name=f'{name}_add')([inputs, x])
    ends[f'block_{block}'] = x
    return x


def _last(layers: Layers, x, filters: int):
    """Appends the convolution after the blocks."""
    depth = round_to_eights(filters * min(layers.options.depth_multiplier, 1.0))
    depth = max(depth, layers.options.min_depth)
    x = layers.conv_norm(x, depth, 1, name='Conv_1', norm_name='Conv_1_bn')
    return layers.activate(x, name=LAST)


def _row(outputs: Mapping[int, str], *, thins: bool = False) -> Backbone:
    def network(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        thin = {'last_filters': _THIN_FILTERS} if thins and options.is_thin else {}
        return trunk([outputs[level] for level in levels], **mobilenet.arguments(options), **thin)

    return mobilenet.row(network)


MOBILENET_V2 = _row(LEVELS)
MOBILENET_V2_SLIM = _row(LEVELS, thins=True)
MOBILENET_V2_EXPANDED = _row(LEVELS | {4: BEFORE_LAST_STRIDE})
# Of the reference's CenterNet, which takes the network of keras.applications.
MOBILENET_V2_CENTER_NET = dataclasses.replace(
    _row(LEVELS | {4: 'block_9'}),
    normalize=to_unit,
    hyperparams=LayerHyperparams(
        activation='relu6', batch_norm=BatchNormParams(momentum=0.999, epsilon=1e-3, scale=True)
    ),
    uses=frozenset({'depth_multiplier'}),
)


def _mnasfpn(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
    outputs, depthwise = LEVELS | {5: 'block_16'}, options.hyperparams
    if not options.is_overridden:
        initializer = keras.initializers.TruncatedNormal(stddev=SEPARABLE_STDDEV)
        depthwise = dataclasses.replace(depthwise, initializer=initializer)
    return trunk(
        [outputs[level] for level in levels],
        depthwise=depthwise,
        is_slim=True,
        **mobilenet.arguments(options),
    )


# Of depthwise and separable convolutions of MnasFPN and of the network under it.
SEPARABLE_STDDEV = 0.536
# Of the reference's MnasFPN under TensorFlow 1: its last map is that of the last block.
MOBILENET_V2_MNASFPN = dataclasses.replace(
    mobilenet.row(_mnasfpn),
    hyperparams=LayerHyperparams(
        initializer=keras.initializers.HeNormal(),
        regularizer=L2(0.5 * 4e-5),
        activation='relu6',
        batch_norm=BatchNormParams(momentum=0.99, epsilon=0.01, scale=True),
    ),
)
