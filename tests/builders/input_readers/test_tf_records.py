"""What the order of records depends on."""

import pathlib
import shutil

import pytest

from object_detection.builders.input_readers import tf_records
from tests.builders.test_dataset_builder import config
from tests.data import examples


def test_the_layout_is_of_what_orders_the_records(records):
    def layout(**fields):
        reader = config(records).train_input_reader
        for name, value in fields.items():
            setattr(reader, name, value)
        return tf_records.fingerprint(reader)

    assert layout() == layout(num_prefetch_batches=7, max_number_of_boxes=9)
    others = [
        layout(shuffle=False),
        layout(shuffle_buffer_size=3),
        layout(num_readers=2),
        layout(sample_1_of_n_examples=2),
    ]
    assert len({layout(), *others}) == 5


def test_the_layout_counts_files_by_name_and_size(records, tmp_path):
    pattern = pathlib.Path(records)
    folder = shutil.copytree(pattern.parent, tmp_path / 'records')

    def layouts():
        reader = config(folder / pattern.name).train_input_reader
        return [tf_records.fingerprint(reader, by_sizes=by_sizes) for by_sizes in (True, False)]

    before = layouts()
    examples.write_records(folder / 'train.record-00001-of-00003', [examples.example()])
    after = layouts()
    assert before[0] != after[0]
    assert before[1] == after[1] != after[0]


def _set_of(folder, count, present):
    for shard in present:
        examples.write_records(folder / f'a-{shard:05d}-of-{count:05d}', [b'x'])


def test_a_set_with_a_gap_is_refused(tmp_path):
    _set_of(tmp_path, 4, [0, 1, 3])
    for pattern in ('a-?????-of-00004', 'a-*', 'a-0000[01]-of-00004'):
        with pytest.raises(ValueError, match=r'all 4 files of a set.*1 do not exist'):
            tf_records.matching_files(str(tmp_path / pattern), 'train_input_reader')
    # Named one by one they are what is wanted; and so is a part of a set that is there.
    assert tf_records.matching_files(str(tmp_path / 'a-00000-of-00004'), 'reader')
    _set_of(tmp_path, 4, [2])
    assert len(tf_records.matching_files(str(tmp_path / 'a-0000[01]-of-00004'), 'reader')) == 2


def test_a_set_that_is_being_replaced_is_refused(tmp_path):
    _set_of(tmp_path, 2, [0, 1])
    (tmp_path / 'a.publishing').touch()
    with pytest.raises(ValueError, match=r'a\.publishing exists: a conversion is replacing them'):
        tf_records.matching_files(str(tmp_path / 'a-*'), 'train_input_reader')


def test_a_pattern_of_windows_is_explained():
    with pytest.raises(ValueError, match='this system has / between folders'):
        tf_records.matching_files('records\\train-?????-of-00010', 'train_input_reader')
