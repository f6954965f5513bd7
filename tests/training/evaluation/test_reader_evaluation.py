"""How long the batches of an evaluation take."""

import time

import pytest

from object_detection.training.evaluation import inference
from object_detection.training.evaluation.reader_evaluation import EvaluationTimes
from tests.training import fakes


@pytest.fixture
def detector():
    detector = fakes.FakeDetector()
    detector.build_variables()
    return detector


def _slow(dataset):
    for batch in dataset:
        time.sleep(0.02)
        yield batch


def test_times_are_taken_of_all_batches_but_the_one_that_builds_the_graph(detector):
    times, dataset = EvaluationTimes(), fakes.dataset(5, 2)
    predict = inference.make_predict(detector, dataset.element_spec)
    expected = inference.evaluate(detector, dataset, [fakes.FakeEvaluator()], predict=predict)
    assert times.describe() == {}
    for count in (2, 5):
        metrics = inference.evaluate(
            detector,
            times.batches(_slow(dataset)),
            [fakes.FakeEvaluator()],
            predict=times.predict(predict),
        )
        assert metrics == expected
        described = times.describe()
        assert described['input']['count'] == described['step']['count'] == count
        assert described['input']['p50'] >= 0.02 * 0.99
        assert described['step']['p50'] > 0
    times.clear()
    assert times.describe() == {}
