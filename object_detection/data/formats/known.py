"""Formats that are recognized and not converted, and why: `tfod convert auto` says it."""

import fnmatch
import itertools
import os
from collections.abc import Iterator
from typing import NamedTuple

from object_detection.data import file_access
from object_detection.data.file_access import Files

_HEAD = 1 << 12  # bytes
_MAX_TRIED = 200  # files of one pattern


class Known(NamedTuple):
    """A format that is not converted.

    Attributes:
      title: its name.
      pattern: of the names of its files, in small letters.
      marks: texts that the beginning of such a file has; any file has ''.
      reason: why it is not converted, or what to do, as the end of a sentence.
    """

    title: str
    pattern: str
    marks: tuple[str, ...]
    reason: str


_EXPORT = 'export it as COCO JSON'
_NO_OBJECTS = 'it has no objects of their own, only the class of each pixel'
_KNOWN = (
    Known('VGG Image Annotator 3', '*.json', ('"pid"', 'software/via'), _EXPORT),
    Known('COCO captions', '*.json', ('"annotations"', '"caption"'), 'it has no boxes'),
    Known('a list of images of COCO', 'image_info*.json', ('"images"',), 'it has no annotations'),
    Known('BDD100K', '*.json', ('"labels"', '"box2d"'), 'convert it by `bdd100k.label.to_coco`'),
    Known('V7 Darwin', '*.json', ('"bounding_box"', '"annotations"', '"dataset"'), _EXPORT),
    Known('Supervisely', '*.json', ('"geometryType"', '"objects"'), _EXPORT),
    Known('Labelbox', '*.ndjson', ('"data_row"',), _EXPORT),
    Known('Cityscapes', '*_polygons.json', ('"imgHeight"', '"objects"'), _EXPORT),
    Known('CrowdHuman', '*.odgt', ('"gtboxes"',), 'convert it to COCO JSON'),
    Known('MOT', 'gt.txt', (',',), 'convert it to COCO JSON; tracks of CVAT are read'),
    Known('WIDER FACE', 'wider_face*_bbx_gt.txt', ('.jpg',), 'convert it to COCO JSON'),
    Known('VisDrone', '0*.txt', (',',), 'its text files are neither those of YOLO nor of KITTI'),
    Known('DOTA', '*.txt', ('imagesource:', 'gsd:'), 'convert it to YOLO OBB or COCO JSON'),
    Known('Keras YOLO v3', '_annotations.txt', (',',), 'export it as YOLO with data.yaml, or COCO'),
    Known('JSON lines of texts', '*.jsonl', ('"image"',), f'boxes are parts of texts; {_EXPORT}'),
    Known('classes of whole images', '_classes.csv', ('filename', ',', '0'), 'it has no boxes'),
    Known('semantic masks', '_classes.csv', ('pixel value',), _NO_OBJECTS),
    Known('semantic masks of KITTI or CamVid', 'label_colors.txt', ('',), _NO_OBJECTS),
    Known('Pascal VOC of CVAT with masks alone', 'labelmap.txt', ('# label:',), 'export "CVAT '
          'for images 1.1" or COCO, which say which pixels are an object of which class'),
)  # fmt: skip


def reasons(folder: str, files: Files) -> Iterator[str]:
    """Yields a sentence for each format that is recognized in a folder, and in those below."""
    names = files.list(folder, recursive=True)
    for known in _KNOWN:
        matching = (
            name for name in names if fnmatch.fnmatch(os.path.basename(name).lower(), known.pattern)
        )
        for name in itertools.islice(matching, _MAX_TRIED):
            if _has_marks(file_access.join(folder, name), known, files):
                yield f'{name} looks like {known.title}, which is not read: {known.reason}.'
                break


def _has_marks(path: str, known: Known, files: Files) -> bool:
    try:
        head = files.head(path, _HEAD).decode(errors='replace').lower()
    except OSError:
        return False
    return all(mark.lower() in head for mark in known.marks)
