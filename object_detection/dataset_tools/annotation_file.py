"""Reads annotation files in COCO format from wherever Beam reads."""

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from object_detection.data.coco import annotations as coco_annotations


def read(path: str, *, segmentations: bool = True) -> coco_annotations.CocoFile:
    """Reads an annotation file.

    Args:
      path: of any file system that Beam knows.
      segmentations: false leaves them out.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: as `coco.annotations.parse`.
    """
    if not FileSystems.exists(path):
        raise FileNotFoundError(f'There is no annotation file {path}.')
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        return coco_annotations.parse(file.read(), path, segmentations=segmentations)
