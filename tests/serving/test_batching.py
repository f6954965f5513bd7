import threading
import time

import pytest

from object_detection.serving.batching import Batcher
from object_detection.serving.limits import RequestError, ServeOptions


class Doubling:
    """Doubles numbers; batches wait for `gate`; odd numbers below 0 fail."""

    def __init__(self):
        self.batches = []
        self.gate = threading.Event()

    def __call__(self, rows):
        assert self.gate.wait(20)
        self.batches.append(list(rows))
        if -1 in rows:
            raise RuntimeError('bad row')
        return [2 * row for row in rows]


@pytest.fixture
def double():
    return Doubling()


@pytest.fixture
def batcher(double):
    made = Batcher(double, ServeOptions(max_batch_size=3, max_wait_ms=20, max_queue=8))
    yield made
    double.gate.set()
    made.close()


def test_rows_of_a_kind_are_computed_together_in_order_of_arrival(batcher, double):
    first = batcher.submit([('a', 0)])  # holds the thread until the gate opens
    time.sleep(0.06)
    futures = batcher.submit([('a', 1), ('b', 10), ('a', 2), ('a', 3), ('b', 11), ('a', 4)])
    assert batcher.count == 7
    double.gate.set()
    assert [future.result(20) for future in first + futures] == [0, 2, 20, 4, 6, 22, 8]
    assert double.batches == [[0], [1, 2, 3], [10, 11], [4]]


def test_a_row_that_fails_does_not_concern_the_others(batcher, double):
    futures = batcher.submit([('a', 1), ('a', -1), ('a', 3)])
    double.gate.set()
    assert (futures[0].result(20), futures[2].result(20)) == (2, 6)
    with pytest.raises(RuntimeError, match='bad row'):
        futures[1].result(20)
    assert double.batches == [[1, -1, 3], [1], [-1], [3]]


def test_a_full_queue_refuses_all_rows_of_a_request(batcher, double):
    futures = batcher.submit([('a', i) for i in range(6)])
    with pytest.raises(RequestError, match='6 images are being computed or waiting, of at most 8'):
        batcher.submit([('a', 6)] * 3)
    futures += batcher.submit([('a', 6), ('a', 7)])
    double.gate.set()
    assert [future.result(20) for future in futures] == [2 * i for i in range(8)]


def test_rows_that_nobody_waits_for_are_left_out(batcher, double):
    first = batcher.submit([('a', 0)])
    time.sleep(0.06)
    dropped, kept = batcher.submit([('a', 1), ('a', 2)])
    assert dropped.cancel()
    double.gate.set()
    assert (first[0].result(20), kept.result(20)) == (0, 4)
    assert double.batches == [[0], [2]]


def test_closing_computes_what_was_accepted(double):
    batcher = Batcher(double, ServeOptions(max_batch_size=2, max_wait_ms=10_000))
    futures = batcher.submit([('a', i) for i in range(5)])
    double.gate.set()
    batcher.close()
    assert [future.result(0) for future in futures] == [0, 2, 4, 6, 8]
    assert not batcher.is_accepting
    with pytest.raises(RequestError, match='stopping') as caught:
        batcher.submit([('a', 1)])
    assert caught.value.status == 503
