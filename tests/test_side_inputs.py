"""A detector names its side inputs; training, evaluation, inference and exports hand them over."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import DetectionFields
from object_detection.errors import UserError
from object_detection.export import saved_model, verification
from object_detection.resizers.fixed_sizes import IdentityResizer
from object_detection.runtime import input_types, side_inputs
from object_detection.runtime.in_process import ProcessRuntime
from object_detection.runtime.saved_detector import SavedModelRuntime
from object_detection.runtime.side_inputs import GivenSideInput
from object_detection.training import setup
from object_detection.training.evaluation import inference
from object_detection.training.monitoring import model_summary
from tests import rows, slow_cases, toy_family
from tests.test_families import toy_data  # noqa: F401, a fixture

FEATURES, SIZE = 'context_features', 'valid_context_size'
MISSING = f'expected the side inputs {FEATURES}, {SIZE}. Received: no {SIZE}'


class ContextDetector(toy_family.ToyDetector):
    """A toy whose box is the mean of the valid context features of the image."""

    def side_inputs(self):
        return {
            FEATURES: tf.TensorSpec([None, None, 4], tf.float32),
            SIZE: tf.TensorSpec([None], tf.int32),
        }

    def forward(self, *arguments, context_features, valid_context_size):
        predictions = super().forward(*arguments)
        sizes = valid_context_size[:, tf.newaxis]
        is_valid = tf.range(tf.shape(context_features)[1]) < sizes
        valid = context_features * tf.cast(is_valid, tf.float32)[..., tf.newaxis]
        boxes = tf.reduce_sum(valid, axis=1) / tf.cast(tf.maximum(sizes, 1), tf.float32)
        return predictions | {'boxes': boxes}


CONTEXT = {
    FEATURES: tf.constant([[[0.2] * 4, [0.4] * 4, [9.0] * 4], [[0.1] * 4, [9.0] * 4, [9.0] * 4]]),
    SIZE: tf.constant([2, 1]),
}
EXPECTED = np.float32([[0.3] * 4, [0.1] * 4])
IMAGES = np.full((2, 8, 8, 3), 100, np.uint8)


def make(kind):
    detector = kind(num_classes=2, resizer=IdentityResizer())
    detector.build_variables()
    return detector


@pytest.fixture(scope='module')
def detector():
    return make(ContextDetector)


@pytest.fixture(scope='module')
def plain():
    return make(toy_family.ToyDetector)


def boxes_of(outputs):
    return np.asarray(outputs[DetectionFields.BOXES])[:, 0]


@pytest.fixture
def batch(toy_data):  # noqa: F811
    return dict(toy_data[-1])


@slow_cases.parametrize(1, 'jit_compile', [False, True])
def test_evaluation(detector, batch, jit_compile):
    batch = batch | CONTEXT
    spec = {name: tf.TensorSpec.from_tensor(value) for name, value in batch.items()}
    predict = inference.make_predict(detector, spec, jit_compile=jit_compile, batch_size=2)
    detections, losses = predict(batch)
    np.testing.assert_allclose(boxes_of(detections), EXPECTED, rtol=1e-6)
    assert np.all(np.isfinite(losses[toy_family.LOSSES[0]]))


def test_training(detector, batch, toy_data):  # noqa: F811
    batch = batch | CONTEXT
    spec = {name: tf.TensorSpec.from_tensor(value) for name, value in batch.items()}
    step = setup.build_step(toy_data[0].train_config, detector, spec, seed=1)
    boxes = step.losses(batch, None)[toy_family.LOSSES[0]]
    errors = np.abs(EXPECTED - batch['groundtruth_boxes'][:, 0])
    np.testing.assert_allclose(boxes, errors.mean(), rtol=1e-5)
    assert np.isfinite(step(batch)[toy_family.LOSSES[0]])


def test_a_batch_without_them_is_an_error(detector, batch):
    with pytest.raises(UserError, match=MISSING):
        inference.predict_part(detector, batch | {FEATURES: 0}, with_losses=False)


def export(detector, folder, *options):
    served = saved_model.ServedDetector(detector, *options)
    tf.saved_model.save(served, str(folder), signatures={'serving_default': served.serve})
    return tf.saved_model.load(str(folder)).signatures['serving_default']


@pytest.mark.parametrize(
    'input_type', [input_types.IMAGE_TENSOR, input_types.ENCODED_IMAGE_STRING_TENSOR]
)
def test_export(detector, input_type, tmp_path):
    serve = export(detector, tmp_path, input_type, 'float32')
    inputs = tf.constant(IMAGES)
    if input_type != input_types.IMAGE_TENSOR:
        inputs = tf.stack([tf.io.encode_png(image) for image in IMAGES])
    outputs = serve(input_tensor=inputs, **CONTEXT)
    np.testing.assert_allclose(boxes_of(outputs), EXPECTED, rtol=1e-6)
    none = serve(input_tensor=inputs[:0], **{name: value[:0] for name, value in CONTEXT.items()})
    assert boxes_of(none).shape == (0, 4)
    detector = SavedModelRuntime(tmp_path)
    assert sorted(detector.side_inputs) == sorted(CONTEXT)
    outputs = detector(IMAGES, **CONTEXT)
    np.testing.assert_allclose(boxes_of(outputs), EXPECTED, rtol=1e-6)
    with pytest.raises(UserError, match=f'side inputs of .*{SIZE}.* Received: other'):
        detector(IMAGES, other=0)


def test_shapes_of_an_export_can_be_given(detector, tmp_path):
    given = side_inputs.parse(f'{SIZE},{FEATURES}', '2/2,3,-1', 'tf.int32,float32')
    assert given[1] == GivenSideInput(FEATURES, (2, 3, None), 'float32')
    serve = export(detector, tmp_path, input_types.IMAGE_TENSOR, 'float32', None, given)
    shapes = {name: spec.shape for name, spec in serve.structured_input_signature[1].items()}
    assert shapes.pop('input_tensor').as_list() == [None, None, None, 3]
    assert {name: shape.as_list() for name, shape in shapes.items()} == {
        FEATURES: [2, 3, 4],
        SIZE: [2],
    }
    outputs = serve(input_tensor=IMAGES, **CONTEXT)
    np.testing.assert_allclose(boxes_of(outputs), EXPECTED, rtol=1e-6)


def test_given_shapes_keep_the_sizes_of_the_detector(detector):
    given = [
        GivenSideInput(SIZE, (2,), 'int32'),
        GivenSideInput(FEATURES, (2, None, None), 'float32'),
    ]
    specs = side_inputs.resolve(detector, given)
    assert [spec.shape.as_list() for spec in specs] == [[2], [2, None, 4]]


def test_a_family_may_not_classify_given_boxes(plain):
    with pytest.raises(UserError, match=r'toy: this family .* does not classify given boxes'):
        saved_model.ServedDetector(plain, input_types.IMAGE_AND_BOXES_TENSOR, 'float32')


@rows.parametrize(
    ('flags', 'message'),
    [
        (('a', '1', ''), "expected one entry for each side input. Received: 'a', '1' and ''"),
        (('a,b', '1', 'int32'), 'expected one entry for each side input'),
        (('a', '1,x', 'int32'), 'expected numbers such as'),
        (('a', '-5,1', 'int32'), 'each at least 1, or -1'),
        (('a', '0', 'int32'), 'each at least 1, or -1'),
    ],
)
def test_flags_that_cannot_be_parsed(flags, message):
    with pytest.raises(UserError, match=message):
        side_inputs.parse(*flags)


@rows.parametrize(
    ('given', 'message'),
    [
        ([(FEATURES, (1, 3, 4), 'float32')], f'side inputs {FEATURES}, {SIZE} of toy. Received: c'),
        (
            [(FEATURES, (1, 3, 4), 'int32'), (SIZE, (1,), 'int32')],
            rf'side input {FEATURES} as float32 \[None, None, 4\]. Received: int32 \[1, 3, 4\]',
        ),
        (
            [(FEATURES, (1, 3, 4), 'float32'), (SIZE, (1, 1), 'int32')],
            rf'side input {SIZE} as int32 \[None\]. Received: int32 \[1, 1\]',
        ),
    ],
)
def test_an_export_with_other_side_inputs_is_an_error(detector, given, message):
    given = [GivenSideInput(*each) for each in given]
    with pytest.raises(UserError, match=message):
        saved_model.ServedDetector(detector, input_types.IMAGE_TENSOR, 'float32', None, given)


def test_inference_in_process(detector):
    in_process = ProcessRuntime(detector)
    outputs = in_process(IMAGES, **CONTEXT)
    np.testing.assert_allclose(boxes_of(outputs), EXPECTED, rtol=1e-6)
    empty = {name: tf.zeros_like(value) for name, value in CONTEXT.items()}
    expected = in_process(IMAGES, **empty)
    # Of the widths of the context, which is not specified, one is as good as another.
    outputs = in_process(IMAGES)
    np.testing.assert_array_equal(boxes_of(outputs), boxes_of(expected))
    with pytest.raises(UserError, match=f'expected {FEATURES} with {SIZE}'):
        in_process(IMAGES, **{SIZE: empty[SIZE]})
    outputs = verification.in_process(detector)(tf.constant(IMAGES[:1]))
    np.testing.assert_allclose(boxes_of(outputs), boxes_of(expected)[:1], rtol=1e-6)


def test_a_detector_without_any_takes_none(plain):
    given = [GivenSideInput(FEATURES, (1, 3, 4), 'float32')]
    message = f'toy takes no side inputs. Received: {FEATURES}'
    unknown = rf'side inputs of \(none\). Received: {FEATURES}'
    with pytest.raises(UserError, match=message):
        saved_model.ServedDetector(plain, input_types.IMAGE_TENSOR, 'float32', None, given)
    with pytest.raises(UserError, match=unknown):
        ProcessRuntime(plain)(IMAGES, context_features=0)


def test_a_summary_needs_none(detector):
    assert model_summary.summarize(detector, image_size=(8, 8)).image_size == (8, 8)
