"""The heads of SSD: convolutions of their own for each feature map."""

import dataclasses

import keras

from object_detection.models.heads.dense_outputs import DenseBoxPredictor, DenseHeadOptions, check
from object_detection.models.hyperparams import SeparableSetup
from object_detection.models.normalization import normalized


@dataclasses.dataclass(frozen=True)
class ConvolutionalOptions(DenseHeadOptions):
    """Options of `ConvolutionalBoxPredictor`.

    Attributes:
      min_depth, max_depth: bounds of the channels of the layers before the heads, which otherwise
        keep the channels of their feature map: max(min(channels, max_depth), min_depth). There are
        no such layers where the result is 0.
    """

    kernel_size: int = 1
    min_depth: int = 0
    max_depth: int = 0

    def __post_init__(self):
        super().__post_init__()
        check('min_depth', self.min_depth >= 0, '0 or more', self.min_depth)
        check('max_depth', self.max_depth >= 0, '0 or more', self.max_depth)


class ConvolutionalBoxPredictor(DenseBoxPredictor):
    """Predicts box codes and classes from each feature map (SSD, https://arxiv.org/abs/1512.02325).

    For each level: `num_layers` times a 1x1 convolution, norm (if configured) and activation; then
    a convolution for the box codes and one for the classes. With `use_depthwise`, each of these two
    is a depthwise convolution, norm and activation, then a 1x1 convolution. As in the reference,
    the depthwise kernels have neither the initializer nor the penalty of the hyperparameters, and
    `class_bias` does not apply to depthwise heads.

    The names of the layers of level l, and their keys below `model/_box_predictor/` in the
    reference's checkpoints (i counts the layers before the heads, from 0; all indices of layers
    are greater by 1 in class heads with dropout):

        shared_<l>_<i>             _shared_nets/<l>/<3 * i>
        shared_<l>_<i>_bn          _shared_nets/<l>/<3 * i + 1>
        box_codes_<l>_depthwise    _prediction_heads/box_encodings/<l>/_box_encoder_layers/0
        box_codes_<l>_depthwise_bn                                     .../_box_encoder_layers/1
        box_codes_<l>              .../_box_encoder_layers/3, or 0 without depthwise convolutions
        classes_<l>[...]           _prediction_heads/class_predictions_with_background/<l>/
                                   _class_predictor_layers/<as of the boxes>

    Without a norm, the reference lists an identity in its place, so that the indices are the same.

    Its arguments, and their errors, are those of `DenseBoxPredictor`.
    """

    options_type = ConvolutionalOptions

    def _build_layers(self, depths):
        # The layers before the heads have the channels of their maps.
        self._shared = []
        self._heads = {output.name: [] for output in self.outputs}
        for level, (channels, anchors) in enumerate(zip(depths, self._num_anchors, strict=True)):
            self._shared.append(self._build_shared(level, channels))
            if self._shared[-1]:
                channels = self._shared[-1][-1][0].filters
            for output in self.outputs:
                name, numbers = f'{output.name}_{level}', anchors * output.size
                head = self._build_head(name, numbers, channels, output.bias)
                self._heads[output.name].append(head)

    def _features(self, level, features, training):
        for conv, norm in self._shared[level]:
            features = self._activation(normalized(conv, norm, features, training))
        return {output.tower: features for output in self.outputs}

    def _maps(self, name, level, features, training):
        *depthwise, conv = self._heads[name][level]
        if depthwise:
            features = self._activation(normalized(*depthwise, features, training))
        return conv(features)

    def _build_shared(
        self, level: int, channels: int
    ) -> list[tuple[keras.layers.Layer, keras.layers.Layer]]:
        options = self._options
        depth = max(min(channels, options.max_depth), options.min_depth)
        pairs = []
        for i in range(options.num_layers if depth else 0):
            conv = self._hyperparams.conv(depth, 1, name=f'shared_{level}_{i}')
            pairs.append((conv, self._build_with_norm(conv, channels, depth)))
            channels = depth
        return pairs

    def _build_head(
        self, name: str, outputs: int, channels: int, bias: float
    ) -> list[keras.layers.Layer]:
        """Returns the last convolution, after a depthwise one and its norm if there is one."""
        options = {'use_bias': True, 'name': name}
        if not self._options.use_depthwise:
            conv = self._hyperparams.conv(
                outputs,
                self._options.kernel_size,
                bias_initializer=keras.initializers.Constant(bias),
                **options,
            )
            conv.build((None, None, None, channels))
            return [conv]
        depthwise = self._hyperparams.depthwise_conv(
            self._options.kernel_size, name=f'{name}_depthwise', setup=SeparableSetup.NEITHER
        )
        norm = self._build_with_norm(depthwise, channels, channels)
        conv = self._hyperparams.conv(outputs, 1, **options)
        conv.build((None, None, None, channels))
        return [depthwise, norm, conv]

    def _build_with_norm(
        self, conv: keras.layers.Layer, channels: int, filters: int
    ) -> keras.layers.Layer:
        """Builds a convolution, and returns its norm, which is built too."""
        norm = self._hyperparams.norm(frozen=self._is_frozen, name=f'{conv.name}_bn')
        conv.build((None, None, None, channels))
        norm.build((None, None, None, filters))
        return norm
