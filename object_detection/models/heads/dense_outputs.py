"""What the heads of single-stage detectors share: their options, and their outputs as rows."""

import abc
import dataclasses
from collections.abc import Sequence

import keras
import tensorflow as tf

from object_detection.core.sampling import sampling_noise
from object_detection.core.shapes import dimensions
from object_detection.errors import UserError
from object_detection.models.hyperparams import LayerHyperparams


@dataclasses.dataclass(frozen=True)
class DenseHeadOptions:
    """Options of the heads that predict boxes and classes at each pixel of feature maps.

    Attributes:
      code_size: D, numbers of a box code.
      kernel_size: side of the kernels of the heads.
      num_layers: convolutions before the heads.
      class_bias: initial bias of the class logits.
      dropout_rate: share of the features that the class heads lose in training.
      use_depthwise: whether a depthwise and a 1x1 convolution replace each larger one.
      clip_range: the least and greatest value of a box code; None does not clip.

    Raises:
      ValueError: for numbers out of range, and for depthwise convolutions of size 1.
    """

    code_size: int = 4
    kernel_size: int = 3
    num_layers: int = 0
    class_bias: float = 0.0
    dropout_rate: float = 0.0
    use_depthwise: bool = False
    clip_range: tuple[float, float] | None = None

    def __post_init__(self):
        check('box_code_size', self.code_size >= 1, 'at least 1', self.code_size)
        check('kernel_size', self.kernel_size >= 1, 'at least 1', self.kernel_size)
        check('num_layers_before_predictor', self.num_layers >= 0, '0 or more', self.num_layers)
        check(
            'dropout_keep_probability',
            0.0 <= self.dropout_rate < 1.0,
            'above 0 and at most 1',
            1.0 - self.dropout_rate,
        )
        check(
            'kernel_size',
            not self.use_depthwise or self.kernel_size > 1,
            'above 1 with use_depthwise, which replaces larger convolutions',
            self.kernel_size,
        )
        if self.clip_range is not None:
            low, high = self.clip_range
            check('box_encodings_clip_range', low < high, 'min below max', self.clip_range)


class DenseBoxPredictor(keras.layers.Layer, abc.ABC):
    """The base of heads that predict from each pixel of feature maps; subclasses have the layers.

    Args:
      num_outputs: number of logits of an anchor, the background included if there is one.
      num_anchors: number of anchors of a cell, one entry per level.
      hyperparams: hyperparameters of all convolutions.
      options: the options of the heads.
      batch_norm_trainable: False freezes the norms.
      name: name of the layer.

    Raises:
      ValueError: if a number is not positive; when called, for another number of feature maps.
    """

    def __init__(
        self,
        num_outputs: int,
        num_anchors: Sequence[int],
        *,
        hyperparams: LayerHyperparams,
        options: DenseHeadOptions,
        batch_norm_trainable: bool,
        name: str,
    ):
        super().__init__(name=name)
        if min(num_outputs, *num_anchors) < 1:
            raise UserError(
                f'{name}: expected at least one output and one anchor in each cell. Received: '
                f'{num_outputs} outputs, anchors per level {list(num_anchors)}.'
            )
        self._num_outputs, self._num_anchors = num_outputs, tuple(num_anchors)
        self._hyperparams, self._options = hyperparams, options
        self._is_frozen = not batch_norm_trainable
        self._activation = hyperparams.activation_layer(name='activation')

    def build(self, maps_shape):
        if len(maps_shape) != len(self._num_anchors):
            raise UserError(
                f'{self.name}: expected {len(self._num_anchors)} feature maps, as many as the '
                f'anchor generator has levels. Received: {len(maps_shape)}.'
            )
        self._build_layers([shape[-1] for shape in maps_shape])

    @property
    def converts_to_probabilities(self) -> bool:
        """Whether the detector converts logits to probabilities in inference, not for losses."""
        return False

    def call(self, maps, training=False, seeds=None):
        """Predicts for all anchors.

        Args:
          maps: one feature map [B, H, W, C] per level, fine to coarse.
          training: whether dropout and norms act as in training.
          seeds: int32 [B, 2], a seed of dropout for each image; None draws from the global
            generator.

        Returns:
          Box codes float32 [B, N, D] and class logits float32 [B, N, `num_outputs`], in the order
          level, y, x, anchor of the cell.
        """
        options, codes, logits = self._options, [], []
        for level, features in enumerate(maps):
            for_boxes, for_classes = self._features(level, features, training)
            if training and options.dropout_rate:
                for_classes = _drop(for_classes, options.dropout_rate, seeds, level)
            box_maps = self._box_maps(level, for_boxes, training)
            codes.append(anchor_rows(box_maps, options.code_size))
            class_maps = self._class_maps(level, for_classes, training)
            logits.append(anchor_rows(class_maps, self._num_outputs))
        all_codes = tf.concat(codes, axis=1)
        if options.clip_range is not None:
            all_codes = tf.clip_by_value(all_codes, *options.clip_range)
        return all_codes, tf.concat(logits, axis=1)

    @abc.abstractmethod
    def _build_layers(self, depths: list[int]) -> None:
        """Builds all layers for feature maps with these numbers of channels."""

    @abc.abstractmethod
    def _features(
        self, level: int, features: tf.Tensor, training: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Applies the layers before the heads of the boxes, and of the classes: to [B, H, W, C]."""

    @abc.abstractmethod
    def _box_maps(self, level: int, features: tf.Tensor, training: bool) -> tf.Tensor:
        """Returns box codes [B, H, W, anchors * D]."""

    @abc.abstractmethod
    def _class_maps(self, level: int, features: tf.Tensor, training: bool) -> tf.Tensor:
        """Returns logits [B, H, W, anchors * num_outputs]."""


def check(name: str, is_right: bool, expected: str, received: object) -> None:
    """Raises a ValueError that names the field unless `is_right`."""
    if not is_right:
        raise UserError(f'{name}: expected {expected}. Received: {received}.')


def anchor_rows(maps: tf.Tensor, size: int) -> tf.Tensor:
    """Turns the outputs at each pixel into rows, in the order y, x, anchor.

    Args:
      maps: [B, H, W, anchors * size].
      size: outputs of an anchor.

    Returns:
      float32 [B, H * W * anchors, size].
    """
    _, height, width, channels = maps.shape
    count = -1 if None in (height, width) else height * width * channels // size
    return tf.reshape(tf.cast(maps, tf.float32), [tf.shape(maps)[0], count, size])


def _drop(maps: tf.Tensor, rate: float, seeds: tf.Tensor | None, level: int) -> tf.Tensor:
    """Sets a random share of features to zero and scales the others, as dropout in training does.

    Args:
      maps: [B, H, W, C].
      rate: the share.
      seeds: int32 [B, 2], one seed an image; None draws from the global generator.
      level: a number that makes the noise of each feature map of an image different.
    """
    batch, *sizes = dimensions(maps, 0, 1, 2, 3)
    if seeds is not None:
        seeds = tf.cast(seeds, tf.int32) + tf.constant([0, level])
    noise = sampling_noise(seeds, sizes[0] * sizes[1] * sizes[2], batch_size=batch)
    is_kept = tf.reshape(noise, tf.shape(maps)) >= rate
    return tf.where(is_kept, maps / (1.0 - rate), tf.zeros_like(maps))
