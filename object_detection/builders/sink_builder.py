"""Builds what the values of a training are written to, and lists the ways that there are."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from object_detection.config import plugins
from object_detection.protos.plugin_pb2 import Plugin
from object_detection.registry import Registry


class Run(NamedTuple):
    """A run of a training, or the evaluations of it on one data set.

    Attributes:
      folder: the folder `train`, `eval` or `eval/NAME` of model_dir, which exists.
      step: number of steps done; what an earlier run wrote of later steps is to be replaced.
      num_steps: number of steps of the whole training.
      batch_size: number of images of a step, on all replicas together.
    """

    folder: str
    step: int
    num_steps: int
    batch_size: int


class StepRecord(NamedTuple):
    """The values of a step of a training, or of the evaluation after it.

    Attributes:
      step: number of steps done.
      requested, ready, ended: seconds since 1970 when the step requested its batch, when that was
        ready and when its result was on the host; of an evaluation its start, twice, and its end.
      values: by the names that TensorBoard shows: means of the losses and speeds since the record
        before, such as 'Loss/total_loss', 'learning_rate' and 'images_per_sec'; or the metrics.
    """

    step: int
    requested: float
    ready: float
    ended: float
    values: Mapping[str, float]


class Sink(Protocol):
    """Where the values of a training are written; only the chief of several workers has any.

    The training has one, and each data set that it is evaluated on. An error of a sink ends both.
    """

    def start(self, run: Run) -> None:
        """Begins, before the first step of a run, or after the first evaluation."""

    def write(self, record: StepRecord) -> None:
        """Writes a record: one is due at each --summary_interval, and after each evaluation."""

    def close(self) -> None:
        """Ends, also after an error of the training."""


# Those of this package have flags and arguments of their own, see training/monitoring/recorder.py,
# and the files of the last two have what a `Record` has beyond the values. Those of plug-ins are
# dataclasses of their options.
SINKS: Registry[type[Sink]] = Registry(
    'sink',
    {
        'tensorboard': 'object_detection.training.monitoring.recorder:TensorBoardSink',
        'json_lines': 'object_detection.training.monitoring.history:History',
        'dllogger': 'object_detection.training.monitoring.log_files:DllLog',
    },
)


def build(config: Plugin) -> Sink:
    """Builds the sink of a plug-in.

    Raises:
      UserError: in the cases of `plugins.build`.
    """
    path = config.DESCRIPTOR.full_name
    return plugins.build(config, SINKS, path, methods=('start', 'write', 'close'))
