"""Trainings in Weights & Biases (offline) and MLflow (files), whose stores are read back."""

import json
import pathlib
import struct
import time

import pytest

from object_detection.builders import callback_builder
from object_detection.builders.callback_builder import (
    Callbacks,
    CheckpointRecord,
    End,
    EvaluationRecord,
    Start,
    StepRecord,
)
from object_detection.errors import UserError
from object_detection.reporting import trackers
from tests.reporting import model_dirs

CONFIG = {'train_config': {'batch_size': 2, 'optimizer': {'names': ['a', 'b']}}}
DEFINED = {name: value for name, value in model_dirs.METRICS.items() if value >= 0}
# The first warns of its own use of Pydantic and of open files.
pytestmark = [
    pytest.mark.filterwarnings('ignore'),
    pytest.mark.usefixtures('_plain_names'),
]


@pytest.fixture
def _plain_names(monkeypatch):
    monkeypatch.setenv('WANDB_SILENT', 'true')
    monkeypatch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')


def follow(folder, text, parts=2):
    """Two starts of a training, the second of which a callback ends."""
    for part in range(parts):
        step = 4 * part
        callbacks = Callbacks([callback_builder.build(callback_builder.parse(text))])
        callbacks.on_start(Start(str(folder), step, 8, 2, CONFIG))
        losses = {'Loss/total_loss': 1.5 / (part + 1)}
        callbacks.on_step(
            StepRecord(step + 2, losses, 0.1, 4.0, gradient_norm=float('nan'), batch_size=2)
        )
        evaluated = str(folder / 'eval')
        callbacks.on_evaluation(EvaluationRecord(step + 4, model_dirs.METRICS, 'a', evaluated))
        callbacks.on_checkpoint(CheckpointRecord(step + 4, str(folder / 'ckpt-1')))
        callbacks.on_end(End(step + 4, str(folder / 'ckpt-1'), 'it is enough' if part else None))
        callbacks.check()


@pytest.fixture
def folder(tmp_path):
    folder = model_dirs.whole(tmp_path / 'blocks')
    for name in ('ckpt-1.index', 'ckpt-1.data-00000-of-00001', 'ckpt-11.index'):
        (folder / name).write_bytes(b'weights')
    return folder


def records_of(path):
    """The records of a file of W&B: blocks of 32 KiB, after 7 bytes, as in logs of LevelDB."""
    from wandb.proto import wandb_internal_pb2

    data, at, content = path.read_bytes(), 7, b''
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack('<IHB', data[at : at + 7])
        content += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole of a record, or its last part
            record = wandb_internal_pb2.Record.FromString(content)
            yield record.WhichOneof('record_type'), record
            content = b''


def whole_records(path):
    """The records up to the end of a run, which a process of W&B may still be writing."""
    for _ in range(600):
        records = list(records_of(path))
        if any(kind == 'exit' for kind, _ in records):
            break
        time.sleep(0.1)
    return records


@pytest.mark.slow
def test_weights_and_biases_offline(folder):
    pytest.importorskip('wandb', reason='needs the extra [wandb]')
    follow(folder, 'wandb:mode=offline,project=shapes,checkpoints=all')
    paths = sorted(folder.glob('wandb/offline-run-*/*.wandb'))
    assert len(paths) == 2
    ids = set()
    for part, path in enumerate(paths):
        records = whole_records(path)
        (run,) = [each.run for kind, each in records if kind == 'run']
        ids.add(run.run_id)
        assert (run.project, run.display_name) == ('shapes', 'blocks')
        config = {each.key: json.loads(each.value_json) for each in run.config.update}
        assert config['train_config'] == CONFIG['train_config']
        rows = [
            {(each.key or '/'.join(each.nested_key)): each.value_json for each in r.history.item}
            for kind, r in records
            if kind == 'history'
        ]
        assert float(rows[0]['Loss/total_loss']) == 1.5 / (part + 1)
        assert [int(row['step']) for row in rows] == [4 * part + 2] + [4 * part + 4] * 3
        assert 'gradient_norm' not in rows[0]
        metrics = {k.removeprefix('eval/a/'): float(v) for k, v in rows[1].items() if 'eval' in k}
        assert metrics == DEFINED
        assert rows[2]['eval/a/worst/captions'] == '["<i>: 1 found"]'
        artifacts = {r.artifact.type: r.artifact for kind, r in records if kind == 'artifact'}
        kept = [each.path for each in artifacts['model'].manifest.contents]
        assert sorted(kept) == ['ckpt-1.data-00000-of-00001', 'ckpt-1.index']
        assert f'step-{4 * part + 4}' in artifacts['model'].aliases
        assert [each.path for each in artifacts['report'].manifest.contents] == ['report.html']
        assert len(list(path.parent.glob('files/media/images/eval/a/*.jpg'))) == 2
        assert [r.exit.exit_code for kind, r in records if kind == 'exit'] == [0]
    assert len(ids) == 1


@pytest.mark.slow
@pytest.mark.parametrize('store', ['{}/mlruns', 'sqlite:///{}/mlflow.db'])
def test_mlflow(folder, tmp_path, store, monkeypatch):
    mlflow = pytest.importorskip('mlflow', reason='needs the extra [mlflow]')
    monkeypatch.chdir(tmp_path)
    place = store.format(tmp_path)
    best = folder / 'best'
    best.mkdir()
    (best / 'metrics.json').write_text('{}')
    (best / '.lock').touch()
    follow(folder, f'mlflow:tracking_uri={place},experiment=shapes')
    client = mlflow.MlflowClient(place)
    experiment = client.get_experiment_by_name('shapes').experiment_id
    (run,) = client.search_runs([experiment])
    assert (run.info.run_name, run.info.status) == ('blocks', 'FINISHED')
    assert run.data.tags['reason'] == 'it is enough'
    assert run.data.params == {
        'train_config.batch_size': '2',
        'train_config.optimizer.names.0': 'a',
        'train_config.optimizer.names.1': 'b',
    }
    losses = client.get_metric_history(run.info.run_id, 'Loss/total_loss')
    assert [(each.step, each.value) for each in losses] == [(2, 1.5), (6, 0.75)]
    names = {f'eval/a/{trackers._safe(name)}' for name in DEFINED}
    assert {name for name in run.data.metrics if name.startswith('eval')} == names
    assert run.data.metrics['eval/a/DetectionBoxes_Precision/mAP'] == 0.5
    files = pathlib.Path(client.download_artifacts(run.info.run_id, ''))
    assert json.loads((files / 'config.json').read_text()) == CONFIG
    assert 'html' in (files / 'report' / 'report.html').read_text()[:200]
    assert [each.name for each in (files / 'model' / 'best').iterdir()] == ['metrics.json']
    for kind in ('worst', 'best'):
        (picture,) = (files / 'pictures' / 'eval' / 'a' / kind / 'step-8').iterdir()
        assert picture.read_bytes() == model_dirs.jpeg()


def test_without_its_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
    for name in ('wandb', 'mlflow'):
        with pytest.raises(UserError, match=rf'needs the Python package {name}, .*pip install'):
            callback_builder.build(callback_builder.parse(name))


def test_options_are_checked(monkeypatch):
    monkeypatch.setattr('importlib.util.find_spec', lambda name: name)
    with pytest.raises(UserError, match=r'checkpoints: expected none, best or all.*some'):
        callback_builder.build(callback_builder.parse('wandb:checkpoints=some'))
    with pytest.raises(UserError, match=r"options\[projekt\].* Did you mean 'project'"):
        callback_builder.build(callback_builder.parse('wandb:projekt=a'))
