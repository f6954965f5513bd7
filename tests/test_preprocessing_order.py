"""A family says whether it normalises images before they are padded, or afterwards."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import DetectionFields, InputFields
from object_detection.core.loss_sum import over_images
from object_detection.export import saved_model
from object_detection.resizers.keep_aspect_ratio import KeepAspectRatioResizer
from object_detection.runtime import input_types
from object_detection.runtime.in_process import ProcessRuntime
from object_detection.runtime.saved_detector import SavedModelRuntime
from object_detection.training import setup
from object_detection.training.evaluation import inference
from tests import slow_cases, toy_family
from tests.test_families import toy_data  # noqa: F401, a fixture

SIZE, PAD_VALUES = 16, (10.0, 20.0, 30.0)
# Half of the image is padding.
IMAGE = np.full((1, 8, 16, 3), 200, np.uint8)


class Detector(toy_family.ToyDetector):
    """A toy that reports the colour of the bottom right pixel, which is padding, as its box."""

    def normalize(self, images):
        return images / 255.0 - 1.0

    def forward(self, images, *arguments):
        predictions = super().forward(images, *arguments)
        corner = images[:, -1, -1]  # [B, 3]
        return predictions | {'boxes': tf.pad(corner, [[0, 0], [0, 1]])}

    def loss_sums(self, predictions, groundtruth, seeds):
        means = tf.reduce_mean(predictions['boxes'][:, :3], axis=1)
        return dict.fromkeys(toy_family.LOSSES, over_images(means))


class PadsNormalized(Detector):
    pads_normalized = True


@pytest.fixture(params=[Detector, PadsNormalized])
def detector(request):
    resizer = KeepAspectRatioResizer(
        min_dimension=SIZE, max_dimension=SIZE, pad_to_max_dimension=True, pad_values=PAD_VALUES
    )
    made = request.param(num_classes=2, resizer=resizer)
    made.build_variables()
    return made


def padding_of(detector) -> np.ndarray:
    values = np.array(PAD_VALUES, np.float32)
    return values if detector.pads_normalized else values / 255.0 - 1.0


def corner_of(outputs) -> np.ndarray:
    return np.asarray(outputs[DetectionFields.BOXES])[0, 0, :3]


def test_preprocess(detector):
    images, true_shapes = detector.preprocess(tf.constant(IMAGE))
    np.testing.assert_array_equal(true_shapes, [[8, 16, 3]])
    np.testing.assert_allclose(images[0, :8], np.full((8, 16, 3), 200 / 255 - 1), rtol=1e-6)
    np.testing.assert_allclose(images[0, 8:], np.tile(padding_of(detector), (8, 16, 1)), rtol=1e-6)


@slow_cases.parametrize(
    1, 'input_type', [input_types.IMAGE_TENSOR, input_types.ENCODED_IMAGE_STRING_TENSOR]
)
def test_export(detector, input_type, tmp_path):
    served = saved_model.ServedDetector(detector, input_type, 'float32')
    tf.saved_model.save(served, str(tmp_path), signatures={'serving_default': served.serve})
    found = corner_of(SavedModelRuntime(tmp_path)(IMAGE))
    np.testing.assert_allclose(found, padding_of(detector), rtol=1e-6)


def test_inference_in_process(detector):
    outputs = ProcessRuntime(detector)(IMAGE)
    np.testing.assert_allclose(corner_of(outputs), padding_of(detector), rtol=1e-6)


def test_training_and_evaluation(detector, toy_data):  # noqa: F811
    pipeline, spec, batch = toy_data
    step = setup.build_step(pipeline.train_config, detector, spec, seed=1)
    images, true_shape = detector.resizer(IMAGE[0])
    batch = {
        **batch,
        InputFields.IMAGE: tf.stack([images] * 2),
        InputFields.TRUE_IMAGE_SHAPE: tf.stack([true_shape] * 2),
    }
    expected = padding_of(detector)
    loss = step.losses(batch, None)[toy_family.LOSSES[0]]
    np.testing.assert_allclose(loss, expected.mean(), rtol=1e-6)
    detections, _ = inference.predict_part(detector, batch, with_losses=False)
    np.testing.assert_allclose(corner_of(detections), expected, rtol=1e-6)
