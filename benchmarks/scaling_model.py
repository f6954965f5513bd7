"""How long a training step of many accelerators takes, by what is measured, published and assumed.

`Measured` holds what was measured of this toolkit, with the program that did. Speeds of
accelerators are published by others, link speeds are nominal, and what nobody measured is
`Assumed`. scaling_prediction.py makes tables of it.
"""

import dataclasses
import json
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# Accelerators of a machine.
MACHINE = 8


def _measured(default: float, command: str) -> float:
    return dataclasses.field(default=default, metadata={'command': command})


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was measured of this toolkit, on the two cores of benchmarks/NOTES.md.

    Attributes:
      loop_seconds: of the loop around a step, with one step a call.
      looped_seconds: the same with 100 steps a call.
      process_seconds: what a process costs a step, in processor time, beyond a replica of one
        process, without the reduction.
      ring_rate: bytes a second that each process sends while TensorFlow's own ring (gRPC) adds up.
      images_per_core: images a second that one core decodes and augments, of this recipe.
      start_seconds: from building the input to its first batch.
      skip_record_seconds, skip_byte_seconds: of a record that is skipped by a run that goes on, and
        of each of its bytes, from memory.
      save_seconds: of a checkpoint of the recipe.
      noticed_seconds: until a killed worker is noticed.
      convert_rate: images a processor second, with masks.
      json_seconds, json_bytes: of reading an annotation of a COCO JSON.
      count_seconds: of counting a record.
      paste_seconds: processor seconds of pasting the masks of COCO's 5,000 validation images.
      metrics_seconds: of what the chief computes of them, boxes and masks.
    """

    loop_seconds: float = _measured(0.9e-3, 'hand, benchmarks/NOTES.md')
    looped_seconds: float = _measured(0.12e-3, 'hand, benchmarks/NOTES.md')
    process_seconds: float = _measured(0.0, 'scaling_workers.py')
    ring_rate: float = _measured(322e6, 'scaling_workers.py')
    images_per_core: float = _measured(38.0, 'input_pipeline.py')
    start_seconds: float = _measured(0.96, 'resume.py')
    skip_record_seconds: float = _measured(3.6e-6, 'resume.py')
    skip_byte_seconds: float = _measured(0.77e-9, 'hand, 6,400 records of 163.5 kB')
    save_seconds: float = _measured(1.8, 'hand, three saves of the recipe')
    noticed_seconds: float = _measured(3.0, 'hand, killed workers on loopback')
    convert_rate: float = _measured(57.0, 'conversion.py')
    json_seconds: float = _measured(101e-6, 'scaling.py')
    json_bytes: float = _measured(1800.0, 'scaling.py')
    count_seconds: float = _measured(9.7e-6, 'scaling.py')
    paste_seconds: float = _measured(98.1, 'evaluation.py')
    metrics_seconds: float = _measured(6.0, 'evaluation.py')


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Sizes of `mask_rcnn_resnet50_fpn_832x1344_coco17`, of the model as it is built.

    Attributes:
      trained: numbers that are trained; what is frozen is not reduced.
      first_pass_share: of the GFLOP of a step (1622), those of backbone, pyramid and RPN head
        (420), which a compiled step of several replicas does twice.
      backward_share: of the same, those of the backward pass: all but 570.
    """

    trained: int = 44_190_056
    first_pass_share: float = 420 / 1622
    backward_share: float = 1 - 570 / 1622


@dataclasses.dataclass(frozen=True)
class Assumed:
    """What nobody measured.

    Attributes:
      link_share: of a link's nominal speed that a reduction reaches.
      jitter: standard deviation of the step time of one accelerator, of its mean. The slowest of n
        sets the pace; 0.04 gives the 150 images/s of eight A100 at 19.94 each (NVIDIA, 20.06).
      build_seconds: of building and compiling the first step.
      machine_days: between two failures of a machine.
    """

    link_share: float = 0.8
    jitter: float = 0.04
    build_seconds: float = 120.0
    machine_days: float = 365.0


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """A published speed of this model at 832 x 1344: images a second by images an accelerator."""

    name: str
    speeds: dict[int, float]

    def speed(self, batch: int) -> float:
        """That of the largest published batch that is not larger, or of the smallest one."""
        fitting = [size for size in self.speeds if size <= batch]
        return self.speeds[max(fitting) if fitting else min(self.speeds)]


# NVIDIA's Mask R-CNN for TensorFlow 2, 21.02, one GPU.
ACCELERATORS = {
    'V100': Accelerator('V100 FP32', {2: 7.57, 4: 8.51}),
    'V100-AMP': Accelerator('V100 AMP', {2: 14.47, 4: 19.35}),
    'A100': Accelerator('A100 TF32', {2: 13.44, 4: 18.41}),
    'A100-AMP': Accelerator('A100 AMP', {2: 18.26, 4: 28.58}),
}


@dataclasses.dataclass(frozen=True)
class Network:
    """Nominal speeds in one direction, bytes a second, and assumed seconds of a hop.

    Attributes:
      inside: of an accelerator to others of its machine.
      between: of a machine.
      hop_inside, hop_between: from one to the next.
    """

    name: str
    inside: float
    between: float
    hop_inside: float = 5e-6
    hop_between: float = 20e-6


NETWORKS = {
    'infiniband': Network('8 x 200 Gbit/s InfiniBand', 150e9, 200e9),
    'efa400': Network('400 Gbit/s EFA', 150e9, 50e9),
    'efa100': Network('100 Gbit/s EFA', 150e9, 12.5e9),
    'ethernet25': Network('25 Gbit/s Ethernet', 150e9, 3.125e9, hop_between=50e-6),
    'ethernet10': Network('10 Gbit/s Ethernet', 150e9, 1.25e9, hop_between=50e-6),
    'pcie10': Network('PCIe 3, 10 Gbit/s Ethernet', 12e9, 1.25e9, 10e-6, 50e-6),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a config and a command line say.

    Attributes:
      batch: images of an accelerator.
      jit_compile, in_bfloat16, bytes_per_pack, parts: `train_config.jit_compile`, two fields of its
        `gradient_reduction`, and `gradient_accumulation_steps`.
      uses_nccl: `implementation: NCCL`, or AUTO within a machine; if not, TensorFlow's ring.
      steps_per_loop: the flag.
      cores: for the input of an accelerator.
    """

    batch: int = 4
    jit_compile: bool = True
    in_bfloat16: bool = False
    bytes_per_pack: int = 0
    parts: int = 1
    uses_nccl: bool = True
    steps_per_loop: int = 1
    cores: float = 6.0


class Published(NamedTuple):
    """How another system's speed has grown.

    Attributes:
      name: the system and its accelerators.
      base, count: numbers of accelerators.
      speed: images a second of one.
      network: key of `NETWORKS`.
      efficiency: published speed of `count`, divided by `count / base` times that of `base`.
    """

    name: str
    base: int
    count: int
    speed: float
    network: str
    efficiency: float


# Four images an accelerator. Those of AWS are of hours for 12 epochs, with evaluation.
PUBLISHED = (
    Published('NVIDIA TF2 20.06, A100 AMP', 1, 8, 19.94, 'infiniband', 150.02 / 8 / 19.94),
    Published('NVIDIA TF2 20.06, A100 TF32', 1, 8, 12.68, 'infiniband', 89.93 / 8 / 12.68),
    Published('NVIDIA TF2 20.06, V100 FP32', 1, 8, 6.20, 'infiniband', 40.76 / 8 / 6.20),
    Published('NVIDIA TF2 20.06, V100 AMP', 1, 8, 12.63, 'infiniband', 59.62 / 8 / 12.63),
    Published('NVIDIA TF2 21.02, A100 AMP', 1, 8, 28.58, 'infiniband', 114.45 / 8 / 28.58),
    Published('AWS, V100 FP16', 8, 16, 19.35, 'efa100', 5.09 / 2 / 3.11),
    Published('AWS, V100 FP16', 8, 32, 19.35, 'efa100', 5.09 / 4 / 1.94),
)


@dataclasses.dataclass(frozen=True)
class Model:
    """Predicts a training step.

    Args:
      measured, recipe, assumed: the numbers.
    """

    measured: Measured = Measured()
    recipe: Recipe = Recipe()
    assumed: Assumed = Assumed()

    def step(
        self, accelerator: Accelerator, network: Network, count: int, settings: Settings
    ) -> dict:
        """Returns a row: the seconds of the parts of a step of `count` accelerators, and more."""
        several = count > 1
        compute = settings.batch / accelerator.speed(settings.batch // settings.parts)
        is_plain = not settings.jit_compile and settings.parts == 1
        first_pass = 0.0 if is_plain or not several else self.recipe.first_pass_share * compute
        jitter = self.assumed.jitter * slowest_of(count) * (compute + first_pass)
        reduction = self.reduction(count, network, settings)
        hidden = 0.0
        if is_plain:
            packs = self.packs(settings)
            hidden = min(self.recipe.backward_share * compute, reduction * (packs - 1) / packs)
        host = self.host(count, settings)
        # The input is made meanwhile.
        inputs = settings.batch / (settings.cores * self.measured.images_per_core)
        working = compute + first_pass + jitter + reduction - hidden + host
        step = max(working, inputs)
        return {
            'accelerator': accelerator.name,
            'network': network.name,
            'count': count,
            'batch': settings.batch,
            'compute': compute,
            'first_pass': first_pass,
            'jitter': jitter,
            'reduction': reduction,
            'hidden': hidden,
            'host': host,
            'input': inputs,
            'step': step,
            'images_per_second': count * settings.batch / step,
            'efficiency': compute / step,
            'waits_for': 'input' if inputs > working else 'devices',
        }

    def packs(self, settings: Settings) -> int:
        """How many packs gradients are sent in."""
        if not settings.bytes_per_pack:
            return 1
        return max(1, round(self.gradient_bytes(settings) / settings.bytes_per_pack))

    def gradient_bytes(self, settings: Settings) -> int:
        return self.recipe.trained * (2 if settings.in_bfloat16 else 4)

    def reduction(self, count: int, network: Network, settings: Settings) -> float:
        """Seconds of adding up the gradients, and then the losses, which are a message."""
        size, messages = self.gradient_bytes(settings), self.packs(settings) + 1
        share = self.assumed.link_share
        if not settings.uses_nccl:
            rate = min(share * network.between, self.measured.ring_rate)
            return ring(size, count, rate, network.hop_between, messages)
        inside, machines = min(count, MACHINE), math.ceil(count / MACHINE)
        # Scattered sums, and their collection; in between each machine sends all bytes once.
        return ring(size, inside, share * network.inside, network.hop_inside, messages) + ring(
            size, machines, share * network.between, network.hop_between, messages
        )

    def host(self, count: int, settings: Settings) -> float:
        """Seconds of Python and of being several processes."""
        once, often = self.measured.loop_seconds, self.measured.looped_seconds
        # often = a step + a call / 100, once = a step + a call.
        call = (once - often) / (1 - 1 / 100)
        loop = once - call + call / settings.steps_per_loop
        return loop + (self.measured.process_seconds if count > MACHINE else 0.0)


def ring(size: float, count: int, rate: float, hop: float, messages: int = 1) -> float:
    """Seconds of a ring that adds up `size` bytes over `count` members, in so many messages."""
    return 2 * (count - 1) / count * size / rate + 2 * (count - 1) * hop * messages


def slowest_of(count: int) -> float:
    """The mean of the largest of normal variables, in standard deviations (Blom, 1958)."""
    return statistics.NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def skip_seconds(measured: Measured, images: float, size: float, pipelines: int) -> float:
    """The most seconds that a run that goes on skips records for, read from memory."""
    return (images * measured.skip_record_seconds + size * measured.skip_byte_seconds) / pipelines


def read_measured(folder: pathlib.Path, given: Mapping[str, float | None]) -> Measured:
    """Takes flags, or else results of other programs in `folder`, or else the constants."""
    found = {}
    workers, resume = folder / 'scaling_workers.json', folder / 'resume.json'
    if workers.exists():
        found |= of_workers(json.loads(workers.read_text()))
    if resume.exists():
        found |= of_resume(json.loads(resume.read_text()))
    found |= {name: value for name, value in given.items() if value is not None}
    return Measured(**found)


def of_workers(rows: Sequence[dict]) -> dict[str, float]:
    """What results of scaling_workers.py tell.

    Processes are compared with as many replicas of one process, which do the same work; the fewest,
    since more than there are cores hinder each other.
    """
    by_kind = {(row['kind'], row['count']): row for row in rows if row['count'] > 1}
    found = {}
    processes = {count: row for (kind, count), row in by_kind.items() if kind == 'processes'}
    if processes:
        found['ring_rate'] = max(
            2 * (count - 1) / count * 1e6 * row['megabytes'] / row['reduction_seconds']
            for count, row in processes.items()
        )
    extra = {
        count: (_without_reduction(row) - _without_reduction(by_kind['replicas', count])) / count
        for count, row in processes.items()
        if ('replicas', count) in by_kind
    }
    if extra:
        found['process_seconds'] = max(0.0, extra[min(extra)])
    return found


def _without_reduction(row: dict) -> float:
    return row['cpu_seconds'] - row['reduction_cpu_seconds']


def of_resume(rows: Sequence[dict]) -> dict[str, float]:
    """What results of resume.py tell: its first start, and the one with most records behind."""
    first = rows[0]
    most = max(rows, key=lambda row: row['records'])
    return {
        'start_seconds': first['seconds'],
        'skip_record_seconds': (most['cpu_seconds'] - first['cpu_seconds']) / most['records'],
    }
