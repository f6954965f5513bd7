"""Compares the Hungarian matching with SciPy's, and measures its time.

    python benchmarks/matching.py --scipy_python PYTHON

The problems are random: of several sizes, with more rows than columns too, rows that are not valid,
costs that are whole numbers, which tie, or of very different sizes. The total costs of the graph
and of what XLA compiles are compared with those of `scipy.optimize.linear_sum_assignment`, and
their matches with each other. `PYTHON` is an interpreter that has SciPy, which this toolkit does
not need; without one, or with one that has none, costs are not compared. The times are of sets like
those of a training step of RT-DETR: B * L costs of objects and queries.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

# Rows and columns of the problems.
_SIZES = (
    (1, 1),
    (1, 7),
    (5, 5),
    (7, 4),
    (12, 3),
    (10, 30),
    (20, 300),
    (100, 300),
    (60, 40),
    (3, 9),
)
# Reads costs and which rows are valid; prints the total costs.
_SCIPY = """
import sys, json, numpy as np
from scipy.optimize import linear_sum_assignment
with np.load(sys.argv[1]) as data:
    costs, valid = data['costs'].astype(np.float64), data['valid']
totals = []
for cost, rows in zip(costs, valid):
    cost = cost[rows]
    totals.append(float(cost[linear_sum_assignment(cost)].sum()))
print(json.dumps(totals))
"""


class Problems(NamedTuple):
    """Problems of one size: costs float32 [P, M, N], and which rows are valid, bool [P, M]."""

    costs: np.ndarray
    valid: np.ndarray


def main() -> None:
    import tensorflow as tf

    from object_detection.targets import hungarian

    arguments = _arguments()
    ways = {
        'graph': tf.function(hungarian.assign, autograph=False),
        'XLA': tf.function(hungarian.assign, autograph=False, jit_compile=True),
    }
    for line in compare(problems(arguments.count), ways, arguments.scipy_python):
        print(line)
    print('\n'.join(times(ways, arguments)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--count', type=int, default=1000, help='problems to compare')
    parser.add_argument('--scipy_python', default=sys.executable, help='interpreter with SciPy')
    parser.add_argument('--rows', type=int, default=100, help='objects of the timed problems')
    parser.add_argument('--columns', type=int, default=300, help='their queries')
    parser.add_argument('--sets', type=int, default=28, help='how many are solved at once')
    parser.add_argument('--repeats', type=int, default=5, help='times of which the median counts')
    return parser.parse_args()


def problems(count: int) -> Iterator[Problems]:
    """Yields random problems, `count` in all, by their size; the same ones in each call."""
    for index, (rows, columns) in enumerate(_SIZES):
        random = np.random.default_rng(index)
        size = count // len(_SIZES) + (index < count % len(_SIZES))
        costs = random.normal(size=[size, rows, columns])
        kinds = np.arange(size) % 4
        costs[kinds == 1] = np.round(2 * costs[kinds == 1])
        costs[kinds == 2] = np.exp(5 * costs[kinds == 2])
        costs[kinds == 3] -= 1e4
        valid = random.uniform(size=[size, rows]) < random.uniform(size=[size, 1])
        yield Problems(costs.astype(np.float32), valid)


def total_costs(problem: Problems, matches: np.ndarray) -> np.ndarray:
    """Returns the total costs float64 [P] of matches int32 [P, N].

    Raises:
      AssertionError: if they do not give each of as many valid rows as possible one column.
    """
    totals = []
    for cost, valid, row_of in zip(*problem, matches, strict=True):
        columns = np.flatnonzero(row_of >= 0)
        rows = row_of[columns]
        assert len(set(rows)) == len(rows) == min(valid.sum(), cost.shape[1])
        assert valid[rows].all()
        totals.append(cost[rows, columns].astype(np.float64).sum())
    return np.array(totals)


def compare(
    found: Iterator[Problems], ways: dict[str, Callable], scipy_python: str
) -> Iterator[str]:
    """Yields what is compared, a line for each size, and one for all."""
    has_scipy = subprocess.run([scipy_python, '-c', 'import scipy'], capture_output=True)
    if has_scipy.returncode:
        yield f'costs are not compared, as {scipy_python} has no SciPy; see --scipy_python'
    count, largest, different = 0, 0.0, 0
    for problem in found:
        matches = {name: solve(*problem).numpy() for name, solve in ways.items()}
        first, *others = matches.values()
        apart = sum(int((first != other).any(axis=1).sum()) for other in others)
        costs = [total_costs(problem, each) for each in matches.values()]
        difference = 0.0
        if not has_scipy.returncode:
            expected = scipy_costs(problem, scipy_python)
            scale = np.maximum(np.abs(expected), 1.0)
            difference = max(float(np.max(np.abs(each - expected) / scale)) for each in costs)
        _, rows, columns = problem.costs.shape
        yield (
            f'{len(first)} of {rows} x {columns}: largest relative difference of costs '
            f'{difference:.1e}, {apart} matched in another way by XLA'
        )
        count, largest, different = count + len(first), max(largest, difference), different + apart
    yield f'{count} in all: {largest:.1e}, {different}'


def scipy_costs(problem: Problems, python: str) -> np.ndarray:
    """Returns the least total costs float64 [P], by SciPy."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, 'problems.npz')
        np.savez(path, costs=problem.costs, valid=problem.valid)
        command = [python, '-c', _SCIPY, str(path)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return np.array(json.loads(printed))


def times(ways: dict[str, Callable], arguments: argparse.Namespace) -> Sequence[str]:
    """Returns lines with the time of each way, once with all rows valid, once with 7 of them."""
    shape = [arguments.sets, arguments.rows, arguments.columns]
    costs = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    lines = []
    for count in (arguments.rows, min(7, arguments.rows)):
        valid = np.tile(np.arange(arguments.rows) < count, [arguments.sets, 1])
        for name, solve in ways.items():
            seconds = []
            for _ in range(arguments.repeats + 1):
                start = time.perf_counter()
                solve(costs, valid).numpy()
                seconds.append(time.perf_counter() - start)
            median = 1000 * float(np.median(seconds[1:]))
            lines.append(
                f'{name}: {arguments.sets} x {arguments.rows} rows x {arguments.columns} columns, '
                f'{count} rows valid: {median:.1f} ms'
            )
    return lines


if __name__ == '__main__':
    main()
