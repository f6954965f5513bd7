"""The part of an error message that suggests what the user probably meant."""

import difflib
import functools
from collections.abc import Iterator, Sequence

from google.protobuf.descriptor import Descriptor, EnumDescriptor

from object_detection.errors import format_list
from object_detection.protos import pipeline_pb2, string_int_label_map_pb2

_MAX_NAMES = 12
# What is known of a type that only the reference implementation has.
NOT_BUILT = ', a feature extractor of the reference implementation that is not built here'


def unknown_field(message: Descriptor, name: str) -> str:
    """Returns a sentence for a field `name` that `message` does not have."""
    names = [field.name for field in message.fields]
    start = f'{message.name} has no field `{name}`'
    if not names:
        return f'{start}; it has no fields at all.'
    nearest = difflib.get_close_matches(name, names, n=1)
    if nearest:
        return f'{start}; did you mean `{nearest[0]}`?'
    owners = _owners().get(name, ())
    elsewhere = f' (`{name}` is a field of {format_list(owners, _MAX_NAMES)})' if owners else ''
    return f'{start}; its fields: {field_list(message)}{elsewhere}.'


def unknown_value(enum: EnumDescriptor, name: str) -> str:
    """Returns a sentence for a value `name` that `enum` does not have."""
    names = [value.name for value in enum.values]
    return f'{enum.name} has no value `{name}`; its values: {", ".join(names)}.'


def unknown_choice(
    name: str,
    choices: Sequence[str],
    *,
    similar: Sequence[str] | None = None,
    cutoff: float = 0.6,
    note: str = '',
) -> str:
    """Returns what continues the name of a field whose value is none of its many choices.

    What helps most precedes the list of choices.

    Args:
      name: the value.
      choices: the values that the field may have.
      similar: those of which the nearest one is suggested; None takes all.
      cutoff: least similarity of a suggestion, 0 to 1.
      note: what is known of the value, in place of a suggestion, such as ', which is not built'.
    """
    expected = f'xpected one of {", ".join(choices)}.'
    near = difflib.get_close_matches(name, choices if similar is None else similar, 1, cutoff)
    if note or near:
        hint = f'{note}.' if note else f'; did you mean {near[0]!r}?'
        return f'Received: {name!r}{hint} E{expected}'
    return f'e{expected} Received: {name!r}.'


def field_list(message: Descriptor) -> str:
    """Returns the names of the first dozen fields of a message."""
    return format_list((field.name for field in message.fields), _MAX_NAMES)


def reachable_messages(root: Descriptor) -> Iterator[Descriptor]:
    """Yields `root` and every message type reachable through its fields, each once."""
    seen, waiting = set(), [root]
    while waiting:
        message = waiting.pop()
        if message.full_name in seen:
            continue
        seen.add(message.full_name)
        yield message
        waiting += [field.message_type for field in message.fields if field.message_type]


@functools.cache
def _owners() -> dict[str, list[str]]:
    """Returns field name -> messages that have it, including the often confused label maps."""
    roots = (
        pipeline_pb2.TrainEvalPipelineConfig.DESCRIPTOR,
        string_int_label_map_pb2.StringIntLabelMap.DESCRIPTOR,
    )
    owners: dict[str, list[str]] = {}
    for root in roots:
        for message in reachable_messages(root):
            for field in message.fields:
                owners.setdefault(field.name, []).append(message.name)
    return owners
