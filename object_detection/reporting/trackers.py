"""Callbacks that keep a training in Weights & Biases or MLflow.

Each has the config, losses, speeds, metrics, the worst and best pictures of each evaluation, the
page of the training and its checkpoints. A training that is resumed continues its run there. The
packages are those of the extras `wandb` and `mlflow`, and are imported when a training starts.
"""

import abc
import dataclasses
import json
import math
import pathlib
import re
import tempfile
from collections.abc import Mapping
from typing import Any

from object_detection.builders.callback_builder import (
    Callback,
    CheckpointRecord,
    End,
    EvaluationRecord,
    Start,
    StepRecord,
)
from object_detection.errors import expected
from object_detection.metrics.analysis import images as stored_images
from object_detection.reporting import page
from object_detection.system import extras, files
from object_detection.training import status
from object_detection.validation import eval_config

_NONE, _BEST, _ALL = 'none', 'best', 'all'
# What names of metrics may not have in MLflow.
_UNSAFE = re.compile(r'[^\w\-. /]')
# MLflow takes so many parameters at once, and so long values.
_MAX_PARAMETERS, _MAX_VALUE = 100, 500


@dataclasses.dataclass
class _Tracker(Callback, abc.ABC):
    """What both have in common.

    Attributes:
      name: of the run; '' is the name of the model_dir.
      checkpoints: which are kept: 'none', 'best' (at the end; the newest if there is no best one)
        or 'all'.
      pictures: whether the worst and best pictures of each evaluation are kept.
    """

    name: str = ''
    checkpoints: str = _BEST
    pictures: bool = True

    def __post_init__(self):
        kind = type(self).__name__
        if self.checkpoints not in (_NONE, _BEST, _ALL):
            raise expected(f'{kind}.checkpoints', 'none, best or all', repr(self.checkpoints))
        extras.check_packages(kind, (self.package,), self.package)

    @property
    @abc.abstractmethod
    def package(self) -> str:
        """The package, and the extra that installs it."""

    @abc.abstractmethod
    def _open(self, start: Start, run_id: str | None) -> str:
        """Begins the run, or continues that of an id; returns its id."""

    @abc.abstractmethod
    def _log(self, values: Mapping[str, float], step: int) -> None:
        """Writes numbers."""

    @abc.abstractmethod
    def _draw(self, name: str, pictures: list[stored_images.Picture], step: int) -> None:
        """Writes pictures of one kind."""

    @abc.abstractmethod
    def _keep(self, kind: str, name: str, paths: list[pathlib.Path]) -> None:
        """Writes files as an artefact."""

    @abc.abstractmethod
    def _close(self, end: End) -> None:
        """Ends the run."""

    def on_start(self, start: Start) -> None:
        if not start.model_dir:
            raise expected(type(self).__name__, 'a model_dir', 'none')
        self._model_dir = pathlib.Path(start.model_dir)
        path = self._model_dir / 'train' / f'{self.package}_run.json'
        known = json.loads(path.read_text())['id'] if path.exists() else None
        run_id = self._open(start, known)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, json.dumps({'id': run_id}) + '\n')

    def on_step(self, record: StepRecord) -> None:
        self._log(_finite(record.values), record.step)

    def on_checkpoint(self, record: CheckpointRecord) -> None:
        if self.checkpoints == _ALL:
            self._keep_checkpoint(record.path, f'step-{record.step}')

    def on_evaluation(self, record: EvaluationRecord) -> None:
        prefix = '/'.join(filter(None, ['eval', record.reader]))
        values = {
            f'{prefix}/{name}': value
            for name, value in record.metrics.items()
            if eval_config.is_defined(name, value)
        }
        self._log(_finite(values), record.step)
        path = pathlib.Path(record.folder or '', stored_images.FILE_NAME)
        if self.pictures and record.folder and path.exists():
            found = stored_images.load(path).pictures
            for kind, is_best in (('worst', False), ('best', True)):
                chosen = [each for each in found if each.is_best == is_best]
                if chosen:
                    self._draw(f'{prefix}/{kind}', chosen, record.step)

    def on_end(self, end: End) -> None:
        try:
            self._keep_results(end)
        finally:
            self._close(end)

    def _keep_results(self, end: End) -> None:
        best = self._model_dir / status.BEST_FOLDER
        if self.checkpoints == _BEST and best.exists():
            # Without the lock of the folder.
            self._keep('model', 'best', sorted(p for p in best.glob('[!.]*') if p.is_file()))
        elif self.checkpoints == _BEST and end.checkpoint:
            self._keep_checkpoint(end.checkpoint, 'newest')
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, page.FILE_NAME)
            page.write(self._model_dir, path)
            self._keep('report', 'report', [path])

    def _keep_checkpoint(self, prefix: str, name: str) -> None:
        place = pathlib.Path(prefix)
        self._keep('model', name, sorted(place.parent.glob(f'{place.name}.*')))


@dataclasses.dataclass
class WandbCallback(_Tracker):
    """Keeps a training in Weights & Biases; the attributes of `_Tracker` and these.

    Attributes:
      project: of the run.
      entity: user or team; '' is that of the account.
      mode: 'online', 'offline', 'disabled', or '' for what WANDB_MODE says.
    """

    project: str = 'object_detection'
    entity: str = ''
    mode: str = ''
    package = 'wandb'

    def _open(self, start: Start, run_id: str | None) -> str:
        import wandb

        self._run = wandb.init(
            project=self.project,
            entity=self.entity or None,
            name=self.name or self._model_dir.name,
            id=run_id,
            resume=None if run_id is None else 'allow',
            mode=self.mode or None,
            dir=start.model_dir,
            config=dict(start.config),
        )
        # Results of an asynchronous evaluation come after those of later steps.
        self._run.define_metric('step')
        self._run.define_metric('*', step_metric='step')
        return self._run.id

    def _log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({**values, 'step': step})

    def _draw(self, name: str, pictures: list[stored_images.Picture], step: int) -> None:
        import io

        import wandb
        from PIL import Image

        shown = [
            wandb.Image(
                Image.open(io.BytesIO(each.jpeg)),
                caption=f'{each.name}: {each.caption}',
                file_type='jpg',
            )
            for each in pictures
        ]
        self._run.log({name: shown, 'step': step})

    def _keep(self, kind: str, name: str, paths: list[pathlib.Path]) -> None:
        import wandb

        artifact = wandb.Artifact(f'{self._run.id}-{kind}', type=kind)
        for path in paths:
            artifact.add_file(str(path))
        self._run.log_artifact(artifact, aliases=['latest', name])

    def _close(self, end: End) -> None:
        if end.reason:
            self._run.summary['reason'] = end.reason
        self._run.finish(exit_code=int(bool(end.error)))


@dataclasses.dataclass
class MlflowCallback(_Tracker):
    """Keeps a training in MLflow; the attributes of `_Tracker` and these.

    Attributes:
      experiment: of the run.
      tracking_uri: a server, a database or a folder; '' is what MLFLOW_TRACKING_URI says.
    """

    experiment: str = 'object_detection'
    tracking_uri: str = ''
    package = 'mlflow'

    def _open(self, start: Start, run_id: str | None) -> str:
        import mlflow

        self._client = mlflow.MlflowClient(self.tracking_uri or None)
        if run_id is not None:
            self._client.set_terminated(run_id, 'RUNNING')
            self._id = run_id
            return run_id
        found = self._client.get_experiment_by_name(self.experiment)
        experiment = found.experiment_id if found else None
        experiment = experiment or self._client.create_experiment(self.experiment)
        run = self._client.create_run(experiment, run_name=self.name or self._model_dir.name)
        self._id = run.info.run_id
        values = {_safe(k): str(v)[:_MAX_VALUE] for k, v in _leaves(start.config)}
        parameters = [mlflow.entities.Param(k, v) for k, v in values.items()]
        for first in range(0, len(parameters), _MAX_PARAMETERS):
            part = parameters[first : first + _MAX_PARAMETERS]
            self._client.log_batch(self._id, params=part)
        self._client.log_dict(self._id, dict(start.config), 'config.json')
        return self._id

    def _log(self, values: Mapping[str, float], step: int) -> None:
        import mlflow

        now = mlflow.utils.time.get_current_time_millis()
        metrics = [mlflow.entities.Metric(_safe(k), v, now, step) for k, v in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def _draw(self, name: str, pictures: list[stored_images.Picture], step: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for number, each in enumerate(pictures):
                stem = _UNSAFE.sub('_', pathlib.PurePath(each.name).stem)[:100]
                pathlib.Path(folder, f'{number}_{stem}.jpg').write_bytes(each.jpeg)
            self._client.log_artifacts(self._id, folder, f'pictures/{name}/step-{step}')

    def _keep(self, kind: str, name: str, paths: list[pathlib.Path]) -> None:
        for path in paths:
            self._client.log_artifact(
                self._id, str(path), kind if kind == name else f'{kind}/{name}'
            )

    def _close(self, end: End) -> None:
        if end.reason:
            self._client.set_tag(self._id, 'reason', end.reason)
        ended = 'KILLED' if end.stopped_by else 'FINISHED'
        self._client.set_terminated(self._id, 'FAILED' if end.error else ended)


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    """Returns the numbers that are finite."""
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


def _safe(name: str) -> str:
    """Returns a name that MLflow takes."""
    return _UNSAFE.sub('_', name)


def _leaves(value: Any, path: str = '') -> list[tuple[str, Any]]:
    """Returns path -> value of a config, as `--set` names fields."""
    if isinstance(value, Mapping):
        items = [(f'{path}.{key}' if path else str(key), each) for key, each in value.items()]
    elif isinstance(value, list | tuple):
        items = [(f'{path}.{index}', each) for index, each in enumerate(value)]
    else:
        return [(path, value)]
    return [leaf for key, each in items for leaf in _leaves(each, key)]
