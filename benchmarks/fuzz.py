"""Feeds mutated records and annotation files to the input pipeline and to the readers of formats.

    python benchmarks/fuzz.py                             # 100,000 records, 20,000 files
    python benchmarks/fuzz.py --records 500 --files 100 --seed 7
    python benchmarks/fuzz.py --data FOLDER ...           # further data sets to mutate

Everything runs in child processes. A child that ends by a signal, raises another error than those
of mistakes of users, makes nothing in 10 s of processor time, or in a minute, takes more than 1 GB
of memory more than before the first record or file, or makes a batch of a wrong shape is a finding:
its seed and input are kept in --keep, and the exit status is 1. The seed and the number of a chunk
determine its mutations; --first continues a run at another chunk.
"""

import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import fuzz_files
import fuzz_records
import psutil

# Name of a part -> its function (seed, count, folder, beat, arguments) -> counts by reason.
_PARTS = {'records': fuzz_records.run, 'files': fuzz_files.run}
_CHUNK = {'records': 10_000, 'files': 2000}
# Seconds of the processor, and of the clock, without a batch, a bad record or a file. On a machine
# that others use, the clock alone says nothing.
_MAX_BUSY, _MAX_SILENCE = 10.0, 60.0
_MAX_SECONDS_TO_START = 300.0
_MAX_GROWTH = 1 << 30  # bytes


def main() -> int:
    arguments = _arguments()
    if arguments.part:
        _child(arguments)
        return 0
    counts: dict[str, collections.Counter] = {part: collections.Counter() for part in _PARTS}
    findings, before, grown = [], 0, 0
    for part, counter in counts.items():
        total = getattr(arguments, part)
        for chunk, start in enumerate(range(0, total, _CHUNK[part]), arguments.first):
            size = min(_CHUNK[part], total - start)
            found, problem = _run(part, arguments, chunk, size)
            before = max(before, found.pop('megabytes before', 0))
            grown = max(grown, found.pop('megabytes more', 0))
            counter.update(found)
            if problem:
                findings.append(f'{part}, chunk {chunk} (seed {arguments.seed}): {problem}')
                print(findings[-1], flush=True)
            print(f'{part}: {start + size} of {total}', flush=True)
    for part, counter in counts.items():
        print(f'\n{part}')
        for reason, count in sorted(counter.items()):
            print(f'  {count:>8} {reason}')
    records = counts['records']
    parsed = records['parses'] / max(1, records['mutated'])
    print(
        f'\n{parsed:.0%} of the mutated records parse as tf.Example; the memory of a process, '
        f'at first {before} MB, grew by at most {grown} MB; {len(findings)} findings'
    )
    if records['mutated'] and parsed < 0.5:
        findings.append('fewer than half of the mutated records parse')
    return 1 if findings else 0


def _run(
    part: str, arguments: argparse.Namespace, chunk: int, size: int
) -> tuple[dict[str, int], str | None]:
    """Runs one chunk in a child; returns its counts and what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, '--part', part, '--chunk', str(chunk)]
        command += ['--seed', str(arguments.seed), f'--{part}', str(size), '--folder', folder]
        command += ['--data', *arguments.data]
        log = pathlib.Path(folder, 'log')
        with log.open('wb') as output:
            environment = {**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3', 'CUDA_VISIBLE_DEVICES': ''}
            child = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
            problem, memory = _watch(child, pathlib.Path(folder, 'beat'))
        result = pathlib.Path(folder, 'counts.json')
        counts = json.loads(result.read_text()) if result.exists() else {}
        counts['megabytes before'], counts['megabytes more'] = (
            each // 1_000_000 for each in memory
        )
        if child.returncode and not problem:
            problem = f'exit status {child.returncode}'
        if not problem:
            return counts, None
        text = log.read_text(errors='replace')[-3000:]
        if arguments.keep:
            kept = pathlib.Path(arguments.keep, f'{part}_{arguments.seed}_{chunk}')
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            problem += f'; kept in {kept}'
        return counts, f'{problem}\n{text}'


def _watch(child: subprocess.Popen, beat: pathlib.Path) -> tuple[str | None, tuple[int, int]]:
    """Waits for a child; ends it if it is silent for too long or takes too much memory.

    Returns:
      What went wrong, and the peak of its memory at its first sign of life, and what the peak grew
      by, in bytes.
    """
    process, start = psutil.Process(child.pid), time.monotonic()
    first, seen, busy_before, grown = None, None, 0.0, 0
    while child.poll() is None:
        time.sleep(0.2)
        try:
            memory, times = _peak_memory(child.pid), process.cpu_times()
            beaten = beat.stat().st_mtime
        except (psutil.Error, OSError, IndexError):
            # It builds graphs.
            if time.monotonic() - start > _MAX_SECONDS_TO_START and child.poll() is None:
                child.kill()
                return 'it did not start', (0, 0)
            continue
        busy = times.user + times.system
        if beaten != seen:
            seen, start, busy_before = beaten, time.monotonic(), busy
        first = memory if first is None else first
        grown = max(grown, memory - first)
        silent, busy = time.monotonic() - start, busy - busy_before
        if silent > _MAX_SILENCE or busy > _MAX_BUSY or grown > _MAX_GROWTH:
            child.kill()
            child.wait()
            return (
                f'{silent:.0f} s, {busy:.0f} s of them of the processor, without progress; '
                f'{grown / 1e6:.0f} MB more memory'
            ), (first, grown)
    return None, (first or 0, grown)


def _peak_memory(pid: int) -> int:
    """Returns the largest resident memory that a process had so far, in bytes."""
    text = pathlib.Path(f'/proc/{pid}/status').read_text()
    return 1024 * int(text.split('VmHWM:')[1].split()[0])


def _child(arguments: argparse.Namespace) -> None:
    folder = pathlib.Path(arguments.folder)
    beat = folder / 'beat'
    seed = arguments.seed * 100_000 + arguments.chunk
    count = getattr(arguments, arguments.part)
    counts = _PARTS[arguments.part](seed, count, folder, beat, arguments.data)
    (folder / 'counts.json').write_text(json.dumps(counts))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--records', type=int, default=100_000, help='number of mutated records')
    parser.add_argument('--files', type=int, default=20_000, help='number of mutated files')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--first', type=int, default=0, help='number of the first chunk')
    parser.add_argument('--data', nargs='*', default=[], help='folders of data sets to mutate')
    parser.add_argument('--keep', help='folder of the inputs of findings')
    for name in ('part', 'folder'):
        parser.add_argument(f'--{name}', help=argparse.SUPPRESS)
    parser.add_argument('--chunk', type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == '__main__':
    sys.exit(main())
