"""Label maps, under the names of the reference; `object_detection.data.label_map` reads them.

It does not import TensorFlow for local files.
"""

import os
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from object_detection.data import label_map as _label_map
from object_detection.protos.string_int_label_map_pb2 import StringIntLabelMap
from object_detection.utils import missing

LabelMapOrPath = StringIntLabelMap | str | os.PathLike

__getattr__ = missing(__name__, {})


def load_labelmap(
    path: str | os.PathLike, validator: Callable[[StringIntLabelMap], None] | None = None
) -> StringIntLabelMap:
    """Reads a label map, as text or binary proto.

    Args:
      path: the file.
      validator: called with the label map, to raise an error of its own.

    Raises:
      ValueError: as `data.label_map.load`.
    """
    proto, _ = _read(path)
    if validator:
        validator(proto)
    return proto


def create_category_index(categories: Iterable[Mapping]) -> dict[int, dict]:
    """Returns id -> category, of dicts with 'id' and 'name'."""
    return {category['id']: category for category in categories}


def create_categories_from_labelmap(
    label_map_path: str | os.PathLike, use_display_name: bool = True
) -> list[dict]:
    """Returns the classes of a file; see `convert_label_map_to_categories`."""
    proto = load_labelmap(label_map_path)
    return convert_label_map_to_categories(proto, get_max_label_map_index(proto), use_display_name)


def create_category_index_from_labelmap(
    label_map_path: str | os.PathLike, use_display_name: bool = True
) -> dict[int, dict]:
    """Returns id -> category of a file, as the functions that draw take it.

    Args:
      label_map_path: a label map, text or binary.
      use_display_name: whether 'name' is the `display_name` of an item that has one.

    Raises:
      ValueError: as `data.label_map.load`.
    """
    return create_category_index(create_categories_from_labelmap(label_map_path, use_display_name))


def create_class_agnostic_category_index() -> dict[int, dict]:
    """Returns the category index of a single class named 'object'."""
    return {1: {'id': 1, 'name': 'object'}}


def convert_label_map_to_categories(
    label_map: StringIntLabelMap | None, max_num_classes: int, use_display_name: bool = True
) -> list[dict]:
    """Returns the classes of a label map whose ids are at most `max_num_classes`.

    Args:
      label_map: as `load_labelmap` returns it; None makes names for all ids.
      max_num_classes: highest id.
      use_display_name: whether 'name' is the `display_name` of an item that has one.

    Returns:
      {'id': int, 'name': str} in the order of the items, without background; with 'keypoints',
      'frequency' and 'instance_count' where an item has them.

    Raises:
      ValueError: as `data.label_map.classes`.
    """
    if label_map is None:
        return [{'id': i, 'name': f'category_{i}'} for i in range(1, max_num_classes + 1)]
    _, labels = _read(label_map)
    names = {
        item.id: (use_display_name and item.display_name) or item.name or item.display_name
        for item in label_map.item
    }
    return [
        category | {'name': names[category['id']]}
        for category in labels.categories
        if category['id'] <= max_num_classes
    ]


def get_max_label_map_index(label_map: StringIntLabelMap) -> int:
    """Returns the highest id."""
    return max(item.id for item in label_map.item)


def get_label_map_dict(
    label_map_path_or_proto: LabelMapOrPath,
    use_display_name: bool = False,
    fill_in_gaps_and_background: bool = False,
) -> dict[str, int]:
    """Returns name -> id.

    Args:
      label_map_path_or_proto: a file, or what `load_labelmap` returns.
      use_display_name: whether names are the `display_name` of items that have one.
      fill_in_gaps_and_background: whether ids without an item are added under their numbers as
        names, and 0 as 'background'.

    Raises:
      ValueError: as `data.label_map.load`.
    """
    proto, labels = _read(label_map_path_or_proto)
    found = dict(labels.name_to_id)
    if use_display_name:
        found = {item.display_name or item.name: item.id for item in proto.item}
    if fill_in_gaps_and_background:
        used = set(found.values())
        gaps = {str(i): i for i in range(1, max(used) + 1) if i not in used}
        found |= {'background': 0} | gaps
    return found


def get_keypoint_label_map_dict(label_map_path_or_proto: LabelMapOrPath) -> dict[str, int]:
    """Returns name of a keypoint -> its position, of all items.

    Raises:
      ValueError: as `data.label_map.keypoint_ids`.
    """
    _, labels = _read(label_map_path_or_proto)
    return _label_map.keypoint_ids(labels, _origin(label_map_path_or_proto))


def get_label_map_hierarchy_lut(
    label_map_path_or_proto: LabelMapOrPath, include_identity: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Returns which classes are above and which below each class.

    Args:
      label_map_path_or_proto: a file, or what `load_labelmap` returns.
      include_identity: whether each class counts as above and below itself.

    Returns:
      Two float32 [N, N], N the highest id: row i - 1 has 1 at the ids (minus 1) of the classes
      above, respectively below, class i.

    Raises:
      ValueError: as `data.label_map.check_hierarchy`.
    """
    proto, labels = _read(label_map_path_or_proto)
    _label_map.check_hierarchy(labels, _origin(label_map_path_or_proto))
    size = get_max_label_map_index(proto)
    tables = []
    for related in (labels.ancestors, labels.descendants):
        table = np.eye(size, dtype=np.float32) * include_identity
        for number, others in related.items():
            table[number - 1, [other - 1 for other in others]] = 1
        tables.append(table)
    return tables[0], tables[1]


def _read(label_map: LabelMapOrPath) -> tuple[StringIntLabelMap, _label_map.LabelMap]:
    """Returns the items and, of them, the checked classes."""
    is_proto = isinstance(label_map, StringIntLabelMap)
    proto = label_map if is_proto else _label_map.read(label_map)
    return proto, _label_map.classes(proto, _origin(label_map))


def _origin(label_map: LabelMapOrPath) -> str:
    return '(given)' if isinstance(label_map, StringIntLabelMap) else str(label_map)
