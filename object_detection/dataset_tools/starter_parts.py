"""Configs that fit a data set: samples, of which values and parts are replaced.

Faster and Mask R-CNN have two stages; the single-shot detectors are for phones; RT-DETR is a
transformer.
"""

import dataclasses
import importlib.resources
import math
from typing import Any

import numpy as np
from google.protobuf import text_format

from object_detection.config.reader import parse_pipeline
from object_detection.dataset_tools.data_statistics import DataStatistics
from object_detection.dataset_tools.starter_weights import Weights
from object_detection.protos.box_predictor_pb2 import MaskRCNNBoxPredictor
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

SINGLE_SHOT, TWO_STAGE, TRANSFORMER = 'ssd', 'faster_rcnn', 'detr'
# Field of the message of a model -> a sample of it, and the levels that its pyramid may have.
_SAMPLES = {
    SINGLE_SHOT: 'ssd_mobilenet_v2_fpnlite_shapes.config',
    TWO_STAGE: 'mask_rcnn_resnet18_fpn_shapes.config',
    TRANSFORMER: 'rt_detr_resnet18_shapes.config',
}
_LEVELS = {SINGLE_SHOT: (3, 7), TWO_STAGE: (2, 6)}
# As the model of the zoo, SSDLite with a feature pyramid on MobileNet v2. Batches are smaller than
# there, so the statistics of the norms follow them faster.
_SINGLE_SHOT_CHANGES = """
model {
  ssd {
    image_resizer { keep_aspect_ratio_resizer {} }
    feature_extractor {
      fpn { additional_layer_depth: 128 }
      conv_hyperparams { initializer { random_normal_initializer { stddev: 0.01 } } }
    }
    matcher { argmax_matcher { unmatched_threshold: 0.5 } }
    box_predictor {
      weight_shared_convolutional_box_predictor {
        depth: 128
        num_layers_before_predictor: 4
        share_prediction_tower: true
        conv_hyperparams { initializer { random_normal_initializer { stddev: 0.01 } } }
      }
    }
    loss { localization_weight: 1 }
    post_processing { batch_non_max_suppression { iou_threshold: 0.6 } }
  }
}
train_config {
  optimizer {
    momentum_optimizer {
      learning_rate { cosine_decay_learning_rate {} }
      momentum_optimizer_value: 0.9
    }
  }
  data_augmentation_options {
    random_crop_image {
      min_object_covered: 0
      min_aspect_ratio: 0.75
      max_aspect_ratio: 3
      min_area: 0.75
      overlap_thresh: 0
    }
  }
}
"""

# The device whose detector has a single stage.
MOBILE = 'mobile'
# The finest pyramid level is the coarsest of these levels whose smallest anchor covers enough
# cells.
_FINEST_LEVELS, _MIN_ANCHOR_CELLS, _MAX_ANCHOR_CELLS = (3, 2), 2.5, 8.0
_STRIDE = 32  # The stride of the backbone's last stage; sides of images are multiples of it.


@dataclasses.dataclass(frozen=True)
class Device:
    """Limits of model and training for a kind of machine.

    Attributes:
      min_side: minimum length of an image's longer side, in pixels.
      max_side: maximum length of an image's longer side, in pixels.
      small_object: minimum side of small objects in resized images, in pixels.
      batch_size: number of images per training step.
      backbone: name of ImageNet weights, as `tfod weights` has it.
      rates: learning rates of a batch of 4 images, with pretrained weights and without.
    """

    min_side: int
    max_side: int
    small_object: float
    batch_size: int
    backbone: str
    rates: tuple[float, float] = (0.01, 0.03)


DEVICES = {
    'cpu': Device(128, 512, 20.0, 4, 'resnet50'),
    'gpu': Device(320, 1024, 32.0, 8, 'resnet50'),
    MOBILE: Device(128, 320, 16.0, 8, 'mobilenet_v2'),
}


@dataclasses.dataclass
class Starter:
    """A config, and pairs of a field's path and the reason for its value."""

    pipeline: TrainEvalPipelineConfig
    reasons: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    @property
    def model(self) -> Any:
        """The message of the config's model."""
        return getattr(self.pipeline.model, self.pipeline.model.WhichOneof('model'))

    def explain_model(self, path: str, reason: str) -> None:
        """Explains a field of the model's message."""
        self.explain(f'model.{self.pipeline.model.WhichOneof("model")}.{path}', reason)

    def explain(self, path: str, reason: str) -> None:
        self.reasons.append((path, reason))


def fit_image_size(starter: Starter, train: DataStatistics, limits: Device) -> int:
    """Sets the resizer; returns the length of the longer side of most images, in pixels."""
    longer = train.image_sizes.max(axis=1)
    original = int(np.quantile(longer, 0.9))
    sizes = np.sqrt(train.box_sizes.prod(axis=1))
    # A tenth of all objects may be smaller, and half of those of each class.
    small = float(np.quantile(sizes, 0.1))
    medians = [
        (float(np.median(sizes[train.box_classes == number])), name)
        for number, name in train.class_names.items()
        if train.objects_per_class[name]
    ]
    smallest = min([small, *(median for median, _ in medians)])
    needed = limits.small_object / smallest
    side = min(max(needed, limits.min_side), limits.max_side, max(original, limits.min_side))
    side = round_up(side)
    scaled = side * train.image_sizes / longer[:, None]
    height, width = (round_up(value) for value in np.quantile(scaled, 0.98, axis=0))
    resizer = starter.model.image_resizer.keep_aspect_ratio_resizer
    resizer.min_dimension, resizer.max_dimension = side, side
    resizer.pad_height, resizer.pad_width = height, width
    of_class = ''
    if len(medians) > 1:
        median, name = min(medians)
        of_class = f', and {name}, the smallest class, {median * side:.0f} (median)'
    starter.explain_model(
        'image_resizer',
        f'{height} x {width} (height x width): the images are {_range(longer)} pixels along their '
        f'longer side; a small object (1 of 10 is smaller) has {small * side:.0f} pixels then'
        f'{of_class}.' + _too_small(smallest * side, limits),
    )
    return side


def _too_small(pixels: float, limits: Device) -> str:
    if pixels >= limits.small_object / 2:
        return ''
    return ' That is little: cut the images into tiles, or allow larger ones by these fields.'


@dataclasses.dataclass(frozen=True)
class Anchors:
    """Anchors of a pyramid that fit the objects of a data set.

    Attributes:
      min_level, max_level: levels of the pyramid; level l has stride 2**l.
      scale: side of the smallest anchor of a level, in strides.
      aspect_ratios: widths of anchors divided by their heights.
      reason: explanation of the values.
    """

    min_level: int
    max_level: int
    scale: float
    aspect_ratios: tuple[float, ...]
    reason: str


def fit_anchors(train: DataStatistics, side: int, kind: str) -> Anchors:
    """Returns anchors for a data set.

    Args:
      train: the records.
      side: length of the longer side of images, in pixels.
      kind: field of the message of the model.
    """
    finest_level, coarsest_level = _LEVELS[kind]
    sizes = np.sqrt(train.box_sizes.prod(axis=1)) * side
    smallest, largest = np.quantile(sizes, [0.05, 0.95])
    candidates = [level for level in _FINEST_LEVELS if level >= finest_level]
    finest = next(
        (level for level in candidates if smallest >= _MIN_ANCHOR_CELLS * 2**level), candidates[-1]
    )
    scale = float(np.clip(smallest / 2**finest, _MIN_ANCHOR_CELLS, _MAX_ANCHOR_CELLS))
    scale = round(2 * scale) / 2
    # A level has anchors of its smallest size, and of this size times the square root of 2.
    levels = math.ceil(math.log2(max(largest / (scale * 2**finest * math.sqrt(2)), 1)))
    # The pyramid needs at least two levels, and more than one cell in its coarsest level.
    coarsest = min(max(finest + levels, finest + 1), coarsest_level, int(math.log2(side)) - 1)
    ratios = train.box_sizes[:, 1] / train.box_sizes[:, 0]
    narrow, wide = np.quantile(ratios, [0.1, 0.9])
    aspect_ratios = [1.0]
    aspect_ratios.extend(r for r in (2.0, 3.0) if wide > r / math.sqrt(2))
    aspect_ratios.extend(1 / r for r in (2.0, 3.0) if narrow < math.sqrt(2) / r)
    reason = (
        f'sides of {scale * 2**finest:.0f} to {scale * 2**coarsest * math.sqrt(2):.0f} pixels, as '
        f'objects have {smallest:.0f} to {largest:.0f} (9 of 10); width is {narrow:.1f} to '
        f'{wide:.1f} times the height (8 of 10).'
    )
    return Anchors(finest, coarsest, scale, tuple(aspect_ratios), reason)


def write_anchors(anchors: Anchors, generator: Any, pyramid: Any) -> None:
    """Sets the fields of a multiscale anchor generator and of a feature pyramid network."""
    for message in (generator, pyramid):
        message.min_level, message.max_level = anchors.min_level, anchors.max_level
    generator.anchor_scale = anchors.scale
    generator.aspect_ratios[:] = anchors.aspect_ratios


def fit_detections(starter: Starter, train: DataStatistics, path: str) -> None:
    """Sets the number of detections of an image.

    Args:
      starter: the config.
      train: the records.
      path: path of the message of post-processing in the model's message.
    """
    most = int(train.objects_per_image.max())
    suppression = getattr(starter.model, path).batch_non_max_suppression
    detections = min(max(20, -(-3 * most // 20) * 10), 300)
    suppression.max_detections_per_class = suppression.max_total_detections = detections
    starter.explain_model(
        path, f'{detections} detections an image, as images have up to {most} objects.'
    )


@dataclasses.dataclass(frozen=True)
class _Sizes:
    """Sizes of the model for a kind of machine.

    Attributes:
      depth: depth of the ResNet, unless pretrained weights determine it.
      channels: channels of the pyramid and of the convolutions of the heads.
      box_head_depth: width of the fully connected layers of the box head.
      num_proposals: least number of regions per image that the second stage classifies.
      num_sampled: number of regions per image that train the second stage.
    """

    depth: int
    channels: int
    box_head_depth: int
    num_proposals: int
    num_sampled: int


# Others have no 1x1 convolution that could have a stride.
_LEAST_WITH_BOTTLENECKS = 50
# Proposals for each object of the fullest image. Those of a frequent class have higher scores than
# those of a rare one, and an object keeps several that overlap little.
_PROPOSALS = 10
_SIZES = {'cpu': _Sizes(18, 64, 256, 100, 32), 'gpu': _Sizes(50, 256, 1024, 300, 128)}


def template(kind: str) -> TrainEvalPipelineConfig:
    """Returns a config without the values that depend on the data.

    Args:
      kind: field of the message of its model; one with two stages predicts masks.
    """
    name = _SAMPLES[kind]
    folder = importlib.resources.files('object_detection') / 'samples' / 'configs'
    pipeline = parse_pipeline((folder / name).read_text(), name)
    for section in ('train_input_reader', 'eval_input_reader', 'eval_config'):
        pipeline.ClearField(section)
    if kind == SINGLE_SHOT:
        for field in ('depth_multiplier', 'min_depth'):
            pipeline.model.ssd.feature_extractor.ClearField(field)
        text_format.Merge(_SINGLE_SHOT_CHANGES, pipeline)
    return pipeline


def predicts_masks(pipeline: TrainEvalPipelineConfig) -> bool:
    """Whether the detector of a config predicts masks."""
    return _predictor(pipeline).predict_instance_masks


def _predictor(pipeline: TrainEvalPipelineConfig) -> MaskRCNNBoxPredictor:
    return pipeline.model.faster_rcnn.second_stage_box_predictor.mask_rcnn_box_predictor


def remove_masks(pipeline: TrainEvalPipelineConfig) -> None:
    """Removes all fields of masks from the model of a config."""
    model = pipeline.model.faster_rcnn
    model.number_of_stages = 2
    predictor = model.second_stage_box_predictor.mask_rcnn_box_predictor
    for field in predictor.DESCRIPTOR.fields:
        if 'mask' in field.name:
            predictor.ClearField(field.name)
    predictor.ClearField('conv_hyperparams')
    for field in model.DESCRIPTOR.fields:
        if 'mask' in field.name:
            model.ClearField(field.name)


def remove_keypoints(starter: Starter) -> None:
    """Removes all fields of keypoints from the model of a config."""
    model = starter.pipeline.model.faster_rcnn
    predictor = model.second_stage_box_predictor.mask_rcnn_box_predictor
    if not predictor.predict_keypoints:
        return
    for message in (model, predictor):
        for field in message.DESCRIPTOR.fields:
            if 'keypoint' in field.name:
                message.ClearField(field.name)
    if not predictor.predict_instance_masks:
        predictor.ClearField('conv_hyperparams')
    starter.explain_model(
        'second_stage_box_predictor',
        'boxes alone: keypoints need names in the label map (docs/keypoints.md).',
    )


def fit_single_shot(
    starter: Starter, train: DataStatistics, weights: Weights | None, backbone: str
) -> None:
    """Fits the model of the template to a data set.

    Args:
      starter: the config, made from `template`.
      train: the records.
      weights: weights of the backbone, or None.
      backbone: name of a backbone; '' is MobileNet v2.
    """
    model = starter.pipeline.model.ssd
    if backbone:
        model.feature_extractor.type = 'ssd_fpn'
        model.feature_extractor.backbone = backbone
    why = f'SSD on {backbone or "MobileNet v2"} with a small feature pyramid (FPNLite), made for '
    why += 'phones'
    if weights:
        why += f'; its backbone begins with the weights {weights.path}.'
    else:
        why += '; it trains from random weights.'
    if train.mask_type:
        why += ' It predicts boxes alone.'
    starter.explain_model('feature_extractor', why)
    longer = fit_image_size(starter, train, DEVICES[MOBILE])
    anchors = fit_anchors(train, longer, SINGLE_SHOT)
    generator = model.anchor_generator.multiscale_anchor_generator
    write_anchors(anchors, generator, model.feature_extractor.fpn)
    starter.explain_model('anchor_generator', anchors.reason)
    fit_detections(starter, train, 'post_processing')


def fit_two_stage(
    starter: Starter,
    train: DataStatistics,
    device: str,
    *,
    wants_masks: bool,
    weights: Weights | None,
    backbone: str,
) -> None:
    """Fits the model of the template to a data set and a device.

    Args:
      starter: the config, made from `template`.
      train: the records.
      device: 'cpu' or 'gpu'.
      wants_masks: whether it predicts masks.
      weights: weights of the backbone, or None.
      backbone: name of a backbone; '' is a ResNet.
    """
    model, sizes = starter.pipeline.model.faster_rcnn, _SIZES[device]
    extractor = model.feature_extractor
    extractor.fpn.additional_layer_depth = sizes.channels
    extractor.box_head_depth = sizes.box_head_depth
    model.first_stage_box_predictor_depth = sizes.channels
    predictor = model.second_stage_box_predictor.mask_rcnn_box_predictor
    predictor.mask_prediction_conv_depth = sizes.channels
    _fit_backbone(starter, device, weights, backbone)
    longer = fit_image_size(starter, train, DEVICES[device])
    anchors = fit_anchors(train, longer, TWO_STAGE)
    generator = model.first_stage_anchor_generator
    write_anchors(anchors, generator.multiscale_anchor_generator, extractor.fpn)
    starter.explain_model('first_stage_anchor_generator', anchors.reason)
    most = int(train.objects_per_image.max())
    model.first_stage_max_proposals = max(sizes.num_proposals, min(_PROPOSALS * most, 1000))
    starter.explain_model(
        'first_stage_max_proposals',
        f'{model.first_stage_max_proposals} regions an image for up to {most} objects: each gets '
        'several, and with fewer, those of a frequent class leave none to a rare one.',
    )
    model.second_stage_batch_size = sizes.num_sampled
    model.first_stage_minibatch_size = 4 * sizes.num_sampled
    fit_detections(starter, train, 'second_stage_post_processing')
    if not wants_masks:
        remove_masks(starter.pipeline)


@dataclasses.dataclass(frozen=True)
class _TransformerSizes:
    """Sizes of an RT-DETR for a kind of machine.

    Attributes:
      backbone: name of the network.
      width: channels of maps and queries.
      hidden: of the hidden layers.
      num_layers: of the decoder.
      queries: the most queries.
    """

    backbone: str
    width: int
    hidden: int
    num_layers: int
    queries: int


_TRANSFORMERS = {
    'cpu': _TransformerSizes('resnet_vd_18', 128, 256, 3, 100),
    'gpu': _TransformerSizes('resnet_vd_50', 256, 1024, 6, 300),
}


def fit_transformer(
    starter: Starter, train: DataStatistics, device: str, weights: Weights | None, backbone: str
) -> None:
    """Fits the model of the template to a data set and a device.

    Args:
      starter: the config, made from `template`.
      train: the records.
      device: 'cpu' or 'gpu'.
      weights: weights of the backbone, or None.
      backbone: name of a backbone; '' is a ResNet-vd.
    """
    model, sizes = starter.pipeline.model.detr, _TRANSFORMERS[device]
    model.feature_extractor.backbone = backbone or sizes.backbone
    model.feature_extractor.freeze_norms = weights is not None
    model.encoder.hybrid.width = model.decoder.width = sizes.width
    model.encoder.hybrid.hidden = model.decoder.hidden = sizes.hidden
    model.decoder.num_layers = sizes.num_layers
    why = f'RT-DETR on {backbone or sizes.backbone}, a set of boxes that are not suppressed; '
    if weights:
        why += f'its backbone begins with the weights {weights.path}.'
    else:
        why += 'it trains from random weights.'
    starter.explain_model('feature_extractor', why)
    fit_image_size(starter, train, DEVICES[device])
    resizer = model.image_resizer.keep_aspect_ratio_resizer
    pixels = resizer.pad_height * resizer.pad_width
    cells = sum(pixels // 4**level for level in model.feature_extractor.levels)
    most = int(train.objects_per_image.max())
    model.queries.count = min(max(sizes.queries, 2 * most), cells // 2, 1000)
    model.queries.denoising = min(model.queries.count, 100)
    model.ClearField('max_detections')
    starter.explain_model(
        'queries',
        f'{model.queries.count} queries an image, as images have up to {most} objects and '
        f'{cells} cells.',
    )


def _fit_backbone(starter: Starter, device: str, weights: Weights | None, backbone: str) -> None:
    """Sets the network of a two-stage detector, what of it trains, and how it pads."""
    extractor = starter.model.feature_extractor
    if backbone:
        extractor.type, extractor.backbone = 'faster_rcnn_fpn', backbone
    else:
        depth = weights.depth if weights else _SIZES[device].depth
        extractor.type = f'faster_rcnn_resnet{depth}_fpn_keras'
    why = backbone or f'a ResNet that suits --for {device}'
    why += '; it trains from random weights.'
    if weights:
        # Few images give no better statistics than ImageNet, and the first layers are generic. The
        # norms keep the epsilon of their training.
        extractor.batch_norm_trainable = False
        extractor.override_base_feature_extractor_hyperparams = False
        why = f'the backbone of the weights {weights.path}.'
    if weights and not backbone:
        extractor.frozen_stages = 2
        why = why.removesuffix('.') + '; its first two stages stay frozen.'
        if weights.is_torchvision:
            extractor.padding_mode = extractor.SYMMETRIC_ALL
            if depth >= _LEAST_WITH_BOTTLENECKS:
                extractor.stride_in_1x1 = False
    starter.explain_model('feature_extractor', why)


def schedule(pipeline: TrainEvalPipelineConfig) -> Any:
    """Returns the message of the learning rate of a config that a template begins."""
    optimizer = pipeline.train_config.optimizer
    kind = optimizer.WhichOneof('optimizer')
    return getattr(optimizer, kind).learning_rate.cosine_decay_learning_rate


def round_up(value: float) -> int:
    """Returns the side of a map of whole cells that has at least so many pixels."""
    return _STRIDE * math.ceil(value / _STRIDE - 1e-6)


def _range(values: np.ndarray) -> str:
    lowest, highest = int(values.min()), int(values.max())
    return str(lowest) if lowest == highest else f'{lowest} to {highest}'
