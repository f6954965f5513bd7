"""The heads of RetinaNet and EfficientDet: convolutions that all levels share."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from object_detection.errors import expected
from object_detection.models.heads.dense_outputs import DenseBoxPredictor, DenseHeadOptions, check
from object_detection.models.hyperparams import SeparableSetup
from object_detection.models.normalization import normalized


@dataclasses.dataclass(frozen=True)
class WeightSharedOptions(DenseHeadOptions):
    """Options of `WeightSharedConvolutionalBoxPredictor`.

    Attributes:
      depth: channels of the towers.
      share_tower: whether boxes and classes share one tower.
      hyperparams_of_heads: whether separable heads have the initializer and the penalty of the
        hyperparameters, in both of their kernels; otherwise they have neither.
      hyperparams_pointwise: whether the 1x1 kernels of separable convolutions in towers have them
        too, not only the depthwise kernels.
      sigmoid_in_inference: see `DenseBoxPredictor.converts_to_probabilities`.
      share_norms: whether all levels share the norms of the towers too.
    """

    depth: int = 0
    share_tower: bool = False
    hyperparams_of_heads: bool = False
    hyperparams_pointwise: bool = False
    sigmoid_in_inference: bool = False
    share_norms: bool = False

    def __post_init__(self):
        super().__post_init__()
        is_right = self.depth >= (1 if self.num_layers else 0)
        check('depth', is_right, 'at least 1 with num_layers_before_predictor', self.depth)


class WeightSharedConvolutionalBoxPredictor(DenseBoxPredictor):
    """Predicts box codes and classes from the levels of a pyramid with the same convolutions.

    RetinaNet (https://arxiv.org/abs/1708.02002): towers of `num_layers` times a convolution, norm
    (if configured) and activation, one for box codes and one for classes unless they share it, then
    a convolution for each. All convolutions are shared by the levels; each level has its own norms,
    unless `share_norms`, as in FCOS (https://arxiv.org/abs/2006.09214).
    Feature maps of different depths first get a 1x1 convolution and norm (if configured) each, to
    the most frequent depth. Unlike in the reference, which then builds no norm at all,
    `sync_batch_norm`, `group_norm` and `layer_norm` are norms as `batch_norm` is.

    The names of the layers, and their keys below `model/_box_predictor/` in the reference's
    checkpoints (i counts the convolutions of a tower, l the levels, both from 0):

        projection_<l>             _additional_projection_layers/<l>/0
        projection_<l>_bn          _additional_projection_layers/<l>/1
        box_tower_<i>              _head_scope_conv_layers/BoxPredictionTower/<i>
        box_tower_<i>_bn_<l>       _base_tower_layers_for_heads/box_encodings/<l>/<3 * i + 1>
        class_tower_<i>            _head_scope_conv_layers/ClassPredictionTower/<i>
        class_tower_<i>_bn_<l>     _base_tower_layers_for_heads/class_predictions_with_background/
                                   <l>/<3 * i + 1>
        tower_<i>                  _head_scope_conv_layers/PredictionTower/<i>, if shared
        tower_<i>_bn_<l>           _base_tower_layers_for_heads/box_encodings/<l>/<3 * i + 1>
        ..._tower_<i>_bn           none; with `share_norms`
        box_codes                  _box_prediction_head/_box_encoder_layers/0
        classes                    _prediction_heads/class_predictions_with_background/
                                   _class_predictor_layers/0, or 1 with dropout

    Its arguments, and their errors, are those of `DenseBoxPredictor`; a further one is an error if
    the levels differ in their number of anchors.
    """

    options_type = WeightSharedOptions

    def __init__(self, num_outputs: int, num_anchors: Sequence[int], **options: Any):
        super().__init__(num_outputs, num_anchors, **options)
        if len(set(num_anchors)) != 1:
            raise expected(
                self.name, 'as many anchors in all levels, which share heads', list(num_anchors)
            )
        if self._options.share_tower:
            self.outputs = tuple(
                dataclasses.replace(output, tower='tower') for output in self.outputs
            )
        names = dict.fromkeys(output.tower for output in self.outputs)
        self._towers = {name: self._tower(name) for name in names}
        self._heads = {
            output.name: self._head(output.name, num_anchors[0] * output.size, output.bias)
            for output in self.outputs
        }

    @property
    def converts_to_probabilities(self) -> bool:
        return self._options.sigmoid_in_inference

    def _build_layers(self, depths):
        channels = depths[0]
        self._projections = []
        if len(set(depths)) > 1:
            # With several most frequent depths, the one that the reference takes.
            channels = max(set(depths), key=depths.count)
            self._projections = [
                self._projection(level, depth, channels) for level, depth in enumerate(depths)
            ]
        for tower in self._towers.values():
            self._build_tower(tower, channels)
        if self._options.num_layers:
            channels = self._options.depth
        for head in self._heads.values():
            head.build((None, None, None, channels))

    def _features(self, level, features, training):
        if self._projections:
            features = normalized(*self._projections[level], features, training)
        return {
            name: self._climb(tower, level, features, training)
            for name, tower in self._towers.items()
        }

    def _maps(self, name, level, features, training):
        return self._heads[name](features)

    def _tower(self, name: str) -> list[tuple[keras.layers.Layer, list[keras.layers.Layer]]]:
        """Returns pairs of a convolution and the norms of the levels."""
        options, pairs = self._options, []
        for i in range(options.num_layers):
            arguments = {'name': f'{name}_{i}', 'use_bias': self._use_bias}
            if options.use_depthwise:
                setup = SeparableSetup.DEPTHWISE
                if options.hyperparams_pointwise:
                    setup = SeparableSetup.BOTH
                build, arguments['setup'] = self._hyperparams.separable_conv, setup
            else:
                build = self._hyperparams.conv
            conv = build(options.depth, options.kernel_size, **arguments)
            levels = range(len(self._num_anchors))
            if options.share_norms:
                norms = [self._norm(f'{name}_{i}_bn')] * len(levels)
            else:
                norms = [self._norm(f'{name}_{i}_bn_{level}') for level in levels]
            pairs.append((conv, norms))
        return pairs

    def _head(self, name: str, outputs: int, bias: float) -> keras.layers.Layer:
        size, options = self._options.kernel_size, {'use_bias': True, 'name': name}
        options['bias_initializer'] = keras.initializers.Constant(bias)
        if not self._options.use_depthwise:
            return self._hyperparams.conv(outputs, size, **options)
        is_set_up = self._options.hyperparams_of_heads
        setup = SeparableSetup.BOTH if is_set_up else SeparableSetup.NEITHER
        return self._hyperparams.separable_conv(outputs, size, setup=setup, **options)

    def _projection(
        self, level: int, channels: int, depth: int
    ) -> tuple[keras.layers.Layer, keras.layers.Layer]:
        name = f'projection_{level}'
        conv = self._hyperparams.conv(depth, 1, name=name, use_bias=self._use_bias)
        norm = self._norm(f'{name}_bn')
        conv.build((None, None, None, channels))
        norm.build((None, None, None, depth))
        return conv, norm

    def _norm(self, name: str) -> keras.layers.Layer:
        return self._hyperparams.norm(frozen=self._is_frozen, name=name)

    @property
    def _use_bias(self) -> bool:
        """Whether convolutions before norms have a bias: as in the reference, with any `center`."""
        hyperparams = self._hyperparams
        return hyperparams.force_use_bias or not hyperparams.has_norm

    def _build_tower(
        self, tower: list[tuple[keras.layers.Layer, list[keras.layers.Layer]]], channels: int
    ) -> None:
        for conv, norms in tower:
            conv.build((None, None, None, channels))
            channels = self._options.depth
            for norm in dict.fromkeys(norms):
                norm.build((None, None, None, channels))

    def _climb(
        self,
        tower: list[tuple[keras.layers.Layer, list[keras.layers.Layer]]],
        level: int,
        features: tf.Tensor,
        training: bool,
    ) -> tf.Tensor:
        """Applies a tower with the norms of a level: [B, H, W, C] -> [B, H, W, depth]."""
        for conv, norms in tower:
            features = self._activation(normalized(conv, norms[level], features, training))
        return features
