"""Memory that is freed stays with the process, as what computes the same again and again needs it.

The C library gives large blocks back to the system and asks for them anew, and the system clears
each page of theirs: on CPUs some 6 % of a training step, and a third of one with two replicas.
"""

import ctypes
import os
import sys

# Of mallopt, in glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


def keep() -> None:
    """To be called before other threads start; whoever sets options of malloc keeps theirs."""
    if 'tensorflow' in sys.modules:  # Its threads have arenas already.
        return
    if any(name.startswith(('MALLOC_', 'GLIBC_TUNABLES', 'LD_PRELOAD')) for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # Not the C library of GNU.
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, -1)
    # Other arenas than the first are of 64 MB parts and give them back whatever is set.
    mallopt(_ARENA_MAX, 1)
