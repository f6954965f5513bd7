"""A pipeline config for the config.json of a detector of transformers; loads no TensorFlow."""

import collections
import json
import os
import textwrap
from typing import Any, NamedTuple

from google.protobuf import text_format
from google.protobuf.message import Message

from object_detection.errors import ConfigError, format_list, within
from object_detection.meta_architectures.detr import rules, transformers_config
from object_detection.meta_architectures.detr.transformers_config import (
    D_FINE,
    DETR,
    RF_DETR,
    RT_DETR,
    RT_DETR_V2,
    Translated,
)
from object_detection.meta_architectures.detr.transformers_fields import Fields, is_integer, shown
from object_detection.protos import string_int_label_map_pb2
from object_detection.protos.detr_pb2 import Detr
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.system import files, texts

_MOST_BYTES = 16 << 20
PREPROCESSOR = 'preprocessor_config.json'
_PLACEHOLDER = 'PATH_TO_BE_CONFIGURED'
_MOST_SIDE = 4096
_SIDE = 640
_SHORTER, _LONGER = 800, 1333
# Names of `size`: those of images that keep their shape, of stretched ones, and of some not built.
_EDGES, _SQUARE = ('shortest_edge', 'longest_edge'), ('height', 'width')
_MOST_SIDES = ('max_height', 'max_width')
_OF_EDGES = 'shortest_edge and longest_edge, or height and width, say the size'
_OF_SIDES = 'height and width say the size, as images are stretched to it'
# What Pillow calls it.
_BILINEAR = 2
# Names and formats, and padding, which the batch decides here.
_WITHOUT_EFFECT = (
    'data_format device disable_grouping do_convert_annotations do_convert_rgb do_pad '
    'feature_extractor_type format image_processor_type input_data_format model_input_names '
    'pad_and_return_pixel_mask processor_class return_segmentation_masks return_tensors'
)
# The backbone learns slower; norms, biases and the like do not decay, see AdamWOptimizer.
_BACKBONE, _BACKBONE_FACTOR = '^backbone/', 0.1
_MAX_NORM = 0.1
_WARMUP_STEPS = 2000


class _Training(NamedTuple):
    """The training that is written for a detector, in the manner of its paper, but no copy of it.

    Common to all of them: AdamW, a tenth of the learning rate for the backbone, gradients that
    are clipped; without images of several sizes, and without an end of augmentations before the
    last passes.
    """

    title: str
    papers: str
    learning_rate: float
    weight_decay: float
    batch_size: int
    epochs: int
    # From which on the learning rate is a tenth; 0 leaves it.
    drop_epoch: int = 0
    averages: bool = True
    distorts: bool = True


_RT_DETR_PAPERS = 'https://arxiv.org/abs/2304.08069'
_TRAININGS = {
    RT_DETR: _Training('RT-DETR', _RT_DETR_PAPERS, 1e-4, 1e-4, 16, 72),
    RT_DETR_V2: _Training(
        'RT-DETR v2', f'{_RT_DETR_PAPERS}, https://arxiv.org/abs/2407.17140', 1e-4, 1e-4, 16, 72
    ),
    D_FINE: _Training('D-FINE', 'https://arxiv.org/abs/2410.13842', 2.5e-4, 1.25e-4, 32, 72),
    RF_DETR: _Training(
        'RF-DETR', 'https://arxiv.org/abs/2511.09554', 1e-4, 1e-4, 16, 60, distorts=False
    ),
    DETR: _Training(
        'DETR',
        'https://arxiv.org/abs/2005.12872',
        *(1e-4, 1e-4, 64, 300, 200),
        averages=False,
        distorts=False,
    ),
}


class Made(NamedTuple):
    """A pipeline config.

    Attributes:
      pipeline: it.
      translated: what the config.json says.
    """

    pipeline: TrainEvalPipelineConfig
    translated: Translated

    def text(self) -> str:
        """Returns the config as text, below comments on its model and how to use it."""
        lines = _header(_TRAININGS[self.translated.kind], self.pipeline.model.detr.num_classes)
        wrapped = [
            each for line in lines for each in textwrap.wrap(line, 96, subsequent_indent='  ')
        ]
        text = text_format.MessageToString(
            self.pipeline, as_utf8=True, use_short_repeated_primitives=True
        )
        return ''.join(f'# {line}\n' for line in wrapped) + '\n' + text

    def label_map_text(self) -> str:
        """Returns the label map of the classes: label i of transformers has the id i + 1 here.

        Of labels that several classes have, such as N/A of COCO, names end with the id.
        """
        labels = self.translated.labels
        counts = collections.Counter(labels)
        label_map = string_int_label_map_pb2.StringIntLabelMap()
        for number, label in enumerate(labels, start=1):
            is_name = counts[label] == 1 and label.strip() and label != 'background'
            name = label if is_name else f'{label.strip() or "class"} {number}'
            label_map.item.add(id=number, name=name)
        return text_format.MessageToString(label_map, as_utf8=True)

    def notes(self) -> list[str]:
        """Returns lines about fields that were not read."""
        unknown = self.translated.unknown
        if not unknown:
            return []
        return [f'Not read, nor by transformers: {format_list(map(shown, unknown))}.']


def _header(training: _Training, num_classes: int) -> list[str]:
    """Returns the comments of a config: its model, its papers, how to use it, what to expect."""
    return [
        f'{training.title} of {num_classes} classes, as transformers computes it: weights '
        'that it has trained give the same detections here.',
        f'Papers: {training.papers}',
        'Command: object_detection.load(WEIGHTS, config=FILE), with the model.safetensors of the '
        'model; or tfod train --config FILE --model_dir DIR, with PATH_TO_BE_CONFIGURED replaced '
        'below.',
        "To expect: of trained weights, the numbers of the model's card. The training below is in "
        f'the manner of the paper, but no copy of it: AdamW at {training.learning_rate:g} '
        f'({_BACKBONE_FACTOR:g} of it for the backbone), {training.epochs} passes in batches of '
        f'{training.batch_size}. It has not been measured with this toolkit.',
        'Left to set: images of several sizes (keep_aspect_ratio_resizer with min_dimension_range, '
        'or with aspect_ratio_buckets of the reader), and augmentations that end before the last '
        'passes (stop_after_step of data_augmentation_options).',
        'Made by `tfod config from_transformers`.',
    ]


def make(path: str, *, label_map: str = '', weights: str = '') -> Made:
    """Returns the pipeline of a config.json, and of a preprocessor_config.json beside it.

    Args:
      path: the config.json.
      label_map: path of the label map; '' leaves a placeholder, as for records.
      weights: path of the weights that a training begins with; '' is none.

    Raises:
      ConfigError: if a file cannot be read, or a field of it asks for what is not built.
    """
    values = _read(path)
    with within(path):
        translated = transformers_config.translate(values)
    pipeline = TrainEvalPipelineConfig()
    detr = pipeline.model.detr
    detr.CopyFrom(translated.detr)
    beside = os.path.join(os.path.dirname(path), PREPROCESSOR)
    processor = _read(beside) if os.path.exists(beside) else {}
    with within(beside):
        fields = Fields(processor, without_effect=_WITHOUT_EFFECT)
        unknown = _set_images(detr, translated.kind, fields)
    unknown = [*translated.unknown, *(f'{each} of {PREPROCESSOR}' for each in unknown)]
    _set_training(pipeline.train_config, _TRAININGS[translated.kind], weights)
    label_map = label_map or f'{_PLACEHOLDER}/label_map.pbtxt'
    reader = pipeline.train_input_reader
    reader.label_map_path = label_map
    reader.tf_record_input_reader.input_path.append(f'{_PLACEHOLDER}/train-?????-of-?????')
    reader.skip_crowd = True
    reader.filter_empty_images = True
    pipeline.eval_config.metrics_set.append('coco_detection_metrics')
    pipeline.eval_config.batch_size = 8
    reader = pipeline.eval_input_reader.add(label_map_path=label_map, shuffle=False, num_epochs=1)
    reader.tf_record_input_reader.input_path.append(f'{_PLACEHOLDER}/val-?????-of-?????')
    return Made(pipeline, translated._replace(unknown=unknown))


def _read(path: str) -> Any:
    """Returns what a file of JSON holds."""
    try:
        size = os.path.getsize(path)
        if size > _MOST_BYTES:
            raise ConfigError.expected(path, f'at most {_MOST_BYTES} bytes', size)
        return json.loads(texts.decode(files.read_bytes(path), path))
    except OSError as error:
        raise ConfigError.expected(path, 'a file of JSON', error.strerror or error) from error
    except RecursionError as error:
        raise ConfigError.expected(path, 'JSON', 'lists too deep in each other') from error
    except json.JSONDecodeError as error:
        raise ConfigError.expected(path, 'JSON', error) from error


def _set_images(detr: Detr, kind: str, fields: Fields) -> list[str]:
    """Sets the normalisation of images and their size; returns the fields that were not read."""
    _set_values(detr.feature_extractor.preprocess, fields)
    fields.only('do_resize', True, 'the images of a batch have one size')
    fields.only('resample', _BILINEAR, 'that is bilinear, and others are not built')
    fields.only('do_center_crop', False, 'images are not cropped')
    fields.none('pad_size', 'images are padded to the largest of their batch')
    size = _size(fields)
    for side, other in (_SQUARE, _SQUARE[::-1]):
        if side in size and other not in size:
            raise size.error(other, f'a whole number, as {size.where(side)} is there')
    keeps_shape = kind == DETR and 'height' not in size
    for name in _MOST_SIDES if keeps_shape else (*_EDGES, *_MOST_SIDES):
        size.none(name, _OF_EDGES if keeps_shape else _OF_SIDES)
    (_keep_shape if keeps_shape else _stretch)(detr, size)
    return [*fields.unknown(), *size.unknown()]


def _set_values(preprocess: Message, fields: Fields) -> None:
    """Sets what is computed of the values of images.

    Args:
      preprocess: has what the image processor of transformers does where the file says nothing.
      fields: those of the file.
    """
    if not fields.flag('do_rescale', True):
        raise fields.error('do_rescale', 'true')
    factor = fields.number('rescale_factor', preprocess.scale)
    if not factor:
        raise fields.error('rescale_factor', 'a number above 0')
    preprocess.scale = factor
    mean = fields.numbers('image_mean', transformers_config.MEAN)
    std = fields.numbers('image_std', transformers_config.STD)
    if min(std) <= 0:
        raise fields.error('image_std', 'three numbers above 0')
    is_normalized = fields.flag('do_normalize', bool(preprocess.mean))
    preprocess.mean[:], preprocess.std[:] = (mean, std) if is_normalized else ((), ())


def _size(fields: Fields) -> Fields:
    """Returns the object `size`, for which earlier files have the shortest edge, or two sides."""
    value = fields.take('size', {})
    if isinstance(value, list | tuple):
        sides = fields.integers('size', ())
        if len(sides) != len(_SQUARE):
            raise fields.error('size', 'height and width')
        value = dict(zip(_SQUARE, sides, strict=True))
    elif is_integer(value):
        longest = _pixels(fields, 'max_size', _LONGER)
        value = dict(zip(_EDGES, (value, longest), strict=True))
    return Fields(value, 'size')


def _keep_shape(detr: Detr, size: Fields) -> None:
    """Images that keep their shape, padded with what is zero after the normalisation."""
    resizer = detr.image_resizer.keep_aspect_ratio_resizer
    shorter, longer = _EDGES
    resizer.min_dimension = _pixels(size, shorter, _SHORTER)
    resizer.max_dimension = _pixels(size, longer, _LONGER)
    resizer.round_down = resizer.half_pixel_centers = True
    preprocess = detr.feature_extractor.preprocess
    zeros = (round(mean / preprocess.scale, 3) for mean in preprocess.mean)
    resizer.per_channel_pad_value.extend(zeros)


def _stretch(detr: Detr, size: Fields) -> None:
    """Images of one height and width."""
    height, width = _sides(detr)
    height, width = _pixels(size, 'height', height), _pixels(size, 'width', width)
    multiple = rules.padding_multiple(detr)
    if height % multiple or width % multiple:
        raise size.error('height', f'a multiple of {multiple}, and the width alike')
    resizer = detr.image_resizer.fixed_shape_resizer
    resizer.height, resizer.width, resizer.half_pixel_centers = height, width, True


def _pixels(size: Fields, name: str, default: int) -> int:
    side = size.integer(name, default)
    if side > _MOST_SIDE:
        raise size.error(name, f'at most {_MOST_SIDE} pixels')
    return side


def _sides(detr: Detr) -> tuple[int, int]:
    """Returns height and width of images where no file says them."""
    sizes = detr.feature_extractor.dinov2
    side = sizes.image_size if detr.feature_extractor.HasField('dinov2') else _SIDE
    multiple = rules.padding_multiple(detr)
    return (-(-side // multiple) * multiple,) * 2


def _set_training(config: TrainConfig, training: _Training, weights: str) -> None:
    config.batch_size = training.batch_size
    config.num_epochs = training.epochs
    config.gradient_clipping_by_norm = _MAX_NORM
    if weights:
        config.fine_tune_checkpoint = weights
        config.fine_tune_checkpoint_type = 'full'
    optimizer = config.optimizer
    optimizer.adamw_optimizer.weight_decay = training.weight_decay
    rate = optimizer.adamw_optimizer.learning_rate
    if training.drop_epoch:
        optimizer.learning_rate_unit = optimizer.EPOCHS
        rate.manual_step_learning_rate.initial_learning_rate = training.learning_rate
        rate.manual_step_learning_rate.schedule.add(
            epoch=training.drop_epoch, learning_rate=training.learning_rate / 10
        )
    else:
        rate.constant_learning_rate.learning_rate = training.learning_rate
        rate.warmup.steps = _WARMUP_STEPS
    optimizer.learning_rate_multiplier.add(variables=_BACKBONE, multiplier=_BACKBONE_FACTOR)
    optimizer.use_moving_average = training.averages
    if training.averages:
        optimizer.moving_average_decay = 0.9999
        optimizer.moving_average_ramp = _WARMUP_STEPS
    if training.distorts:
        config.data_augmentation_options.add().photometric_distortion.SetInParent()
        config.data_augmentation_options.add().ssd_random_crop.SetInParent()
    config.data_augmentation_options.add().random_horizontal_flip.SetInParent()
