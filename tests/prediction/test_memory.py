import datetime
import json
import os

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from object_detection.cli.predict import command
from object_detection.errors import UserError
from object_detection.export import loading
from object_detection.prediction import memory as memories
from object_detection.prediction.memory import Memory

DEPTH, LENGTH, MOST = 2, 11, 4
BLACK = np.zeros((10, 20, 3), np.uint8)
NOON = datetime.datetime(2026, 3, 4, 12, 30)


class Embedder:
    """Finds two objects, whose features are the mean of the image and twice that."""

    source = 'embedder'

    def __init__(self, **outputs):
        self.calls = 0
        self._outputs = outputs

    def __call__(self, image):
        self.calls += 1
        value = float(image.mean())
        features = np.broadcast_to(
            np.array([value, 2 * value])[:, np.newaxis, np.newaxis, np.newaxis], (2, 3, 3, DEPTH)
        )
        found = {
            'detection_features': features,
            'detection_boxes': np.array([[0.2, 0.4, 0.6, 1.0], [0.0, 0.0, 0.0, 0.0]]),
            'num_detections': np.float32(2),
        }
        return {k: v for k, v in (found | self._outputs).items() if v is not None}


def make(path, embedder=None, **options):
    return Memory(path, embedder or Embedder(), **{'length': LENGTH, 'most': MOST} | options)


def see(memory, number, minutes=None, name=None):
    time = NOON + datetime.timedelta(minutes=number if minutes is None else minutes)
    return memory.see(BLACK + number, name or f'{number}.jpg', time)


def means(context):
    """The first number of each valid embedding: the mean of its image."""
    size = int(context['valid_context_size'])
    assert not context['context_features'][size:].any()
    return context['context_features'][:size, 0].tolist()


def test_an_embedding_is_features_box_and_time(tmp_path):
    context = see(make(tmp_path / 'm.npz'), 7, minutes=0)
    assert context['context_features'].shape == (MOST, LENGTH)
    assert context['context_features'].dtype == np.float32
    assert context['valid_context_size'] == 1
    box = [0.7, 0.4, 0.6, 0.4]
    date = [36 / 40, 2 / 12, 3 / 31, 0.5, 0.5]
    expected = np.array([7, 7, *box, *date], np.float32)
    np.testing.assert_allclose(context['context_features'][0], expected, rtol=1e-6)


def test_the_newest_images_up_to_the_own_one_are_given(tmp_path):
    memory = make(tmp_path / 'm.npz')
    assert [means(see(memory, number)) for number in range(6)][-3:] == [
        [0, 1, 2, 3],
        [1, 2, 3, 4],
        [2, 3, 4, 5],
    ]
    # An image that arrives late has its place in time, and later ones are not its past.
    assert means(see(memory, 50, minutes=1)) == [0, 1, 50]
    assert memory.bank.rows[:, 0].tolist() == [0, 1, 50, 2, 3, 4, 5]


def test_several_objects_of_an_image(tmp_path):
    memory = make(tmp_path / 'm.npz', count=3)
    assert means(see(memory, 3)) == [3, 6]


def test_a_memory_goes_on_from_its_file_and_knows_its_images(tmp_path):
    path = tmp_path / 'm.npz'
    memory = make(path)
    expected = [means(see(memory, number)) for number in range(3)]
    memory.save()
    embedder = Embedder()
    again = make(path, embedder)
    assert [means(see(again, number)) for number in range(3)] == expected
    assert embedder.calls == 0
    assert means(see(again, 3)) == [0, 1, 2, 3]
    # The same name at another time is another image.
    assert means(see(again, 9, name='0.jpg')) == [1, 2, 3, 9]
    assert embedder.calls == 2


def test_the_file_has_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(memories, '_MOST_NUMBERS', 2 * LENGTH)
    memory = make(tmp_path / 'm.npz')
    for number in range(5):
        see(memory, number)
    memory.save()
    assert make(tmp_path / 'm.npz').bank.names == ['3.jpg', '4.jpg']


def test_what_does_not_fit_is_named(tmp_path, monkeypatch):
    path = tmp_path / 'm.npz'
    with pytest.raises(UserError, match=r'embeddings of 11 numbers .* Expected 12'):
        see(make(path, length=12), 1)
    with pytest.raises(UserError, match='output_final_box_features'):
        see(make(path, Embedder(detection_features=None)), 1)
    memory = make(path)
    see(memory, 1)
    memory.save()
    with pytest.raises(UserError, match=r'm\.npz: expected a memory of embeddings of 12 numbers'):
        make(path, length=12)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match='expected a memory that `tfod predict --memory` wrote'):
        make(path)
    np.savez(path, format=1, rows=np.zeros((2, LENGTH)), times=[2, 1], names=['a', 'b'])
    with pytest.raises(UserError, match='is damaged'):
        make(path)
    monkeypatch.setattr(memories, '_MOST_BYTES', 100)
    with pytest.raises(UserError, match='too large'):
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
    assert [(os.path.basename(path), time) for path, time in found] == [
        ('a.jpg', datetime.datetime(2026, 3, 3)),
        ('b.jpg', NOON),
        ('c.jpg', datetime.datetime(2026, 3, 5)),
    ]


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
    output, bank = tmp_path / 'out', tmp_path / 'm.npz'
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
    with np.load(bank) as archive:
        assert archive['names'].tolist() == ['b.png', 'a.png', 'c.png']
    assert set(scores().values()) == {0.0}


def test_mistakes_in_the_command_are_named(remembering, tmp_path):
    image, bank = tmp_path / 'a.png', ['--memory', str(tmp_path / 'm.npz')]
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
