"""The heads of RetinaNet and EfficientDet: convolutions that all levels share."""

import dataclasses
from collections.abc import Sequence

import keras
import tensorflow as tf

from object_detection.errors import UserError
from object_detection.models.hyperparams import LayerHyperparams, SeparableSetup
from object_detection.models.normalization import normalized
from object_detection.predictors.dense_outputs import (
    DenseHeadOptions,
    anchor_rows,
    check,
    clip_codes,
    drop,
)


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
      sigmoid_in_inference: whether class outputs in inference are probabilities, not logits.
    """

    depth: int = 0
    share_tower: bool = False
    hyperparams_of_heads: bool = False
    hyperparams_pointwise: bool = False
    sigmoid_in_inference: bool = False

    def __post_init__(self):
        super().__post_init__()
        is_right = self.depth >= (1 if self.num_layers else 0)
        check('depth', is_right, 'at least 1 with num_layers_before_predictor', self.depth)


class WeightSharedConvolutionalBoxPredictor(keras.layers.Layer):
    """Predicts box codes and classes from the levels of a pyramid with the same convolutions.

    RetinaNet (https://arxiv.org/abs/1708.02002): towers of `num_layers` times a convolution, norm
    (if configured) and activation, one for box codes and one for classes unless they share it, then
    a convolution for each. All convolutions are shared by the levels; each level has its own norms.
    Feature maps of different depths first get a 1x1 convolution and norm (if configured) each, to
    the most frequent depth. Unlike in the reference, which then builds no norm at all,
    `sync_batch_norm` and `group_norm` are norms as `batch_norm` is.

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
        box_codes                  _box_prediction_head/_box_encoder_layers/0
        classes                    _prediction_heads/class_predictions_with_background/
                                   _class_predictor_layers/0, or 1 with dropout

    Args:
      num_outputs: number of logits of an anchor, the background included if there is one.
      num_anchors: number of anchors of a cell, one entry per level; they must be equal.
      hyperparams: hyperparameters of all convolutions.
      options: the options of towers and heads.
      batch_norm_trainable: False freezes the norms.

    Raises:
      ValueError: if the levels differ in their number of anchors, or a number is not positive; when
        called, for another number of feature maps.
    """

    def __init__(
        self,
        num_outputs: int,
        num_anchors: Sequence[int],
        *,
        hyperparams: LayerHyperparams,
        options: WeightSharedOptions | None = None,
        batch_norm_trainable: bool = True,
        name: str = 'box_predictor',
    ):
        super().__init__(name=name)
        if len(set(num_anchors)) != 1 or min(num_outputs, *num_anchors) < 1:
            raise UserError(
                f'{name}: expected at least one output, and the same number of anchors in a cell '
                'of each level, since the levels share their heads. '
                f'Received: {num_outputs} outputs, anchors per level {list(num_anchors)}.'
            )
        self._num_outputs, self._num_levels = num_outputs, len(num_anchors)
        self._hyperparams = hyperparams
        self._options = options or WeightSharedOptions()
        self._is_frozen = not batch_norm_trainable
        self._activation = hyperparams.activation_layer(name='activation')
        self._box_tower = self._tower('tower' if self._options.share_tower else 'box_tower')
        self._class_tower = None if self._options.share_tower else self._tower('class_tower')
        (anchors,) = set(num_anchors)
        self._box_head = self._head('box_codes', anchors * self._options.code_size)
        self._class_head = self._head('classes', anchors * num_outputs, self._options.class_bias)

    def build(self, maps_shape):
        if len(maps_shape) != self._num_levels:
            raise UserError(
                f'{self.name}: expected {self._num_levels} feature maps, as many as the anchor '
                f'generator has levels. Received: {len(maps_shape)}.'
            )
        depths = [shape[-1] for shape in maps_shape]
        channels = depths[0]
        self._projections = []
        if len(set(depths)) > 1:
            # With several most frequent depths, the one that the reference takes.
            channels = max(set(depths), key=depths.count)
            self._projections = [
                self._projection(level, depth, channels) for level, depth in enumerate(depths)
            ]
        for tower in filter(None, (self._box_tower, self._class_tower)):
            self._build_tower(tower, channels)
        if self._options.num_layers:
            channels = self._options.depth
        for head in (self._box_head, self._class_head):
            head.build((None, None, None, channels))

    def call(self, maps, training=False, seeds=None):
        """Predicts for all anchors.

        Args:
          maps: one feature map [B, H, W, C] per level, fine to coarse.
          training: whether dropout and norms act as in training.
          seeds: int32 [B, 2], a seed of dropout for each image; None draws from the global
            generator.

        Returns:
          Box codes float32 [B, N, D] and class logits float32 [B, N, `num_outputs`], in the order
          level, y, x, anchor of the cell. In inference with `sigmoid_in_inference`, probabilities
          replace the logits.
        """
        options, codes, logits = self._options, [], []
        for level, features in enumerate(maps):
            if self._projections:
                features = normalized(*self._projections[level], features, training)
            for_boxes = self._climb(self._box_tower, level, features, training)
            for_classes = for_boxes
            if self._class_tower is not None:
                for_classes = self._climb(self._class_tower, level, features, training)
            if training and options.dropout_rate:
                for_classes = drop(for_classes, options.dropout_rate, seeds, level)
            codes.append(anchor_rows(self._box_head(for_boxes), options.code_size))
            logits.append(anchor_rows(self._class_head(for_classes), self._num_outputs))
        codes, logits = tf.concat(codes, axis=1), tf.concat(logits, axis=1)
        if options.sigmoid_in_inference and not training:
            logits = tf.sigmoid(logits)
        return clip_codes(codes, options.clip_range), logits

    def _tower(self, name: str) -> list[tuple[keras.layers.Layer, list[keras.layers.Layer]]]:
        """Returns pairs of a convolution and its norms, one norm a level."""
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
            norms = [self._norm(f'{name}_{i}_bn_{level}') for level in range(self._num_levels)]
            pairs.append((conv, norms))
        return pairs

    def _head(self, name: str, outputs: int, bias: float = 0.0) -> keras.layers.Layer:
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
        """Whether convolutions before norms have a bias: as in the reference, whatever `center`."""
        hyperparams = self._hyperparams
        has_norm = hyperparams.batch_norm is not None or hyperparams.group_norm is not None
        return hyperparams.force_use_bias or not has_norm

    def _build_tower(
        self, tower: list[tuple[keras.layers.Layer, list[keras.layers.Layer]]], channels: int
    ) -> None:
        for conv, norms in tower:
            conv.build((None, None, None, channels))
            channels = self._options.depth
            for norm in norms:
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
