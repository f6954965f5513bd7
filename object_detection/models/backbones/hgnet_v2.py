"""HGNetV2, the backbone of D-FINE (https://arxiv.org/abs/2410.13842), as functional Keras models.

A block computes a row of convolutions, concatenates its input with the results of all of them, and
reduces the channels by two convolutions of size 1. The network is that of transformers, `hgnet_v2`,
for all of its options. Layers are padded alike on both sides, except for those of size 2 in the
stem, which are padded at the bottom and right.
"""

import dataclasses
from collections.abc import Sequence

import keras

from object_detection.errors import expected
from object_detection.models import image_channels, map_strides, rounding
from object_detection.models.backbones.resnet_d import UNIT, check_indices, end_activation
from object_detection.models.backbones.resnet_v1 import StopGradient
from object_detection.models.backbones.table import TRUNK_NAME, Backbone, BackboneOptions
from object_detection.models.hyperparams import LayerHyperparams, SeparableSetup, of_pytorch
from object_detection.models.normalization import LearnableAffine, normalized

# Fields of a spec that have one value for each stage: numbers, then flags.
_NUMBERS = (
    *('stage_in_channels', 'stage_mid_channels', 'stage_out_channels', 'stage_num_blocks'),
    *('stage_downsample_strides', 'stage_kernel_size', 'stage_numb_of_layers'),
)
_FLAGS = ('stage_downsample', 'stage_light_block')


@dataclasses.dataclass(frozen=True, kw_only=True)
class HgNetV2Spec:
    """An HGNetV2; the names are those of transformers' configs.

    Attributes:
      stem_channels: channels of the images, for which those of the detector are taken, of the inner
        convolutions of the stem, and of its last one.
      stem_strides: strides of the convolutions stem1, stem2a, stem2b, stem3 and stem4.
      stage_in_channels: channels of the input of each stage: those of the output of the one before.
      stage_mid_channels: channels of the convolutions in a row.
      stage_out_channels: channels of the output.
      stage_num_blocks: number of blocks; all but the first add their input to their output.
      stage_downsample: whether the stage begins with a depthwise convolution.
      stage_downsample_strides: stride of that convolution.
      stage_light_block: whether the convolutions in a row are pairs: one of size 1 and a depthwise
        one.
      stage_kernel_size: size of the convolutions in a row, an odd number.
      stage_numb_of_layers: how many they are.
      use_learnable_affine_block: whether a learnt factor and offset, each one number, follow the
        activations.
      activation: of the stem, as transformers calls it (`hidden_act`); in stages it is that of the
        hyperparameters, a ReLU.
    """

    stem_channels: Sequence[int] = (3, 32, 48)
    stem_strides: Sequence[int] = (2, 1, 1, 2, 1)
    stage_in_channels: Sequence[int] = (48, 128, 512, 1024)
    stage_mid_channels: Sequence[int] = (48, 96, 192, 384)
    stage_out_channels: Sequence[int] = (128, 512, 1024, 2048)
    stage_num_blocks: Sequence[int] = (1, 1, 3, 1)
    stage_downsample: Sequence[bool] = (False, True, True, True)
    stage_downsample_strides: Sequence[int] = (2, 2, 2, 2)
    stage_light_block: Sequence[bool] = (False, False, True, True)
    stage_kernel_size: Sequence[int] = (3, 3, 5, 5)
    stage_numb_of_layers: Sequence[int] = (6, 6, 6, 6)
    use_learnable_affine_block: bool = False
    activation: str = 'relu'

    def __post_init__(self):
        count = len(self.stage_in_channels)
        for field in (*_NUMBERS, *_FLAGS):
            values = getattr(self, field)
            self._check(field, len(values) == count > 0, 'one value for each stage')
            self._check(field, field in _FLAGS or min(values) > 0, 'at least 1')
        self._check(
            'stem_channels',
            len(self.stem_channels) == 3 and min(self.stem_channels[1:]) > 1,
            'three numbers: channels of the images, of inner and of last convolutions',
        )
        self._check(
            'stem_strides',
            len(self.stem_strides) == 5 and tuple(self.stem_strides[1:3]) == (1, 1),
            'five numbers, of which the second and third are 1',
        )
        self._check(
            'stage_kernel_size',
            all(size % 2 for size in self.stage_kernel_size),
            'odd numbers, since maps of other sizes cannot be concatenated',
        )
        inputs = [self.stem_channels[-1], *self.stage_out_channels[:-1]]
        self._check(
            'stage_in_channels',
            list(self.stage_in_channels) == inputs,
            f'the channels of what is before each stage, {inputs}',
        )

    def _check(self, field: str, holds: bool, wanted: str) -> None:
        if not holds:
            raise expected(f'HGNetV2: {field}', wanted, list(getattr(self, field)))

    def stride(self, index: int) -> int:
        """Returns the stride of a map; 0 is the one after the stem, i that of the i-th stage."""
        fields = (self.stem_strides, self.stage_downsample, self.stage_downsample_strides)
        return map_strides.hgnet_v2(*fields)[index]

    def channels(self, index: int) -> int:
        """Returns the number of channels of a map; see `stride`."""
        return self.stage_out_channels[index - 1] if index else self.stem_channels[2]


def default_hyperparams(weight_decay: float = 0.0) -> LayerHyperparams:
    """Returns the hyperparameters of the network: the initial values of PyTorch's convolutions.

    Args:
      weight_decay: factor of the sum of squares of the kernels.
    """
    initializer = keras.initializers.VarianceScaling(1 / 3, 'fan_in', 'uniform')
    return of_pytorch(initializer, weight_decay)


def network(spec: HgNetV2Spec, out_indices: Sequence[int], options: BackboneOptions) -> keras.Model:
    """Builds an HGNetV2 from the image up to the last of its maps.

    Args:
      spec: the network.
      out_indices: ascending: the maps to return. 0 is the one after the stem, i that of the i-th
        stage.
      options: as for `resnet_d.network`.

    Returns:
      A model named 'backbone' from images [B, H, W, C] to a list of
      [B, ceil(H / stride), ceil(W / stride), C'].

    Raises:
      UserError: if there is no such map, or the activation is not known.
    """
    check_indices('HGNetV2', out_indices, len(spec.stage_in_channels))
    frozen_stages = options.settings.get('frozen_stages', 0)
    builders = [_Builder(spec, options, trainable=is_trained) for is_trained in (False, True)]
    images = keras.Input((None, None, image_channels.current()), name='images')
    x, maps = images, []
    for index in range(out_indices[-1] + 1):
        x = builders[index >= frozen_stages].part(x, index)
        if index < frozen_stages:
            x = StopGradient(name=f'part{index}_frozen')(x)
        maps.append(x)
    return keras.Model(images, [maps[index] for index in out_indices], name=TRUNK_NAME)


class _Builder:
    """Appends the parts of a network.

    Args:
      spec, options: as for `network`.
      trainable: False freezes all layers.
    """

    def __init__(self, spec: HgNetV2Spec, options: BackboneOptions, trainable: bool):
        self._spec = spec
        self._hyperparams = options.hyperparams
        activation = end_activation('HGNetV2: activation', spec.activation, options)
        self._of_stem = dataclasses.replace(options.hyperparams, activation=activation)
        self._is_frozen = not (trainable and options.batch_norm_trainable)
        self._trainable = trainable

    def part(self, x, index: int):
        """Appends the stem, 0, or the stage with a number from 1 on."""
        if index == 0:
            return self._stem(x)
        spec, i, name = self._spec, index - 1, f'stage{index}'
        if spec.stage_downsample[i]:
            strides = spec.stage_downsample_strides[i]
            x = self._depthwise(x, 3, f'{name}_downsample', strides)
        for block in range(1, spec.stage_num_blocks[i] + 1):
            y = self._block(x, i, f'{name}_block{block}')
            x = y if block == 1 else rounding.Add(name=f'{name}_block{block}_add')([y, x])
        return x

    def _stem(self, x):
        _, inner, last = self._spec.stem_channels
        first, _, _, third, fourth = self._spec.stem_strides
        x = self._conv(x, inner, 3, 'stem1', first, self._of_stem)
        x = _pad_end(x, 'stem2a_pad')
        y = self._conv(x, inner // 2, 2, 'stem2a', 1, self._of_stem)
        y = self._conv(_pad_end(y, 'stem2b_pad'), inner, 2, 'stem2b', 1, self._of_stem)
        x = rounding.MaxPooling2D(2, strides=1, padding='valid', name='stem2_pool')(x)
        x = rounding.Concatenate(name='stem2_concat')([x, y])
        x = self._conv(x, inner, 3, 'stem3', third, self._of_stem)
        return self._conv(x, last, 1, 'stem4', fourth, self._of_stem)

    def _block(self, x, i: int, name: str):
        """Appends a block of the stage counted from 0."""
        spec, maps = self._spec, [x]
        filters, size = spec.stage_mid_channels[i], spec.stage_kernel_size[i]
        for layer in range(1, spec.stage_numb_of_layers[i] + 1):
            scope = f'{name}_layer{layer}'
            if spec.stage_light_block[i]:
                x = self._norm_conv(x, filters, 1, f'{scope}_pointwise')
                x = self._depthwise(x, size, f'{scope}_depthwise')
                x = self._activate(x, f'{scope}_depthwise', self._hyperparams)
            else:
                x = self._conv(x, filters, size, scope)
            maps.append(x)
        x = rounding.Concatenate(name=f'{name}_concat')(maps)
        filters = spec.stage_out_channels[i]
        x = self._conv(x, filters // 2, 1, f'{name}_aggregation1')
        return self._conv(x, filters, 1, f'{name}_aggregation2')

    def _conv(
        self,
        x,
        filters: int,
        size: int,
        name: str,
        strides: int = 1,
        hyperparams: LayerHyperparams | None = None,
    ):
        """Convolution, norm, activation and, with a learnable affine block, this."""
        x = self._norm_conv(x, filters, size, name, strides)
        return self._activate(x, name, hyperparams or self._hyperparams)

    def _norm_conv(self, x, filters: int, size: int, name: str, strides: int = 1):
        x, padding = _padded(x, size, strides, name)
        conv = self._hyperparams.conv(
            filters,
            size,
            strides=strides,
            padding=padding,
            trainable=self._trainable,
            name=f'{name}_conv',
        )
        return normalized(conv, self._norm(name), x)

    def _depthwise(self, x, size: int, name: str, strides: int = 1):
        """Depthwise convolution and norm."""
        x, padding = _padded(x, size, strides, name)
        conv = self._hyperparams.depthwise_conv(
            size,
            setup=SeparableSetup.DEPTHWISE,
            strides=strides,
            padding=padding,
            trainable=self._trainable,
            name=f'{name}_conv',
        )
        return normalized(conv, self._norm(name), x)

    def _norm(self, name: str) -> keras.layers.Layer:
        return self._hyperparams.norm(
            frozen=self._is_frozen, trainable=self._trainable, name=f'{name}_bn'
        )

    def _activate(self, x, name: str, hyperparams: LayerHyperparams):
        x = hyperparams.activation_layer(name=f'{name}_relu')(x)
        if not self._spec.use_learnable_affine_block:
            return x
        return LearnableAffine(trainable=self._trainable, name=f'{name}_lab')(x)


def _padded(x, size: int, strides: int, name: str):
    """Returns a map and the padding of a convolution that together pad it alike on both sides.

    Those of size 2 are not padded.
    """
    before = (size - 1) // 2
    if before and strides > 1:
        return rounding.ZeroPadding2D(before, name=f'{name}_pad')(x), 'valid'
    return x, 'same' if before else 'valid'


def _pad_end(x, name: str):
    return rounding.ZeroPadding2D(((0, 1), (0, 1)), name=name)(x)


_USES = frozenset({'frozen_stages', 'freeze_affine', 'preprocess'})


def _row(stem: int, *stages: tuple[int, int, int], layers: int, affine: bool) -> Backbone:
    """Returns a row.

    Args:
      stem: inner channels of the stem.
      *stages: channels of the inputs and of the convolutions in a row, and number of blocks.
      layers: number of convolutions in a row.
      affine: whether there are learnable affine blocks.
    """
    inputs, mids, blocks = zip(*stages, strict=True)
    outputs = (*inputs[1:], 2 * inputs[-1])
    spec = HgNetV2Spec(
        stem_channels=(3, stem, inputs[0]),
        stage_in_channels=inputs,
        stage_mid_channels=mids,
        stage_out_channels=outputs,
        stage_num_blocks=blocks,
        stage_kernel_size=(3, 3, 5, 5),
        stage_numb_of_layers=(layers,) * 4,
        use_learnable_affine_block=affine,
    )

    def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        return network(spec, [level - 1 for level in levels], options)

    return Backbone(trunk, range(2, 6), UNIT, default_hyperparams(1e-4), uses=_USES)


HGNET_V2_B0 = _row(16, (16, 16, 1), (64, 32, 1), (256, 64, 2), (512, 128, 1), layers=3, affine=True)
HGNET_V2_B1 = _row(24, (32, 32, 1), (64, 48, 1), (256, 96, 2), (512, 192, 1), layers=3, affine=True)
HGNET_V2_B2 = _row(
    24, (32, 32, 1), (96, 64, 1), (384, 128, 3), (768, 256, 1), layers=4, affine=True
)
HGNET_V2_B3 = _row(
    24, (32, 32, 1), (128, 64, 1), (512, 128, 3), (1024, 256, 1), layers=5, affine=True
)
HGNET_V2_B4 = _row(
    32, (48, 48, 1), (128, 96, 1), (512, 192, 3), (1024, 384, 1), layers=6, affine=False
)
HGNET_V2_B5 = _row(
    32, (64, 64, 1), (128, 128, 2), (512, 256, 5), (1024, 512, 2), layers=6, affine=False
)
HGNET_V2_B6 = _row(
    48, (96, 96, 2), (192, 192, 3), (512, 384, 6), (1024, 768, 3), layers=6, affine=False
)
