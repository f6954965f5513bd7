"""Early stopping: decides from the evaluations so far whether a training continues."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from object_detection.errors import ConfigError
from object_detection.protos.eval_pb2 import EarlyStopping as EarlyStoppingConfig
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.validation import eval_config as eval_config_rules


class Evaluation(NamedTuple):
    """The metrics of one reader after `step` training steps."""

    step: int
    metrics: Mapping[str, float]


def reason_to_stop(
    pipeline_config: TrainEvalPipelineConfig, results: Iterable[Mapping[str, Any]]
) -> str | None:
    """Returns why a training is to end, a clause without a full stop; None if it continues.

    Nothing but the results decides, so that a restart changes nothing.

    Args:
      pipeline_config: its `eval_config.early_stopping` gives patience and targets.
      results: entries of the reader that counts, see `results.read`; of several entries of one
        step the last counts.

    Raises:
      ConfigError: if the evaluation has no such metric.
    """
    config = pipeline_config.eval_config.early_stopping
    metric = eval_config_rules.stopping_metric(pipeline_config).metric
    by_step = {entry['step']: entry['metrics'] for entry in results}
    evaluations = [Evaluation(step, by_step[step]) for step in sorted(by_step)]
    if not evaluations:
        return None
    return _targets_reached(config, evaluations[-1]) or _patience_ended(config, metric, evaluations)


def _targets_reached(config: EarlyStoppingConfig, newest: Evaluation) -> str | None:
    reached = []
    for target in config.target:
        value = _value(newest, target.metric)
        is_loss = eval_config_rules.is_less_better(target.metric)
        is_reached = value <= target.value if is_loss else value >= target.value
        if not (is_reached and eval_config_rules.is_defined(target.metric, value)):
            return None
        reached.append(f'{target.metric} is {value:.4g} (target {target.value:.4g})')
    return f'all targets are reached: {", ".join(reached)}' if reached else None


def _patience_ended(
    config: EarlyStoppingConfig, metric: str, evaluations: Sequence[Evaluation]
) -> str | None:
    if not config.patience:
        return None
    sign = -1.0 if eval_config_rules.is_less_better(metric) else 1.0
    best, best_step, waited = None, 0, 0
    for evaluation in evaluations:
        value = _value(evaluation, metric)
        is_defined = eval_config_rules.is_defined(metric, value)
        if is_defined and (best is None or sign * (value - best) > config.min_delta):
            best, best_step, waited = value, evaluation.step, 0
        else:
            waited += 1
    if waited < config.patience:
        return None
    so_far = 'it was never defined' if best is None else f'best: {best:.4g} at step {best_step}'
    times = '1 evaluation' if waited == 1 else f'{waited} evaluations'
    return f'{metric} has not improved for {times} ({so_far})'


def _value(evaluation: Evaluation, metric: str) -> float:
    if metric not in evaluation.metrics:
        raise ConfigError(
            'eval_config.early_stopping: '
            + eval_config_rules.unknown_metric(metric, evaluation.metrics)
        )
    return evaluation.metrics[metric]
