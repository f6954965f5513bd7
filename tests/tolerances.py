"""How far results may lie apart that are equal but for rounding.

Kernels add up in different orders: those of oneDNN and Eigen, of AVX2, AVX-512 and AMX, of a batch
of 2 and of 4. A sum of float32 in any order is the exact sum of terms that are off by some of
their last digits (Higham, Accuracy and Stability of Numerical Algorithms, ch. 4), so the difference
between two orders is about what comes of terms that are off by that much: epsilon times the sum of
the absolute terms, however small the sum itself is, and times what later layers and steps make of
it. No constant knows these sizes: the gradient of a norm's offset cancels to a thousandth of its
terms. So the computation is run again, with all its inputs and weights off by their last digit at
random, and a tolerance is `MARGIN` times what that changes.

This holds for computations without jumps: choices by nearly equal scores, a ReLU whose input is
nearly zero, samples at the border of a map. Tests leave them out, or chance decides.

The margin: of 8 normally distributed numbers, the largest is below a tenth of their standard
deviation once in 10^9 times, and none of 10,000 is above 6 of them, a factor of 60. Where many
numbers stand behind a tolerance, as nearly everywhere, this leaves room for sums that kernels
round worse: of n terms, blocks of 16 or more, about sqrt(n / 16) last digits each.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

EPSILON = float(np.finfo(np.float32).eps)
MARGIN = 64
# Numbers that a tolerance is derived from, at least.
_MIN_VALUES = 8
# A tolerance that is a larger part of the numbers would not see much; other numbers are needed.
_LARGEST_SHARE = 0.2

Arrays = Mapping[str, np.ndarray]


def off_by_last_digits(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns float32 numbers that are `EPSILON` larger or smaller each, at random."""
    value = np.asarray(value)
    return (value * (1 + EPSILON * rng.choice([-1.0, 1.0], value.shape))).astype(np.float32)


def runs_off_by_last_digits(
    variables: Mapping[str, tf.Variable], run: Callable[[], Arrays], count: int = 4
) -> Iterator[dict[str, np.ndarray]]:
    """Gives the results of `run` with all float32 variables off by last digits; then restores them.

    Args:
      variables: by name.
      run: returns arrays by name.
      count: how many results.
    """
    before = {name: variable.numpy() for name, variable in variables.items()}
    try:
        for seed in range(count):
            rng = np.random.default_rng(seed)
            for name, value in before.items():
                variables[name].assign(off_by_last_digits(value, rng))
            yield {name: np.array(value) for name, value in run().items()}
    finally:
        for name, value in before.items():
            variables[name].assign(value)


def of_rounding(expected: Arrays, repeated: Sequence[Arrays]) -> dict[str, float]:
    """Derives how far each array may be off from `expected`, in each of its numbers.

    Args:
      expected: by name.
      repeated: the same of computations that differ from that of `expected` in last digits alone.

    Returns:
      Absolute tolerances by name.
    """
    tolerances = {}
    for name, value in expected.items():
        assert value.size * len(repeated) >= _MIN_VALUES or not np.any(value), (
            f'{name}: {len(repeated)} repetitions of {value.size} numbers say too little.'
        )
        largest = float(np.abs(value).max(initial=0))
        noise = max(float(np.abs(other[name] - value).max(initial=0)) for other in repeated)
        # Results themselves are rounded, also where the noise happens to be none.
        tolerances[name] = MARGIN * max(noise, EPSILON * largest)
        assert tolerances[name] <= _LARGEST_SHARE * largest or not largest, (
            f'{name}: last digits change {noise:.1e} of {largest:.1e}, too much for a comparison.'
        )
    return tolerances


def differing(ours: Arrays, expected: Arrays, tolerances: Mapping[str, float]) -> dict[str, str]:
    """Returns what is said of each array that is off by more than its tolerance, by name."""
    found = {}
    for name, value in expected.items():
        worst = float(np.abs(np.asarray(ours[name], np.float64) - value).max(initial=0))
        if not worst <= tolerances[name]:
            found[name] = f'off by {worst:.2e}, tolerance {tolerances[name]:.2e}'
    return found
