"""The number format that a detector computes in."""

import contextlib
import logging
import pathlib
import re
from collections.abc import Iterator

import keras
import tensorflow as tf

from object_detection.config import report
from object_detection.config.job_options import PRECISION_ALIASES
from object_detection.errors import UserError
from object_detection.protos import train_pb2

_logger = logging.getLogger(__name__)

FLOAT32, TF32 = 'float32', 'tf32'
BFLOAT16, FLOAT16 = 'mixed_bfloat16', 'mixed_float16'
# Name, that of the enum in lower case -> dtype policy of the layers. Variables, coders,
# suppression and losses stay float32 in each.
POLICIES = {FLOAT32: 'float32', TF32: 'float32', BFLOAT16: BFLOAT16, FLOAT16: FLOAT16}
# Names of the 16-bit instructions of x86 and ARM processors.
_INSTRUCTIONS = {
    BFLOAT16: ('avx512_bf16', 'amx_bf16', 'bf16'),
    FLOAT16: ('avx512_fp16', 'amx_fp16', 'asimdhp'),
}
_CPU_FACTS = pathlib.Path('/proc/cpuinfo')


def canonical(name: str) -> str:
    """Returns the key of `POLICIES` for a name or an alias.

    Raises:
      ValueError: if it is no known precision.
    """
    found = PRECISION_ALIASES.get(name, name)
    if found not in POLICIES:
        known = ', '.join([*POLICIES, *PRECISION_ALIASES])
        raise UserError(f'precision: expected one of {known}. Received: {name}.')
    return found


def resolve(config: train_pb2.TrainConfig, flag: str | None, *, use_tpu: bool = False) -> str:
    """Decides the precision: the flag, else `precision`, else `use_bfloat16` on TPUs.

    Args:
      config: the pipeline's train_config.
      flag: the value of the command line, or None.
      use_tpu: whether the model runs on TPUs.

    Returns:
      A key of `POLICIES`.

    Raises:
      ValueError: if the flag is no known precision.
    """
    chosen = name_of(config.precision) if flag is None else canonical(flag)
    if config.use_bfloat16 and flag is None and not config.HasField('precision'):
        if use_tpu:
            return BFLOAT16
        _logger.info(
            'train_config.use_bfloat16 acts only on TPUs (--use_tpu); computing in %s. Use '
            'train_config.precision: MIXED_BFLOAT16 or --precision=mixed_bfloat16 elsewhere.',
            chosen,
        )
    return chosen


def write(config: train_pb2.TrainConfig, flag: str | None, *, use_tpu: bool = False) -> str:
    """Writes what `resolve` decides into the config; arguments, result and errors as there.

    What the flag's precision has not goes: a loss scale but with float16, exemptions with TF32.
    """
    chosen = resolve(config, flag, use_tpu=use_tpu)
    if chosen != name_of(config.precision):
        config.precision = train_pb2.TrainConfig.Precision.Value(chosen.upper())
        if chosen != FLOAT16:
            config.ClearField('loss_scale')
        if chosen == TF32:
            config.ClearField('precision_exempt_patterns')
    return chosen


def name_of(precision: int) -> str:
    """Returns the key of `POLICIES` for a value of `TrainConfig.Precision`."""
    return canonical(train_pb2.TrainConfig.Precision.Name(precision).lower())


@contextlib.contextmanager
def scope(precision: str) -> Iterator[None]:
    """A scope in which new layers compute in `precision`, and products on GPUs follow it.

    TensorFlow uses TF32 for products of float32 by default; here only `tf32` does, and float32
    products stay float32. The setting applies when a graph runs, not when it is built, so
    training and inference must be in the scope too. The previous settings are restored afterwards.
    """
    precision = canonical(precision)
    policy = keras.config.dtype_policy()
    uses_tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    keras.config.set_dtype_policy(POLICIES[precision])
    tf.config.experimental.enable_tensor_float_32_execution(precision == TF32)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        tf.config.experimental.enable_tensor_float_32_execution(uses_tf32)


def warn_if_not_faster(precision: str) -> None:
    """Warns, once in a job, if a precision is not faster on the devices of this machine."""
    precision = canonical(precision)
    devices = {device.device_type for device in tf.config.list_logical_devices()}
    if precision == FLOAT32 or devices - {'CPU'}:
        return
    if precision == TF32:
        report.current().warn('precision tf32: has no effect on CPUs, which compute in float32.')
        return
    instructions = _cpu_instructions()
    if instructions and not instructions.intersection(_INSTRUCTIONS[precision]):
        report.current().warn(
            f'precision {precision}: this CPU has no instructions for it '
            f'({", ".join(_INSTRUCTIONS[precision][:2])}); expect it to be several times slower '
            'than float32.'
        )


def _cpu_instructions() -> set[str]:
    """Returns the instruction sets of the CPU; nothing if Linux does not report them."""
    try:
        facts = _CPU_FACTS.read_text()
    except OSError:
        return set()
    listed = re.search(r'^(?:flags|Features)\s*:(.*)$', facts, re.MULTILINE)
    return set(listed[1].split()) if listed else set()
