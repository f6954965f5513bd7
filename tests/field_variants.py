"""Sets each field of a message in turn, also below messages that it does not set."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from object_detection.config import ranges, walk

M = TypeVar('M', bound=Message)
Path = tuple[str | int, ...]
# Name of a message -> what it needs before its other fields can be set.
SETTINGS = {
    'box_encodings_clip_range': 'min: -2 max: 2',
    'flexible_grid_anchor_generator': 3
    * 'anchor_grid { base_sizes: 8 aspect_ratios: 1 height_stride: 8 width_stride: 8 }',
    'grid_anchor_generator': 'scales: 1 aspect_ratios: 1',
    'group_norm': 'groups: 1',
    'keypoint_head': 'num_keypoints: 2',
    'min_dimension_range': 'min: 20 max: 30',
    'multiscale_anchor_generator': 'max_level: 5 aspect_ratios: 1',
    'operations': 'min_aspect_ratio: 0.5 max_aspect_ratio: 2 min_area: 0.1 max_area: 1',
    'temperature_scaling_calibration': 'scaler: 2',
    'x_y_pairs': 'x_y_pair { x: 0 y: 0.1 } x_y_pair { x: 1 y: 0.9 }',
}
_INTEGERS = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
_UNSIGNED = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
_MAX_VALUES = 4


class Variant(NamedTuple):
    """A message with another value of one field, and the message without it.

    Attributes:
      path: names of fields, and indexes of lists.
      root: the message that the path begins in.
      base: the root with the old value.
      is_empty: whether it only has an empty message more, which may say nothing.
    """

    path: Path
    root: Message
    base: Message
    is_empty: bool = False

    @property
    def place(self) -> str:
        """The path as errors and warnings have it, such as 'ssd.loss.localization_weight'."""
        parts = (f'[{part}]' if isinstance(part, int) else f'.{part}' for part in self.path)
        return ''.join(parts)[1:]

    @property
    def field(self) -> str:
        return next(part for part in reversed(self.path) if isinstance(part, str))


def variants(root: Message, places: Iterable[str]) -> Iterator[list[Variant]]:
    """Yields, field by field, the messages in which one has another value.

    Fields that the schema marks as unread are left out. Of messages of the same type that are not
    set, the fields of one are set.

    Args:
      root: a message.
      places: paths of the fields to set, with all below them.
    """
    seen: set[str] = set()
    for place in places:
        *parents, name = place.split('.')
        yield from _variants(root, tuple(parents), seen, (name,))


def _variants(
    root: Message, path: Path, seen: set[str], names: tuple[str, ...] = ()
) -> Iterator[list[Variant]]:
    message = _at(root, path)
    seen.add(message.DESCRIPTOR.full_name)
    for field in message.DESCRIPTOR.fields:
        if (names and field.name not in names) or ranges.options(field).is_unread:
            continue
        place = (*path, field.name)
        if walk.is_map(field):
            yield [Variant(place, _with_entry(root, place, field), root)]
        elif field.message_type is None:
            values = _values(field, getattr(message, field.name))
            yield [Variant(place, _with_value(root, place, value), root) for value in values]
        elif field.is_repeated and getattr(message, field.name):
            yield [Variant(place, _with_message(root, place), root)]
            for index in range(len(_at(root, place))):
                yield from _variants(root, (*place, index), seen)
        elif not field.is_repeated and message.HasField(field.name):
            yield from _variants(root, place, seen)
        else:
            is_empty = bool(field.message_type.fields) and not field.containing_oneof
            yield [Variant(place, _with_message(root, place), root, is_empty)]
            if field.message_type.full_name not in seen:
                base = _with_message(root, place, SETTINGS.get(field.name, ''))
                yield from _variants(base, (*place, 0) if field.is_repeated else place, seen)


def _with_message(root: Message, path: Path, text: str = '') -> Message:
    changed = _copy(root)
    found = _at(changed, path)
    found = found.add() if hasattr(found, 'add') else found
    found.SetInParent()
    text_format.Merge(text, found, allow_unknown_field=True)  # of one of several messages
    return changed


def _with_entry(root: Message, path: Path, field: FieldDescriptor) -> Message:
    changed = _copy(root)
    entries, types = _at(changed, path), field.message_type.fields_by_name
    key, value = (1 if types[name].default_value == 0 else '1' for name in ('key', 'value'))
    if types['value'].message_type is not None:
        entries.get_or_create(key)
    else:
        entries[key] = value
    return changed


def _with_value(root: Message, path: Path, value: Any) -> Message:
    changed = _copy(root)
    parent, name = _at(changed, path[:-1]), str(path[-1])
    if parent.DESCRIPTOR.fields_by_name[name].is_repeated:
        getattr(parent, name).append(value)
    else:
        setattr(parent, name, value)
    return changed


def _values(field: FieldDescriptor, now: Any) -> list[Any]:
    """Returns a few values that a field does not have, within its range where there are some."""
    if field.is_repeated:
        now = now[-1] if now else field.default_value or 0
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        values = [not now]
    elif field.enum_type is not None:
        values = [value.number for value in field.enum_type.values]
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        values = ['other']
    elif field.cpp_type in _INTEGERS + _UNSIGNED:
        values = [now + 1, now // 2, 1, 2, 3, 8]
    else:
        values = [now / 2, now + 0.25, 2 * now + 1, 0.25, 0.75]
    bounds = ranges.options(field).range
    usable = [value for value in values if value != now]
    inside = [value for value in usable if bounds is None or ranges.is_in(value, bounds)]
    return list(dict.fromkeys(inside or usable))[:_MAX_VALUES]


def _at(message: Any, path: Path) -> Any:
    for part in path:
        message = message[part] if isinstance(part, int) else getattr(message, part)
    return message


def _copy(message: M) -> M:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
