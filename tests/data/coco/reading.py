"""Reads an image of a COCO file as the readers of the format do, from its bytes."""

from object_detection.data import annotated_image, annotation_checks
from object_detection.data.annotated_image import ReadResult
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco.examples import Contents
from object_detection.data.formats.coco import CocoReader
from object_detection.data.formats.source import ImageEntry


def read(entry: ImageEntry, encoded: bytes, contents: Contents) -> ReadResult:
    reader = CocoReader('', contents)
    stated = coco_annotations.stated_size(entry.image)
    file = annotation_checks.check_image(encoded, stated, contents.max_pixels)
    said = reader.annotations(entry, None)
    return annotated_image.annotate(file, said, reader.read_object, reader.provided)
