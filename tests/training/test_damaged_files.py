import json

import pytest
import tensorflow as tf

from object_detection.builders import records_builder
from object_detection.config.errors import ConfigError
from object_detection.data.decoder import ExampleDecoder
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.training import damaged_files
from tests.data import examples


def read_all(pattern):
    for _ in tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(pattern))):
        pass


def test_the_damaged_file_is_named(tmp_path):
    for shard in range(2):
        with tf.io.TFRecordWriter(str(tmp_path / f'train-{shard}')) as writer:
            writer.write(b'record' * 100)
    broken = tmp_path / 'train-1'
    broken.write_bytes(broken.read_bytes()[:-50])
    pattern = str(tmp_path / 'train-*')
    reader = InputReader()
    reader.tf_record_input_reader.input_path.append(pattern)
    with (
        pytest.raises(ConfigError, match=r'^train_input_reader\..*cut-off ones: .*train-1 \('),
        damaged_files.named(reader, 'train_input_reader'),
    ):
        read_all(pattern)


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


@pytest.mark.parametrize(
    ('content', 'match'),
    [(b'', 'cannot be decoded'), (b'text', 'cannot be decoded'), (None, 'is 9 pixels high')],
    ids=['cut off', 'no image', 'another size'],
)
def test_the_damaged_image_is_named(coco_reader, content, match):
    other_size = examples.png(examples.noise(9, 30, seed=0))
    reader = coco_reader(other_size if content is None else content)
    records = records_builder.read(reader, 'r', shuffle=False, num_epochs=1, seed=0)
    decode = ExampleDecoder()
    dataset = records.map(lambda rows, record: decode(record))
    with (
        pytest.raises(ConfigError, match=rf'^r\.coco.*2\.png \(image 12 of .*a\.json\) {match}'),
        damaged_files.named(reader, 'r'),
    ):
        list(dataset)


def test_a_lost_image_is_named(coco_reader, tmp_path):
    reader = coco_reader(b'')
    (tmp_path / '1.png').unlink()
    records = records_builder.read(reader, 'r', shuffle=False, num_epochs=1, seed=0)
    with (
        pytest.raises(ConfigError, match=r'1\.png \(image 11 of .* cannot be read \(No such file'),
        damaged_files.named(reader, 'r'),
    ):
        list(records)


def test_nothing_else_is_touched():
    with pytest.raises(KeyError), damaged_files.named(InputReader(), 'train_input_reader'):
        raise KeyError('other')
