"""Reads data sets in COCO format for `beam_job`, which converts them to TFRecords."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from object_detection.data import image_files
from object_detection.data.annotated_image import ReadResult
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import examples as coco_examples
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco.annotations import CocoImage
from object_detection.dataset_tools import beam_job
from object_detection.errors import UnusableError


@dataclasses.dataclass(frozen=True)
class CocoSource:
    """A data set in COCO format, and the options of its conversion.

    Attributes:
      image_dir: folder to which the file names in the annotation file are relative.
      annotations_file: COCO JSON file.
      masks: whether instance masks are written.
      keypoints_file: COCO JSON file with the keypoints of the same annotations, matched by their
        ids; may be the annotation file itself. '' writes no keypoints.
      densepose_file: the same for DensePose points.
      label_map_file: label map that assigns ids to the categories by name; '' takes the category
        ids.
      drop_empty: leaves out images without a usable object.
      only_objects_of: name of a category; objects of all others are left out. '' keeps all.
      only_images_with: name of a category; images without an object of it are left out.
      max_pixels: maximum number of pixels of an image; larger ones are left out before decoding.
    """

    image_dir: str
    annotations_file: str
    masks: bool = False
    keypoints_file: str = ''
    densepose_file: str = ''
    label_map_file: str = ''
    drop_empty: bool = False
    only_objects_of: str = ''
    only_images_with: str = ''
    max_pixels: int = image_files.MAX_PIXELS


def read_annotation_file(path: str, *, segmentations: bool = True) -> coco_annotations.CocoFile:
    """Reads an annotation file in COCO format.

    Args:
      path: path in any file system that Beam knows.
      segmentations: whether to keep the segmentations.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: as `coco.annotations.parse`.
    """
    if not FileSystems.exists(path):
        raise FileNotFoundError(f'There is no annotation file {path}.')
    return coco_annotations.parse(beam_job.read_file(path), path, segmentations=segmentations)


class ReadAnnotations(beam.DoFn):
    """Path of the annotation file -> `beam_job.Entry` of each of its images.

    The file is read here and not sent to workers, since it may exceed a runner's message size.
    """

    def __init__(self, source: CocoSource, num_shards: int):
        self._source = source
        self._num_shards = num_shards

    def process(self, path: str) -> Iterator[beam_job.Entry]:
        source = self._source
        file = read_annotation_file(path, segmentations=source.masks)
        for other, keys in (
            (source.keypoints_file, coco_keypoints.KEYPOINT_KEYS),
            (source.densepose_file, coco_keypoints.DENSEPOSE_KEYS),
        ):
            if other not in ('', path):
                coco_annotations.take_over(
                    file, read_annotation_file(other, segmentations=False), keys
                )
        for coco_image in coco_annotations.group_by_image(
            file,
            only_objects_of=source.only_objects_of,
            only_images_with=source.only_images_with,
        ):
            yield beam_job.entry(*coco_image, self._num_shards)


@dataclasses.dataclass(frozen=True)
class CocoReader:
    """Reads images, see `beam_job.ReadImage`.

    Attributes:
      image_dir: folder to which file names are relative.
      contents: the fields to read.
    """

    image_dir: str
    contents: coco_examples.Contents

    def __call__(self, index: int, image: dict[str, Any], annotations: list[Any]) -> ReadResult:
        path = coco_examples.image_path(self.image_dir, image['file_name'])
        try:
            encoded = beam_job.read_file(path)
        except OSError as error:
            raise UnusableError('bad_image', f'cannot be read: {error}') from error
        return coco_examples.read(CocoImage(index, image, annotations), encoded, self.contents)
