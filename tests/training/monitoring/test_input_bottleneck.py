"""The sentence about a training that waits for its input."""

import logging

from object_detection.training.loop import train
from object_detection.training.monitoring import history, input_bottleneck
from object_detection.training.monitoring.run_types import Intervals
from tests import rows
from tests.training import fakes
from tests.training.monitoring.test_step_times import slow_batches


@rows.parametrize(
    ('busy', 'advice'), [(0.9, 'need more of them'), (0.3, 'record_cache of train_input_reader')]
)
def test_the_advice_depends_on_what_is_scarce(busy, advice):
    text = input_bottleneck.describe(0.42, busy, 8)
    assert 'waited for its input in 42% of the time' in text
    assert f'of 8 CPU cores {busy:.0%} were in use' in text
    assert advice in text


def test_a_data_service_has_advice_of_its_own():
    text = input_bottleneck.describe(0.42, 0.9, 8, is_served=True)
    assert 'the data service makes batches too slowly' in text
    assert 'decoding' not in text


def test_cores_that_others_use_are_in_use(monkeypatch, caplog):
    # As with several workers on a machine, each of which uses few of its cores itself.
    monkeypatch.setattr(input_bottleneck.CpuUse, 'take', lambda self: 0.96)
    with caplog.at_level(logging.WARNING):
        input_bottleneck.BottleneckReport().update(0.5, 100)
    assert '96% were in use, by this process and others' in caplog.text
    assert 'record_cache' not in caplog.text


def test_it_is_reported_once_and_only_if_the_share_is_large(caplog):
    report = input_bottleneck.BottleneckReport()
    with caplog.at_level(logging.WARNING):
        report.update(None, 0)
        report.update(0.09, 100)
        report.update(0.9, 5)
        assert not caplog.messages
        report.update(0.5, 100)
        report.update(0.6, 100)
    assert len(caplog.messages) == 1
    assert '50%' in caplog.messages[0]


def test_a_training_reports_that_its_input_is_slow(tmp_path, monkeypatch, caplog):
    fakes.patch_builders(monkeypatch.setattr)
    monkeypatch.setattr(
        'object_detection.builders.dataset_builder.build_train',
        lambda config, **how: slow_batches(),
    )
    with caplog.at_level(logging.INFO):
        train(
            fakes.pipeline_config(),
            tmp_path,
            num_steps=45,
            seed=1,
            intervals=Intervals(log=15, call=5),
        )
    (told,) = [text for text in caplog.messages if 'waited for its input' in text]
    assert 'CPU cores' in told
    assert sum('of the time waiting for input' in text for text in caplog.messages) >= 3
    last = history.read(tmp_path / 'train' / history.FILE_NAME)[-1]
    assert last['waiting_share'] > 0.5
    assert last['latencies']['input']['p50'] > 0.01
