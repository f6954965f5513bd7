"""One training step against NumPy."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields
from object_detection.core.loss_sum import LossSum
from object_detection.models.normalization import BatchNorm
from object_detection.optimizers import schedules
from object_detection.optimizers.gradients import (
    REGULARIZATION_LOSS,
    TOTAL_LOSS,
    DynamicLossScale,
    LossScale,
)
from object_detection.optimizers.moving_averages import Averaging
from object_detection.optimizers.optimizers import Momentum
from object_detection.training import step
from tests import slow_cases
from tests.training import fakes

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _make(data, **options):
    detector = fakes.FakeDetector()
    detector.build_variables()
    optimizer = Momentum(schedules.constant(0.1), momentum=0.0)
    return step.TrainStep(detector, optimizer, element_spec=data.element_spec, **options)


def _gradient(kernel, bias, batch, l2):
    """Of the fake's losses with respect to the kernel."""
    features = batch[InputFields.IMAGE].numpy().mean(axis=(1, 2)) / 255.0
    errors = features @ kernel + bias - batch[InputFields.GROUNDTRUTH_BOXES].numpy()[:, 0]
    gradient = 2 * features.T @ errors / len(features)
    return gradient + 2 * l2 * kernel, 2 * errors.mean(axis=0)


@pytest.mark.parametrize('regularize', [True, False])
def test_losses_and_update_by_hand(regularize):
    data = fakes.dataset(4, 4)
    train_step = _make(data, add_regularization_loss=regularize)
    kernel, bias = (variable.numpy() for variable in train_step.detector.head.variables)
    batch = next(iter(data))
    losses = train_step(batch)
    expected, bias_gradient = _gradient(kernel, bias, batch, 0.01 if regularize else 0.0)
    updated = train_step.detector.head.kernel.numpy()
    np.testing.assert_allclose(updated, kernel - 0.1 * expected, rtol=1e-5, atol=1e-6)
    penalty = 0.01 * (kernel**2).sum()
    assert (REGULARIZATION_LOSS in losses) == regularize
    if regularize:
        assert float(losses[REGULARIZATION_LOSS]) == pytest.approx(penalty, rel=1e-5)
    norm = np.sqrt((expected**2).sum() + (bias_gradient**2).sum())
    assert float(losses[step.GRADIENT_NORM]) == pytest.approx(norm, rel=1e-5)
    sums = (TOTAL_LOSS, step.GRADIENT_NORM)
    parts = [float(value) for name, value in losses.items() if name not in sums]
    assert float(losses[TOTAL_LOSS]) == pytest.approx(sum(parts), rel=1e-6)
    assert int(train_step.step) == 1


def test_gradients_are_clipped_by_their_global_norm():
    data = fakes.dataset(4, 4)
    train_step = _make(data, clip_norm=0.01)
    kernel, bias = (variable.numpy() for variable in train_step.detector.head.variables)
    batch = next(iter(data))
    gradients = _gradient(kernel, bias, batch, 0.01)
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
    train_step(batch)
    updated = train_step.detector.head.kernel.numpy()
    np.testing.assert_allclose(
        updated, kernel - 0.1 * gradients[0] * 0.01 / norm, rtol=1e-5, atol=1e-7
    )


def test_frozen_variables_are_neither_trained_nor_given_slots():
    data = fakes.dataset(4, 2)
    train_step = _make(data)
    before = train_step.detector.frozen.kernel.numpy()
    train_step(next(iter(data)))
    np.testing.assert_array_equal(train_step.detector.frozen.kernel.numpy(), before)
    assert set(train_step.optimizer.variables) == {'box_head/dense/kernel', 'box_head/dense/bias'}


def test_many_steps_in_one_call_are_the_same_steps():
    data = fakes.dataset(8, 2, repeat=True)
    one, many = _make(data), _make(data)
    for source, target in zip(one.detector.variables, many.detector.variables, strict=True):
        target.assign(source)
    first, second = iter(data), iter(data)
    losses = [one(next(first))] + [one.repeat(first, 1) for _ in range(4)]
    many(next(second))
    means = many.repeat(second, 4)
    total = np.mean([float(loss[TOTAL_LOSS]) for loss in losses[1:]])
    assert float(means[TOTAL_LOSS]) == pytest.approx(total, rel=1e-5)
    np.testing.assert_allclose(
        one.detector.head.kernel.numpy(), many.detector.head.kernel.numpy(), rtol=1e-5
    )
    assert int(many.step) == 5


def test_one_replica_of_a_mirrored_strategy_does_the_same():
    data = fakes.dataset(4, 4)
    plain = _make(data)
    strategy = tf.distribute.MirroredStrategy(['CPU:0'])
    with strategy.scope():
        distributed = iter(strategy.experimental_distribute_dataset(data))
        mirrored = _make(distributed)
        pairs = zip(plain.detector.variables, mirrored.detector.variables, strict=True)
        for source, target in pairs:
            target.assign(source.numpy())
        losses = mirrored(next(distributed))
    for name, value in plain(next(iter(data))).items():
        assert float(losses[name]) == pytest.approx(float(value), rel=1e-5)
    np.testing.assert_allclose(
        plain.detector.head.kernel.numpy(), mirrored.detector.head.kernel.numpy(), rtol=1e-5
    )


def test_a_variable_that_no_loss_needs_keeps_its_value():
    data = fakes.dataset(2, 2)
    train_step = _make(data, add_regularization_loss=False)
    detector = train_step.detector
    detector.loss_sums = lambda predictions, groundtruth, seeds: {
        'Loss/some_loss': LossSum(tf.reduce_sum(detector.head.bias.value), 1.0)
    }
    before = detector.head.kernel.numpy()
    train_step(next(iter(data)))
    np.testing.assert_array_equal(detector.head.kernel.numpy(), before)
    assert np.any(detector.head.bias.numpy() != 0)


class HalfDetector(fakes.FakeDetector):
    """Its gradients pass through float16, of which large ones are infinite."""

    def predict(self, *args, **options):
        boxes = super().predict(*args, **options)['boxes']
        return {'boxes': tf.cast(tf.cast(boxes, tf.float16), tf.float32)}


class OverflowingDetector(HalfDetector):
    """Its batch norm sees images in float16, where 65,504 is the largest number."""

    def __init__(self):
        super().__init__()
        self.norm = BatchNorm(momentum=0.5, dtype='mixed_float16', name='norm')

    def build_variables(self):
        super().build_variables()
        self.norm.build([None, None, None, 3])

    def named_variables(self):
        own = {f'norm/{v.path.split("/")[-1]}': v.value for v in self.norm.variables}
        return super().named_variables() | own

    def predict(self, images, true_shapes, training=False, **options):
        images = tf.cast(self.norm(images, training=training), tf.float32)
        return super().predict(images, true_shapes, training=training, **options)


def _make_scaled(data, scale, detector_class=HalfDetector):
    detector = detector_class()
    detector.build_variables()
    detector.head.kernel.assign(tf.ones_like(detector.head.kernel))
    optimizer = Averaging(Momentum(schedules.constant(0.1), momentum=0.9), decay=0.5)
    return step.TrainStep(detector, optimizer, element_spec=data.element_spec, loss_scale=scale)


def test_a_loss_scale_changes_no_finite_step():
    data = fakes.dataset(4, 4, repeat=True)
    plain, scaled = _make_scaled(data, None), _make_scaled(data, DynamicLossScale(8.0, 2))
    first, second = iter(data), iter(data)
    for expected_scale in (8.0, 8.0, 16.0):
        expected, values = plain(next(first)), scaled(next(second))
        assert float(values.pop(step.LOSS_SCALE)) == expected_scale
        for name, value in values.items():
            assert float(value) == pytest.approx(float(expected[name]), rel=1e-3), name
    np.testing.assert_allclose(
        scaled.detector.head.kernel.numpy(), plain.detector.head.kernel.numpy(), rtol=1e-4
    )
    state = scaled.optimizer_state()
    assert float(state['loss_scale']['scale']) == 16.0
    assert set(plain.optimizer_state()) == set(state) - {'loss_scale'}


def test_gradients_that_are_not_finite_change_nothing_but_the_scale():
    data = fakes.dataset(4, 4, repeat=True)
    train_step = _make_scaled(data, DynamicLossScale(2.0**20))
    optimizer = train_step.optimizer
    variables = [*optimizer.variables.values(), *optimizer.averages().values()]
    before = [variable.numpy() for variable in variables]
    batches = iter(data)
    values = train_step(next(batches))
    assert float(values[step.LOSS_SCALE]) == 2.0**20
    assert float(values[step.GRADIENT_NORM]) == 0.0
    assert train_step.report.is_finite()
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert int(train_step.step) == 1
    for _ in range(10):
        values = train_step(next(batches))
    assert float(values[step.LOSS_SCALE]) < 2.0**17
    assert float(values[step.GRADIENT_NORM]) > 0.0
    assert np.any(variables[0].numpy() != before[0])


@slow_cases.parametrize(1, 'what', ['activations', 'gradients'])
def test_a_skipped_step_changes_no_moving_statistics(what):
    data = fakes.dataset(4, 4, repeat=True)
    initial = 8.0 if what == 'activations' else 2.0**20
    train_step = _make_scaled(data, DynamicLossScale(initial), OverflowingDetector)
    norm = train_step.detector.norm
    batch = dict(next(iter(data)))
    if what == 'activations':
        train_step({**batch, InputFields.IMAGE: batch[InputFields.IMAGE] * 1e6})
    else:
        train_step(batch)
    assert float(train_step.report.values[step.GRADIENT_NORM]) == 0.0
    np.testing.assert_array_equal(norm.moving_mean, [0, 0, 0])
    np.testing.assert_array_equal(norm.moving_variance, [1, 1, 1])
    train_step = _make_scaled(data, DynamicLossScale(8.0), OverflowingDetector)
    train_step(batch)
    assert np.all(train_step.detector.norm.moving_mean.numpy() > 0)


def test_a_scale_that_cannot_fall_reports_what_is_not_finite():
    data = fakes.dataset(4, 4)
    train_step = _make_scaled(data, LossScale(2.0**20))
    before = train_step.detector.head.kernel.numpy()
    train_step(next(iter(data)))
    assert not train_step.report.is_finite()
    np.testing.assert_array_equal(train_step.detector.head.kernel.numpy(), before)


def test_seeds_depend_on_the_index_in_the_global_batch_alone():
    whole = step.sampling_seeds(3, tf.constant(5, tf.int64), tf.constant(4)).numpy()
    halves = [
        step.sampling_seeds(3, tf.constant(5, tf.int64), tf.constant(2), tf.constant(r)).numpy()
        for r in range(2)
    ]
    np.testing.assert_array_equal(whole, np.concatenate(halves))
    assert whole.dtype == np.int32
    others = [
        step.sampling_seeds(seed, tf.constant(k, tf.int64), tf.constant(4)).numpy()
        for seed in (3, 4)
        for k in (5, 6, 7)
    ]
    assert len({tuple(row) for row in np.concatenate(others)}) == 24


@pytest.mark.slow
def test_two_replicas_do_what_one_does_with_the_whole_batch():
    # Devices are divided before TensorFlow starts, so in a process of its own.
    command = [sys.executable, '-m', 'tests.training.fake_replicas']
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout.splitlines()[-1])
    assert (one['replicas'], two['replicas']) == (1, 2)
    assert one['step'] == two['step'] == 4
    for ours, expected in zip(two['losses'], one['losses'], strict=True):
        assert ours == pytest.approx(expected, rel=1e-5)
    for ours, expected in zip(two['weights'], one['weights'], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


@slow_cases.parametrize(1, 'steps_per_call', [1, 3])
def test_stop_votes_are_exchanged_with_the_losses(monkeypatch, steps_per_call):
    data = fakes.dataset(4, 4, repeat=True)
    alone = _make(data)
    assert alone.stop_votes is None
    with monkeypatch.context() as patch:
        patch.setattr(
            'object_detection.training.distribution.strategies.num_workers', lambda strategy: 2
        )
        train_step = _make(data)
    for variable, value in zip(
        train_step.detector.variables, alone.detector.variables, strict=True
    ):
        variable.assign(value)
    batches, others = iter(data), iter(data)
    told = []
    for wants in (False, True, False):
        if wants:
            train_step.request_stop()
            alone.request_stop()
        losses = train_step.repeat(batches, steps_per_call)
        expected = alone.repeat(others, steps_per_call)
        assert losses.keys() == expected.keys() == train_step.report.values.keys()
        for name, value in expected.items():
            assert losses[name].numpy() == value.numpy()
        told.append(float(train_step.stop_votes) > 0)
    # For good: all workers end by it.
    assert told == [False, True, True]
    assert alone.stop_votes is None
