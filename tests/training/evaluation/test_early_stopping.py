"""Training ends when nothing gets better, or when the targets are reached."""

import math

import pytest
from google.protobuf import text_format

from object_detection.errors import ConfigError
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training.evaluation.results import reason_to_stop
from tests import rows

AP = 'DetectionBoxes_Precision/mAP'
LOSS = 'Loss/total_loss'


def _config(text):
    full = f'eval_input_reader {{}} eval_config {{ early_stopping {{ {text} }} }}'
    return text_format.Parse(full, TrainEvalPipelineConfig())


def _reason(text, values, metric=AP):
    results = [{'step': 10 * i, 'metrics': {metric: v}} for i, v in enumerate(values, 1)]
    return reason_to_stop(_config(f'{text} metric: "{metric}"'), results)


@rows.parametrize(
    ('values', 'waited'),
    [
        ([], 0),
        ([0.3], 0),
        ([0.3, 0.3], 0),
        ([0.3, 0.3, 0.2], 2),
        ([0.3, 0.2, 0.31, 0.3], 0),
        ([0.3, 0.2, 0.31, 0.3, 0.31], 2),
        ([0.3, math.nan, -1.0], 2),
        ([-1.0, -1.0], 2),
        ([-1.0, 0.0, 0.0], 0),
    ],
)
def test_patience_counts_evaluations_without_improvement(values, waited):
    reason = _reason('patience: 2', values)
    assert (reason is not None) == (waited > 0)
    assert waited == 0 or f'has not improved for {waited} evaluation' in reason


def test_the_best_is_named():
    reason = _reason('patience: 2', [0.1, 0.25, 0.2, 0.2])
    assert reason == f'{AP} has not improved for 2 evaluations (best: 0.25 at step 20)'
    assert 'it was never defined' in _reason('patience: 2', [-1.0, -1.0])


def test_small_changes_are_no_improvement_but_add_up():
    assert _reason('patience: 2 min_delta: 0.05', [0.10, 0.13, 0.14]) is not None
    assert _reason('patience: 2 min_delta: 0.05', [0.10, 0.13, 0.16]) is None


def test_of_a_loss_less_is_better():
    assert _reason('patience: 2', [3.0, 2.0, 1.0], LOSS) is None
    assert _reason('patience: 2', [1.0, 2.0, 3.0], LOSS) is not None


@rows.parametrize(
    ('metrics', 'is_reached'),
    [
        ({AP: 0.38, LOSS: 0.9}, True),
        ({AP: 0.37, LOSS: 1.0}, True),
        ({AP: 0.36, LOSS: 0.9}, False),
        ({AP: 0.38, LOSS: 1.1}, False),
        ({AP: 0.38, LOSS: math.nan}, False),
    ],
)
def test_all_targets_are_to_be_reached_at_once(metrics, is_reached):
    text = f'target {{ metric: "{AP}" value: 0.37 }} target {{ metric: "{LOSS}" value: 1.0 }}'
    # An earlier evaluation that reached them does not count: training went on.
    results = [
        {'step': 10, 'metrics': {AP: 0.9, LOSS: 0.1}},
        {'step': 20, 'metrics': metrics},
    ]
    reason = reason_to_stop(_config(text), results)
    assert (reason is not None) == is_reached
    if is_reached:
        assert f'{AP} is {metrics[AP]:.4g} (target 0.37)' in reason


def test_nothing_is_requested():
    assert _reason('', [0.3] * 50) is None


def test_a_metric_that_does_not_exist():
    with pytest.raises(ConfigError, match=r"early_stopping: .*'a'.* Received: 'b'"):
        reason_to_stop(_config('patience: 1 metric: "b"'), [{'step': 1, 'metrics': {'a': 1.0}}])


def test_decides_from_the_results_so_far_so_that_restarts_change_nothing():
    config, results = _config('patience: 2'), []
    assert reason_to_stop(config, results) is None
    # Step 20 was done twice, as after a kill.
    for step, value in [(10, 0.3), (20, 0.9), (20, 0.2), (30, 0.2)]:
        results.append({'step': step, 'time': 0.0, 'metrics': {AP: value}})
    assert reason_to_stop(config, results).endswith('(best: 0.3 at step 10)')
