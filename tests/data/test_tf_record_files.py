"""Walking through TFRecord files."""

import gzip
import zlib

import pytest

from object_detection.data import tf_record_files
from tests.data import examples

RECORDS = [b'x' * 10, b'', b'y' * 1000]
# Each has 12 bytes before its content and 4 behind it.
OFFSETS = [12, 12 + 26, 12 + 26 + 16]


@pytest.fixture
def path(tmp_path):
    return examples.write_records(tmp_path / 'a', RECORDS)


def change(path, byte, value=b'!'):
    with open(path, 'r+b') as file:
        file.seek(byte)
        file.write(value)


def test_records_are_as_they_were_written(path):
    assert list(tf_record_files.records(path)) == RECORDS
    places = list(tf_record_files.positions(path))
    assert [place.offset for place in places] == OFFSETS
    assert [place.length for place in places] == [10, 0, 1000]


def test_an_empty_file_has_no_records(tmp_path):
    (tmp_path / 'a').write_bytes(b'')
    assert list(tf_record_files.records(str(tmp_path / 'a'))) == []


def test_a_changed_byte_is_found_with_its_record(path):
    change(path, OFFSETS[2] + 500)
    found = tf_record_files.records(path)
    assert [next(found), next(found)] == RECORDS[:2]
    with pytest.raises(tf_record_files.CorruptFileError, match=r'record 2 \(from byte 54 on\)'):
        next(found)
    # Which is not seen without reading the content.
    assert len(list(tf_record_files.positions(path))) == 3


@pytest.mark.parametrize(
    ('content', 'match'),
    [
        (
            gzip.compress(b'records' * 9, mtime=0),
            'it is compressed with GZIP: read it with compression_type',
        ),
        (
            zlib.compress(b'records' * 9),
            'it is compressed with ZLIB: read it with compression_type',
        ),
        (b'PK\x03\x04' + b'\0' * 99, 'it is a ZIP archive'),
        (b'x'.ljust(257, b'\0') + b'ustar\0' + b'\0' * 249, 'it is a tar archive'),
        (b'\x89HDF\r\n\x1a\n' + b'\0' * 99, 'it is an HDF5 file'),
        (b'version https://git-lfs.github.com/spec/v1\noid', 'it is a pointer of Git LFS'),
        (b'<!DOCTYPE html>\n<html><body>Not found', 'it is an HTML page'),
    ],
)
def test_files_of_other_kinds_are_named(tmp_path, content, match):
    name = str(tmp_path / 'a.record')
    (tmp_path / 'a.record').write_bytes(content)
    match = f'a.record is no TFRecord file: {match}'
    with pytest.raises(tf_record_files.CorruptFileError, match=match):
        list(tf_record_files.records(name))
    (error,) = tf_record_files.index(name).corrupt.values()
    assert (error.reason, error.end) == ('no_tfrecord_file', 0)


@pytest.mark.parametrize(
    ('byte', 'value', 'match'),
    [
        (0, b'!', 'is no TFRecord file: no record begins at byte 0'),
        (26, b'!', 'is damaged: no record begins at byte 26'),
        # A length that nobody has memory for.
        (42, b'\xff' * 8, 'is damaged: no record begins at byte 42'),
    ],
)
def test_a_changed_length_is_found(path, byte, value, match):
    change(path, byte, value)
    for walk in (tf_record_files.records, tf_record_files.positions):
        with pytest.raises(tf_record_files.CorruptFileError, match=match):
            list(walk(path))
