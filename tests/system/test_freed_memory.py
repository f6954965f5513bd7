"""In processes of their own: what the C library does with memory is set for all of a process."""

import os
import subprocess
import sys

import pytest

# Faults of 6 blocks of 50 MB, one after the other, behind a first one.
_PROGRAM = """
import resource
from object_detection.system import freed_memory
freed_memory.keep()
bytearray(50 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(6):
    bytearray(b'1') * (50 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_PAGES = (50 << 20) // os.sysconf('SC_PAGE_SIZE')


def _faults(**environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(('MALLOC_', 'GLIBC_', 'LD_'))}
    command = [sys.executable, '-c', _PROGRAM]
    return int(subprocess.check_output(command, env=kept | environment, text=True))


def test_freed_memory_is_used_again():
    assert _faults() < 2 * _PAGES


@pytest.mark.parametrize(('name', 'value'), [('MALLOC_ARENA_MAX', '2'), ('LD_PRELOAD', '')])
def test_who_sets_something_keeps_it(name, value):
    assert _faults(**{name: value}) > 4 * _PAGES
