import json
import re

import pytest
import tensorflow as tf

from object_detection.builders.input_readers import corrupt_files, tf_records
from object_detection.builders.input_readers import examples as examples_builder
from object_detection.data.decoder import ExampleDecoder
from object_detection.data.pipeline import bad_records
from object_detection.errors import ConfigError
from object_detection.protos.input_reader_pb2 import InputReader
from tests.data import examples


def read_all(pattern):
    for _ in tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(pattern))):
        pass


def records_reader(pattern):
    reader = InputReader()
    reader.tf_record_input_reader.input_path.append(pattern)
    return reader


@pytest.mark.parametrize(
    ('damage', 'match'),
    [
        (lambda whole: whole[:-50], r'train-1 is cut off: record 2 at byte 1232 has no end'),
        (
            lambda whole: whole[:700] + b'!' + whole[701:],
            r'train-1 is damaged: the content of record 1 \(from byte 628 on\)',
        ),
    ],
    ids=['cut off', 'changed'],
)
def test_the_corrupt_file_is_named_with_the_position(tmp_path, caplog, damage, match):
    for shard in range(2):
        examples.write_records(tmp_path / f'train-{shard}', [b'record' * 100] * 3)
    broken = tmp_path / 'train-1'
    broken.write_bytes(damage(broken.read_bytes()))
    pattern = str(tmp_path / 'train-*')
    with (
        pytest.raises(ConfigError, match=rf'^train_input_reader\..*cut-off ones: .*{match}'),
        corrupt_files.named(records_reader(pattern), 'train_input_reader'),
    ):
        read_all(pattern)
    # Before the search, which takes long.
    assert 'The files are read once more' in caplog.messages[0]


@pytest.mark.parametrize('image', [b'text', examples.png(examples.noise(20, 30))[:-300]])
def test_the_record_that_cannot_be_decoded_is_named(tmp_path, caplog, image):
    good, bad = examples.example(), examples.example(image=image, source_id='img 42')
    examples.write_records(tmp_path / 'train-0', [good])
    path = examples.write_records(tmp_path / 'train-1', [good, good, bad, good])
    pattern = str(tmp_path / 'train-*')
    files = tf.data.Dataset.list_files(pattern, shuffle=False)
    dataset = tf.data.TFRecordDataset(files).map(ExampleDecoder())
    expected = rf'^r\.tf_record.*record 2 of {path} \(source id .img 42.\): [^{{]*$'
    with (
        pytest.raises(ConfigError, match=expected),
        corrupt_files.named(records_reader(pattern), 'r'),
    ):
        list(dataset)
    assert '{{' not in caplog.text


_BMP_OF_16_BITS = examples.png(examples.noise(4, 4), 'BMP').replace(b'\x18\0', b'\x10\0', 1)


@pytest.mark.parametrize(
    ('image', 'what'),
    [
        (examples.png(examples.noise(20, 31)), r'max_image_pixels .*\(600\)'),
        (_BMP_OF_16_BITS, 'Expected a BMP file'),
    ],
    ids=['too large', 'bmp'],
)
def test_the_record_of_an_image_that_is_refused_is_named(tmp_path, image, what):
    records = [examples.example(), examples.example(image=image, source_id='img 42')]
    path = examples.write_records(tmp_path / 'train-0', records)
    reader = records_reader(path)
    reader.max_image_pixels = 600
    dataset = tf.data.TFRecordDataset(path).map(examples_builder.decoder(reader))
    expected = rf'record 1 of {path} \(source id .img 42.\): (.|\n)*{what}'
    with pytest.raises(ConfigError, match=expected), corrupt_files.named(reader, 'r'):
        list(dataset)


@pytest.fixture
def coco_reader(tmp_path):
    """Returns a reader of two images, of which the second is as given."""

    def with_second(content: bytes) -> InputReader:
        whole = examples.png(examples.noise(20, 30, seed=0))
        (tmp_path / '1.png').write_bytes(whole)
        (tmp_path / '2.png').write_bytes(content or whole[:-300])
        images = [
            {'id': 10 + i, 'file_name': f'{i}.png', 'height': 20, 'width': 30} for i in (1, 2)
        ]
        document = {'images': images, 'categories': [{'id': 1, 'name': 'cat'}]}
        (tmp_path / 'a.json').write_text(json.dumps(document))
        reader = InputReader(label_map_path='')
        reader.coco_input_reader.image_dir.append(str(tmp_path))
        reader.coco_input_reader.annotation_file.append(str(tmp_path / 'a.json'))
        return reader

    return with_second


def markers(reader) -> list[str]:
    """Reads all records; returns what stands for those that cannot be read."""
    records = tf_records.read(reader, 'r', shuffle=False, num_epochs=1, seed=0)
    texts = [record['serialized'].numpy() for _, record in records]
    return [text.decode() for text in texts if text.startswith(bad_records.marker('', '')[:-1])]


@pytest.mark.parametrize(
    ('content', 'match'),
    [(b'text', 'cannot be decoded'), (None, 'is 9 pixels high')],
    ids=['no image', 'another size'],
)
def test_the_corrupt_image_is_named(coco_reader, content, match):
    other_size = examples.png(examples.noise(9, 30, seed=0))
    (found,) = markers(coco_reader(other_size if content is None else content))
    assert re.search(rf'2\.png \(image 12 of .*a\.json\) {match}', found)


def test_an_image_with_too_many_pixels_is_named(coco_reader):
    reader = coco_reader(examples.png(examples.noise(20, 30, seed=0)))
    for limit in (600, 0):
        reader.max_image_pixels = limit
        assert not markers(reader)
    reader.max_image_pixels = 599
    expected = r'1\.png \(image 11 of .* 20 pixels high and 30 wide; expected at most 599 pixels'
    first, _ = markers(reader)
    assert re.search(expected, first)


def test_a_lost_image_is_named(coco_reader, tmp_path):
    reader = coco_reader(b'')
    (tmp_path / '1.png').unlink()
    (found,) = markers(reader)
    assert re.search(r'1\.png \(image 11 of .* cannot be read: .*No such file', found)


def test_nothing_else_is_touched():
    with pytest.raises(KeyError), corrupt_files.named(InputReader(), 'train_input_reader'):
        raise KeyError('other')
