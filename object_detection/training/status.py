"""What a training does now: announced in a file of its model_dir, and read by `tfod status`.

Imports no TensorFlow. All comes from files, so that a status is read while the training runs, from
any process that sees its model_dir, and after its end.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import time
from collections.abc import Iterator, Mapping
from typing import Any

from object_detection.system import disk, files
from object_detection.training.evaluation import results
from object_detection.training.monitoring import history, run_record

# Files and folders of a model_dir: what the training does, the completion marker, the model whose
# metric was best, and the checkpoints that wait for their evaluation.
STATE_FILE = os.path.join('train', 'state.json')
FINISHED_FILE = os.path.join('train', 'ended.json')
BEST_FOLDER, BEST_METRICS = 'best', 'metrics.json'
SNAPSHOTS_FOLDER = 'snapshots'

# States in place of `run_record.START`, `FIRST_STEP`, `STEPS`, `SAVES` and `EVALUATION`, after
# which nothing changes until the training is started again.
FINISHED, STOPPED, FAILED, DIED, UNKNOWN = 'finished', 'stopped', 'failed', 'died', 'unknown'
ENDS = (FINISHED, STOPPED, FAILED, DIED)

_CHECKPOINTS, _EVENTS, _OTHERS = 'checkpoints', 'events', 'others'
# A share of the time from which waiting for batches is worth a message.
_MUCH_WAITING = 0.1
_MAX_ERROR = 500  # characters


class Announcer:
    """Writes what a training does into its model_dir; an error of writing never ends a training.

    Args:
      directory: the model_dir.
    """

    def __init__(self, directory: str | os.PathLike):
        self._path = pathlib.Path(directory) / STATE_FILE

    def __call__(self, state: str, detail: str = '') -> None:
        """Announces a state, one of `run_record`'s names or of `ENDS`, and more about it."""
        content = {
            'state': state,
            'since': time.time(),
            'detail': detail,
            'host': platform.node(),
            'pid': os.getpid(),
            'process_start': _process_start(os.getpid()),
        }
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            files.write_text(self._path, json.dumps(content) + '\n')

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """A context of a training: announces its start, and an error that ends it."""
        self(run_record.START)
        try:
            yield
        except BaseException as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self(FAILED, lines[0][:_MAX_ERROR])
            raise


@dataclasses.dataclass(frozen=True)
class Best:
    """The model in `best`: the step and the metric, of an eval_input_reader, that made it so."""

    step: int
    metric: str
    reader: str
    value: float


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The last results of an eval_input_reader: step, seconds since 1970, name -> value."""

    step: int
    time: float
    metrics: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Status:
    """The status of a training; None, or empty, is what its files do not say.

    Attributes:
      model_dir: its folder.
      state: a name of `run_record` for what it does, one of `ENDS`, or `UNKNOWN`.
      waits_for: a clause: what it waits for, or why it ended.
      since: when the state began, in seconds since 1970.
      host, pid: the machine and the process.
      starts: number of starts so far.
      step: number of steps done, of the last record or checkpoint.
      num_steps: number of steps in all.
      steps_per_second: over the last records, evaluations and checkpoints included.
      images_per_second: of the last record, steps alone.
      seconds_to_go: at `steps_per_second`.
      logged: when the last record was written, in seconds since 1970.
      learning_rate, losses, waiting_share: of the last record.
      evaluations: reader -> its last results.
      best: the best model so far.
      waiting_evaluations: number of checkpoints that wait for their evaluation.
      disk: bytes of 'checkpoints', 'events' and 'others' in the model_dir, and 'free'.
    """

    model_dir: str
    state: str
    waits_for: str
    since: float | None
    host: str | None
    pid: int | None
    starts: int
    step: int | None
    num_steps: int | None
    steps_per_second: float | None
    images_per_second: float | None
    seconds_to_go: float | None
    logged: float | None
    learning_rate: float | None
    losses: Mapping[str, float]
    waiting_share: float | None
    evaluations: Mapping[str, Evaluation]
    best: Best | None
    waiting_evaluations: int
    disk: Mapping[str, int | None]

    @property
    def has_ended(self) -> bool:
        return self.state in ENDS


def read(directory: str | os.PathLike) -> Status:
    """Reads the status of the training in a model_dir; see `Status`."""
    folder = pathlib.Path(directory)
    runs = history.read(folder / 'train' / run_record.FILE_NAME)
    run = runs[-1] if runs else {}
    entries = history.read_last(folder / 'train' / history.FILE_NAME)
    last = entries[-1] if entries else {}
    announced, finished = _json(folder / STATE_FILE), _json(folder / FINISHED_FILE)
    state, reason = _state(announced, finished)
    step, num_steps = finished.get('step', last.get('step', run.get('step'))), run.get('num_steps')
    speed = _steps_per_second(entries, run)
    to_go = None
    if speed and step is not None and num_steps is not None and state not in ENDS:
        to_go = max(0, num_steps - step) / speed
    waiting = _queued(folder)
    return Status(
        model_dir=os.fspath(directory),
        state=state,
        waits_for=reason or _waits_for(state, last, waiting),
        since=announced.get('since'),
        host=announced.get('host', run.get('host')),
        pid=announced.get('pid'),
        starts=len(runs),
        step=step,
        num_steps=num_steps,
        steps_per_second=speed,
        images_per_second=last.get('images_per_second'),
        seconds_to_go=to_go,
        logged=last.get('time'),
        learning_rate=last.get('learning_rate'),
        losses=last.get('losses', {}),
        waiting_share=last.get('waiting_share'),
        evaluations=_evaluations(folder),
        best=_best(folder),
        waiting_evaluations=waiting,
        disk=_disk(folder),
    )


def _state(announced: Mapping[str, Any], finished: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the state, and the reason of an end."""
    if finished:
        return FINISHED, str(finished.get('reason', ''))
    state = announced.get('state', UNKNOWN)
    if state in (*ENDS, UNKNOWN):
        return state, str(announced.get('detail', ''))
    if announced['host'] == platform.node() and not _is_alive(announced):
        return DIED, f'process {announced["pid"]} is gone; it was last announced: {state}'
    return state, ''


def _is_alive(announced: Mapping[str, Any]) -> bool:
    """Whether the announced process runs on this machine; another one may have got its number."""
    try:
        os.kill(announced['pid'], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    started = _process_start(announced['pid'])
    return started is None or started == announced.get('process_start', started)


def _process_start(pid: int) -> str | None:
    """Returns when Linux started a process, in its own unit; None for a zombie's or elsewhere."""
    try:
        text = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return None
    # The name of the program, in parentheses, may contain spaces.
    fields = text.rpartition(')')[2].split()
    return 'ended' if fields[0] in 'ZX' else fields[19]


def _waits_for(state: str, last: Mapping[str, Any], waiting_evaluations: int) -> str:
    share = last.get('waiting_share') or 0.0
    if state == run_record.STEPS and share > _MUCH_WAITING:
        return f'training data, {share:.0%} of the time'
    if state == run_record.EVALUATION and waiting_evaluations:
        return f'the evaluation of {waiting_evaluations} checkpoints'
    return {
        run_record.START: 'the config, the data and the model to be prepared',
        run_record.FIRST_STEP: 'the graph of the first step to be built',
        run_record.SAVES: 'a checkpoint to be written',
        run_record.EVALUATION: 'the evaluation',
    }.get(state, '')


def _steps_per_second(entries: list[dict[str, Any]], run: Mapping[str, Any]) -> float | None:
    """Returns the speed between the last records of a run, by the clock on the wall if possible."""
    own = [entry for entry in entries if entry['time'] >= run.get('time', 0.0)]
    if len(own) > 1 and own[-1]['time'] > own[0]['time']:
        return (own[-1]['step'] - own[0]['step']) / (own[-1]['time'] - own[0]['time'])
    images = own[-1].get('images_per_second') if own else None
    return images / run['batch_size'] if images and run.get('batch_size') else None


def _evaluations(folder: pathlib.Path) -> dict[str, Evaluation]:
    found = {}
    root = folder / 'eval'
    for path in sorted(root.rglob(results.ALL_METRICS)):
        entries = history.read_last(path)
        if entries:
            last = entries[-1]
            name = path.parent.relative_to(root).as_posix().removeprefix('.')
            found[name] = Evaluation(last['step'], last['time'], last['metrics'])
    return found


def _best(folder: pathlib.Path) -> Best | None:
    entry = _json(folder / BEST_FOLDER / BEST_METRICS)
    names = [field.name for field in dataclasses.fields(Best)]
    return Best(**{name: entry[name] for name in names}) if set(names) <= set(entry) else None


def _queued(folder: pathlib.Path) -> int:
    return len(list((folder / SNAPSHOTS_FOLDER).glob('*.index')))


def _disk(folder: pathlib.Path) -> dict[str, int | None]:
    """Returns bytes by kind; hard links of one file count once."""
    used, seen = dict.fromkeys((_CHECKPOINTS, _EVENTS, _OTHERS), 0), set()
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                facts = os.lstat(os.path.join(root, name))
                if (facts.st_dev, facts.st_ino) not in seen:
                    seen.add((facts.st_dev, facts.st_ino))
                    used[_kind(name)] += facts.st_size
    return {**used, 'free': disk.free_bytes(os.fspath(folder))}


def _kind(name: str) -> str:
    if '.tfevents.' in name:
        return _EVENTS
    return _CHECKPOINTS if name.endswith('.index') or '.data-' in name else _OTHERS


def _json(path: pathlib.Path) -> dict[str, Any]:
    """Reads an object of JSON; {} if there is none, or none that can be read."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
