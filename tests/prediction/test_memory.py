import datetime
import json
import os

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from object_detection.cli.predict import command
from object_detection.data.tf_record_files import records as tf_records
from object_detection.dataset_tools.context_rcnn import records
from object_detection.errors import UserError
from object_detection.prediction import loading
from object_detection.prediction import memory as memories
from object_detection.prediction.memory import Memory
from tests.data import examples

DEPTH, LENGTH, MOST = 2, 11, 4
BLACK = np.zeros((10, 20, 3), np.uint8)
NOON = datetime.datetime(2026, 3, 4, 12, 30)


class Embedder:
    """Finds two objects, whose features are the mean of the image and twice that."""

    source = 'embedder'

    def __init__(self, weights='weights', **outputs):
        self.calls = 0
        self._weights, self._outputs = weights, outputs

    def fingerprint(self):
        return self._weights

    def __call__(self, image):
        self.calls += 1
        value = float(image.mean())
        features = np.broadcast_to(
            np.array([value, 2 * value])[:, np.newaxis, np.newaxis, np.newaxis], (2, 3, 3, DEPTH)
        )
        found = {
            'detection_features': features,
            'detection_boxes': np.array([[0.2, 0.4, 0.6, 1.0], [0.0, 0.0, 0.0, 0.0]]),
            'detection_scores': np.array([0.9, 0.8]),
            'num_detections': np.float32(2),
        }
        return {k: v for k, v in (found | self._outputs).items() if v is not None}


OPENED: list[Memory] = []


@pytest.fixture(autouse=True)
def closes_what_was_opened():
    yield
    while OPENED:
        OPENED.pop().close()


def make(path, embedder=None, **options):
    options = {'length': LENGTH, 'max_features': MOST} | options
    OPENED.append(Memory(path, embedder or Embedder(), **options))
    return OPENED[-1]


def see(memory, number, minutes=None, name=None):
    time = NOON + datetime.timedelta(minutes=number if minutes is None else minutes)
    return memory.see(BLACK + number, name or f'{number}.jpg', time)


def means(context):
    """The first number of each valid embedding: the mean of its image."""
    size = int(context['valid_context_size'])
    assert not context['context_features'][size:].any()
    return context['context_features'][:size, 0].tolist()


def test_an_embedding_is_features_box_and_time(tmp_path):
    context = see(make(tmp_path / 'm.record'), 7, minutes=0)
    assert context['context_features'].shape == (MOST, LENGTH)
    assert context['context_features'].dtype == np.float32
    assert context['valid_context_size'] == 1
    box = [0.7, 0.4, 0.6, 0.4]
    date = [36 / 40, 2 / 12, 3 / 31, 0.5, 0.5]
    expected = np.array([7, 7, *box, *date], np.float32)
    np.testing.assert_allclose(context['context_features'][0], expected, rtol=1e-6)


def test_the_newest_images_up_to_the_own_one_are_given(tmp_path):
    memory = make(tmp_path / 'm.record')
    assert [means(see(memory, number)) for number in range(6)][-3:] == [
        [0, 1, 2, 3],
        [1, 2, 3, 4],
        [2, 3, 4, 5],
    ]
    # An image that arrives late has its place in time, and later ones are not its past.
    assert means(see(memory, 50, minutes=1)) == [0, 1, 50]
    assert means(see(memory, 6)) == [3, 4, 5, 6]


def test_several_objects_of_an_image(tmp_path):
    memory = make(tmp_path / 'm.record', count=3)
    assert means(see(memory, 3)) == [3, 6]


def test_a_memory_goes_on_from_its_file_and_knows_its_images(tmp_path):
    path = tmp_path / 'm.record'
    memory = make(path)
    expected = [means(see(memory, number)) for number in range(3)]
    memory.close()
    embedder = Embedder()
    again = make(path, embedder)
    assert [means(see(again, number)) for number in range(3)] == expected
    assert embedder.calls == 0
    assert means(see(again, 3)) == [0, 1, 2, 3]
    # The same picture at another time is another image, and so is another one at that time.
    assert means(see(again, 0, minutes=9)) == [1, 2, 3, 0]
    assert means(see(again, 8, minutes=9)) == [2, 3, 0, 8]
    assert embedder.calls == 3


def test_images_without_objects_take_no_place(tmp_path):
    memory = make(tmp_path / 'm.record')
    see(memory, 1)
    memory._embedder = Embedder(num_detections=np.float32(0))
    for number in range(2, 12):
        assert means(see(memory, number)) == [1]
    empty = make(tmp_path / 'n.record', Embedder(num_detections=np.float32(0)))
    assert means(see(empty, 1)) == []


def test_the_best_scores_are_remembered(tmp_path):
    scores = np.array([0.3, 0.8])
    assert means(see(make(tmp_path / 'm.record', Embedder(detection_scores=scores)), 4)) == [8]


def test_a_killed_process_leaves_whole_images(tmp_path):
    path = tmp_path / 'm.record'
    memory = make(path)
    for number in range(3):
        see(memory, number)
    memory.close()
    path.write_bytes(path.read_bytes()[:-7])
    memory = make(path)
    assert means(see(memory, 5)) == [0, 1, 5]
    memory.close()
    assert means(see(make(path), 6)) == [0, 1, 5, 6]


def test_old_images_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(memories, '_MAX_NUMBERS', 2 * LENGTH)
    memory = make(tmp_path / 'm.record')
    for number in range(5):
        assert len(means(see(memory, number))) <= 2
    memory.close()
    assert means(see(make(tmp_path / 'm.record'), 5)) == [4, 5]


def test_embeddings_without_a_time(tmp_path):
    context = see(make(tmp_path / 'm.record', length=LENGTH - 5), 7)
    np.testing.assert_allclose(context['context_features'][0], [7, 7, 0.7, 0.4, 0.6, 0.4], 1e-6)


def test_what_does_not_fit_is_named(tmp_path):
    path = tmp_path / 'm.record'
    with pytest.raises(UserError, match=r'embeddings of 11 numbers .* Expected 12'):
        see(make(tmp_path / 'other', length=12), 1)
    with pytest.raises(UserError, match='output_final_box_features'):
        see(make(tmp_path / 'none', Embedder(detection_features=None)), 1)
    memory = make(path)
    see(memory, 1)
    with pytest.raises(UserError, match=r'm\.record: another process uses this memory'):
        make(path)
    memory.close()
    with pytest.raises(UserError, match=r'm\.record: expected context_feature_length, 12 numbers'):
        make(path, length=12)
    with pytest.raises(UserError, match='another model'):
        make(path, Embedder('other weights'))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20] + b'x' + whole[21:])
    with pytest.raises(UserError, match=r'is damaged.* Expected a memory'):
        make(path)
    path.write_bytes(b'no record at all')
    with pytest.raises(UserError, match='is no TFRecord file'):
        make(path)
    examples.write_records(path, [examples.example([[0, 0, 1, 1]], [1])])
    with pytest.raises(UserError, match='Received: records of something else'):
        make(path)


def test_times_of_photos(tmp_path):
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = '2026:03:04 12:30:00'
    Image.fromarray(BLACK).save(tmp_path / 'b.jpg', exif=exif)
    for name, day in (('c.jpg', 5), ('a.jpg', 3)):
        Image.fromarray(BLACK).save(tmp_path / name)
        seconds = datetime.datetime(2026, 3, day, tzinfo=datetime.UTC).timestamp()
        os.utime(tmp_path / name, (seconds, seconds))
    found = memories.in_order_of_time(
        [str(tmp_path / name) for name in ('c.jpg', 'b.jpg', 'a.jpg')]
    )
    assert [(os.path.basename(path), time) for path, time in found.items()] == [
        ('a.jpg', datetime.datetime(2026, 3, 3)),
        ('b.jpg', NOON),
        ('c.jpg', datetime.datetime(2026, 3, 5)),
    ]


def test_the_time_of_a_photo_with_damaged_exif_data_is_that_of_its_file(tmp_path):
    path = tmp_path / 'a.webp'
    Image.fromarray(BLACK).save(path, exif=b'Exif\0\0no TIFF header')
    os.utime(path, (0, 0))
    assert memories.time_taken(path) == datetime.datetime(1970, 1, 1)


def test_file_names_that_are_no_utf_8_are_remembered(tmp_path):
    path = tmp_path / 'm.record'
    with make(path) as memory:
        see(memory, 1, name=os.fsdecode(b'a\xff.jpg'))
    (record,) = tf_records(str(path))
    assert b'a\\udcff.jpg' in record


@pytest.fixture(scope='module')
def remembering(tmp_path_factory):
    """A SavedModel whose score is the mean of the means of the images in its context, over 255."""
    import tensorflow as tf

    class Model(tf.Module):
        @tf.function(
            input_signature=[
                tf.TensorSpec([1, None, None, 3], tf.uint8, 'input_tensor'),
                tf.TensorSpec([1, MOST, LENGTH], tf.float32, 'context_features'),
                tf.TensorSpec([1], tf.int32, 'valid_context_size'),
            ]
        )
        def serve(self, input_tensor, context_features, valid_context_size):
            size = tf.cast(tf.maximum(valid_context_size, 1), tf.float32)
            mean = tf.reduce_mean(tf.cast(input_tensor, tf.float32))
            return {
                'detection_boxes': tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
                'detection_scores': tf.reduce_sum(context_features[:, :, 0], 1)[:, None]
                / size
                / 255,
                'detection_classes': tf.ones([1, 1]),
                'num_detections': tf.ones([1]),
                'detection_features': tf.fill([1, 1, 2, 2, DEPTH], mean),
            }

    model, folder = Model(), tmp_path_factory.mktemp('remembering')
    tf.saved_model.save(model, str(folder), signatures={'serving_default': model.serve})
    return str(folder)


def test_the_command_looks_at_photos_in_order_of_time(remembering, tmp_path):
    # By name the order is another one.
    for name, value, hour in (('b', 100, 1), ('a', 200, 2), ('c', 60, 3)):
        Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(tmp_path / f'{name}.png')
        seconds = (NOON + datetime.timedelta(hours=hour)).replace(tzinfo=datetime.UTC).timestamp()
        os.utime(tmp_path / f'{name}.png', (seconds, seconds))
    output, bank = tmp_path / 'out', tmp_path / 'm.record'
    arguments = ['--model', remembering, '--input', f'{tmp_path}/*.png', '--output', str(output)]
    arguments += ['--output_format', 'coco', '--batch_size', '4']
    memory = ['--memory', str(bank), '--embedding_model', remembering]

    def scores(*more):
        result = CliRunner().invoke(command, [*arguments, *more])
        assert result.exit_code == 0, result.output
        files = {e['id']: e['file_name'] for e in json.loads((output / 'images.json').read_text())}
        found = json.loads((output / 'detections.json').read_text())
        return {os.path.basename(files[e['image_id']])[0]: e['score'] * 255 for e in found}

    expected = pytest.approx({'b': 100, 'a': 150, 'c': 120}, abs=0.01)
    assert scores(*memory) == expected
    # Known photos are not remembered again, and the past of a photo is the same.
    assert scores(*memory) == expected
    names = [records.parse(each).text('image/source_id') for each in tf_records(str(bank))]
    assert names == ['b.png', 'a.png', 'c.png']
    assert set(scores().values()) == {0.0}


def test_mistakes_in_the_command_are_named(remembering, tmp_path):
    image, bank = tmp_path / 'a.png', ['--memory', str(tmp_path / 'm.record')]
    Image.fromarray(BLACK).save(image)
    arguments = ['--model', remembering, '--input', str(image), '--output', str(tmp_path / 'out')]
    for more, message in (
        (bank, 'expected --embedding_model with it'),
        (['--embedding_model', remembering], '--embedding_model is for --memory'),
        ([*bank, '--embedding_model', remembering, '--tta', 'flip'], 'Received: --tta'),
    ):
        result = CliRunner().invoke(command, [*arguments, *more])
        assert result.exit_code == 2
        assert message in ' '.join(result.output.split())


def test_a_model_without_a_context_is_refused(colour_finder):
    with pytest.raises(UserError, match='takes images alone'):
        memories.limits(loading.load(colour_finder))
