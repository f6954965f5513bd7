import threading

from object_detection.dataset_tools.converters import shard_job, sharded_writer
from object_detection.dataset_tools.converters.sharded_writer import Output, open_output
from tests import rows


def _append(path, *records: bytes) -> None:
    with open(path, 'ab') as file:
        for record in records:
            sharded_writer.write_record(file, record)


def test_records_of_a_growing_file_are_counted_when_they_are_complete(tmp_path):
    path = tmp_path / 'shard'
    _append(path, b'a', b'')
    assert shard_job.count_records(str(path)) == (2, 2 * 16 + 1)
    whole = path.read_bytes()
    _append(path, b'x' * 100)
    longer = path.read_bytes()
    # The length alone, then all but the last byte.
    for cut in (len(whole) + 5, len(whole) + 14, len(longer) - 1):
        path.write_bytes(longer[:cut])
        assert shard_job.count_records(str(path), len(whole)) == (0, len(whole))
    path.write_bytes(longer)
    assert shard_job.count_records(str(path), len(whole)) == (1, len(longer))


def test_shards_are_read_on_and_count_when_they_are_gone(tmp_path):
    (tmp_path / f'data-00000-of-00002.tmp-{"0" * 32}').write_bytes(b'of another job')
    output = Output(str(tmp_path / 'data'), 2, 'f' * 32)
    records = shard_job.GrowingShards(output)
    assert records.count() == 0
    with output.writing(0), output.writing(1):
        first, second = output.temporary_files()
        _append(first, b'a', b'b')
        assert records.count() == 2
        _append(first, b'c')
        _append(second, b'd')
        assert records.count() == 4
    output.remove_temporary_files()
    assert records.count() == 4


def test_progress_is_reported_while_the_block_runs(tmp_path):
    output = Output(str(tmp_path / 'data'), 1, 'f' * 32)
    told, is_told = [], threading.Event()

    def progress(done, total):
        told.append((done, total))
        if done:
            is_told.set()

    with shard_job.watched(output, 2, progress, interval=0.01):
        with output.writing(0) as file:
            for record in (b'a', b'b', b'c'):
                sharded_writer.write_record(file, record)
        assert is_told.wait(10)
    # Never more than there are, even if a shard is written twice.
    assert told[-1] == (2, 2)
    assert not [thread for thread in threading.enumerate() if thread.name == 'progress']


@rows.parametrize('prefix', ['', 'gs://bucket/data'])
def test_nothing_is_watched_unasked_or_on_other_machines(prefix):
    progress = None if not prefix else lambda done, total: None
    with shard_job.watched(Output(prefix, 1, ''), 2, progress):
        assert not [thread for thread in threading.enumerate() if thread.name == 'progress']


def test_scratch_files_are_removed_and_not_counted(tmp_path):
    with open_output(str(tmp_path / 'a'), 1) as output:
        path = output.scratch_path()
        with sharded_writer.open_for_writing(path) as file:
            sharded_writer.write_record(file, b'bank')
        assert shard_job.GrowingShards(output).count() == 0
        assert output.temporary_files() == [path]
    assert not list(tmp_path.iterdir())
