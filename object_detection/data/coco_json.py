"""Parses annotation files in COCO format (https://cocodataset.org/#format-data)."""

import collections
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_REQUIRED = {
    'images': ('id', 'file_name'),
    'annotations': ('id', 'image_id'),
    'categories': ('id', 'name'),
}


class CocoFile(NamedTuple):
    """The lists of an annotation file; entries are as in the file, but for `segmentation`.

    That is JSON text, to be parsed where it is used: most of a file is segmentations, and text
    takes a fifth of the memory.
    """

    images: list[dict[str, Any]]
    annotations: list[dict[str, Any]]
    categories: list[dict[str, Any]]


class CocoImage(NamedTuple):
    """An image and its annotations.

    Attributes:
      index: place in the order of the file, without images that were left out.
      image: the entry of `images`.
      annotations: the entries of `annotations`, in the order of the file.
    """

    index: int
    image: dict[str, Any]
    annotations: list[dict[str, Any]]


def parse(content: bytes | str, path: str, *, segmentations: bool = True) -> CocoFile:
    """Parses the content of an annotation file.

    `annotations` may be absent, as in the files that describe COCO's test images.

    Args:
      content: of the file.
      path: names the file in errors.
      segmentations: false leaves them out.

    Raises:
      ValueError: if it is not JSON, or an entry lacks what nothing can be done without.
    """
    try:
        document = json.loads(
            content, object_hook=_pack_segmentation if segmentations else _drop_segmentation
        )
    except ValueError as error:
        raise ValueError(f'{path} is not a JSON file: {error}.') from error
    if isinstance(document, dict):
        document.setdefault('annotations', [])
    check_document(document, path, _REQUIRED)
    return CocoFile(document['images'], document['annotations'], document['categories'])


def check_document(document: Any, path: str, required: Mapping[str, Sequence[str]]) -> None:
    """Checks that a document is an object of lists whose entries have what is required.

    Args:
      document: parsed JSON.
      path: names the file in errors.
      required: name of a list -> keys that each of its entries must have.

    Raises:
      ValueError: if it is not.
    """
    if not isinstance(document, dict):
        raise ValueError(
            f'{path}: expected an object with `images`, `annotations` and `categories`. '
            f'Received: {type(document).__name__}.'
        )
    for name, keys in required.items():
        _check_entries(path, document, name, keys)


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
        # Of several entries with one id the first counts.
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
            raise ValueError(
                f'The annotation file has no category {name!r}. Received: '
                f'{[category["name"] for category in file.categories]}.'
            )
    return [ids[name] for name in names]


def take_over(file: CocoFile, other: CocoFile, keys: Iterable[str]) -> None:
    """Sets entries of the annotations of `file` to those of the same id in `other`, in place."""
    others = {annotation['id']: annotation for annotation in other.annotations}
    for annotation in file.annotations:
        source = others.get(annotation['id'], {})
        annotation.update({key: source[key] for key in keys if key in source})


def _pack_segmentation(entry: dict[str, Any]) -> dict[str, Any]:
    if 'segmentation' in entry:
        entry['segmentation'] = json.dumps(entry['segmentation'])
    return entry


def _drop_segmentation(entry: dict[str, Any]) -> dict[str, Any]:
    entry.pop('segmentation', None)
    return entry


def _check_entries(path: str, document: dict[str, Any], name: str, keys: Sequence[str]) -> None:
    entries = document.get(name)
    if not isinstance(entries, list):
        raise ValueError(
            f'{path}: `{name}` must be a list. Received: '
            f'{"nothing" if entries is None else type(entries).__name__}.'
        )
    for index, entry in enumerate(entries):
        missing = (
            [key for key in keys if key not in entry] if isinstance(entry, dict) else list(keys)
        )
        if missing:
            raise ValueError(
                f'{path}: {name}[{index}] must have {", ".join(f"`{key}`" for key in keys)}; '
                f'missing: {", ".join(missing)}. Received: {json.dumps(entry)[:200]}.'
            )
