"""The machine of a benchmark: what it is, and the devices that a measurement uses."""

import importlib.metadata
import os
import pathlib
import platform
import re
from typing import TYPE_CHECKING, Any

from object_detection.benchmarking.jobs import BenchmarkJob
from object_detection.config.job_options import JobOptions
from object_detection.system import cpu

if TYPE_CHECKING:
    import tensorflow as tf

_CPU_FACTS = pathlib.Path('/proc/cpuinfo')
# Instruction sets of CPUs that kernels of networks use, as Linux calls them.
_INSTRUCTIONS = ('avx2', 'avx512f', 'avx512_vnni', 'avx512_bf16', 'amx_bf16', 'amx_int8', 'asimd')
_PACKAGES = ('object-detection-toolkit', 'tensorflow', 'keras')


def describe() -> dict[str, Any]:
    """Returns the processor, its cores and instruction sets, load, memory and versions."""
    try:
        facts = _CPU_FACTS.read_text()
    except OSError:
        facts = ''
    name = re.search(r'^(?:model name|Model)\s*:\s*(.+)$', facts, re.MULTILINE)
    flags = re.search(r'^(?:flags|Features)\s*:(.*)$', facts, re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    return {
        'cpu': name[1].strip() if name else platform.processor() or platform.machine(),
        'instructions': [each for each in _INSTRUCTIONS if each in known],
        'cores': cpu.num_cores(),
        # How many programs ran before the benchmark; None where the system does not say.
        'load': os.getloadavg()[0] if hasattr(os, 'getloadavg') else None,
        'memory_gb': cpu.total() / 1e9,
        'python': platform.python_version(),
        **{each: _version(each) for each in _PACKAGES},
    }


def set_up_devices(job: BenchmarkJob) -> 'tf.distribute.Strategy':
    """Makes the job's devices visible and builds its strategy, before TensorFlow computes anything.

    Raises:
      ConfigError: if a device does not exist.
    """
    import tensorflow as tf

    from object_detection.training.distribution import devices, strategies
    from object_detection.training.distribution.strategy_choice import Choice

    if job.logical_cpus > 1:
        (device,) = tf.config.list_physical_devices('CPU')
        parts = [tf.config.LogicalDeviceConfiguration()] * job.logical_cpus
        tf.config.set_logical_device_configuration(device, parts)
    choice = Choice(job.strategy)
    devices.set_up(JobOptions(device=job.device), choice=choice)
    return strategies.build(choice)


def device_names() -> list[str]:
    """Returns the names of the GPUs that TensorFlow uses; of the CPUs if there are none."""
    import tensorflow as tf

    gpus = tf.config.get_visible_devices('GPU')
    if not gpus:
        return [each.name for each in tf.config.list_logical_devices('CPU')]
    names = [tf.config.experimental.get_device_details(each).get('device_name') for each in gpus]
    return [
        f'{each.name.removeprefix("/physical_device:")} {name or ""}'.strip()
        for each, name in zip(gpus, names, strict=True)
    ]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return 'not installed'
