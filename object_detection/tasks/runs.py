"""Trainings and evaluations: `train`, `evaluate`, and what `tfod train` and `tfod eval` do."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from object_detection.builders.callback_builder import Callback
from object_detection.config.job_options import EvalOptions, TrainOptions
from object_detection.errors import expected
from object_detection.system import tensorflow_setup
from object_detection.tasks.options import PathLike, check_checkpoint_dir, takes
from object_detection.training import jobs, status
from object_detection.training.evaluation import results
from object_detection.training.evaluation.results import EvaluationResult
from object_detection.training.monitoring import history
from object_detection.training.monitoring.run_types import flat
from object_detection.training.status import Best, Status

if TYPE_CHECKING:
    from object_detection.prediction.predictor import Predictor


@dataclasses.dataclass(frozen=True)
class Run:
    """A training, by the files of its model_dir, which are read when they are asked for.

    Attributes:
      model_dir: its folder; that of a training by `tfod train` will do, also while it runs.

    Raises:
      UserError: if there is no such folder.
    """

    model_dir: PathLike

    def __post_init__(self):
        if not os.path.isdir(self.model_dir):
            raise expected('Run', 'the model_dir of a training', self.model_dir)

    def __repr__(self) -> str:
        now, best = self.status, self.best
        kept = f', best {best.metric} {best.value:.4g} at step {best.step}' if best else ''
        return f'<Run in {self.model_dir}: {now.state} at step {now.step} of {now.num_steps}{kept}>'

    @property
    def status(self) -> Status:
        """State, reason of an end, steps, speed, the last losses: what `tfod status` shows."""
        return status.read(self.model_dir)

    @property
    def history(self) -> list[dict[str, Any]]:
        """A dictionary for each record of steps, in order.

        Keys: 'step', 'time' (seconds since 1970), 'learning_rate', 'images_per_second', 'losses'
        (name -> mean since the record before) and those of `callback_builder.StepRecord`.
        """
        return history.read(pathlib.Path(self.model_dir, 'train', history.FILE_NAME))

    @property
    def evaluations(self) -> dict[str, list[dict[str, Any]]]:
        """Reader ('' for one without a name) -> 'step', 'time' and 'metrics' of each evaluation."""
        return results.read_all(self.model_dir)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the last evaluation; with several readers as 'reader/metric'."""
        last = {name: entries[-1]['metrics'] for name, entries in self.evaluations.items()}
        return flat(last)

    @property
    def best(self) -> Best | None:
        """The step and the metric of the best model; None if none was kept."""
        return self.status.best

    @property
    def best_checkpoint(self) -> str | None:
        """The folder of the best model, for `export` and `Predictor`; None if none was kept."""
        return os.path.join(self.model_dir, status.BEST_FOLDER) if self.best else None

    @property
    def report(self) -> str | None:
        """The path of the page about the training; None if there is none."""
        from object_detection.reporting import page

        path = os.path.join(self.model_dir, page.FILE_NAME)
        return path if os.path.exists(path) else None

    def predictor(self, **options: Any) -> 'Predictor':
        """Returns a `Predictor` with the best model, or with the newest; options as its own."""
        tensorflow_setup.import_tensorflow(shows_progress=False)
        from object_detection.prediction.predictor import Predictor

        return Predictor(self.best_checkpoint or self.model_dir, **options)


# Of the callbacks of a call, which may also be objects.


_CALLBACKS = {
    'help': 'What is called as it goes: a `Callback`, or a name with options as in '
    'wandb:project=NAME; several in a list.'
}


@dataclasses.dataclass(frozen=True)
class _Training(TrainOptions):
    """The arguments of `train`."""

    config: PathLike
    model_dir: PathLike
    # Type checkers know `kw_only` of `dataclasses.field` alone.
    callbacks: str | Callback | Sequence[str | Callback] = dataclasses.field(
        default=(), metadata=_CALLBACKS, kw_only=True
    )


@dataclasses.dataclass(frozen=True)
class _Evaluation(EvalOptions):
    """The arguments of `evaluate`."""

    config: PathLike
    checkpoint_dir: PathLike
    model_dir: PathLike | None = None
    run_once: bool = dataclasses.field(
        default=True,
        metadata={
            **EvalOptions.__dataclass_fields__['run_once'].metadata,
            'help': 'Evaluate the newest checkpoint only; False also waits for those that follow.',
        },
        kw_only=True,
    )
    # Type checkers know `kw_only` of `dataclasses.field` alone.
    callbacks: str | Callback | Sequence[str | Callback] = dataclasses.field(
        default=(), metadata=_CALLBACKS, kw_only=True
    )


def _options(kind: type, call: Any) -> tuple[Any, list[Callback]]:
    """Returns the options of a call as those of its command, and the callbacks that are objects."""
    given = {field.name: getattr(call, field.name) for field in dataclasses.fields(kind)}
    callbacks = given.pop('callbacks')
    callbacks = [callbacks] if isinstance(callbacks, str | Callback) else callbacks
    objects = [each for each in callbacks if not isinstance(each, str)]
    for each in objects:
        if not isinstance(each, Callback):
            raise expected(
                'callbacks', 'names, or objects of object_detection.Callback', repr(each)
            )
    names = tuple(each for each in callbacks if isinstance(each, str))
    return kind(**given, callbacks=names), objects


def run_training(config: str, model_dir: str, options: TrainOptions, **arguments: Any) -> int:
    """Trains and writes the page of the training; as `jobs.run_training`."""
    exit_status = jobs.run_training(config, model_dir, options, **arguments)
    # Imported here: it is needed at the end only.
    from object_detection.reporting import page

    page.write_at_end(model_dir)
    return exit_status


@takes(_Training)
def train(call: _Training) -> Run:
    """Trains the model of a pipeline config, as `tfod train` does; the log is on stderr.

    It begins from the newest checkpoint of `model_dir`, or from scratch if there is none. Ctrl-C
    saves a checkpoint and ends the training, which the same call resumes; the status of the run
    says so.

    Args:
      config: path of the pipeline config.
      model_dir: folder of checkpoints, events and results.
      callbacks: `object_detection.Callback` objects, and names of others, such as 'wandb', with
        options as in 'wandb:project=blocks,mode=offline'.

    Returns:
      The run: its history, metrics and best checkpoint.

    Raises:
      UserError: naming what is wrong with the options, the config, the data or the model_dir.
    """
    model_dir = os.fspath(call.model_dir)
    options, callbacks = _options(TrainOptions, call)
    run_training(os.fspath(call.config), model_dir, options, callbacks=callbacks)
    return Run(model_dir)


def run_evaluation(
    config: str,
    checkpoint_dir: str,
    model_dir: str | None,
    options: EvalOptions,
    *,
    on_result: Callable[[Any], None] = lambda result: None,
    **arguments: Any,
) -> int:
    """Evaluates and writes the page of the training after each result; as `jobs.run_evaluation`.

    Args:
      config, checkpoint_dir, options, **arguments: as there.
      model_dir: results go to its folder eval; None takes the folder of the checkpoint.
      on_result: is called after the page was written.
    """
    if options.run_once:
        # Otherwise the training may only begin.
        check_checkpoint_dir(checkpoint_dir)
    is_folder = os.path.isdir(checkpoint_dir)
    folder = model_dir or (checkpoint_dir if is_folder else os.path.dirname(checkpoint_dir))

    def report(result: Any) -> None:
        from object_detection.reporting import page

        page.update(folder)
        on_result(result)

    return jobs.run_evaluation(
        config, checkpoint_dir, folder, options, on_result=report, **arguments
    )


@takes(_Evaluation)
def evaluate(call: _Evaluation) -> EvaluationResult:
    """Evaluates the newest checkpoint of a training, as `tfod eval --run_once` does.

    Args:
      config: path of the pipeline config.
      checkpoint_dir: folder of checkpoints, one prefix, or an unpacked model of the zoo.
      model_dir: results go to its folder eval; None takes that of the checkpoint.

    Returns:
      The result: `metrics` are reader ('' for one without a name) -> name -> value, and `flat` has
      them by one name each; `step` is that of the checkpoint.

    Raises:
      UserError: naming what is wrong with the options, the config, the data or the checkpoint.
    """
    found = [EvaluationResult()]
    options, callbacks = _options(EvalOptions, call)
    run_evaluation(
        os.fspath(call.config),
        os.fspath(call.checkpoint_dir),
        None if call.model_dir is None else os.fspath(call.model_dir),
        options,
        on_result=found.append,
        callbacks=callbacks,
    )
    return found[-1]
