"""The table of annotation formats: a row a format."""

import collections
import dataclasses
import os
from collections.abc import Mapping
from typing import NamedTuple

from object_detection.config import plugins
from object_detection.data import file_access
from object_detection.data.file_access import Files
from object_detection.data.formats import known
from object_detection.data.formats.ava import AvaSource
from object_detection.data.formats.coco import CocoSource
from object_detection.data.formats.csv_boxes import CsvSource
from object_detection.data.formats.hubs.hf import HfSource
from object_detection.data.formats.hubs.tfds import TfdsSource
from object_detection.data.formats.kitti import KittiSource
from object_detection.data.formats.mask_files import MaskFilesSource
from object_detection.data.formats.open_images import OpenImagesSource
from object_detection.data.formats.panoptic import PanopticSource
from object_detection.data.formats.pets import PetsSource
from object_detection.data.formats.source import SPLITS, Found, Source
from object_detection.data.formats.tools.createml import CreateMlSource
from object_detection.data.formats.tools.cvat import CvatSource
from object_detection.data.formats.tools.label_studio import LabelStudioSource
from object_detection.data.formats.tools.labelme import LabelMeSource
from object_detection.data.formats.tools.via import ViaSource
from object_detection.data.formats.voc import VocSource
from object_detection.data.formats.yolo import YoloSource
from object_detection.errors import UserError, expected, format_list
from object_detection.registry import Registry


class Format(NamedTuple):
    """An annotation format.

    Attributes:
      source: its class of sources, whose fields are the options of `tfod convert NAME`.
      title: name of the format, for help and messages.
      classes: how classes get their ids without a label map, for the help.
      numbers_used: whether only classes that the set itself uses or lists get ids, so that those of
        other sets may differ.
    """

    source: type[Source]
    title: str
    classes: str
    numbers_used: bool = False


_BY_ALPHABET = (
    'Without --label_map, the classes of {} are numbered from 1 on in the order of the alphabet.'
)
_FORMATS = {
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
    'createml': Format(
        CreateMlSource,
        'Create ML: one JSON file',
        _BY_ALPHABET.format('the file'),
        numbers_used=True,
    ),
    'csv': Format(
        CsvSource,
        'CSV: one file with a box on each line',
        _BY_ALPHABET.format('the file'),
        numbers_used=True,
    ),
    'cvat': Format(
        CvatSource,
        'CVAT for images 1.1 or for video 1.1: one XML file',
        'Without --label_map, the labels of the task are numbered from 1 on in their order.',
        numbers_used=True,
    ),
    'hf': Format(
        HfSource,
        'Hugging Face datasets: parquet files of the hub or a folder',
        'Without --label_map, the classes are numbered from 1 on in the order of the ClassLabel, '
        'or of the alphabet.',
    ),
    'tfds': Format(
        TfdsSource,
        'TensorFlow Datasets: a name of its catalog, or a prepared folder',
        'Without --label_map, the classes are numbered from 1 on in the order of the ClassLabel.',
    ),
    'kitti': Format(
        KittiSource,
        'KITTI object detection: label_2/*.txt',
        'Without --label_map, the types are numbered from 1 on in the order of --classes_to_use.',
    ),
    'label_studio': Format(
        LabelStudioSource,
        'Label Studio: a JSON or JSON-MIN export',
        _BY_ALPHABET.format('the file'),
        numbers_used=True,
    ),
    'labelme': Format(
        LabelMeSource,
        'LabelMe: a JSON file for each image',
        _BY_ALPHABET.format('all files'),
        numbers_used=True,
    ),
    'masks': Format(
        MaskFilesSource,
        'instance masks: image files in folders',
        'All objects are of one class, --class_name.',
    ),
    'open_images': Format(
        OpenImagesSource,
        'Open Images: CSV files of boxes, segmentations and image-level labels',
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
    'via': Format(
        ViaSource,
        'VGG Image Annotator: a JSON or CSV file',
        _BY_ALPHABET.format('the file'),
        numbers_used=True,
    ),
    'voc': Format(
        VocSource,
        'PASCAL VOC: one XML file for each image',
        _BY_ALPHABET.format('all XML files') + ' So the label maps of all sets are equal.',
        numbers_used=True,
    ),
    'yolo': Format(
        YoloSource,
        'YOLO: one text file for each image, with data.yaml or a file of names',
        'Without --label_map, the id of a class is its number in the text files plus 1.',
    ),
}
# Name in `tfod convert NAME` -> format; `detect` asks them in this order.
ANNOTATION_FORMATS = Registry('annotation format', _FORMATS, Format)


def fields(source: Source | type[Source]) -> list[dataclasses.Field]:
    """Returns the fields of a source that are options of its command."""
    return [field for field in dataclasses.fields(source) if field.metadata]


def source_of(
    name: str, options: Mapping[str, str], path: str, *, masks: bool, max_pixels: int
) -> Source:
    """Returns a data set that a config describes.

    Args:
      name: the format.
      options: option of its command, without dashes -> value.
      path: of the message in the config, for errors.
      masks: whether masks are read; of formats without masks, nothing is.
      max_pixels: see `Source`.

    Raises:
      UserError: if there is no such format, an option is unknown or has no such value, or one that
        is needed is missing.
    """
    if name not in ANNOTATION_FORMATS:
        raise expected(f'{path}.format', f'one of {", ".join(ANNOTATION_FORMATS.names())}', name)
    kind = ANNOTATION_FORMATS[name].source
    named = {field.metadata['flag'] or field.name: field for field in fields(kind)}
    has_masks = named.pop('masks', None) is not None
    for flag, field in named.items():
        if field.metadata['required'] and flag not in options:
            what = field.metadata['help'].removesuffix('.')
            raise expected(f'{path}.options[{flag}]', what[0].lower() + what[1:], 'nothing')
    for flag in options:
        if flag not in named:
            raise expected(f'{path}.options[{flag}]', f'one of {", ".join(named)}', flag)
    texts = {named[flag].name: text for flag, text in options.items()}
    values = plugins.options_of(kind, texts, path)
    return kind(**values, **({'masks': masks} if has_masks else {}), max_pixels=max_pixels)


def detect(folder: str, files: Files) -> dict[str, list[Found]]:
    """Returns format name -> the data sets of this format in a folder, for those with any.

    Folders below that are named as splits (train, valid, ...) are the sets of one data set. If
    there are none, it looks into the only folder below that has some.

    Raises:
      UserError: if there are none, but a format is recognized; if two sets of a format would have
        outputs of the same name.
    """
    found, reasons = _detect(folder, files)
    below = sorted(
        {name.split('/')[0] for name in files.list(folder, recursive=True) if '/' in name}
    )
    splits = [name for name in SPLITS if name in below]
    if len(splits) > 1:
        found = _prefer_splits(found, folder, splits, files)
    if not found:
        inner = {name: _detect(file_access.join(folder, name), files) for name in below}
        reasons += [reason for _, each in inner.values() for reason in each]
        sets = {name: each for name, (each, _) in inner.items() if each}
        found = _of_one_folder(folder, sets)
    if not found:
        reasons += known.reasons(folder, files)
    if not found and reasons:
        raise UserError(f'{folder} cannot be converted as it is. {" ".join(reasons)}')
    return {name: _with_unique_names(sets) for name, sets in found.items()}


def _prefer_splits(
    found: dict[str, list[Found]], folder: str, splits: list[str], files: Files
) -> dict[str, list[Found]]:
    """Replaces the set that all splits are together by the set of each split."""
    by_format: dict[str, list[Found]] = {}
    for split in splits:
        for name, sets in _detect(file_access.join(folder, split), files)[0].items():
            names = [split] if len(sets) == 1 else [f'{split}_{item.name}' for item in sets]
            named = [item._replace(name=key) for item, key in zip(sets, names, strict=True)]
            by_format.setdefault(name, []).extend(named)
    preferred = dict(found)
    for name, sets in by_format.items():
        whole = found.get(name, [])
        is_alone = len(whole) == 1 and not whole[0].name
        if len(sets) > 1 and (not found or (is_alone and _are_all(sets, whole, files))):
            preferred[name] = sets
    return preferred


def _are_all(sets: list[Found], whole: list[Found], files: Files) -> bool:
    """Whether some sets have as many images as another one."""
    try:
        counts = [
            sum(1 for item in each for _ in item.source.entries(files)) for each in (sets, whole)
        ]
    except UserError:  # Its conversion says what is wrong.
        return False
    return counts[0] == counts[1]


def _of_one_folder(folder: str, sets: dict[str, dict[str, list[Found]]]) -> dict[str, list[Found]]:
    """Returns the sets of the only folder that has some; {} if there is none.

    Raises:
      UserError: if there are several.
    """
    if len(sets) > 1:
        found = [f'{name} ({", ".join(formats)})' for name, formats in sets.items()]
        raise UserError(
            f'{folder} has no format that is known here, but several of its folders have: '
            f'{format_list(found)}. Convert them one by one.'
        )
    return next(iter(sets.values()), {})


def _detect(folder: str, files: Files) -> tuple[dict[str, list[Found]], list[str]]:
    """Returns the sets of each format, and why those that were recognized cannot be read."""
    found, reasons = {}, []
    for name, row in ANNOTATION_FORMATS.items():
        # A broken file of one format leaves the sets of the others.
        try:
            if sets := row.source.detect(folder, files):
                found[name] = sets
        except UserError as error:
            reasons.append(str(error))
        except OSError:
            continue
    return found, reasons


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
    name = next((field.name for field in fields(source) if field.name.endswith('_file')), '')
    return os.path.splitext(os.path.basename(getattr(source, name)))[0] if name else ''


def name_of(source: Source) -> str:
    """Returns the name of a source's format; that of its class if it is not in the table."""
    names = (name for name, row in ANNOTATION_FORMATS.items() if type(source) is row.source)
    return next(names, type(source).__name__)
