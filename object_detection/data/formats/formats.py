"""The table of annotation formats: a row a format."""

import collections
import contextlib
import dataclasses
import os
from typing import NamedTuple

from object_detection.data import file_access
from object_detection.data.file_access import Files
from object_detection.data.formats.ava import AvaSource
from object_detection.data.formats.coco import CocoSource
from object_detection.data.formats.csv_boxes import CsvSource
from object_detection.data.formats.cvat import CvatSource
from object_detection.data.formats.kitti import KittiSource
from object_detection.data.formats.label_studio import LabelStudioSource
from object_detection.data.formats.labelme import LabelMeSource
from object_detection.data.formats.mask_files import MaskFilesSource
from object_detection.data.formats.open_images import OpenImagesSource
from object_detection.data.formats.panoptic import PanopticSource
from object_detection.data.formats.pets import PetsSource
from object_detection.data.formats.source import Found, Source
from object_detection.data.formats.voc import VocSource
from object_detection.data.formats.yolo import YoloSource
from object_detection.errors import UserError, format_list


class Format(NamedTuple):
    """An annotation format.

    Attributes:
      source: its class of sources, whose fields are the options of `tfod convert NAME`.
      title: name of the format, for help and messages.
      classes: how classes get their ids without a label map, for the help.
    """

    source: type[Source]
    title: str
    classes: str


# Name in `tfod convert NAME` -> format; `detect` asks them in this order.
FORMATS = {
    'coco': Format(
        CocoSource,
        'COCO: one JSON file',
        'The label map holds all categories under their ids; equal names get their id appended. '
        'Ids that begin at 0, or are text, are numbered from 1 on.',
    ),
    'ava': Format(
        AvaSource,
        'AVA: a CSV file of actions, and frames of videos',
        'The ids of --label_map are those of the actions; without it, they have no names.',
    ),
    'csv': Format(
        CsvSource,
        'CSV: one file with a box on each line',
        'Without --label_map, the classes of the file are numbered from 1 on in the order of the '
        'alphabet.',
    ),
    'cvat': Format(
        CvatSource,
        'CVAT for images 1.1: one XML file',
        'Without --label_map, the labels of the task are numbered from 1 on in their order.',
    ),
    'kitti': Format(
        KittiSource,
        'KITTI object detection: label_2/*.txt',
        'Without --label_map, the types are numbered from 1 on in the order of --classes_to_use.',
    ),
    'label_studio': Format(
        LabelStudioSource,
        'Label Studio: a JSON or JSON-MIN export',
        'Without --label_map, the classes of the file are numbered from 1 on in the order of the '
        'alphabet.',
    ),
    'labelme': Format(
        LabelMeSource,
        'LabelMe: a JSON file for each image',
        'Without --label_map, the classes of all files are numbered from 1 on in the order of the '
        'alphabet.',
    ),
    'masks': Format(
        MaskFilesSource,
        'instance masks: image files in folders',
        'All objects are of one class, --class_name.',
    ),
    'open_images': Format(
        OpenImagesSource,
        'Open Images: CSV files of boxes and image-level labels',
        'Without --label_map, the classes of --class_descriptions are numbered from 1 on in their '
        'order, so that the label maps of all splits are equal.',
    ),
    'panoptic': Format(
        PanopticSource,
        'COCO panoptic: a JSON file, and a PNG file with the segments of each image',
        'The label map holds the categories of things under their ids.',
    ),
    'pets': Format(
        PetsSource,
        'Oxford-IIIT Pets: XML files of faces, trimaps of bodies',
        'Without --label_map, the breeds are numbered from 1 on in the order of the alphabet.',
    ),
    'voc': Format(
        VocSource,
        'PASCAL VOC: one XML file for each image',
        'Without --label_map, the classes of all XML files are numbered from 1 on in the order of '
        'the alphabet, so that the label maps of all sets are equal.',
    ),
    'yolo': Format(
        YoloSource,
        'YOLO: one text file for each image, with data.yaml or a file of names',
        'Without --label_map, the id of a class is its number in the text files plus 1.',
    ),
}


def detect(folder: str, files: Files) -> dict[str, list[Found]]:
    """Returns format name -> the data sets of this format in a folder, for those with any.

    If there are none, it looks into the only folder below that has some.

    Raises:
      UserError: if two sets of a format would have outputs of the same name.
    """
    found = _detect(folder, files) or _detect_below(folder, files)
    return {name: _with_unique_names(sets) for name, sets in found.items()}


def _detect_below(folder: str, files: Files) -> dict[str, list[Found]]:
    below = sorted({name.split('/')[0] for name in files.list(folder, recursive=True)})
    inner = [_detect(file_access.join(folder, name), files) for name in below]
    inner = [found for found in inner if found]
    return inner[0] if len(inner) == 1 else {}


def _detect(folder: str, files: Files) -> dict[str, list[Found]]:
    found = {}
    for name, row in FORMATS.items():
        # A broken file of one format leaves the sets of the others.
        with contextlib.suppress(UserError, OSError):
            if sets := row.source.detect(folder, files):
                found[name] = sets
    return found


def _with_unique_names(sets: list[Found]) -> list[Found]:
    """Appends the stem of their file to the names of sets that several have."""
    counts = collections.Counter(item.name for item in sets)
    sets = [
        item._replace(name='_'.join(filter(None, (item.name, _stem(item.source)))))
        if counts[item.name] > 1
        else item
        for item in sets
    ]
    counts = collections.Counter(item.name for item in sets)
    if repeated := [f'{item.name!r} ({item.reason})' for item in sets if counts[item.name] > 1]:
        raise UserError(
            'Expected data sets of different names, as each names its output; rename their files, '
            f'or convert them one by one. Received: {format_list(repeated)}.'
        )
    return sets


def _stem(source: Source) -> str:
    """Returns the name of a source's file without suffix; '' if it has none."""
    options = (field.name for field in dataclasses.fields(source) if field.metadata)
    name = next((name for name in options if name.endswith('_file')), '')
    return os.path.splitext(os.path.basename(getattr(source, name)))[0] if name else ''


def name_of(source: Source) -> str:
    """Returns the name of a source's format; that of its class if it is not in the table."""
    names = (name for name, row in FORMATS.items() if type(source) is row.source)
    return next(names, type(source).__name__)
