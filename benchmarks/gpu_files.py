"""The files between `gpu.py export` and `gpu.py run`: a function, and what its arguments are.

Needs numpy alone.
"""

import dataclasses
import gzip
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from object_detection.benchmarking import work

_SEED = 0


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of the function, in the module's order.

    Attributes:
      name: of the variable, or the key of the batch.
      shape, dtype: e.g. (7, 7, 3, 64), 'float32'.
      mean, deviation: of the variable's initial values; None for what the batch holds.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mean: float | None = None
    deviation: float | None = None


@dataclasses.dataclass(frozen=True)
class Result:
    """A result of the function, in the module's order.

    Attributes:
      name: of a loss or of an entry of the detections; for a variable, its name.
      shape, dtype: as in `Argument`.
      replaces: index of the argument whose new value it is; None for others.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    replaces: int | None = None


@dataclasses.dataclass(frozen=True)
class Function:
    """A file's content.

    Attributes:
      work: 'inference' or 'training'.
      precision: a name that `training.precision` knows.
      batch_size, image_size: of the images.
      num_classes, mask_size: of the batch, as `work.batch` takes them.
      is_peers_work: whether torchvision's Mask R-CNN can do the same.
      gigaflop: of one call.
      arguments, results: as the module has them.
      expected: of each of the first calls with the random arguments: name of a result -> its value,
        as nested lists. May be empty.
      module: the portable StableHLO.
    """

    work: str
    precision: str
    batch_size: int
    image_size: tuple[int, int]
    num_classes: int
    mask_size: int | None
    is_peers_work: bool
    gigaflop: float
    arguments: list[Argument]
    results: list[Result]
    expected: list[dict[str, Any]]
    module: bytes = b''

    @property
    def name(self) -> str:
        return file_name(self.work, self.precision, self.batch_size)

    def write(self, directory: pathlib.Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        # No time in it: the same function makes the same file.
        packed = gzip.compress(self.module, mtime=0)
        (directory / f'{self.name}.mlir.gz').write_bytes(packed)
        described = dataclasses.asdict(dataclasses.replace(self, module=b''))
        del described['module']
        (directory / f'{self.name}.json').write_text(json.dumps(described) + '\n')


def file_name(work: str, precision: str, batch_size: int) -> str:
    """What the two files of a function begin with."""
    return f'{work}_{precision}_{batch_size}'


def read(directory: pathlib.Path, name: str) -> Function:
    """Reads what `Function.write` wrote."""
    described = json.loads((directory / f'{name}.json').read_text())
    lists = {'arguments': Argument, 'results': Result}
    for key, kind in lists.items():
        rows = described[key]
        described[key] = [kind(**{**row, 'shape': tuple(row['shape'])}) for row in rows]
    module = gzip.decompress((directory / f'{name}.mlir.gz').read_bytes())
    return Function(**{**described, 'image_size': tuple(described['image_size'])}, module=module)


def random_arguments(function: Function) -> Iterator[np.ndarray]:
    """Yields the arguments: the benchmarks' batch, and weights distributed as the initial ones."""
    batch = work.batch(
        function.batch_size, function.image_size, function.num_classes, function.mask_size
    )
    for index, argument in enumerate(function.arguments):
        if argument.mean is None:
            yield batch[argument.name]
        else:
            yield random_weights(argument, index)


def random_weights(argument: Argument, index: int) -> np.ndarray:
    """Makes those of one variable; `index` is that of the argument."""
    rng = np.random.default_rng([_SEED, index])
    values = rng.standard_normal(argument.shape, np.float32)
    values = argument.mean + argument.deviation * values
    return np.asarray(values).astype(argument.dtype)
