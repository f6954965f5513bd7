"""A short, seeded run of benchmarks/fuzz.py; the long one is run by hand."""

import importlib
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from object_detection.data.formats.formats import ANNOTATION_FORMATS
from tests import rows

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


@pytest.mark.slow
def test_mutated_records_make_no_wrong_batch(load, tmp_path):
    counts = load('fuzz_records').run(7, 60, tmp_path, tmp_path / 'beat', augments=False)
    assert counts['mutated'] == 60
    assert counts['parses'] >= 30
    assert min(counts['images'], counts['left out: records']) > 0
    assert counts['images'] + counts['left out: records'] >= 55


def test_wrong_batches_are_found(load):
    wrong = {'image': np.zeros([2, 8, 8, 3])}
    with pytest.raises(AssertionError, match='image'):
        load('fuzz_records')._check(wrong, {'image': tf.TensorShape([None, 9, 8, 3])})


def test_mutated_files_raise_errors_of_users(load, tmp_path):
    counts = load('fuzz_files').run(3, 76, tmp_path, tmp_path / 'beat')
    names = [key.removesuffix(': mutated') for key in counts if key.endswith('mutated')]
    # Those of hubs have no files of their own.
    of_files = {*ANNOTATION_FORMATS} - {'hf', 'tfds'}
    assert {*names} == {*of_files, 'label map', 'config', 'JPEG image', 'PNG image'}
    assert all(counts[f'{name}: {name}: read'] for name in of_files)


def test_other_errors_are_found(load, tmp_path, monkeypatch):
    def read(path):
        raise ValueError(path.name)

    files = load('fuzz_files')
    monkeypatch.setattr(files, '_FILES', {'label map': (b'item {}'.strip, read)})
    with pytest.raises(ValueError, match='file'):
        files.run(3, 1, tmp_path, tmp_path / 'beat')


@rows.parametrize('name', ['mutate', 'mutate_text'])
def test_mutations_depend_on_the_seed_alone(load, name):
    mutate, content = getattr(load('mutations'), name), b'{"a": [1, 2.5]}\n' * 20
    made = [[mutate(content, np.random.default_rng(seed)) for seed in range(20)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 10
