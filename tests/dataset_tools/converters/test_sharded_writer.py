import errno
import os

import pytest
import tensorflow as tf
from apache_beam.io.filesystems import FileSystems

from object_detection.dataset_tools.converters import sharded_writer
from object_detection.dataset_tools.converters.sharded_writer import Output, open_output
from object_detection.errors import UserError
from object_detection.system import folder_lock
from tests import rows


def _write(output: Output, records: list[bytes]) -> dict[int, sharded_writer.Draft]:
    drafts = {}
    for shard in range(output.num_shards):
        with output.writing(shard) as file:
            for record in records:
                sharded_writer.write_record(file, record)
        drafts[shard] = file.draft()
    return drafts


def _publish(prefix, num_shards: int, records: list[bytes]) -> None:
    with open_output(str(prefix), num_shards) as output:
        output.publish(_write(output, records))


def _names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _contents(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_tensorflow_reads_what_was_written(tmp_path):
    records = [b'', b'one', bytes(range(256)) * 1000]
    _publish(tmp_path / 'a.record', 1, records)
    # Checksums are verified on reading.
    dataset = tf.data.TFRecordDataset(str(tmp_path / 'a.record-00000-of-00001'))
    assert list(dataset.as_numpy_iterator()) == records


def test_suffix_does_not_compress(tmp_path):
    with sharded_writer.open_for_writing(str(tmp_path / 'a.gz')) as file:
        file.write(b'plain')
    assert (tmp_path / 'a.gz').read_bytes() == b'plain'


def test_publish_replaces_earlier_sets_and_nothing_else(tmp_path):
    kept = ['data', 'data-00000-of-00003.bak', 'data-2', 'data2-00000-of-00003', 'x']
    gone = ['data-00000-of-00003', 'data-00001-of-00003', f'data-00001-of-00003.tmp-{"0" * 32}']
    for name in kept + gone + ['data-00000-of-00002']:
        (tmp_path / name).write_text('old')
    (tmp_path / 'data-x').mkdir()
    (tmp_path / 'data-x' / 'data-00000-of-00003').write_text('old')
    new = ['data-00000-of-00002', 'data-00001-of-00002']
    with open_output(str(tmp_path / 'data'), 2) as output:
        drafts = _write(output, [b'new'])
        output.publish(drafts)
        # As a runner that repeats a step would.
        output.publish(drafts)
    assert _names(tmp_path) == sorted(kept + new + ['data-x'])
    assert _names(tmp_path / 'data-x') == ['data-00000-of-00003']
    assert all((tmp_path / name).read_bytes() != b'old' for name in new)
    assert all((tmp_path / name).read_bytes() == b'old' for name in kept)


def test_a_single_file_has_the_name_of_the_prefix(tmp_path):
    (tmp_path / 'a.record').write_text('old')
    (tmp_path / 'a.record-00000-of-00002').write_text('of another set')
    with open_output(str(tmp_path / 'a.record'), 1, is_single_file=True) as output:
        output.publish(_write(output, [b'new']), {output.report_path: 'report'})
    assert _names(tmp_path) == ['a.record', 'a.record-00000-of-00002', 'a.record.report.json']
    dataset = tf.data.TFRecordDataset(str(tmp_path / 'a.record'))
    assert list(dataset.as_numpy_iterator()) == [b'new']


def test_temporary_files_are_not_shards_and_are_removed_at_the_end(tmp_path):
    with open_output(str(tmp_path / 'data'), 2) as output:
        _write(output, [b'new'])
        assert len(output.temporary_files()) == 2
        assert not list(tmp_path.glob('data-?????-of-?????'))
    assert not _names(tmp_path)


def test_a_second_job_on_a_prefix_is_refused_and_leaves_the_first_as_it_is(tmp_path):
    _publish(tmp_path / 'data', 2, [b'old'])
    with open_output(str(tmp_path / 'data'), 2) as output:
        drafts = _write(output, [b'new'])
        with (
            pytest.raises(UserError, match='data: another job writes to this output'),
            open_output(str(tmp_path / 'data'), 3),
        ):
            raise AssertionError
        # A set of another name in the folder has its own jobs.
        _publish(tmp_path / 'data2', 1, [b'other'])
        output.publish(drafts)
    files = [str(tmp_path / f'data-0000{shard}-of-00002') for shard in range(2)]
    assert list(tf.data.TFRecordDataset(files).as_numpy_iterator()) == [b'new'] * 2
    assert len(_names(tmp_path)) == 3


def test_shards_that_are_gone_are_not_taken_for_published_ones(tmp_path):
    _publish(tmp_path / 'data', 2, [b'old'])
    before = _contents(tmp_path)
    with open_output(str(tmp_path / 'data'), 2) as output:
        drafts = _write(output, [b'new'])
        os.remove(drafts[1].path)
        with pytest.raises(OSError, match='removed it before it was complete'):
            output.publish(drafts, {output.report_path: 'new'})
    assert _contents(tmp_path) == before


@rows.parametrize('owner', ['another job', None])
def test_a_job_that_has_lost_its_output_changes_nothing(tmp_path, owner):
    """As a worker process that outlives its job for a moment, or one without locks."""
    _publish(tmp_path / 'data', 2, [b'old'])
    before = _contents(tmp_path)
    lock = tmp_path / 'data.tmp-lock'
    with open_output(str(tmp_path / 'data'), 2) as output:
        drafts = _write(output, [b'new'])
        assert lock.read_text() == output.job
        lock.write_text(owner) if owner else lock.unlink()
        for write in (
            lambda: output.publish(drafts),
            lambda: output.write_text(output.report_path, 'new'),
        ):
            with pytest.raises(OSError, match='another one began'):
                write()
    assert _contents(tmp_path) == before | ({lock.name: b'another job'} if owner else {})


def test_without_locks_only_old_files_of_other_jobs_are_removed(tmp_path, monkeypatch):
    def refuse(file, kind):
        raise OSError(errno.ENOLCK, 'No locks available')

    monkeypatch.setattr(folder_lock.fcntl, 'flock', refuse)
    left = [tmp_path / f'data-0000{i}-of-00002.tmp-{str(i) * 32}' for i in range(2)]
    for path in left:
        path.touch()
    os.utime(left[0], (0, 0))
    with open_output(str(tmp_path / 'data'), 1) as output:
        drafts = _write(output, [b'new'])
        with open_output(str(tmp_path / 'data'), 1) as later:
            later.publish(_write(later, [b'later']))
        with pytest.raises(OSError, match='another one began'):
            output.publish(drafts)
    assert _names(tmp_path) == ['data-00000-of-00001', left[1].name]
    file = str(tmp_path / 'data-00000-of-00001')
    assert list(tf.data.TFRecordDataset(file).as_numpy_iterator()) == [b'later']


def test_open_output_makes_the_folder_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_output('new/folder/data', 3) as output:
        assert output.prefix == str(tmp_path / 'new' / 'folder' / 'data')
        assert (tmp_path / 'new' / 'folder').is_dir()
    (tmp_path / f'data-00000-of-00003.tmp-{"0" * 32}').touch()
    with open_output('data', 3) as output:
        assert output.prefix == str(tmp_path / 'data')
        assert _names(tmp_path) == ['data.tmp-lock', 'new']
    assert _names(tmp_path) == ['new']


@rows.parametrize(
    ('prefix', 'num_shards', 'match'),
    [
        ('a', 0, 'number of shards: expected 1 to 99999. Received: 0'),
        ('a', 100_000, 'Received: 100000'),
        ('folder/', 1, 'output prefix'),
        ('a*', 1, 'output prefix'),
    ],
)
def test_output_that_cannot_be_used(tmp_path, monkeypatch, prefix, num_shards, match):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=match), open_output(prefix, num_shards):
        raise AssertionError
    assert not _names(tmp_path)


def test_a_failure_while_publishing_loses_nothing_of_the_new_set(tmp_path, monkeypatch):
    prefix = str(tmp_path / 'data')
    _publish(prefix, 4, [b'old'])
    rename, calls = FileSystems.rename, []

    def fail_at_the_third(sources, destinations):
        calls.append(sources)
        if len(calls) == 3:
            raise OSError('lost the connection')
        rename(sources, destinations)

    with open_output(prefix, 4) as output:
        drafts = _write(output, [b'new'])
        monkeypatch.setattr(FileSystems, 'rename', fail_at_the_third)
        with pytest.raises(OSError, match='lost the connection'):
            output.publish(drafts)
        assert output.is_being_published()
        assert len(output.temporary_files()) == 2
        # As a runner that tries again, or a user with `mv`, would.
        output.publish(drafts)
        assert not output.is_being_published()
    assert _names(tmp_path) == [f'data-0000{shard}-of-00004' for shard in range(4)]
    files = [str(tmp_path / name) for name in _names(tmp_path)]
    assert list(tf.data.TFRecordDataset(files).as_numpy_iterator()) == [b'new'] * 4


def test_a_job_that_ends_while_it_publishes_keeps_what_is_not_moved(tmp_path, monkeypatch):
    _publish(tmp_path / 'data', 2, [b'old'])
    monkeypatch.setattr(FileSystems, 'rename', _full)
    with open_output(str(tmp_path / 'data'), 2) as output:
        drafts = _write(output, [b'new'])
        with pytest.raises(OSError, match='full'):
            output.publish(drafts)
    assert len(sharded_writer.temporary_files(str(tmp_path / 'data'))) == 2
    assert (tmp_path / 'data.publishing').read_text() == output.job
    # The next job fails before it publishes, so that the set is incomplete still.
    with open_output(str(tmp_path / 'data'), 2) as output:
        _write(output, [b'newer'])
        assert not output.is_being_published()
        assert 'replaced in part' in output.state_after_failure()
    assert not sharded_writer.temporary_files(str(tmp_path / 'data'))


def test_text_appears_when_it_is_complete(tmp_path, monkeypatch):
    path = str(tmp_path / 'a.json')
    with open_output(str(tmp_path / 'a'), 1) as output:
        output.write_text(path, 'first')
        output.write_text(path, 'ü')
        assert (tmp_path / 'a.json').read_text() == 'ü'
        monkeypatch.setattr(sharded_writer, 'open_for_writing', _full)
        with pytest.raises(OSError, match='full'):
            output.write_text(path, 'third')
    assert _names(tmp_path) == ['a.json']
    assert (tmp_path / 'a.json').read_text() == 'ü'


def _full(*args):
    raise OSError('the disk is full')
