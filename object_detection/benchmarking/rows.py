"""The numbers of one measurement, as a row of a report."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from object_detection.benchmarking import timing
from object_detection.benchmarking.jobs import BenchmarkJob
from object_detection.system import cpu

_PERCENTILES = (50, 90, 99)
# Sides of the matrices whose products are a roof; accelerators need larger ones.
_SIDE, _SIDE_ON_GPU = 2048, 8192


def seconds_since(start: float) -> float:
    """Returns the seconds since a value of `time.perf_counter()`."""
    return time.perf_counter() - start


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
    rates = [_matmul_rate(precision)]
    seconds = [timing.timed(run) for _ in range(job.steps)]
    peaks = {name: size / 1e6 for name, size in cpu.peaks().items()}
    rates.append(_matmul_rate(precision))
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


def _matmul_rate(precision: str) -> float:
    import tensorflow as tf

    has_gpu = bool(tf.config.get_visible_devices('GPU'))
    return timing.matmul_rate(precision, _SIDE_ON_GPU if has_gpu else _SIDE)
