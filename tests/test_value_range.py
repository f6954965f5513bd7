"""A declared range of values is one rule for training, evaluation, exports, prediction, server."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import object_detection
from object_detection import Predictor
from object_detection.builders import dataset_builder
from object_detection.core.fields import InputFields as F
from object_detection.errors import UserError
from object_detection.export import saved_model, verification
from object_detection.resizers.fixed_sizes import IdentityResizer
from object_detection.resizers.value_range import ValueRange
from object_detection.runtime import description, input_types
from object_detection.runtime.file_detector import FileRuntime
from object_detection.runtime.images import read_image
from object_detection.runtime.in_process import ProcessRuntime
from object_detection.runtime.saved_detector import SavedModelRuntime
from object_detection.serving.model import LoadedModel, read_picture
from tests import rows, toy_family
from tests.builders.test_dataset_builder import config
from tests.data import examples

RANGE = ValueRange(1000, 5000)
# 3000 is the middle of the range.
VALUES = np.full((8, 8), 3000, np.uint16)
DETECTIONS = ('detection_boxes', 'detection_scores')


def png(values) -> bytes:
    file = io.BytesIO()
    Image.fromarray(values).save(file, 'PNG')
    return file.getvalue()


@pytest.fixture(scope='module')
def detector():
    made = toy_family.ToyDetector(num_classes=2, resizer=IdentityResizer())
    made.resizer.value_range = RANGE
    made.build_variables()
    return made


@pytest.fixture(scope='module')
def exports(detector, tmp_path_factory):
    folders = {}
    for kind in ('float_image_tensor', 'encoded_image_string_tensor', 'tf_example'):
        served = saved_model.ServedDetector(detector, kind, 'float32')
        folders[kind] = str(tmp_path_factory.mktemp(kind))
        signatures = {'serving_default': served.serve}
        tf.saved_model.save(served, folders[kind], signatures=signatures)
    return folders


@pytest.fixture(scope='module')
def expected(detector):
    """What the detector finds in an image of 0..255 whose pixels are the middle."""
    found = detector.postprocess(detector.predict(tf.fill([1, 8, 8, 3], 0.5), None), None)
    return {name: found[name][0].numpy() for name in DETECTIONS}


def assert_same(found, expected):
    for name in DETECTIONS:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)


def test_training_and_evaluation_read_records_in_the_range(tmp_path):
    record = examples.example([[0.1, 0.1, 0.9, 0.9]], [1], image=png(VALUES))
    path = examples.write_records(tmp_path / 'records', [record] * 2)
    resizer = 'fixed_shape_resizer { height: 8 width: 8 } value_range { min: 1000 max: 5000 }'
    pipeline = config(path, resizer=resizer, reader='load_instance_masks: false')
    train = dataset_builder.build_train(pipeline, seed=1, batch_size=1)
    for dataset in (train, dataset_builder.build_eval(pipeline, batch_size=2)):
        images = next(iter(dataset))[F.IMAGE]
        assert images.dtype == tf.float32
        np.testing.assert_allclose(images, np.full((len(images), 8, 8, 3), 127.5))


def test_exports_take_values_of_the_range(exports, detector, expected, tmp_path):
    path = tmp_path / 'a.png'
    path.write_bytes(png(VALUES))
    pixels, _ = read_image(path, value_range=RANGE)
    in_process = verification.in_process(detector)(tf.constant(pixels[np.newaxis]))
    assert_same({name: in_process[name][0] for name in DETECTIONS}, expected)
    for folder in exports.values():
        saved = SavedModelRuntime(folder)
        assert saved.value_range == RANGE
        assert_same(saved(pixels), expected)
        batch = saved(pixels[np.newaxis])
        assert_same({name: batch[name][0] for name in DETECTIONS}, expected)


def test_every_way_into_a_predictor_and_a_server_is_the_same(exports, expected, tmp_path):
    path = tmp_path / 'a.png'
    path.write_bytes(png(VALUES))
    for folder in exports.values():
        predictor = Predictor(folder, score_threshold=0)
        given = [path, path.read_bytes(), Image.open(path), VALUES, VALUES.astype(np.float32)]
        for found in predictor(given):
            assert_same(
                {'detection_boxes': found.boxes / 8, 'detection_scores': found.scores}, expected
            )
            # What is drawn on has the brightness that the model sees.
            np.testing.assert_array_equal(found.image, np.full((8, 8, 3), 128, np.uint8))
        model = LoadedModel(folder)
        (found,) = model.run([model.as_row(read_picture(path.read_bytes(), 1000))])
        assert_same(found, expected)


@rows.parametrize('kind', [input_types.IMAGE_TENSOR, input_types.IMAGE_AND_BOXES_TENSOR])
def test_an_input_of_bytes_is_refused_where_it_cannot_hold_the_values(detector, kind):
    with pytest.raises(UserError, match=r'takes bytes, but value_range .* is 1000 to 5000'):
        saved_model.ServedDetector(detector, kind, 'float32')
    input_types.check(kind, ValueRange(0, 100))


def test_a_file_of_values_is_not_made_of_an_array_that_no_file_can_hold(exports):
    saved = SavedModelRuntime(exports['encoded_image_string_tensor'])
    saved.value_range = ValueRange(-1, 1)
    with pytest.raises(UserError, match='hold no values of -1 to 1; export the model with --input'):
        saved(np.zeros((4, 4, 3), np.float32))


@rows.parametrize('resizes_inside', [True, False])
def test_model_files_map_the_values_once(resizes_inside, tmp_path):
    """By the resizer of their description, or in the file, whose input then has the range."""
    text = 'fixed_shape_resizer { height: 8 width: 8 } value_range { min: 1000 max: 5000 }'
    described = description.ModelDescription(
        format='onnx',
        toolkit_version='1',
        inputs=(description.TensorDescription('image', 'float32', (None, 8, 8, 3)),),
        outputs=('detection_boxes', 'detection_scores', 'num_detections'),
        resizer='' if resizes_inside else text,
        value_range=RANGE if resizes_inside else ValueRange(),
    )
    described = description.parse(described.to_json(), 'a.json', 'onnx')
    seen = []

    def run(inputs):
        seen.append(inputs['image'])
        zeros = np.zeros((1, 1), np.float32)
        return {'detection_boxes': zeros, 'detection_scores': zeros, 'num_detections': zeros}

    detector = FileRuntime(tmp_path / 'model.onnx', described, run)
    assert detector.value_range == RANGE
    detector.run_batch(tf.fill([1, 8, 8, 3], 3000.0))
    np.testing.assert_allclose(seen[0], 3000 if resizes_inside else 127.5)


@rows.parametrize('value', [[1], [5, 5], ['0', 255], [float('nan'), 1]])
def test_a_description_with_another_range_is_refused(value):
    described = description.ModelDescription(
        format='onnx',
        toolkit_version='1',
        inputs=(description.TensorDescription('image', 'uint8', (None, None, None, 3)),),
        outputs=('detection_boxes', 'detection_scores', 'num_detections'),
        value_range=value,
    )
    with pytest.raises(UserError, match='value_range: expected two ascending numbers'):
        description.parse(described.to_json(), 'a.json', 'onnx')


def test_a_loaded_detector_takes_files_and_16_bits_but_no_bytes(detector, expected, tmp_path):
    loaded = ProcessRuntime(detector)
    path = tmp_path / 'image.png'
    path.write_bytes(png(VALUES))
    pixels = object_detection.read_image(path, loaded)
    assert pixels.dtype == np.float32
    for image in (pixels, np.stack([VALUES] * 3, axis=-1)):
        found = loaded(image)
        assert_same({name: found[name].numpy() for name in DETECTIONS}, expected)
    with pytest.raises(UserError, match=r'1000 to 5000, as read_image\(path, detector\) reads'):
        loaded(object_detection.read_image(path))
