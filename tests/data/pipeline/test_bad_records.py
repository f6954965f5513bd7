"""Records that cannot be used are skipped, counted and listed, and a run resumes exactly."""

import io
import json
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from object_detection.builders import dataset_builder
from object_detection.builders.input_readers import batches, corrupt_files, tf_records
from object_detection.builders.input_readers import examples as examples_builder
from object_detection.core.fields import InputFields as F
from object_detection.data import tf_record_files
from object_detection.data.pipeline import bad_records, record_files, record_order
from object_detection.data.pipeline.bad_records import BadRecords, Place, TooManyBadRecordsError
from object_detection.errors import ConfigError
from tests.builders.test_dataset_builder import config
from tests.data import examples

# Begins what stands for a record that cannot be read.
_MARKER = bad_records.marker('', '')[:-1]
BOX = [0.1, 0.1, 0.5, 0.5]


def _animation() -> bytes:
    file, frame = io.BytesIO(), Image.new('RGB', (30, 20), 'red')
    frame.save(file, 'WEBP', save_all=True, append_images=[Image.new('RGB', (30, 20), 'lime')])
    return file.getvalue()


# Number of a record in its file -> what is wrong with it.
BAD = {
    3: b'no example',
    5: examples.example([BOX], [1], image=b'\xff\xd8\xff no image', source_id='5'),
    # An animation without frames.
    7: examples.example([BOX], [1], image=_animation()[:30], source_id='7'),
    8: examples.example([BOX], [1], source_id='8', masks=[np.ones([4, 4])]),
    9: examples.example([BOX], [1, 1, 1], source_id='9', masks=[np.ones([20, 30])]),
}


def good(number: int) -> bytes:
    image = {'image': _animation()} if number == 10 else {}
    return examples.example([BOX], [1], source_id=str(number), masks=[np.ones([20, 30])], **image)


def write(path, count=12, bad=BAD) -> str:
    return examples.write_records(path, [bad.get(i) or good(i) for i in range(count)])


def with_checksum_error(path) -> None:
    """Changes a byte of record 1, and the announced length of record 6."""
    content = bytearray(path.read_bytes())
    offsets = [position.offset for position in tf_record_files.positions(str(path))]
    content[offsets[1] + 20] ^= 1
    content[offsets[6] - 12] ^= 1
    path.write_bytes(content)


def left_out(tmp_path, **options) -> BadRecords:
    return BadRecords('r', path=tmp_path / 'bad_records.jsonl', **{'max_share': 1.0, **options})


def listed(tmp_path) -> list[dict]:
    return list(map(json.loads, (tmp_path / 'bad_records.jsonl').read_text().splitlines()))


def ids(batches) -> list[bytes]:
    return [bytes(source_id) for batch in batches for source_id in batch[F.SOURCE_ID].numpy()]


def pipeline(path, text=''):
    return config(path, reader=f'load_instance_masks: true mask_type: PNG_MASKS {text}')


def test_bad_records_are_skipped_and_listed(tmp_path):
    path = tmp_path / 'train'
    write(path)
    with_checksum_error(path)
    counter = left_out(tmp_path)
    data = pipeline(str(path), 'shuffle: false num_epochs: 2')
    batches = dataset_builder.build_train(data, seed=1, batch_size=1, left_out=counter)
    assert ids(batches) == [b'0', b'2', b'4', b'10', b'11'] * 2
    entries = listed(tmp_path)
    found = {entry['offset']: (entry['kind'], entry['source_id']) for entry in entries}
    offsets = tf_record_files.index(str(path)).offsets
    assert found == {
        offsets[1]: ('corrupt_checksum', ''),
        offsets[3]: ('not_an_example', ''),
        offsets[5]: ('image', '5'),
        offsets[6]: ('corrupt_length', ''),
        offsets[7]: ('image', '7'),
        offsets[8]: ('mask', '8'),
        offsets[9]: ('number_of_values', '9'),
    }
    assert all(entry['file'] == str(path) and entry['reason'] for entry in entries)
    assert counter.counts()['records'] == 7


def test_lost_objects_are_counted_by_kind_and_an_unknown_class_is_listed_once(tmp_path):
    boxes = [BOX, [np.nan] * 4, [0.5, 0.5, 0.1, 0.6], [0.2, 0.2, 0.2, 0.3], [1.5, 0, 2.0, 1], BOX]
    records = [
        examples.example(boxes, texts=['cat'] * 5 + ['owl'], source_id='a'),
        examples.example([BOX, BOX], texts=['cat', 'owl'], source_id='b'),
    ]
    path = examples.write_records(tmp_path / 'train', records)
    reader = (
        f"label_map_path: '{examples.write_label_map(tmp_path)}' "
        'load_instance_masks: false shuffle: false num_epochs: 3'
    )
    # One of 200 records; that a class is unknown does not count.
    counter = left_out(tmp_path, max_share=0.005)
    data = config(path, reader=reader)
    list(dataset_builder.build_train(data, seed=1, batch_size=1, left_out=counter))
    kinds = ('nan_box', 'inverted_box', 'box_without_area', 'box_outside_image')
    assert counter.counts() == {
        'records': 0,
        'objects': 6,
        'unknown_class': 2,
        **dict.fromkeys(kinds, 1),
    }
    unknown, lost = listed(tmp_path)
    assert (lost['source_id'], lost['offset'], lost['objects']) == ('a', 12, 4)
    assert (unknown['source_id'], unknown['class']) == ('a', 'owl')
    assert unknown['reason'] == (
        "class 'owl' is not in the label map, or several share it as display_name"
    )
    # Nor is it listed again after a restart.
    left_out(tmp_path).add_class(Place(path, 12, 'a'), 'owl')
    assert len(listed(tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.parametrize('empty', ['', 'filter_empty_images: true'])
def test_resumes_exactly_past_bad_records(tmp_path, empty):
    path = tmp_path / 'train'
    write(path)
    with_checksum_error(path)
    data = pipeline(str(path), empty)

    def run(start=None):
        return dataset_builder.build_train(
            data, seed=3, batch_size=2, start=start, left_out=left_out(tmp_path)
        )

    whole = list(run().take(9))
    start = record_order.cursors_of(whole[4][F.STREAM_STATE].numpy(), 1)
    for expected, batch in zip(whole[5:], run(start), strict=False):
        tf.nest.map_structure(np.testing.assert_array_equal, expected, batch)
    # Those that were listed before a run was resumed are not listed again.
    assert len(listed(tmp_path)) == 7


def read_ids(path, counter) -> list[bytes]:
    """Reads and names the records without decoding their images."""
    reader = pipeline(str(path)).train_input_reader
    features = {'image/source_id': tf.io.FixedLenFeature([], tf.string)}

    def load(cursors, serialized):
        return {'id': tf.io.parse_single_example(serialized, features)['image/source_id']}

    records = tf_records.read(reader, 'r', shuffle=False, num_epochs=1, seed=1)
    with corrupt_files.named(reader, 'r'):
        dataset = batches.skip_bad(records, load, counter)
        return [example['id'] for example in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(
    ('options', 'match'),
    [
        ({'is_strict': True}, r'(?s)byte \d+.*strict_data.*1 records  '),
        ({'max_share': 0.01}, r'3 of the first 200 .* = 0\.01\. Left out so far:\n'),
    ],
)
def test_bad_data_end_the_run(tmp_path, options, match):
    path = write(tmp_path / 'train', bad=dict.fromkeys((3, 5, 7), b'no example'))
    counter = left_out(tmp_path, **options)
    with pytest.raises(TooManyBadRecordsError, match=match):
        read_ids(path, counter)


@pytest.mark.slow
def test_data_without_a_usable_record_end(tmp_path):
    path = examples.write_records(tmp_path / 'train', [b'bad', b'bad too'])
    data = pipeline(path)
    batches = dataset_builder.build_train(data, seed=1, left_out=left_out(tmp_path))
    with (
        pytest.raises(TooManyBadRecordsError, match='none of the last 1000'),
        corrupt_files.named(data.train_input_reader, 'r'),
    ):
        list(batches)


def test_the_reader_sets_the_limits(tmp_path):
    reader = pipeline(write(tmp_path / 'train'), 'strict_data: true').train_input_reader
    counter = examples_builder.left_out(reader, 'train_input_reader')
    with pytest.raises(TooManyBadRecordsError, match='train_input_reader'):
        counter.add_record(Place('f', 1, ''), 0, b'x', lambda _: 'text')
    reader.max_bad_records_share = 2
    with pytest.raises(ConfigError, match=r'max_bad_records_share: expected 0 to 1'):
        dataset_builder.build_train(pipeline(write(tmp_path / 't'), 'max_bad_records_share: 2'))


@pytest.mark.parametrize(
    ('length', 'has_checksum'), [(10**12, True), (2**64 - 1, True), (7, True), (10**12, False)]
)
def test_wrong_lengths_lose_one_record(tmp_path, length, has_checksum):
    """TensorFlow would end the process for a length of 10**12 with a right checksum."""
    path = tmp_path / 'train'
    write(path, bad={})
    offsets = tf_record_files.index(str(path)).offsets
    header = struct.pack('<Q', length)
    if has_checksum:
        header += struct.pack('<I', tf_record_files._masked_checksum(header))
    content = bytearray(path.read_bytes())
    content[offsets[4] - 12 : offsets[4] - 12 + len(header)] = header
    path.write_bytes(content)
    names = tf.data.Dataset.from_tensors(str(path))
    records = list(names.flat_map(record_files.read).map(record_files.fetch))
    read = {int(record['offset']): record['serialized'].numpy() for record in records}
    assert read.pop(int(offsets[4])).startswith(_MARKER)
    intact = {int(offset): good(number) for number, offset in enumerate(offsets) if number != 4}
    assert {offset: record for offset, record in read.items() if offset in intact} == intact
    assert all(read[offset].startswith(_MARKER) for offset in read.keys() - intact)


@pytest.mark.slow
def test_images_without_objects_are_left_out_after_a_corrupt_record(tmp_path):
    path = tmp_path / 'train'
    empty = examples.example([], [], source_id='2')
    examples.write_records(path, [good(0), good(1), empty, good(3)])
    content = bytearray(path.read_bytes())
    content[tf_record_files.index(str(path)).offsets[1] + 20] ^= 1
    path.write_bytes(content)
    data = pipeline(str(path), 'shuffle: false num_epochs: 1 filter_empty_images: true')
    batches = dataset_builder.build_train(data, seed=1, batch_size=1, left_out=left_out(tmp_path))
    assert ids(batches) == [b'0', b'3']


def test_records_without_place_and_name_differ_by_their_contents(tmp_path):
    counter = left_out(tmp_path)
    for number, serialized in enumerate([b'a', b'b', b'a']):
        counter.add_record(Place('gs://a', -1, ''), number, serialized, lambda _: 'text')
    assert counter.counts()['records'] == 2


def test_lost_objects_are_logged_when_there_are_more(tmp_path, caplog):
    counter = left_out(tmp_path)
    counter.log_objects()
    for number in (0, 1, 1):
        counts = {'nan_box': 1, 'unknown_class': number}
        counter.add_objects(Place('f', number, ''), number, counts)
        counter.log_objects()
    assert caplog.messages == [
        'r: 1 objects were left out: 1 with a box that has a NaN coordinate.',
        'r: 3 objects were left out: 1 with an unknown class, 2 with a box that has a NaN '
        'coordinate.',
    ]


def test_a_truncated_file_ends_with_a_bad_record(tmp_path):
    path = tmp_path / 'train'
    write(path, bad={})
    path.write_bytes(path.read_bytes()[:-9])
    counter = left_out(tmp_path)
    assert read_ids(path, counter) == [str(i).encode() for i in range(11)]
    assert counter.records == {'truncated_file': 1}


@pytest.mark.parametrize('is_graph', [False, True])
def test_messages_of_assertions_are_plain(is_graph):
    def check(number):
        data = ["A record's part is wrong. Id, n:", b'7', '', number]
        tf.debugging.Assert(number < 0, data)
        return number

    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        (tf.function(check, autograph=False) if is_graph else check)(tf.constant(3))
    values = '[7] [] [3]' if is_graph else "'7' '' 3"
    expected = f"A record's part is wrong. Id, n: {values}"
    assert bad_records.plain_message(error.value.message) == expected


def test_iterators_of_one_dataset_count_a_record_once(tmp_path):
    texts = tf.constant([b'x' if i % 7 == 3 else b'%d' % i for i in range(200)])

    def record(index):
        entries = {'serialized': texts[index], 'file': 'f', 'offset': index}
        return tf.zeros([2, 1], tf.int64), entries

    def load(cursors, serialized):
        return {'number': tf.strings.to_number(serialized, tf.int32)}

    counter = left_out(tmp_path)
    dataset = batches.skip_bad(tf.data.Dataset.range(200).map(record), load, counter)
    next(iter(dataset))  # Leaves records behind whose examples nobody takes.
    first, second = iter(dataset), iter(dataset)
    numbers = [[], []]
    for _ in range(40):
        numbers[0].append(int(next(first)['number']))
        numbers[1] += [int(next(second)['number']) for _ in range(3)]
    for found, iterator in zip(numbers, (first, second), strict=True):
        found += [int(example['number']) for example in iterator]
        assert found == [i for i in range(200) if i % 7 != 3]
    assert counter.counts()['records'] == 29


@pytest.mark.parametrize('parallel', [False, True])
@pytest.mark.parametrize('bad', [(), (0, 3, 4, 9), (4, 5, 6, 7), range(10)])
def test_what_fails_is_replaced_in_its_place(bad, parallel):
    texts = tf.constant([b'x' if i in bad else b'%d' % i for i in range(10)])
    elements = tf.data.Dataset.range(10).map(lambda i: (i, {'text': texts[i]}))

    def load(index, row):
        number = tf.strings.to_number(row['text'], tf.int32)
        return {'values': tf.fill([index], number), 'is_loaded': tf.constant(True)}

    def instead(index, row):
        return {'values': tf.zeros([0], tf.int32), 'is_loaded': row['text'] != 'x'}

    mapped = bad_records.map_guarded(elements, load, instead, chunk=4, parallel=parallel)
    found = list(mapped.as_numpy_iterator())
    assert [index for (index, _), _ in found] == [*range(10)]
    assert [bool(result['is_loaded']) for _, result in found] == [i not in bad for i in range(10)]
    expected = [[] if i in bad else [i] * i for i in range(10)]
    assert [result['values'].tolist() for _, result in found] == expected
