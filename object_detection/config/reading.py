"""Notes which fields of a message its readers read, so that those that nothing reads are found.

`tracked(message)` is a view of a message for whoever builds something of it. What is set and was
not read has no effect; where a builder decides so, it gives the reason with `unused`.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from object_detection.config import walk

M = TypeVar('M', bound=Message)
# Methods of messages that change them.
CHANGING = {
    *('Clear', 'ClearExtension', 'ClearField', 'CopyFrom', 'DiscardUnknownFields', 'MergeFrom'),
    *('MergeFromString', 'ParseFromString', 'SetInParent'),
}


class _Reason:
    """Why a field is not used, and the values that may be set nevertheless (None: the default)."""

    def __init__(self, text: str, harmless: Sequence[Any] | None):
        self.text, self.harmless = text, harmless


@dataclasses.dataclass
class _Notes:
    """What all views of a message share.

    Attributes:
      read: paths of the fields that were read.
      reasons: path of a field -> why it is not used.
      others: path of a message -> why its fields without a reason are not used.
    """

    read: set[str] = dataclasses.field(default_factory=set)
    reasons: dict[str, _Reason] = dataclasses.field(default_factory=dict)
    others: dict[str, str] = dataclasses.field(default_factory=dict)


class _Descriptor:
    """The descriptor of a view's type; errors begin with `full_name`, here the view's path."""

    def __init__(self, descriptor: Descriptor, path: str):
        self._descriptor, self.full_name = descriptor, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._descriptor, name)


class _View:
    """A message that notes what is read of it; `isinstance` takes it for the message itself."""

    __slots__ = ('_message', '_notes', '_path')

    def __init__(self, message: Message, path: str, notes: _Notes):
        for name, value in (('_message', message), ('_path', path), ('_notes', notes)):
            object.__setattr__(self, name, value)

    @property
    def __class__(self) -> type[Message]:
        return type(self._message)

    @property
    def DESCRIPTOR(self) -> Any:  # noqa: N802
        return _Descriptor(self._message.DESCRIPTOR, self._path or self._message.DESCRIPTOR.name)

    def __getattr__(self, name: str) -> Any:
        field = self._message.DESCRIPTOR.fields_by_name.get(name)
        value = getattr(self._message, name)  # also constants and methods
        if field is not None:
            return _noted(self, field, value)
        return self._refuse(name) if name in CHANGING else value

    def _refuse(self, name: str, value: Any = None) -> NoReturn:
        raise AttributeError(f'{self._path}.{name}: a tracked message cannot be changed.')

    __setattr__ = _refuse

    def HasField(self, name: str) -> bool:  # noqa: N802
        """Notes a message: that it is there is all that an empty one says."""
        field = self._message.DESCRIPTOR.fields_by_name.get(name)
        if field is not None and field.message_type is not None:
            self._notes.read.add(_join(self._path, name))
        return self._message.HasField(name)

    def WhichOneof(self, name: str) -> str | None:  # noqa: N802
        """Notes the option that is set."""
        option = self._message.WhichOneof(name)
        if option is not None:
            self._notes.read.add(_join(self._path, option))
        return option

    def ListFields(self) -> list[tuple[FieldDescriptor, Any]]:  # noqa: N802
        """Notes all fields that are set."""
        return [(field, _noted(self, field, value)) for field, value in self._message.ListFields()]

    def __eq__(self, other: object) -> bool:
        return self._message == plain(other)

    __hash__ = None  # type: ignore[assignment]  # as of messages

    def __str__(self) -> str:
        return str(self._message)

    def __repr__(self) -> str:
        return f'tracked({self._message!r})'


def tracked(message: M, path: str = '') -> M:
    """Returns a view of a message that notes the fields that are read, also of messages in it.

    It has the fields and methods of the message, and cannot be changed: lists and maps are copies.
    `DESCRIPTOR.full_name` is its path. Protocol buffers copy no views: `plain` returns the message
    for `CopyFrom` and for checks that use nothing.

    Args:
      message: the message; it must not change while it is tracked.
      path: its path, such as 'model.ssd', the prefix of the paths of its fields.
    """
    return _View(message, path, _Notes())  # type: ignore[return-value]


def plain(message: M) -> M:
    """Returns the message of a view; what is read of it is not noted. Others are returned."""
    return message._message if _is_view(message) else message  # type: ignore[attr-defined]


def unused(
    message: Message,
    fields: str | Iterable[str],
    reason: str,
    *,
    harmless: Sequence[Any] | None = None,
) -> None:
    """Notes why fields are not used, for `unread`; without an effect for a plain message.

    Args:
      message: a view.
      fields: names of its fields; even if something reads them, they count as unread.
      reason: continues 'no effect: PATH (', without a full stop.
      harmless: values that may be set without being reported; None: the default of the schema.
    """
    if _is_view(message):
        for name in [fields] if isinstance(fields, str) else fields:
            path = _join(message._path, name)  # type: ignore[attr-defined]
            message._notes.reasons[path] = _Reason(reason, harmless)  # type: ignore[attr-defined]


def others_unused(message: Message, reason: str) -> None:
    """Notes why those fields of a view are not used that nothing reads and have no reason yet."""
    if _is_view(message):
        message._notes.others[message._path] = reason  # type: ignore[attr-defined]


def unread(view: Message) -> Iterator[tuple[str, str | None]]:
    """Yields the path of each field that is set and was not read, and the reason or None.

    Values that equal the default of the schema are left out. An unread message is one field.

    Args:
      view: of `tracked`, after its readers have run.
    """
    message, path, notes = view._message, view._path, view._notes  # type: ignore[attr-defined]
    for field, value in message.ListFields():
        place = _join(path, field.name)
        reason = notes.reasons.get(place)
        if reason is not None:
            if not _is_harmless(field, value, reason.harmless):
                yield place, reason.text
        elif place not in notes.read:
            if not _is_harmless(field, value, None):
                yield place, notes.others.get(path)
        elif field.message_type is not None:
            for name, each in walk.elements(field, value):
                if isinstance(each, Message):
                    yield from unread(_View(each, place + name, notes))


def located(view: Message, sentence: str) -> str:
    """Returns the message of an error with the path that it begins with, or that of the view.

    Args:
      view: of `tracked`; what it was built from when the error was raised.
      sentence: such as 'model.ssd.matcher.matcher_oneof is not set.' or 'No such type.'.
    """
    path = view._path  # type: ignore[attr-defined]
    located = sentence if sentence.startswith(path) else f'{path}: {sentence}'
    return located.replace(f'{view.DESCRIPTOR.file.package}.', '')


def _is_view(message: object) -> bool:
    return type(message) is _View


def _noted(view: _View, field: FieldDescriptor, value: Any) -> Any:
    """Notes that a field is read; returns its value, with views in place of messages."""
    place = _join(view._path, field.name)
    view._notes.read.add(place)
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if walk.is_map(field):
        if field.message_type.fields_by_name['value'].message_type is None:
            return dict(value)
        return {key: _View(each, f'{place}[{key}]', view._notes) for key, each in value.items()}
    if field.is_repeated:
        return [_View(each, f'{place}[{i}]', view._notes) for i, each in enumerate(value)]
    return _View(value, place, view._notes)


def _is_harmless(field: FieldDescriptor, value: Any, harmless: Sequence[Any] | None) -> bool:
    if field.is_repeated or field.message_type is not None:
        return False
    return value in ((field.default_value,) if harmless is None else harmless)


def _join(path: str, name: str) -> str:
    return f'{path}.{name}' if path else name
