"""The results of evaluations: the files that hold them, and the table in the log.

Early stopping: decides from the evaluations so far whether a training continues.
"""

import dataclasses
import json
import logging
import os
import pathlib
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from object_detection.errors import ConfigError
from object_detection.protos.eval_pb2 import EarlyStopping as EarlyStoppingConfig
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files
from object_detection.training.monitoring import history
from object_detection.training.monitoring.run_types import Metrics, flat
from object_detection.validation import eval_config as eval_config_rules
from object_detection.validation.eval_config import reader_names

_logger = logging.getLogger(__name__)

_METRICS = 'metrics.json'
ALL_METRICS = 'metrics.jsonl'
# Of the table: the width of its lines, and what an undefined value is shown as.
_WIDTH = 100
_UNDEFINED = '-'


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
    """How an evaluation job ended.

    Attributes:
      metrics: results of the last checkpoint: reader's name ('' for a single reader without a name)
        -> metric name -> value; empty if a signal stopped the first evaluation.
      step: step of that checkpoint; None without one.
      stopped_by: number of the signal that stopped the job, or None.
    """

    metrics: Metrics = dataclasses.field(default_factory=dict)
    step: int | None = None
    stopped_by: int | None = None

    @property
    def flat(self) -> dict[str, float]:
        """The metrics by one name each; with named readers as 'reader/metric'."""
        return flat(self.metrics)

    @property
    def exit_status(self) -> int:
        """The exit status of a program: 0, or 128 + the number of the signal that ended it."""
        return 0 if self.stopped_by is None else 128 + self.stopped_by


def folder(output_dir: str | os.PathLike, name: str) -> str:
    """Returns the folder of the results of the reader `name`."""
    return os.path.join(output_dir, 'eval', name)


def write(
    directory: str | os.PathLike,
    step: int,
    metrics: Mapping[str, float],
    data: Mapping[str, int | str],
    details: Mapping[str, Mapping[str, Any]],
) -> None:
    """Writes the results of a step: replaces metrics.json, and appends to metrics.jsonl.

    Args:
      directory: the folder of the reader, see `folder`.
      step: number of training steps done.
      metrics: name -> value.
      data: the evaluated data, see `eval_config.evaluated_data`.
      details: what metrics.jsonl has besides: 'latencies', see `EvaluationTimes.describe`, and
        'advised_threshold', see `ImageCollector.advised_threshold`; empty ones are left out.
    """
    directory = pathlib.Path(directory)
    files.write_text(directory / _METRICS, json.dumps(metrics, indent=1) + '\n')
    entry = {'step': step, 'time': time.time(), 'data': dict(data), 'metrics': metrics}
    entry |= {name: each for name, each in details.items() if each}
    history.append(directory / ALL_METRICS, entry)


def path(output_dir: str | os.PathLike, name: str) -> pathlib.Path:
    """Returns the file of all results of the reader `name`, lines of JSON: step, time, metrics."""
    return pathlib.Path(folder(output_dir, name)) / ALL_METRICS


def drop_later(
    pipeline_config: TrainEvalPipelineConfig, output_dir: str | os.PathLike, step: int
) -> None:
    """Removes results of steps after `step`, where an earlier run was killed before it saved them.

    For the start of a training: otherwise decisions that go by the results would depend on them.
    """
    for name in reader_names(pipeline_config):
        file = path(output_dir, name)
        entries = history.read(file)
        kept = [entry for entry in entries if entry['step'] <= step]
        if len(kept) < len(entries):
            files.write_text(file, ''.join(json.dumps(entry) + '\n' for entry in kept))


def is_evaluated(
    pipeline_config: TrainEvalPipelineConfig,
    output_dir: str | os.PathLike,
    step: int,
    val_json_file: str | None = None,
) -> bool:
    """Whether every reader's results of a step are in `output_dir`; see `PipelineEvaluation`."""
    return all(
        any(
            entry['step'] == step
            for entry in read(pipeline_config, output_dir, name, val_json_file)
        )
        for name in reader_names(pipeline_config)
    )


def read(
    pipeline_config: TrainEvalPipelineConfig,
    output_dir: str | os.PathLike,
    name: str,
    val_json_file: str | None = None,
) -> list[dict[str, Any]]:
    """Reads the results of the reader `name`, except results of other data.

    An eval job may have evaluated fewer images, or compared with another annotation file.
    """
    data = eval_config_rules.evaluated_data(pipeline_config, name, val_json_file)
    entries = history.read(path(output_dir, name))
    return [entry for entry in entries if entry.get('data', data) == data]


def of_checkpoint(prefix: str, step: int) -> dict[str, dict[str, Any]]:
    """Returns the results of a checkpoint that lie in the folder of its training, or above.

    Args:
      prefix: the checkpoint, in a `model_dir` or in a folder such as best/ of it.
      step: number of its training steps.

    Returns:
      Reader -> the last entry of that step; {} if it was not evaluated.
    """
    folder = pathlib.Path(prefix).absolute().parent
    for root in (folder / 'eval', folder.parent / 'eval'):
        found = {}
        for file in sorted(root.rglob(ALL_METRICS)):
            entries = [entry for entry in history.read(file) if entry['step'] == step]
            if entries:
                found[reader_of(root, file)] = entries[-1]
        if found:
            return found
    return {}


def advised_threshold(evaluations: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Returns the score threshold that the first of the readers advises; None without any."""
    advised = (entry.get('advised_threshold') for entry in evaluations.values())
    return next((each['score_threshold'] for each in advised if each), None)


def read_all(output_dir: str | os.PathLike) -> dict[str, list[dict[str, Any]]]:
    """Returns reader -> its results in the order of steps; of several of a step the last."""
    root, found = pathlib.Path(output_dir, 'eval'), {}
    for file in sorted(root.rglob(ALL_METRICS)):
        by_step = {entry['step']: entry for entry in history.read(file)}
        found[reader_of(root, file)] = [by_step[step] for step in sorted(by_step)]
    return found


def reader_of(root: pathlib.Path, file: pathlib.Path) -> str:
    """Returns the reader whose folder, in the folder `eval` of a model_dir, a file is in."""
    name = file.parent.relative_to(root).as_posix()
    return '' if name == '.' else name


def log(name: str, step: int, metrics: Mapping[str, float], seconds: float) -> None:
    """Logs a table of the metrics of the reader `name`, whose evaluation took so many seconds."""
    title = f'evaluation of {name}' if name else 'evaluation'
    lines = ''.join(f'\n  {line}' for line in table(metrics))
    _logger.info('%s at step %d (%.1f s)%s', title, step, seconds, lines)


def table(metrics: Mapping[str, float]) -> list[str]:
    """Returns a paragraph for each group of metrics, such as 'DetectionBoxes_Precision'.

    Args:
      metrics: name -> value; the group is the name up to the first '/'.

    Returns:
      Lines with the group's name and 'name value' of each of its metrics. An undefined value (-1,
      if no object has that size or class) is shown as '-', and a last line explains it.
    """
    groups: dict[str, list[str]] = {}
    is_complete = True
    for name, value in metrics.items():
        group, _, rest = name.partition('/')
        is_defined = eval_config_rules.is_defined(name, value)
        is_complete = is_complete and is_defined
        number = f'{value:.4f}' if is_defined else _UNDEFINED
        # No line is broken at these spaces.
        groups.setdefault(group, []).append(f'{rest} {number}'.replace(' ', '\xa0'))
    found = [line for group, entries in groups.items() for line in _paragraph(group, entries)]
    if not is_complete:
        found.append(f'{_UNDEFINED}: not defined, as the data have no such object')
    return found


def _paragraph(group: str, entries: list[str]) -> list[str]:
    wrapped = textwrap.wrap(
        f'{group}: ' + '  '.join(entries),
        _WIDTH,
        subsequent_indent='    ',
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace('\xa0', ' ') for line in wrapped]


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


def value_of(metrics: Mapping[str, float], metric: str, field: str) -> float:
    """Returns the value of a metric that a field of the config names.

    Raises:
      ConfigError: if the evaluation has no such metric.
    """
    if metric not in metrics:
        raise ConfigError(f'{field}: {eval_config_rules.unknown_metric(metric, metrics)}')
    return metrics[metric]


def _value(evaluation: Evaluation, metric: str) -> float:
    return value_of(evaluation.metrics, metric, 'eval_config.early_stopping')
