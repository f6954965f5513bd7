"""What formats of hubs share: tables whose rows hold the bytes of an image and its objects.

A row has the boxes and the classes of its objects as lists of equal length. A class is the index of
a name, or a text.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from object_detection.data import annotated_image
from object_detection.data.annotated_image import AnnotatedObject, ImageAnnotations, Provided
from object_detection.data.file_access import Files
from object_detection.data.formats import shapes
from object_detection.data.formats import source as formats_source
from object_detection.data.formats.source import DataSet, ImageEntry, Source, SourceReader, option
from object_detection.data.image_files import ImageFile
from object_detection.data.label_map import LabelMap
from object_detection.errors import UnusableError, UserError, format_list

BOX_KEYS = ('bbox', 'bboxes', 'box', 'boxes')
CLASS_KEYS = (
    *('category', 'categories', 'label', 'labels', 'class', 'classes'),
    *('category_id', 'class_id', 'category_name', 'class_name'),
)
_CROWD_KEYS = ('is_crowd', 'iscrowd')
_ID_KEYS = ('image_id', 'image/id', 'id')
# Keys of objects that are read, or follow from the box.
_KNOWN_KEYS = {*BOX_KEYS, *CLASS_KEYS, *_CROWD_KEYS, 'area', 'id', 'bbox_id'}


class Table(NamedTuple):
    """An opened split.

    Attributes:
      file_names: name of the image of each row; '' if it has none.
      names: names of the classes by their indices; None for classes that are texts or numbers.
      classes: yields the classes of all objects; called without names.
      row: index -> the row, in which 'image' has 'bytes' or 'path', and 'objects' key -> list.
      corners: (box, height, width) -> (ymin, xmin, ymax, xmax) in pixels.
    """

    file_names: Sequence[str]
    names: Sequence[str] | None
    classes: Callable[[], Iterable[Any]]
    row: Callable[[int], Mapping[str, Any]]
    corners: Callable[[np.ndarray, int, int], Sequence[float]]


@dataclasses.dataclass(frozen=True)
class HubSource(Source):
    """A split of a data set of a hub.

    Attributes:
      data: its name on the hub, or a folder.
      split: the split; '' is the only one.
    """

    data: str = option('', 'Name on the hub, or folder.', required=True, positional=True)
    split: str = option('', 'The split, such as train; by default the only one.', flag='set')

    def table(self) -> Table:
        """Opens the split.

        Raises:
          UserError: if it cannot be opened, or has no images or no boxes with classes.
        """
        raise NotImplementedError

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        del files
        table = _table(self)
        if table.names is not None:
            labels = formats_source.number_classes(table.names, label_map)
        else:
            found = {str(each) for each in table.classes() if each is not None}
            labels = formats_source.number_classes(found, label_map, sort=True)
        count = len(table.file_names)
        return DataSet(HubReader(self, labels), count, labels, is_renumbered=not label_map)

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        del files
        for row, name in enumerate(_table(self).file_names):
            number = f'{self.split or "row"}-{row:08d}'
            yield ImageEntry({'id': number, 'file_name': name or number, 'row': row}, [])

    def chosen(self, splits: Iterable[str]) -> str:
        """Returns the split.

        Raises:
          UserError: if there is none of its name, or no name and several splits.
        """
        splits = list(splits)
        if self.split in splits or (not self.split and len(splits) == 1):
            return self.split or splits[0]
        raise UserError(
            f'{self.data}: expected a split by --set, one of {format_list(splits)}. '
            f'Received: {self.split or "none"}.'
        )


@functools.lru_cache(maxsize=4)
def _table(source: HubSource) -> Table:
    return source.table()


@dataclasses.dataclass(frozen=True)
class HubReader(SourceReader[HubSource]):
    """Reads images, see `SourceReader`; labels by the name of a class."""

    provided = Provided()

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        del files
        row = _table(self.source).row(entry.image['row'])
        image, objects = row['image'] or {}, row['objects']
        own = next((row[key] for key in _ID_KEYS if row.get(key) is not None), None)
        lost = [key for key, each in objects.items() if key not in _KNOWN_KEYS for _ in each]
        return ImageAnnotations(
            file_name=entry.image['file_name'],
            source_id=entry.image['id'] if own is None else _text(own),
            annotations=list(enumerate(_annotations(objects), start=1)),
            embedded=image.get('bytes') or b'',
            paths=(image['path'],) if image.get('path') and not image.get('bytes') else (),
            notes=annotated_image.not_converted(lost),
        )

    def object_of(self, annotation: Mapping[str, Any], file: ImageFile) -> AnnotatedObject:
        table, value = _table(self.source), annotation['class']
        if table.names is not None and not 0 <= value < len(table.names):
            raise UnusableError('unknown_category', f'the class is {value}')
        name = _text(value) if table.names is None else table.names[value]
        label = formats_source.label_of(name, self.labels)
        box = np.array(annotation['box'], np.float64)
        if box.shape != (4,):
            raise UnusableError('bad_box', f'the box must be four numbers, is {box.tolist()}')
        corners = [float(each) for each in table.corners(box, file.height, file.width)]
        found = shapes.of_box(label, corners, file, f'the box is {box.tolist()}')
        return found._replace(is_crowd=int(bool(annotation['crowd'])))


def _annotations(objects: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yields the box, the class and whether it is a crowd of each object of a row."""
    boxes, classes = (
        next(objects[key] for key in keys if key in objects) for keys in (BOX_KEYS, CLASS_KEYS)
    )
    crowds = next((objects[key] for key in _CROWD_KEYS if key in objects), [False] * len(boxes))
    if not len(boxes) == len(classes) == len(crowds):
        raise UserError(
            f'expected a class for each of {len(boxes)} boxes. Received: {len(classes)}.'
        )
    for box, value, crowd in zip(boxes, classes, crowds, strict=True):
        yield {'box': box, 'class': value, 'crowd': crowd}


def _text(value: Any) -> str:
    return value.decode(errors='replace') if isinstance(value, bytes) else str(value)


def object_keys(keys: Iterable[str]) -> tuple[str, str] | None:
    """Returns the keys of boxes and of classes among those of objects; None if one is absent."""
    known = [
        next((key for key in names if key in set(keys)), '') for names in (BOX_KEYS, CLASS_KEYS)
    ]
    return (known[0], known[1]) if all(known) else None
