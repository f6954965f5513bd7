"""Lists of CPU cores, as `taskset` takes them."""

import os
import re

from object_detection.errors import UserError

_RANGE = re.compile(r'(\d+)(?:-(\d+))?')


def parse(text: str) -> tuple[int, ...]:
    """Returns the cores that a text such as '0-3,8' means, in order; () for ''.

    Raises:
      ValueError: if it is no list of cores of this machine.
    """
    cores: set[int] = set()
    for part in text.split(',') if text.strip() else ():
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise UserError(f"expected CPU cores such as '0-3,8'. Received: {text!r}.")
        first = int(match[1])
        last = int(match[2] or first)
        # Not those that this process is bound to: another one may be bound to others.
        count = os.sysconf('SC_NPROCESSORS_CONF')
        if not first <= last < count:
            raise UserError(f'expected CPU cores of 0 to {count - 1}. Received: {text!r}.')
        cores |= set(range(first, last + 1))
    return tuple(sorted(cores))
