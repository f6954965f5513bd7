"""Bounds what blocks Python: TensorFlow holds its lock while it connects the workers."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

# A process of its own, which lives until its standard input ends. TensorFlow catches SIGTERM.
_WATCH = """
import os, select, signal, sys
if not select.select([sys.stdin], [], [], float(sys.argv[2]))[0]:
    os.write(2, (sys.argv[3] + chr(10)).encode())
    os.kill(int(sys.argv[1]), signal.SIGKILL)
"""


@contextlib.contextmanager
def killed_after(seconds: float, reason: str) -> Iterator[None]:
    """A context whose block is killed with the whole process if it takes longer.

    Args:
      seconds: how long it may take.
      reason: one sentence for standard error.
    """
    watch = subprocess.Popen(
        [sys.executable, '-I', '-S', '-c', _WATCH, str(os.getpid()), str(seconds), reason],
        stdin=subprocess.PIPE,
    )
    try:
        yield
    finally:
        watch.communicate()
