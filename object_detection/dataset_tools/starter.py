"""Makes a pipeline config that fits a data set, with a reason for each chosen value.

The choices are rules of thumb: anchors fit the sizes of the objects, images are as small as small
objects allow, and the number of passes over the data depends on the number of images.
"""

import contextlib
import math
import os
import textwrap

from google.protobuf import text_format

from object_detection.dataset_tools import starter_detector, starter_parts, starter_weights
from object_detection.dataset_tools.data_statistics import DataStatistics, find_pattern
from object_detection.dataset_tools.starter_parts import (
    DEVICES,
    MOBILE,
    SINGLE_SHOT,
    TRANSFORMER,
    TWO_STAGE,
    Device,
    Starter,
)
from object_detection.dataset_tools.starter_weights import Weights
from object_detection.errors import ConfigError, format_list
from object_detection.protos import input_reader_pb2

TASKS = ('boxes', 'masks')
# Learning rates of Adam for a batch of 4 images, with pretrained weights and without.
_ADAM_RATES = (0.0001, 0.0003)


def make(
    train: DataStatistics,
    validation: DataStatistics | None,
    *,
    device: str,
    task: str,
    weights: Weights | None,
    backbone: str = '',
    model: str = '',
    num_steps: int | None = None,
    epochs: float | None = None,
) -> Starter:
    """Returns a config for a data set.

    Args:
      train: the records to train on.
      validation: the records to evaluate on; None evaluates the training records.
      device: a key of `DEVICES`.
      task: one of `TASKS`, or '' for masks where the records have masks.
      weights: initial weights; with weights of a whole detector, its model is used.
      backbone: name of a backbone; '' is that of the weights, or one that suits the device.
      model: `TRANSFORMER`, or '' for a detector that suits the device.
      num_steps: number of training steps, to which the schedule is fitted.
      epochs: number of passes over the data, in place of `num_steps`; both None choose it.

    Raises:
      ConfigError: if the records or the weights do not fit the task.
    """
    wants_masks = _wants_masks(train, validation, task)
    if model == TRANSFORMER and device == MOBILE:
        raise ConfigError(f'--model {model}: expected --for cpu or gpu. Received: {device}.')
    if weights and weights.pipeline:
        kind = weights.pipeline.model.WhichOneof('model')
        if model and model != kind:
            raise ConfigError(
                f'--model {model}: expected --weights of such a detector, or none. Received: '
                f'{weights.path}, a {kind}.'
            )
        if backbone:
            raise ConfigError(
                f'--backbone {backbone}: expected --weights of a backbone, or none. Received: '
                f'{weights.path}, a detector that has its own.'
            )
        wants_masks &= task == 'masks' or starter_parts.predicts_masks(weights.pipeline)
        starter = starter_detector.make(weights, train, wants_masks=wants_masks)
    elif model == TRANSFORMER:
        if task == 'masks':
            raise ConfigError(f'--task masks: expected boxes, which --model {model} predicts.')
        wants_masks = False
        starter = Starter(starter_parts.template(TRANSFORMER))
        starter_parts.fit_transformer(starter, train, device, weights, backbone)
    elif device == MOBILE:
        if task == 'masks':
            raise ConfigError(
                f'--task masks: expected --for cpu or gpu; --for {MOBILE} predicts boxes alone.'
            )
        wants_masks = False
        starter = Starter(starter_parts.template(SINGLE_SHOT))
        starter_parts.fit_single_shot(starter, train, weights, backbone)
    else:
        starter = Starter(starter_parts.template(TWO_STAGE))
        starter_parts.fit_two_stage(
            starter, train, device, wants_masks=wants_masks, weights=weights, backbone=backbone
        )
    _fit_classes(starter, train)
    _fit_readers(starter, train, validation, wants_masks)
    _fit_training(starter, train, DEVICES[device], weights, backbone)
    _fit_schedule(starter, train, num_steps, epochs)
    return starter


def _wants_masks(train: DataStatistics, validation: DataStatistics | None, task: str) -> bool:
    kinds = [train.mask_type] + ([validation.mask_type] if validation else [])
    if task == 'masks' and not all(kinds):
        raise ConfigError(
            '--task masks: expected records with masks, as `tfod convert coco --masks` writes '
            f'them. Received: {(train if not train.mask_type else validation).pattern} without.'
        )
    return all(kinds) and task != 'boxes'


def _fit_classes(starter: Starter, train: DataStatistics) -> None:
    starter.model.num_classes = max(train.class_names)
    unused = [name for name, count in train.objects_per_class.items() if not count]
    starter.explain_model(
        'num_classes',
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
            'reads the training records, as there are no others: its metrics do not say how good '
            'the model is on new images. `tfod data split` holds out some.',
        )


def _fit_training(
    starter: Starter,
    train: DataStatistics,
    limits: Device,
    weights: Weights | None,
    backbone: str,
) -> None:
    config = starter.pipeline.train_config
    config.batch_size = min(limits.batch_size, train.num_images)
    starter.pipeline.eval_config.batch_size = config.batch_size
    schedule = starter_parts.schedule(starter.pipeline)
    is_adam = config.optimizer.HasField('adamw_optimizer')
    rates = _ADAM_RATES if is_adam else limits.rates
    rate = rates[0 if weights else 1] * config.batch_size / 4
    schedule.learning_rate_base, schedule.warmup_learning_rate = rate, round(rate / 10, 6)
    if weights:
        config.fine_tune_checkpoint, config.fine_tune_checkpoint_type = weights.path, weights.kind
        why = f'{weights.path} was given or found.'
        if weights.kind == 'full':
            why += ' All of it is restored but the layers whose size depends on the number of '
            why += 'classes, which start from random weights where that differs.'
        starter.explain('train_config.fine_tune_checkpoint', why)
    else:
        why = 'none: the model trains from random weights, which takes long and generalizes badly '
        why += 'from few images.'
        # A template may name its backbone.
        own = backbone or starter.model.feature_extractor.backbone
        folder = starter_weights.DEFAULT_FOLDER
        if own and os.path.isdir(folder):
            why += f' The folder {folder!r} has none of {own}.'
        if not own or starter_weights.published(own):
            name = own or limits.backbone
            zoo = '' if own else ', or the folder of a TensorFlow 2 zoo model as --weights,'
            why += f' `tfod weights download {name} --output weights`{zoo} gives a better start.'
        starter.explain('train_config.fine_tune_checkpoint', why)


def _fit_schedule(
    starter: Starter, train: DataStatistics, num_steps: int | None, epochs: float | None
) -> None:
    config = starter.pipeline.train_config
    if epochs is not None:
        num_steps = math.ceil(epochs * train.num_images / config.batch_size)
    if num_steps is None:
        num_steps = 50 * math.ceil(images_to_see(train.num_images) / config.batch_size / 50)
    config.num_steps = num_steps
    schedule = starter_parts.schedule(starter.pipeline)
    schedule.total_steps = num_steps
    schedule.warmup_steps = min(500, num_steps // 10)
    starter.explain(
        'train_config.num_steps',
        f'{num_steps} steps of {config.batch_size} images: each of the {train.num_images} '
        f'images {num_steps * config.batch_size / train.num_images:.3g} times.',
    )


def images_to_see(num_images: int) -> int:
    """Returns the total number of images that a training should process.

    It is at least 2,000, since no model learns from fewer steps; up to 60 passes over small sets;
    and 12 passes, the usual "1x" schedule, over large ones.
    """
    return max(2000, min(60 * num_images, 12_000), 12 * num_images)


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
