import asyncio
import base64
import functools
import gc
import io
import json
import math
import struct
import threading
import time
import tracemalloc
import warnings
import zlib

import numpy as np
import pytest
from faster_coco_eval.core.mask import decode

pytest.importorskip('fastapi', reason="needs the extra 'serve'")
pytest.importorskip('httpx', reason="the test client needs httpx, of the extra 'dev'")

from PIL import Image

from object_detection.errors import UserError
from object_detection.serving import app as app_module
from object_detection.serving import gate, tf_serving
from object_detection.serving.app import create_app
from object_detection.serving.limits import Memory, RequestError, ServeOptions
from tests import rows
from tests.serving.fakes import BrightnessModel, image_file

with warnings.catch_warnings():
    # It prefers another client to httpx, and works with both.
    warnings.simplefilter('ignore')
    from fastapi.testclient import TestClient

LIMITS = {'max_body_mb': 0.1, 'max_megapixels': 0.01, 'max_images': 3, 'max_wait_ms': 0}


def bomb() -> bytes:
    """A PNG file of 100 bytes that says it has 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack('>I', zlib.crc32(kind + data))
        return struct.pack('>I', len(data)) + kind + data + checksum

    header = struct.pack('>IIBBBBB', 60_000, 60_000, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(1000))
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', pixels)


def noise_file() -> bytes:
    """A JPEG file whose pixels take most of its bytes."""
    pixels = np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, 'JPEG')
    return file.getvalue()


@pytest.fixture(scope='module')
def model():
    return BrightnessModel()


@pytest.fixture(scope='module')
def client(model):
    with TestClient(create_app(model, ServeOptions(**LIMITS))) as made:
        yield made


def error(answer) -> str:
    (key,) = answer.json()
    assert key == 'error'
    return answer.json()['error']


def test_an_image_gives_coco_results(client):
    answer = client.post('/predict', files={'image': ('a.png', image_file(51), 'image/png')})
    assert answer.status_code == 200
    (prediction,) = answer.json()['predictions']
    assert (prediction['file'], prediction['height'], prediction['width']) == ('a.png', 8, 12)
    (found,) = prediction['detections']
    assert found['bbox'] == [0, 0, 6, 8]
    assert (found['category_id'], found['category_name']) == (2, 'cat')
    assert found['score'] == pytest.approx(0.2)
    mask = decode(found['segmentation'])
    # The last set row of the mask lies at 1/3 of the box, the first that is not at 2/3.
    np.testing.assert_array_equal(mask[:, 0], [1, 1, 1, 1, 0, 0, 0, 0])
    assert not mask[:, 6:].any()


def test_multipart_json_and_raw_bodies_give_the_same(client):
    files = [image_file(value) for value in (10, 20, 30)]
    form = client.post('/predict', files=[('images', (f'{i}', f)) for i, f in enumerate(files)])
    texts = [base64.b64encode(file).decode() for file in files]
    encoded = client.post('/predict', json={'images': texts})
    raw = [client.post('/predict', content=f, headers={'content-type': 'image/png'}) for f in files]
    scores = [
        [each['detections'][0]['score'] for each in answer.json()['predictions']]
        for answer in (form, encoded)
    ]
    scores.append([answer.json()['predictions'][0]['detections'][0]['score'] for answer in raw])
    for found in scores:
        assert found == pytest.approx([10 / 255, 20 / 255, 30 / 255])


def test_parameters_of_the_query_choose_detections(client):
    def detections(query: str) -> list:
        answer = client.post(f'/predict?{query}', files={'image': image_file(51)})
        return answer.json()['predictions'][0]['detections']

    assert len(detections('score_threshold=0.19')) == 1
    assert detections('score_threshold=0.21') == []
    assert 'segmentation' not in detections('masks=false')[0]


def test_the_threshold_of_the_evaluation_is_offered(client, model, monkeypatch):
    assert client.get('/model').json()['advised_threshold'] is None
    monkeypatch.setattr(model, 'advised_threshold', 0.25)
    assert client.get('/model').json()['advised_threshold'] == 0.25
    for value, count in ((51, 0), (102, 1)):
        files = {'image': image_file(value)}
        answer = client.post('/predict?score_threshold=best', files=files).json()
        assert len(answer['predictions'][0]['detections']) == count


@rows.parametrize(
    ('query', 'message'),
    [
        ('score_threshold=2', 'less than or equal to 1'),
        ('score_threshold=nan', 'score_threshold'),
        ('score_threshold=best', 'score_threshold: the model has no best one'),
        ('max_detections=0', 'greater than or equal to 1'),
        ('threshold=0.5', "'threshold'"),
    ],
)
def test_parameters_that_are_wrong_or_unknown_are_refused(client, query, message):
    answer = client.post(f'/predict?{query}', files={'image': image_file()})
    assert answer.status_code == 422
    assert message in error(answer)


@rows.parametrize(
    ('content', 'status', 'message'),
    [
        (b'no image', 422, 'no image file of the formats'),
        (b'', 422, 'a.png: '),
        (image_file()[:50], 422, 'cannot be decoded'),
        (noise_file()[:-900], 422, 'damaged or cut off'),
        (bomb(), 413, 'is 60000 pixels high and 60000 wide; expected at most 10000'),
        (image_file(size=(101, 100)), 413, 'expected at most 10000 pixels'),
        (bytes(100_001), 413, 'expected a body of at most 100000 bytes'),
        (b'\xff\xd8' + image_file(kind='JPEG')[2:] + b'\xff\xda' * 101, 422, 'than 100 scans'),
    ],
)
def test_bad_images_are_refused_and_good_ones_are_answered_after_them(
    client, content, status, message
):
    answer = client.post('/predict', files={'image': ('a.png', content)})
    assert (answer.status_code, message in error(answer)) == (status, True), answer.json()
    assert client.post('/predict', files={'image': image_file()}).status_code == 200
    assert client.app.state.service.memory.held == 0


FORM = {'content-type': 'multipart/form-data; boundary=B'}
# One file is whole, the next one has no end.
CUT_OFF = b'\r\n'.join(
    b'--B\r\nContent-Disposition: form-data; name="i"; filename="i"\r\n\r\n' + image_file()
    for _ in range(2)
)


@rows.parametrize(
    ('request_', 'status', 'message'),
    [
        ({'json': {'images': []}}, 422, 'expected a list'),
        ({'json': {'images': ['?']}}, 422, 'images[0]: expected base64'),
        ({'json': {'image': 'a'}}, 422, 'expected {"images"'),
        ({'content': b'{', 'headers': {'content-type': 'application/json'}}, 422, 'JSON Parse'),
        ({'content': b'[' * 100, 'headers': {'content-type': 'application/json'}}, 422, 'JSON'),
        ({'content': b'[' * 90_000, 'headers': {'content-type': 'application/json'}}, 413, '3 im'),
        ({'content': b'a', 'headers': {'content-type': 'text/plain'}}, 415, "'text/plain'"),
        ({'data': {'a': 'b'}, 'files': {'i': b'a'}}, 422, "'a': expected image files alone"),
        ({'files': [('i', image_file())] * 4}, 400, 'Too many files'),
        ({'json': {'images': [''] * 4}}, 413, 'at most 3 images'),
        ({'content': b'', 'headers': {'content-type': 'multipart/form-data'}}, 400, 'boundary'),
        ({'content': CUT_OFF, 'headers': FORM}, 400, 'the form ends within a file'),
        ({'content': b'', 'headers': {'content-encoding': 'gzip'}}, 415, 'Content-Encoding'),
    ],
)
def test_bodies_of_other_forms_are_refused(client, request_, status, message):
    answer = client.post('/predict', **request_)
    assert (answer.status_code, message in error(answer)) == (status, True), answer.json()


def test_a_gif_is_its_first_frame_and_a_photo_is_turned_by_its_exif_data(client):
    frames = [Image.new('P', (8, 6), value) for value in (0, 1)]
    frames[0].putpalette([100, 100, 100, 7, 7, 7])
    frames[1].putpalette([100, 100, 100, 7, 7, 7])
    gif, photo = io.BytesIO(), io.BytesIO()
    frames[0].save(gif, 'GIF', save_all=True, append_images=frames[1:])
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new('RGB', (40, 20)).save(photo, 'JPEG', exif=exif)
    answer = client.post('/predict', files=[('i', gif.getvalue()), ('i', photo.getvalue())])
    still, turned = answer.json()['predictions']
    assert still['detections'][0]['score'] == pytest.approx(100 / 255)
    assert (turned['height'], turned['width']) == (40, 20)


def test_a_model_that_fails_is_an_error_of_one_request(client, caplog):
    answer = client.post('/predict', files={'image': image_file(13)})
    assert answer.status_code == 500
    assert 'its log says more' in error(answer)
    assert '13 brings bad luck' in caplog.text
    assert client.post('/predict', files={'image': image_file(12)}).status_code == 200


def test_requests_are_batched_in_one_thread():
    model = BrightnessModel()
    model.gate.clear()
    options = ServeOptions(max_batch_size=4, max_wait_ms=200)
    with TestClient(create_app(model, options)) as client:
        statuses = post_together(client, range(20, 28))
        wait_for(lambda: client.app.state.service._batcher.count == 8)
        model.gate.set()
        assert statuses() == [200] * 8
    assert (model.batches, model.threads) == ([4, 4], {'model'})


def test_a_full_queue_gives_503_with_retry_after_and_loses_no_other():
    model = BrightnessModel()
    model.gate.clear()
    with TestClient(create_app(model, ServeOptions(max_queue=2, max_wait_ms=0))) as client:
        statuses = post_together(client, range(2))
        wait_for(lambda: client.app.state.service._batcher.count == 2)
        refused = client.post('/predict', files={'image': image_file()})
        assert refused.status_code == 503
        assert refused.headers['retry-after'] == '1'
        assert 'try again later' in error(refused)
        model.gate.set()
        assert statuses() == [200, 200]


def test_requests_may_hold_all_of_the_memory():
    memory = Memory(10)
    with memory.hold(10):
        with pytest.raises(RequestError, match='too many large requests'):
            memory.take(1)
        assert memory.held == 10
    with pytest.raises(RequestError, match='needs 11 bytes'):
        memory.take(11)
    assert memory.held == 0


@rows.parametrize(
    'encoded',
    # 6 bytes a pixel, and 18 for values of 16 bits: 1.5 and 1.125 million.
    [image_file(size=(500, 500)), image_file(size=(250, 250), dtype=np.uint16)],
)
def test_memory_that_requests_would_hold_is_limited(encoded):
    options = ServeOptions(max_memory_mb=1, max_body_mb=0.5)
    with TestClient(create_app(BrightnessModel(), options)) as client:
        answer = client.post('/predict', files={'image': encoded})
        assert answer.status_code == 413
        assert '--max_memory_mb allows 1000000' in error(answer)
        assert client.app.state.service.memory.held == 0


def test_a_request_that_takes_too_long_gets_504_and_is_not_computed_later():
    model = BrightnessModel()
    model.gate.clear()
    options = ServeOptions(timeout_s=0.3, max_wait_ms=0, max_batch_size=1)
    with TestClient(create_app(model, options)) as client:
        answers = [client.post('/predict', files={'image': image_file()}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [504, 504]
        assert error(answers[0]) == 'took more than 0.3 seconds.'
        model.gate.set()
    assert model.batches == [1]  # the second one was still waiting


def test_a_stop_answers_what_was_accepted():
    model = BrightnessModel()
    app = create_app(model, ServeOptions(max_wait_ms=10_000))
    with TestClient(app) as client:
        statuses = post_together(client, [1, 2])
        wait_for(lambda: app.state.service._batcher.count == 2)
        threading.Thread(target=app.state.service.close, daemon=True).start()
        assert statuses() == [200, 200]
        assert client.get('/healthz').status_code == 503
        assert client.post('/predict', files={'image': image_file()}).status_code == 503


def post_together(client, values):
    """Posts an image for each value at a time; returns a function that waits for statuses."""
    values, found = list(values), {}

    def post(value: int) -> None:
        answer = client.post('/predict', files={'image': image_file(value)})
        found[value] = answer.status_code

    threads = [threading.Thread(target=post, args=[value], daemon=True) for value in values]
    for thread in threads:
        thread.start()

    def statuses() -> list[int]:
        for thread in threads:
            thread.join(20)
        return [found.get(value) for value in values]

    return statuses


def wait_for(condition) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def send(app, messages, headers=(), method='POST'):
    """Calls an app with the messages of a client; after them the client waits."""
    sent, messages = [], iter(messages)

    async def receive():
        for message in messages:
            return message
        await asyncio.Event().wait()

    async def answer(message):
        sent.append(message)

    scope = {
        'type': 'http',
        'method': method,
        'path': '/predict',
        'raw_path': b'/predict',
        'query_string': b'',
        'headers': list(headers),
        'asgi': {'version': '3.0'},
        'http_version': '1.1',
        'scheme': 'http',
        'server': ('a', 1),
        'client': ('b', 2),
    }
    asyncio.run(asyncio.wait_for(app(scope, receive, answer), 20))
    return sent


def part(size: int, more: bool = True):
    return {'type': 'http.request', 'body': bytes(size), 'more_body': more}


def status_of(sent) -> int:
    return sent[0]['status']


@pytest.mark.parametrize('length', [b'10', b'', b'99999999', b'nonsense'])
def test_a_body_that_is_larger_than_its_header_says_is_refused(length, make_app):
    app = make_app(BrightnessModel(), ServeOptions(max_body_mb=0.001))
    sent = send(app, [part(600), part(600), part(600, False)], [(b'content-length', length)])
    assert status_of(sent) == 413
    assert (b'connection', b'close') in sent[0]['headers']


def test_a_body_that_does_not_arrive_gets_408(make_app):
    app = make_app(BrightnessModel(), ServeOptions(timeout_s=0.1))
    sent = send(app, [part(600)], [(b'content-length', b'9000')])
    assert status_of(sent) == 408
    assert app.state.service.memory.held == 0


def test_nothing_is_computed_for_a_client_that_has_left(make_app):
    model = BrightnessModel()
    options = ServeOptions(max_wait_ms=300)
    app = make_app(model, options)
    headers = [(b'content-type', b'image/png')]
    body = {'type': 'http.request', 'body': image_file(), 'more_body': False}
    assert send(app, [body, {'type': 'http.disconnect'}], headers) == []
    assert send(app, [part(10), {'type': 'http.disconnect'}], headers) == []
    app.state.service.close()
    assert model.batches == []
    text = app.state.service.measurements.text().decode()
    assert 'tfod_requests_total{path="/predict",status="499"} 1.0' in text


def test_a_client_that_asks_before_sending_is_answered_at_once(make_app):
    app = make_app(BrightnessModel(), ServeOptions(max_body_mb=0.001))
    headers = [(b'content-length', b'5000'), (b'expect', b'100-continue')]
    assert status_of(send(app, [], headers)) == 413


def test_bodies_of_json_are_read_in_a_thread(client, monkeypatch):
    names = []

    def decode(text, where, *, status):
        names.append(threading.current_thread().name)
        return base64.b64decode(text)

    monkeypatch.setattr(app_module.tf_serving, 'decode_base64', decode)
    texts = [base64.b64encode(image_file()).decode()] * 2
    for pad in ('', ' ' * 50_000):  # The second one is large.
        monkeypatch.setattr(app_module, '_LARGE', 40_000)
        body = json.dumps({'images': texts}) + pad
        headers = {'content-type': 'application/json'}
        assert client.post('/predict', content=body, headers=headers).status_code == 200
    assert all(name.startswith('request_') for name in names)
    assert [name.startswith('request_body') for name in names] == [False, False, True, True]


def test_the_memory_of_large_requests_returns_to_the_system(client, monkeypatch):
    trimmed = threading.Event()
    monkeypatch.setattr(gate, '_TRIM_SECONDS', 0)
    monkeypatch.setattr(gate, 'release_freed_memory', trimmed.set)
    memory = client.app.state.service.memory
    memory.peak = gate._LARGE
    client.post('/predict', content=b'a')
    assert not trimmed.is_set()
    memory.peak += 1
    client.post('/predict', content=b'a')
    assert trimmed.wait(20)
    assert memory.peak == 0


def test_bodies_that_are_refused_are_released_at_once(make_app):
    app = make_app(BrightnessModel(), ServeOptions())
    headers = [(b'content-type', b'application/json')]
    text = b'{"images": [' + b'{},' * 300_000 + b'{}]}'
    body = {'type': 'http.request', 'body': text, 'more_body': False}
    assert status_of(send(app, [body], headers)) == 413
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(4):
            send(app, [body], headers)
        # The thread that has read the last one may still be about to forget it.
        wait_for(lambda: tracemalloc.get_traced_memory()[0] < len(text))
    finally:
        tracemalloc.stop()
        gc.enable()


def test_base64_may_have_line_ends_the_alphabet_of_urls_and_no_padding():
    decode = functools.partial(tf_serving.decode_base64, where='a', status=400)
    assert decode('-_8\r\n A') == b'\xfb\xff\x00' == decode('+/8A')
    assert decode('AAA') == b'\0\0' == decode('AAA=')
    for text in ('?', 'A', 'é', 3):
        with pytest.raises(RequestError, match='expected base64'):
            decode(text)


def test_heads_of_pages_have_no_body(client):
    for path in ('/', '/healthz', '/readyz', '/metrics', '/v1/models/model'):
        assert client.head(path).status_code == 200, path
    assert client.head('/predict').status_code == 405
    assert client.get('/openapi.json').status_code == 404


def test_metrics_count_requests_by_pattern_and_batches(client):
    client.get('/v1/models/model')
    client.get('/nowhere/at/all')
    text = client.get('/metrics').text
    assert 'tfod_requests_total{path="/v1/models/{name}",status="200"}' in text
    assert 'tfod_requests_total{path="other",status="404"}' in text
    assert 'tfod_batch_images_count' in text
    assert 'tfod_queue_images 0.0' in text
    assert 'nowhere' not in text


def test_the_page_loads_nothing_from_elsewhere(client):
    answer = client.get('/')
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers['content-security-policy']
    assert '://' not in answer.text
    assert client.get('/model').json()['class_names'] == {'2': 'cat'}


def test_paths_and_methods_that_do_not_exist_have_errors_of_the_same_form(client):
    assert error(client.get('/nowhere')) == 'Not Found'
    assert error(client.get('/predict')) == 'Method Not Allowed'
    assert client.get('/healthz').json() == {'status': 'ok'}
    assert client.get('/readyz').status_code == 200


# The REST API of TensorFlow Serving.
PIXELS = np.full((2, 8, 12, 3), 51, np.uint8)
PIXELS[1] = 102


def test_rows_give_predictions_and_columns_give_outputs(client):
    instances = [{'input_tensor': PIXELS[0].tolist()}, PIXELS[1].tolist()]
    rows = client.post('/v1/models/model:predict', json={'instances': instances})
    assert rows.status_code == 200
    first, second = rows.json()['predictions']
    assert first['detection_boxes'] == [[0, 0, 1, 0.5]]
    assert first['num_detections'] == 1
    assert second['detection_scores'] == pytest.approx([0.4])
    for inputs in (PIXELS.tolist(), {'input_tensor': PIXELS.tolist()}):
        body = {'signature_name': 'serving_default', 'inputs': inputs}
        columns = client.post('/v1/models/model/versions/1:predict', json=body)
        outputs = columns.json()['outputs']
        assert np.shape(outputs['detection_boxes']) == (2, 1, 4)
        assert outputs['detection_scores'] == [
            first['detection_scores'],
            second['detection_scores'],
        ]


ONE = PIXELS[:1].tolist()


@rows.parametrize(
    ('body', 'message'),
    [
        ({}, 'expected one of `instances`'),
        ({'instances': ONE, 'inputs': ONE}, 'expected one of `instances`'),
        ([], 'expected a JSON object'),
        ({'instances': ONE, 'signature': 'a'}, "'signature'"),
        ({'instances': ONE, 'signature_name': 'a'}, 'Serving signature name: "a" not found'),
        ({'instances': {}}, 'expected a list'),
        ({'instances': []}, 'at least one image'),
        ({'instances': [{'image': 1}]}, "expected the input 'input_tensor' alone"),
        ({'instances': [[[1, 2, 3], [1, 2]]]}, 'lists of several lengths'),
        ({'instances': ['a']}, 'of type uint8'),
        ({'instances': [{'b64': 'aaaa'}]}, 'of type uint8'),
        ({'inputs': {'b64': 'aaaa'}}, 'expected a list'),
        ({'instances': [[[[0.5, 1, 2]]]]}, 'Received: float64'),
        ({'instances': [[[[True, True, True]]]]}, 'Received: bool'),
        ({'instances': [[[[1, 2, 256]]]]}, '1 to 256'),
        ({'instances': ['a' * 1000, 'b']}, 'Received: text'),
        ({'instances': [[[[1, 2, 10**30]]]]}, 'of type uint8'),
        ({'instances': [[[1, 2, 3]]]}, 'the shape [1, 1, 3]'),
        ({'instances': [[[[1, 2]]]]}, 'the shape [1, 1, 1, 2]'),
    ],
)
def test_bodies_that_do_not_fit_the_signature_are_errors_400(client, body, message):
    answer = client.post('/v1/models/model:predict', json=body)
    assert (answer.status_code, message in error(answer)) == (400, True), answer.json()


@rows.parametrize('shape', [(), (0,), (3,), (2, 0), (7, 2), (2, 7, 3)])
@rows.parametrize('names', [['a'], ['a', 'b"']])
def test_answers_are_json_of_all_numbers(shape, names, monkeypatch):
    monkeypatch.setattr(tf_serving, '_NUMBERS_AT_ONCE', 6)
    arrays = [np.arange(i, i + math.prod(shape)).reshape(shape) / 4 for i in (0, 1)]
    rows = [dict.fromkeys(names, array) for array in arrays]
    lists = [array.tolist() for array in arrays]
    by_row = [each if len(names) == 1 else dict.fromkeys(names, each) for each in lists]
    by_column = lists if len(names) == 1 else dict.fromkeys(names, lists)
    assert json.loads(tf_serving.answer(rows, False)) == {'predictions': by_row}
    assert json.loads(tf_serving.answer(rows, True)) == {'outputs': by_column}


def test_limits_hold_for_tensors(client):
    many = client.post('/v1/models/model:predict', json={'instances': [[[[0] * 3]]] * 4})
    large = client.post('/v1/models/model:predict', json={'instances': [[[[0] * 3] * 10_001]]})
    assert (many.status_code, large.status_code) == (413, 413)
    assert client.app.state.service.memory.held == 0


def test_reading_tensors_ends_with_the_time_for_their_answer():
    info, options = BrightnessModel().input, ServeOptions(timeout_s=0.01)
    body = json.dumps({'inputs': np.zeros((1, 90_000, 1, 3), int).tolist()}).encode()
    with pytest.raises(RequestError, match='reading took more than') as caught:
        tf_serving.parse(body, info, options)
    assert caught.value.status == 504


def test_other_models_and_versions_are_not_found(client):
    versions = ('2', 'a', '1' * 5000)
    for path in ('other:predict', *(f'model/versions/{each}:predict' for each in versions)):
        answer = client.post(f'/v1/models/{path}', json={'instances': ONE})
        assert answer.status_code == 404
        assert error(answer).startswith('Servable not found for request: ')
    for path in ('other', 'model/versions/2', 'other/metadata'):
        assert client.get(f'/v1/models/{path}').status_code == 404


def test_status_and_metadata_are_those_of_tensorflow_serving(client):
    # The form is that of https://www.tensorflow.org/tfx/serving/api_rest.
    state = {'version': '1', 'state': 'AVAILABLE'}
    state['status'] = {'error_code': 'OK', 'error_message': ''}
    assert client.get('/v1/models/model').json() == {'model_version_status': [state]}
    metadata = client.get('/v1/models/model/versions/1/metadata').json()
    spec = {'name': 'model', 'signature_name': '', 'version': '1'}
    assert metadata['model_spec'] == spec
    (signature,) = metadata['metadata']['signature_def']['signature_def'].values()
    assert signature['method_name'] == 'tensorflow/serving/predict'
    tensor = signature['inputs']['input_tensor']
    sizes = [dim['size'] for dim in tensor['tensor_shape']['dim']]
    assert (tensor['dtype'], sizes) == ('DT_UINT8', ['-1', '-1', '-1', '3'])
    assert set(signature['outputs']) == {'detection_boxes', 'num_detections'}
    assert json.dumps(metadata).count('DT_FLOAT') == 2


@rows.parametrize(
    ('name', 'value'),
    [
        ('max_batch_size', 0),
        ('timeout_s', float('nan')),
        ('max_megapixels', 1000),
        ('model_name', 'a/b'),
    ],
)
def test_options_outside_their_range_are_named(name, value):
    with pytest.raises(UserError, match=f'--{name}: expected'):
        ServeOptions(**{name: value})
