"""Times calls, and what they are compared with: rates of matrix products, the peak memory."""

import functools
import resource
import statistics
import time
from collections.abc import Callable, Mapping

_MATRIX_SIDE = 2048


def timed(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def peak_memory() -> float:
    """The most that this process has held, MB."""
    # Linux counts in units of 1024 bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def matmul_rate(precision: str, side: int | None = None) -> float:
    """GFLOP/s of large matrix products in `precision`, the median of a few."""
    side = side or _MATRIX_SIDE
    seconds = statistics.median(timed(_matmul(precision, side)) for _ in range(3))
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
        seconds.append(timed(function))
        rates.append(matmul_rate(precision))
    return seconds, statistics.median(rates)


def turns(functions: Mapping[str, Callable[[], object]], steps: int) -> dict[str, list[float]]:
    """Times functions by turns; returns the seconds of each run by their names."""
    seconds = {name: [] for name in functions}
    for _ in range(steps):
        for name, function in functions.items():
            seconds[name].append(timed(function))
    return seconds
