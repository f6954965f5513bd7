"""Workers that were started differently say so, instead of losing each other."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.errors import ConfigError
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training.distribution import worker_agreement
from object_detection.training.monitoring.run_types import Intervals

ONE = tf.distribute.get_strategy()


def _config(folder, text=''):
    full = (
        f"train_config {{ batch_size: 4 }} train_input_reader {{ label_map_path: '{folder}/l' "
        f"tf_record_input_reader {{ input_path: '{folder}/*.record' }} }} "
        f"eval_input_reader {{ tf_record_input_reader {{ input_path: '{folder}/eval' }} }}"
    )
    config = text_format.Parse(full, TrainEvalPipelineConfig())
    config.MergeFrom(text_format.Parse(text, TrainEvalPipelineConfig()))
    return config


@pytest.fixture
def machines(tmp_path):
    """Two folders with the same files."""
    for name in ('a', 'b'):
        folder = tmp_path / name
        folder.mkdir()
        for path in ('0.record', '1.record', 'l', 'eval'):
            (folder / path).write_text('content')
    return tmp_path / 'a', tmp_path / 'b'


@pytest.fixture
def compare(monkeypatch):
    """Compares worker 0, given by the arguments of `check`, with this process as worker 1."""

    def run(first, second):
        texts = worker_agreement.describe(*first)
        digests = np.array([worker_agreement._digest(text) for text in texts.values()])
        patch = monkeypatch.setattr
        patch(worker_agreement.strategies, 'num_workers', lambda strategy: 2)
        collectives = worker_agreement.collectives
        patch(collectives, 'gather_rows', lambda strategy, own: np.stack([digests, own]))
        patch(
            collectives,
            'gather_values',
            lambda strategy, own: [
                next(text for name, text in texts.items() if _own(second)[name] == own),
                own,
            ],
        )
        worker_agreement.check(ONE, *second)

    def _own(arguments):
        return worker_agreement.describe(*arguments)

    return run


def test_the_same_in_other_folders_agrees(machines, compare):
    compare(*((_config(folder), Intervals(evaluation=5)) for folder in machines))


def test_a_worker_alone_agrees(machines):
    worker_agreement.check(ONE, _config(machines[0]), Intervals())


@pytest.mark.parametrize(
    ('text', 'said'),
    [
        (
            'train_config { batch_size: 8 }',
            r'same config and flags of all. Received of worker 0: batch_size: 4; of worker 1: '
            r'batch_size: 8\.',
        ),
        ('train_config { num_steps: 8 }', 'of worker 1: num_steps: 8'),
    ],
)
def test_another_config_is_reported(machines, compare, text, said):
    first, second = machines
    with pytest.raises(ConfigError, match=said):
        compare((_config(first), Intervals()), (_config(second, text), Intervals()))


@pytest.mark.parametrize('field', ['log', 'checkpoint', 'evaluation', 'call'])
def test_other_intervals_are_reported(machines, compare, field):
    first, second = machines
    other = dataclasses.replace(Intervals(), **{field: 77})
    with pytest.raises(ConfigError, match=f'same intervals of all.*of worker 1: {field}: 77'):
        compare((_config(first), Intervals()), (_config(second), other))


@pytest.mark.parametrize(
    ('name', 'said'),
    [
        ('0.record', r'train_input_reader: 0\.record, 7 bytes; of worker 1: .* 5 bytes'),
        ('2.record', r'of worker 1: train_input_reader: 2\.record'),
        ('l', r'train_input_reader: l, sha256 .*; of worker 1: train_input_reader: l, sha256'),
        ('eval', r'eval_input_reader\[0\]: eval, 7 bytes'),
    ],
)
def test_other_files_are_reported(machines, compare, name, said):
    _, second = machines
    (second / name).write_text('other')
    with pytest.raises(ConfigError, match=f'same input files of all.*{said}'):
        compare(*((_config(folder), Intervals(evaluation=5)) for folder in machines))
