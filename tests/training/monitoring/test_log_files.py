"""Files that a job writes beside its model_dir."""

import json

import pytest

from object_detection.builders.callback_builder import End, EvaluationRecord, Start, StepRecord
from object_detection.training import epochs
from object_detection.training.evaluation.eval_job import evaluate_directory
from object_detection.training.loop import train
from object_detection.training.monitoring.log_files import DllLog, JobFiles
from object_detection.training.monitoring.progress import Silent
from object_detection.training.monitoring.run_types import Intervals
from tests.training import fakes

SPEED = {
    'images_per_second': 8.0,
    'latencies': {'step': {'mean': 0.5, 'p50': 0.4, 'p90': 0.7, 'p95': 0.8, 'p99': 0.9}},
}


def _read(path) -> list[dict]:
    lines = path.read_text().splitlines()
    assert all(line.startswith('DLLL {') for line in lines)
    return [json.loads(line.removeprefix('DLLL ')) for line in lines]


def _logged(path) -> list[dict]:
    return [entry for entry in _read(path) if entry['type'] == 'LOG']


def test_the_fields_are_those_of_dllogger(tmp_path):
    """As JSONStreamBackend.log and .metadata of NVIDIA's dllogger write them."""
    path = tmp_path / 'new' / 'log.json'
    log = DllLog(str(path))
    log.on_start(Start('model', 0, 10, 2))
    log.on_step(StepRecord(100, {'Loss/total_loss': 1.5}, 0.25, 4.0))
    unit, *_, parameters, record = _read(path)
    times = ['timestamp', 'datetime', 'elapsedtime']
    assert list(unit) == [*times, 'type', 'metric', 'metadata']
    assert (unit['type'], unit['metric']) == ('METADATA', 'train_throughput')
    assert unit['metadata'] == {'unit': 'images/s'}
    assert list(record) == [*times, 'type', 'step', 'data']
    assert all(isinstance(record[name], str) for name in times)
    assert float(record['elapsedtime']) >= 0
    assert (parameters['step'], parameters['data']) == (
        'PARAMETER',
        {'step': 0, 'num_steps': 10, 'batch_size': 2},
    )
    assert record['step'] == 100
    assert record['data'] == {'loss': 1.5, 'learning_rate': 0.25, 'train_throughput': 4.0}


def test_losses_have_the_names_of_nvidias_model(tmp_path):
    path = tmp_path / 'log.json'
    kinds = ('RPNLoss/localization', 'RPNLoss/objectness', 'BoxClassifierLoss/localization')
    kinds += ('BoxClassifierLoss/classification', 'BoxClassifierLoss/mask', 'regularization')
    losses = {f'Loss/{kind}_loss': 1.0 for kind in kinds} | {'Loss/other': 2.0}
    DllLog(str(path)).on_step(StepRecord(1, losses, 0.1, None))
    assert list(_logged(path)[0]['data']) == [
        'rpn_box_loss',
        'rpn_score_loss',
        'fast_rcnn_box_loss',
        'fast_rcnn_class_loss',
        'mask_rcnn_loss',
        'l2_regularization_loss',
        'Loss/other',
        'learning_rate',
    ]


def test_a_log_is_appended_to_and_ends_with_a_summary(tmp_path):
    path = tmp_path / 'log.json'
    for _ in range(2):
        DllLog(str(path)).on_end(End(speed=SPEED, seconds={'all': 60.0}))
    latencies = SPEED['latencies']
    results = EvaluationRecord(7, {'mAP': 0.5}, images=10, seconds=2.0, latencies=latencies)
    DllLog(str(path)).on_evaluation(results)
    first, second, results = _logged(path)
    assert first['step'] == second['step'] == []
    assert first['data'] == {
        'train_time': 60.0,
        'train_latency': 0.5,
        'train_latency_90': 0.7,
        'train_latency_95': 0.8,
        'train_latency_99': 0.9,
        'train_throughput': 8.0,
    }
    assert results['step'] == 7
    assert results['data']['mAP'] == 0.5
    assert results['data']['test_throughput'] == 5.0
    assert results['data']['test_latency_99'] == 0.9


@pytest.fixture
def config(monkeypatch, tmp_path):
    fakes.patch_builders(monkeypatch.setattr)
    config = fakes.pipeline_config()
    config.eval_config.batch_size = 2
    labels = fakes.write_label_map(tmp_path / 'labels.pbtxt')
    config.eval_input_reader.add().label_map_path = labels
    return config


def test_a_training_writes_both(tmp_path, config):
    path = tmp_path / 'log.json'
    log_files = JobFiles(events=str(tmp_path / 'events'), dllogger=str(path))
    intervals = Intervals(log=2, evaluation=4)
    model = tmp_path / 'model'
    train(config, model, num_steps=4, intervals=intervals, progress=Silent(), log_files=log_files)
    steps = [entry['step'] for entry in _logged(path)]
    assert steps == ['PARAMETER', 2, 4, 4, []]
    assert 'images' in _logged(path)[3]['data']
    assert _logged(path)[3]['data']['test_throughput'] > 0
    folders = {each.parent for each in tmp_path.rglob('events.out.tfevents*')}
    assert folders == {tmp_path / 'events' / 'train', tmp_path / 'events' / 'eval'}
    evaluate_directory(config, model, timeout=0, output_dir=model, log_files=log_files)
    assert [entry['step'] for entry in _logged(path)][5:] == [4]


@pytest.mark.parametrize(('warmup', 'timed'), [(0, 9), (4, 6), (20, 0)])
def test_averages_leave_the_warm_up_out(tmp_path, config, warmup, timed):
    intervals = Intervals(log=5, call=1, warmup=warmup)
    result = train(config, tmp_path, num_steps=10, intervals=intervals, progress=Silent())
    assert result.speed['timed_steps'] == timed
    counts = [times['count'] for times in result.speed['latencies'].values()]
    assert counts == ([timed] * 2 if timed else [])


def test_steps_per_epoch_take_the_place_of_counting(monkeypatch):
    monkeypatch.setattr(epochs, '_count', lambda config: pytest.fail('counted'))
    config = fakes.pipeline_config(num_epochs=2.5, steps_per_epoch=20)
    epochs.resolve_epochs(config)
    assert config.train_config.num_steps == 50
    assert not config.train_config.HasField('steps_per_epoch')
