"""Networks from images to feature maps, for all families of detectors."""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.shapes import dimensions, round_up
from object_detection.errors import UserError, expected, format_list, raise_if_any
from object_detection.models import recomputation
from object_detection.models.backbones.table import Backbone, BackboneOptions, find
from object_detection.models.extractors import Extractor, part_problems
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import subtract_means
from object_detection.models.necks.table import MAPS, NECKS, NeckOptions


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
      ValueError: if the networks do not return `num_stacks` maps for each stride, or the backbone
        is for images of one size, which `pad_to_multiple` changes.
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
        side = self._only_side()
        if side is not None and side % pad_to_multiple:
            raise expected(
                'pad_to_multiple', f'a divisor of {side}, the side of images', pad_to_multiple
            )
        if len(self._outputs()) != num_stacks * self.num_levels:
            raise expected(
                name, f'{num_stacks} x {self.num_levels} maps', f'{len(self._outputs())} outputs'
            )

    @property
    def num_levels(self) -> int:
        """The number of maps of a stack."""
        return len(self.strides)

    @property
    def depths(self) -> list[int]:
        """The channels of the maps of a stack."""
        return [output.shape[-1] for output in self._outputs()[: self.num_levels]]

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
          For each stack one map per stride, in the shapes of `map_shapes` except for B. With an
          aligned backbone these are [B, ceil(H' / stride), ceil(W' / stride), C], where (H', W') is
          `padded_size(H, W)`.
        """
        maps = recomputation.call(self.backbone, self.pad(images), training)
        if self.pyramid is not None:
            maps = recomputation.call(self.pyramid, maps, training)
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

    def map_shapes(self, height: int, width: int) -> list[tuple[int, ...]]:
        """Returns the shapes [1, H', W', C] of the last stack for one image of (height, width)."""
        shapes = (1, *self.padded_size(height, width), self.backbone.inputs[0].shape[-1])
        for network in (self.backbone, self.pyramid):
            if network is not None:
                shapes = network.compute_output_shape(shapes)
        # Keras unpacks lists of one output.
        shapes = shapes if isinstance(shapes, list) else [shapes]
        return shapes[-self.num_levels :]

    def empty_features(self, size: int) -> list[tf.Tensor]:
        """Returns zeros in the shapes of the last stack for one square image of `size`.

        If the backbone is for images of one size, they are of that size.
        """
        side = self._only_side() or size
        return [tf.zeros(shape) for shape in self.map_shapes(side, side)]

    def _only_side(self) -> int | None:
        """Returns the side of the only images that the backbone takes; None if it takes others."""
        return self.backbone.inputs[0].shape[1]

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


# Fields of a config -> options of a ResNet.
_RESNET_SETTINGS = {
    **{'stride_in_1x1': 'stride_in_1x1', 'padding_mode': 'padding'},
    'frozen_stages': 'frozen_stages',
}


@dataclasses.dataclass(frozen=True)
class ExtractorOptions:
    """Options of a config for any feature extractor; families of detectors add own fields.

    Attributes:
      batch_norm_trainable: False freezes all batch norms of the extractor.
      hyperparams: hyperparameters of the layers on the backbone; None if the config has none.
      override_backbone: whether `hyperparams` also apply to the backbone.
      pad_to_multiple: multiple to which images are padded; None is the extractor's default.
      backbone: name in `BACKBONES`, of types that do not name it; None if the config has none.
      neck: name in `NECKS` in place of that of the type; None if the config has none.
      drop_path_rate: see `BackboneOptions`.
      resnet: options of a ResNet v1 that the config sets: 'stride_in_1x1', 'padding_mode' (a
        `resnet_v1.Padding`) and 'frozen_stages', see `resnet_v1.Options`; 'freeze_affine', whether
        offset and scale of frozen batch norms are frozen, too; 'preprocess' (a `Preprocess`) in
        place of the normalization of the backbone.
    """

    batch_norm_trainable: bool
    hyperparams: LayerHyperparams | None = None
    override_backbone: bool = False
    pad_to_multiple: int | None = None
    backbone: str | None = None
    neck: str | None = None
    drop_path_rate: float | None = None
    resnet: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def for_backbone(self, row: Backbone, **fields: Any) -> BackboneOptions:
        """Returns the options of a backbone; `fields` are those that only some families have."""
        default = self.default_hyperparams(row)
        return BackboneOptions(
            hyperparams=self.frozen(self.hyperparams if self.override_backbone else default),
            batch_norm_trainable=self.batch_norm_trainable,
            is_overridden=self.override_backbone,
            drop_path_rate=self.drop_path_rate,
            settings={
                new: self.resnet[name]
                for name, new in _RESNET_SETTINGS.items()
                if name in self.resnet
            },
            **fields,
        )

    def frozen(self, hyperparams: LayerHyperparams) -> LayerHyperparams:
        """Adds `freeze_affine` to the batch norms of hyperparameters."""
        if not self.resnet.get('freeze_affine') or hyperparams.batch_norm is None:
            return hyperparams
        norm = dataclasses.replace(hyperparams.batch_norm, freeze_affine=True)
        return dataclasses.replace(hyperparams, batch_norm=norm)

    def normalization(self, row: Backbone) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns the function that converts images to the input of a backbone."""
        return self.resnet.get('preprocess') or row.normalize

    def default_hyperparams(self, row: Backbone) -> LayerHyperparams:
        """Returns those of a backbone for which the config has none.

        Each call draws one seed for the copy. Without it, a seed would give an SSD or a Faster
        R-CNN other initial weights than in earlier versions.
        """
        initializer = row.hyperparams.initializer.clone()
        return dataclasses.replace(row.hyperparams, initializer=initializer)

    def padding(self, row: Backbone, default: int = 1) -> int:
        """Returns the multiple to which images are padded, which is one of the backbone's."""
        return math.lcm(self.pad_to_multiple or default, row.padding_multiple)


def find_parts(
    type_name: str, extractors: Mapping[str, Extractor], options: ExtractorOptions
) -> tuple[Extractor, Backbone]:
    """Returns the row of a type, with the parts that the config names, and that of its backbone.

    It checks what every family has to check.

    Raises:
      UserError: if there is no such type, backbone or neck, or options do not fit it or each other.
    """
    if type_name not in extractors:
        raise UserError(f'type: expected one of {", ".join(extractors)}. Received: {type_name!r}.')
    extractor = extractors[type_name]
    backbone, neck = options.backbone or '', options.neck or ''
    for problem in part_problems(type_name, extractor, backbone, neck):
        raise UserError(problem)
    if options.override_backbone and options.hyperparams is None:
        raise expected('override_base_feature_extractor_hyperparams: true', '`conv_hyperparams`')
    if options.pad_to_multiple is not None and options.pad_to_multiple < 1:
        raise expected('pad_to_multiple', 'at least 1', options.pad_to_multiple)
    if neck:
        _check_neck(neck, extractor.neck)
    named = extractor._replace(backbone=extractor.backbone or backbone, neck=neck or extractor.neck)
    row = find(named.backbone)
    if named.neck and not row.is_aligned and 'num_layers' not in NECKS[named.neck].uses:
        raise expected(
            'backbone',
            f'maps of ceil(size / stride) cells, which the neck {named.neck} needs',
            repr(named.backbone),
        )
    if options.drop_path_rate is not None and 'drop_path_rate' not in row.uses:
        raise expected(
            'drop_path_rate',
            f'none, as the backbone {named.backbone} has no stochastic depth',
            options.drop_path_rate,
        )
    return named, row


def _check_neck(name: str, own: str) -> None:
    """Checks that a neck reads what says which maps there are, as a type's own neck does."""
    needed, read = (NECKS[each].uses & MAPS for each in (own, name))

    def fits(read: frozenset[str]) -> bool:
        return needed <= read if needed else not read

    if not fits(read):
        others = {each: row for each, row in NECKS.items() if each not in NECKS.built_in}
        choices = [own, *(each for each, row in others.items() if fits(row.uses & MAPS))]
        needs, reads = (
            ', '.join(sorted(fields)) or f'none of {", ".join(sorted(MAPS))}'
            for fields in (needed, read)
        )
        raise UserError(
            f'neck: expected one of {", ".join(choices)}, as the maps of the type need one that '
            f'reads {needs}. Received: {name!r}, which reads {reads}.'
        )


def check_resnet(options: ExtractorOptions, top_level: int) -> None:
    """Checks what relates the options of a ResNet; its last stage has stride 2**top_level.

    Raises:
      UserError: if there are fewer stages than are to be frozen, or no norms.
    """
    frozen_stages = options.resnet.get('frozen_stages', 0)
    if not 0 <= frozen_stages <= top_level:
        raise expected('frozen_stages', f'0 to {top_level}, stages of the backbone', frozen_stages)
    has_norms = not options.override_backbone or options.hyperparams.batch_norm
    if options.resnet.get('freeze_affine') and not has_norms:
        raise expected('freeze_affine', 'batch norms in conv_hyperparams, for the backbone')


def same_size_levels(neck: str, row: Backbone, taken: Sequence[int]) -> dict[str, list[int]]:
    """Returns the setting of a pyramid about maps that are as large as those of the next level.

    Args:
      neck: name in `NECKS`.
      row: the backbone.
      taken: levels of the maps of the backbone that the neck takes.

    Raises:
      UserError: if there are such maps and the neck is no feature pyramid.
    """
    found = [level for level in taken[:-1] if row.stride(level) == row.stride(level + 1)]
    if found and 'fpn' not in NECKS[neck].uses:
        raise expected(
            'backbone',
            f'maps of strides 2**level, which the neck {neck} needs',
            f'one whose levels {found[0]} and {found[0] + 1} have one stride',
        )
    return {'same_size_levels': found} if found else {}


def build_neck(extractor: Extractor, backbone: keras.Model, options: NeckOptions) -> keras.Model:
    """Builds the neck of a row on the maps of a backbone."""
    channels = [output.shape[-1] for output in backbone.outputs]
    return NECKS[extractor.neck].build(channels, options)


def check_used(
    given: Mapping[str, Any],
    uses: Collection[str],
    owner: str,
    defaults: Mapping[str, Any] | None = None,
    refusals: Mapping[str, str] | None = None,
) -> None:
    """Checks that a part of an extractor reads the fields that a config sets.

    Args:
      given: name of a field that the config sets -> its value.
      uses: the fields that the part reads.
      owner: what the part is, such as 'the backbone resnet_v1_50'.
      defaults: values of fields that are not set, where they are not None.
      refusals: field -> why the part does not read it, where there is more to say.

    Raises:
      ConfigError: for the fields that it does not read.
    """
    reads, usual = format_list(sorted(uses)) or 'no such field', defaults or {}
    reasons = refusals or {}
    raise_if_any(
        f'{field}: expected {format_option(usual.get(field))}, as '
        f'{reasons.get(field, f"{owner} does not read it; it reads {reads}")}. '
        f'Received: {format_option(value)}.'
        for field, value in given.items()
        if field not in uses
    )


def check_levels(field: str, levels: Sequence[int], row: Backbone) -> None:
    """Checks that a backbone has maps of some levels; `field` is why it needs them.

    Raises:
      UserError: if it does not.
    """
    if not set(levels) <= set(row.levels):
        raise UserError(
            f'{field}: expected a backbone with maps of the levels '
            f'{format_list([str(level) for level in levels])}, of strides 2**level. Received: one '
            f'with {row.levels[0]} to {row.levels[-1]}.'
        )


def format_option(value: Any) -> str:
    """Returns an option as configs write it; messages are only named by their being there."""
    if value is None:
        return 'none'
    if isinstance(value, bool):
        return str(value).lower()
    return 'the message' if dataclasses.is_dataclass(value) else f'{value}'
