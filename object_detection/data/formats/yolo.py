"""Data sets in YOLO format: one text file an image, with a line for each object.

A line is `CLASS X Y WIDTH HEIGHT`, the box's center and size, or `CLASS X Y X Y X Y ...`, the
corners of a polygon or of an oriented box; all numbers but the class are normalized to the image.
With `kpt_shape: [K, 2 or 3]` in data.yaml, a box is followed by the X Y, or X Y VISIBILITY, of K
keypoints. The class is the index of a name in data.yaml (Ultralytics), or in the file of names,
such as obj.names (Darknet).
"""

import collections
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import yaml

from object_detection.data import file_access
from object_detection.data.annotated_image import (
    NO_ANNOTATIONS,
    NOT_IN_LABEL_MAP,
    AnnotatedObject,
    ClassLabel,
    ImageAnnotations,
    Provided,
    not_converted,
)
from object_detection.data.coco import annotations as coco_categories
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco.keypoints import PERSON_KEYPOINTS, KeypointLayout
from object_detection.data.file_access import Files
from object_detection.data.formats import csv_files, shapes
from object_detection.data.formats.source import (
    DataSet,
    Found,
    ImageEntry,
    Source,
    SourceReader,
    option,
)
from object_detection.data.image_files import ImageFile
from object_detection.data.label_map import LabelMap
from object_detection.errors import UnusableError, UserError, expected, format_list
from object_detection.system import texts

_SETS = ('train', 'val', 'test')
_YAML_SUFFIXES = ('.yaml', '.yml')
_NAMES_FILES = ('obj.names', 'classes.txt', 'classes.names', '_darknet.labels')
_MAX_DESCRIPTION = 4 << 20  # bytes of data.yaml and of files of names
_MAX_LIST = 64 << 20
_MAX_LABELS = 8 << 20  # bytes of the file of one image
# Numbers have six digits, so that the sum of a center and half a width may exceed 1 by as much.
_ROUNDING = 2e-6
_MAX_NUMBER = 1e6
_HEAD = 100  # bytes, enough for the first word
_MAX_CLASS = 2**31 - 2
_POLYGON = 'polygon, of which the box is (--masks)'
_ORIENTED = 'four corners of a polygon or an oriented box, of which the upright box is (--masks)'
_MAX_KEYPOINTS = 1000
# `flip_idx` of PERSON_KEYPOINTS.
_PERSON_FLIP = [0, *(index for left in range(1, 17, 2) for index in (left + 1, left))]


@dataclasses.dataclass(frozen=True)
class YoloSource(Source):
    """A data set in YOLO format.

    Attributes:
      data_file: data.yaml of Ultralytics, obj.data of Darknet, or a file with a class name on each
        line, whose folder has the images.
      split: the set: 'train', 'val' or 'test'; '' reads all.
      masks: whether polygons are written as masks; a line without polygon is then left out.
    """

    data_file: str = option(
        '',
        'data.yaml, obj.data, or a file with a class name on each line in the folder of the data.',
        flag='data',
        required=True,
    )
    split: str = option('', 'The set: train, val or test; by default all.', flag='set')
    masks: bool = option(False, 'Write the polygons as masks.')

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        description = _describe(self.data_file, files)
        categories = [{'id': i, 'name': name} for i, name in description.names.items()]
        classes = coco_categories.classes(categories, label_map)
        entries = list(self._entries(description, files))
        if not entries:
            raise UserError(f'{self.data_file}: expected images. Received: none.')
        if not any(_label_file(entry.image['path'], files) for entry in entries):
            first = entries[0].image['path']
            raise UserError(
                f'{self.data_file}: expected text files in a folder `labels` for the images in '
                f'`images`, or beside the images. Received: none, such as for {first}.'
            )
        pose = description.pose
        reader = YoloReader(self, classes.labels, left_out=classes.left_out, pose=pose)
        return DataSet(
            reader,
            len(entries),
            classes.labels,
            is_renumbered=not label_map,
            keypoints=pose.layout if pose else None,
            # The label map of the conversion holds it.
            notes=not_converted([f'flip_idx, as keypoint_flip_permutation: {pose.flip}'])
            if pose and pose.flip and label_map
            else {},
        )

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        yield from self._entries(_describe(self.data_file, files), files)

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        listed = files.list(folder)
        names = [name for name in listed if name.endswith((*_YAML_SUFFIXES, '.data'))]
        reason = ''
        for name in (*names, *(name for name in _NAMES_FILES if name in listed)):
            path = file_access.join(folder, name)
            try:
                made = cls(data_file=path)
                made.open(files, None)
                sets = _describe(path, files).sets
            except _MissingPartError:
                return [Found('', made, name)]  # The conversion says what is missing.
            except (UserError, OSError) as error:
                # Other files have these suffixes, too.
                if not reason and name in names and b'names' in files.head(path, _MAX_DESCRIPTION):
                    reason = str(error)
                continue
            parts = [dataclasses.replace(made, split=key) for key in sets or ['']]
            return [
                Found(part.split, dataclasses.replace(part, masks=part._has_masks(files)), name)
                for part in parts
            ]
        if reason:
            raise UserError(f'It looks like YOLO, but {reason}')
        return []

    def _has_masks(self, files: Files) -> bool:
        """Whether all lines are polygons, and not all of them have four corners (`_ORIENTED`)."""
        description = _describe(self.data_file, files)
        has_others = False
        for entry in self._entries(description, files) if not description.pose else ():
            labels = _label_file(entry.image['path'], files)
            try:
                lines = csv_files.words(labels, files, _MAX_LABELS) if labels else []
            except (UserError, OSError):  # Its conversion says what is wrong.
                continue
            if any(len(words) < 7 for _, words in lines):
                return False
            has_others |= any(len(words) != 9 for _, words in lines)
        return has_others

    def _entries(self, description: '_Description', files: Files) -> Iterator[ImageEntry]:
        if self.split and self.split not in description.sets:
            raise expected(
                self.data_file, f'a set {self.split!r}', format_list(description.sets) or 'none'
            )
        # Without sets, all images below the folder.
        places = description.sets or {'': (os.path.dirname(self.data_file),)}
        read = [paths for name, paths in places.items() if self.split in ('', name)]
        entries = [entry for paths in read for path in paths for entry in _images(path, files)]
        entries += [each for paths in read for path in paths for each in _missing(path, files)]
        paths_of = collections.defaultdict(set)  # id -> paths of images
        for entry in entries:
            paths_of[entry.image['id']].add(entry.image['path'])
        for entry in entries:
            # Folders may have files of equal names.
            if len(paths_of[entry.image['id']]) > 1:
                folder = os.path.dirname(self.data_file) or '.'
                image_id = os.path.relpath(entry.image['path'], folder)
                entry = entry._replace(image={**entry.image, 'id': image_id})
            yield entry


class _MissingPartError(UserError):
    """A set has several folders, and some are absent."""


class _Pose(NamedTuple):
    """The keypoints of objects.

    Attributes:
      shape: their number K, and 2 or 3 numbers of each.
      layout: their names.
      flip: K numbers, the keypoint that each is in a mirrored image; empty if they are not given.
    """

    shape: tuple[int, int]
    layout: KeypointLayout
    flip: list[int]


class _Description(NamedTuple):
    """The content of data.yaml, obj.data or a file of names.

    Attributes:
      names: index -> name of a class.
      sets: name of a set -> folders of images, or lists of their paths.
      pose: the keypoints; None if there are none.
    """

    names: dict[int, str]
    sets: dict[str, tuple[str, ...]]
    pose: _Pose | None = None


@dataclasses.dataclass(frozen=True)
class YoloReader(SourceReader[YoloSource]):
    """Reads images, see `SourceReader`; labels by the index of a class.

    Attributes:
      left_out: index -> name of the classes that the label map lacks.
      pose: the keypoints; None if there are none.
    """

    left_out: Mapping[int, str] = dataclasses.field(default_factory=dict)
    pose: _Pose | None = None

    @property
    def provided(self) -> Provided:
        return Provided(self.source.masks, self.pose.layout.names if self.pose else None)

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        path, name, masks = entry.image['path'], entry.image['file_name'], self.source.masks
        labels = _label_file(path, files)
        # Images without objects need no file.
        lines = csv_files.words(labels, files, _MAX_LABELS) if labels else []
        return ImageAnnotations(
            file_name=name,
            source_id=entry.image['id'],
            annotations=lines,
            paths=(path,),
            notes={
                **not_converted(
                    _ORIENTED if len(words) == 9 else _POLYGON
                    for _, words in lines
                    if words[5:] and not masks and not self.pose
                ),
                **({} if labels else {NO_ANNOTATIONS: 1}),
            },
        )

    def read_object(
        self, annotation: list[str], file: ImageFile, *, rasterize: bool = True
    ) -> AnnotatedObject:
        label = self._label(annotation[0])
        numbers = _numbers(annotation[1:], self.pose)
        size = np.array([file.width, file.height])
        said = f'the line is {" ".join(annotation)[:200]}'
        if len(numbers) > 4 and not self.pose:
            corners = _snap(numbers.reshape(-1, 2)) * size
            return shapes.of_polygons(
                label,
                [corners],
                file,
                masks=self.source.masks,
                rasterize=rasterize,
                said=said,
            )
        center, half = numbers[:2], numbers[2:4] / 2
        corners = np.stack([center - half, center + half])
        # Not sorted, so that a negative width remains one.
        (xmin, ymin), (xmax, ymax) = (_snap(corners) * size).tolist()
        found = shapes.of_box(label, (ymin, xmin, ymax, xmax), file, said)
        if self.source.masks:
            raise UnusableError('bad_mask', 'the line is a box and no polygon')
        if not self.pose:
            return found
        keypoints = _keypoints(numbers[4:], self.pose, size)
        annotation = {'category_id': _index(annotation[0]), 'keypoints': keypoints.ravel().tolist()}
        keypoints = coco_keypoints.read_keypoints(annotation, self.pose.layout)
        num_keypoints = int(np.count_nonzero(keypoints[:, 2]))
        return found._replace(keypoints=keypoints, num_keypoints=num_keypoints)

    def _label(self, text: str) -> ClassLabel:
        index = _index(text)
        if index in self.labels:
            return self.labels[index]
        if index in self.left_out:
            raise UnusableError(NOT_IN_LABEL_MAP, self.left_out[index])
        raise UnusableError('unknown_category', f'the class is {texts.visible(text[:100])}')


def _index(text: str) -> int | None:
    # Some programs write the index as a float.
    return int(text.removesuffix('.0')) if text.removesuffix('.0').isdecimal() else None


def _describe(path: str, files: Files) -> _Description:
    """Reads data.yaml, obj.data or a file of names.

    Raises:
      OSError, UserError: if it cannot be read or has no classes.
    """
    file_access.check_exists(path, 'file', files)
    text = texts.decode(files.read(path, _MAX_DESCRIPTION), path)
    if path.endswith(_YAML_SUFFIXES):
        return _from_yaml(text, path, files)
    if path.endswith('.data'):
        pairs = [line.partition('=') for line in text.splitlines() if '=' in line]
        content = {key.strip(): value.strip() for key, _, value in pairs}
        names_file = _resolve(path, '', content.get('names', ''), files)
        if not names_file:
            raise FileNotFoundError(f'{path}: there is no file `names`, {content.get("names")}.')
        names = texts.decode(files.read(names_file, _MAX_DESCRIPTION), names_file)
        content['val'] = content.get('val') or content.get('valid')
        return _Description(_names_of(names.splitlines(), path), _sets(content, path, '', files))
    folder = os.path.dirname(path)
    sets = {}
    for name in _SETS:
        folders = (file_access.join(folder, *parts) for parts in (('images', name), (name,)))
        if found := [each for each in folders if files.exists(each)]:
            sets[name] = (found[0],)
    return _Description(_names_of(text.splitlines(), path), sets)


class _Loader(yaml.SafeLoader):
    """Refuses aliases: a few nested ones make a small file gigabytes of text."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem='aliases are not read', problem_mark=mark)
        return super().compose_node(parent, index)


def _from_yaml(text: str, path: str, files: Files) -> _Description:
    try:
        content = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f'{path} cannot be read as a YAML file: {error}') from error
    if not isinstance(content, dict) or 'names' not in content:
        raise UserError(f'{path}: expected `names` of the classes, and folders of images.')
    names = _names_of(content['names'], path)
    pose = _pose(content, names, path) if content.get('kpt_shape') else None
    root = content.get('path')
    root = root if isinstance(root, str) else ''
    return _Description(names, _sets(content, path, root, files), pose)


def _pose(content: dict[str, Any], names: Mapping[int, str], path: str) -> _Pose:
    """Returns the keypoints of a data.yaml with `kpt_shape`."""
    shape, flip = content['kpt_shape'], content.get('flip_idx') or []
    if (
        not isinstance(shape, list)
        or not all(isinstance(value, int) for value in shape)
        or len(shape) != 2
        or not (0 < shape[0] <= _MAX_KEYPOINTS and shape[1] in (2, 3))
    ):
        what = f'the number of keypoints, 1 to {_MAX_KEYPOINTS}, and 2 or 3 values of each'
        raise expected(f'{path}: kpt_shape', what, str(shape)[:100])
    count = shape[0]
    numbers = [index for index in flip if isinstance(index, int)] if isinstance(flip, list) else []
    if flip and (len(numbers) != len(flip) or sorted(numbers) != [*range(count)]):
        raise expected(f'{path}: flip_idx', f'the numbers 0 to {count - 1}', str(flip)[:100])
    default = [f'keypoint_{index}' for index in range(count)]
    if flip == _PERSON_FLIP:
        default = [*PERSON_KEYPOINTS]
    given = content.get('kpt_names') or {}
    # A list, or one for each class.
    of_classes = {i: given.get(i, default) if isinstance(given, dict) else given for i in names}
    for of_class in of_classes.values():
        texts_of_class = {name for name in of_class if isinstance(name, str) and name}
        if not isinstance(of_class, list) or len(of_class) != count or len(texts_of_class) != count:
            what = f'{count} different names, or as many for each number of a class'
            raise expected(f'{path}: kpt_names', what, str(of_class)[:100])
    categories = [{'id': i, 'name': names[i], 'keypoints': of_classes[i]} for i in names]
    layout = coco_keypoints.keypoint_layout(categories)
    if numbers:
        mirrored = {key: [slots[i] for i in numbers] for key, slots in layout.slots.items()}
        layout = layout._replace(mirrored=mirrored)
    return _Pose((count, shape[1]), layout, numbers)


def _names_of(names: Any, path: str) -> dict[int, str]:
    """Returns index -> name of a list or of a mapping."""
    received = type(names).__name__
    if isinstance(names, list):
        # The last line of a file may be empty.
        is_empty = [isinstance(name, str) and not name.strip() for name in names]
        names = {i: name for i, name in enumerate(names) if not is_empty[i]}
    is_mapping = isinstance(names, dict) and names
    if not is_mapping or not all(isinstance(i, int) and 0 <= i <= _MAX_CLASS for i in names):
        what = '`names`, a list of the names of the classes, or a mapping from numbers to them'
        raise expected(path, what, received)
    for i, name in names.items():
        if not isinstance(name, str | int | float):
            kind = type(name).__name__
            raise UserError(f'{path}: expected a text as name of class {i}. Received: {kind}.')
    return {i: str(name) for i, name in names.items()}


def _sets(
    content: dict[str, Any], path: str, root: str, files: Files
) -> dict[str, tuple[str, ...]]:
    """Returns the sets that a description names.

    Raises:
      FileNotFoundError: if there is none of them.
      _MissingPartError: if a part of a set is missing.
    """
    sets = {}
    for name in _SETS:
        value = content.get(name)
        entries = value if isinstance(value, list) else [value]
        entries = [entry for entry in entries if isinstance(entry, str) and entry]
        # Descriptions often name sets that have not been downloaded; reading them is an error.
        found = {entry: _resolve(path, root, entry, files) for entry in entries}
        if any(found.values()):
            if missing := [entry for entry, place in found.items() if not place]:
                raise _MissingPartError(
                    f'{path}: expected all folders of the set {name!r}. '
                    f'Not there: {format_list(missing)}.'
                )
            sets[name] = tuple(found.values())
    if not sets:
        raise FileNotFoundError(f'{path}: none of the folders of train, val and test is there.')
    return sets


def _resolve(path: str, root: str, entry: str, files: Files) -> str:
    """Returns the path that an entry of a description means; '' if there is no such file or folder.

    Entries are relative to `root`, to the folder of the description, or to a folder that is absent
    here: then their last components are looked for, as `train/images` of `../train/images`. In a
    data.yaml two remain, as the last component of `valid/images` may be another set's.
    """
    folder = os.path.dirname(path)
    parts = entry.replace('\\', '/').removeprefix('./').split('/')
    for start in range(len(parts)):
        is_cut = start and parts[start - 1] != '..'
        if path.endswith(_YAML_SUFFIXES) and is_cut and len(parts) - start < 2:
            break
        name = '/'.join(parts[start:])
        for base in (file_access.join(folder, root), folder):
            candidate = file_access.join(base, name)
            if name and files.exists(candidate):
                return candidate
    return ''


def _images(path: str, files: Files) -> Iterator[ImageEntry]:
    """Yields the images of a folder, or of a list of paths."""
    if path.endswith('.txt'):
        lines = texts.decode(files.read(path, _MAX_LIST), path).split('\n')
        for line in filter(None, map(str.strip, lines)):
            # Without an image, it is counted as a bad one.
            places = (_resolve(path, '', each, files) for each in file_access.variants(line))
            image = next(filter(None, places), file_access.join(os.path.dirname(path), line))
            yield ImageEntry({'id': line, 'file_name': line, 'path': image}, [])
        return
    for name in files.list(path, recursive=True):
        if file_access.is_image(name):
            image = file_access.join(path, name)
            yield ImageEntry({'id': name, 'file_name': name, 'path': image}, [])


def _missing(path: str, files: Files) -> Iterator[ImageEntry]:
    """Yields the images that are missing in a folder, of whose objects there are text files."""
    if file_access.has_suffix(path, '.txt'):
        return
    images = (file_access.join(path, name) for name in files.list(path, recursive=True))
    known = {stem for image in images if file_access.is_image(image) for stem in _stems(image)}
    for folder in map(os.path.dirname, _stems(file_access.join(path, 'any.jpg'))):
        for name in files.list(folder, recursive=True):
            text = file_access.join(folder, name)
            stem = file_access.without_suffix(text)
            if stem in known or not file_access.has_suffix(name, '.txt'):
                continue
            # Lists of names and images are such files too.
            head = files.head(text, _HEAD).decode(errors='replace').split()
            if not head or re.fullmatch(r'[\d.]+', head[0].lstrip('\ufeff')):
                yield ImageEntry({'id': text, 'file_name': text, 'path': f'{stem}.jpg'}, [])
            known.add(stem)


def _label_file(image: str, files: Files) -> str:
    """Returns the path of the text file of an image; '' if there is none."""
    paths = (each + suffix for each in _stems(image) for suffix in ('.txt', '.TXT'))
    return file_access.first_that_exists(paths, files)


def _stems(image: str) -> list[str]:
    """Returns where the text file of an image may be, without suffix."""
    stem = file_access.without_suffix(image)
    # The path begins with `images/` in the folder of the data.
    before, separator, after = f'/{stem}'.rpartition('/images/')
    return ([f'{before}/labels/{after}'[1:]] if separator else []) + [stem]


def _keypoints(numbers: np.ndarray, pose: _Pose, size: np.ndarray) -> np.ndarray:
    """Returns keypoints in pixels, float64 [K, 3] of (x, y, visibility); zeros of a line without.

    Those without visibility are visible, unless they are (0, 0) or negative.
    """
    if not len(numbers):
        return np.zeros((pose.shape[0], 3))
    rows = numbers.reshape(pose.shape)
    xy = rows[:, :2]
    is_placed = (xy >= 0).all(1) & (xy > 0).any(1)
    visibility = rows[:, 2:] if pose.shape[1] == 3 else 2.0 * is_placed[:, None]
    return np.concatenate([xy * size * (visibility != 0), visibility], axis=1)


def _numbers(words: list[str], pose: _Pose | None) -> np.ndarray:
    """Returns the numbers of a line: of a box, of it and keypoints, or of a polygon, float64."""
    try:
        numbers = np.array(words, np.float64)
    except ValueError as error:
        text = f'expected numbers, received {" ".join(words)[:200]}'
        raise UnusableError('bad_box', text) from error
    is_more = len(numbers) >= 6 and len(numbers) % 2 == 0
    more = 'an even number of a polygon'
    if pose:
        count = 4 + pose.shape[0] * pose.shape[1]
        is_more, more = len(numbers) == count, f'{count} of a box and its keypoints'
    # Pixels in place of shares of the image are such numbers too; NaN is not below either.
    if not (len(numbers) == 4 or is_more) or not (np.abs(numbers) < _MAX_NUMBER).all():
        raise UnusableError(
            'bad_box',
            f'expected four numbers of a box or {more}, received '
            f'{len(numbers)}: {" ".join(words)[:200]}'
            + (' (a box with a confidence, as of predictions?)' if len(numbers) == 5 else ''),
        )
    return numbers


def _snap(corners: np.ndarray) -> np.ndarray:
    """Moves normalized coordinates that exceed the image by rounding only to its edge."""
    inside = np.clip(corners, 0, 1)
    return np.where(np.abs(inside - corners) <= _ROUNDING, inside, corners)
