"""Values that hold within a block, for the thread that runs it."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar('T')


@contextlib.contextmanager
def scope(variable: contextvars.ContextVar[T], value: T) -> Iterator[None]:
    """Sets a variable within the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
