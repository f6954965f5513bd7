"""Fields that a message of a model sets, by their paths."""

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import Message


def among(config: Message, paths: Iterable[str], reason: str) -> Iterator[tuple[str, str]]:
    """Yields each of the paths that `is_set` finds, with the reason."""
    return ((path, reason) for path in paths if is_set(config, path))


def is_set(config: Message, path: str, *harmless: Any) -> bool:
    """Returns whether a field is set to a value that is neither its default nor harmless."""
    *parents, name = path.split('.')
    for parent in parents:
        config = getattr(config, parent)
    if not config.HasField(name):
        return False
    value, default = getattr(config, name), config.DESCRIPTOR.fields_by_name[name].default_value
    return isinstance(value, Message) or value not in (default, *harmless)
