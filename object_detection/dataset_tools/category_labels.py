"""The integer labels and texts that stand for a data set's categories in its TFRecords."""

import json
from typing import Any, NamedTuple

from apache_beam.io.filesystems import FileSystems
from google.protobuf import text_format

from object_detection.data import label_map as label_map_reader
from object_detection.protos import string_int_label_map_pb2


class CategoryLabel(NamedTuple):
    """What the examples hold for a category.

    Attributes:
      label: integer >= 1.
      text: name; no other category of the data set has the same.
    """

    label: int
    text: str


def from_categories(categories: list[dict[str, Any]]) -> dict[Any, CategoryLabel]:
    """Returns category id -> label: the id itself, and the name, made fit to be looked up.

    Readers look objects up by their text. So control characters and spaces at the ends go, an
    empty name becomes `category_ID`, and of equal names all but the first get `_ID` appended.

    Raises:
      ValueError: if an id is not an integer >= 1 or is given twice.
    """
    labels: dict[Any, CategoryLabel] = {}
    texts: set[str] = set()
    for category in categories:
        category_id = category['id']
        if not isinstance(category_id, int) or category_id < 1 or category_id in labels:
            raise ValueError(
                'Category ids must be different integers >= 1, as 0 stands for the background in '
                'a label map; a label map of your own (--label_map) can give the categories other '
                f'numbers by name. Received: {json.dumps(category)[:200]}.'
            )
        text = _clean(str(category['name'])) or f'category_{category_id}'
        while text in texts:
            text = f'{text}_{category_id}'
        texts.add(text)
        labels[category_id] = CategoryLabel(category_id, text)
    return labels


def from_label_map(
    categories: list[dict[str, Any]], label_map: string_int_label_map_pb2.StringIntLabelMap
) -> dict[Any, CategoryLabel]:
    """Returns category id -> label of the item with its name, for the categories that have one.

    A category is the item whose `name`, or else whose `display_name`, is the category's name. The
    background item (id 0) is none.
    """
    items = [item for item in label_map.item if item.id > 0]
    by_name = {item.display_name: item for item in items if item.display_name}
    by_name |= {item.name: item for item in items if item.name}
    matched = {
        category['id']: by_name.get(_clean(str(category['name']))) for category in categories
    }
    return {
        category_id: CategoryLabel(item.id, item.name or item.display_name)
        for category_id, item in matched.items()
        if item is not None
    }


def label_map_of(labels: dict[Any, CategoryLabel]) -> string_int_label_map_pb2.StringIntLabelMap:
    """Returns the label map of all categories, in their order."""
    label_map = string_int_label_map_pb2.StringIntLabelMap()
    for label in labels.values():
        label_map.item.add(name=label.text, id=label.label)
    return label_map


def add_keypoints(
    label_map: string_int_label_map_pb2.StringIntLabelMap,
    labels: dict[Any, CategoryLabel],
    categories: list[dict[str, Any]],
) -> None:
    """Adds to the items of `label_map` the keypoints that their categories list, in place."""
    items = {item.id: item for item in label_map.item}
    for category in categories:
        if category['id'] in labels:
            item = items[labels[category['id']].label]
            for index, name in enumerate(category.get('keypoints', [])):
                item.keypoints.add(id=index, label=name)


def read_label_map(path: str) -> string_int_label_map_pb2.StringIntLabelMap:
    """Reads a label map by the rules of `data.label_map`, from wherever Beam reads.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: as `data.label_map.load`.
    """
    if not FileSystems.exists(path):
        raise FileNotFoundError(f'There is no label map {path}.')
    with FileSystems.open(path) as file:
        proto = label_map_reader.parse(file.read(), path)
    label_map_reader.classes(proto, path)  # only for its errors
    return proto


def to_text(label_map: string_int_label_map_pb2.StringIntLabelMap) -> str:
    return text_format.MessageToString(label_map, as_utf8=True)


def _clean(name: str) -> str:
    return ''.join(letter if letter.isprintable() else ' ' for letter in name).strip()
