"""One variable of a detector, as a file holds it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Entry(NamedTuple):
    """Where the value of one variable is, and how it is read.

    Attributes:
      keys: what the file calls all that it is made of.
      shape: of the value.
      read: returns the value; raises a CheckpointError if the file is damaged there.
    """

    keys: tuple[str, ...]
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]
