"""The numbers of one measurement, as a row of a report.

Times calls, and what they are compared with: rates of matrix products, the peak memory.
"""

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from object_detection.benchmarking.jobs import BenchmarkJob
from object_detection.system import cpu

_PERCENTILES = (50, 90, 99)
# Sides of the matrices whose products are a roof; accelerators need larger ones.
_MATRIX_SIDE, _MATRIX_SIDE_ON_GPU = 2048, 8192


def timed_call(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def peak_memory() -> float:
    """The most that this process has held, MB."""
    return cpu.peak() / 1e6


def matmul_rate(precision: str) -> float:
    """GFLOP/s of large matrix products in `precision`, the median of a few."""
    import tensorflow as tf

    has_gpu = bool(tf.config.get_visible_devices('GPU'))
    side = _MATRIX_SIDE_ON_GPU if has_gpu else _MATRIX_SIDE
    seconds = statistics.median(timed_call(_matmul(precision, side)) for _ in range(3))
    return 2 * side**3 / seconds / 1e9


@functools.cache
def _matmul(precision: str, side: int) -> Callable[[], object]:
    import tensorflow as tf

    dtype = {'bfloat16': 'bfloat16', 'float16': 'float16'}.get(
        precision.removeprefix('mixed_'), 'float32'
    )
    matrix = tf.cast(tf.random.normal([side, side]), dtype)
    # A sum, so that the result is waited for.
    multiply = tf.function(lambda: tf.reduce_sum(tf.matmul(matrix, matrix)), autograph=False)
    multiply().numpy()
    return lambda: multiply().numpy()


def run(function: Callable[[], object], steps: int, precision: str) -> tuple[list[float], float]:
    """Times `function`, with the rate of matrix products measured between the runs.

    Returns:
      Seconds of each run, and the median rate, GFLOP/s.
    """
    seconds, rates = [], [matmul_rate(precision)]
    for _ in range(steps):
        seconds.append(timed_call(function))
        rates.append(matmul_rate(precision))
    return seconds, statistics.median(rates)


def turns(functions: Mapping[str, Callable[[], object]], steps: int) -> dict[str, list[float]]:
    """Times functions by turns; returns the seconds of each run by their names."""
    seconds = {name: [] for name in functions}
    for _ in range(steps):
        for name, function in functions.items():
            seconds[name].append(timed_call(function))
    return seconds


def timed(run: Callable[[], object], job: BenchmarkJob, precision: str) -> dict[str, Any]:
    """Times `job.steps` calls, one directly after the other, between two times of matrix products.

    Args:
      run: makes a call and waits for its results.
      job: the measurement.
      precision: the type of the matrix products.

    Returns:
      Seconds: mean, p50, p90, p99, fastest. images_per_second; matmul_rate in GFLOP/s;
      peak_memory of the process so far, in MB; and device_memory, the largest of its GPUs.
    """
    rates = [matmul_rate(precision)]
    seconds = [timed_call(run) for _ in range(job.steps)]
    peaks = {name: size / 1e6 for name, size in cpu.peaks().items()}
    rates.append(matmul_rate(precision))
    mean = statistics.mean(seconds)
    row = {
        'batch_size': job.batch_size,
        'steps': job.steps,
        'mean': mean,
        **{f'p{percent}': float(np.percentile(seconds, percent)) for percent in _PERCENTILES},
        'fastest': min(seconds),
        'images_per_second': job.batch_size / mean,
        'matmul_rate': statistics.mean(rates),
        'peak_memory': peaks.pop('host'),
    }
    return row | ({'device_memory': max(peaks.values())} if peaks else {})


def with_rates(row: dict[str, Any]) -> dict[str, Any]:
    """Adds the rate, GFLOP/s, and its share of that of matrix products, if operations are known."""
    if not row.get('gigaflop'):
        return row
    rate = row['gigaflop'] / row['p50']
    return row | {'rate': rate, 'share_of_matmul': rate / row['matmul_rate']}
