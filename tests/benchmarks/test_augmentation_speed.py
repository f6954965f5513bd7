"""The benchmark of augmentation on a tiny photo; times are not tested."""

import argparse
import pathlib
import sys

import pytest
import tensorflow as tf

from object_detection.builders import preprocessor_builder
from tests.data import examples

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'
CONFIG = """
model { ssd {} }
train_config {
  data_augmentation_options { random_horizontal_flip {} }
  data_augmentation_options { random_adjust_hue {} }
}
"""


@pytest.fixture
def augmentation(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    __import__('augmentation')
    return sys.modules['augmentation']


@pytest.fixture
def arguments(tmp_path):
    photo = tf.io.encode_jpeg(tf.constant(examples.noise(20, 30)))
    (tmp_path / 'photo.jpg').write_bytes(photo.numpy())
    (tmp_path / 'a.config').write_text(CONFIG)
    (tmp_path / 'b.config').write_text(CONFIG)
    return argparse.Namespace(
        images=str(tmp_path / '*.jpg'), configs=tmp_path, only=None, rounds=1, count=1
    )


def test_has_a_row_for_each_step_and_each_chain_of_the_configs(augmentation, arguments):
    rows = augmentation._rows(arguments)
    assert {f'`{name}`' for name in preprocessor_builder.kinds()} <= rows.keys()
    assert len(rows['2 configs as a']) == 2


@pytest.mark.slow
def test_measures_rows_beside_decoding(augmentation, arguments):
    arguments.only = ['SSD crop, colour', 'order 0, by tf.image']
    results = augmentation.measure_rows(arguments, 8)
    assert [row['steps'] for row in results] == [
        'decoded',
        'decoded, resized',
        'flip, SSD crop, colour',
        '`random_distort_color`, order 0, by tf.image',
    ]
    assert results[1]['of_resized'] == 1
    assert all(row['cpu_ms_per_image'] > 0 for row in results)
