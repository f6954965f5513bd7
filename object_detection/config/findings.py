"""What a finding about a config on a TPU is, and the ones that are alike in all families."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf import text_format
from google.protobuf.message import Message

from object_detection.config import walk
from object_detection.protos.train_pb2 import TrainConfig

_MAX_LENGTH = 60
_SIZES = 'The sizes of images differ, and a TPU compiles a program for fixed shapes.'
_ARGMAX = (
    'argmax_matcher { matched_threshold: 0.5 unmatched_threshold: 0.5 ignore_thresholds: false '
    'negatives_lower_than_unmatched: true force_match_for_each_row: true use_matmul_gather: true }'
)
# The slowest average that the published recipes for TPUs keep: 0.997 is a mean over about 333
# steps. They train for tens of thousands of steps.
SLOWEST_DECAY = 0.997
_FASTER_DECAY = 0.97


class Finding(NamedTuple):
    """A setting that does not fit a TPU, or that is slow or inaccurate there.

    Attributes:
      path: path of the field, such as 'train_config.batch_size'.
      found: its value.
      reason: a sentence.
      write: what to write instead, text proto of a message on the path; '' removes the field.
      is_obstacle: whether the setting does not fit; otherwise it costs speed or accuracy.
    """

    path: str
    found: str
    reason: str
    write: str
    is_obstacle: bool = False


def found(message: Message, name: str) -> str:
    """Returns the value of a field as in a config, and whether it is a default."""
    value = getattr(message, name)
    field = message.DESCRIPTOR.fields_by_name[name]
    if isinstance(value, Message):
        text = text_format.MessageToString(value, as_one_line=True)
        text = f'{{ {text} }}' if text else '{ }'
        return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 5] + '... }'
    if field.enum_type is not None:
        text = field.enum_type.values_by_number[value].name
    else:
        text = str(value).lower() if isinstance(value, bool) else _number(value)
    return text if message.HasField(name) else f'{text}, the default'


def of_flag(message: Message, path: str, name: str, reason: str) -> Iterator[Finding]:
    """Yields a finding of advice if a flag that should be true is false."""
    if not getattr(message, name):
        yield Finding(f'{path}.{name}', found(message, name), reason, f'{name}: true')


def uses_bfloat16(config: TrainConfig) -> bool:
    """Returns whether a training on a TPU computes in bfloat16."""
    return config.use_bfloat16 or config.precision == TrainConfig.MIXED_BFLOAT16


def of_model(model: Message) -> Iterator[Finding]:
    """Yields findings about messages that many families contain."""
    for each in walk.set_fields(model, path='model'):
        rule = _RULES.get(each.field.message_type.name) if each.field.message_type else None
        if rule is not None:
            yield from rule(each.value, each.path)


def _resizer(resizer: Message, path: str) -> Iterator[Finding]:
    kind = resizer.WhichOneof('image_resizer_oneof')
    options = getattr(resizer, kind) if kind else None
    if kind == 'fixed_shape_resizer' or options is None:
        return
    write = 'image_resizer { fixed_shape_resizer { height: 640 width: 640 } }'
    if kind == 'keep_aspect_ratio_resizer':
        if options.pad_to_max_dimension or (options.pad_height and options.pad_width):
            return
        name, side = 'pad_to_max_dimension', options.max_dimension
        path, text = f'{path}.{kind}.{name}', found(options, name)
        reason = f'{_SIZES} With it, all images become {side} x {side} pixels.'
        yield Finding(path, text, reason, f'{name}: true', is_obstacle=True)
        return
    yield Finding(f'{path}.{kind}', found(resizer, kind), _SIZES, write, is_obstacle=True)


def _matcher(matcher: Message, path: str) -> Iterator[Finding]:
    kind = matcher.WhichOneof('matcher_oneof')
    if kind in ('argmax_matcher', 'point_matcher'):
        options = getattr(matcher, kind)
        reason = 'Targets are gathered row by row; a product of matrices is faster on a TPU.'
        yield from of_flag(options, f'{path}.{kind}', 'use_matmul_gather', reason)
    elif kind is not None:
        reason = (
            'It takes one object after the other; a TPU waits for each, and the TensorFlow Object '
            'Detection API has no such program for TPUs.'
        )
        text = found(matcher, kind)
        yield Finding(f'{path}.{kind}', text, reason, _ARGMAX, is_obstacle=True)


def _batch_norm(norm: Message, path: str) -> Iterator[Finding]:
    if norm.train and norm.decay > SLOWEST_DECAY + 1e-6:
        steps = 1 / max(1 - norm.decay, 1e-7)
        reason = (
            f'The moving statistics are means over about {steps:,.0f} steps, too many for a '
            'training of tens of thousands of steps with large batches. Published recipes have '
            f'{_FASTER_DECAY} (33 steps) or {SLOWEST_DECAY} (333 steps).'
        )
        yield Finding(f'{path}.decay', found(norm, 'decay'), reason, f'decay: {SLOWEST_DECAY}')


def _number(value: Any) -> str:
    return f'{value:.6g}' if isinstance(value, float) else str(value)


# Message type -> its rule.
_RULES = {'ImageResizer': _resizer, 'Matcher': _matcher, 'BatchNorm': _batch_norm}
