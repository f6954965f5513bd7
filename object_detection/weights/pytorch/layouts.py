"""The layout of the arrays of PyTorch, and ours.

Kernels of convolutions [out, in, height, width] and of transposed ones [in, out, height, width]
become [height, width, in, out] and [height, width, out, in], those of depthwise ones [channels, 1,
height, width] become [height, width, channels, 1], and those of fully connected layers [out, in]
become [in, out].
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from object_detection.weights.interfaces import Arrays

DEPTHWISE_KERNEL = 'depthwise_kernel'
# Number of dimensions -> the order of their axes here.
_AXES = {4: (2, 3, 1, 0), 2: (1, 0)}
_DEPTHWISE_AXES = (2, 3, 0, 1)


class Transposed:
    """An open file whose arrays have our layout; see `interfaces.Arrays`.

    Args:
      arrays: the file.
      depthwise: names of the kernels of depthwise convolutions.
    """

    def __init__(self, arrays: Arrays, depthwise: Collection[str]):
        self.path, self.dtypes = arrays.path, arrays.dtypes
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: transposed_shape(shape, name in depthwise)
            for name, shape in arrays.shapes.items()
        }
        self._arrays, self._depthwise = arrays, depthwise

    def read(self, name: str) -> np.ndarray:
        return transposed(self._arrays.read(name), name in self._depthwise)

    def close(self) -> None:
        self._arrays.close()


def _axes(rank: int, is_depthwise: bool) -> Sequence[int]:
    return _DEPTHWISE_AXES if is_depthwise else _AXES.get(rank, range(rank))


def transposed(array: np.ndarray, is_depthwise: bool = False) -> np.ndarray:
    return array.transpose(_axes(array.ndim, is_depthwise))


def transposed_shape(shape: Sequence[int], is_depthwise: bool = False) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in _axes(len(shape), is_depthwise))
