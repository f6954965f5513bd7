"""Models that are loaded from files, and what the server makes of them."""

import base64
import io
import warnings

import numpy as np
import pytest
import tensorflow as tf

pytest.importorskip('fastapi', reason="needs the extra 'serve'")
pytest.importorskip('httpx', reason="the test client needs httpx, of the extra 'dev'")

from PIL import Image

import object_detection
from object_detection.core import tf_example_keys as keys
from object_detection.data.image_decoding import decode_image
from object_detection.serving.app import create_app
from object_detection.serving.limits import RequestError, ServeOptions
from object_detection.serving.model import LoadedModel, Picture, describe_detections
from tests import rows
from tests.prediction.conftest import colour_finder  # noqa: F401, a fixture
from tests.serving.fakes import image_file

with warnings.catch_warnings():
    # It prefers another client to httpx, and works with both.
    warnings.simplefilter('ignore')
    from fastapi.testclient import TestClient

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')


class FirstPixel(tf.Module):
    """An export whose one score is the red value of the first pixel / 255.

    Args:
      input_type: as which images come.
      batch: images of a call; None for any number.
    """

    def __init__(self, input_type: str, batch: int | None = None):
        super().__init__()
        self.type = input_type
        spec = tf.TensorSpec([batch, None, None, 3], tf.uint8, 'input_tensor')
        if input_type != 'image_tensor':
            spec = tf.TensorSpec([batch], tf.string, 'input_tensor')
        self.serve = tf.function(self._serve, input_signature=[spec], autograph=False)
        self.input_type = tf.function(lambda: tf.constant(input_type), input_signature=[])

    def _serve(self, input_tensor):
        values = input_tensor
        if self.type == 'tf_example':
            features = {keys.ENCODED: tf.io.FixedLenFeature([], tf.string)}
            values = tf.io.parse_example(values, features)[keys.ENCODED]
        if self.type != 'image_tensor':
            # Images of several sizes go into one batch.
            first = tf.map_fn(
                lambda each: decode_image(each)[:1, :1], values, fn_output_signature=tf.uint8
            )
        else:
            first = values[:, :1, :1]
        scores = tf.cast(first[:, 0, :1, 0], tf.float32) / 255
        return {
            'detection_boxes': tf.ones_like(scores)[..., tf.newaxis] * [0.0, 0.0, 1.0, 0.5],
            'detection_scores': scores,
            'detection_classes': tf.ones_like(scores),
            'num_detections': tf.ones_like(scores[:, 0]),
        }


def save(folder, input_type: str, batch: int | None = None) -> LoadedModel:
    module = FirstPixel(input_type, batch)
    tf.saved_model.save(module, str(folder), signatures={'serving_default': module.serve})
    return LoadedModel(folder)


@pytest.fixture(scope='module')
def examples(tmp_path_factory):
    return save(tmp_path_factory.mktemp('examples'), 'tf_example')


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    return save(tmp_path_factory.mktemp('files'), 'encoded_image_string_tensor')


def scores(answer) -> list[float]:
    assert answer.status_code == 200, answer.json()
    return [each['detections'][0]['score'] for each in answer.json()['predictions']]


@pytest.mark.parametrize('kind', ['files', 'examples'])
def test_models_that_take_files_get_images_of_several_sizes_in_a_batch(kind, request):
    model = request.getfixturevalue(kind)
    app = create_app(model, ServeOptions(max_wait_ms=500, max_batch_size=2))
    with TestClient(app) as client:
        uploads = [('i', image_file(51, (8, 9))), ('i', image_file(102, (20, 10)))]
        assert scores(client.post('/predict', files=uploads)) == pytest.approx([0.2, 0.4])
        text = client.get('/metrics').text
    assert 'tfod_batch_images_bucket{le="1.0"} 0.0' in text
    assert 'tfod_batch_images_bucket{le="2.0"} 1.0' in text


def test_strings_of_tensorflow_serving_reach_the_model_as_they_are(files, examples):
    value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[image_file(51)]))
    example = tf.train.Example(features=tf.train.Features(feature={keys.ENCODED: value}))
    for model, row in ((files, image_file(51)), (examples, example.SerializeToString())):
        with TestClient(create_app(model, ServeOptions(max_wait_ms=0))) as client:
            text = base64.b64encode(row).decode()
            for instance in ({'b64': text}, {'input_tensor': {'b64': text}}):
                body = {'instances': [instance]}
                (found,) = client.post('/v1/models/model:predict', json=body).json()['predictions']
                assert found['detection_scores'] == pytest.approx([0.2])
            metadata = client.get('/v1/models/model/metadata').text
            assert '"DT_STRING"' in metadata


@rows.parametrize(
    ('row', 'status', 'message'),
    [
        (b'no image', 400, 'no image file'),
        (image_file()[:60], 400, 'damaged or cut off'),
        (image_file(size=(200, 200)), 413, 'at most 10000 pixels'),
    ],
)
def test_strings_that_are_no_images_are_errors_of_the_client(files, examples, row, status, message):
    value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[row]))
    example = tf.train.Example(features=tf.train.Features(feature={keys.ENCODED: value}))
    for model, text in ((files, row), (examples, example.SerializeToString())):
        app = create_app(model, ServeOptions(max_wait_ms=0, max_megapixels=0.01))
        with TestClient(app) as client:
            good = {'b64': base64.b64encode(image_file()).decode()}
            bad = {'b64': base64.b64encode(text).decode()}
            answer = client.post('/v1/models/model:predict', json={'instances': [bad]})
            assert answer.status_code == status
            assert message in answer.json()['error']
            if model is files:
                answer = client.post('/v1/models/model:predict', json={'instances': [good]})
                assert answer.status_code == 200


def test_bytes_that_are_no_example_are_refused(examples):
    with pytest.raises(RequestError, match=r'expected a serialized tf\.Example'):
        examples.check_row(b'\xff\xff', 100)


@rows.parametrize('kind', ['GIF', 'WEBP'])
def test_an_animation_is_replaced_by_its_first_frame_before_the_model_reads_it(files, kind):
    frames = [Image.new('L', (4, 4), value) for value in (50, 200)]
    file = io.BytesIO()
    frames[0].save(file, kind, save_all=True, append_images=frames[1:], lossless=True)
    row = files.check_row(file.getvalue(), 100)
    assert row.startswith(b'\x89PNG')
    assert files.run([row])[0]['detection_scores'] == pytest.approx([50 / 255])


def test_a_model_of_one_image_a_call_is_run_row_by_row(tmp_path):
    model = save(tmp_path, 'image_tensor', batch=1)
    rows = [np.full((4, 5, 3), value, np.uint8) for value in (51, 102)]
    found = [each['detection_scores'] for each in model.run(rows)]
    assert found == [pytest.approx([0.2]), pytest.approx([0.4])]
    assert model.input.shape == (1, None, None, 3)


def test_an_export_gives_over_http_what_it_gives_in_python(colour_finder):  # noqa: F811
    detector = object_detection.load(colour_finder)
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (40 + 8 * i, 64, 3), np.uint8) for i in range(2)]
    direct = [{k: v.numpy() for k, v in detector(image).items()} for image in images]
    with TestClient(create_app(LoadedModel(colour_finder), ServeOptions(max_wait_ms=0))) as client:
        uploads = [('i', Picture.of(image).encoded) for image in images]
        answer = client.post('/predict', files=uploads)
        for found, outputs, image in zip(answer.json()['predictions'], direct, images, strict=True):
            count = int(outputs['num_detections'])
            assert count == len(found['detections'])
            height, width = image.shape[:2]
            boxes = outputs['detection_boxes'][:count] * [height, width, height, width]
            boxes = np.stack(
                [boxes[:, 1], boxes[:, 0], boxes[:, 3] - boxes[:, 1], boxes[:, 2] - boxes[:, 0]], 1
            )
            np.testing.assert_allclose(
                [each['bbox'] for each in found['detections']], boxes, atol=1e-3
            )
        body = {'instances': [images[0].tolist()]}
        (row,) = client.post('/v1/models/model:predict', json=body).json()['predictions']
    assert set(row) == set(direct[0])
    for name, value in direct[0].items():
        np.testing.assert_allclose(row[name], value, atol=1e-4, err_msg=name)


def test_detections_are_sorted_and_limited():
    outputs = {
        'detection_boxes': np.array([[0, 0, 1, 1]] * 4, np.float32),
        'detection_scores': np.array([0.2, 0.9, 0.5, 0.99], np.float32),
        'detection_classes': np.array([1, 2, 3, 4], np.float32),
        'num_detections': np.float32(3),
    }
    found = describe_detections(
        outputs, (10, 20), {2: 'b'}, min_score=0.1, max_detections=2, masks=True
    )
    assert [(each['category_name'], each['bbox']) for each in found] == [
        ('b', [0, 0, 20, 10]),
        ('3', [0, 0, 20, 10]),
    ]


def test_described_keypoints_are_those_of_their_objects():
    outputs = {
        'detection_boxes': np.zeros([3, 4], np.float32),
        'detection_scores': np.array([0.05, 0.9, 0.5], np.float32),
        'detection_classes': np.ones([3], np.float32),
        'detection_keypoints': np.array([[[0, 0]], [[0.5, 0.25]], [[0.1, 0.2]]], np.float32),
        'detection_keypoint_scores': np.array([[0.1], [0.2], [0.3]], np.float32),
        'num_detections': np.float32(3),
    }
    options = {'min_score': 0.1, 'max_detections': None, 'masks': False}
    found = describe_detections(outputs, (10, 20), {}, **options)
    points = [each['keypoints'] for each in found]
    np.testing.assert_allclose(points, [[5, 5, 0.2], [4, 1, 0.3]], rtol=1e-6)
