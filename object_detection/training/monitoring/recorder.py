"""Records the measurements of a training: progress display, history file, TensorBoard."""

import contextlib
import os
import pathlib
import time
from collections.abc import Mapping, Sequence

import numpy as np

from object_detection.builders.callback_builder import (
    CALLBACKS,
    NO_CALLBACK,
    Callback,
    End,
    EvaluationRecord,
    Start,
    StepRecord,
    start_of,
)
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training.monitoring import hyperparameters
from object_detection.training.monitoring.history import FILE_NAME
from object_detection.training.monitoring.log_files import NO_FILES, JobFiles
from object_detection.training.monitoring.progress import SECONDS_BETWEEN_LINES, Progress
from object_detection.visualization import tensorboard


class TensorBoardEvents(Callback):
    """Writes records as events.

    Args:
      events: the open events.
    """

    def __init__(self, events: tensorboard.EventWriter):
        self._events = events

    def on_step(self, record: StepRecord) -> None:
        """Writes a record as scalars."""
        self._events.scalars(record.values, record.step)

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """Writes metrics as scalars."""
        self._events.scalars(record.metrics, record.step)

    def on_end(self, end: End) -> None:
        """Closes the file."""
        self._events.close()


class Recorder:
    """Hands records on to a progress display, the files of a training and other callbacks.

    Args:
      directory: the model_dir, in whose `train` files are written; None writes no files.
      step: number of steps done at the start.
      progress: the display.
      names: 1-based class id -> name, for pictures.
      keypoint_edges: pairs of keypoints that pictures have lines between.
      job_files: where events and DLLogger's lines are written.
      config: the resolved config, whose hyper-parameters TensorBoard gets.
      callbacks: what else is called with each start and record; its end is for the caller.

    Attributes:
      directory: as given.
      end: what the files get at the end.
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
        callbacks: Callback = NO_CALLBACK,
    ):
        self.directory = directory
        folder = None if directory is None else os.path.join(directory, 'train')
        self._progress = progress
        self._history = NO_CALLBACK
        if folder is not None:
            self._history = CALLBACKS['json_lines'](pathlib.Path(folder) / FILE_NAME)
        events = job_files.events_folder(directory, 'train')
        self._draws = events is not None
        self._events = tensorboard.EventWriter(events)
        if self._draws and config is not None:
            self._events.hyperparameters(*hyperparameters.of_training(config, directory))
        self._tensorboard = CALLBACKS['tensorboard'](self._events)
        self._dll_log = NO_CALLBACK if folder is None else job_files.open() or NO_CALLBACK
        self._callbacks, self._config, self.end = callbacks, config, End()
        self._names, self._keypoint_edges = names, keypoint_edges
        self._stored_at, self._stored_step = time.monotonic(), step

    def start(self, step: int, num_steps: int, batch_size: int) -> None:
        self._progress.start(step, num_steps, batch_size)
        if self._config is None:
            start = Start(self.directory or '', step, num_steps, batch_size)
        else:
            start = start_of(self._config, self.directory, step)
        for each in (*self._files(), self._callbacks):
            each.on_start(start)

    def inputs(self, batch: Mapping[str, np.ndarray], step: int) -> None:
        """Draws the first images of a batch, as the model sees them."""
        if self._draws:
            pictures = tensorboard.input_pictures(
                batch, self._names, keypoint_edges=self._keypoint_edges
            )
            self._events.pictures('train_input_images', pictures, step)

    def update(self, record: StepRecord) -> None:
        """Shows a record on a live display, and after half a minute without one in the history."""
        self._progress.update(record)
        if time.monotonic() - self._stored_at >= SECONDS_BETWEEN_LINES:
            self._store(record)

    def log(self, record: StepRecord) -> None:
        """Logs a record, and writes it into the history and DLLogger's file."""
        self._progress.log(record)
        self._store(record)
        self._dll_log.on_step(record)

    def _store(self, record: StepRecord) -> None:
        """Writes a record into the history, once for each step."""
        self._stored_at = time.monotonic()
        if record.step != self._stored_step:
            self._stored_step = record.step
            self._history.on_step(record)

    def summarize(self, record: StepRecord) -> None:
        """Writes a record as TensorBoard events and hands it on to the callbacks."""
        self._tensorboard.on_step(record)
        self._callbacks.on_step(record)

    def _files(self) -> tuple[Callback, ...]:
        return self._history, self._tensorboard, self._dll_log

    def close(self) -> None:
        self._progress.close()
        with contextlib.ExitStack() as stack:
            for each in self._files():
                stack.callback(each.on_end, self.end)
