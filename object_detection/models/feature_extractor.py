"""Networks from images to feature maps, for all families of detectors.

Types for the tables of feature extractors of all families.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.shapes import dimensions, round_up
from object_detection.errors import UserError
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_channels import RGB, of_channels

# Means of the ImageNet training images, RGB, as in the VGG paper (arXiv:1409.1556).
VGG_MEANS = (123.68, 116.779, 103.939)


def subtract_means(images: tf.Tensor) -> tf.Tensor:
    """Subtracts the ImageNet means from float images [B, H, W, C], 0..255; see `of_channels`."""
    return images - tf.constant(of_channels(VGG_MEANS, images.shape[-1]), images.dtype)


def reverse_colors(images: tf.Tensor) -> tf.Tensor:
    """Exchanges red and blue of images [..., C]; channels after the third stay where they are."""
    if images.shape[-1] <= RGB:
        return images[..., ::-1]
    return tf.concat([images[..., RGB - 1 :: -1], images[..., RGB:]], axis=-1)


@dataclasses.dataclass(frozen=True)
class Preprocess:
    """(image * scale - mean) / std of float images [B, H, W, C], 0..255.

    Attributes:
      mean, std: one number for red, green and blue; see `of_channels` for other channels.
      scale: factor that is applied before both.
    """

    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    scale: float = 1.0

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        means, stds = (of_channels(each, images.shape[-1]) for each in (self.mean, self.std))
        factor = tf.constant([self.scale / std for std in stds], images.dtype)
        offset = [mean / std for mean, std in zip(means, stds, strict=True)]
        return images * factor - tf.constant(offset, images.dtype)


def scale_to_unit(images: tf.Tensor) -> tf.Tensor:
    """Scales float images [B, H, W, 3] in 0..255 to -1..1."""
    return images * (2.0 / 255.0) - 1.0


class FeatureExtractor(keras.layers.Layer):
    """A network from images to feature maps.

    Most return one stack of maps, with one map per level. A network that repeats itself, such as
    the stacked hourglass (https://arxiv.org/abs/1603.06937), returns a stack for each repetition; a
    loss may be computed for each of them, and the last one is the best.

    Args:
      backbone: model from images to a feature map or a list of them.
      strides: strides of the maps of a stack, in their order, positive integers. They are the same
        for all stacks.
      pyramid: model from the maps of the backbone to those of the extractor; None returns the
        maps of the backbone.
      num_stacks: the outputs of the last network are the maps of the first stack, then of the
        second, ...
      pad_to_multiple: images are padded with zeros at the bottom and right to a multiple of it.
      normalize: converts float32 images [B, H, W, 3], RGB in 0..255, to the input of `backbone`.

    Raises:
      ValueError: if the networks do not return `num_stacks` maps for each stride.
    """

    def __init__(
        self,
        *,
        backbone: keras.Model,
        strides: Sequence[int],
        pyramid: keras.Model | None = None,
        num_stacks: int = 1,
        pad_to_multiple: int = 1,
        normalize: Callable[[tf.Tensor], tf.Tensor] = subtract_means,
        name: str = 'feature_extractor',
    ):
        super().__init__(name=name)
        self.backbone = backbone
        self.pyramid = pyramid
        self.strides = list(strides)
        self.num_stacks = num_stacks
        self.pad_to_multiple = pad_to_multiple
        self._normalize = normalize
        if len(self._outputs()) != num_stacks * self.num_levels:
            raise UserError(
                f'{name}: expected {num_stacks} stacks of {self.num_levels} maps, of the strides '
                f'{self.strides}. Received: networks with {len(self._outputs())} outputs.'
            )

    @property
    def num_levels(self) -> int:
        """The number of maps of a stack."""
        return len(self.strides)

    def parts(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers with the variables: backbone and, if there is one, fpn."""
        parts = {'backbone': self.backbone, 'fpn': self.pyramid}
        return {name: part for name, part in parts.items() if part is not None}

    def normalize(self, images: tf.Tensor) -> tf.Tensor:
        """Converts float32 images [B, H, W, 3], RGB in 0..255, to the input of the backbone."""
        return self._normalize(images)

    def feature_stacks(self, images: tf.Tensor, training: bool = False) -> list[list[tf.Tensor]]:
        """Returns the feature maps of each stack.

        Args:
          images: float32 [B, H, W, 3], normalised.
          training: whether batch norms that are not frozen use and update batch statistics.

        Returns:
          For each stack one map per stride: [B, ceil(H' / stride), ceil(W' / stride), C], where
          (H', W') is `padded_size(H, W)`.
        """
        maps = self.backbone(self.pad(images), training=training)
        if self.pyramid is not None:
            maps = self.pyramid(maps, training=training)
        maps = tf.nest.flatten(maps)  # Keras unpacks lists of one output
        levels = self.num_levels
        return [maps[first : first + levels] for first in range(0, len(maps), levels)]

    def pad(self, images: tf.Tensor) -> tf.Tensor:
        """Adds zeros at the bottom and right of images [B, H, W, C], up to `padded_size(H, W)`."""
        sizes = dimensions(images, 1, 2)
        # Static sizes stay static.
        pads = [padded - size for padded, size in zip(self.padded_size(*sizes), sizes, strict=True)]
        if any(tf.is_tensor(each) or each for each in pads):
            return _pad(images, *pads)
        return images

    def padded_size(self, height: Any, width: Any) -> tuple[Any, Any]:
        """Returns the size in pixels that the feature maps of images of (height, width) cover.

        Args:
          height, width: integers, or int32 scalars.
        """
        return tuple(round_up(size, self.pad_to_multiple) for size in (height, width))

    def empty_features(self, size: int) -> list[tf.Tensor]:
        """Returns zeros in the shapes of the last stack for one square image of `size`."""
        sides = [-(-size // stride) for stride in self.strides]
        outputs = self._outputs()[-self.num_levels :]
        return [
            tf.zeros([1, side, side, output.shape[-1]])
            for side, output in zip(sides, outputs, strict=True)
        ]

    def _outputs(self) -> list[keras.KerasTensor]:
        return (self.backbone if self.pyramid is None else self.pyramid).outputs


def _pad(images: tf.Tensor, bottom: Any, right: Any) -> tf.Tensor:
    """Adds rows and columns of zeros."""
    if not tracing.BasicOperations.is_on():
        return tf.pad(images, [[0, 0], [0, bottom], [0, right], [0, 0]])
    # OpenVINO 2026.4 makes the padding one of the convolution that follows, and drops its own.
    batch, height, width, channels = dimensions(images, 0, 1, 2, 3)
    images = tf.concat([images, tf.zeros([batch, bottom, width, channels], images.dtype)], axis=1)
    zeros = tf.zeros([batch, height + bottom, right, channels], images.dtype)
    return tf.concat([images, zeros], axis=2)


@dataclasses.dataclass(frozen=True)
class BackboneOptions:
    """Options of a config for one kind of backbones; each kind has a subclass.

    A field of a subclass is None if the config does not set it.
    """

    # The text after "only feature extractors on ".
    TITLE: ClassVar[str]

    def given(self) -> dict[str, Any]:
        """Returns the fields that the config sets."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class ExtractorOptions:
    """Options of a config for any feature extractor; families of detectors add own fields.

    Attributes:
      batch_norm_trainable: False freezes all batch norms of the extractor.
      hyperparams: hyperparameters of the layers on the backbone; None if the config has none.
      override_backbone: whether `hyperparams` also apply to the backbone.
      pad_to_multiple: multiple to which images are padded; None is the extractor's default.
      backbone: options for this kind of backbone; None if the config has none.
    """

    batch_norm_trainable: bool
    hyperparams: LayerHyperparams | None = None
    override_backbone: bool = False
    pad_to_multiple: int | None = None
    backbone: BackboneOptions | None = None

    def backbone_hyperparams(self, default: LayerHyperparams) -> LayerHyperparams:
        """Returns the hyperparameters of the backbone, which are `default` unless overridden."""
        return self.hyperparams if self.override_backbone else default


@dataclasses.dataclass(frozen=True)
class ExtractorType:
    """One feature extractor: a row of a table.

    Attributes:
      build: builds the extractor from valid options.
      check: raises ValueError for options that do not fit, without building the extractor.
      backbone_options: class of the options of its backbone; None if it takes none.
    """

    build: Callable[[Any], FeatureExtractor]
    check: Callable[[Any], None] = lambda options: None
    backbone_options: type[BackboneOptions] | None = None


def build(
    types: Mapping[str, ExtractorType], type_name: str, options: ExtractorOptions
) -> FeatureExtractor:
    """Builds the feature extractor that `type_name` names in a table.

    Raises:
      ValueError: in the cases of `check`.
    """
    check(types, type_name, options)
    return types[type_name].build(options)


def check(types: Mapping[str, ExtractorType], type_name: str, options: ExtractorOptions) -> None:
    """Checks the arguments of `build` without building the extractor.

    Raises:
      ValueError: if there is no extractor of that name, or `options` do not fit it.
    """
    if type_name not in types:
        raise UserError(f'type: expected one of {", ".join(types)}. Received: {type_name!r}.')
    if options.override_backbone and options.hyperparams is None:
        raise UserError(
            '`override_base_feature_extractor_hyperparams: true` needs `conv_hyperparams`. '
            'Received: none.'
        )
    if options.pad_to_multiple is not None and options.pad_to_multiple < 1:
        raise UserError(
            f'pad_to_multiple: expected at least 1. Received: {options.pad_to_multiple}.'
        )
    row = types[type_name]
    row.check(options)
    _check_kind(options.backbone, row.backbone_options)


def _check_kind(given: BackboneOptions | None, expected: type[BackboneOptions] | None) -> None:
    if given is None or (expected is not None and isinstance(given, expected)):
        return
    for field, value in given.given().items():
        raise UserError(
            f'{field}: only feature extractors on {given.TITLE} have it. Received: {value}.'
        )
