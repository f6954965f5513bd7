"""Reads label maps, which assign the ids of classes in files."""

import os
from typing import NamedTuple

from google.protobuf import message, text_format

from object_detection.errors import UserError
from object_detection.protos import string_int_label_map_pb2

_BACKGROUND = 'background'


class LabelMap(NamedTuple):
    """The classes of a data set; ids are 1-based, as in records and exported detections.

    Attributes:
      categories: {'id': int, 'name': str} for each class, in the file's order, with the displayed
        name (`display_name` if there is one). The background item is left out.
      name_to_id: `name` -> id; `display_name` -> id for items without a name.
      text_to_id: `name` and `display_name` -> id: the valid texts of image/object/class/text.
    """

    categories: list[dict]
    name_to_id: dict[str, int]
    text_to_id: dict[str, int]


def load(path: str) -> LabelMap:
    """Reads a StringIntLabelMap, as text or binary proto.

    Raises:
      ValueError: if `path` is not a file or not a label map, or if an item has no name, no positive
        id (0 is valid only for 'background'), or the same id or name as another item.
    """
    path = os.fspath(path)
    return classes(parse(_read(path), path), path)


def _read(path: str) -> bytes:
    if '://' in path:
        # TensorFlow takes seconds to import, and most label maps are local files.
        import tensorflow as tf

        try:
            return tf.io.gfile.GFile(path, 'rb').read()
        except tf.errors.OpError as error:
            raise UserError(f'Label map {path} cannot be read: {error.message}.') from error
    try:
        with open(path, 'rb') as file:
            return file.read()
    except OSError as error:
        raise UserError(f'Label map {path} cannot be read: {error.strerror}.') from error


def classes(proto: string_int_label_map_pb2.StringIntLabelMap, path: str) -> LabelMap:
    """Returns the classes of a label map; `path` names it in errors.

    Raises:
      ValueError: as `load`.
    """
    if not proto.item:
        raise UserError(f'Label map {path}: expected at least one `item`. Received: none.')
    name_to_id, text_to_id, categories = {}, {}, []
    for item in proto.item:
        _check_item(item, path)
        name = item.name or item.display_name
        if name in name_to_id or item.id in name_to_id.values():
            raise UserError(
                f'Label map {path}: names and ids must be distinct. '
                f'Received: {name!r} = {item.id} beside {name_to_id}.'
            )
        name_to_id[name] = item.id
        for text in filter(None, (item.name, item.display_name)):
            if text_to_id.setdefault(text, item.id) != item.id:
                raise UserError(
                    f'Label map {path}: no two items may share a name or display_name. '
                    f'Received: {text!r} for the ids {text_to_id[text]} and {item.id}.'
                )
        if item.id > 0:
            categories.append({'id': item.id, 'name': item.display_name or item.name})
    return LabelMap(categories, name_to_id, text_to_id)


def differing_ids(first: LabelMap, second: LabelMap) -> list[tuple[int, str, str]]:
    """Finds the ids that two label maps give to different classes.

    Classes are the same if a `name` or `display_name` is equal, ignoring case and surrounding
    spaces.

    Returns:
      (id, name in the first, name in the second) of each such id in both.
    """
    texts = [_texts_by_id(labels) for labels in (first, second)]
    names = [{each['id']: each['name'] for each in labels.categories} for labels in (first, second)]
    return [
        (number, names[0][number], names[1][number])
        for number in names[0]
        if number in names[1] and not texts[0][number] & texts[1][number]
    ]


def are_swapped(first: LabelMap, second: LabelMap) -> bool:
    """Whether a class has one id in the first label map and another id in the second."""
    ids = [
        {text: number for number, texts in _texts_by_id(labels).items() for text in texts}
        for labels in (first, second)
    ]
    return any(text in ids[1] and ids[1][text] != number for text, number in ids[0].items())


def _texts_by_id(labels: LabelMap) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for text, number in labels.text_to_id.items():
        found.setdefault(number, set()).add(text.strip().casefold())
    return found


def parse(content: bytes, path: str) -> string_int_label_map_pb2.StringIntLabelMap:
    """Parses the content of a label map's file, text or binary; `path` names it in errors.

    Raises:
      ValueError: if it is neither.
    """
    proto = string_int_label_map_pb2.StringIntLabelMap()
    try:
        return text_format.Parse(content.decode(), proto)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        try:
            return string_int_label_map_pb2.StringIntLabelMap.FromString(content)
        except message.DecodeError:
            raise UserError(
                f'{path} is not a label map (expected `item {{ name: "cat" id: 1 }}` ...). '
                f'Received: {error}'
            ) from error


def _check_item(item: string_int_label_map_pb2.StringIntLabelMapItem, path: str) -> None:
    if not (item.name or item.display_name):
        raise UserError(f'Label map {path}: every item needs a name. Received: id {item.id}.')
    if item.id < 0 or (item.id == 0 and item.name != _BACKGROUND):
        raise UserError(
            f'Label map {path}: ids must be positive; 0 is kept for the item named '
            f'{_BACKGROUND!r}. Received: {item.name or item.display_name!r} = {item.id}.'
        )
