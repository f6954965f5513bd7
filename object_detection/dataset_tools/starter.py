"""Makes a pipeline config that fits a data set, with a reason for each chosen value.

The choices are rules of thumb: anchors fit the sizes of the objects, images are as small as small
objects allow, and the number of passes over the data depends on the number of images.
"""

import contextlib
import dataclasses
import importlib.resources
import math
import os
import textwrap

import numpy as np
from google.protobuf import text_format

from object_detection.config.reader import parse_pipeline
from object_detection.dataset_tools.data_statistics import DataStatistics, find_pattern
from object_detection.dataset_tools.starter_weights import Weights
from object_detection.errors import ConfigError, format_list
from object_detection.protos import input_reader_pb2
from object_detection.protos.box_predictor_pb2 import MaskRCNNBoxPredictor
from object_detection.protos.faster_rcnn_pb2 import FasterRcnn
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

TASKS = ('boxes', 'masks')
_TEMPLATE = 'mask_rcnn_resnet18_fpn_shapes.config'
# The finest pyramid level is the coarsest of these levels whose smallest anchor covers enough
# cells.
_FINEST_LEVELS, _MIN_ANCHOR_CELLS, _MAX_ANCHOR_CELLS = (3, 2), 2.5, 8.0
_MAX_LEVEL = 6
_STRIDE = 32  # The stride of the backbone's last stage; sides of images are multiples of it.


@dataclasses.dataclass(frozen=True)
class Device:
    """Limits of model and training for a kind of machine.

    Attributes:
      min_side: minimum length of an image's longer side, in pixels.
      max_side: maximum length of an image's longer side, in pixels.
      small_object: minimum side of small objects in resized images, in pixels.
      batch_size: number of images per training step.
      depth: depth of the ResNet, unless pretrained weights determine it.
      channels: channels of the pyramid and of the convolutions of the heads.
      box_head_depth: width of the fully connected layers of the box head.
      num_proposals: number of regions per image that the second stage classifies.
      num_sampled: number of regions per image that train the second stage.
    """

    min_side: int
    max_side: int
    small_object: float
    batch_size: int
    depth: int
    channels: int
    box_head_depth: int
    num_proposals: int
    num_sampled: int


DEVICES = {
    'cpu': Device(128, 512, 20.0, 4, 18, 64, 256, 100, 32),
    'gpu': Device(320, 1024, 32.0, 8, 50, 256, 1024, 300, 128),
    'mobile': Device(128, 320, 16.0, 8, 18, 64, 256, 50, 32),
}


@dataclasses.dataclass
class Starter:
    """A config, and pairs of a field's path and the reason for its value."""

    pipeline: TrainEvalPipelineConfig
    reasons: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    def explain(self, path: str, reason: str) -> None:
        self.reasons.append((path, reason))


def make(
    train: DataStatistics,
    validation: DataStatistics | None,
    *,
    device: str,
    task: str,
    weights: Weights | None,
) -> Starter:
    """Returns a config for a data set.

    Args:
      train: the records to train on.
      validation: the records to evaluate on; None evaluates the training records.
      device: a key of `DEVICES`.
      task: one of `TASKS`, or '' for masks where the records have masks.
      weights: initial weights; with weights of a whole detector, its model is used.

    Raises:
      ConfigError: if the records or the weights do not fit the task.
    """
    wants_masks = _wants_masks(train, validation, task)
    limits = DEVICES[device]
    if weights and weights.pipeline:
        wants_masks &= task == 'masks' or _predictor(weights.pipeline).predict_instance_masks
        starter = Starter(_from_detector(weights, wants_masks))
        starter.explain('model', f'is the model of {weights.path}, with the classes of the data.')
    else:
        starter = Starter(_template())
        _fit_model(starter, train, device, wants_masks, weights)
    _fit_classes(starter, train)
    _fit_readers(starter, train, validation, wants_masks)
    _fit_training(starter, train, limits, weights)
    return starter


def _wants_masks(train: DataStatistics, validation: DataStatistics | None, task: str) -> bool:
    kinds = [train.mask_type] + ([validation.mask_type] if validation else [])
    if task == 'masks' and not all(kinds):
        raise ConfigError(
            '--task masks: expected records with masks, as `tfod convert coco --masks` writes '
            f'them. Received: {(train if not train.mask_type else validation).pattern} without.'
        )
    return all(kinds) and task != 'boxes'


def _template() -> TrainEvalPipelineConfig:
    folder = importlib.resources.files('object_detection') / 'samples' / 'configs'
    pipeline = parse_pipeline((folder / _TEMPLATE).read_text(), _TEMPLATE)
    pipeline.ClearField('train_input_reader')
    pipeline.ClearField('eval_input_reader')
    pipeline.ClearField('eval_config')
    return pipeline


def _from_detector(weights: Weights, wants_masks: bool) -> TrainEvalPipelineConfig:
    """Returns a config with the model and the augmentation of a trained detector."""
    pipeline = TrainEvalPipelineConfig()
    pipeline.model.CopyFrom(weights.pipeline.model)
    kind = pipeline.model.WhichOneof('model')
    if kind != 'faster_rcnn':
        raise ConfigError(
            f'--weights {weights.path}: expected a Faster or Mask R-CNN. Received: {kind}, which '
            'is not available yet.'
        )
    if wants_masks and not _predictor(pipeline).predict_instance_masks:
        raise ConfigError(
            f'--weights {weights.path}: that detector predicts no masks; use --task boxes.'
        )
    if not wants_masks:
        _remove_masks(pipeline.model.faster_rcnn)
    for step in weights.pipeline.train_config.data_augmentation_options:
        pipeline.train_config.data_augmentation_options.add().CopyFrom(step)
    pipeline.train_config.optimizer.CopyFrom(_template().train_config.optimizer)
    pipeline.train_config.gradient_clipping_by_norm = 10.0
    return pipeline


def _predictor(pipeline: TrainEvalPipelineConfig) -> MaskRCNNBoxPredictor:
    return pipeline.model.faster_rcnn.second_stage_box_predictor.mask_rcnn_box_predictor


def _remove_masks(model: FasterRcnn) -> None:
    model.number_of_stages = 2
    predictor = model.second_stage_box_predictor.mask_rcnn_box_predictor
    for field in predictor.DESCRIPTOR.fields:
        if 'mask' in field.name:
            predictor.ClearField(field.name)
    predictor.ClearField('conv_hyperparams')
    for field in model.DESCRIPTOR.fields:
        if 'mask' in field.name:
            model.ClearField(field.name)


def _fit_model(
    starter: Starter,
    train: DataStatistics,
    device: str,
    wants_masks: bool,
    weights: Weights | None,
) -> None:
    model, limits = starter.pipeline.model.faster_rcnn, DEVICES[device]
    extractor = model.feature_extractor
    depth = weights.depth if weights else limits.depth
    extractor.type = f'faster_rcnn_resnet{depth}_fpn_keras'
    extractor.fpn.additional_layer_depth = limits.channels
    extractor.box_head_depth = limits.box_head_depth
    model.first_stage_box_predictor_depth = limits.channels
    predictor = model.second_stage_box_predictor.mask_rcnn_box_predictor
    predictor.mask_prediction_conv_depth = limits.channels
    if weights:
        # Few images give no better statistics than ImageNet, and the first layers are generic. The
        # norms keep the epsilon of their training.
        extractor.batch_norm_trainable = False
        extractor.override_base_feature_extractor_hyperparams = False
        extractor.frozen_stages = 2
        why = f'the backbone of the weights {weights.path}; its first two stages stay frozen.'
    else:
        why = f'a ResNet that suits --for {device}; it trains from random weights.'
    if device == 'mobile':
        why += ' Detectors made for phones (SSD, EfficientDet) are not available yet.'
    starter.explain('model.faster_rcnn.feature_extractor', why)
    longer = _fit_image_size(starter, train, limits)
    _fit_anchors(starter, train, longer)
    _fit_counts(starter, train, limits)
    if not wants_masks:
        _remove_masks(model)


def _fit_image_size(starter: Starter, train: DataStatistics, limits: Device) -> int:
    """Sets the resizer; returns the length of the longer side of most images, in pixels."""
    longer = train.image_sizes.max(axis=1)
    original = int(np.quantile(longer, 0.9))
    # A tenth of the objects may be smaller.
    small = float(np.quantile(np.sqrt(train.box_sizes.prod(axis=1)), 0.1))
    needed = limits.small_object / small
    side = min(max(needed, limits.min_side), limits.max_side, max(original, limits.min_side))
    side = _round_up(side)
    scaled = side * train.image_sizes / longer[:, None]
    height, width = (_round_up(value) for value in np.quantile(scaled, 0.98, axis=0))
    resizer = starter.pipeline.model.faster_rcnn.image_resizer.keep_aspect_ratio_resizer
    resizer.min_dimension, resizer.max_dimension = side, side
    resizer.pad_height, resizer.pad_width = height, width
    starter.explain(
        'model.faster_rcnn.image_resizer',
        f'{height} x {width} (height x width): the images are {_range(longer)} pixels along their '
        f'longer side; a small object (1 of 10 is smaller) has {small * side:.0f} pixels then.'
        + _too_small(small * side, limits),
    )
    return side


def _too_small(pixels: float, limits: Device) -> str:
    if pixels >= limits.small_object / 2:
        return ''
    return ' That is little: cut the images into tiles, or allow larger ones by these fields.'


def _fit_anchors(starter: Starter, train: DataStatistics, side: int) -> None:
    model = starter.pipeline.model.faster_rcnn
    sizes = np.sqrt(train.box_sizes.prod(axis=1)) * side
    smallest, largest = np.quantile(sizes, [0.05, 0.95])
    finest = next(
        (level for level in _FINEST_LEVELS if smallest >= _MIN_ANCHOR_CELLS * 2**level),
        _FINEST_LEVELS[-1],
    )
    scale = float(np.clip(smallest / 2**finest, _MIN_ANCHOR_CELLS, _MAX_ANCHOR_CELLS))
    scale = round(2 * scale) / 2
    # A level has anchors of its smallest size, and of this size times the square root of 2.
    levels = math.ceil(math.log2(max(largest / (scale * 2**finest * math.sqrt(2)), 1)))
    # The pyramid needs at least two levels, and more than one cell in its coarsest level.
    coarsest = min(max(finest + levels, finest + 1), _MAX_LEVEL, int(math.log2(side)) - 1)
    anchors = model.first_stage_anchor_generator.multiscale_anchor_generator
    for message in (anchors, model.feature_extractor.fpn):
        message.min_level, message.max_level = finest, coarsest
    anchors.anchor_scale = scale
    ratios = train.box_sizes[:, 1] / train.box_sizes[:, 0]
    narrow, wide = np.quantile(ratios, [0.1, 0.9])
    del anchors.aspect_ratios[:]
    anchors.aspect_ratios.append(1.0)
    anchors.aspect_ratios.extend(r for r in (2.0, 3.0) if wide > r / math.sqrt(2))
    anchors.aspect_ratios.extend(1 / r for r in (2.0, 3.0) if narrow < math.sqrt(2) / r)
    starter.explain(
        'model.faster_rcnn.first_stage_anchor_generator',
        f'sides of {scale * 2**finest:.0f} to {scale * 2**coarsest * math.sqrt(2):.0f} pixels, as '
        f'objects have {smallest:.0f} to {largest:.0f} (9 of 10); width is {narrow:.1f} to '
        f'{wide:.1f} times the height (8 of 10).',
    )


def _fit_counts(starter: Starter, train: DataStatistics, limits: Device) -> None:
    model = starter.pipeline.model.faster_rcnn
    most = int(train.objects_per_image.max())
    model.first_stage_max_proposals = max(limits.num_proposals, min(2 * most, 1000))
    model.second_stage_batch_size = limits.num_sampled
    model.first_stage_minibatch_size = 4 * limits.num_sampled
    suppression = model.second_stage_post_processing.batch_non_max_suppression
    detections = min(max(20, -(-3 * most // 20) * 10), 300)
    suppression.max_detections_per_class = suppression.max_total_detections = detections
    starter.explain(
        'model.faster_rcnn.second_stage_post_processing',
        f'{detections} detections an image, as images have up to {most} objects.',
    )


def _fit_classes(starter: Starter, train: DataStatistics) -> None:
    model = starter.pipeline.model.faster_rcnn
    model.num_classes = max(train.class_names)
    unused = [name for name, count in train.objects_per_class.items() if not count]
    starter.explain(
        'model.faster_rcnn.num_classes',
        f'the largest id of {train.label_map_path}.'
        + (f' Without any object: {format_list(unused)}.' if unused else ''),
    )


def _fit_readers(
    starter: Starter, train: DataStatistics, validation: DataStatistics | None, wants_masks: bool
) -> None:
    pipeline = starter.pipeline
    readers = [
        (pipeline.train_input_reader, train),
        (pipeline.eval_input_reader.add(), validation or train),
    ]
    for reader, data in readers:
        reader.label_map_path = train.label_map_path
        reader.tf_record_input_reader.input_path.append(data.pattern)
        if wants_masks:
            reader.load_instance_masks = True
            reader.mask_type = input_reader_pb2.InstanceMaskType.Value(data.mask_type)
        most = int(data.objects_per_image.max())
        # Records that were not measured may have more objects.
        room = 1.0 if data.num_sampled == data.num_images else 1.5
        reader.max_number_of_boxes = 8 * math.ceil(max(most * room, 8) / 8)
    evaluation = pipeline.eval_input_reader[0]
    evaluation.shuffle, evaluation.num_epochs = False, 1
    pipeline.eval_config.metrics_set.append('coco_detection_metrics')
    if wants_masks:
        pipeline.eval_config.metrics_set.append('coco_mask_metrics')
    pipeline.eval_config.include_metrics_per_category = True
    if validation is None:
        starter.explain(
            'eval_input_reader',
            'reads the training records, as there are no others: its figures do not tell how the '
            'model does on new images. `tfod data split` holds out some.',
        )


def _fit_training(
    starter: Starter, train: DataStatistics, limits: Device, weights: Weights | None
) -> None:
    config = starter.pipeline.train_config
    config.batch_size = min(limits.batch_size, train.num_images)
    starter.pipeline.eval_config.batch_size = config.batch_size
    images = images_to_see(train.num_images)
    config.num_steps = 50 * math.ceil(images / config.batch_size / 50)
    schedule = config.optimizer.momentum_optimizer.learning_rate.cosine_decay_learning_rate
    rate = (0.01 if weights else 0.03) * config.batch_size / 4
    schedule.learning_rate_base, schedule.warmup_learning_rate = rate, round(rate / 10, 6)
    schedule.total_steps = config.num_steps
    schedule.warmup_steps = min(500, config.num_steps // 10)
    starter.explain(
        'train_config.num_steps',
        f'{config.num_steps} steps of {config.batch_size} images: each of the {train.num_images} '
        f'images {config.num_steps * config.batch_size / train.num_images:.0f} times.',
    )
    if weights:
        config.fine_tune_checkpoint, config.fine_tune_checkpoint_type = weights.path, weights.kind
        starter.explain('train_config.fine_tune_checkpoint', f'{weights.path} was given or found.')
    else:
        starter.explain(
            'train_config.fine_tune_checkpoint',
            'none: the model trains from random weights, which takes long and generalizes badly '
            'from few images. `tfod weights download resnet50 --output weights`, or the folder of '
            'a TensorFlow 2 zoo model as --weights, gives a better start.',
        )


def images_to_see(num_images: int) -> int:
    """Returns the total number of images that a training should process.

    It is at least 2,000, since no model learns from fewer steps; up to 60 passes over small sets;
    and 12 passes, the usual "1x" schedule, over large ones.
    """
    return max(2000, min(60 * num_images, 12_000), 12 * num_images)


def _round_up(value: float) -> int:
    return _STRIDE * math.ceil(value / _STRIDE - 1e-6)


def _range(values: np.ndarray) -> str:
    lowest, highest = int(values.min()), int(values.max())
    return str(lowest) if lowest == highest else f'{lowest} to {highest}'


def validation_prefix(prefix: str) -> str:
    """Returns the prefix of validation records in the folder of training records, or ''."""
    folder, name = os.path.split(prefix)
    for word in ('val', 'valid', 'validation'):
        other = os.path.join(folder, name.replace('train', word))
        with contextlib.suppress(ConfigError):
            if other != prefix and find_pattern(other):
                return other
    return ''


def to_text(starter: Starter, path: str) -> str:
    """Returns the config as text, below comments on its purpose and the reasons for values."""
    lines = [
        'Made by `tfod config new` to fit a data set.',
        f'Command: tfod train --config {path} --model_dir model',
        'Why these values:',
    ]
    for field, reason in starter.reasons:
        lines += textwrap.wrap(
            f'{field}: {reason}', 96, initial_indent='- ', subsequent_indent='  '
        )
    header = ''.join(f'# {line}\n' for line in lines)
    return header + '\n' + text_format.MessageToString(starter.pipeline, as_utf8=True)


def format_reasons(starter: Starter, train: DataStatistics) -> list[str]:
    """Returns lines for a terminal: what was measured, then each field with its reason."""
    counts = sorted(train.objects_per_class.items(), key=lambda item: -item[1])
    shown = format_list((f'{name} {count}' for name, count in counts), limit=8)
    sampled = '' if train.num_sampled == train.num_images else f' (measured: {train.num_sampled})'
    head = f'{train.num_images} images{sampled}; objects: {shown}'
    lines = [head]
    for field, reason in starter.reasons:
        wrapped = f'{field.rpartition(".")[2]}: {reason}'
        lines += textwrap.wrap(wrapped, 98, initial_indent='- ', subsequent_indent='  ')
    return lines
