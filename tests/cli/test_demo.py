import contextlib
import importlib.metadata
import itertools
import json
import signal
import sys

import click
import pytest
from click.testing import CliRunner

from object_detection.cli import demo
from tests import rows

_METRICS = {
    'DetectionBoxes_Precision/mAP@.50IOU': 0.9,
    'DetectionMasks_Precision/mAP@.50IOU': 0.9,
}


@pytest.fixture
def stages(monkeypatch):
    """Runs no stage, but writes what the demo reads of each; the commands that were asked for."""
    commands = []

    def run(words):
        words = [str(word) for word in words]
        commands.append(words)
        options = dict(itertools.pairwise(words))
        if words[:2] == ['tfod', 'train']:
            _write(
                options['--model_dir'] + '/train/history.jsonl',
                '{"step": 9, "time": 1, "losses": {}}',
            )
            _write(options['--model_dir'] + '/eval/metrics.json', json.dumps(_METRICS))
        elif words[:2] == ['tfod', 'predict']:
            for number in range(int(options['--limit'])):
                _write(f'{options["--output"]}/{number}.png', '')
        elif words[0] == sys.executable:
            for number in range(int(options['--num_train'])):
                _write(f'{options["--output"]}/train/{number}.jpg', options['--seed'])

    monkeypatch.setattr(demo, '_run', run)
    monkeypatch.setattr(demo, '_count_weights', lambda exported: 1234567)
    return commands


def _write(path, text):
    path = demo.pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _demo(folder, *options):
    return CliRunner().invoke(demo.command, ['--output', str(folder), *options])


def test_runs_the_stages_in_order_and_reports_the_facts(stages, tmp_path):
    result = _demo(tmp_path / 'out', '--num_train', '3', '--num_val', '2', '--seed', '5')
    assert result.exit_code == 0, result.output
    names = [words[1] for words in stages if words[0] == 'tfod']
    assert names == ['convert', 'convert', 'train', 'eval', 'export', 'predict']
    assert '[6/6]' in result.output
    page = (tmp_path / 'out' / 'report.html').read_text()
    for fact in (
        '3 to train, 2 to validate',
        '<dt>steps</dt><dd>9</dd>',
        '1,234,567',
        importlib.metadata.version('tensorflow'),
        '--num_train=3 --num_val=2 --num_steps=0 --seed=5',
        '<dt>prediction</dt><dd>0:00:00</dd>',
    ):
        assert fact in page


def test_the_single_shot_detector_is_shown_without_masks(stages, tmp_path, monkeypatch):
    box_ap = 'DetectionBoxes_Precision/mAP@.50IOU'
    monkeypatch.setattr(sys.modules[__name__], '_METRICS', {box_ap: demo.SSD_BOX_AP_TO_REACH})
    result = _demo(tmp_path, '--num_train', '2', '--model', 'ssd')
    assert result.exit_code == 0, result.output
    assert 'mask' not in result.output
    assert not any('--masks' in words for words in stages)
    assert 'ssd_mobilenet_v2' in (tmp_path / 'pipeline.config').read_text()
    page = (tmp_path / 'report.html').read_text()
    assert 'SSD on generated shapes' in page
    assert '--model=ssd --num_train=2' in page
    result = _demo(tmp_path, '--num_train', '2')
    assert 'holds a demo with --model=ssd, now --model=mask_rcnn' in result.output
    # A stamp of before there was a choice.
    stamp = tmp_path / 'demo.json'
    options = json.loads(stamp.read_text())
    del options['model']
    stamp.write_text(json.dumps(options))
    assert 'now --model=ssd' in _demo(tmp_path, '--num_train', '2', '--model', 'ssd').output


def test_a_model_that_learns_too_little_fails(stages, tmp_path, monkeypatch):
    box_ap = 'DetectionBoxes_Precision/mAP@.50IOU'
    monkeypatch.setattr(sys.modules[__name__], '_METRICS', {box_ap: 0.74})
    result = _demo(tmp_path, '--num_train', '2', '--model', 'ssd')
    assert result.exit_code == 1
    assert 'box AP@.50 0.740 (to reach: 0.75)' in result.output


def test_the_same_options_resume_without_pictures_of_before(stages, tmp_path):
    assert _demo(tmp_path, '--num_train', '2', '--num_pictures', '3').exit_code == 0
    stages.clear()
    result = _demo(tmp_path, '--num_train', '2', '--num_pictures', '1')
    assert result.exit_code == 0, result.output
    assert (tmp_path / 'model' / 'train' / 'history.jsonl').exists()
    assert len(list((tmp_path / 'predictions').iterdir())) == 1
    assert any(words[:2] == ['tfod', 'train'] for words in stages)


@rows.parametrize('name', ['seed', 'num_train', 'num_val', 'num_steps'])
def test_other_options_are_refused_by_name(stages, tmp_path, name):
    assert _demo(tmp_path, '--num_train', '2').exit_code == 0
    stages.clear()
    result = _demo(tmp_path, '--num_train', '2', f'--{name}', '7')
    assert result.exit_code == 1
    assert f'now --{name}=7; give another --output, or --force' in result.output
    assert stages == []


def test_force_deletes_what_a_demo_wrote_and_nothing_else(stages, tmp_path):
    assert _demo(tmp_path, '--num_train', '4').exit_code == 0
    for name in ('train-00000-of-00004', 'val.report.json', 'notes.txt', 'train-plan.txt'):
        _write(tmp_path / name, '')
    result = _demo(tmp_path, '--num_train', '2', '--force')
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / 'shapes' / 'train').iterdir())) == 2
    assert not (tmp_path / 'train-00000-of-00004').exists()
    assert not (tmp_path / 'val.report.json').exists()
    assert (tmp_path / 'notes.txt').exists()
    assert (tmp_path / 'train-plan.txt').exists()
    assert _demo(tmp_path, '--num_train', '2').exit_code == 0


@pytest.mark.parametrize('options', [(), ('--force',)])
def test_files_that_no_demo_wrote_are_left_alone(stages, tmp_path, options):
    _write(tmp_path / 'model' / 'mine', '')
    result = _demo(tmp_path, *options)
    assert result.exit_code == 1
    assert 'holds model, but no demo.json' in result.output
    assert (tmp_path / 'model' / 'mine').exists()
    assert stages == []


def test_weights_are_counted_without_the_step(tmp_path):
    import tensorflow as tf

    from object_detection.weights import checkpoints

    variables = {'head/kernel': tf.Variable(tf.zeros([3, 4])), 'head/bias': tf.Variable([1.0])}
    checkpoints.save_model(str(tmp_path / 'checkpoint'), variables, 7)
    assert demo._count_weights(tmp_path) == 13


def test_the_result_as_json(stages, tmp_path):
    result = _demo(tmp_path / 'out', '--num_train', '1', '--num_val', '1', '--json')
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown['metrics'] == _METRICS
    assert shown['report'] == str(tmp_path / 'out' / 'report.html')


def test_the_output_of_commands_goes_where_that_of_the_demo_goes(tmp_path):
    with (tmp_path / 'output').open('w+') as output, contextlib.redirect_stdout(output):
        demo._run([sys.executable, '-S', '-c', 'print("from the command")'])
        output.seek(0)
        assert output.read().endswith('from the command\n')


@pytest.mark.parametrize('status', [130, 0])
def test_ctrl_c_lets_the_command_save_and_ends_the_demo(tmp_path, status):
    saved = tmp_path / 'saved'
    program = f"""
import os, signal, sys, time
def save(*_):
    time.sleep(0.5)
    open({str(saved)!r}, 'w').write('saved')
    sys.exit({status})
signal.signal(signal.SIGINT, save)
os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)
"""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(click.ClickException, match='the same command resumes') as raised:
            demo._run([sys.executable, '-S', '-c', program])
    except KeyboardInterrupt:
        pytest.fail('the command was killed')
    finally:
        signal.signal(signal.SIGINT, before)
    assert raised.value.exit_code == 130
    assert saved.read_text() == 'saved'
