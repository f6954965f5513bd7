"""Reads annotation files in COCO format (https://cocodataset.org/#format-data).

Integer labels and texts of a data set's categories in its examples.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from object_detection.data import annotated_image
from object_detection.data.annotated_image import (
    NOT_IN_LABEL_MAP,
    ClassLabel,
)
from object_detection.data.coco import json_items
from object_detection.data.label_map import LabelMap
from object_detection.errors import UnusableError, UserError, expected

_REQUIRED = {
    'images': ('id', 'file_name'),
    'annotations': ('id', 'image_id'),
    'categories': ('id', 'name'),
}

# Keys that identify entries.
_IDS = ('id', 'image_id', 'category_id')

# Keys of annotations that are read in any case, or only count what others hold.
_READ = {*_IDS, 'bbox', 'area', 'iscrowd', 'num_keypoints', 'dp_x', 'dp_y', 'dp_U', 'dp_V'}
# What reports call a key that can be read, but is not.
_KINDS = {
    'segmentation': 'segmentation (--masks)',
    'keypoints': 'keypoints (--keypoints)',
    'dp_I': 'DensePose points (--densepose_annotations)',
}


class EntryProblem(NamedTuple):
    """Known facts about an entry that was left out of its list."""

    error: UnusableError
    file_name: Any
    image_id: Any
    annotation_id: Any


def stream(
    file: BinaryIO,
    path: str,
    problems: list[EntryProblem] | None,
    required: Mapping[str, Sequence[str]] = _REQUIRED,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (name of its list, entry) of an annotation file, in the order of the file.

    Args:
      file: the file.
      path: names it in errors.
      problems: gets the images and annotations that lack required keys, at the end; and there may
        be no `annotations`, as in the files that describe COCO's test images. None allows neither.
      required: name of a list -> keys that each of its entries must have.

    Raises:
      ValueError: if it is not JSON, a list is missing, a category cannot be used, or no entry of
        another list can be used.
    """
    found: dict[str, list[EntryProblem]] = {'images': [], 'annotations': []}
    usable: set[str] = set()
    document: dict[str, Any] = {} if problems is None else {'annotations': []}
    for item in json_items.items(file, path):
        if item.key not in required:
            continue
        if item.index == json_items.WHOLE:
            document[item.key] = item.value
            continue
        problem = _problem_of(item.value, item.key, item.index, required[item.key])
        if problem and (item.key == 'categories' or problems is None):
            raise UserError(f'{path}: {problem.error}.')
        if problem:
            found[item.key].append(problem)
        else:
            usable.add(item.key)
            yield item.key, item.value
    for name in required:
        _list(path, document, name)
        if found.get(name) and name not in usable:
            raise UserError(f'{path}: {found[name][0].error}.')
    if problems is not None:
        problems += [*found['images'], *found['annotations']]


def check_document(document: Any, path: str, required: Mapping[str, Sequence[str]]) -> None:
    """Checks that a document is an object of lists whose entries have the required keys.

    Args:
      document: parsed JSON.
      path: names the file in errors.
      required: name of a list -> keys that each of its entries must have.

    Raises:
      ValueError: if the check fails.
    """
    if not isinstance(document, dict):
        raise expected(
            path, 'an object with `images`, `annotations` and `categories`', type(document).__name__
        )
    for name, keys in required.items():
        for index, entry in enumerate(_list(path, document, name)):
            if problem := _entry_problem(entry, f'{name}[{index}]', keys):
                raise UserError(f'{path}: {problem}.')


def check_categories(categories: list[dict[str, Any]], *names: str) -> list[Any]:
    """Returns the ids of the categories of these names, None for ''.

    Raises:
      ValueError: if there is no category of a name.
    """
    ids = {category['name']: category['id'] for category in reversed(categories)} | {'': None}
    for name in names:
        if name not in ids:
            raise expected(
                'category', f'one of {[each["name"] for each in categories]}', repr(name)
            )
    return [ids[name] for name in names]


def unread(annotation: Mapping[str, Any], read_keys: Collection[str]) -> Iterator[str]:
    """Yields what reports call the keys of an annotation that hold something and are not read."""
    for key, value in annotation.items():
        if key not in _READ and key not in read_keys and _holds_something(value):
            yield _KINDS.get(key, key)


def _holds_something(value: Any) -> bool:
    """Whether a JSON value is, or contains, anything but 0, false, null and empty text."""
    if isinstance(value, dict | list):
        return any(map(_holds_something, value.values() if isinstance(value, dict) else value))
    return bool(value)


def name_by_url(image: dict[str, Any]) -> None:
    """Gives an image without `file_name` that of its `coco_url`, as in LVIS, in place.

    It is the last two parts, such as train2017/000000391895.jpg.
    """
    url = image.get('coco_url')
    if image.get('file_name') is None and isinstance(url, str):
        image['file_name'] = '/'.join(url.split('/')[-2:])


def _list(path: str, document: dict[str, Any], name: str) -> list[Any]:
    entries = document.get(name)
    if not isinstance(entries, list):
        raise expected(
            f'{path}: `{name}`', 'a list', 'nothing' if entries is None else type(entries).__name__
        )
    return entries


def _problem_of(entry: Any, name: str, index: int, keys: Sequence[str]) -> EntryProblem | None:
    """Returns the problem of an entry of the list `name`; names an image by its URL, in place."""
    is_image = name == 'images'
    known = entry if isinstance(entry, dict) else {}
    if is_image:
        name_by_url(known)
    text = _entry_problem(entry, f'{name}[{index}]', keys)
    if not text:
        return None
    return EntryProblem(
        UnusableError('bad_entry', text),
        known.get('file_name') if is_image else None,
        known.get('id' if is_image else 'image_id'),
        None if is_image else known.get('id', f'{name}[{index}]'),
    )


def _entry_problem(entry: Any, where: str, keys: Sequence[str]) -> str:
    """Returns the problem of an entry of a list, as a sentence without a full stop; '' if none."""
    missing = [key for key in keys if not isinstance(entry, dict) or key not in entry]
    if missing:
        return (
            f'{where} must have {", ".join(f"`{key}`" for key in keys)}; '
            f'missing: {", ".join(missing)}. Received: {json.dumps(entry)[:200]}'
        )
    for key in keys:
        value, kind = entry[key], ''
        if key in _IDS and not is_id(value):
            kind = 'a number or text'
        elif key == 'file_name' and not (_is_text(value) and value):
            kind = 'text'
        if kind:
            return f'{where}.{key} must be {kind}. Received: {json.dumps(value)[:200]}'
    return ''


def is_id(value: Any) -> bool:
    """Whether a JSON value can be an id: a number or text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # A number must fit into a record, and be neither infinite nor NaN.
    return _is_text(value) or (is_number and abs(value) < 2**63)


def _is_text(value: Any) -> bool:
    """Whether a value is text that can be encoded; JSON can contain lone surrogates."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def stated_size(entry: dict[str, Any]) -> tuple[int | None, int | None]:
    """Returns (height, width) of an image's entry; None for a value that is null, 0 or absent.

    Raises:
      UnusableError: if a value is not a whole number, given as a number or as text.
    """
    return annotated_image.stated_size(entry, reason='bad_image')


def is_crowd(annotation: dict[str, Any]) -> int:
    """Returns 1 for a group of objects, 0 for a single object or if `iscrowd` is absent.

    Raises:
      UnusableError: if it is neither 0 nor 1, as a number or as text.
    """
    value = annotation.get('iscrowd')
    if value in (None, '', 0, '0'):
        return 0
    if value in (1, '1'):
        return 1
    raise UnusableError('bad_crowd', f'iscrowd must be 0 or 1, is {value}')


def box_of(annotation: Mapping[str, Any]) -> tuple[float, float, float, float]:
    """Returns (x, y, width, height) of an object in pixels.

    Raises:
      UnusableError: if they are not four finite numbers.
    """
    bbox = annotation.get('bbox')
    try:
        x, y, width, height = (float(number) for number in bbox)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnusableError('bad_box', f'bbox must be four numbers, is {bbox}') from error
    if not all(map(math.isfinite, (x, y, width, height))):
        raise UnusableError('bad_box', f'bbox must be finite, is {bbox}')
    return x, y, width, height


def area_of(annotation: Mapping[str, Any], default: float = math.nan) -> float:
    """Returns the annotated area of an object; `default` if there is none.

    Raises:
      UnusableError: if it is not a finite number.
    """
    area = annotation.get('area')
    try:
        number = default if area is None else float(area)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnusableError('bad_area', f'area must be a number, is {area}') from error
    if area is not None and not math.isfinite(number):
        raise UnusableError('bad_area', f'area must be finite, is {area}')
    return number


# Ids of a label map have 32 bits.
_MAX_LABEL = 2**31 - 1


def from_categories(categories: list[dict[str, Any]]) -> dict[Any, ClassLabel]:
    """Returns category id -> label of the categories that are classes.

    Labels are the ids if all ids are integers >= 1. Otherwise labels are derived from the list of
    categories only, so that the files of a data set's splits agree:

    - If the ids are whole numbers (or text of whole numbers) whose minimum is less than 1, all are
      increased so that the minimum becomes 1.
    - Otherwise labels are the positions in the list, from 1 on.

    A category 0 that all others name as their `supercategory`, as Roboflow writes it, is not a
    class; the others keep their ids.

    Raises:
      ValueError: if an id is given twice.
    """
    named = texts(categories)
    group = _group_of_all(categories)
    ids = [category_id for category_id in named if group is None or category_id != group]
    numbers = _whole_numbers(ids)
    if numbers is None:
        labels = list(range(1, len(ids) + 1))
    else:
        lift = max(0, 1 - min(numbers, default=1))
        labels = [number + lift for number in numbers]
    return {
        category_id: ClassLabel(label, named[category_id])
        for category_id, label in zip(ids, labels, strict=True)
    }


class Classes(NamedTuple):
    """The categories of a data set that are classes.

    Attributes:
      labels: category id -> label.
      left_out: category id -> name of those that the label map lacks.
      is_renumbered: whether labels differ from the ids, as no label map numbers them.
    """

    labels: Mapping[Any, ClassLabel]
    left_out: Mapping[Any, str] = {}
    is_renumbered: bool = False

    def label_of(self, category_id: Any) -> ClassLabel:
        """Returns the label of a category.

        Raises:
          UnusableError: if there is none.
        """
        if is_id(category_id):
            if category_id in self.labels:
                return self.labels[category_id]
            if category_id in self.left_out:
                raise UnusableError(NOT_IN_LABEL_MAP, self.left_out[category_id])
        raise UnusableError('unknown_category', f'category_id is {str(category_id)[:100]}')


NO_CLASSES = Classes({})


def classes(categories: list[dict[str, Any]], label_map: LabelMap | None) -> Classes:
    """Returns the classes of a data set, numbered by a label map, or by `from_categories`.

    Raises:
      ValueError: if an id is given twice.
    """
    names = texts(categories)
    if not label_map:
        labels = from_categories(categories)
        return Classes(labels, {}, any(key != label.label for key, label in labels.items()))
    labels = labels_of(categories, label_map)
    return Classes(labels, {key: name for key, name in names.items() if key not in labels})


def labels_of(categories: list[dict[str, Any]], label_map: LabelMap) -> dict[Any, ClassLabel]:
    """Returns category id -> label of the item with its name, for the categories that have an item.

    A category matches the item whose `name` or `display_name` is the category's name. The
    background item (id 0) matches no category.
    """
    names = {number: name for name, number in label_map.name_to_id.items()}
    numbers = {
        category['id']: label_map.text_to_id.get(clean(str(category['name'])), 0)
        for category in categories
    }
    return {key: ClassLabel(i, names[i]) for key, i in numbers.items() if i > 0}


def _group_of_all(categories: list[dict[str, Any]]) -> Any:
    """Returns the id 0 of a category that denotes the whole data set, or None."""
    for category in categories:
        others = [other for other in categories if other is not category]
        is_group = category['id'] == 0 and isinstance(category['id'], int)
        if (
            is_group
            and others
            and all(other.get('supercategory') == category['name'] for other in others)
        ):
            return category['id']
    return None


def _whole_numbers(ids: list[Any]) -> list[int] | None:
    """Returns ids as distinct numbers that fit into a label map; None if that is impossible."""
    try:
        numbers = [int(category_id) for category_id in ids]
    except ValueError:
        return None
    are_whole = all(float(i) == number for i, number in zip(ids, numbers, strict=True))
    fits = all(abs(number) < _MAX_LABEL for number in numbers)
    return numbers if are_whole and fits and len(set(numbers)) == len(numbers) else None


def texts(categories: list[dict[str, Any]]) -> dict[Any, str]:
    """Returns category id -> a unique name for look-ups in a label map.

    Readers find the class of an object by its text. So control characters and spaces at the ends
    are removed, an empty name becomes `category_ID`, and `_ID` is appended to repeated names.

    Raises:
      ValueError: if an id is given twice.
    """
    group = _group_of_all(categories)
    by_id: dict[Any, str] = {}
    # The name of the whole data set is free for a class.
    for category in sorted(categories, key=lambda each: group is not None and each['id'] == group):
        category_id = category['id']
        if category_id in by_id:
            received = json.dumps(category)[:200]
            raise UserError(f'Category ids must be different. Received twice: {received}.')
        text = clean(str(category['name'])) or f'category_{category_id}'
        while text in by_id.values():
            text = f'{text}_{category_id}'
        by_id[category_id] = text
    return {category['id']: by_id[category['id']] for category in categories}


def clean(name: str) -> str:
    return ''.join(letter if letter.isprintable() else ' ' for letter in name).strip()
