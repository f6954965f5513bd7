import pathlib
import platform
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'

# Allocates and frees as much again and again; prints how often a page had to be mapped anew.
_PROGRAM = """
import resource, sys
from allocation import keep_freed_memory
if sys.argv[1] == 'keep':
    assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for run in range(12):
    if run == 2:
        before = faults()
    blocks = [bytearray(20 << 20) for _ in range(3)]
    del blocks
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != 'glibc', reason='malloc of glibc')
def test_freed_memory_is_used_again():
    faults = {
        mode: int(subprocess.check_output([sys.executable, '-c', _PROGRAM, mode], cwd=FOLDER))
        for mode in ('keep', 'free')
    }
    assert faults['keep'] < 100
    assert faults['free'] > 10_000
