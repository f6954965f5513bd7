"""What the schema says about the values of fields, which protos/options.proto explains.

A field has a range, or nothing reads it: then it is ignored, with a warning, or refused. Rules
between fields, and of texts and lists, are those of the builders and of `validation`.
"""

import functools
import math
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldOptions
from google.protobuf.message import Message

from object_detection.config import reading, report, walk
from object_detection.errors import raise_if_any
from object_detection.protos import options_pb2

M = TypeVar('M', bound=Message)

_FINITE = 'a finite number'


class Options(NamedTuple):
    """The options of a field.

    Attributes:
      range: the values that it may have, or None for all.
      ignored: why setting it has no effect; '' for a field that has one.
      refused: what to set instead of it; '' for a field that may be set.
      harmless: values of an ignored or refused field that ask for nothing, as in a config.
    """

    range: options_pb2.Range | None
    ignored: str
    refused: str
    harmless: tuple[str, ...]

    @property
    def is_unread(self) -> bool:
        """Whether nothing reads the field."""
        return bool(self.ignored or self.refused)


class Findings(NamedTuple):
    """What the options say about a config: errors as sentences, warnings as reason -> paths."""

    errors: list[str]
    warnings: dict[str, list[str]]


@functools.cache
def options(field: FieldDescriptor) -> Options:
    """Returns the options of a field of the schema."""
    return read(field.GetOptions())


def read(message: FieldOptions) -> Options:
    """Returns the options of a field from the message of all its options."""
    get = message.Extensions
    return Options(
        get[options_pb2.range] if message.HasExtension(options_pb2.range) else None,
        get[options_pb2.ignored],
        get[options_pb2.refused],
        tuple(get[options_pb2.harmless]),
    )


def find(config: Message, parts: Collection[str] | None = None, *, path: str = '') -> Findings:
    """Compares the fields of a config, at any depth, with their options.

    Args:
      config: a `TrainEvalPipelineConfig`, or a message in one.
      parts: names of the top-level fields to search; None searches all.
      path: path of the message in a `TrainEvalPipelineConfig`.
    """
    config = reading.plain(config)
    errors, warnings = list(_missing(config, path)), defaultdict(list)
    for found in walk.set_fields(config, path=path, skip=lambda field: options(field).is_unread):
        if parts is not None and found.path.partition('.')[0].partition('[')[0] not in parts:
            continue
        rule = options(found.field)
        if rule.range is not None and not is_in(found.value, rule.range):
            errors.append(_sentence(found.path, rule.range, found.value))
        elif rule.is_unread and not _is_harmless(found, rule):
            if rule.refused:
                errors.append(f'{found.path} is not supported: {rule.refused}.')
            else:
                warnings[rule.ignored].append(found.path)
        elif isinstance(found.value, Message) and not rule.is_unread:
            errors += _missing(found.value, found.path)
    return Findings(errors, dict(warnings))


def check(config: Message, *, path: str = '') -> None:
    """Warns about set fields that have no effect; arguments as for `find`.

    Raises:
      ConfigError: for numbers out of their range and fields that ask for missing features; the
        message lists them.
    """
    findings = find(config, path=path)
    report.current().warn_unused(findings.warnings)
    raise_if_any(findings.errors)


def mended(config: M) -> M:
    """Returns a copy whose numbers are in their ranges, to find what else is wrong with a config.

    Those out of their range have the default of the schema, or a bound if that is out of it, too.
    """
    copy = type(config)()
    copy.CopyFrom(config)
    inner = [each.value for each in walk.set_fields(copy) if isinstance(each.value, Message)]
    for message in [copy, *inner]:
        for field in message.DESCRIPTOR.fields:
            bounds, value = options(field).range, getattr(message, field.name)
            if bounds is None:
                continue
            if field.is_repeated:
                value[:] = [each if is_in(each, bounds) else _usable(0, bounds) for each in value]
            elif not is_in(value, bounds) and (bounds.needed or message.HasField(field.name)):
                setattr(message, field.name, _usable(field.default_value, bounds))
    return copy


def _usable(default: float, bounds: options_pb2.Range) -> float:
    """Returns a value in a range: the default, if it is."""
    values = (default, bounds.min, bounds.max, bounds.above + 1, (bounds.above + bounds.below) / 2)
    return type(default)(next(each for each in values if is_in(each, bounds)))


def expected(bounds: options_pb2.Range) -> str:
    """Returns a range in words, such as 'at least 1' or '0 to 1'."""
    names = ('min', 'above', 'max', 'below')
    texts = {name: f'{getattr(bounds, name):g}' for name in names if bounds.HasField(name)}
    match texts:
        case {'min': low, 'max': high}:
            return f'{low} to {high}'
        case {'min': low, 'below': high}:
            return f'{low} to below {high}'
        case {'above': low, 'max': high}:
            return f'above {low}, up to {high}'
        case {'above': low, 'below': high}:
            return f'above {low} and below {high}'
    words = {'min': 'at least', 'max': 'at most'}
    return ''.join(f'{words.get(name, name)} {text}' for name, text in texts.items()) or _FINITE


def _missing(message: Message, path: str) -> Iterator[str]:
    """Yields a sentence for each field of a message that is not set, but needed."""
    for field in message.DESCRIPTOR.fields:
        bounds = options(field).range
        if bounds is not None and bounds.needed and not message.HasField(field.name):
            place = f'{path}.{field.name}' if path else field.name
            yield _sentence(place, bounds, field.default_value, ' (not set)')


def is_in(value: float, bounds: options_pb2.Range) -> bool:
    """Returns whether a range has a value."""
    return (
        math.isfinite(value)
        and (value >= bounds.min or not bounds.HasField('min'))
        and (value <= bounds.max or not bounds.HasField('max'))
        and (value > bounds.above or not bounds.HasField('above'))
        and (value < bounds.below or not bounds.HasField('below'))
    )


def _sentence(path: str, bounds: options_pb2.Range, value: float, remark: str = '') -> str:
    text = expected(bounds)
    if not math.isfinite(value) and text != _FINITE:
        text = f'{_FINITE}, {text}'
    note = f'; {bounds.note}' if bounds.note else ''
    received = f'{value:g}' if isinstance(value, float) else value
    return f'{path}: expected {text}{note}. Received: {received}{remark}.'


def _is_harmless(found: walk.SetField, rule: Options) -> bool:
    field, value = found.field, found.value
    if isinstance(value, Message) or field.is_repeated:
        return False
    return _config_text(field, value) in rule.harmless or (
        not rule.harmless and value == field.default_value
    )


def _config_text(field: FieldDescriptor, value: Any) -> str:
    """Returns the value of a field as a config has it."""
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return str(value).lower() if isinstance(value, bool) else str(value)
