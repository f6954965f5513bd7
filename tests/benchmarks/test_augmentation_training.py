"""The configs and the table of the benchmark of trainings with augmentation."""

import importlib
import pathlib

import pytest

from object_detection.config import reader

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('augmentation_training')


@pytest.mark.parametrize(
    ('name', 'kinds'),
    [
        ('flip', ['random_horizontal_flip']),
        ('flip, copy-paste, mosaic', ['random_horizontal_flip', 'copy_paste', 'mosaic']),
        (
            'all',
            ['random_horizontal_flip', 'copy_paste', 'mosaic', 'photometric_distortion', 'one_of']
            + ['object_cutout'],
        ),
    ],
)
def test_trainings_differ_in_their_steps(benchmark, name, kinds):
    sample, kept = benchmark._TRAININGS[name]
    text = (benchmark.learned.SAMPLES / f'{sample}.config').read_text()
    unchanged = reader.parse_pipeline(text, '').train_config.data_augmentation_options
    restricted = benchmark.restrict(text, kinds=kept, num_steps=0)
    steps = reader.parse_pipeline(restricted, '').train_config.data_augmentation_options
    assert [step.WhichOneof('preprocessing_step') for step in steps] == kinds
    assert all(step in unchanged for step in steps)


def test_steps_stop_at_the_same_share_of_a_shorter_training(benchmark):
    text = (
        'train_config { num_steps: 2000 '
        'data_augmentation_options { mosaic {} stop_after_step: 1500 } '
        'data_augmentation_options { copy_paste {} } }'
    )
    config = reader.parse_pipeline(benchmark.restrict(text, kinds=(), num_steps=100), '')
    steps = config.train_config.data_augmentation_options
    assert [step.stop_after_step for step in steps] == [75, 0]


def test_table(benchmark):
    metrics = dict(zip(benchmark._METRICS.values(), (0.1, 0.25, 0.3126, 1), strict=True))
    rows = [{'augmentation': 'all', 'metrics': metrics, 'seconds': 90, 'cpu_seconds': 120}]
    assert benchmark.table(rows)[-1] == '| all | 0.100 | 0.250 | 0.313 | 1.000 | 1.5 | 2.0 |'
