"""The networks of Faster R-CNN around the cropping of proposals."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.errors import UserError
from object_detection.models.hyperparams import LayerHyperparams

# Means of the ImageNet training images, RGB, as in the VGG paper (arXiv:1409.1556).
VGG_MEANS = (123.68, 116.779, 103.939)


def subtract_means(images: tf.Tensor) -> tf.Tensor:
    """Subtracts the ImageNet means from float images [B, H, W, 3], RGB in 0..255."""
    return images - tf.constant(VGG_MEANS, images.dtype)


@dataclasses.dataclass(frozen=True)
class Preprocess:
    """(image * scale - mean) / std of float images [B, H, W, 3], RGB in 0..255.

    Attributes:
      mean, std: one number a channel.
      scale: factor that comes before both.
    """

    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    scale: float = 1.0

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        factor = tf.constant([self.scale / std for std in self.std], images.dtype)
        offset = [mean / std for mean, std in zip(self.mean, self.std, strict=True)]
        return images * factor - tf.constant(offset, images.dtype)


def scale_to_unit(images: tf.Tensor) -> tf.Tensor:
    """Brings float images [B, H, W, 3] in 0..255 to -1..1."""
    return images * (2.0 / 255.0) - 1.0


class FeatureExtractor(keras.layers.Layer):
    """The two networks of Faster R-CNN around the cropping of proposals.

    Args:
      backbone: model from images to a list of feature maps.
      box_classifier: layer from crops [N, h, w, C] to features [N, h', w', C'].
      levels: of the maps that `proposal_features` returns; level l has stride 2**l.
      pyramid: model from the backbone's maps to those maps; None returns the backbone's.
      pad_to_multiple: `proposal_features` pads images with zeros, bottom and right, to it.
      normalize: brings float32 images [B, H, W, 3], RGB in 0..255, to what `backbone` expects.
    """

    def __init__(
        self,
        *,
        backbone: keras.Model,
        box_classifier: keras.layers.Layer,
        levels: Sequence[int],
        pyramid: keras.Model | None = None,
        pad_to_multiple: int = 1,
        normalize: Callable[[tf.Tensor], tf.Tensor] = subtract_means,
        name: str = 'feature_extractor',
    ):
        super().__init__(name=name)
        self.backbone = backbone
        self.pyramid = pyramid
        self.box_classifier = box_classifier
        self.strides = [2**level for level in levels]
        self.pad_to_multiple = pad_to_multiple
        self._normalize = normalize

    @property
    def num_levels(self) -> int:
        return len(self.strides)

    def parts(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers that hold the variables: backbone, fpn (if any), box_classifier."""
        parts = {'backbone': self.backbone, 'fpn': self.pyramid}
        parts['box_classifier'] = self.box_classifier
        return {name: part for name, part in parts.items() if part is not None}

    def normalize(self, images: tf.Tensor) -> tf.Tensor:
        """Brings float32 images [B, H, W, 3], RGB in 0..255, to what the backbone expects."""
        return self._normalize(images)

    def proposal_features(self, images: tf.Tensor, training: bool = False) -> list[tf.Tensor]:
        """Returns the feature maps that proposals are made from, and cropped from.

        Args:
          images: float32 [B, H, W, 3], normalised.
          training: whether batch norms that are not frozen use and update batch statistics.

        Returns:
          One map a level, finest first: [B, ceil(H' / stride), ceil(W' / stride), C], where
          (H', W') is `padded_size(H, W)`.
        """
        sizes = dimensions(images, 1, 2)
        # Zeros, bottom and right; static sizes stay static.
        pads = [padded - size for padded, size in zip(self.padded_size(*sizes), sizes, strict=True)]
        if self.pad_to_multiple > 1:
            images = tf.pad(images, [[0, 0], [0, pads[0]], [0, pads[1]], [0, 0]])
        maps = self.backbone(images, training=training)
        if self.pyramid is not None:
            maps = self.pyramid(maps, training=training)
        return tf.nest.flatten(maps)  # Keras unpacks lists of one output

    def padded_size(self, height: Any, width: Any) -> tuple[Any, Any]:
        """Returns the size in pixels that the feature maps of images of (height, width) cover.

        Args:
          height, width: integers, or int32 scalars.
        """
        return tuple(size + -size % self.pad_to_multiple for size in (height, width))

    def empty_features(self, size: int) -> list[tf.Tensor]:
        """Returns zeros in the shapes of `proposal_features` of one square image of `size`."""
        network = self.backbone if self.pyramid is None else self.pyramid
        sides = [-(-size // stride) for stride in self.strides]
        return [
            tf.zeros([1, side, side, output.shape[-1]])
            for side, output in zip(sides, network.outputs, strict=True)
        ]

    def box_classifier_features(self, crops: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the features [N, h', w', C'] of crops [N, h, w, C] of the feature maps."""
        return self.box_classifier(crops, training=training)


class FullyConnectedBoxClassifier(keras.layers.Layer):
    """Two fully connected layers over a crop of a pyramid, with a norm in between.

    Maps [N, h, w, C], of static h, w and C, to [N, 1, 1, depth]. The dense layers are not
    penalised; `hyperparams` set up the norm alone.
    """

    def __init__(
        self,
        depth: int,
        *,
        hyperparams: LayerHyperparams,
        batch_norm_trainable: bool,
        name: str = 'box_classifier',
    ):
        super().__init__(name=name)
        self._first = keras.layers.Dense(depth, activation='relu', name='dense_1')
        self._norm = hyperparams.norm(frozen=not batch_norm_trainable, name='dense_1_bn')
        self._second = keras.layers.Dense(depth, activation='relu', name='dense_2')
        self._depth = depth

    def build(self, crops_shape):
        _, height, width, channels = crops_shape
        if None in (height, width, channels):
            raise UserError(
                f'{self.name}: expected crops of static height, width and depth. '
                f'Received: shape {tuple(crops_shape)}.'
            )
        self._first.build((None, height * width * channels))
        self._norm.build((None, self._depth))
        self._second.build((None, self._depth))

    def call(self, crops, training=False):
        _, height, width, channels = crops.shape
        x = self._first(tf.reshape(crops, [-1, height * width * channels]))
        x = self._second(self._norm(x, training=training))
        return x[:, tf.newaxis, tf.newaxis, :]  # [N, 1, 1, depth]
