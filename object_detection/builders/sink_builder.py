"""Builds what the values of training steps are written to, and lists the ways that there are."""

from typing import Any, NamedTuple, Protocol

from object_detection.config import plugins
from object_detection.protos.plugin_pb2 import Plugin
from object_detection.registry import Registry


class Run(NamedTuple):
    """A run of a training.

    Attributes:
      folder: the folder `train` of model_dir, which exists.
      step: number of steps done; what an earlier run wrote of later steps is to be replaced.
      num_steps: number of steps of the whole training.
      batch_size: number of images of a step, on all replicas together.
    """

    folder: str
    step: int
    num_steps: int
    batch_size: int


class Sink(Protocol):
    """Where the values of training steps are written; only the chief of several workers has any.

    An error of a sink ends the training.
    """

    def start(self, run: Run) -> None:
        """Begins, before the first step of a run."""

    def write(self, record: Any) -> None:
        """Writes a `Record` of training/monitoring/progress.py: means since the one before.

        One is due at each --log_interval; for events of TensorBoard, at each --summary_interval.
        """

    def close(self) -> None:
        """Ends, also after an error of the training."""


# Those of this package have flags and arguments of their own, see training/monitoring/recorder.py;
# those of plug-ins are dataclasses of their options.
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
