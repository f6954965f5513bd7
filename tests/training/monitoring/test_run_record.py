"""The record of a run."""

import json

from object_detection.training.monitoring import run_record


def test_each_start_adds_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr('sys.argv', ['tfod', 'train', '--config', 'a file.config'])
    run_record.write(tmp_path, seed=3, step=0)
    run_record.write(tmp_path, seed=4, step=10)
    lines = (tmp_path / 'train' / run_record.FILE_NAME).read_text().splitlines()
    first, second = map(json.loads, lines)
    assert (first['seed'], first['step']) == (3, 0)
    assert (second['seed'], second['step']) == (4, 10)
    assert first['command'].endswith("tfod train --config 'a file.config'")
    assert first['versions'].keys() >= {'python', 'tensorflow', 'keras', 'numpy'}
    assert any('CPU' in device for device in first['devices'])


def test_the_last_start_tells_the_length(tmp_path):
    assert run_record.num_steps(tmp_path) is None
    run_record.write(tmp_path, num_steps=30)
    run_record.write(tmp_path, num_steps=50)
    assert run_record.num_steps(tmp_path) == 50
