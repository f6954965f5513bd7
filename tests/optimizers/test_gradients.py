"""A step computed in parts, compiled, or by the size of images is the same step."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields
from object_detection.core.loss_sum import LossSum, over_images
from object_detection.models.normalization import BatchNorm
from object_detection.optimizers import schedules
from object_detection.optimizers.gradients import TOTAL_LOSS, Execution
from object_detection.optimizers.optimizers import Momentum
from object_detection.training import step
from tests import slow_cases, tiny_models
from tests.training import fakes, step_runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = ((8, 8), (4, 12))


class CountingDetector(fakes.FakeDetector):
    """Its loss is a mean over the objects of the whole batch, of which images have 0 to 2."""

    def loss_sums(self, predictions, groundtruth, seeds=None):
        losses = super().loss_sums(predictions, groundtruth, seeds)
        errors = (predictions['boxes'][:, tf.newaxis] - groundtruth.boxes) ** 2
        total = tf.reduce_sum(errors * groundtruth.weights[..., tf.newaxis])
        of_objects = LossSum(total, tf.reduce_sum(groundtruth.weights))
        # Noise, as of a sample.
        noise = over_images(tf.cast(seeds[:, 0] % 100, tf.float32) / 1e3)
        return losses | {'Loss/mask_loss': of_objects, 'Loss/RPNLoss/objectness_loss': noise}


def batches(count=3, batch_size=4, sizes=SIZES[:1]):
    """Each of one of the sizes."""
    rng = np.random.default_rng(0)
    made = []
    for index in range(count):
        (batch,) = fakes.dataset(batch_size, batch_size)
        shape = (batch_size, *sizes[index % len(sizes)], 3)
        batch[InputFields.IMAGE] = tf.constant(rng.uniform(0, 255, shape), tf.float32)
        has = np.arange(2) < np.array([[0], [2], [1], [2]])[:batch_size]
        batch[InputFields.GROUNDTRUTH_WEIGHTS] = tf.constant(has, tf.float32)
        made.append(batch)
    return made


def spec_of(batch, *, any_size=False):
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}
    if any_size:
        spec[InputFields.IMAGE] = tf.TensorSpec([len(batch['image']), None, None, 3])
    return spec


def make(spec, execution=None, detector=CountingDetector, **options):
    tf.keras.utils.set_random_seed(0)
    detector = detector()
    detector.build_variables()
    optimizer = Momentum(schedules.constant(0.1), momentum=0.9)
    return step.TrainStep(
        detector, optimizer, element_spec=spec, execution=execution, clip_norm=0.5, **options
    )


def run(train_step, data):
    """Returns the losses of each step, and the weights at the end."""
    losses = [{name: float(loss) for name, loss in train_step(batch).items()} for batch in data]
    return losses, train_step.detector.head.kernel.numpy()


def assert_same(ours, expected):
    for losses, wanted in zip(ours[0], expected[0], strict=True):
        assert losses == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_allclose(ours[1], expected[1], rtol=1e-5, atol=1e-7)


@slow_cases.parametrize(1, ('parts', 'jit_compile'), [(2, False), (1, True), (4, True)])
def test_parts_are_the_whole_batch(parts, jit_compile):
    data = batches()
    execution = Execution(jit_compile=jit_compile, accumulation_steps=parts)
    ours = make(spec_of(data[0]), execution)
    assert_same(run(ours, data), run(make(spec_of(data[0])), data))
    # A first pass counts objects where parts are still to come.
    assert ours.num_traces == (2 if parts > 1 else 1)


class NormalizingDetector(CountingDetector):
    """Its batch norm sees the images."""

    def __init__(self):
        super().__init__()
        self.norm = BatchNorm(momentum=0.5, name='norm')

    def build_variables(self):
        super().build_variables()
        self.norm.build([None, None, None, 3])

    def predict(self, images, true_shapes, training=False, **options):
        images = self.norm(images, training=training)
        return super().predict(images, true_shapes, training=training, **options)


def test_each_part_moves_the_statistics_once():
    (batch,) = batches(count=1)
    train_step = make(spec_of(batch), Execution(accumulation_steps=2), NormalizingDetector)
    train_step(batch)
    images = train_step.detector.normalize(batch[InputFields.IMAGE])
    first, second = (np.mean(part, axis=(0, 1, 2)) for part in np.split(images, 2))
    # The first pass, which counts objects, moves nothing.
    np.testing.assert_allclose(
        train_step.detector.norm.moving_mean, 0.25 * first + 0.5 * second, rtol=1e-5
    )


def test_a_batch_of_one_image_compiles():
    data = batches(batch_size=1)
    ours = make(spec_of(data[0]), Execution(jit_compile=True))
    assert_same(run(ours, data), run(make(spec_of(data[0])), data))


@slow_cases.parametrize(1, 'parts', [2, 1])
def test_each_size_has_a_program_of_its_own(parts):
    data = batches(count=6, sizes=SIZES)
    spec = spec_of(data[0], any_size=True)
    shapes = []

    class Looking(CountingDetector):
        def normalize(self, images):
            shapes.append(tuple(images.shape))
            return super().normalize(images)

    execution = Execution(accumulation_steps=parts, bucket_sizes=SIZES)
    ours = make(spec, execution, Looking)
    assert_same(run(ours, data), run(make(spec), data))
    passes = 2 if parts > 1 else 1
    assert sorted(shapes) == sorted([(4 // parts, *size, 3) for size in SIZES] * passes)
    assert ours.num_traces == len(shapes)


def test_a_size_that_is_no_bucket_is_refused():
    data = batches(sizes=((6, 6),))
    spec = spec_of(data[0], any_size=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match='not compatible'):
        make(spec, Execution(bucket_sizes=SIZES))(data[0])


def test_many_compiled_steps_in_one_call():
    data = batches(count=4, sizes=SIZES)
    spec = spec_of(data[0], any_size=True)
    execution = Execution(jit_compile=True, accumulation_steps=2, bucket_sizes=SIZES)
    many, one = make(spec, execution), make(spec)
    dataset = tf.data.Dataset.from_generator(lambda: iter(data), output_signature=spec)
    means = many.repeat(iter(dataset), 4)
    losses, kernel = run(one, data)
    total = np.mean([each[TOTAL_LOSS] for each in losses])
    assert float(means[TOTAL_LOSS]) == pytest.approx(total, rel=1e-5)
    np.testing.assert_allclose(many.detector.head.kernel.numpy(), kernel, rtol=1e-5)
    built = many.num_traces
    dataset = tf.data.Dataset.from_generator(lambda: iter(data), output_signature=spec)
    many.repeat(iter(dataset), 4)
    assert many.num_traces == built == 4


def test_a_number_of_parts_is_positive():
    with pytest.raises(ValueError, match=r'gradient_accumulation_steps.*Received: 0'):
        Execution(accumulation_steps=0)


@pytest.mark.slow
def test_nothing_compiles_after_the_first_step_of_each_size(tmp_path):
    # The cache, one file a program, is chosen before TensorFlow starts.
    command = [sys.executable, '-m', 'tests.training.compiled_steps', str(tmp_path)]
    told = []
    for _ in range(2):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout.splitlines()[-1]))
    first, second = told
    # Each size has one for counting and one for gradients.
    assert first['programs'] == [2, 4, 4, 4, 4, 4]
    assert first['after_many'] == 4
    # Another process finds all of them.
    assert second['programs'] == [4] * 6
    assert second['losses'] == pytest.approx(first['losses'], rel=1e-6)


@pytest.mark.slow
def test_the_recipe_is_the_same_in_every_way(tmp_path):
    ways = ('plain', 'jit', '4', 'two-2', 'two-jit-2')
    command = [sys.executable, '-m', 'tests.training.execution_runs', str(tmp_path), *ways]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected, *others = (np.load(tmp_path / f'{way}.npz') for way in ways)
    for way, ours in zip(ways[1:], others, strict=True):
        for name, values in expected.items():
            largest = np.abs(values).max()
            np.testing.assert_allclose(
                ours[name], values, rtol=1e-5, atol=1e-5 * largest, err_msg=f'{way}: {name}'
            )


@pytest.mark.slow
@pytest.mark.parametrize('batch_size', [1, 2])
def test_a_reference_like_model_compiles(batch_size):
    data = step_runs.batches(batch_size, count=2)
    plain, compiled = (
        step_runs.make_step(
            tiny_models.tiny_pipeline(), step_runs.element_spec(data[0]), Execution(jit_compile)
        )
        for jit_compile in (False, True)
    )
    for ours, expected in zip(
        step_runs.run(compiled, data), step_runs.run(plain, data), strict=True
    ):
        assert ours == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_crops_of_a_model_without_a_pyramid_compile():
    pipeline = tiny_models.tiny_pipeline()
    model = pipeline.model.faster_rcnn
    model.feature_extractor.type = 'faster_rcnn_resnet50_keras'
    model.masks_from_crops = False
    model.feature_extractor.ClearField('fpn')
    model.feature_extractor.ClearField('box_head_depth')
    model.first_stage_anchor_generator.grid_anchor_generator.scales.append(0.25)
    model.first_stage_anchor_generator.grid_anchor_generator.aspect_ratios.append(1.0)
    model.initial_crop_size, model.maxpool_kernel_size, model.maxpool_stride = 6, 2, 2
    data = step_runs.batches(2)
    plain, compiled = (
        step_runs.make_step(pipeline, step_runs.element_spec(data[0]), Execution(jit_compile))
        for jit_compile in (False, True)
    )
    (ours,), (expected,) = step_runs.run(compiled, data), step_runs.run(plain, data)
    # With random weights and trained norms, the last digit of a pixel changes gradients by 1 %.
    del ours[step.GRADIENT_NORM], expected[step.GRADIENT_NORM]
    assert ours == pytest.approx(expected, rel=1e-4, abs=1e-6)
