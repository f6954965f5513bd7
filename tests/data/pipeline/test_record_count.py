"""Counting records by their headers."""

import pytest

from object_detection.data.pipeline import record_files
from tests.data import examples


def test_counts_all_matching_files(tmp_path):
    examples.write_records(tmp_path / 'a-0', [b'x' * n for n in (0, 5, 1000)])
    examples.write_records(tmp_path / 'a-1', [b'y'])
    examples.write_records(tmp_path / 'b', [b'z'] * 7)
    (tmp_path / 'a-2').write_bytes(b'')
    assert record_files.count([str(tmp_path / 'a-*')]) == 4
    assert record_files.count([str(tmp_path / 'a-*'), str(tmp_path / 'b')]) == 11
    assert record_files.count([]) == 0


@pytest.mark.parametrize('kept', [5, 20, -1])
def test_a_cut_off_file_is_named(tmp_path, kept):
    path = examples.write_records(tmp_path / 'a', [b'x' * 100])
    content = (tmp_path / 'a').read_bytes()
    (tmp_path / 'a').write_bytes(content[:kept])
    with pytest.raises(
        ValueError,
        match='a is no TFRecord file, or cut off: record 0 at byte 0 has no end',
    ):
        record_files.count([path])
