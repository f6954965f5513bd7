"""Label maps of data sets: maps that are written, and maps that the user gives."""

from collections.abc import Mapping
from typing import Any

from apache_beam.io.filesystems import FileSystems
from google.protobuf import text_format

from object_detection.data import label_map as label_map_reader
from object_detection.data.annotated_image import ClassLabel
from object_detection.data.coco.keypoints import KeypointLayout
from object_detection.errors import missing
from object_detection.protos import string_int_label_map_pb2

# How LVIS calls them.
_FREQUENCIES = {
    'f': string_int_label_map_pb2.FREQUENT,
    'c': string_int_label_map_pb2.COMMON,
    'r': string_int_label_map_pb2.RARE,
}


def label_map_of(
    labels: Mapping[Any, ClassLabel],
) -> string_int_label_map_pb2.StringIntLabelMap:
    """Returns the label map of all categories, in the same order."""
    label_map = string_int_label_map_pb2.StringIntLabelMap()
    for label in labels.values():
        label_map.item.add(name=label.text, id=label.label)
    return label_map


def add_keypoints(
    label_map: string_int_label_map_pb2.StringIntLabelMap,
    labels: Mapping[Any, ClassLabel],
    layout: KeypointLayout,
) -> None:
    """Adds the keypoints of each category to its item in `label_map`, in place.

    The id of a keypoint is its index among the keypoints of all categories, as in records. Of
    categories without names of keypoints, those that are called person have COCO's.
    """
    items = {item.id: item for item in label_map.item}
    slots = layout.slots
    if not slots:
        every = list(range(len(layout.names)))
        slots = {key: every for key, label in labels.items() if label.text == 'person'}
    for category_id in slots.keys() & labels.keys():
        item = items[labels[category_id].label]
        for slot in slots[category_id]:
            item.keypoints.add(id=slot, label=layout.names[slot])
        for start, end in layout.skeletons.get(category_id, ()):
            item.skeleton.add(start=start, end=end)


def add_frequencies(
    label_map: string_int_label_map_pb2.StringIntLabelMap,
    labels: Mapping[Any, ClassLabel],
    categories: Mapping[Any, Mapping[str, Any]],
) -> None:
    """Adds how common each category of LVIS is to its item in `label_map`, in place.

    The label map's own values stay.
    """
    items = {item.id: item for item in label_map.item}
    for key, label in labels.items():
        category, item = categories.get(key, {}), items[label.label]
        frequency = _FREQUENCIES.get(str(category.get('frequency')))
        if frequency and not item.HasField('frequency'):
            item.frequency = frequency
        count = category.get('instance_count')
        is_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 2**31
        if frequency and is_count and not item.HasField('instance_count'):
            item.instance_count = count


def read_label_map(path: str) -> string_int_label_map_pb2.StringIntLabelMap:
    """Reads a label map by the rules of `data.label_map`, from any file system that Beam knows.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: as `data.label_map.load`.
    """
    if not FileSystems.exists(path):
        raise missing(path, 'label map')
    with FileSystems.open(path) as file:
        proto = label_map_reader.parse(file.read(), path)
    label_map_reader.classes(proto, path)  # Called only for its errors.
    return proto


def to_text(label_map: string_int_label_map_pb2.StringIntLabelMap) -> str:
    return text_format.MessageToString(label_map, as_utf8=True)
