"""Data sets in the format COCO Camera Traps: COCO with locations, times and sequences of images.

(https://github.com/agentmorris/MegaDetector/blob/main/megadetector/data_management/README.md)
Most annotations say what is in the image, not where: they have no box.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from object_detection.core import tf_example_keys as keys
from object_detection.data import context_embeddings, file_access, shard_names
from object_detection.data.annotated_image import (
    AnnotatedObject,
    ClassLabel,
    ImageAnnotations,
    Provided,
)
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import examples as coco_examples
from object_detection.data.coco.annotations import NO_CLASSES, Classes
from object_detection.data.file_access import Files
from object_detection.data.formats import coco
from object_detection.data.formats.source import DataSet, ImageEntry, Source, SourceReader, option
from object_detection.data.image_files import ImageFile
from object_detection.data.label_map import LabelMap

_EMPTY = ClassLabel(0, 'empty')
# An animal covers about half of its box.
_AREA_SHARE = 0.5
# Key of an entry of `images` -> key of the example.
_TEXTS = {
    'location': keys.LOCATION,
    'datetime': keys.DATE_CAPTURED,
    'date_captured': keys.DATE_CAPTURED,
    'seq_id': keys.SEQUENCE_ID,
}
_NUMBERS = {
    'seq_num_frames': keys.SEQUENCE_NUM_FRAMES,
    'frame_num': keys.SEQUENCE_FRAME_NUMBER,
    'seq_frame_num': keys.SEQUENCE_FRAME_NUMBER,
}


@dataclasses.dataclass(frozen=True)
class CameraTrapsSource(Source):
    """A data set in the format COCO Camera Traps.

    Attributes:
      image_dir: folder to which the file names in the annotation file are relative.
      annotations_file: JSON file.
    """

    image_dir: str = option('', 'Folder of the images.', flag='images', required=True)
    annotations_file: str = option('', 'JSON file.', flag='annotations', required=True)

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        file_access.check_exists(self.image_dir, 'image folder', files)
        # What annotations hold is not needed yet.
        scan = coco.Scan(self.annotations_file, files, content=bool)
        categories = [item for item in scan.categories if not _is_empty(item)]
        classes = coco_annotations.classes(categories, label_map)
        # The reader finds the class of empty images here, and the label map must not have it.
        empty = tuple(item['id'] for item in scan.categories if _is_empty(item))
        alone = scan.groups.names_are_alone()
        return DataSet(
            CameraTrapsReader(self, classes.labels, alone, empty, classes),
            scan.groups.num_images(),
            classes.labels,
            tuple(scan.problems()),
            is_renumbered=classes.is_renumbered,
            unlisted=file_access.unlisted(self.image_dir, scan.groups.names(), files),
            notes=scan.notes(),
        )

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        scan = coco.Scan(self.annotations_file, files, content=coco.without_segmentation)
        for image, annotations in scan.groups:
            yield ImageEntry(image, annotations)


@dataclasses.dataclass(frozen=True)
class CameraTrapsReader(SourceReader[CameraTrapsSource]):
    """Reads images, see `source.Reader`.

    Attributes:
      empty: ids of the categories that say that nothing is in the image.
      classes: the others.
    """

    empty: tuple[Any, ...] = ()
    classes: Classes = NO_CLASSES
    provided = Provided()

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        del files
        image = entry.image
        found = file_access.image_paths(
            self.source.image_dir, image['file_name'], is_alone=self.names_are_alone
        )
        # Those without a box are classes of the image, if they are classes.
        no_classes = [item for item in entry.annotations if not self._is_class(item)]
        return ImageAnnotations(
            file_name=image['file_name'],
            source_id=shard_names.to_text(image['id']),
            annotations=[(item['id'], item) for item in no_classes],
            paths=found.paths,
            path_note=found.note,
            stated_size=coco_annotations.stated_size(image),
            details=_details(image) | self._classes(entry.annotations),
        )

    def object_of(self, annotation: Any, file: ImageFile) -> AnnotatedObject:
        contents = coco_examples.Contents(self.classes)
        found = coco_examples.read_object(annotation, file, contents)
        if annotation.get('area') is None:
            found = found._replace(area=found.area * _AREA_SHARE)
        return found

    def _is_class(self, annotation: Mapping[str, Any]) -> bool:
        """Whether an annotation has no place, and a class that the image gets."""
        category = annotation.get('category_id')
        is_known = _is_known(category, self.labels) or category in self.empty
        return annotation.get('bbox') is None and is_known

    def _classes(self, annotations: Iterable[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """Returns the classes of the image, each once; the class 0, empty, if there is none."""
        ids = [item.get('category_id') for item in annotations]
        known = [self.labels[each] for each in ids if _is_known(each, self.labels)]
        found: Sequence[ClassLabel] = list(dict.fromkeys(known)) or [_EMPTY]
        return {
            keys.IMAGE_CLASS_LABEL: np.array([label for label, _ in found], np.int64),
            keys.IMAGE_CLASS_TEXT: np.array([text for _, text in found]),
        }


def _is_known(category_id: Any, labels: Mapping[Any, ClassLabel]) -> bool:
    return coco_annotations.is_id(category_id) and category_id in labels


def _is_empty(category: Mapping[str, Any]) -> bool:
    """Whether a category says that nothing is in the image, which is no class of objects."""
    return category['id'] == 0 and str(category['name']).strip().lower() == _EMPTY.text


def _details(image: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns where and when an image was taken, as far as its entry says it."""
    details: dict[str, np.ndarray] = {}
    for name, key in _TEXTS.items():
        value = image.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != '':
            text = str(value)
            is_date = key == keys.DATE_CAPTURED
            details[key] = np.array([context_embeddings.normal_date(text) if is_date else text])
    for name, key in _NUMBERS.items():
        value = image.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value == int(value):
            details[key] = np.array([int(value)], np.int64)
    return details
