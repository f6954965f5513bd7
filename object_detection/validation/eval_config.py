"""Rules of `eval_config`: names of readers, and metrics that choose or stop something."""

import math
import os
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from PIL import ImageColor

from object_detection.builders.evaluator_builder import METRIC_SETS, find_sets
from object_detection.errors import ConfigError, format_list
from object_detection.meta_architectures import tracing
from object_detection.protos import eval_pb2
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import cpu, files

BOX_METRICS = 'coco_detection_metrics'
MASK_METRICS = 'coco_mask_metrics'
PLATEAU = 'train_config.optimizer.reduce_on_plateau'
AT_RECALL_METRICS = 'precision_at_recall_detection_metrics'

_LOSS = 'Loss/'
# The numbers of a set are averages, so names of readers and metrics are long; an error shows some.
_MAX_METRICS = 16


class MetricChoice(NamedTuple):
    """The name of a metric, and the name of its reader."""

    metric: str
    reader: str


def reader_names(pipeline: TrainEvalPipelineConfig) -> list[str]:
    """Returns a name for each `eval_input_reader`; '' for a single one without a name."""
    names = [reader.name for reader in pipeline.eval_input_reader]
    if len(names) == 1:
        return names
    unique: list[str] = []
    for index, name in enumerate(names):
        if not name or names.count(name) > 1:
            name = f'{name or "reader"}_{index}'
            while name in names or name in unique:
                name += '_'
        unique.append(name)
    return unique


def mask_sets(config: eval_pb2.EvalConfig) -> list[str]:
    """Returns the sets of metrics that compare masks."""
    return [name for name, row in find_sets(config).items() if row.needs_masks]


def stores_detections(config: eval_pb2.EvalConfig) -> bool:
    """Returns whether some metrics store detections, which can be written to a file."""
    rows = find_sets(config).values()
    return bool(config.parameterized_metric) or any(row.stores for row in rows)


def limits_detections(config: eval_pb2.EvalConfig) -> bool:
    """Returns whether some metrics count the best detections only, `max_detections`."""
    rows = find_sets(config).values()
    return bool(config.parameterized_metric) or any(row.limit for row in rows)


def skips_unlabeled(config: eval_pb2.EvalConfig) -> bool:
    """Returns whether some metrics read `skip_predictions_for_unlabeled_class`."""
    return any(row.skips_unlabeled for row in find_sets(config).values())


def label_sets(config: eval_pb2.EvalConfig) -> list[str]:
    """Returns the sets of metrics that need the labels of whole images."""
    skips = config.skip_predictions_for_unlabeled_class
    return [
        name
        for name, row in find_sets(config).items()
        if row.only_labeled or (row.skips_unlabeled and skips)
    ]


def best_metric(pipeline: TrainEvalPipelineConfig) -> MetricChoice:
    """Returns the metric that determines the best checkpoint."""
    config = pipeline.eval_config
    return MetricChoice(
        config.best_checkpoint.metric or _main_metric(config),
        config.best_checkpoint.reader or reader_names(pipeline)[0],
    )


def _main_metric(config: eval_pb2.EvalConfig) -> str:
    """The mean of COCO masks, otherwise of COCO boxes, otherwise of the first set."""
    rows = find_sets(config)
    preferred = [name for name in (MASK_METRICS, BOX_METRICS) if name in rows]
    name = next(iter((*preferred, *rows)), BOX_METRICS)
    return METRIC_SETS[name].main_metric(config)


def stopping_metric(pipeline: TrainEvalPipelineConfig) -> MetricChoice:
    """Returns the metric that must improve, or else early stopping ends the training."""
    config, best = pipeline.eval_config.early_stopping, best_metric(pipeline)
    return MetricChoice(config.metric or best.metric, config.reader or best.reader)


def plateau_metric(pipeline: TrainEvalPipelineConfig) -> MetricChoice:
    """Returns the metric that must improve, or else the learning rate is reduced."""
    config, best = pipeline.train_config.optimizer.reduce_on_plateau, best_metric(pipeline)
    return MetricChoice(config.metric or best.metric, config.reader or best.reader)


def evaluated_data(
    pipeline: TrainEvalPipelineConfig, reader_name: str, val_json_file: str | None
) -> dict[str, int | str]:
    """Describes the data of a reader's metrics; results on other data are not comparable.

    Args:
      pipeline: the whole config with the changes of the command line.
      reader_name: one of `reader_names`.
      val_json_file: path of the annotation file that replaces the ground truth, or None.
    """
    reader = pipeline.eval_input_reader[reader_names(pipeline).index(reader_name)]
    return {
        'eval_samples': pipeline.eval_config.eval_samples,
        'sample_1_of_n_examples': reader.sample_1_of_n_examples,
        'val_json_file': os.path.abspath(val_json_file) if val_json_file else '',
    }


def _keypoint_edges(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    count = max((reader.num_keypoints for reader in pipeline.eval_input_reader), default=0)
    for index, edge in enumerate(pipeline.eval_config.keypoint_edge):
        if not 0 <= min(edge.start, edge.end) <= max(edge.start, edge.end) < count:
            yield (
                f'eval_config.keypoint_edge[{index}]: expected a start and an end of 0 to '
                f'eval_input_reader.num_keypoints - 1, {count - 1}. '
                f'Received: {edge.start} and {edge.end}.'
            )


def is_less_better(metric: str) -> bool:
    """Returns whether a metric is a loss; for all other metrics, higher values are better."""
    return metric.startswith(_LOSS)


def is_defined(metric: str, value: float) -> bool:
    """Returns whether a value is defined: it is finite and not the -1 of an undefined precision."""
    return math.isfinite(value) and (is_less_better(metric) or value >= 0)


def check(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields problems of the names of the readers, and of the choices that metrics make."""
    # Loads the COCO engine, which readers of statuses do not need.
    from object_detection.builders import evaluator_builder

    config = pipeline.eval_config
    for index, reader in enumerate(pipeline.eval_input_reader):
        if {'..', '.'} & set(reader.name.split('/')) or reader.name.startswith('/'):
            yield (
                f'eval_input_reader[{index}].name: expected the name of a folder in model_dir/eval.'
                f' Received: {reader.name!r}.'
            )
    yield from _keypoint_edges(pipeline)
    yield from tracing.problems(evaluator_builder.metrics_sets, config, 'eval_config')
    names = reader_names(pipeline)
    for path, chosen in (
        ('eval_config.best_checkpoint', config.best_checkpoint),
        ('eval_config.early_stopping', config.early_stopping),
        (PLATEAU, pipeline.train_config.optimizer.reduce_on_plateau),
    ):
        if chosen.reader and chosen.reader not in names:
            yield (
                f'{path}.reader: expected the name of an eval_input_reader: '
                f'{", ".join(map(repr, names))}. Received: {chosen.reader!r}.'
            )
    try:
        files.check_is_local(config.export_path, 'eval_config.export_path')
    except ConfigError as error:
        yield str(error)
    yield from _color(config.groundtruth_box_visualization_color)
    if config.HasField('early_stopping'):
        yield from _early_stopping(config.early_stopping)
    yield from _async_evaluation(config.async_evaluation)


def _color(name: str) -> Iterator[str]:
    try:
        ImageColor.getrgb(name)
    except ValueError:
        yield (
            'eval_config.groundtruth_box_visualization_color: expected a colour as in CSS, such as '
            f'black or #00ff00. Received: {name!r}.'
        )


def check_metrics(
    pipeline: TrainEvalPipelineConfig, known: dict[str, Collection[str]]
) -> Iterator[str]:
    """Yields a sentence for each metric that the config names and that does not exist.

    Args:
      pipeline: a config in which `check` found no problem.
      known: name of a reader -> the names of its metrics.
    """
    config, stopping = pipeline.eval_config, stopping_metric(pipeline)
    plateau = pipeline.train_config.optimizer.reduce_on_plateau
    best, stops = config.best_checkpoint, 'eval_config.early_stopping'
    chosen = {
        'eval_config.best_checkpoint.metric': (best.metric, best_metric(pipeline).reader),
        f'{stops}.metric': (config.early_stopping.metric, stopping.reader),
        f'{PLATEAU}.metric': (plateau.metric, plateau_metric(pipeline).reader),
    }
    for index, target in enumerate(config.early_stopping.target):
        chosen[f'{stops}.target[{index}].metric'] = (target.metric, stopping.reader)
    for field, (metric, reader) in chosen.items():
        if metric and metric not in known[reader]:
            yield f'{field}: {unknown_metric(metric, known[reader])}'


def unknown_metric(metric: str, known: Collection[str]) -> str:
    """Returns a sentence for a metric that an evaluation does not compute."""
    names = format_list(map(repr, known), _MAX_METRICS)
    return f'expected a metric of the evaluation: {names}. Received: {metric!r}.'


def check_val_json_file(pipeline: TrainEvalPipelineConfig, path: str) -> None:
    """Checks that a COCO annotation file can replace the ground truth of the records.

    Raises:
      ConfigError: if there is no such file, or not exactly one `eval_input_reader`.
    """
    if not files.exists(path):
        raise ConfigError(f'--val_json_file: there is no file {path!r}.')
    count = len(pipeline.eval_input_reader)
    if count != 1:
        raise ConfigError.expected(
            '--val_json_file', 'one eval_input_reader, whose images the file annotates', count
        )


def _async_evaluation(config) -> Iterator[str]:
    path = 'eval_config.async_evaluation'
    if not re.fullmatch(r'cpu|gpu(:\d+(,\d+)*)?', config.device.lower()):
        yield (
            f"{path}.device: expected 'cpu', 'gpu' or e.g. 'gpu:0,1' (--eval_device). "
            f'Received: {config.device!r}.'
        )
    try:
        cpu.parse_cores(config.cpu_affinity)
    except ValueError as error:
        yield f'{path}.cpu_affinity (--eval_cpu_affinity): {error}'


def _early_stopping(config) -> Iterator[str]:
    path = 'eval_config.early_stopping'
    if not config.patience and not config.target:
        yield f'{path}: expected patience or a target. Received: neither.'
    for index, target in enumerate(config.target):
        if not target.metric:
            yield f'{path}.target[{index}].metric is not set; expected the name of a metric.'
        if not target.HasField('value'):
            yield (
                f'{path}.target[{index}].value: expected what the metric is to reach. '
                'Received: nothing.'
            )
