"""Finds what in a config does not fit a TPU, or is slow or inaccurate there; loads no TensorFlow.

The rules are those of the TensorFlow Object Detection API's page about TPUs and of its published
configs for them, as far as they hold for this package too. Each finding says what to write instead.

Batch, steps and learning rate of a training on a TPU, beside those of published recipes.

The page of the TensorFlow Object Detection API about TPUs advises batches of eight times the size
of those for a GPU, fewer steps, and learning rates that grow in proportion to the batch, with a
warm-up. Its RetinaNet is trained with a rate of 0.04 and batches of 64.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.message import Message

from object_detection.config import families, plugins
from object_detection.config.findings import Finding, found, of_flag, of_model, uses_bfloat16
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.validation import warnings

_PATH = 'train_config'
_ENLARGEMENT = 8
# Images of a core: the fewest of the published recipes.
_MIN_IMAGES = 8
_RATE, _RATE_BATCH = 0.04, 64
# The published rates for each image of a batch, 0.0003 to 0.0016, are within this factor.
_RATE_TOLERANCE = 4.0
_WARMUP_STEPS, _MIN_WARMUP_STEPS = 2000, 500
# Where the warm-up starts, as a share of the rate.
_WARMUP_SHARE = 1 / 3
_MAX_STEPS = 100_000
_STEPS = 25_000
_SCALED = 'momentum_optimizer'


class _Plan(NamedTuple):
    """The sizes of the training that is advised, and whether its batch is some times larger."""

    batch_size: int
    num_steps: int
    is_enlarged: bool


class _Schedule(NamedTuple):
    """A learning rate: its option and message, the highest value, the field that holds it."""

    path: str
    highest: float
    field: str
    has_warmup: bool
    warmup_steps: int


def find_in_recipe(config: TrainConfig, cores: int) -> Iterator[Finding]:
    """Yields findings about batch, steps and learning rate for a TPU of so many cores."""
    plan = _plan(config, cores)
    yield from _batch(config, cores, plan)
    yield from _steps(config, plan)
    kind = config.optimizer.WhichOneof('optimizer')
    if kind is not None:
        yield from _rate(config, kind, plan)


def _plan(config: TrainConfig, cores: int) -> _Plan:
    batch, steps = config.batch_size, config.num_steps or _STEPS
    if batch >= _MIN_IMAGES * cores:
        return _Plan(cores * math.ceil(batch / cores), steps, is_enlarged=False)
    enlarged = max(_MIN_IMAGES * cores, cores * math.ceil(batch * _ENLARGEMENT / cores))
    if config.num_steps:
        # As many images as now.
        steps = max(1, round(steps * batch / enlarged))
    return _Plan(enlarged, steps, is_enlarged=True)


def _batch(config: TrainConfig, cores: int, plan: _Plan) -> Iterator[Finding]:
    path, batch = f'{_PATH}.batch_size', config.batch_size
    write = f'batch_size: {plan.batch_size}'
    parts = config.gradient_accumulation_steps
    if batch % cores:
        reason = f'A batch of {batch} cannot be divided among {cores} cores.'
        yield Finding(path, found(config, 'batch_size'), reason, write, is_obstacle=True)
    elif plan.is_enlarged:
        reason = (
            f'Images per core: {batch // cores}. Published recipes have {_MIN_IMAGES} to 128: '
            'use the largest batch that fits the memory, about 8 times that of a GPU.'
        )
        yield Finding(path, found(config, 'batch_size'), reason, write)
    if parts > 1 and batch % (parts * cores):
        name = 'gradient_accumulation_steps'
        reason = f'A batch of {batch} cannot be divided into {parts} parts on {cores} cores.'
        yield Finding(f'{_PATH}.{name}', str(parts), reason, f'{name}: 1', is_obstacle=True)


def _steps(config: TrainConfig, plan: _Plan) -> Iterator[Finding]:
    path, steps, batch = f'{_PATH}.num_steps', config.num_steps, config.batch_size
    write = f'num_steps: {plan.num_steps}'
    if config.HasField('num_epochs'):
        return
    if not steps:
        reason = (
            'The schedule of the learning rate needs it; published recipes have 20000 to 50000.'
        )
        yield Finding(path, found(config, 'num_steps'), reason, write)
    elif plan.is_enlarged:
        reason = (
            f'So many batches of {plan.batch_size} have as many images as {steps} batches of '
            f'{batch}: {steps * batch / 1e6:.3g} million.'
        )
        yield Finding(path, str(steps), reason, write)
    elif steps > _MAX_STEPS:
        reason = (
            f'That is {steps * batch / 1e6:.3g} million images. Published recipes have tens of '
            'thousands of steps, with large batches.'
        )
        yield Finding(path, str(steps), reason, f'num_steps: {_STEPS}')


def _rate(config: TrainConfig, kind: str, plan: _Plan) -> Iterator[Finding]:
    """Yields at most one finding about the learning rate, or the optimizer that it is for."""
    rate = getattr(config.optimizer, kind).learning_rate
    schedule = _schedule(rate, f'{_PATH}.optimizer.{kind}.learning_rate')
    if schedule is None:
        return
    advised = _RATE * plan.batch_size / _RATE_BATCH
    base = advised / _factor(config, plan.batch_size)
    write = (
        f'learning_rate {{ cosine_decay_learning_rate {{ learning_rate_base: {base:.4g} '
        f'total_steps: {plan.num_steps} warmup_learning_rate: {base * _WARMUP_SHARE:.4g} '
        f'warmup_steps: {min(_WARMUP_STEPS, plan.num_steps // 10)} }} }}'
    )
    if kind == 'rms_prop_optimizer':
        reason = (
            'Published recipes for large batches have SGD with momentum, for which rates in '
            'proportion to the batch are known to work.'
        )
        instead = f'{_SCALED} {{ {write} momentum_optimizer_value: 0.9 }}'
        where = f'{_PATH}.optimizer.{kind}'
        yield Finding(where, f'a rate of {schedule.highest:.4g}', reason, instead)
        return
    place = f'{schedule.path}.{schedule.field}'
    value = schedule.highest * _factor(config, config.batch_size)
    own = _RATE * config.batch_size / _RATE_BATCH
    is_far = kind == _SCALED and not 1 / _RATE_TOLERANCE <= value / own <= _RATE_TOLERANCE
    if is_far or (kind == _SCALED and plan.is_enlarged):
        reason = (
            f'At batch {config.batch_size} that is {value / config.batch_size:.2g} for each image. '
            f'Rates grow in proportion to the batch: {_RATE} at {_RATE_BATCH} '
            f'({_RATE / _RATE_BATCH:.2g} for each image) is {advised:.4g} at {plan.batch_size}.'
        )
        yield Finding(place, f'{value:.4g}', reason, write)
    elif not schedule.has_warmup:
        reason = 'The rates of large batches need a warm-up, without which the training diverges.'
        yield Finding(schedule.path, 'no warm-up', reason, write)
    elif 0 < schedule.warmup_steps < _MIN_WARMUP_STEPS:
        reason = (
            f'The warm-up is {schedule.warmup_steps} steps; published recipes have 1000 to 2000 '
            'for batches of 64 to 1024.'
        )
        yield Finding(schedule.path, f'{schedule.warmup_steps} steps of warm-up', reason, write)


def _factor(config: TrainConfig, batch_size: int) -> float:
    """Returns the factor of all rates that `auto_scale_lr` makes."""
    if not config.HasField('auto_scale_lr'):
        return 1.0
    return batch_size / max(config.auto_scale_lr.reference_batch_size, 1)


def _schedule(rate: Message, path: str) -> _Schedule | None:
    kind = rate.WhichOneof('learning_rate')
    if kind in (None, plugins.FIELD):
        return None
    options, warmup = getattr(rate, kind), rate.warmup
    path = f'{path}.{kind}'
    if kind == 'cosine_decay_learning_rate':
        steps = options.warmup_steps
        has_warmup = steps > 0 or options.warmup_epochs > 0
        return _Schedule(path, options.learning_rate_base, 'learning_rate_base', has_warmup, steps)
    if kind == 'manual_step_learning_rate':
        rates = [options.initial_learning_rate, *(each.learning_rate for each in options.schedule)]
        highest = max(range(len(rates)), key=rates.__getitem__)
        field = f'schedule[{highest - 1}].learning_rate' if highest else 'initial_learning_rate'
        steps = options.schedule[0].step if options.warmup and options.schedule else 0
        return _Schedule(path, rates[highest], field, options.warmup, steps)
    if kind == 'exponential_decay_learning_rate':
        steps = options.burnin_steps or warmup.steps
        highest = options.initial_learning_rate
        has_warmup = steps > 0 or warmup.epochs > 0
        return _Schedule(path, highest, 'initial_learning_rate', has_warmup, steps)
    if kind == 'one_cycle_learning_rate':
        steps = int(options.warmup_share * options.total_steps)
        return _Schedule(path, options.learning_rate_base, 'learning_rate_base', True, steps)
    field = options.DESCRIPTOR.fields[0].name
    has_warmup = warmup.steps > 0 or warmup.epochs > 0
    return _Schedule(path, getattr(options, field), field, has_warmup, warmup.steps)


_BUCKETS = (
    'The batches have {count} sizes of images, and a TPU compiles a program for fixed shapes. '
    'Remove the buckets, and let the resizer of the model pad all images to one size.'
)
_NUM_BOXES = (
    'The number of rows of the ground truth is fixed by it, and an image with more objects loses '
    'the rest, which the training reports; choose it from the data.{deprecated}'
)
_DEPRECATED = ' train_config.max_number_of_boxes is not read.'
_REMAINDER = 'The last batch would have another size, and a TPU compiles a program for one.'
_UNPAD = (
    'It has no effect here, where ground truth always stays padded; the TensorFlow Object '
    'Detection API needs false on TPUs.'
)
_FLOAT16 = 'TPUs have no float16; bfloat16 needs no loss_scale.'
_BFLOAT16 = (
    'The matrix units of a TPU compute products of bfloat16; in float32 they take several passes '
    'for each product, and activations take twice the memory.'
)
_EVALUATION = (
    'Batches are filled up with empty images to a multiple of the {cores} cores, which share them.'
)


def find(pipeline: TrainEvalPipelineConfig, *, cores: int = 8) -> list[Finding]:
    """Returns what does not fit a TPU of so many cores; obstacles come first.

    Args:
      pipeline: the config with overrides applied; the files that it names are not read.
      cores: number of cores, each of which computes the same share of a batch.
    """
    findings = list(of_model(pipeline.model))
    findings += families.find(pipeline.model).tpu(pipeline)
    findings += _readers(pipeline)
    if pipeline.HasField('train_config'):
        findings += _training(pipeline.train_config)
        findings += find_in_recipe(pipeline.train_config, cores)
    if pipeline.eval_input_reader and pipeline.eval_config.batch_size % cores:
        findings.append(
            Finding(
                'eval_config.batch_size',
                found(pipeline.eval_config, 'batch_size'),
                _EVALUATION.format(cores=cores),
                f'batch_size: {cores}',
            )
        )
    return sorted(findings, key=lambda finding: not finding.is_obstacle)


def _readers(pipeline: TrainEvalPipelineConfig) -> Iterator[Finding]:
    parts = ('train_input_reader', 'eval_input_reader')
    for path, reader in warnings.readers(pipeline, parts):
        if path == parts[0] and not pipeline.HasField(path):
            continue
        if reader.aspect_ratio_buckets:
            yield Finding(
                f'{path}.aspect_ratio_buckets',
                f'{len(reader.aspect_ratio_buckets)} buckets',
                _BUCKETS.format(count=len(reader.aspect_ratio_buckets)),
                '',
                is_obstacle=True,
            )
        if not reader.HasField('max_number_of_boxes'):
            is_training = path == parts[0]
            has_old = is_training and pipeline.train_config.HasField('max_number_of_boxes')
            yield Finding(
                f'{path}.max_number_of_boxes',
                found(reader, 'max_number_of_boxes'),
                _NUM_BOXES.format(deprecated=_DEPRECATED if has_old else ''),
                f'max_number_of_boxes: {reader.max_number_of_boxes}',
            )
        if path == parts[0] and not reader.drop_remainder:
            yield Finding(
                f'{path}.drop_remainder', 'false', _REMAINDER, 'drop_remainder: true', True
            )


def _training(config: TrainConfig) -> Iterator[Finding]:
    if config.precision == TrainConfig.MIXED_FLOAT16:
        yield Finding(
            'train_config.precision', 'MIXED_FLOAT16', _FLOAT16, 'precision: MIXED_BFLOAT16', True
        )
    elif not uses_bfloat16(config):
        yield from of_flag(config, 'train_config', 'use_bfloat16', _BFLOAT16)
    if config.unpad_groundtruth_tensors:
        yield Finding(
            'train_config.unpad_groundtruth_tensors',
            found(config, 'unpad_groundtruth_tensors'),
            _UNPAD,
            'unpad_groundtruth_tensors: false',
        )
