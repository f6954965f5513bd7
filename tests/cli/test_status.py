"""`tfod status`, on the files of trainings."""

import json
import time

import pytest
from click.testing import CliRunner

from object_detection.cli.status import command
from object_detection.training import status
from object_detection.training.evaluation import results
from object_detection.training.monitoring import history, run_record


@pytest.fixture
def model_dir(tmp_path):
    train = tmp_path / 'train'
    train.mkdir()
    now = time.time()
    run = {'run': 'a', 'time': now - 100, 'num_steps': 400, 'batch_size': 8, 'host': 'far'}
    history.append(train / run_record.FILE_NAME, run)
    for step, ago in ((100, 60), (200, 10)):
        losses = {'Loss/total_loss': 1.5, 'Loss/RPNLoss/objectness_loss': float('nan')}
        entry = {'step': step, 'time': now - ago, 'images_per_second': 20.0, 'losses': losses}
        history.append(train / history.FILE_NAME, entry)
    results.write(results.folder(tmp_path, 'val'), 200, {'Boxes/mAP': 0.5}, {}, {})
    status.Announcer(tmp_path)(run_record.STEPS)
    return tmp_path


def _run(*arguments):
    result = CliRunner().invoke(command, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result


def test_a_clock_that_is_ahead_of_this_one(model_dir):
    entry = {'step': 300, 'time': time.time() + 60, 'losses': {}}
    history.append(model_dir / 'train' / history.FILE_NAME, entry)
    assert 'last record   0:00:00 ago' in _run(model_dir).stdout


def test_lines_for_a_person(model_dir):
    text = _run(model_dir).stdout
    for line in (
        'step          200 of 400 (50%)',
        'speed         2 steps/s with evaluations and checkpoints, 20 images/s in steps',
        'time to go    0:01:40',
        'losses        total 1.500  RPN/objectness nan',
        'metrics val   of step 200',
        '                Boxes: mAP 0.5000',
    ):
        assert line in text.splitlines(), line
    assert text.startswith('state         steps since 0:00:0')


def test_json_has_no_number_that_is_none(model_dir):
    result = _run(model_dir, '--json')
    content = json.loads(result.stdout)
    assert (content['step'], content['num_steps'], content['state']) == (200, 400, 'steps')
    assert content['losses'] == {'Loss/total_loss': 1.5, 'Loss/RPNLoss/objectness_loss': None}
    assert content['evaluations']['val']['metrics'] == {'Boxes/mAP': 0.5}
    assert result.stderr == ''


@pytest.mark.parametrize('arguments', [[], ['--json']])
def test_watching_prints_a_line_at_each_change_until_the_end(model_dir, monkeypatch, arguments):
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            status.Announcer(model_dir)(run_record.EVALUATION)
        if len(slept) == 3:
            (model_dir / status.FINISHED_FILE).write_text('{"step": 400, "reason": "all done"}')

    monkeypatch.setattr(time, 'sleep', sleep)
    lines = _run(model_dir, '--watch', '--every', 0.5, *arguments).stdout.splitlines()
    assert slept == [0.5] * 3
    if arguments:
        lines = [json.loads(line)['state'] for line in lines]
    assert [line.split()[0] for line in lines] == ['steps', 'evaluation', 'finished']


def test_a_folder_without_a_training(tmp_path):
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert 'expected the files of a training. Received: none.' in str(result.exception)
