"""The order of records: one a seed and epoch, and the same from any place of it."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.data.pipeline import record_order
from object_detection.data.pipeline.record_order import EPOCH
from tests import slow_cases

COUNT = 7


def read_from(values, buffer=4):
    """A `ReadEpoch` of texts."""
    texts = tf.data.Dataset.from_tensor_slices([str(value) for value in values])

    def read(seeds):
        return texts if seeds is None else record_order.shuffle(texts, buffer, seeds[1])

    return read


def take(dataset, count):
    """[(place or rows, record)] of the first elements."""
    return [(where.tolist(), record) for where, record in dataset.take(count).as_numpy_iterator()]


def epochs(start=0, key=3, num_epochs=None, values=range(COUNT)):
    return record_order.epochs(read_from(values), key=key, start=start, num_epochs=num_epochs)


def test_each_epoch_holds_all_records_in_an_order_of_its_own():
    drawn = take(epochs(), 4 * COUNT)
    places = [place for place, _ in drawn]
    assert places == [epoch * EPOCH + i for epoch in range(4) for i in range(COUNT)]
    orders = [[record for _, record in drawn[i : i + COUNT]] for i in range(0, 4 * COUNT, COUNT)]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len(set(map(tuple, orders))) == 4
    assert drawn != take(epochs(key=4), 4 * COUNT)


@pytest.mark.parametrize('place', [1, COUNT - 1, COUNT, EPOCH, 2 * EPOCH + 3])
def test_resumes_from_a_position(place):
    whole = take(epochs(num_epochs=4), 100)
    assert len(whole) == 4 * COUNT
    assert take(epochs(place, num_epochs=4), 100) == [each for each in whole if each[0] >= place]


def test_the_global_seed_does_not_matter():
    drawn = []
    for seed in (0, 1):
        tf.random.set_seed(seed)
        drawn.append(take(epochs(), COUNT))
    assert drawn[0] == drawn[1]


def test_the_last_position_is_the_end():
    assert take(epochs(3 * EPOCH, num_epochs=3), 9) == []
    assert take(epochs(2 * EPOCH + COUNT, num_epochs=3), 9) == []


def test_data_without_a_record_end():
    nothing = record_order.epochs(
        read_from(range(COUNT)),
        key=0,
        num_epochs=None,
        keep=lambda records, is_whole: records.filter(lambda place, record: record == 'none'),
        wanted=lambda records: records.filter(lambda record: record == 'none'),
    )
    assert take(nothing, 1) == []


def mixture(start=None, num_epochs=None, weights=(0.6, 0.4, 0.0)):
    def source(values, key):
        return lambda place: epochs(place, key, num_epochs, values)

    return record_order.mixture(
        [source(range(3), 1), source(range(10, 15), 2), source([99], 3)],
        weights,
        key=9,
        start=np.zeros([1, 4], np.int64) if start is None else np.array(start),
    )


def test_a_mixture_draws_by_its_weights():
    drawn = [int(record) for _, record in take(mixture(), 400)]
    assert 220 < sum(value < 10 for value in drawn) < 260
    assert 99 not in drawn


@slow_cases.parametrize(1, ('num_epochs', 'index'), [(None, 9), (2, 1), (2, 14)])
def test_a_mixture_resumes_from_its_cursors(num_epochs, index):
    whole = take(mixture(num_epochs=num_epochs), 16)
    # Of two epochs, each set to its end: 2 * 3 and 2 * 5 records.
    assert len(take(mixture(num_epochs=num_epochs), 17)) == (16 if num_epochs else 17)
    before, after = whole[index][0]
    assert take(mixture([before], num_epochs), 16 - index) == whole[index:]
    assert take(mixture([after], num_epochs), 16 - index - 1) == whole[index + 1 :]


def test_what_waits_is_read_before_the_rest():
    whole = take(record_order.alone(epochs, np.array([[0]])), 12)
    start = np.array([[8], [3], [5]])
    resumed = take(record_order.alone(epochs, start), 4)
    at = {rows[0][0]: record for rows, record in whole}
    order = sorted(at)
    # Places 0 to 6 are those of the first epoch.
    assert resumed[0] == ([[3], [4]], at[3])
    assert resumed[1] == ([[5], [6]], at[5])
    assert [rows[0][0] for rows, _ in resumed[2:]] == order[7:9]
