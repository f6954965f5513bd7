"""Lists what a file of weights holds, whoever wrote it."""

import contextlib
import math
from typing import NamedTuple

from object_detection.errors import CheckpointError
from object_detection.weights import sources as weight_sources
from object_detection.weights.checkpoint_contents import check_is_ours, is_weight
from object_detection.weights.checkpoint_files import VALUE_SUFFIX
from object_detection.weights.interfaces import Arrays

_BOOKKEEPING = '_CHECKPOINTABLE_OBJECT_GRAPH'


class ListedVariable(NamedTuple):
    """One variable of a file.

    Attributes:
      name: in the file.
      shape, dtype: of it.
      is_weight: whether it is of a model, rather than an optimizer's or a counter.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_weight: bool

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


class Listing(NamedTuple):
    """What a file holds.

    Attributes:
      description: which kind it is; of an unknown kind, what was expected.
      types: of `fine_tune_checkpoint_type` that it can serve; none if its kind is unknown.
      variables: by name.
    """

    description: str
    types: tuple[str, ...]
    variables: list[ListedVariable]


def of_file(path: str) -> Listing:
    """Lists a checkpoint, the newest one of a folder, a Keras weights file or a NumPy archive.

    A file of names that are not known is listed all the same.

    Raises:
      CheckpointError: if there is none, or it is damaged.
    """
    with contextlib.closing(weight_sources.open_arrays(path)) as arrays:
        description, types, is_ours = _kind(arrays)
        return Listing(
            description,
            types,
            [
                ListedVariable(
                    name.removesuffix(VALUE_SUFFIX) if is_ours else name,
                    shape,
                    arrays.dtypes[name],
                    is_weight(name),
                )
                for name, shape in sorted(arrays.shapes.items())
                if name != _BOOKKEEPING and not name.startswith('save_counter')
            ],
        )


def _kind(arrays: Arrays) -> tuple[str, tuple[str, ...], bool]:
    """Returns description and types of a source, and whether it is a checkpoint of ours."""
    try:
        source = weight_sources.recognize(arrays)
        is_ours = isinstance(source, weight_sources.OwnCheckpoint)
        if is_ours:
            check_is_ours(arrays.path)
        return source.description, source.types, is_ours
    except CheckpointError as error:
        return str(error), (), False
