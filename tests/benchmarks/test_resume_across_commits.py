"""How run directories are compared."""

import importlib
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'


@pytest.fixture
def program(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('resume_across_commits')


def write_run(folder, loss=0.5, **arrays):
    variables = {name: tf.Variable(value) for name, value in arrays.items()}
    tf.train.Checkpoint(**variables).save(str(folder / 'ckpt'))
    (folder / 'train').mkdir()
    lines = [json.dumps({'step': step, 'losses': {'total': loss}}) for step in (1, 2)]
    (folder / 'train' / 'history.jsonl').write_text('\n'.join(lines))
    return folder


def test_each_array_that_differs_is_named(program, tmp_path):
    weight = np.float32([1.0, -0.0])
    folders = [tmp_path / name for name in ('before', 'same', 'bit', 'other')]
    for folder in folders:
        folder.mkdir()
    before = write_run(folders[0], weight=weight, step=2)
    assert program.differences(before, write_run(folders[1], weight=weight, step=2), 2) == []
    # Negative zero equals zero as a number.
    bit = write_run(folders[2], weight=np.abs(weight), step=2)
    (text,) = program.differences(before, bit, 2)
    assert text.startswith('weight/')
    other = write_run(folders[3], loss=0.25, step=2)
    texts = program.differences(before, other, 2)
    assert texts[0].startswith('weight/')
    assert 'only one of the checkpoints' in texts[0]
    assert 'losses differ' in texts[1]
    assert len(texts) == 2
    assert len(program.differences(before, folders[1], 3)) == 1
