"""The status of a training, read from the files of its model_dir."""

import contextlib
import json
import os
import platform
import subprocess
import sys

import pytest

from object_detection.training import status
from object_detection.training.evaluation import results
from object_detection.training.monitoring import history, run_record


@pytest.fixture
def model_dir(tmp_path):
    """A training of 400 steps of 8 images, of which 300 are done."""
    train = tmp_path / 'train'
    train.mkdir()
    run = {'run': 'a', 'time': 1000.0, 'step': 0, 'num_steps': 400, 'batch_size': 8, 'host': 'far'}
    history.append(train / run_record.FILE_NAME, run)
    for step, time in ((100, 1030.0), (200, 1050.0), (300, 1080.0)):
        entry = {
            'step': step,
            'time': time,
            'learning_rate': 0.01,
            'images_per_second': 40.0,
            'losses': {'Loss/total_loss': 1.5, 'Loss/RPNLoss/objectness_loss': 0.25},
            'waiting_share': 0.25,
        }
        history.append(train / history.FILE_NAME, entry)
    return tmp_path


def test_nothing_is_known_of_an_empty_folder(tmp_path):
    found = status.read(tmp_path)
    assert (found.state, found.step, found.losses, found.starts) == (status.UNKNOWN, None, {}, 0)


def test_speed_and_time_to_go(model_dir):
    found = status.read(model_dir)
    assert (found.step, found.num_steps) == (300, 400)
    # 200 steps in 50 s by the clock; the steps alone do 40 / 8 = 5 a second.
    assert found.steps_per_second == pytest.approx(4.0)
    assert found.seconds_to_go == pytest.approx(25.0)
    assert found.losses['Loss/total_loss'] == 1.5


def test_the_speed_of_one_record_is_that_of_its_images(model_dir):
    later = {'run': 'b', 'time': 1060.0, 'step': 200, 'num_steps': 400, 'batch_size': 8}
    history.append(model_dir / 'train' / run_record.FILE_NAME, later)
    found = status.read(model_dir)
    assert found.starts == 2
    assert found.steps_per_second == pytest.approx(5.0)


def test_what_a_running_training_waits_for(model_dir):
    announce = status.Announcer(model_dir)
    announce(run_record.STEPS)
    found = status.read(model_dir)
    assert (found.state, found.waits_for) == ('steps', 'training data, 25% of the time')
    assert (found.pid, found.host, found.has_ended) == (os.getpid(), platform.node(), False)
    announce(run_record.EVALUATION)
    assert status.read(model_dir).waits_for == 'the evaluation'


def test_a_killed_process(model_dir):
    code = (
        'import os, sys\n'
        'from object_detection.training import status\n'
        'status.Announcer(sys.argv[1])("steps")\n'
        'assert "tensorflow" not in sys.modules\n'
        'os._exit(1)'
    )
    subprocess.run([sys.executable, '-c', code, model_dir], check=False)
    found = status.read(model_dir)
    assert (found.state, found.seconds_to_go) == (status.DIED, None)
    assert found.waits_for == f'process {found.pid} is gone; it was last announced: steps'


def test_another_process_with_the_number_of_a_killed_one(model_dir):
    status.Announcer(model_dir)(run_record.STEPS)
    path = model_dir / status.STATE_FILE
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, 'process_start': '1'}))
    assert status.read(model_dir).state == status.DIED
    # It cannot be seen whether a process of another machine runs.
    path.write_text(json.dumps({**content, 'pid': 2**22 + 1, 'host': 'elsewhere'}))
    assert status.read(model_dir).state == 'steps'


def test_an_error_and_a_signal(model_dir):
    announcer = status.Announcer(model_dir)
    with contextlib.suppress(ValueError), announcer.running():
        assert status.read(model_dir).state == run_record.START
        raise ValueError('first line\nsecond line')
    found = status.read(model_dir)
    assert (found.state, found.waits_for) == (status.FAILED, 'first line')
    announcer(status.STOPPED, 'by SIGTERM at step 7')
    assert status.read(model_dir).waits_for == 'by SIGTERM at step 7'


def test_a_finished_training(model_dir):
    status.Announcer(model_dir)(run_record.SAVES)
    (model_dir / status.FINISHED_FILE).write_text('{"step": 350, "reason": "target reached"}')
    found = status.read(model_dir)
    assert (found.state, found.step, found.waits_for) == (status.FINISHED, 350, 'target reached')


def test_results_of_evaluations_and_the_best(model_dir):
    for name, value in (('', 0.5), ('far/away', 0.25)):
        folder = results.folder(model_dir, name)
        results.write(folder, 100, {'AP': 0.1}, {}, {})
        results.write(folder, 200, {'AP': value}, {}, {})
    (model_dir / 'best').mkdir()
    best = {'step': 200, 'metric': 'AP', 'reader': '', 'value': 0.5, 'checkpoint': 'ckpt-0'}
    (model_dir / status.BEST_FOLDER / status.BEST_METRICS).write_text(json.dumps(best))
    found = status.read(model_dir)
    assert {name: (each.step, each.metrics) for name, each in found.evaluations.items()} == {
        '': (200, {'AP': 0.5}),
        'far/away': (200, {'AP': 0.25}),
    }
    assert found.best == status.Best(200, 'AP', '', 0.5)


def test_disk_space_counts_hard_links_once(tmp_path):
    (tmp_path / 'ckpt-1.index').write_bytes(bytes(10))
    data = tmp_path / 'ckpt-1.data-00000-of-00001'
    data.write_bytes(bytes(1000))
    queue = tmp_path / status.SNAPSHOTS_FOLDER
    queue.mkdir()
    os.link(data, queue / data.name)
    (queue / 'ckpt-1.index').write_bytes(bytes(10))
    (tmp_path / 'events.out.tfevents.1').write_bytes(bytes(7))
    (tmp_path / 'notes.txt').write_bytes(bytes(3))
    found = status.read(tmp_path)
    free = found.disk['free']
    assert found.disk == {'checkpoints': 1020, 'events': 7, 'others': 3, 'free': free}
    assert found.waiting_evaluations == 1


def test_the_end_of_a_long_file(tmp_path, monkeypatch):
    path = tmp_path / 'history.jsonl'
    entries = [{'step': step} for step in range(20)]
    for entry in entries:
        history.append(path, entry)
    assert history.read_last(path) == entries
    monkeypatch.setattr(history, '_TAIL', 40)
    # A line takes 13 bytes; the one that is cut is left out.
    assert history.read_last(path) == entries[-3:]
