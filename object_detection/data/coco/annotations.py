"""Parses annotation files in COCO format (https://cocodataset.org/#format-data).

Integer labels and texts of a data set's categories in its examples.
"""

import collections
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from object_detection.data import annotated_image, file_access
from object_detection.data.annotated_image import (
    NOT_CONVERTED,
    NOT_IN_LABEL_MAP,
    ClassLabel,
    not_converted,
)
from object_detection.data.annotation_notes import REPEATED_FILES, REPEATED_IDS
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
_READ = (*_IDS, 'bbox', 'area', 'iscrowd', 'num_keypoints', *('dp_x', 'dp_y', 'dp_U', 'dp_V'))
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


class CocoFile(NamedTuple):
    """The lists of an annotation file; entries are as in the file, except `segmentation`.

    A `segmentation` is kept as JSON text and parsed where it is used: most of a file consists of
    segmentations, and text takes a fifth of the memory. `num_dropped` are those that are not kept.
    """

    images: list[dict[str, Any]]
    annotations: list[dict[str, Any]]
    categories: list[dict[str, Any]]
    problems: tuple[EntryProblem, ...] = ()
    num_dropped: int = 0


class CocoImage(NamedTuple):
    """An image and its annotations.

    Attributes:
      index: position in the file, not counting images that were left out.
      image: the entry of `images`.
      annotations: the entries of `annotations`, in the order of the file.
    """

    index: int
    image: dict[str, Any]
    annotations: list[dict[str, Any]]


def parse(content: bytes | str, path: str, *, segmentations: bool = True) -> CocoFile:
    """Parses the content of an annotation file.

    `annotations` may be absent, as in the files that describe COCO's test images. Images and
    annotations that lack required keys are left out and listed in `problems`.

    Args:
      content: content of the file.
      path: names the file in errors.
      segmentations: false leaves them out, and counts them.

    Raises:
      ValueError: if it is not JSON, a list is missing, a category cannot be used, or no entry of
        another list can be used.
    """
    num_dropped = 0

    def drop_segmentation(entry: dict[str, Any]) -> dict[str, Any]:
        nonlocal num_dropped
        num_dropped += bool(entry.pop('segmentation', None))
        return entry

    hook = pack_segmentation if segmentations else drop_segmentation
    document = file_access.parse_json(content, path, object_hook=hook)
    if isinstance(document, dict):
        document.setdefault('annotations', [])
    check_document(document, path, {'categories': _REQUIRED['categories']})
    images, bad_images = _usable(document, path, 'images')
    annotations, bad_annotations = _usable(document, path, 'annotations')
    problems = (*bad_images, *bad_annotations)
    return CocoFile(images, annotations, document['categories'], problems, num_dropped)


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


def group_by_image(
    file: CocoFile, *, only_objects_of: str = '', only_images_with: str = ''
) -> Iterator[CocoImage]:
    """Yields the images with their annotations, in the order of the file.

    Args:
      file: the annotation file.
      only_objects_of: name of a category; annotations of all others are left out. '' keeps all.
      only_images_with: name of a category; images without an annotation of it are left out.

    Raises:
      ValueError: if the file has no category of a name given.
    """
    kept_category, needed_category = check_categories(file, only_objects_of, only_images_with)
    annotations = collections.defaultdict(list)
    for annotation in file.annotations:
        if not only_objects_of or annotation.get('category_id') == kept_category:
            annotations[annotation['image_id']].append(annotation)
    index = 0
    seen: set[Any] = set()
    for image in file.images:
        of_image = annotations.get(image['id'], [])
        is_wanted = not only_images_with or any(
            annotation.get('category_id') == needed_category for annotation in of_image
        )
        # If several entries have the same id, the first one is used.
        if is_wanted and image['id'] not in seen:
            yield CocoImage(index, image, of_image)
            index += 1
        seen.add(image['id'])


def check_categories(file: CocoFile, *names: str) -> list[Any]:
    """Returns the ids of the categories of these names, None for ''.

    Raises:
      ValueError: if the file has no category of a name.
    """
    ids = {category['name']: category['id'] for category in reversed(file.categories)} | {'': None}
    for name in names:
        if name not in ids:
            raise expected(
                'category', f'one of {[each["name"] for each in file.categories]}', repr(name)
            )
    return [ids[name] for name in names]


def repeated_ids(file: CocoFile) -> dict[str, int]:
    """Returns the note of the annotations whose id one before has; {} if there is none."""
    count = len(file.annotations) - len({str(item['id']) for item in file.annotations})
    return {REPEATED_IDS: count} if count else {}


def notes(file: CocoFile, read_keys: Collection[str]) -> dict[str, int]:
    """Returns what is worth saying of the annotations of a file, see `ImageAnnotations.notes`.

    They are `repeated_ids`, images of one file, and what annotations hold under other keys than are
    read.

    Args:
      file: the annotation file.
      read_keys: keys that are read besides those of all boxes.
    """
    known = {*_READ, *read_keys}
    kinds = (
        _KINDS.get(key, key)
        for annotation in file.annotations
        for key in annotation
        if key not in known and _holds_something(annotation[key])
    )
    found = repeated_ids(file) | not_converted(kinds)
    if file.num_dropped and 'segmentation' not in known:
        found[f'{NOT_CONVERTED}{_KINDS["segmentation"]}'] = file.num_dropped
    # Those of equal ids are left out.
    images = {image['id']: image['file_name'] for image in file.images}
    if repeated := len(images) - len({*images.values()}):
        found[REPEATED_FILES] = repeated
    return found


def _holds_something(value: Any) -> bool:
    """Whether a JSON value is, or contains, anything but 0, false, null and empty text."""
    if isinstance(value, dict | list):
        return any(map(_holds_something, value.values() if isinstance(value, dict) else value))
    return bool(value)


def take_over(file: CocoFile, other: CocoFile, keys: Iterable[str]) -> None:
    """Copies `keys` of the annotations in `other` to those of the same id in `file`, in place."""
    others = {annotation['id']: annotation for annotation in other.annotations}
    for annotation in file.annotations:
        source = others.get(annotation['id'], {})
        annotation.update({key: source[key] for key in keys if key in source})


def name_by_url(image: dict[str, Any]) -> None:
    """Gives an image without `file_name` that of its `coco_url`, as in LVIS, in place.

    It is the last two parts, such as train2017/000000391895.jpg.
    """
    url = image.get('coco_url')
    if image.get('file_name') is None and isinstance(url, str):
        image['file_name'] = '/'.join(url.split('/')[-2:])


def pack_segmentation(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns an entry with its `segmentation` as JSON text, in place; for `json.loads`."""
    if 'segmentation' in entry:
        entry['segmentation'] = json.dumps(entry['segmentation'])
    return entry


def _list(path: str, document: dict[str, Any], name: str) -> list[Any]:
    entries = document.get(name)
    if not isinstance(entries, list):
        raise expected(
            f'{path}: `{name}`', 'a list', 'nothing' if entries is None else type(entries).__name__
        )
    return entries


def _usable(
    document: dict[str, Any], path: str, name: str
) -> tuple[list[dict[str, Any]], list[EntryProblem]]:
    """Returns the usable entries of a list, and the problems of the others."""
    keys, usable, problems = _REQUIRED[name], [], []
    is_image = name == 'images'
    for index, entry in enumerate(_list(path, document, name)):
        if is_image and isinstance(entry, dict):
            name_by_url(entry)
        text = _entry_problem(entry, f'{name}[{index}]', keys)
        if not text:
            usable.append(entry)
            continue
        known = entry if isinstance(entry, dict) else {}
        problems.append(
            EntryProblem(
                UnusableError('bad_entry', text),
                known.get('file_name') if is_image else None,
                known.get('id' if is_image else 'image_id'),
                None if is_image else known.get('id', f'{name}[{index}]'),
            )
        )
    if problems and not usable:
        raise UserError(f'{path}: {problems[0].error}.')
    return usable, problems


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
