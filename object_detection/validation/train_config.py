"""Rules and warnings of `train_config`: variables, classes, averages, lengths, fine-tuning.

TensorFlow is not loaded.
"""

import math
import os
from collections.abc import Iterator

from google.protobuf.message import Message

from object_detection.builders import training_rules
from object_detection.config import families
from object_detection.protos.optimizer_pb2 import LearningRate, Optimizer
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.system import files
from object_detection.weights.interfaces import PRESET_WEIGHTS, check_type

# A learning rate below this share of the highest rate has no effect in practice.
_NEGLIGIBLE = 0.01


def check(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields problems of the options for single variables and classes."""
    config = pipeline.train_config
    for name in ('freeze_variables', 'update_trainable_variables'):
        yield from training_rules.pattern_problems(f'train_config.{name}', getattr(config, name))
    yield from training_rules.multiplier_problems(config.optimizer.learning_rate_multiplier)
    yield from _epochs(config.optimizer)
    if config.HasField('weight_decay'):
        yield from training_rules.weight_decay_problems(config.weight_decay)
    if config.batch_size % max(config.gradient_accumulation_steps, 1):
        yield (
            'train_config.gradient_accumulation_steps: expected a number that divides '
            f'train_config.batch_size, {config.batch_size} images. '
            f'Received: {config.gradient_accumulation_steps}.'
        )
    uses_tf32 = config.precision == TrainConfig.TF32
    patterns = config.precision_exempt_patterns
    yield from training_rules.exemption_problems(patterns, uses_tf32=uses_tf32)
    if config.HasField('loss_scale'):
        yield from _loss_scale(config)
    yield from training_rules.class_weight_problems(
        config.class_weight,
        pipeline.train_input_reader.label_map_path,
        families.num_classes(pipeline.model),
    )


def check_quantization(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields the problems of `graph_rewriter.quantization` and the precision beside it."""
    if pipeline.graph_rewriter.HasField('quantization'):
        precision = TrainConfig.Precision.Name(pipeline.train_config.precision).lower()
        yield from training_rules.quantization_problems(
            pipeline.graph_rewriter.quantization, precision
        )


def quantization_warnings(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields a warning if nothing is quantized, or a training ends before it rounds."""
    if pipeline.HasField('graph_rewriter') and not pipeline.graph_rewriter.HasField('quantization'):
        yield f'graph_rewriter: has no effect without {training_rules.QUANTIZATION}.'
    delay = pipeline.graph_rewriter.quantization.delay
    steps = pipeline.train_config.num_steps
    if pipeline.graph_rewriter.HasField('quantization') and 0 < steps <= delay:
        yield (
            f'{training_rules.QUANTIZATION}.delay: the training of {steps} steps ends before it '
            f'rounds, after {delay} steps; it only learns the ranges.'
        )


def check_averages(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields a problem if averages of the weights are to be evaluated, but are not kept."""
    if (
        pipeline.eval_config.use_moving_averages
        and not pipeline.train_config.optimizer.use_moving_average
    ):
        yield (
            'eval_config.use_moving_averages: expected train_config.optimizer.use_moving_average: '
            'true with it, as only then averages are kept. Received: false there.'
        )


def _loss_scale(config: TrainConfig) -> Iterator[str]:
    path, scale = 'train_config.loss_scale', config.loss_scale
    if config.precision != TrainConfig.MIXED_FLOAT16:
        name = TrainConfig.Precision.Name(config.precision)
        yield (
            f'{path}: expected train_config.precision: MIXED_FLOAT16 with it; gradients of other '
            f'precisions need none. Received: {name}.'
        )
    if scale.WhichOneof('kind') is None:
        yield f'{path}.kind is not set; expected dynamic or static.'


def _epochs(config: Optimizer) -> Iterator[str]:
    """Yields problems of lengths of a schedule in epochs: wrong unit, or set in both units."""
    kind = config.WhichOneof('optimizer')
    rate = getattr(config, kind).learning_rate if kind else LearningRate()
    option = rate.WhichOneof('learning_rate')
    path = f'train_config.optimizer.{kind}.learning_rate.{option}'
    pairs = [('warmup_steps', 'warmup_epochs', path, rate.cosine_decay_learning_rate)]
    pairs.append(('steps', 'epochs', f'{path.rpartition(".")[0]}.warmup', rate.warmup))
    for index, entry in enumerate(rate.manual_step_learning_rate.schedule):
        pairs.append(('step', 'epoch', f'{path}.schedule[{index}]', entry))
    for steps, epochs, place, message in pairs:
        if not message.HasField(epochs):
            continue
        if config.learning_rate_unit != Optimizer.EPOCHS:
            yield (
                f'{place}.{epochs}: expected train_config.optimizer.learning_rate_unit: EPOCHS '
                'with it. Received: STEPS.'
            )
        if message.HasField(steps):
            yield f'{place}.{steps}, {epochs}: expected one of them. Received: both.'


def without_effect(config: Optimizer) -> Iterator[tuple[str, str]]:
    """Yields the path of each field of the optimizer that has no effect, and why."""
    path = 'train_config.optimizer'
    if config.HasField('moving_average_decay') and not config.use_moving_average:
        yield f'{path}.moving_average_decay', f'{path}.use_moving_average is false'
    if config.moving_average_ramp and not config.use_moving_average:
        yield f'{path}.moving_average_ramp', f'{path}.use_moving_average is false'
    kind = config.WhichOneof('optimizer')
    rate = getattr(config, kind).learning_rate if kind else LearningRate()
    optimizer = getattr(config, kind) if kind else config
    # Muon also chooses by the pattern what has Adam.
    if (
        'exclude_pattern' in optimizer.DESCRIPTOR.fields_by_name
        and optimizer.HasField('exclude_pattern')
        and not optimizer.weight_decay
        and kind not in ('lars_optimizer', 'muon_optimizer')
    ):
        yield f'{path}.{kind}.exclude_pattern', f'{path}.{kind}.weight_decay is 0'
    path = f'{path}.{kind}.learning_rate'
    exponential, cosine = rate.exponential_decay_learning_rate, rate.cosine_decay_learning_rate
    if exponential.burnin_learning_rate and not exponential.burnin_steps:
        option = f'{path}.exponential_decay_learning_rate'
        yield f'{option}.burnin_learning_rate', 'burnin_steps is 0'
    # In epochs there is no default.
    in_epochs = config.learning_rate_unit == Optimizer.EPOCHS
    steps = cosine.warmup_steps if cosine.HasField('warmup_steps') or not in_epochs else 0
    if cosine.HasField('warmup_learning_rate') and not (steps or cosine.warmup_epochs):
        option = f'{path}.cosine_decay_learning_rate'
        yield f'{option}.warmup_learning_rate', 'there is no warm-up'


def schedule_warnings(config: TrainConfig) -> Iterator[str]:
    """Yields at most one sentence if the schedule is longer or shorter than the training."""
    kind = config.optimizer.WhichOneof('optimizer')
    rate = getattr(config.optimizer, kind).learning_rate if kind else None
    option = rate.WhichOneof('learning_rate') if rate else None
    # Schedules in epochs are compared after their conversion to steps.
    in_steps = config.optimizer.learning_rate_unit == Optimizer.STEPS
    if not (config.num_steps and in_steps and option):
        return
    path = f'train_config.optimizer.{kind}.learning_rate'
    if rate.warmup.steps >= config.num_steps:
        yield (
            f'{_field(rate.warmup, "steps", f"{path}.warmup")}, but train_config.num_steps is '
            f'{config.num_steps}: the training ends within the warm-up.'
        )
    elif option in _SCHEDULE_WARNINGS:
        schedule = getattr(rate, option)
        yield from _SCHEDULE_WARNINGS[option](schedule, config.num_steps, f'{path}.{option}')


def _cosine(schedule: Message, num_steps: int, path: str) -> Iterator[str]:
    total, base = schedule.total_steps, schedule.learning_rate_base
    if schedule.warmup_steps >= num_steps:
        yield (
            f'{_field(schedule, "warmup_steps", path)}, but train_config.num_steps is {num_steps}: '
            'the training ends within the warm-up.'
        )
    elif num_steps > total:
        yield (
            f'train_config.num_steps is {num_steps}, but {_field(schedule, "total_steps", path)}: '
            f'the learning rate is 0 for the last {num_steps - total} steps.'
        )
    else:
        start = schedule.warmup_steps + schedule.hold_base_rate_steps
        progress = max(0.0, num_steps - start) / max(1, total - start)
        share = (1 + math.cos(math.pi * progress)) / 2
        if share > _NEGLIGIBLE:
            yield (
                f'{_field(schedule, "total_steps", path)}, but train_config.num_steps is '
                f'{num_steps}: the training ends while the learning rate is still {share:.0%} of '
                f'its highest, {base:g}.'
            )


def _manual_steps(schedule: Message, num_steps: int, path: str) -> Iterator[str]:
    for index, entry in enumerate(schedule.schedule):
        if entry.step >= num_steps:
            is_warmup = schedule.warmup and index == 0
            lost = 'the training ends within the warm-up' if is_warmup else 'it is never reached'
            yield (
                f'{path}.schedule[{index}].step is {entry.step}, but train_config.num_steps is '
                f'{num_steps}: {lost}.'
            )
            return


def _exponential(schedule: Message, num_steps: int, path: str) -> Iterator[str]:
    if schedule.burnin_steps >= num_steps:
        yield (
            f'{_field(schedule, "burnin_steps", path)}, but train_config.num_steps is {num_steps}: '
            'the training ends within the burn-in.'
        )
        return
    periods = (num_steps - 1 - schedule.burnin_steps) / max(1, schedule.decay_steps)
    if schedule.staircase:
        periods = math.floor(periods)
    first = max(schedule.initial_learning_rate, schedule.min_learning_rate)
    decayed = schedule.initial_learning_rate * schedule.decay_factor**periods
    last = max(decayed, schedule.min_learning_rate)
    if last > (1 - _NEGLIGIBLE) * first:
        numbers = ', '.join(
            _field(schedule, name, path if name == 'decay_steps' else '')
            for name in ('decay_steps', 'decay_factor', 'min_learning_rate')
        )
        yield (
            f'{numbers}, and train_config.num_steps is {num_steps}: the learning rate never falls; '
            f'it is {first:g} at first and {last:g} in the last step.'
        )


def _total_steps(schedule: Message, num_steps: int, path: str) -> Iterator[str]:
    if num_steps != schedule.total_steps:
        effect = (
            'the schedule does not come to its end'
            if num_steps < schedule.total_steps
            else f'the last {num_steps - schedule.total_steps} steps have its last rate'
        )
        yield (
            f'{_field(schedule, "total_steps", path)}, but train_config.num_steps is {num_steps}: '
            f'{effect}.'
        )


def _restarts(schedule: Message, num_steps: int, path: str) -> Iterator[str]:
    ends, length = [schedule.first_period_steps], schedule.first_period_steps
    while length and ends[-1] < num_steps:
        length *= max(schedule.period_multiplier, 1)
        ends.append(ends[-1] + length)
    if num_steps not in ends:
        before = f'{ends[-2]} or ' if len(ends) > 1 else ''
        yield (
            f'{_field(schedule, "first_period_steps", path)}, but train_config.num_steps is '
            f'{num_steps}: the training ends within a period; with {before}{ends[-1]} steps it '
            'would end where the rate is lowest.'
        )


def _field(schedule: Message, name: str, path: str) -> str:
    value = getattr(schedule, name)
    default = '' if schedule.HasField(name) else ' (the default)'
    number = f'{value:g}' if isinstance(value, float) else value
    return f'{path}{"." if path else ""}{name} is {number}{default}'


_SCHEDULE_WARNINGS = {
    'cosine_decay_learning_rate': _cosine,
    'manual_step_learning_rate': _manual_steps,
    'exponential_decay_learning_rate': _exponential,
    'cosine_restarts_learning_rate': _restarts,
    'polynomial_learning_rate': _total_steps,
    'one_cycle_learning_rate': _total_steps,
}


WEIGHTS_SUFFIXES = ('.h5', '.hdf5', '.keras', '.npz')

_ROOT = 'train_config'


def resolve_type(checkpoint_type: str, from_detection_checkpoint: bool) -> str:
    """Returns which weights are restored, also for an empty `checkpoint_type`."""
    return checkpoint_type or ('detection' if from_detection_checkpoint else 'classification')


def check_fine_tuning(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields one sentence per problem of the fields about fine-tuning."""
    config = pipeline.train_config
    if config.fine_tune_checkpoint_type:
        yield from check_type(config.fine_tune_checkpoint_type)
    path = config.fine_tune_checkpoint
    if not path:
        return
    chosen = resolve_type(config.fine_tune_checkpoint_type, config.from_detection_checkpoint)
    if config.load_all_detection_checkpoint_vars and chosen == 'classification':
        yield (
            f'{_ROOT}.load_all_detection_checkpoint_vars takes all that fits from the checkpoint '
            f"of a detector; expected {_ROOT}.fine_tune_checkpoint_type: 'detection' or 'full'. "
            "Received: 'classification'"
            + ('.' if config.fine_tune_checkpoint_type else ' (unset).')
        )
    if path.endswith(WEIGHTS_SUFFIXES) and chosen != 'classification':
        yield (
            f'{_ROOT}.fine_tune_checkpoint_type: the weights file {path!r} holds a backbone '
            f"alone; expected 'classification'. Received: {chosen!r}."
        )
    if not _exists(path):
        yield (
            f'{_ROOT}.fine_tune_checkpoint: expected the prefix of a checkpoint, such as '
            'DIR/ckpt-3, a folder of checkpoints, or a file of weights of Keras, tensorpack, '
            'PyTorch or detectron2. '
            f'Received: {path!r}, where there is none; leave it empty to train from scratch, or '
            'to go on in a model_dir.'
        )


def _exists(path: str) -> bool:
    if files.exists(f'{path}.index'):
        return True
    if not os.path.isdir(path):
        return files.exists(path)
    return any(files.exists(os.path.join(path, name)) for name in ('checkpoint', PRESET_WEIGHTS))
