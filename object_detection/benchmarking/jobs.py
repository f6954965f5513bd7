"""One measurement, and the process of its own in which it is taken.

A process of its own makes the peak of the memory and the time of the first result those of this
measurement alone. Imports no TensorFlow.
"""

import dataclasses
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
from typing import Any

from object_detection.errors import UserError

EXPORT, INFERENCE, TRAINING = 'export', 'inference', 'training'
_WORKER = 'object_detection.benchmarking.worker'


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkJob:
    """What one process does.

    Attributes:
      task: `EXPORT` writes a config's model with random weights as a SavedModel; the others
        measure.
      source: path of a pipeline config; for `INFERENCE` also what `loading.load` takes.
      is_config: whether `source` is a config.
      output: folder that `EXPORT` writes.
      batch_size: number of images of a call, on all devices together.
      precision: a name that --precision takes; None takes that of the source.
      image_size: (height, width) of the images; None takes what the source's resizer makes.
      images: paths of image files; () takes random images.
      steps: number of timed calls.
      warmup: number of calls between the first one and these.
      threads: number of CPU cores that the process may use; 0 for all.
      device, strategy: values of the flags of trainings; None for the defaults.
      logical_cpus: number of devices that the CPU is divided into; more than one only in tests.
      settings: PATH=VALUE of the config.
    """

    task: str
    source: str
    is_config: bool = False
    output: str = ''
    batch_size: int = 1
    precision: str | None = None
    image_size: tuple[int, int] | None = None
    images: tuple[str, ...] = ()
    steps: int = 10
    warmup: int = 2
    threads: int = 0
    device: str | None = None
    strategy: str | None = None
    logical_cpus: int = 1
    settings: tuple[str, ...] = ()


class JobError(UserError):
    """A measurement that ended without a result, e.g. for lack of memory."""


def read(text: str) -> BenchmarkJob:
    """Returns the job that `run_alone` passed to a process."""
    values = json.loads(text)
    return BenchmarkJob(
        **{key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    )


def run_alone(job: BenchmarkJob) -> dict[str, Any]:
    """Runs a job in a process of its own; returns what its task returns.

    Raises:
      UserError: for mistakes of the user, with the message of the process.
      JobError: if the process was killed, or memory ran out.
      RuntimeError: if it failed otherwise; the message is its traceback.
    """
    with tempfile.TemporaryDirectory(prefix='tfod-benchmark-') as folder:
        path = pathlib.Path(folder) / 'result.json'
        command = [sys.executable, '-m', _WORKER, json.dumps(dataclasses.asdict(job)), str(path)]
        done = subprocess.run(command, check=False, stderr=subprocess.PIPE)
        text = path.read_text() if path.is_file() else ''
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise JobError(
            f'the process was killed by {name}'
            + (', most likely for lack of memory.' if name == 'SIGKILL' else '.')
        )
    result = json.loads(text) if text else {}
    if 'error' in result:
        raise (JobError if result['is_of_memory'] else UserError)(result['error'])
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors='replace'))
    return result
