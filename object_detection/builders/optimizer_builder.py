"""Builds the optimizer and the learning rate schedule that an Optimizer proto describes."""

from object_detection.builders.oneof import build_oneof
from object_detection.protos import optimizer_pb2
from object_detection.training import optimizers, schedules


def _manual_steps(config: optimizer_pb2.ManualStepLearningRate) -> schedules.Schedule:
    return schedules.manual_steps(
        boundaries=[entry.step for entry in config.schedule],
        rates=[
            config.initial_learning_rate,
            *(entry.learning_rate for entry in config.schedule),
        ],
        warmup=config.warmup,
    )


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
    'manual_step_learning_rate': _manual_steps,
    'cosine_decay_learning_rate': lambda config: schedules.cosine_decay(
        base=config.learning_rate_base,
        total_steps=config.total_steps,
        warmup_rate=config.warmup_learning_rate,
        warmup_steps=config.warmup_steps,
        hold_steps=config.hold_base_rate_steps,
    ),
}

OPTIMIZER_BUILDERS = {
    'momentum_optimizer': lambda config: optimizers.Momentum(
        build_schedule(config.learning_rate), momentum=config.momentum_optimizer_value
    ),
    'adam_optimizer': lambda config: optimizers.Adam(
        build_schedule(config.learning_rate), epsilon=config.epsilon
    ),
    # The reference takes `decay` for a decay of the learning rate; it is the average's.
    'rms_prop_optimizer': lambda config: optimizers.RmsProp(
        build_schedule(config.learning_rate),
        rho=config.decay,
        momentum=config.momentum_optimizer_value,
        epsilon=config.epsilon,
    ),
}


def build(config: optimizer_pb2.Optimizer) -> optimizers.Optimizer:
    """Builds an optimizer, which keeps averages of the weights if the config does not say no.

    The factors of learning rates are not its affair, but that of `Optimizer.build`, which knows the
    variables.

    Raises:
      ValueError: if no optimizer or learning rate is set, a schedule contradicts itself, or the
        decay of the averages is outside [0, 1].
    """
    optimizer = build_oneof(config, 'optimizer', OPTIMIZER_BUILDERS)
    if config.use_moving_average:
        return optimizers.Averaging(optimizer, decay=config.moving_average_decay)
    return optimizer


def build_schedule(config: optimizer_pb2.LearningRate) -> schedules.Schedule:
    """Builds a learning rate schedule.

    Raises:
      ValueError: if no learning rate is set or a schedule contradicts itself.
    """
    return build_oneof(config, 'learning_rate', SCHEDULE_BUILDERS)
