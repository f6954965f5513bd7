"""Builds the optimizer, its learning rate, the loss scale and the reduction of gradients."""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from object_detection.config import plugins
from object_detection.config.oneof import build_oneof
from object_detection.errors import UserError, expected
from object_detection.optimizers import muon, optimizers, schedules
from object_detection.optimizers.gradients import DynamicLossScale, GradientReduction, LossScale
from object_detection.optimizers.moving_averages import Averaging
from object_detection.optimizers.plateau import Plateau
from object_detection.protos import optimizer_pb2, train_pb2
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.registry import Registry


def _manual_steps(config: optimizer_pb2.ManualStepLearningRate) -> schedules.Schedule:
    return schedules.manual_steps(
        boundaries=[entry.step for entry in config.schedule],
        rates=[config.initial_learning_rate, *(entry.learning_rate for entry in config.schedule)],
        warmup=config.warmup,
    )


_MANUAL = 'manual_step_learning_rate'
# Schedule -> its lengths in steps -> the fields that hold them in fractions of epochs, if any.
_LENGTHS = {
    'exponential_decay_learning_rate': {'decay_steps': '', 'burnin_steps': ''},
    'cosine_decay_learning_rate': {
        'total_steps': '',
        'warmup_steps': 'warmup_epochs',
        'hold_base_rate_steps': '',
    },
    'cosine_restarts_learning_rate': {'first_period_steps': ''},
    'polynomial_learning_rate': {'total_steps': ''},
    'one_cycle_learning_rate': {'total_steps': ''},
}
_LENGTHS_THAT_MUST_BE_SET = {
    'exponential_decay_learning_rate': ('decay_steps',),
    'cosine_decay_learning_rate': ('total_steps',),
    'cosine_restarts_learning_rate': ('first_period_steps',),
    'polynomial_learning_rate': ('total_steps',),
    'one_cycle_learning_rate': ('total_steps',),
}
# Schedules that have a warm-up of their own unless this field is 0 or false.
_OWN_WARMUPS = {
    'exponential_decay_learning_rate': 'burnin_steps',
    'manual_step_learning_rate': 'warmup',
    'cosine_decay_learning_rate': 'warmup_steps',
    'one_cycle_learning_rate': 'warmup_share',
}
# Enough for every epoch to differ from the next.
_ANY_STEPS_PER_EPOCH = 1000.0

SCHEDULE_BUILDERS = {
    'constant_learning_rate': lambda config: schedules.constant(config.learning_rate),
    'exponential_decay_learning_rate': lambda config: schedules.exponential_decay(
        initial=config.initial_learning_rate,
        decay_steps=config.decay_steps,
        decay_factor=config.decay_factor,
        staircase=config.staircase,
        burnin_rate=config.burnin_learning_rate,
        burnin_steps=config.burnin_steps,
        minimum=config.min_learning_rate,
    ),
    _MANUAL: _manual_steps,
    'cosine_decay_learning_rate': lambda config: schedules.cosine_decay(
        base=config.learning_rate_base,
        total_steps=config.total_steps,
        warmup_rate=config.warmup_learning_rate,
        warmup_steps=config.warmup_steps,
        hold_steps=config.hold_base_rate_steps,
    ),
    'cosine_restarts_learning_rate': lambda config: schedules.cosine_restarts(
        base=config.learning_rate_base,
        first_period=config.first_period_steps,
        period_multiplier=config.period_multiplier,
        restart_factor=config.restart_factor,
        minimum=config.min_learning_rate,
    ),
    'polynomial_learning_rate': lambda config: schedules.polynomial(
        base=config.learning_rate_base,
        total_steps=config.total_steps,
        end=config.end_learning_rate,
        power=config.power,
    ),
    'one_cycle_learning_rate': lambda config: schedules.one_cycle(
        base=config.learning_rate_base,
        total_steps=config.total_steps,
        warmup_share=config.warmup_share,
        initial_share=config.initial_share,
        final_share=config.final_share,
    ),
}


def _decay(config: Message) -> optimizers.WeightDecay:
    return optimizers.WeightDecay(config.weight_decay, config.exclude_pattern)


OPTIMIZER_BUILDERS = {
    'momentum_optimizer': lambda config: optimizers.Momentum(
        build_schedule(config.learning_rate),
        momentum=config.momentum_optimizer_value,
        decay=_decay(config),
    ),
    'adamw_optimizer': lambda config: optimizers.Adam(
        build_schedule(config.learning_rate),
        beta1=config.beta_1,
        beta2=config.beta_2,
        epsilon=config.epsilon,
        decay=_decay(config),
    ),
    'lion_optimizer': lambda config: optimizers.Lion(
        build_schedule(config.learning_rate),
        beta1=config.beta_1,
        beta2=config.beta_2,
        decay=_decay(config),
    ),
    'muon_optimizer': lambda config: muon.Muon(
        build_schedule(config.learning_rate),
        momentum=config.momentum_optimizer_value,
        decay=_decay(config),
        beta1=config.beta_1,
        beta2=config.beta_2,
        epsilon=config.epsilon,
    ),
    'adam_optimizer': lambda config: optimizers.Adam(
        build_schedule(config.learning_rate), epsilon=config.epsilon
    ),
    'lars_optimizer': lambda config: optimizers.Lars(
        build_schedule(config.learning_rate),
        momentum=config.momentum_optimizer_value,
        trust_coefficient=config.trust_coefficient,
        weight_decay=config.weight_decay,
        exclude_pattern=config.exclude_pattern,
    ),
    # The reference treats `decay` as a decay of the learning rate; it belongs to the average.
    'rms_prop_optimizer': lambda config: optimizers.RmsProp(
        build_schedule(config.learning_rate),
        rho=config.decay,
        momentum=config.momentum_optimizer_value,
        epsilon=config.epsilon,
    ),
}

# Option of LearningRate -> function from its message to the schedule. A schedule of a plug-in is a
# dataclass of its options, a `Schedule`.
LEARNING_RATES: Registry[Callable[..., schedules.Schedule]] = Registry(
    'learning rate', SCHEDULE_BUILDERS
)
# Option of Optimizer -> function from its message to the optimizer. The row of a plug-in is a
# dataclass of its options, which makes the optimizer of a schedule when it is called.
OPTIMIZERS: Registry[Callable[..., optimizers.Optimizer]] = Registry(
    'optimizer', OPTIMIZER_BUILDERS
)

LOSS_SCALE_BUILDERS: dict[str, Callable[[Any], LossScale]] = {
    'dynamic': lambda config: DynamicLossScale(config.initial, config.growth_steps),
    'static': LossScale,
}


def build(
    config: optimizer_pb2.Optimizer,
    *,
    rate_factor: float = 1.0,
    plateau: Plateau | None = None,
) -> optimizers.Optimizer:
    """Builds an optimizer, which keeps averages of the weights unless the config disables them.

    `Optimizer.build`, which knows the variables, applies the factors of the learning rates of
    single variables: of `learning_rate_multiplier` and `layer_decay`.

    Args:
      config: optimizer message with a learning rate in steps; see `in_steps`.
      rate_factor: factor of the learning rate in every step.
      plateau: of `build_plateau`; its factor multiplies the rate, too.

    Raises:
      ValueError: if no optimizer or learning rate is set, the schedule is in epochs or contradicts
        itself, or a number of the optimizer is out of its range.
    """
    if config.learning_rate_unit == optimizer_pb2.Optimizer.EPOCHS:
        raise expected(
            f'{config.DESCRIPTOR.full_name}.learning_rate_unit', 'STEPS', 'EPOCHS, not converted'
        )
    optimizer = build_oneof(config, 'optimizer', OPTIMIZERS)
    if config.WhichOneof('optimizer') == plugins.FIELD:
        optimizer = _of_plugin(optimizer, config.plugin)
    if rate_factor != 1:
        optimizer.learning_rate = schedules.scaled(optimizer.learning_rate, rate_factor)
    if plateau is not None:
        optimizer.learning_rate = schedules.scaled(optimizer.learning_rate, plateau.factor)
    if config.use_moving_average:
        return Averaging(
            optimizer, decay=config.moving_average_decay, ramp=config.moving_average_ramp
        )
    return optimizer


def build_plateau(config: optimizer_pb2.Optimizer) -> Plateau | None:
    """Builds what lowers the rate, in the scope of the strategy; None if the config has nothing."""
    if not config.HasField('reduce_on_plateau'):
        return None
    plateau = config.reduce_on_plateau
    return Plateau(
        factor=plateau.factor,
        patience=plateau.patience,
        min_delta=plateau.min_delta,
        cooldown=plateau.cooldown,
        min_factor=plateau.min_factor,
    )


def _of_plugin(
    row: Callable[[schedules.Schedule], Any], config: optimizer_pb2.PluginOptimizer
) -> optimizers.Optimizer:
    optimizer = row(build_schedule(config.learning_rate))
    if not isinstance(optimizer, optimizers.Optimizer):
        raise UserError(
            f'optimizer {config.name!r}: expected a subclass of {optimizers.__name__}.Optimizer. '
            f'Received: {optimizer!r}.'
        )
    return optimizer


def check(config: optimizer_pb2.Optimizer) -> None:
    """Raises the errors of `build`, for a config in steps or in epochs."""
    if config.learning_rate_unit == optimizer_pb2.Optimizer.EPOCHS:
        config = in_steps(config, _ANY_STEPS_PER_EPOCH)
    build(config)


def in_steps(config: optimizer_pb2.Optimizer, steps_per_epoch: float) -> optimizer_pb2.Optimizer:
    """Returns a copy in steps of a config whose learning rate schedule is in epochs.

    Raises:
      ValueError: if a length whose default is a number of steps is not set, or the schedule is one
        of a plug-in.
    """
    result = optimizer_pb2.Optimizer()
    result.CopyFrom(config)
    result.ClearField('learning_rate_unit')
    kind = result.WhichOneof('optimizer')
    rate = getattr(result, kind).learning_rate if kind else optimizer_pb2.LearningRate()
    option = rate.WhichOneof('learning_rate')
    if rate.HasField('warmup'):
        _to_steps(rate.warmup, 'steps', 'epochs', steps_per_epoch)
    if option is None:
        return result
    schedule = getattr(rate, option)
    if option == plugins.FIELD:
        raise UserError(
            f'{config.DESCRIPTOR.full_name}.learning_rate_unit: expected STEPS with a schedule of '
            'a plug-in, whose lengths are unknown here. Received: EPOCHS.'
        )
    for name in _LENGTHS_THAT_MUST_BE_SET.get(option, ()):
        if not schedule.HasField(name):
            raise expected(
                f'{schedule.DESCRIPTOR.full_name}.{name}', 'a number of epochs (learning_rate_unit)'
            )
    for name, fraction in _LENGTHS.get(option, {}).items():
        _to_steps(schedule, name, fraction, steps_per_epoch)
    for entry in rate.manual_step_learning_rate.schedule if option == _MANUAL else ():
        _to_steps(entry, 'step', 'epoch', steps_per_epoch)
    return result


def _to_steps(schedule: Message, name: str, fraction: str, steps_per_epoch: float) -> None:
    """Sets the field `name` to steps; it, or the field `fraction`, holds epochs. Unset is 0."""
    epochs = getattr(schedule, name) if schedule.HasField(name) else 0
    if fraction and schedule.HasField(fraction):
        epochs = getattr(schedule, fraction)
        schedule.ClearField(fraction)
    setattr(schedule, name, schedules.steps_in(epochs, steps_per_epoch))


def build_schedule(config: optimizer_pb2.LearningRate) -> schedules.Schedule:
    """Builds a learning rate schedule, with its warm-up.

    Raises:
      ValueError: if no learning rate is set or a schedule contradicts itself.
    """
    schedule = build_oneof(config, 'learning_rate', LEARNING_RATES)
    if not config.HasField('warmup'):
        return schedule
    option = config.WhichOneof('learning_rate')
    own = _OWN_WARMUPS.get(option)
    if own and getattr(getattr(config, option), own):
        raise expected(
            f'{config.DESCRIPTOR.full_name}.warmup',
            f'none, as {option} has a warm-up of its own ({own})',
            f'{own}: {getattr(getattr(config, option), own)}',
        )
    warmup = config.warmup
    return schedules.warmed_up(schedule, initial=warmup.learning_rate, steps=warmup.steps)


def build_loss_scale(config: TrainConfig) -> LossScale | None:
    """Builds the loss scale in the scope of the strategy; None unless in MIXED_FLOAT16.

    Raises:
      ValueError: if `loss_scale` is set, but not its kind.
    """
    if config.precision != TrainConfig.MIXED_FLOAT16:
        return None
    if not config.HasField('loss_scale'):
        return DynamicLossScale()
    return build_oneof(config.loss_scale, 'kind', LOSS_SCALE_BUILDERS)


def build_reduction(config: TrainConfig) -> GradientReduction:
    """Builds the reduction of gradients that `train_config.gradient_reduction` describes."""
    reduction = config.gradient_reduction
    kinds = train_pb2.GradientReduction.Implementation
    return GradientReduction(
        bytes_per_pack=reduction.bytes_per_pack,
        implementation=kinds.Name(reduction.implementation),
        in_bfloat16=reduction.in_bfloat16,
    )
