"""Files of a job apart from its config and model_dir: annotations, events, NVIDIA's DLLogger."""

import dataclasses
import datetime
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from object_detection.builders.callback_builder import (
    CALLBACKS,
    Callback,
    End,
    EvaluationRecord,
    Start,
    StepRecord,
)
from object_detection.config.families import FAMILIES
from object_detection.training.monitoring.run_types import flat

# Our names -> those of NVIDIA's models, which readers of such files know; families add theirs.
_NVIDIA_NAMES = {'Loss/regularization_loss': 'l2_regularization_loss', 'Loss/total_loss': 'loss'}
_PERCENTS = (90, 95, 99)
# DLLogger's steps of the parameters of a run, and of its summary.
_PARAMETERS = 'PARAMETER'
_SUMMARY: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class JobFiles:
    """Files of a training or an evaluation apart from its config and its model_dir.

    Attributes:
      events: folder whose train and eval/NAME get the TensorBoard events; None writes them into
        model_dir.
      dllogger: file that lines of DLLogger are appended to; None writes none.
      record_summaries: whether to write TensorBoard events.
      val_json_file: COCO annotations to compare with in place of the records' ground truth.
    """

    events: str | None = None
    dllogger: str | None = None
    record_summaries: bool = True
    val_json_file: str | None = None

    def events_folder(self, model_dir: str | None, *names: str) -> str | None:
        """Returns the folder of events, in `events` if it is set, otherwise in model_dir.

        None if there is no model_dir, or no events are written.
        """
        if model_dir is None or not self.record_summaries:
            return None
        return os.path.join(model_dir if self.events is None else self.events, *names)

    def open(self) -> 'DllLog | None':
        """Returns what appends to `dllogger`; None if it is not set."""
        return None if self.dllogger is None else CALLBACKS['dllogger'](self.dllogger)


NO_FILES = JobFiles()


class DllLog(Callback):
    """Appends lines to a file, as the JSONStreamBackend of https://github.com/NVIDIA/dllogger does.

    DLLL {"timestamp": "1700000000.5", "datetime": "2023-11-14 22:13:20.500000",
    "elapsedtime": "12.5", "type": "LOG", "step": 100, "data": {"loss": 1.5}}

    Latencies are of single steps, in seconds; train_latency_90 is a percentile of them.

    Args:
      path: path of the file; its folder is made, and its content stays.
    """

    def __init__(self, path: str):
        self._path = pathlib.Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._started = datetime.datetime.now()
        self._names = dict(_NVIDIA_NAMES)
        for family in FAMILIES.values():
            self._names |= family.nvidia_names

    def on_start(self, start: Start) -> None:
        """Writes the parameters of the run, and the units of its measurements."""
        for stage in ('train', 'test'):
            self._write('METADATA', metric=f'{stage}_throughput', metadata={'unit': 'images/s'})
            for name in ('latency', *(f'latency_{percent}' for percent in _PERCENTS), 'time'):
                self._write('METADATA', metric=f'{stage}_{name}', metadata={'unit': 's'})
        names = ('step', 'num_steps', 'batch_size')
        self._log(_PARAMETERS, {name: getattr(start, name) for name in names})

    def on_step(self, record: StepRecord) -> None:
        """Writes the means over the steps since the last record."""
        data = {**record.losses, 'learning_rate': record.learning_rate}
        if record.images_per_second is not None:
            data['train_throughput'] = record.images_per_second
        self._log(record.step, data)

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """Writes the metrics of an evaluation, and its speed."""
        data = flat({record.reader: record.metrics})
        if record.seconds is not None:
            rate = record.images / max(record.seconds, 1e-9)
            data |= {'test_time': record.seconds, 'test_throughput': rate}
        self._log(record.step, {**data, **_latencies('test', record.latencies)})

    def on_end(self, end: End) -> None:
        """Writes the summary of a training that has done steps."""
        if not end.seconds:
            return
        data = {'train_time': end.seconds['all']}
        data |= _latencies('train', end.speed.get('latencies', {}))
        if end.speed.get('images_per_second') is not None:
            data['train_throughput'] = end.speed['images_per_second']
        self._log(_SUMMARY, data)

    def _log(self, step: int | str | Sequence[int], data: Mapping[str, Any]) -> None:
        named = {self._names.get(name, name): value for name, value in data.items()}
        self._write('LOG', step=step, data=named)

    def _write(self, kind: str, **content: Any) -> None:
        now = datetime.datetime.now()
        entry = {
            'timestamp': str(now.timestamp()),
            'datetime': str(now),
            'elapsedtime': str((now - self._started).total_seconds()),
            'type': kind,
            **content,
        }
        # In one write: an evaluation in another process may append to the same file.
        with self._path.open('a') as file:
            file.write(f'DLLL {json.dumps(entry)}\n')


def _latencies(stage: str, latencies: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Returns `speed.describe` of the steps by the names of DLLogger's users."""
    step = latencies.get('step')
    if not step:
        return {}
    percentiles = {f'{stage}_latency_{percent}': step[f'p{percent}'] for percent in _PERCENTS}
    return {f'{stage}_latency': step['mean'], **percentiles}
