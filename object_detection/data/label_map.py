"""Reads label maps, which assign the ids of classes in files."""

import collections
import os
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from google.protobuf import message, text_format

from object_detection.errors import DataError, UserError, backslash_hint, expected
from object_detection.protos import string_int_label_map_pb2
from object_detection.system import texts

_BACKGROUND = 'background'
# The lines between the keypoints of COCO's persons (https://cocodataset.org/#format-data).
_PERSON_LINES = (
    *(('left_ankle', 'left_knee'), ('left_knee', 'left_hip')),
    *(('right_ankle', 'right_knee'), ('right_knee', 'right_hip')),
    *(('left_hip', 'right_hip'), ('left_shoulder', 'left_hip'), ('right_shoulder', 'right_hip')),
    ('left_shoulder', 'right_shoulder'),
    *(('left_shoulder', 'left_elbow'), ('left_elbow', 'left_wrist')),
    *(('right_shoulder', 'right_elbow'), ('right_elbow', 'right_wrist')),
    *(('left_eye', 'right_eye'), ('nose', 'left_eye'), ('nose', 'right_eye')),
    *(('left_eye', 'left_ear'), ('right_eye', 'right_ear')),
    *(('left_ear', 'left_shoulder'), ('right_ear', 'right_shoulder')),
)
# The side of a body in the name of a keypoint, in small letters.
_SIDE = re.compile('(?<![a-z])(?:left|right)(?![a-z])')
_OTHER_SIDE = {'left': 'right', 'right': 'left'}


class LabelMap(NamedTuple):
    """The classes of a data set; ids are 1-based, as in records and exported detections.

    Attributes:
      categories: {'id': int, 'name': str} for each class, in the file's order, with the displayed
        name: `display_name` if there is one, with `name` in brackets if it means another item or
        several; with 'keypoints', name -> position, 'mirrored', pairs of the position of a keypoint
        and of the one in its place in a mirrored image, 'skeleton', pairs of positions, 'frequency'
        ('r', 'c' or 'f', as in LVIS) and 'instance_count' where the item has them. The background
        item is left out.
      name_to_id: `name` -> id; `display_name` -> id for items without a name.
      text_to_id: `name`, `display_name` and the displayed name -> id: the valid texts of
        image/object/class/text. The `name` of an item means that item; a `display_name` of several
        items means none of them.
      ancestors, descendants: id -> ids of the classes above and below it, for the classes that have
        some; also those that only the items of these classes list.
    """

    categories: list[dict]
    name_to_id: dict[str, int]
    text_to_id: dict[str, int]
    ancestors: Mapping[int, frozenset[int]] = MappingProxyType({})
    descendants: Mapping[int, frozenset[int]] = MappingProxyType({})

    @property
    def names(self) -> dict[int, str]:
        """1-based id -> displayed name."""
        return {category['id']: category['name'] for category in self.categories}


def load(path: str) -> LabelMap:
    """Reads a StringIntLabelMap, as text or binary proto.

    Raises:
      ValueError: if `path` is not a file or not a label map, or if an item has no name, no positive
        id (0 is valid only for 'background'), or the same id or name as another item.
    """
    path = os.fspath(path)
    return classes(read(path), path)


def read(path: str | os.PathLike) -> string_int_label_map_pb2.StringIntLabelMap:
    """Reads a label map, as text or binary proto, without a check of its items.

    Raises:
      ValueError: if `path` is not a file or not a label map.
    """
    path = os.fspath(path)
    return parse(_read(path), path)


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
        hint = backslash_hint(path)
        raise UserError(f'Label map {path} cannot be read: {error.strerror}{hint}.') from error


def classes(proto: string_int_label_map_pb2.StringIntLabelMap, path: str) -> LabelMap:
    """Returns the classes of a label map; `path` names it in errors.

    Raises:
      ValueError: as `load`.
    """
    if not proto.item:
        raise UserError(f'Label map {path}: expected at least one `item`. Received: none.')
    name_to_id, id_to_name = {}, {}
    for item in proto.item:
        _check_item(item, path)
        name = item.name or item.display_name
        if (known := name_to_id.get(name, item.id)) != item.id or item.id in id_to_name:
            raise UserError(
                f'Label map {path}: names and ids must be distinct. Received: {name!r} = {item.id} '
                f'and {id_to_name.get(item.id, name)!r} = '
                f'{item.id if item.id in id_to_name else known}.'
            )
        name_to_id[name] = item.id
        id_to_name[item.id] = name
    text_to_id = {}
    uses = collections.Counter(item.display_name for item in proto.item)
    for item in proto.item:
        text_to_id[item.name or item.display_name] = item.id
        if item.display_name and uses[item.display_name] == 1:
            text_to_id[item.display_name] = name_to_id.get(item.display_name, item.id)
    categories = [_category(item) for item in proto.item if item.id > 0]
    for category in categories:
        if text_to_id.get(category['name']) != category['id']:
            category['name'] += f' ({id_to_name[category["id"]]})'
            text_to_id.setdefault(category['name'], category['id'])
    return LabelMap(
        categories,
        name_to_id,
        text_to_id,
        _closure({item.id: item.ancestor_ids for item in proto.item}),
        _closure({item.id: item.descendant_ids for item in proto.item}),
    )


def keypoint_ids(labels: LabelMap, path: str) -> dict[str, int]:
    """Returns the position of each keypoint name of a label map; `path` names it in errors.

    Raises:
      ValueError: if there are none, a position is below 0, or two items give one name different
        positions or one position different names.
    """
    ids: dict[str, int] = {}
    names: dict[int, str] = {}
    for category in labels.categories:
        for name, position in category.get('keypoints', {}).items():
            is_new = ids.setdefault(name, position) == position
            if position < 0 or not is_new or names.setdefault(position, name) != name:
                raise UserError(
                    f'Label map {path}: expected one `keypoints.label` for each `keypoints.id` '
                    f'from 0 on. Received: {name!r} = {position} beside {ids}.'
                )
    if not ids:
        raise UserError(f'Label map {path}: expected items with `keypoints`. Received: none.')
    return ids


def keypoint_edges(labels: LabelMap) -> tuple[tuple[int, int], ...]:
    """Returns the lines between keypoints in pictures, as pairs of positions.

    They are those of the items; keypoints of an item without any are joined as those of COCO's
    persons of the same names.
    """
    edges: dict[tuple[int, int], None] = {}
    for category in labels.categories:
        ids = category.get('keypoints', {})
        of_persons = [(ids[a], ids[b]) for a, b in _PERSON_LINES if a in ids and b in ids]
        edges |= dict.fromkeys(category.get('skeleton', of_persons))
    return tuple(edges)


def num_keypoints(labels: LabelMap) -> int:
    """Returns the number of positions of keypoints, of all classes; 0 without keypoints."""
    places = (place for each in labels.categories for place in each.get('keypoints', {}).values())
    return max(places, default=-1) + 1


def keypoint_names(labels: LabelMap) -> dict[int, str]:
    """Returns the position of each keypoint of all classes -> its name."""
    items = (item for each in labels.categories for item in each.get('keypoints', {}).items())
    return {place: name for name, place in items}


def mirrored_keypoints(labels: LabelMap, count: int) -> tuple[int, ...] | None:
    """Returns which keypoint takes the place of each one in a mirrored image.

    Where the label map does not say so, names do: 'left_eye' and 'right_eye' take each other's
    place; those without a side keep theirs.

    Args:
      labels: the label map.
      count: P, the number of keypoints of an object.

    Returns:
      A permutation of 0 to P - 1. None without `mirrored` and sides in names, if a side lacks its
      counterpart or a position has no name, or if `mirrored` is no mirror or differs between
      classes.
    """
    classes = [
        {name.lower(): place for name, place in category.get('keypoints', {}).items()}
        for category in labels.categories
    ]
    everywhere = {name: place for ids in reversed(classes) for name, place in ids.items()}
    stated = {pair for category in labels.categories for pair in category.get('mirrored', ())}
    permutation, has_sides = [-1] * count, bool(stated)
    for ids in classes:
        for name, place in ids.items():
            other = _SIDE.sub(lambda side: _OTHER_SIDE[side[0]], name)
            has_sides |= other != name
            if place < count:
                # A class may lack the counterpart of a keypoint that it shares with another one.
                permutation[place] = ids.get(other, everywhere.get(other, -1))
    for place, other in stated:
        if place < count:
            permutation[place] = other
    # Classes may say different things of a keypoint that they share.
    is_whole = len(dict(stated)) == len(stated) and sorted(permutation) == list(range(count))
    # What mirrors twice changes nothing.
    is_mirror = is_whole and all(permutation[permutation[at]] == at for at in range(count))
    return tuple(permutation) if has_sides and is_mirror else None


def check_hierarchy(labels: LabelMap, path: str) -> None:
    """Raises ValueError for a label map whose classes have none above or below them.

    Also for ids of classes above or below that no item has; `path` names the file.
    """
    known = set(labels.name_to_id.values())
    listed = frozenset().union(*labels.ancestors.values(), *labels.descendants.values())
    if not listed or listed - known:
        raise expected(
            f'Label map {path}', 'ids of items in the hierarchy', sorted(listed - known) or 'none'
        )


def differing_ids(first: LabelMap, second: LabelMap) -> list[tuple[int, str, str]]:
    """Finds the ids that two label maps give to different classes.

    Classes are the same if a `name` or `display_name` is equal, ignoring case and surrounding
    spaces.

    Returns:
      (id, name in the first, name in the second) of each such id in both.
    """
    texts = [_texts_by_id(labels) for labels in (first, second)]
    names = [first.names, second.names]
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
        text = texts.decode(content, path)
        return text_format.Parse(text, proto)
    except (text_format.ParseError, DataError) as error:
        try:
            return string_int_label_map_pb2.StringIntLabelMap.FromString(content)
        except message.DecodeError:
            raise UserError(
                f'{path} is not a label map (expected `item {{ name: "cat" id: 1 }}` ...). '
                f'Received: {texts.visible(str(error))}'
            ) from error


def _category(item: string_int_label_map_pb2.StringIntLabelMapItem) -> dict:
    category = {'id': item.id, 'name': item.display_name or item.name}
    if item.keypoints:
        category['keypoints'] = {point.label: point.id for point in item.keypoints}
    mirrored = [
        (point.id, point.mirrored) for point in item.keypoints if point.HasField('mirrored')
    ]
    if mirrored:
        category['mirrored'] = mirrored
    if item.skeleton:
        category['skeleton'] = [(edge.start, edge.end) for edge in item.skeleton]
    if item.frequency:
        name = string_int_label_map_pb2.LVISFrequency.Name(item.frequency)
        category['frequency'] = name[0].lower()
    if item.HasField('instance_count'):
        category['instance_count'] = item.instance_count
    return category


def _closure(listed: Mapping[int, Iterable[int]]) -> dict[int, frozenset[int]]:
    """Returns all ids that can be reached from each id, without itself."""

    def reached(start: int) -> frozenset[int]:
        found, ahead = set(), [start]
        while ahead:
            new = set(listed.get(ahead.pop(), ())) - found
            found |= new
            ahead += new
        return frozenset(found - {start})

    return {number: reached(number) for number, others in listed.items() if others}


def _check_item(item: string_int_label_map_pb2.StringIntLabelMapItem, path: str) -> None:
    if not (item.name or item.display_name):
        raise UserError(f'Label map {path}: every item needs a name. Received: id {item.id}.')
    if item.id < 0 or (item.id == 0 and item.name != _BACKGROUND):
        raise expected(
            f'Label map {path}', f'ids above 0 (0: {_BACKGROUND!r})', f'{item.name!r} = {item.id}'
        )
