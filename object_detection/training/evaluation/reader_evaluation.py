"""Evaluates a detector on each `eval_input_reader` of a pipeline config, and writes the results."""

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from object_detection.builders import dataset_builder, evaluator_builder
from object_detection.builders.callback_builder import (
    CALLBACKS,
    NO_CALLBACK,
    Callback,
    End,
    EvaluationRecord,
)
from object_detection.builders.input_readers import corrupt_files
from object_detection.builders.input_readers import examples as examples_builder
from object_detection.core.fields import InputFields
from object_detection.data.pipeline import bad_records
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.metrics import instances
from object_detection.metrics.analysis import images as stored_images
from object_detection.metrics.coco.annotations import CocoAnnotations
from object_detection.metrics.evaluator import Evaluator
from object_detection.protos import eval_pb2
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files
from object_detection.training import execution
from object_detection.training.distribution import collectives, strategies
from object_detection.training.evaluation import results
from object_detection.training.evaluation.best_checkpoint import BestCheckpoint
from object_detection.training.evaluation.image_collector import MAX_DETECTIONS, ImageCollector
from object_detection.training.evaluation.inference import (
    Batch,
    PredictFunction,
    evaluate,
    make_predict,
)
from object_detection.training.monitoring import hyperparameters
from object_detection.training.monitoring.log_files import NO_FILES, JobFiles
from object_detection.training.monitoring.speed import latencies
from object_detection.validation import eval_config as eval_config_rules
from object_detection.validation.eval_config import reader_names
from object_detection.visualization import tensorboard

_logger = logging.getLogger(__name__)

# What source ids may contain in names of files.
_UNSAFE = re.compile(r'[^\w.-]+')
_MAX_NAME = 100

# Makes a context for each reader, whose value is called with the number of images done and of all
# images (None while that is unknown); with the value None the number is logged from time to time.
ShowProgress = Callable[[], AbstractContextManager[Callable[[int, int | None], None] | None]]


class ReaderEvaluation:
    """Evaluates a detector on one `eval_input_reader`, as often as asked.

    Args:
      detector: with its variables built.
      pipeline_config: the whole config.
      reader_index: index of the reader.
      directory: folder of metrics.json and metrics.jsonl; None writes neither.
      events: folder of the TensorBoard events; None writes none.
      annotations: ground truth in place of the records' own.
      strategy: its replicas share the images; None is the current one. Only the chief has results.
      predictors: functions that readers with batches of the same form share, so that graphs are
        built once; entries are added.

    Attributes:
      directory: see above.
    """

    def __init__(
        self,
        detector: DetectionModel,
        pipeline_config: TrainEvalPipelineConfig,
        reader_index: int,
        directory: str | None,
        *,
        events: str | None = None,
        annotations: CocoAnnotations | None = None,
        strategy: tf.distribute.Strategy | None = None,
        predictors: dict[Any, PredictFunction] | None = None,
    ):
        self._strategy = strategy or tf.distribute.get_strategy()
        reader = pipeline_config.eval_input_reader[reader_index]
        self._detector = detector
        self._reader, self._where = reader, f'eval_input_reader[{reader_index}]'
        self._reader_names = reader_names(pipeline_config)
        self._name = self._reader_names[reader_index]
        self._config = pipeline_config.eval_config
        self._categories = evaluator_builder.categories(reader, pipeline_config.model)
        self._names = {category['id']: category['name'] for category in self._categories}
        self._style = _picture_style(self._config, reader.label_map_path)
        self._max_images = self._config.eval_samples or None
        shard = {}
        workers = strategies.num_workers(self._strategy)
        if workers > 1:
            shard['shard'] = (strategies.worker_index(self._strategy), workers)
            self._max_images = None
        bad = None if directory is None else os.path.join(directory, bad_records.FILE_NAME)
        self._left_out = examples_builder.left_out(reader, self._where, bad)
        self._dataset = dataset_builder.build_eval(
            pipeline_config, reader_index, left_out=self._left_out, **shard
        )
        self._annotations = annotations
        with_losses = evaluator_builder.has_losses(pipeline_config, reader_index)
        if not with_losses:
            _logger.info('no validation losses: %s.load_instance_masks is false.', self._where)
        spec = self._dataset.element_spec
        jit_compile = execution.compiles_inference(
            pipeline_config.train_config, spec, examples_builder.bucket_sizes(reader)
        )
        predictors = {} if predictors is None else predictors
        form = (tuple(sorted(spec.items())), with_losses, jit_compile)
        if form not in predictors:
            predictors[form] = make_predict(
                detector,
                spec,
                with_losses=with_losses,
                jit_compile=jit_compile,
                strategy=self._strategy,
                batch_size=self._config.batch_size,
            )
        self._predict = predictors[form]
        self._times = EvaluationTimes()
        self._evaluators: Sequence[Evaluator] = []
        self._collector = self._new_collector()
        self._num_images: int | None = None
        self.directory = directory
        if directory is not None:
            os.makedirs(directory, exist_ok=True)
        exports = self._config.visualization_export_dir if directory is not None else ''
        self._export_folder = os.path.join(exports, reader.name) if exports else None
        self._draws = events is not None or self._export_folder is not None
        self._events = tensorboard.EventWriter(events)
        self._tensorboard = CALLBACKS['tensorboard'](self._events)
        if events is not None:
            values, trial = hyperparameters.of_training(pipeline_config, directory)
            self._events.hyperparameters(values, trial)

    def run(
        self,
        step: int,
        should_stop: Callable[[], bool] = lambda: False,
        show_progress: ShowProgress = nullcontext,
    ) -> dict[str, float] | None:
        """Evaluates the detector as it is now; None if stopped before the end.

        TensorBoard events are written here, the files of results by `write`.
        """
        pictures: dict[str, np.ndarray] = {}
        evaluators = evaluator_builder.build(self._config, self._categories, self._annotations)
        self._evaluators = evaluators
        images = 0
        self._times.clear()
        # All workers build it, so that the chief can merge theirs.
        self._collector = self._new_collector()
        with corrupt_files.named(self._reader, self._where), show_progress() as report:

            def on_batch(batch: Batch, found: Batch) -> None:
                nonlocal images
                images += len(batch[InputFields.IMAGE])
                self._draw(pictures, batch, found)

            metrics = evaluate(
                self._detector,
                self._times.batches(self._dataset),
                [*evaluators, self._collector],
                losses_by_batch=self._config.average_losses_by_batch,
                predict=self._times.predict(self._predict),
                max_images=self._max_images,
                strategy=self._strategy,
                on_batch=on_batch,
                should_stop=should_stop,
                on_images=report and (lambda count: report(count, self._num_images)),
            )
        if metrics is None:
            return None
        self._left_out.log_objects()
        # Of several workers, one may have no usable record in its part.
        if not images and strategies.num_workers(self._strategy) == 1:
            self._left_out.check_any_is_usable()
        # Files do not tell how many records they hold: the second evaluation knows from the first.
        self._num_images = images or None
        self._tensorboard.on_evaluation(EvaluationRecord(step, metrics))
        self._events.pictures('eval_side_by_side', list(pictures.values()), step)
        self._write_curves(evaluators, step)
        if self._config.export_path and self.directory is not None:
            names = evaluator_builder.evaluator_names(self._config)
            instances.write(
                self._config.export_path,
                self._name,
                self._reader_names,
                dict(zip(names, evaluators, strict=True)),
            )
        if self._export_folder is not None:
            _export(pictures, self._export_folder)
        return metrics

    def write(self, step: int, metrics: Mapping[str, float], data: Mapping[str, int | str]) -> None:
        """Writes the results of a step into the files that mark it as evaluated.

        Args:
          step: number of training steps done.
          metrics: what `run` returned.
          data: the evaluated data, see `eval_config.evaluated_data`.
        """
        if self.directory is not None:
            path = os.path.join(self.directory, stored_images.FILE_NAME)
            self._collector.save(path, step, self._evaluators)
            # They hold the masks of all images.
            self._evaluators = []
            details = {'latencies': self._times.describe()}
            if advised := self._collector.advised_threshold():
                details['advised_threshold'] = advised
                _logger.info(
                    'the advised score threshold is %(score_threshold).2f: F1 %(f1).3f, precision '
                    '%(precision).3f, recall %(recall).3f',
                    advised,
                )
            results.write(self.directory, step, metrics, data, details)

    @property
    def speed(self) -> dict[str, Any]:
        """'images' of the last evaluation, and the 'latencies' of its batches."""
        return {'images': self._num_images or 0, 'latencies': self._times.describe()}

    def close(self) -> None:
        self._tensorboard.on_end(End())

    def _new_collector(self) -> ImageCollector:
        most = max(MAX_DETECTIONS, self._config.max_detections)
        return ImageCollector(self._names, self._annotations, self._style, most)

    def _draw(self, pictures: dict[str, np.ndarray], batch: Batch, detections: Batch) -> None:
        """Adds the pictures of a batch, up to `num_visualizations`, by the names of their files."""
        limit = self._config.num_visualizations - len(pictures)
        if not (self._draws and limit > 0):
            return
        drawn = tensorboard.detection_pictures(
            batch, detections, self._names, limit=limit, style=self._style
        )
        for picture, source_id in zip(drawn, batch[InputFields.SOURCE_ID], strict=False):
            name = str(len(pictures))
            if self._config.keep_image_id_for_visualization_export:
                text = _UNSAFE.sub('_', bytes(source_id).decode(errors='replace'))[:_MAX_NAME]
                name = f'{text}-{name}' if not text or text in pictures else text
            pictures[name] = picture

    def _write_curves(self, evaluators: Iterable[Any], step: int) -> None:
        if self._events.is_open:
            for each in evaluators:
                # Not every kind of metrics has curves.
                self._events.curves(getattr(each, 'counts_by_score', dict)(), step)


def _picture_style(config: eval_pb2.EvalConfig, label_map_path: str) -> tensorboard.PictureStyle:
    color = config.groundtruth_box_visualization_color
    return tensorboard.PictureStyle(
        min_score=config.min_score_threshold,
        max_boxes=config.max_num_boxes_to_visualize,
        shows_scores=not config.skip_scores,
        shows_labels=not config.skip_labels,
        groundtruth_color=color if config.visualize_groundtruth_boxes else None,
        keypoint_edges=evaluator_builder.keypoint_edges(config, label_map_path),
    )


def _export(pictures: Mapping[str, np.ndarray], folder: str) -> None:
    """Writes pictures as `folder/export-NAME.png`; those of an earlier evaluation are replaced."""
    os.makedirs(folder, exist_ok=True)
    for name, picture in pictures.items():
        with files.replacing(os.path.join(folder, f'export-{name}.png')) as draft:
            Image.fromarray(picture).save(draft, 'PNG')


class PipelineEvaluation:
    """Evaluates a detector on every `eval_input_reader` of a config, each under its own name.

    Args:
      detector: with its variables built.
      pipeline_config: the whole config.
      output_dir: results go to `output_dir/eval/<reader's name>`, the best model to
        `output_dir/best`; None writes nothing.
      best: makes what keeps the best model, if the config says so; None keeps none.
      job_files: annotations to compare with, and files of events and results.
      strategy: the strategy that the detector was built in; None is the current one. Its replicas
        share the images. All of its workers have to construct this and to run it; only the chief
        writes.
      callbacks: called on the chief with the results of each reader, once they are written.

    Raises:
      ConfigError, ValueError: if `job_files.val_json_file` does not fit the config.
      CheckpointError: if `output_dir/best` holds another model.
    """

    def __init__(
        self,
        detector: DetectionModel,
        pipeline_config: TrainEvalPipelineConfig,
        output_dir: str | None,
        *,
        best: Callable[..., BestCheckpoint] | None = BestCheckpoint,
        job_files: JobFiles = NO_FILES,
        strategy: tf.distribute.Strategy | None = None,
        callbacks: Callback = NO_CALLBACK,
    ):
        self._strategy, self._callbacks = strategy or tf.distribute.get_strategy(), callbacks
        if not strategies.is_chief(self._strategy):
            output_dir = None
        predictors: dict[Any, PredictFunction] = {}
        val_json_file, annotations = job_files.val_json_file, None
        if val_json_file:
            annotations = read_annotations(pipeline_config, val_json_file)
        self._readers = {
            name: ReaderEvaluation(
                detector,
                pipeline_config,
                index,
                None if output_dir is None else results.folder(output_dir, name),
                events=job_files.events_folder(output_dir, 'eval', name),
                annotations=annotations,
                strategy=self._strategy,
                predictors=predictors,
            )
            for index, name in enumerate(reader_names(pipeline_config))
        }
        self._data = {
            name: eval_config_rules.evaluated_data(pipeline_config, name, val_json_file)
            for name in self._readers
        }
        self._dll_log = None if output_dir is None else job_files.open()
        self._best = None
        is_kept = output_dir is not None and pipeline_config.eval_config.best_checkpoint.keep
        if best is not None and is_kept:
            variables = detector.named_variables()
            self._best = best(pipeline_config, output_dir, variables, val_json_file)

    def run(
        self,
        step: int,
        should_stop: Callable[[], bool] = lambda: False,
        show_progress: ShowProgress = nullcontext,
    ) -> dict[str, dict[str, float]] | None:
        """Evaluates the detector as it is now. Collective.

        Returns:
          Reader's name -> metrics on the chief; None on other workers and if any is stopped.
        """
        evaluated, records = {}, []
        is_chief = strategies.is_chief(self._strategy)
        for name, reader in self._readers.items():
            started = time.monotonic()
            metrics = reader.run(step, should_stop, show_progress)
            if collectives.agree_on_stop(self._strategy, is_chief and metrics is None):
                return None
            if not is_chief:
                continue
            evaluated[name] = metrics
            seconds = time.monotonic() - started
            results.log(name, step, metrics, seconds)
            folder = reader.directory
            records.append(
                EvaluationRecord(step, metrics, name, folder, seconds=seconds, **reader.speed)
            )
            if self._dll_log is not None:
                self._dll_log.on_evaluation(records[-1])
        collectives.on_chief(self._strategy, lambda: self._keep(step, evaluated))
        for record in records:
            self._callbacks.on_evaluation(record)
        return evaluated if is_chief else None

    def _keep(self, step: int, evaluated: Mapping[str, Mapping[str, float]]) -> None:
        # In this order: after a kill in between, the evaluation is done again.
        if self._best is not None:
            self._best.update(step, evaluated)
        for name, metrics in evaluated.items():
            self._readers[name].write(step, metrics, self._data[name])

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


def read_annotations(
    pipeline_config: TrainEvalPipelineConfig, val_json_file: str
) -> CocoAnnotations:
    """Reads the COCO annotation file that the config's only reader is compared with.

    Raises:
      ConfigError: if there is no such file, or not one `eval_input_reader`.
      ValueError: if it is no COCO annotation file, or lacks a class of the label map.
    """
    eval_config_rules.check_val_json_file(pipeline_config, val_json_file)
    (reader,) = pipeline_config.eval_input_reader
    is_part = pipeline_config.eval_config.eval_samples or reader.sample_1_of_n_examples > 1
    return evaluator_builder.read_annotations(
        val_json_file, reader.label_map_path, is_complete=not is_part
    )


class EvaluationTimes:
    """Measures evaluations; the very first batch, which builds graphs, is left out."""

    def __init__(self):
        self._has_begun = False
        self.clear()

    def clear(self) -> None:
        """Forgets the times of the evaluations so far."""
        self._input: list[float] = []
        self._step: list[float] = []

    def batches(self, dataset: Iterable[Batch]) -> Iterator[Batch]:
        """Yields the batches, and measures how long each is waited for."""
        iterator = iter(dataset)
        while True:
            started = time.perf_counter()
            batch = next(iterator, None)
            if batch is None:
                return
            if self._has_begun:
                self._input.append(time.perf_counter() - started)
            yield batch

    def predict(self, function: PredictFunction) -> PredictFunction:
        """Makes the function return NumPy arrays of detections, and measures its time."""

        def timed(batch: Batch):
            started = time.perf_counter()
            detections, *others = function(batch)
            # This waits for devices, which compute asynchronously.
            detections = {name: np.asarray(value) for name, value in detections.items()}
            if self._has_begun:
                self._step.append(time.perf_counter() - started)
            self._has_begun = True
            return detections, *others

        return timed

    def describe(self) -> dict[str, dict[str, float]]:
        """Returns `speed.latencies` of the batches."""
        return latencies(self._input, self._step)
