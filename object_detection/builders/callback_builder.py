"""What a training calls as it goes: callbacks, their records, and the table of their names."""

import dataclasses
import logging
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from object_detection.config import plugins, show
from object_detection.errors import UserError
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.plugin_pb2 import Plugin
from object_detection.registry import Registry

_logger = logging.getLogger(__name__)

# Why a training ends after an error of a callback; the same on all workers.
FAILED = 'a callback has failed'


@dataclasses.dataclass(frozen=True)
class Start:
    """The start of a training, or of an evaluation job.

    Attributes:
      model_dir: its folder; '' if nothing is written.
      step: number of steps done; what an earlier run wrote of later steps is to be replaced.
      num_steps: number of steps of the whole training.
      batch_size: number of images of a step, on all replicas together.
      config: the resolved config as dictionaries and lists, with all defaults.
    """

    model_dir: str
    step: int
    num_steps: int
    batch_size: int
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class StepRecord:
    """Means over the steps since the record before.

    Attributes:
      step: number of steps done.
      losses: name -> mean value.
      learning_rate: learning rate of the last of the steps.
      images_per_second: None until a call other than the first, which builds the graph, was timed.
      gradient_norm: mean norm of all gradients together, before clipping.
      waiting_share: share of the steps' time that was spent waiting for batches, 0 to 1.
      latencies: see `speed.latencies`.
      memory: see `memory.peaks`.
      left_out: what was left out of the data since the start, see `BadRecords.counts`.
      times: seconds since 1970 when the last step requested its batch, when that was ready, and
        when the result was on the host.
      batch_size: number of images of a step; 0 if it is not known.
    """

    step: int
    losses: Mapping[str, float]
    learning_rate: float
    images_per_second: float | None
    gradient_norm: float | None = None
    waiting_share: float | None = None
    latencies: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    memory: Mapping[str, int] = dataclasses.field(default_factory=dict)
    left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)
    times: tuple[float, float, float] = (0.0, 0.0, 0.0)
    batch_size: int = 0

    @property
    def values(self) -> dict[str, float]:
        """All numbers by the names that TensorBoard shows, such as 'Loss/total_loss'."""
        rate = self.images_per_second
        values = {
            **self.losses,
            'learning_rate': self.learning_rate,
            'gradient_norm': self.gradient_norm,
            'images_per_sec': rate,
            'steps_per_sec': rate / self.batch_size if rate and self.batch_size else None,
            'waiting_share': self.waiting_share,
        }
        for what, times in self.latencies.items():
            values |= {f'latency/{what}_{name}': times[name] for name in ('p50', 'p99')}
        values |= {f'memory/{name.replace(":", "_")}': peak for name, peak in self.memory.items()}
        values |= {f'left_out/{name}': count for name, count in self.left_out.items()}
        return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class CheckpointRecord:
    """A checkpoint of a training.

    Attributes:
      step: number of steps done.
      path: its prefix; the files are `path.index` and `path.data-...`. Later ones replace it.
    """

    step: int
    path: str


@dataclasses.dataclass(frozen=True)
class EvaluationRecord:
    """The results of one `eval_input_reader`; its files are written.

    Attributes:
      step: number of steps done.
      metrics: name -> value.
      reader: its name; '' for a single reader without one.
      folder: folder of its files, `model_dir/eval/reader`; None if none are written.
      images: number of evaluated images; 0 if it is not known.
      seconds: duration of the evaluation; None if it is not known.
      latencies: `speed.latencies` of the batches.
    """

    step: int
    metrics: Mapping[str, float]
    reader: str = ''
    folder: str | None = None
    images: int = 0
    seconds: float | None = None
    latencies: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class End:
    """The end of a training, or of an evaluation job.

    Attributes:
      step: number of steps done; None if an error came before that was known.
      checkpoint: prefix of the newest checkpoint; None without one.
      reason: why it ended before its last step other than by a signal, a sentence; or None.
      stopped_by: number of the signal that ended it, or None.
      error: message of the error that ended it, or None.
      speed: `Window.describe` of all steps of the run; empty if none was timed.
      seconds: see `RunClock.describe`; empty if no step was done.
    """

    step: int | None = None
    checkpoint: str | None = None
    reason: str | None = None
    stopped_by: int | None = None
    error: str | None = None
    speed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)


class Callback:
    """What a training calls; a subclass overrides the methods that it needs.

    Only the chief of several workers has callbacks. A sentence that a method returns asks the
    training to end: it saves a checkpoint, evaluates if it does so at the end, and has the sentence
    as the reason of its end. An error of a method ends the training, too, after a checkpoint is
    saved.
    """

    def on_start(self, start: Start) -> None:
        """Begins: before the first step of a run, or the first evaluation."""

    def on_step(self, record: StepRecord) -> str | None:
        """Takes a record: one is due at each --summary_every_n, by default with each log line."""

    def on_checkpoint(self, record: CheckpointRecord) -> str | None:
        """Follows each checkpoint, which is complete."""

    def on_evaluation(self, record: EvaluationRecord) -> str | None:
        """Follows each evaluation, once for each `eval_input_reader`."""

    def on_end(self, end: End) -> None:
        """Ends, also after an error of the training, if `on_start` was called."""


NO_CALLBACK = Callback()


class CallbackError(UserError):
    """An error of a callback; its cause is the error itself."""


class Callbacks(Callback):
    """Several callbacks as one, whose errors and requests to stop wait until they are asked for.

    Args:
      callbacks: those that are called, in this order.

    Attributes:
      error: the first error of one of them; nothing but `on_end` is called afterwards.
    """

    def __init__(self, callbacks: Sequence[Callback] = ()):
        self._callbacks = list(callbacks)
        self._started: list[Callback] = []
        self._reason: str | None = None
        self.error: CallbackError | None = None

    @property
    def reason(self) -> str | None:
        """Why the training is to end: the first request to stop, or `FAILED`; or None."""
        return FAILED if self.error else self._reason

    def on_start(self, start: Start) -> None:
        """Starts those that have not started.

        Raises:
          CallbackError: at once: there is nothing to save yet.
        """
        for each in self._callbacks[len(self._started) :]:
            self._started.append(each)
            self._call(each, 'on_start', start)
            self.check()

    def on_step(self, record: StepRecord) -> None:
        self._call_all('on_step', record)

    def on_checkpoint(self, record: CheckpointRecord) -> None:
        self._call_all('on_checkpoint', record)

    def on_evaluation(self, record: EvaluationRecord) -> None:
        self._call_all('on_evaluation', record)

    def on_end(self, end: End) -> None:
        """Ends all, each also if another one fails."""
        started, self._started = self._started, []
        for each in started:
            self._call(each, 'on_end', end)

    def check(self) -> None:
        """Raises the error of a callback, if there is one."""
        if self.error is not None:
            raise self.error from self.error.__cause__

    def _call_all(self, method: str, record: Any) -> None:
        for each in self._started:
            if self.error is None:
                self._call(each, method, record)

    def _call(self, callback: Callback, method: str, record: Any) -> None:
        where = f'callback {type(callback).__name__}, {method}'
        if getattr(record, 'step', None) is not None:
            where += f' at step {record.step}'
        try:
            answer = getattr(callback, method)(record)
        except Exception as error:
            self._fail(where, _describe(error), error)
            return
        if answer is not None and not (isinstance(answer, str) and answer):
            self._fail(where, f'expected None or a sentence in return. Received: {answer!r}', None)
        elif answer and self._reason is None:
            self._reason = answer

    def _fail(self, where: str, what: str, cause: Exception | None) -> None:
        failure = CallbackError(f'{where}: {what}.')
        failure.__cause__ = cause
        _logger.error('%s', failure)
        self.error = self.error or failure


def _describe(error: Exception) -> str:
    """Returns the kind, the message and the place of an error."""
    message = f'{type(error).__name__}: {error}'.rstrip('.: ')
    frames = traceback.extract_tb(error.__traceback__)[1:]
    return f'{message} ({frames[-1].filename}, line {frames[-1].lineno})' if frames else message


# Those of a training itself have arguments of their own, see training/monitoring/recorder.py; the
# others are dataclasses of their options.
CALLBACKS: Registry[type[Callback]] = Registry(
    'callback',
    {
        'tensorboard': 'object_detection.training.monitoring.recorder:TensorBoardEvents',
        'json_lines': 'object_detection.training.monitoring.history:History',
        'dllogger': 'object_detection.training.monitoring.log_files:DllLog',
        'wandb': 'object_detection.reporting.trackers:WandbCallback',
        'mlflow': 'object_detection.reporting.trackers:MlflowCallback',
    },
)
_WITH_OPTIONS = ('wandb', 'mlflow')


def start_of(config: TrainEvalPipelineConfig, model_dir: str | None, step: int) -> Start:
    """Returns the start of a run of a resolved config, which `step` steps precede."""
    train = config.train_config
    return Start(model_dir or '', step, train.num_steps, train.batch_size, show.to_dict(config))


def build(config: Plugin) -> Callback:
    """Builds a callback that a config names.

    Raises:
      UserError: in the cases of `plugins.build`, or if a package that it needs is not installed.
    """
    path = config.DESCRIPTOR.full_name
    if config.name in _WITH_OPTIONS:
        return plugins.make(CALLBACKS[config.name], config, path)
    methods = [name for name in vars(Callback) if name.startswith('on_')]
    return plugins.build(config, CALLBACKS, path, methods=methods)


def all_of(config: TrainEvalPipelineConfig, others: Sequence[Callback] = ()) -> Callbacks:
    """Returns other callbacks and those that a config names, as one."""
    return Callbacks([*others, *map(build, config.train_config.callback)])


def parse(text: str) -> Plugin:
    """Returns what --callbacks names: 'wandb', or 'wandb:project=blocks,mode=offline'.

    Raises:
      UserError: if it has another form.
    """
    name, _, options = text.partition(':')
    pairs = [each.partition('=') for each in options.split(',') if options]
    if not name or any(not (key and equals) for key, equals, _ in pairs):
        raise UserError.expected('--callbacks', 'NAME or NAME:OPTION=VALUE,...', repr(text))
    return Plugin(name=name, options={key: value for key, _, value in pairs})
