"""Checks all records of TFRecord files in parallel processes, which do not load TensorFlow."""

import concurrent.futures
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from object_detection.data import record_checks, tf_record_files
from object_detection.data.record_checks import Expectations
from object_detection.data.tf_record_files import CorruptFileError
from object_detection.dataset_tools.inspection.summary import Place, Summary
from object_detection.errors import UserError
from object_detection.system import signals

# Records that a process checks at a time.
_CHUNK = 128
# Chunks that wait for a process each, so that memory does not grow with the data.
_MAX_WAITING = 4


class RecordSet(NamedTuple):
    """Files that are read as one data set.

    Attributes:
      name: path of the input reader in the config, or 'files'.
      files: their names.
      expected: what their records are compared with.
      class_names: id -> name; empty without a label map.
      label_map_path: the label map, '' without one.
      repeat_threshold: `repeat_factor_sampling.threshold` of the reader; 0 without it.
    """

    name: str
    files: Sequence[str]
    expected: Expectations
    class_names: Mapping[int, str]
    label_map_path: str = ''
    repeat_threshold: float = 0.0


class _Chunk(NamedTuple):
    number: int
    name: str
    offsets: list[int]
    expected: Expectations


def run(
    records: RecordSet,
    *,
    workers: int = 1,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> Summary:
    """Checks all records of a set.

    Args:
      records: the set.
      workers: number of processes; 1 checks in this one.
      progress: called with the number of records done, and None.

    Returns:
      The same summary for every number of workers.

    Raises:
      UserError: if a process was ended, such as by the kernel for want of memory.
    """
    total = Summary()
    chunks = _chunks(records, total)
    if workers == 1:
        results = map(_check, chunks)
    else:
        results = _in_processes(chunks, workers)
    for summary in results:
        total.update(summary)
        progress(total.num_records, None)
    return total


def _chunks(records: RecordSet, total: Summary) -> Iterator[_Chunk]:
    """Yields parts of the files; corrupt parts are added to `total`."""
    for number, name in enumerate(records.files):
        try:
            index = tf_record_files.index(name)
        except OSError as error:
            problem = f'{name} cannot be read ({error.strerror})'
            record = record_checks.bad_record('unreadable_file', problem)
            total.add(Place(number, 0), record, is_skipped=True)
            continue
        for offset, error in index.corrupt.items():
            record = record_checks.bad_record(error.reason, str(error))
            total.add(Place(number, offset), record, is_skipped=True)
        for start in range(0, len(index.offsets), _CHUNK):
            offsets = index.offsets[start : start + _CHUNK].tolist()
            intact = [offset for offset in offsets if offset not in index.corrupt]
            if intact:
                yield _Chunk(number, name, intact, records.expected)


def _in_processes(chunks: Iterator[_Chunk], workers: int) -> Iterator[Summary]:
    """Yields the results in the order of the chunks."""
    # A forked process would inherit the threads of TensorFlow, if this one has loaded it.
    context = multiprocessing.get_context('spawn')
    pool = concurrent.futures.ProcessPoolExecutor(
        workers, mp_context=context, initializer=signals.end_with_parent
    )
    waiting: list[concurrent.futures.Future] = []
    try:
        for chunk in chunks:
            waiting.append(pool.submit(_check, chunk))
            if len(waiting) > _MAX_WAITING * workers:
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()
    except concurrent.futures.process.BrokenProcessPool as error:
        raise UserError(
            '--workers: a process was ended from outside, perhaps for want of memory; expected '
            f'fewer workers. Received: {workers}.'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _check(chunk: _Chunk) -> Summary:
    summary = Summary()
    for offset, content in tf_record_files.read_records(chunk.name, chunk.offsets):
        if isinstance(content, CorruptFileError):
            record = record_checks.bad_record(content.reason, str(content))
        else:
            record = record_checks.check(content, chunk.expected)
        is_skipped = not record_checks.RECORD_KINDS.keys().isdisjoint(record.problems)
        summary.add(Place(chunk.number, offset), record, is_skipped=is_skipped)
    return summary
