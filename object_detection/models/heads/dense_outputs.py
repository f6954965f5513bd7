"""What the heads of single-stage detectors share: their options, and their outputs as rows."""

import abc
import dataclasses
from collections.abc import Sequence

import keras
import tensorflow as tf

from object_detection.core.sampling import sampling_noise
from object_detection.core.shapes import dimensions
from object_detection.errors import UserError, expected
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


@dataclasses.dataclass(frozen=True)
class DenseOutput:
    """Something that is predicted of each anchor.

    Attributes:
      name: name of its layers, also in checkpoints.
      size: how many numbers it has.
      tower: name of the layers before it, which outputs of the same tower share.
      bias: initial bias of the numbers.
      dropout_rate: share of the features that it loses in training.
      clip_range: the least and greatest value of a number; None does not clip.
    """

    name: str
    size: int
    tower: str
    bias: float = 0.0
    dropout_rate: float = 0.0
    clip_range: tuple[float, float] | None = None


class DenseBoxPredictor(keras.layers.Layer, abc.ABC):
    """The base of heads that predict from each pixel of feature maps; subclasses have the layers.

    Attributes:
      outputs: what is predicted of each anchor: box codes, classes, and further ones.

    Args:
      num_outputs: number of logits of an anchor, the background included if there is one.
      num_anchors: number of anchors of a cell, one entry per level.
      hyperparams: hyperparameters of all convolutions.
      options: the options of the heads, of the type of the class; None: its defaults.
      batch_norm_trainable: False freezes the norms.
      further: what is predicted in addition to box codes and classes.
      name: name of the layer.

    Raises:
      ValueError: if a number is not positive; when called, for another number of feature maps.
    """

    options_type: type[DenseHeadOptions]

    def __init__(
        self,
        num_outputs: int,
        num_anchors: Sequence[int],
        *,
        hyperparams: LayerHyperparams,
        options: DenseHeadOptions | None = None,
        batch_norm_trainable: bool = True,
        further: Sequence[DenseOutput] = (),
        name: str = 'box_predictor',
    ):
        super().__init__(name=name)
        if min(num_outputs, *num_anchors) < 1:
            raise expected(
                name, 'an output and an anchor a cell', f'{num_outputs} and {list(num_anchors)}'
            )
        options = options or self.options_type()
        self.outputs = (
            DenseOutput('box_codes', options.code_size, 'box_tower', clip_range=options.clip_range),
            DenseOutput(
                'classes', num_outputs, 'class_tower', options.class_bias, options.dropout_rate
            ),
            *further,
        )
        self._num_anchors = tuple(num_anchors)
        self._hyperparams, self._options = hyperparams, options
        self._is_frozen = not batch_norm_trainable
        self._activation = hyperparams.activation_layer(name='activation')

    def build(self, maps_shape):
        if len(maps_shape) != len(self._num_anchors):
            raise expected(
                self.name, f'{len(self._num_anchors)} maps (levels of anchors)', len(maps_shape)
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
          For each of `outputs` float32 [B, N, size], box codes and class logits first, in the order
          level, y, x, anchor of the cell.
        """
        rows: list[list[tf.Tensor]] = [[] for _ in self.outputs]
        for level, features in enumerate(maps):
            towers = self._features(level, features, training)
            for output, levels in zip(self.outputs, rows, strict=True):
                seen = towers[output.tower]
                if training and output.dropout_rate:
                    seen = _drop(seen, output.dropout_rate, seeds, level)
                predicted = self._maps(output.name, level, seen, training)
                levels.append(anchor_rows(predicted, output.size))
        return tuple(_joined(*each) for each in zip(self.outputs, rows, strict=True))

    @abc.abstractmethod
    def _build_layers(self, depths: list[int]) -> None:
        """Builds all layers for feature maps with these numbers of channels."""

    @abc.abstractmethod
    def _features(self, level: int, features: tf.Tensor, training: bool) -> dict[str, tf.Tensor]:
        """Applies the layers before the heads; returns [B, H, W, C] by the name of the tower."""

    @abc.abstractmethod
    def _maps(self, name: str, level: int, features: tf.Tensor, training: bool) -> tf.Tensor:
        """Returns the output of a name, [B, H, W, anchors * size], of the features of its tower."""


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


def _joined(output: DenseOutput, levels: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the rows of all levels, clipped if the output is."""
    rows = tf.concat(levels, axis=1)
    return rows if output.clip_range is None else tf.clip_by_value(rows, *output.clip_range)


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
