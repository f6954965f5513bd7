"""What the evaluations of a training owe and decide, by the files in its folder."""

import json

import pytest
import tensorflow as tf

from object_detection.training.monitoring.run_types import Intervals
from object_detection.training.run_evaluations import RunEvaluations
from object_detection.training.setup import TrainingRun
from tests.training import fakes


@pytest.fixture
def make(tmp_path):
    """Evaluations at every second step, of which those of some steps are done."""

    def make(*steps, interval=2, **settings):
        config = fakes.pipeline_config()
        reader = config.eval_input_reader.add()
        reader.label_map_path = fakes.write_label_map(tmp_path / 'labels.pbtxt')
        config.eval_config.early_stopping.target.add(metric='images', value=4.0)
        if settings:
            config.eval_config.async_evaluation.max_waiting = settings['max_waiting']
        results = tmp_path / 'eval' / 'metrics.jsonl'
        results.parent.mkdir(exist_ok=True)
        entries = [{'step': step, 'metrics': {'images': float(step)}} for step in steps]
        results.write_text(''.join(json.dumps(entry) + '\n' for entry in entries))
        strategy = tf.distribute.get_strategy()
        intervals = Intervals(evaluation=interval)
        return RunEvaluations(TrainingRun(config, str(tmp_path), strategy, intervals))

    return make


def test_results_up_to_a_step_decide(make):
    evaluations = make(2, 4, 6)
    assert evaluations.reason_to_stop(2) is None
    assert 'images is 4' in evaluations.reason_to_stop(4)
    assert 'images is 6' in evaluations.reason_to_stop()


def test_what_an_earlier_run_owes(make):
    evaluations = make(2)
    assert [evaluations.are_missing(step) for step in (0, 2, 3, 4)] == [False, False, False, True]
    assert [evaluations.are_missing_at_end(step) for step in (2, 3)] == [False, True]
    nothing = make(interval=0)
    assert not nothing.are_missing(4)
    assert not nothing.are_missing_at_end(4)


def test_room_for_snapshots(make):
    assert make().max_snapshots == 0
    assert make(max_waiting=3).max_snapshots == 4
    assert make(max_waiting=3, interval=0).max_snapshots == 0
