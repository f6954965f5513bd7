"""What a run measured."""

import json
import os
import subprocess

import pytest
import tensorflow as tf

from object_detection.optimizers import optimizers, schedules
from object_detection.system import cpu
from object_detection.training import measurements, step
from object_detection.training.loop import train
from object_detection.training.monitoring import history, run_record, run_types
from object_detection.training.monitoring.run_types import Intervals
from tests.training import fakes


def test_a_training_writes_its_averages_and_continues_to_do_so(tmp_path, monkeypatch):
    fakes.patch_builders(monkeypatch.setattr)
    for num_steps in (12, 24):
        train(
            fakes.pipeline_config(),
            tmp_path,
            num_steps=num_steps,
            seed=1,
            record_summaries=False,
            intervals=Intervals(log=6, call=6),
        )
    first, second = run_record.read_runs(tmp_path)
    assert (first['averages']['step'], second['averages']['step']) == (12, 24)
    averages = second['averages']
    # The first step and the first call of many steps build graphs.
    assert averages['timed_steps'] == averages['latencies']['step']['count'] == 6
    assert averages['images_per_second'] == pytest.approx(2 * averages['steps_per_second'])
    assert averages['latencies']['step']['p50'] <= averages['latencies']['step']['p99']
    assert 0 <= averages['waiting_share'] <= 1
    assert averages['memory']['host'] > 1e8
    seconds = averages['seconds']
    assert seconds.keys() == {'all', 'start', 'first_step', 'steps', 'saves', 'other'}
    assert seconds['all'] == pytest.approx(sum(seconds.values()) / 2)
    assert seconds['saves'] > 0.001
    # The last batch of an epoch may be smaller.
    assert 'flops_per_step' not in averages
    entries = history.read(tmp_path / 'train' / 'history.jsonl')
    assert entries[0]['latencies'] == {}
    assert entries[-1]['latencies'].keys() == {'input', 'step'}
    assert entries[-1]['memory']['host'] > 1e8
    assert isinstance(entries[-1]['waiting_share'], float)


def test_the_flops_of_steps_of_a_fixed_size(tmp_path):
    detector = fakes.FakeDetector()
    detector.build_variables()
    batch = next(iter(fakes.dataset(2, 2)))
    train_step = step.TrainStep(
        detector,
        optimizers.Momentum(schedules.constant(0.01), momentum=0.9),
        element_spec={name: tf.TensorSpec(x.shape, x.dtype) for name, x in batch.items()},
    )
    train_step(batch)
    speed = {'waiting_share': 0.0, 'latencies': {}, 'images_per_second': 8.0}
    result = run_types.TrainResult(5, None, {}, speed={'steps_per_second': 4.0, **speed})
    traces = train_step.num_traces
    run = run_record.write(tmp_path)
    measurements.write_averages(tmp_path, run, result, train_step.count_flops)
    assert train_step.num_traces == traces
    (written,) = run_record.read_runs(tmp_path)
    # A dense layer of 3 to 4 and the gradient of its weights, of two images.
    assert written['averages']['flops_per_step'] == 2 * (2 * 2 * 3 * 4)
    assert written['averages']['flops_per_second'] == 4 * 2 * (2 * 2 * 3 * 4)


def test_a_run_without_a_timed_step_has_no_averages(tmp_path):
    measurements.write_averages(tmp_path, 'a', run_types.TrainResult(5, None, {}), None)
    assert not list(tmp_path.iterdir())


def test_a_run_that_was_killed_has_no_averages(tmp_path):
    run = run_record.write(tmp_path, step=0)
    run_record.write(tmp_path, step=5)
    run_record.write_averages(tmp_path, run, step=5)
    first, second = run_record.read_runs(tmp_path)
    assert first['averages']['step'] == 5
    assert second['averages'] is None
    assert run_record.read_runs(tmp_path / 'nothing') == []


def test_averages_as_text():
    facts = {
        'steps_per_second': 2.5,
        'images_per_second': 20.0,
        'waiting_share': 0.25,
        'latencies': {'step': {'p50': 0.4, 'p90': 0.5, 'p95': 0.6, 'p99': 0.7}},
        'memory': {'host': 2**31},
        'flops_per_second': 3e12,
        'seconds': {'all': 3700.0, 'steps': 3330.0, 'saves': 185.0, 'other': 185.0},
    }
    assert measurements.format_averages(facts) == (
        '2.5 steps/s, 20 images/s, 25% of the time waiting for input, 50/90/95/99 % of the steps '
        'within 400/500/600/700 ms, 2 GiB on host, 3 TFLOP/s, 1:01:40 in all, of which 90% steps, '
        '5% saves, 0% evaluation'
    )


def test_memory_of_the_process_in_bytes():
    before = cpu.peaks()['host']
    block = bytearray(64 << 20)
    assert cpu.peaks()['host'] >= before
    assert len(block) > 0
    assert 5e7 < before < 1e12


def test_the_state_of_repositories(tmp_path):
    assert run_record.git_state(tmp_path) is None

    def git(*arguments):
        name = ['-c', 'user.name=a', '-c', 'user.email=a@b.c']
        subprocess.run(['git', '-C', tmp_path, *name, *arguments], check=True, capture_output=True)

    config = tmp_path / 'configs' / 'pipeline.config'
    config.parent.mkdir()
    git('init')
    assert run_record.git_state(tmp_path) is None
    config.write_text('a')
    git('add', '.')
    git('commit', '-m', 'a')
    state = run_record.git_state(config)
    assert run_record.git_state(config.parent) == state
    assert len(state['commit']) == 40
    assert state['dirty'] is False
    config.write_text('b')
    run_record.write(tmp_path / 'model', config_path=config)
    (line,) = (tmp_path / 'model' / 'train' / run_record.FILE_NAME).read_text().splitlines()
    assert json.loads(line)['git']['config'] == {**state, 'dirty': True}
    # As in an environment that lies in someone's repository.
    untracked = tmp_path / 'environment'
    untracked.mkdir()
    assert run_record.git_state(untracked) is None


def test_no_program_of_the_repository_is_run(tmp_path):
    def git(*arguments):
        name = ['-c', 'user.name=a', '-c', 'user.email=a@b.c']
        subprocess.run(['git', '-C', tmp_path, *name, *arguments], check=True, capture_output=True)

    config, trace = tmp_path / 'pipeline.config', tmp_path / 'trace'
    config.write_text('a\n')
    (tmp_path / '.gitattributes').write_text('* filter=run\n')
    git('init')
    git('add', '.')
    git('commit', '-m', 'a')
    program = tmp_path / 'program'
    program.write_text(f'#!/bin/sh\necho run >> {trace}\ncat\n')
    program.chmod(0o755)
    git('config', 'core.fsmonitor', str(program))
    git('config', 'filter.run.clean', str(program))
    # Git compares contents only where the times differ.
    os.utime(config, (1, 1))
    run_record.write(tmp_path / 'model', config_path=config)
    assert not trace.exists()
    (line,) = (tmp_path / 'model' / 'train' / run_record.FILE_NAME).read_text().splitlines()
    assert json.loads(line)['git']['config']['dirty'] is False


def test_no_git_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv('PATH', str(tmp_path))
    assert run_record.git_state(tmp_path) is None
