"""Evaluates a detector on the data that a pipeline config names."""

import json
import logging
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from object_detection.builders import dataset_builder, evaluator_builder
from object_detection.config import files, model_rules
from object_detection.data import label_map
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training import damaged_files, history, summaries
from object_detection.training.inference import Batch, evaluate, make_predict

_logger = logging.getLogger(__name__)

# What is entered for each reader gives a function that takes the number of images done and of all
# (None while it is not known); None logs the number now and then.
ShowProgress = Callable[[], AbstractContextManager[Callable[[int, int | None], None] | None]]

_METRICS = 'metrics.json'
_ALL_METRICS = 'metrics.jsonl'


class ReaderEvaluation:
    """Evaluates a detector on one `eval_input_reader`, as often as asked.

    Args:
      detector: with its variables built.
      pipeline_config: the whole config.
      reader_index: which of its readers.
      directory: where metrics.json, metrics.jsonl and the TensorBoard events go; None writes
        nothing.
      record_summaries: whether to write TensorBoard events.
    """

    def __init__(
        self,
        detector: DetectionModel,
        pipeline_config: TrainEvalPipelineConfig,
        reader_index: int,
        directory: str | None,
        *,
        record_summaries: bool = True,
    ):
        reader = pipeline_config.eval_input_reader[reader_index]
        self._detector = detector
        self._reader, self._where = reader, f'eval_input_reader[{reader_index}]'
        self._config = pipeline_config.eval_config
        self._categories = label_map.load(reader.label_map_path).categories
        self._dataset = dataset_builder.build_eval(pipeline_config, reader_index)
        with_losses = _has_groundtruth_for_losses(pipeline_config, reader)
        self._predict = make_predict(detector, self._dataset.element_spec, with_losses=with_losses)
        self._num_images: int | None = None
        self._directory = None if directory is None else pathlib.Path(directory)
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
        self._draws = record_summaries and directory is not None
        self._events = summaries.EventWriter(directory if self._draws else None)

    def run(
        self,
        step: int,
        should_stop: Callable[[], bool] = lambda: False,
        show_progress: ShowProgress = nullcontext,
    ) -> dict[str, float] | None:
        """Evaluates the detector as it is now; None if stopped before the end."""
        pictures: list[np.ndarray] = []
        images = 0
        with damaged_files.named(self._reader, self._where), show_progress() as report:

            def on_images(count: int) -> None:
                nonlocal images
                images = count
                report(count, self._num_images)

            metrics = evaluate(
                self._detector,
                self._dataset,
                evaluator_builder.build(self._config, self._categories),
                predict=self._predict,
                on_batch=lambda batch, found: self._draw(pictures, batch, found),
                should_stop=should_stop,
                on_images=None if report is None else on_images,
            )
        if metrics is None:
            return None
        # Files do not tell how many records they hold; from the second evaluation on it is known.
        self._num_images = images or None
        self._events.scalars(metrics, step)
        self._events.pictures('eval_side_by_side', pictures, step)
        if self._directory is not None:
            text = json.dumps(metrics, indent=1) + '\n'
            files.write_text(self._directory / _METRICS, text)
            history.append(
                self._directory / _ALL_METRICS,
                {'step': step, 'time': time.time(), 'metrics': metrics},
            )
        return metrics

    def close(self) -> None:
        self._events.close()

    def _draw(self, pictures: list[np.ndarray], batch: Batch, detections: Batch) -> None:
        limit = self._config.num_visualizations - len(pictures)
        if self._draws and limit > 0:
            pictures += summaries.detection_pictures(
                batch,
                detections,
                {category['id']: category['name'] for category in self._categories},
                limit=limit,
                min_score=self._config.min_score_threshold,
                max_boxes=self._config.max_num_boxes_to_visualize,
            )


class PipelineEvaluation:
    """Evaluates a detector on every `eval_input_reader` of a config, each under its own name.

    Args:
      detector: with its variables built.
      pipeline_config: the whole config.
      output_dir: results go to `output_dir/eval/<reader's name>`; None writes nothing.
      record_summaries: whether to write TensorBoard events.
    """

    def __init__(
        self,
        detector: DetectionModel,
        pipeline_config: TrainEvalPipelineConfig,
        output_dir: str | None,
        *,
        record_summaries: bool = True,
    ):
        self._readers = {
            name: ReaderEvaluation(
                detector,
                pipeline_config,
                index,
                None if output_dir is None else _directory(output_dir, name),
                record_summaries=record_summaries,
            )
            for index, name in enumerate(reader_names(pipeline_config))
        }

    def run(
        self,
        step: int,
        should_stop: Callable[[], bool] = lambda: False,
        show_progress: ShowProgress = nullcontext,
    ) -> dict[str, dict[str, float]] | None:
        """Evaluates the detector as it is now: reader's name -> metrics; None if stopped."""
        results = {}
        for name, reader in self._readers.items():
            started = time.monotonic()
            metrics = reader.run(step, should_stop, show_progress)
            if metrics is None:
                return None
            results[name] = metrics
            _log_metrics(name, step, metrics, time.monotonic() - started)
        return results

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


def reader_names(pipeline_config: TrainEvalPipelineConfig) -> list[str]:
    """Returns a name for each `eval_input_reader`; '' for a single one without a name."""
    readers = pipeline_config.eval_input_reader
    names = [reader.name for reader in readers]
    if len(names) == 1:
        return names
    return [
        name if name and names.count(name) == 1 else f'{name or "reader"}_{index}'
        for index, name in enumerate(names)
    ]


def is_evaluated(
    pipeline_config: TrainEvalPipelineConfig, output_dir: str | os.PathLike, step: int
) -> bool:
    """Whether every reader's results of a step are in `output_dir`; see `PipelineEvaluation`."""
    return all(
        any(
            entry['step'] == step
            for entry in history.read(pathlib.Path(_directory(output_dir, name)) / _ALL_METRICS)
        )
        for name in reader_names(pipeline_config)
    )


def _directory(output_dir: str | os.PathLike, name: str) -> str:
    """Where the results of the reader `name` go."""
    return os.path.join(output_dir, 'eval', name)


def _has_groundtruth_for_losses(
    pipeline_config: TrainEvalPipelineConfig, reader: InputReader
) -> bool:
    """Whether a reader loads what the losses need; a model with a mask head needs masks."""
    if model_rules.has_masks(pipeline_config.model) and not reader.load_instance_masks:
        _logger.info(
            'no validation losses: eval_input_reader %r has load_instance_masks: false.',
            reader.name,
        )
        return False
    return True


def _log_metrics(name: str, step: int, metrics: Mapping[str, float], seconds: float) -> None:
    title = f'evaluation of {name}' if name else 'evaluation'
    lines = [f'  {value:8.4f}  {metric}' for metric, value in metrics.items()]
    _logger.info('%s at step %d (%.1f s)\n%s', title, step, seconds, '\n'.join(lines))
