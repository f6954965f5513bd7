"""Records the measurements of a training: progress display, history file, TensorBoard."""

import contextlib
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from object_detection.builders.sink_builder import SINKS, Run, Sink, StepRecord
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training.monitoring import hyperparameters
from object_detection.training.monitoring.history import FILE_NAME, Record
from object_detection.training.monitoring.log_files import NO_FILES, JobFiles
from object_detection.training.monitoring.progress import SECONDS_BETWEEN_LINES, Progress
from object_detection.visualization import tensorboard


class TensorBoardSink(Sink):
    """Writes records as events.

    Args:
      events: the open events.
    """

    def __init__(self, events: tensorboard.EventWriter):
        self._events = events

    def write(self, record: StepRecord) -> None:
        """Writes a record as scalars."""
        self._events.scalars(record.values, record.step)

    def close(self) -> None:
        """Closes the file."""
        self._events.close()


class Recorder:
    """Hands records on to a progress display and to the sinks.

    Args:
      directory: the model_dir, in whose `train` files are written; None writes no files.
      step: number of steps done at the start.
      progress: the display.
      names: 1-based class id -> name, for pictures.
      keypoint_edges: pairs of keypoints that pictures have lines between.
      job_files: where events and DLLogger's lines are written.
      config: the resolved config, whose hyper-parameters TensorBoard gets.
      sinks: further places that records are written to.

    Attributes:
      directory: as given.
    """

    def __init__(
        self,
        directory: str | None,
        step: int,
        *,
        progress: Progress,
        names: Mapping[int, str] | None = None,
        keypoint_edges: Sequence[tuple[int, int]] = (),
        job_files: JobFiles = NO_FILES,
        config: TrainEvalPipelineConfig | None = None,
        sinks: Sequence[Sink] = (),
    ):
        self.directory = directory
        self._folder = folder = None if directory is None else os.path.join(directory, 'train')
        self._progress = progress
        self._history = None
        if folder is not None:
            self._history = SINKS['json_lines'](pathlib.Path(folder) / FILE_NAME, step)
        events = job_files.events_folder(directory, 'train')
        self._draws = events is not None
        self._events = tensorboard.EventWriter(events)
        if self._draws and config is not None:
            self._events.hyperparameters(*hyperparameters.of_training(config, directory))
        self._tensorboard = SINKS['tensorboard'](self._events)
        self._dll_log = None if folder is None else job_files.open()
        self._sinks = [self._tensorboard, *sinks]
        self._names, self._keypoint_edges = names, keypoint_edges
        self._stored_at, self._stored_step = time.monotonic(), step

    def start(self, step: int, num_steps: int, batch_size: int) -> None:
        self._progress.start(step, num_steps, batch_size)
        run = Run(self._folder or '', step, num_steps, batch_size)
        self._batch_size = batch_size
        for sink in (*self._sinks, *filter(None, [self._dll_log])):
            sink.start(run)

    def inputs(self, batch: Mapping[str, np.ndarray], step: int) -> None:
        """Draws the first images of a batch, as the model sees them."""
        if self._draws:
            pictures = tensorboard.input_pictures(
                batch, self._names, keypoint_edges=self._keypoint_edges
            )
            self._events.pictures('train_input_images', pictures, step)

    def update(self, record: Record) -> None:
        """Shows a record on a live display, and after half a minute without one in the history."""
        self._progress.update(record)
        if time.monotonic() - self._stored_at >= SECONDS_BETWEEN_LINES:
            self._store(record)

    def log(self, record: Record) -> None:
        """Logs a record, and writes it into the history and DLLogger's file."""
        self._progress.log(record)
        self._store(record)
        if self._dll_log is not None:
            self._dll_log.write(record)

    def _store(self, record: Record) -> None:
        """Writes a record into the history, once for each step."""
        self._stored_at = time.monotonic()
        if self._history is not None and record.step != self._stored_step:
            self._stored_step = record.step
            self._history.write(record)

    def averages(self, speed: Mapping[str, Any], seconds: Mapping[str, float]) -> None:
        """Writes the summary of the run; see `DllLog.averages`."""
        if self._dll_log is not None:
            self._dll_log.averages(speed, seconds)

    def summarize(self, record: Record) -> None:
        """Writes a record as TensorBoard events and into the further sinks."""
        for sink in self._sinks:
            sink.write(record.by_name(self._batch_size))

    def close(self) -> None:
        self._progress.close()
        with contextlib.ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)
