"""Executes what gpu_export.py wrote, by PJRT through JAX; see gpu.py. Needs jax and numpy alone."""

import argparse
import dataclasses
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import agreement
import gpu_files
import numpy as np

_FOLDER = pathlib.Path(__file__).resolve().parent
_PERCENTILES = (50, 90, 95, 99)
_MATRIX_SIDE = {'cpu': 1024}
_ACCELERATORS_MATRIX_SIDE = 8192
_WORK = """\
Random weights, images on the device. 1000 proposals, nothing left out by its score, 100 detections
each with a mask, not pasted. Training: 20 objects, 512 RoIs, 128 padded mask RoIs (torchvision: the
positive ones only), SGD with momentum. "share" is that of the measured rate of bfloat16 products.
Each row is measured in a process of its own."""
# Name of a measurement of torchvision -> further arguments of its program.
_PEERS = {'torchvision': (), 'torch.compile': ('--compile',)}
# Key of a result, heading, format.
_COLUMNS = (
    ('seconds', 'time s', '{:.4f}'),
    ('p99', '99 %', '{:.4f}'),
    ('images_per_second', 'images/s', '{:.1f}'),
    ('share', 'share', '{:.3f}'),
    ('peak_memory', 'peak MB', '{:.0f}'),
)


def run(options: argparse.Namespace) -> None:
    """Measures every file that is asked for and there; prints a table and writes JSON."""
    wanted = list(itertools.product(options.work, options.precision, options.batch_size))
    names = {job: gpu_files.file_name(*job) for job in wanted}
    jobs = [job for job in wanted if (options.directory / f'{names[job]}.json').is_file()]
    if not jobs:
        raise SystemExit(f'--directory: expected files of `export`. Received: {options.directory}.')
    if options.here:
        function = gpu_files.read(options.directory, gpu_files.file_name(*jobs[0]))
        print(json.dumps(measure(function, options.steps)))
        return
    print(_WORK)
    missing = [names[job] for job in wanted if job not in jobs]
    if missing:
        print(f'not exported, and left out: {", ".join(missing)}')
    path = options.json or options.directory / 'results.json'
    # Without a limit of time all is measured: the files may be others now.
    rows = _earlier_rows(path) if options.minutes else {}
    piece = Piece(options.minutes)
    try:
        for job in jobs:
            row = rows.setdefault(job, {'job': list(job)})
            for name in _missing(row, options):
                row[name] = piece.run(_command(name, job, row, options))
                _write(path, rows)
            print('\n'.join(report(row)), flush=True)
    except subprocess.TimeoutExpired:
        print(f'{options.minutes:g} minutes are over: the same command measures what is left')
    if not all(row['ours'].get('agrees', True) for row in rows.values() if 'ours' in row):
        raise SystemExit('Not all functions give what TensorFlow gives on a CPU.')


class Piece:
    """The time that one call of the program has; rows that do not fit in are left to the next.

    Args:
      minutes: how many; None for no limit.
    """

    def __init__(self, minutes: float | None):
        self._seconds = None if minutes is None else 60 * minutes
        self._start = time.monotonic()
        self._is_fresh = True

    def run(self, command: Sequence[str]) -> dict:
        """Runs a measurement in its own process; one that fails, e.g. for memory, is a result too.

        So is one that takes longer than a whole piece.

        Raises:
          subprocess.TimeoutExpired: if the piece ends before the measurement.
        """
        left, is_first = None, self._is_fresh
        self._is_fresh = False
        if self._seconds is not None:
            left = max(self._start + self._seconds - time.monotonic(), 0)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            if not is_first:
                raise
            return {'problem': f'took more than {self._seconds / 60:g} minutes'}
        lines = done.stdout.splitlines()
        if done.returncode == 0 and lines and lines[-1].startswith('{'):
            return json.loads(lines[-1])
        problem = done.stderr.strip().splitlines()[-1:] or [f'exit status {done.returncode}']
        return {'problem': problem[0][:500]}


def _earlier_rows(path: pathlib.Path) -> dict[tuple, dict]:
    """Returns what earlier calls have measured, by job."""
    if not path.is_file():
        return {}
    return {tuple(row['job']): row for row in json.loads(path.read_text())}


def _write(path: pathlib.Path, rows: dict[tuple, dict]) -> None:
    """Replaces the file of results, also if the program is stopped meanwhile."""
    draft = path.with_name(f'{path.name}.partial')
    draft.write_text(json.dumps([row for row in rows.values() if 'ours' in row], indent=1) + '\n')
    draft.replace(path)


def _missing(row: dict, options: argparse.Namespace) -> list[str]:
    """Returns what is to be measured for a row; ours comes first: its device is the peer's."""
    wanted = ('ours', *_PEERS) if options.torchvision else ('ours',)
    return [name for name in wanted if name not in row]


def _command(
    name: str, job: tuple[str, str, int], row: dict, options: argparse.Namespace
) -> list[str]:
    if name == 'ours':
        return _ours(job, options)
    return [*_peer(job, row['ours'], options), *_PEERS[name]]


def _ours(job: tuple[str, str, int], options: argparse.Namespace) -> list[str]:
    kind, precision, batch_size = job
    words = [sys.executable, str(_FOLDER / 'gpu.py'), 'run', '--here', '--work', kind]
    words += ['--precision', precision, '--batch_size', str(batch_size)]
    return [*words, '--directory', str(options.directory), '--steps', str(options.steps)]


def _peer(job: tuple[str, str, int], ours: dict, options: argparse.Namespace) -> list[str]:
    kind, precision, batch_size = job
    name = gpu_files.file_name(*job)
    height, width = gpu_files.read(options.directory, name).image_size
    words = [options.torchvision, str(_FOLDER / 'peers' / 'torchvision_step.py'), '--work', kind]
    words += ['--precision', precision, '--batch_size', str(batch_size)]
    words += ['--height', str(height), '--width', str(width), '--steps', str(options.steps)]
    words += ['--device', 'cpu' if ours.get('platform') == 'cpu' else 'cuda', '--warmup', '3']
    return [*words, '--channels_last'] if options.channels_last else words


def report(row: dict) -> Iterator[str]:
    """Lines about a job: ours, the peer's, how many times as fast and what differs."""
    kind, precision, batch_size = row['job']
    title = f'{kind} {precision}, batch size {batch_size}'
    if 'device' in row['ours']:
        title += f', {row["ours"]["device"]} ({row["ours"]["matmul_rate"] / 1e3:.3g} TFLOP/s)'
    yield title
    for name in ('ours', *_PEERS):
        if name not in row:
            continue
        result = row[name]
        if 'problem' in result:
            yield f'  {name:<13} failed: {result["problem"]}'
            continue
        cells = [
            f'{heading} {shown.format(result[key])}'
            for key, heading, shown in _COLUMNS
            if key in result
        ]
        yield f'  {name:<13} ' + '  '.join(cells)
    for name in _PEERS:
        if all('seconds' in row.get(side, {}) for side in ('ours', name)):
            ratio = row[name]['seconds'] / row['ours']['seconds']
            same = row['ours']['is_peers_work']
            yield f'  {ratio:.2f} times as fast as {name}' + ('' if same else ' on other work')
    differences = row['ours'].get('differences')
    if differences:
        worst = max(differences, key=differences.get)
        verdict = 'agrees with' if row['ours']['agrees'] else 'DIFFERS FROM'
        yield f'  {verdict} TensorFlow on a CPU; at most by {differences[worst]:.1e} ({worst})'


def measure(function: gpu_files.Function, steps: int) -> dict:
    """Times a function on JAX's default device; `seconds` is the median, memory in MB."""
    import jax

    # The count of steps.
    jax.config.update('jax_enable_x64', True)
    device = jax.devices()[0]
    start = time.perf_counter()
    execute, planned = compiled(function)
    compiling = time.perf_counter() - start
    arguments = [jax.device_put(array) for array in gpu_files.random_arguments(function)]
    times, found = [], []
    for _ in range(3 + steps):
        start = time.perf_counter()
        results = jax.block_until_ready(execute(*arguments))
        times.append(time.perf_counter() - start)
        if len(found) < len(function.expected):
            found.append(_named(function, results))
        for result, value in zip(function.results, results, strict=True):
            if result.replaces is not None:
                arguments[result.replaces] = value
    times = times[3:]
    peak = (device.memory_stats() or {}).get('peak_bytes_in_use', planned)
    rate, seconds = matmul_rate(), statistics.median(times)
    return {
        'work': function.work,
        'precision': function.precision,
        'batch_size': function.batch_size,
        'platform': device.platform,
        'device': device.device_kind,
        'version': f'jax {jax.__version__}',
        'compile_seconds': compiling,
        'seconds': seconds,
        'mean': statistics.mean(times),
        **{f'p{percent}': float(np.percentile(times, percent)) for percent in _PERCENTILES},
        'images_per_second': function.batch_size / statistics.mean(times),
        'is_peers_work': function.is_peers_work,
        'gigaflop': function.gigaflop,
        'matmul_rate': rate,
        'share': function.gigaflop / seconds / rate,
        'peak_memory': peak / 1e6,
        'planned_memory': planned / 1e6,
        'differences': differences(found, function.expected),
        'agrees': agrees(function, found),
    }


def compiled(function: gpu_files.Function) -> tuple[Callable, int]:
    """Compiles a function; returns it, and the bytes that it needs by XLA's plan.

    JAX has a format of its own for exported functions, of which the StableHLO is one field: another
    function with the same arguments and results, exported here, gives the others. Arguments that
    are replaced are donated.
    """
    import jax
    import jax.export
    import jax.numpy as jnp

    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in function.arguments]

    def other(*arguments: Any) -> list:
        return [jnp.zeros(result.shape, result.dtype) for result in function.results]

    template = jax.export.export(jax.jit(other, keep_unused=True))(*shapes)
    exported = dataclasses.replace(template, mlir_module_serialized=function.module)
    replaced = [r.replaces for r in function.results if r.replaces is not None]
    execute = jax.jit(exported.call, donate_argnums=replaced, keep_unused=True)
    compiled = execute.lower(*shapes).compile()
    plan = compiled.memory_analysis()
    size = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
    return compiled, size - plan.alias_size_in_bytes


def matmul_rate() -> float:
    """GFLOP/s of large matrix products in bfloat16, the median of a few."""
    import jax
    import jax.numpy as jnp

    side = _MATRIX_SIDE.get(jax.devices()[0].platform, _ACCELERATORS_MATRIX_SIDE)
    matrix = jax.random.normal(jax.random.key(0), (side, side), jnp.bfloat16)
    multiply = jax.jit(lambda a, b: a @ b)
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        jax.block_until_ready(multiply(matrix, matrix))
        seconds.append(time.perf_counter() - start)
    return 2 * side**3 / statistics.median(seconds) / 1e9


def _named(function: gpu_files.Function, results: Sequence[Any]) -> dict[str, np.ndarray]:
    """The results that replace no argument."""
    pairs = zip(function.results, results, strict=True)
    return {r.name: np.asarray(value) for r, value in pairs if r.replaces is None}


def agrees(function: gpu_files.Function, found: Sequence[dict[str, np.ndarray]]) -> bool:
    """Whether each call gave what is expected of it, by the limits of `agreement`."""
    compare = agreement.detections if function.work == 'inference' else agreement.losses
    return all(
        compare(call, {n: np.asarray(v) for n, v in wanted.items()}, function.precision)['agrees']
        for call, wanted in zip(found, function.expected, strict=True)
    )


def differences(
    found: Sequence[dict[str, np.ndarray]], expected: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """The largest difference of each result, as a part of the largest value expected of it."""
    largest = {}
    for call, wanted in zip(found, expected, strict=True):
        for name, values in wanted.items():
            scale = max(np.abs(values).max(), 1e-9)
            difference = float(np.abs(call[name] - np.asarray(values)).max() / scale)
            # Unlike Python's `max`, it keeps NaN.
            largest[name] = float(np.maximum(difference, largest.get(name, 0.0)))
    return largest
