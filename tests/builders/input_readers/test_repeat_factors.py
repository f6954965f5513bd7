"""Images of rare classes are read more often, by the same draws in every run."""

import collections
import logging
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders.input_readers import annotation_files, rules, tf_records
from object_detection.data.pipeline.record_order import EPOCH
from object_detection.protos import train_pb2
from object_detection.protos.input_reader_pb2 import InputReader
from tests.builders.test_dataset_builder import config
from tests.data import examples

REPEATS = 'shuffle_buffer_size: 3 repeat_factor_sampling { threshold: 1 }'
# Of the ten images of `records`, six have class 1, and three of these class 2 as well.
FACTOR_1, FACTOR_2 = (10 / 6) ** 0.5, (10 / 3) ** 0.5
FACTORS = [(1.0, FACTOR_1, FACTOR_2)[i % 3] for i in range(10)]
BOX = (0.1, 0.2, 0.6, 0.7)


def _read(reader, *, num_epochs=None, seed=3, shuffle=True, **options):
    """(cursors, record) in training."""
    return tf_records.read(
        reader,
        'train_input_reader',
        shuffle=shuffle,
        num_epochs=num_epochs,
        seed=seed,
        repeats_rare=True,
        **options,
    )


def _rows(dataset):
    """(cursors, source id) of each record."""
    found = []
    for cursors, record in dataset.as_numpy_iterator():
        example = tf.train.Example.FromString(record['serialized'])
        source_id = example.features.feature['image/source_id'].bytes_list.value[0]
        found.append((cursors, int(source_id)))
    return found


def _counts(found, num_epochs):
    """How often each of ten images was read in each epoch."""
    counts = np.zeros([num_epochs, 10], int)
    for cursors, number in found:
        counts[cursors[0, 0] // EPOCH, number] += 1
    return counts


def test_an_epoch_has_each_image_as_often_as_its_factor_says(records):
    reader = config(records, reader=REPEATS).train_input_reader
    counts = _counts(_rows(_read(reader, num_epochs=60)), 60)
    assert (counts >= np.floor(FACTORS)).all()
    assert (counts <= np.ceil(FACTORS)).all()
    for kind in range(3):
        # 180 draws or more, whose mean deviates by less than 0.04.
        assert counts[:, kind::3].mean() == pytest.approx(FACTORS[kind], abs=0.1)
    # Each epoch draws anew.
    assert len(set(counts.sum(1))) > 3


def test_the_order_is_a_function_of_the_seed(records, tmp_path):
    def order(seed, text=REPEATS):
        reader = config(records, reader=text).train_input_reader
        return [number for _, number in _rows(_read(reader, seed=seed).take(30))]

    first = order(3)
    assert first != order(4)
    path = tmp_path / 'counts.pbtxt'
    path.write_text(
        'num_images: 10 item { name: "a" id: 1 image_count: 6 }'
        'item { name: "b" id: 2 image_count: 3 }'
    )
    counted = REPEATS.replace('threshold', f"image_counts_path: '{path}' threshold")
    assert first == order(3, counted)


@pytest.mark.parametrize(
    'text',
    [
        '',
        pytest.param('shuffle: false', marks=pytest.mark.slow),
        pytest.param('sample_from_datasets_weights: [0.7, 0.3]', marks=pytest.mark.slow),
    ],
)
def test_resumes_within_the_repetitions(records, text):
    reader = config(records, reader=f'{REPEATS} {text}').train_input_reader
    if 'weights' in text:
        files = tf_records.matching_files(records, 'r')
        reader.tf_record_input_reader.input_path[:] = files[:2]
    options = {'shuffle': reader.shuffle}
    whole = _rows(_read(reader, **options).take(40))
    assert len({number for _, number in whole[:14]}) < 14
    for taken in (1, 9, 26) if text else (9,):
        start = whole[taken - 1][0][1][np.newaxis]
        again = _rows(_read(reader, start=start, **options).take(40 - taken))
        for (cursors, number), (expected, image) in zip(again, whole[taken:], strict=True):
            np.testing.assert_array_equal(cursors, expected)
            assert number == image


@pytest.mark.slow
def test_workers_have_the_factors_of_all_images(records):
    reader = config(records, reader=REPEATS).train_input_reader
    parts = []
    for i in range(2):
        context = tf.distribute.InputContext(2, i, 2)
        found = _rows(_read(reader, num_epochs=30, input_context=context))
        parts.append(_counts(found, 30))
    # Files 0 and 2, and file 1, which has the images 1, 4 and 7 of class 1 alone.
    assert not parts[0][:, 1::3].any()
    assert parts[1].sum() == parts[1][:, 1::3].sum()
    assert parts[1][:, 1::3].mean() == pytest.approx(FACTOR_1, abs=0.15)
    assert parts[0][:, 2::3].mean() == pytest.approx(FACTOR_2, abs=0.15)


def test_images_without_records_have_the_same_factors(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    (tmp_path / 'images').mkdir()
    for i in range(10):
        (tmp_path / 'images' / f'{i}.png').write_bytes(examples.png(examples.noise(20, 30, i)))
        lines = [f'{j} 0.5 0.5 0.2 0.2' for j in range(i % 3)]
        (tmp_path / 'images' / f'{i}.txt').write_text('\n'.join(lines))
    (tmp_path / 'classes.txt').write_text('cat\ndog')
    reader = InputReader(
        label_map_path=examples.write_label_map(tmp_path),
        yolo_input_reader={'data': str(tmp_path / 'classes.txt')},
        repeat_factor_sampling={'threshold': 1},
    )
    order = annotation_files.read(
        reader,
        'r',
        shuffle=True,
        num_epochs=60,
        seed=3,
        input_context=None,
        leave_out_empty=False,
        repeats_rare=True,
        start=np.zeros([1, 1], np.int64),
    )
    positions = collections.Counter()
    for cursors, record in order.as_numpy_iterator():
        positions[int(cursors[0, 0] // EPOCH), int(record['offset'])] += 1
    sources = annotation_files.build(reader, 'r')
    names = [sources[0].file_name(i) for i in range(10)]
    for i, name in enumerate(names):
        each = [positions[epoch, i] for epoch in range(60)]
        factor = FACTORS[int(pathlib.Path(name).stem)]
        assert {*each} <= {int(np.floor(factor)), int(np.ceil(factor))}
        assert np.mean(each) == pytest.approx(factor, abs=0.2)
    assert any(
        '2 of 2 classes are repeated, most those with the ids 2: 1.83, 1: 1.29' in line
        for line in caplog.messages
    )


def test_only_usable_objects_count(tmp_path):
    """Crowds, unknown classes, objects of weight 0 and corrupt records have no classes."""
    labels = (
        'item { name: "a" id: 1 ancestor_ids: 3 } item { name: "b" id: 2 } item { name: "c" id: 3 }'
    )
    serialized = [
        examples.example(
            [BOX] * 2, texts=['a', 'b'], source_id='0', image__object__is_crowd=[0, 1]
        ),
        examples.example([BOX], texts=['none'], source_id='1'),
        examples.example([BOX], texts=['b'], source_id='2', image__object__weight=[0.0]),
        examples.example([BOX], texts=['c'], source_id='3'),
        b'no example',
    ]
    path = examples.write_records(tmp_path / 'some.record', serialized)
    text = f"""
      skip_crowd: true expand_labels_hierarchy: true repeat_factor_sampling {{ threshold: 1 }}
      label_map_path: '{examples.write_label_map(tmp_path, labels)}'
    """
    reader = config(path, reader=text).train_input_reader
    found = _read(reader, num_epochs=1, shuffle=False)
    counts = collections.Counter(int(record['offset']) for _, record in found.as_numpy_iterator())
    first, *others = (counts[offset] for offset in sorted(counts))
    # Class a is in one of four readable images, so its factor is 2; class c is in two.
    assert first == 2
    assert others in ([1, 1, 1, 1], [1, 1, 2, 1])


def test_the_layout_is_of_the_factors(records, tmp_path):
    def layout(text):
        return tf_records.fingerprint(config(records, reader=text).train_input_reader)

    path = tmp_path / 'counts.pbtxt'
    path.write_text('num_images: 3 item { name: "a" id: 1 image_count: 2 }')
    counted = f"repeat_factor_sampling {{ image_counts_path: '{path}' }}"
    numbers = [layout(''), layout('repeat_factor_sampling { }'), layout(REPEATS), layout(counted)]
    path.write_text('num_images: 4 item { name: "a" id: 1 image_count: 2 }')
    assert len({*numbers, layout(counted)}) == 5


def test_where_nothing_can_be_repeated():
    reader = InputReader(
        data_service='grpc://a:1',
        repeat_factor_sampling={},
        label_map_path='a',
        tf_record_input_reader={'input_path': ['a']},
        input_type='TF_SEQUENCE_EXAMPLE',
    )
    problems = [
        *rules.check(reader, 'train_input_reader'),
        *rules.check_data_service(reader, 'train_input_reader', train_pb2.TrainConfig()),
    ]
    assert (
        'train_input_reader.data_service: expected no repeat_factor_sampling with it.' in problems
    )
    assert any('repeat_factor_sampling: expected input_type: TF_EXAMPLE' in p for p in problems)
