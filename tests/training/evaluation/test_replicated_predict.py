"""Batches of one size, computed in parts: nothing of what fills them up is left in the results."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields
from object_detection.core.loss_sum import LossSum
from object_detection.training.evaluation import inference
from object_detection.training.evaluation.inference import ReplicatedPredict
from tests.training import fakes


class _Detector(fakes.FakeDetector):
    """One of its losses is a mean over the objects."""

    def loss_sums(self, predictions, groundtruth, seeds=None):
        errors = tf.reduce_sum((predictions['boxes'] - groundtruth.boxes[:, 0]) ** 2, axis=-1)
        counts = tf.reduce_sum(groundtruth.weights, axis=1)
        own = LossSum(tf.reduce_sum(errors * counts), tf.reduce_sum(counts))
        return {**super().loss_sums(predictions, groundtruth, seeds), 'Loss/of_objects': own}


@pytest.fixture
def detector():
    tf.keras.utils.set_random_seed(0)
    detector = _Detector()
    detector.build_variables()
    return detector


@pytest.fixture
def batches():
    """Of 3, 3 and 1 images, with other numbers of objects in each."""

    def leave_out(batch):
        counts = tf.cast(batch[InputFields.HASH_FROM_SOURCE_ID] % 3, tf.float32)
        weights = tf.cast(tf.range(2.0) < counts[:, tf.newaxis], tf.float32)
        return {**batch, InputFields.GROUNDTRUTH_WEIGHTS: weights}

    return fakes.dataset(7, 3).map(leave_out)


def _filled(detector, spec, *, with_losses=True):
    return ReplicatedPredict(
        lambda part: inference.predict_part(detector, part, with_losses=with_losses),
        {name: each for name, each in spec.items() if name != InputFields.SOURCE_ID},
        strategy=tf.distribute.get_strategy(),
        batch_size=3,
    )


def test_a_batch_that_is_filled_up_counts_its_own_images_alone(detector, batches):
    plain = inference.make_predict(detector, batches.element_spec)
    filled = _filled(detector, batches.element_spec)
    for batch in batches:
        expected, ours = plain(batch), filled(batch)
        for theirs, own in zip(expected, ours, strict=True):
            assert own.keys() == theirs.keys()
            for name, values in theirs.items():
                np.testing.assert_allclose(own[name], values, rtol=1e-5, err_msg=name)
    assert len(batch[InputFields.IMAGE]) == len(ours[0]['detection_boxes']) == 1
    # All batches are of one size.
    assert filled._run.experimental_get_tracing_count() == 1


def test_without_losses(detector, batches):
    filled = _filled(detector, batches.element_spec, with_losses=False)
    detections, losses = filled(next(iter(batches)))
    assert (len(detections['num_detections']), losses) == (3, {})


def test_a_whole_evaluation_is_the_same(detector, batches):
    one, other = (
        inference.evaluate(detector, batches, [fakes.FakeEvaluator()], predict=predict)
        for predict in (None, _filled(detector, batches.element_spec))
    )
    assert one['images'] == 7
    assert other == pytest.approx(one, rel=1e-6)
