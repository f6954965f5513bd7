"""Measurements in processes of their own, and their tables."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

import psutil

_SECONDS_BETWEEN_LOOKS = 0.05
Columns = Sequence[tuple[str, str, str]]


def run_json(
    program: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> dict:
    """Runs a Python program that prints JSON as its last line, and returns that."""
    command = [sys.executable, program, *arguments]
    variables = {'TF_CPP_MIN_LOG_LEVEL': '3', **os.environ, **(environment or {})}
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=variables, text=True)
    return json.loads(ran.stdout.splitlines()[-1])


def watch(command: Sequence[str], cwd: str) -> dict[str, float]:
    """Runs a command; returns seconds, processor seconds, and the most MB of all its processes."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    job = subprocess.Popen(command, cwd=cwd)
    process, peak = psutil.Process(job.pid), 0
    while job.poll() is None:
        peak = max(peak, _resident_bytes(process))
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    if job.returncode:
        raise SystemExit(f'{command[0]} failed with exit status {job.returncode}.')
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        'seconds': time.perf_counter() - start,
        'cpu_seconds': sum(after[:2]) - sum(before[:2]),
        'peak_memory': peak / 1e6,
    }


def table(columns: Columns, rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Lines of a table; a column is the key of a value, its heading and its format."""
    cells = [[heading for _, heading, _ in columns]]
    cells += [[shown.format(row[key]) for key, _, shown in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        '  '.join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    ]


def cpu_seconds() -> float:
    """Processor seconds of this process so far, those of the system for it included."""
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


def children_cpu_seconds() -> float:
    """Processor seconds of all processes that this one has waited for, of the system's too."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def _resident_bytes(process: psutil.Process) -> int:
    total = 0
    try:
        for member in [process, *process.children(recursive=True)]:
            total += member.memory_info().rss
    # It may end between two looks.
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        pass
    return total
