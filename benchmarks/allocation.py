"""How the process keeps memory that tensors no longer use."""

import ctypes
import sys

# Numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# The largest that glibc takes; larger buffers go back to the system as ever.
_LARGEST_KEPT = 32 << 20
_MOST_KEPT = 1 << 30


def keep_freed_memory() -> bool:
    """Tells the C library to keep freed buffers up to 32 MB, in all up to 1 GB a heap, for reuse.

    Otherwise it returns an image's buffers to the system each time, which then has to clear and map
    every page anew: a third of the processor time of an input pipeline of large images.

    Returns:
      Whether it was done; where the C library is not glibc, nothing is.
    """
    if not sys.platform.startswith('linux'):
        return False
    mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)) and bool(
        mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)
    )
