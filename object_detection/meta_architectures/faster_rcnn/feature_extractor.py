"""The networks of Faster R-CNN around the cropping of proposals, from the rows of `EXTRACTORS`."""

import dataclasses

import keras
import tensorflow as tf

from object_detection.errors import UserError, expected
from object_detection.meta_architectures.faster_rcnn.extractors import EXTRACTORS
from object_detection.models.backbones.table import Backbone
from object_detection.models.convolutions import Dense
from object_detection.models.extractors import Extractor
from object_detection.models.feature_extractor import (
    ExtractorOptions,
    FeatureExtractor,
    build_neck,
    check_levels,
    check_resnet,
    check_used,
    find_parts,
    same_size_levels,
)
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.necks import fpn
from object_detection.models.necks.table import NeckOptions

_DEFAULT_BOX_HEAD_DEPTH = 1024


class TwoStageFeatureExtractor(FeatureExtractor):
    """A feature extractor of one stack, and a network over crops of its maps.

    Args:
      box_classifier: layer from crops [N, h, w, C] to features [N, h', w', C'].
      **options: arguments of `FeatureExtractor`.
    """

    def __init__(self, *, box_classifier: keras.layers.Layer, **options):
        super().__init__(**options)
        self.box_classifier = box_classifier

    def with_box_classifier(self, layer: keras.layers.Layer) -> 'TwoStageFeatureExtractor':
        """Returns an extractor of the same networks with another layer over the crops."""
        return TwoStageFeatureExtractor(
            backbone=self.backbone,
            strides=self.strides,
            pyramid=self.pyramid,
            box_classifier=layer,
            pad_to_multiple=self.pad_to_multiple,
            normalize=self._normalize,
            name=self.name,
        )

    def parts(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers with the variables: backbone, fpn (if any), box_classifier."""
        return super().parts() | {'box_classifier': self.box_classifier}

    def proposal_features(self, images: tf.Tensor, training: bool = False) -> list[tf.Tensor]:
        """Returns the feature maps for the prediction of proposals and for their crops.

        Args:
          images: float32 [B, H, W, 3], normalised.
          training: whether batch norms that are not frozen use and update batch statistics.

        Returns:
          One map per level, finest first; see `feature_stacks`.
        """
        (maps,) = self.feature_stacks(images, training)
        return maps

    def box_classifier_features(self, crops: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the features [N, h', w', C'] of crops [N, h, w, C] of the feature maps."""
        return self.box_classifier(crops, training=training)


class FullyConnectedBoxClassifier(keras.layers.Layer):
    """Two fully connected layers over a crop of a pyramid, with a norm in between.

    Maps [N, h, w, C], of static h, w and C, to [N, 1, 1, depth]. The dense layers are not
    penalised; `hyperparams` only apply to the norm.
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
        self._first = Dense(depth, activation='relu', name='dense_1')
        self._norm = hyperparams.norm(frozen=not batch_norm_trainable, name='dense_1_bn')
        self._second = Dense(depth, activation='relu', name='dense_2')
        self._depth = depth

    def build(self, crops_shape):
        _, height, width, channels = crops_shape
        if None in (height, width, channels):
            raise expected(
                self.name, 'crops of static height, width and depth', f'shape {tuple(crops_shape)}'
            )
        self._first.build((None, height * width * channels))
        self._norm.build((None, self._depth))
        self._second.build((None, self._depth))

    def call(self, crops, training=False):
        _, height, width, channels = crops.shape
        x = self._first(tf.reshape(crops, [-1, height * width * channels]))
        x = self._second(self._norm(x, training=training))
        return x[:, tf.newaxis, tf.newaxis, :]  # [N, 1, 1, depth]


@dataclasses.dataclass(frozen=True)
class PyramidOptions:
    """Options of a config for a pyramid.

    Attributes:
      levels: (min, max); level l has stride 2**l.
      depth: number of channels of all levels.
      network: options of the network.
    """

    levels: tuple[int, int] = (2, 6)
    depth: int = 256
    network: fpn.Options = dataclasses.field(default_factory=fpn.Options)


@dataclasses.dataclass(frozen=True)
class TwoStageOptions(ExtractorOptions):
    """Options of a config for a feature extractor of Faster R-CNN.

    Attributes:
      stride: stride of the single feature map of extractors without a pyramid.
      pyramid: None if the config does not describe it.
      box_head_depth: units of the fully connected layers over a pyramid's crops; None is 1024.
    """

    stride: int = 16
    pyramid: PyramidOptions | None = None
    box_head_depth: int | None = None


def build_faster_rcnn(type_name: str, options: TwoStageOptions) -> TwoStageFeatureExtractor:
    """Builds the feature extractor that `type_name` names.

    Raises:
      ValueError: if there is no extractor of that name, or `options` do not fit it.
    """
    extractor, row = _checked(type_name, options)
    if extractor.neck is None:
        return _with_one_map(extractor, options, row)
    return _with_pyramid(extractor, options, row)


def _with_one_map(
    extractor: Extractor, options: TwoStageOptions, row: Backbone
) -> TwoStageFeatureExtractor:
    """Returns the map of a stage for proposals, and the rest of the backbone for the crops."""
    level = extractor.levels[-1]
    for_backbone = options.for_backbone(
        row, stride=None if options.stride == 2**level else options.stride, **extractor.settings
    )
    return TwoStageFeatureExtractor(
        backbone=row.trunk(extractor.levels, for_backbone),
        box_classifier=row.crop_stage(for_backbone),
        strides=[options.stride],
        pad_to_multiple=options.padding(row),
        normalize=options.normalization(row),
    )


def _with_pyramid(
    extractor: Extractor, options: TwoStageOptions, row: Backbone
) -> TwoStageFeatureExtractor:
    """Returns the maps of a pyramid, and dense layers over the crops of its levels."""
    pyramid = options.pyramid or PyramidOptions()
    levels = range(pyramid.levels[0], pyramid.levels[1] + 1)
    taken = range(levels[0], min(levels[-1], row.levels[-1]) + 1)
    backbone = row.trunk(taken, options.for_backbone(row))
    common = {
        'hyperparams': options.frozen(options.hyperparams),
        'batch_norm_trainable': options.batch_norm_trainable,
    }
    settings = vars(pyramid.network) | same_size_levels(extractor.neck, row, taken)
    neck = NeckOptions(
        levels=levels, inputs=taken, depth=pyramid.depth, settings=settings, **common
    )
    depth = options.box_head_depth
    return TwoStageFeatureExtractor(
        backbone=backbone,
        pyramid=build_neck(extractor, backbone, neck),
        box_classifier=FullyConnectedBoxClassifier(
            _DEFAULT_BOX_HEAD_DEPTH if depth is None else depth, **common
        ),
        strides=[row.stride(level) for level in levels],
        pad_to_multiple=options.padding(row, extractor.padding_multiple),
        normalize=options.normalization(row),
    )


def _checked(type_name: str, options: TwoStageOptions) -> tuple[Extractor, Backbone]:
    """Returns the rows of a type and of its backbone, after checking the options."""
    extractor, row = find_parts(type_name, EXTRACTORS, options)
    check_used(options.resnet, row.uses, f'the backbone {extractor.backbone}')
    if extractor.neck is None:
        top_level = extractor.levels[-1]
        _check_single_map(extractor, options, row)
    else:
        top_level = _check_pyramid(extractor, options, row)
    check_resnet(options, top_level)
    return extractor, row


def _check_single_map(extractor: Extractor, options: TwoStageOptions, row: Backbone) -> None:
    """Checks the options of an extractor without a pyramid."""
    check_levels('backbone', extractor.levels, row)
    if row.crop_stage is None:
        raise expected(
            'backbone', 'one whose last stage runs on crops', f'{options.backbone!r}, for pyramids'
        )
    if options.stride not in row.strides:
        raise expected(
            'first_stage_features_stride', ' or '.join(map(str, row.strides)), options.stride
        )
    levels = options.pyramid and options.pyramid.levels
    for field, value in (('fpn', levels), ('box_head_depth', options.box_head_depth)):
        if value is not None:
            raise expected('feature extractor without a pyramid', f'no `{field}`', value)
    if options.hyperparams is not None and not options.override_backbone:
        raise UserError(
            'A feature extractor without a pyramid uses `conv_hyperparams` only with '
            '`override_base_feature_extractor_hyperparams: true`. Received: false.'
        )


def _check_pyramid(extractor: Extractor, options: TwoStageOptions, row: Backbone) -> int:
    """Checks the options of an extractor with a pyramid; returns the backbone's last level."""
    if options.hyperparams is None:
        raise expected('feature extractor with a pyramid', '`conv_hyperparams`')
    if options.stride not in (8, 16):
        raise expected('first_stage_features_stride', '8 or 16', options.stride)
    pyramid = options.pyramid or PyramidOptions()
    low, high = pyramid.levels
    first, last = row.levels[0], row.levels[-1]
    if not first <= low <= min(high, last):
        raise expected(
            'fpn', f'{first} <= min_level <= {last}, min_level <= max_level', f'{low} and {high}'
        )
    depths = {
        'fpn.num_filters or additional_layer_depth': pyramid.depth,
        'box_head_depth': options.box_head_depth,
    }
    for field, depth in depths.items():
        if depth is not None and depth < 1:
            raise UserError(f'{field}: expected at least 1. Received: {depth}.')
    # With this multiple, every level up to the top of the backbone is half the one before.
    top_level = min(high, last)
    multiple = row.stride(top_level)
    if options.padding(row, extractor.padding_multiple) % multiple:
        raise expected(
            'pad_to_multiple', f'a multiple of {multiple} (stride)', options.pad_to_multiple
        )
    return top_level
