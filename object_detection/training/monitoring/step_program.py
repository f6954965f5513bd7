"""The XLA program of a training step, read as text: whether an accelerator can run it by itself.

Accelerators such as TPUs compile a step for fixed shapes. The text is that of the program before
the compiler of a device changes it, so that a CPU can tell what a TPU would get.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

# A shape such as f32[2,<=100,4], where 100 is a bound, or f32[2,?,4] without one.
_DYNAMIC = re.compile(r'\b[a-z]+[0-9a-z]*\[[^\]]*(?:<=|\?)[^\]]*\]')
_INSTRUCTION = re.compile(
    r'^\s+(?:ROOT )?%?\S+ = (?P<shape>\(.*?\)|\S+) (?P<opcode>[a-z][a-z0-9-]*)\('
)
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
# Instructions that exchange data with the host in the midst of a program, or that only one kind of
# device has.
_HOST_OPERATIONS = ('custom-call', 'infeed', 'outfeed', 'send', 'recv')


class Instruction(NamedTuple):
    """An instruction that keeps a program from running on any accelerator.

    Attributes:
      kind: its shape if that is dynamic, otherwise its operation.
      op_name: the TensorFlow operation that it is part of; '' if it is not known.
    """

    kind: str
    op_name: str


def dynamic_shapes(text: str) -> list[Instruction]:
    """Returns the instructions whose shapes are not known before the program runs."""
    return [
        Instruction(found[0], op_name)
        for line, _, op_name in _instructions(text)
        if (found := _DYNAMIC.search(line.partition(', metadata=')[0]))
    ]


def host_operations(text: str) -> list[Instruction]:
    """Returns the instructions that the host, or a kernel of one kind of device, computes."""
    found = []
    for line, opcode, op_name in _instructions(text):
        if opcode.removesuffix('-done') in _HOST_OPERATIONS:
            target = _TARGET.search(line)
            found.append(Instruction(f'{opcode} {target[1]}' if target else opcode, op_name))
    return found


def count_operations(text: str) -> Mapping[str, int]:
    """Returns operation -> number of its instructions."""
    return Counter(opcode for _, opcode, _ in _instructions(text))


def _instructions(text: str) -> Iterator[tuple[str, str, str]]:
    """Yields each instruction's line, its operation, and the TensorFlow operation it is part of."""
    for line in text.splitlines():
        found = _INSTRUCTION.match(line)
        if found:
            name = _OP_NAME.search(line)
            yield line, found['opcode'], name[1] if name else ''
