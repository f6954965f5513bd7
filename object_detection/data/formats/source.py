"""What every annotation format provides: a source, which opens a data set, and its reader.

A module of this folder holds one format, and `formats.py` lists them all. A format sees files only
through a `Files`, so that it works on this machine and in a distributed job alike; sources and
readers are pickled and sent to workers. Nothing here imports TensorFlow or Beam.
"""

import dataclasses
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from object_detection.data import annotated_image, annotation_checks, file_access
from object_detection.data.annotated_image import (
    NOT_IN_LABEL_MAP,
    AnnotatedObject,
    ClassLabel,
    ImageAnnotations,
    Provided,
    ReadResult,
)
from object_detection.data.coco.annotations import EntryProblem, clean
from object_detection.data.coco.keypoints import KeypointLayout
from object_detection.data.file_access import Files
from object_detection.data.image_files import MAX_PIXELS, ImageFile
from object_detection.data.label_map import LabelMap
from object_detection.data.tf_examples import Clip
from object_detection.errors import UnusableError, UserError, expected, format_list
from object_detection.system.grouping import Groups

_log = logging.getLogger(__name__)
# Folders of the splits of a data set; the first is the one to train on.
SPLITS = ('train', 'training', 'val', 'valid', 'validation', 'test', 'testing')


# Reasons of images that are left out: another one has the same id; nobody has annotated it, so that
# nothing is known of its objects. A file of the set's folders that is not read is a problem, too.
DUPLICATE, NOT_ANNOTATED, UNKNOWN_FILE = 'duplicate_image', 'not_annotated', 'unknown_file'


class ImageEntry(NamedTuple):
    """An image of a data set: little data, which JSON can hold, to send it to a worker.

    Attributes:
      image: 'id' and 'file_name', which reports show, and further keys of the format. A clip has
        its entries under 'frames' as plain tuples, see `frames_of`.
      annotations: the annotations, if the file of the whole data set holds them; [] if each image
        has a file of its own, which the worker reads.
      problem: (reason, detail) of an `UnusableError` that is known already; () if there is none.
    """

    image: dict[str, Any]
    annotations: list[Any]
    problem: Sequence[str] = ()


class Reader(Protocol):
    """Reads images of an opened data set; it is pickled.

    Attributes:
      provided: the optional fields of the examples.
      max_pixels: maximum number of pixels of an image.
    """

    provided: Provided
    max_pixels: int

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        """Returns the annotations of an image, without reading its file.

        Raises:
          UnusableError: if they cannot be read.
          OSError: if a file of annotations cannot be read.
        """

    def read_object(
        self, annotation: Any, file: ImageFile, *, rasterize: bool = True
    ) -> AnnotatedObject:
        """Reads one of the annotations.

        Args:
          annotation: an annotation of `annotations`.
          file: the image's size.
          rasterize: false checks masks without making them: they are b'' in the result.

        Raises:
          UnusableError: if it cannot be used.
        """


@dataclasses.dataclass(frozen=True)
class DataSet:
    """An opened data set.

    Attributes:
      reader: reads its images.
      num_images: number of entries.
      labels: key of each class in the annotations -> its label.
      problems: what cannot be used and belongs to no entry.
      unlisted: the image files in the folder that the annotations do not name.
      notes: what is worth saying of the whole set -> number, as `ImageAnnotations.notes`.
      keypoints: the keypoints of the classes, by their keys.
      is_renumbered: whether labels differ from the numbers of classes in the annotations.
      categories: key of a class -> what else its entry in the annotations says of it.
    """

    reader: Reader
    num_images: int
    labels: Mapping[Any, ClassLabel]
    problems: tuple[EntryProblem, ...] = ()
    keypoints: KeypointLayout | None = None
    is_renumbered: bool = False
    categories: Mapping[Any, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    unlisted: Sequence[str] = ()
    notes: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A data set of some format, and the options of reading it.

    The fields of a subclass are the options of its command, see `option`; those of this class are
    common to all formats.

    Attributes:
      label_map_file: label map that assigns ids to the classes by name; '' numbers them.
      drop_empty: leaves out images without a usable object.
      max_pixels: maximum number of pixels of an image; larger ones are left out before decoding.
    """

    label_map_file: str = ''
    drop_empty: bool = False
    max_pixels: int = MAX_PIXELS

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        """Finds the images and classes, before anything is converted.

        Args:
          files: access to files.
          label_map: the content of `label_map_file`; None without one.

        Raises:
          FileNotFoundError, ValueError: if an input is missing or broken.
        """
        raise NotImplementedError

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        """Yields the images, in the same order each time."""
        raise NotImplementedError

    @classmethod
    def detect(cls, folder: str, files: Files) -> list['Found']:
        """Returns the data sets of this format in a folder, such as its splits; [] if none.

        Raises:
          UserError: if none can be read, but files are recognized as of this format; it says what
            is missing, in a sentence.
        """
        del folder, files
        return []


def option(
    default: Any,
    help_text: str,
    *,
    flag: str = '',
    required: bool = False,
    positional: bool = False,
) -> Any:
    """Returns a field of a `Source` that is an option of its command.

    Args:
      default: default value.
      help_text: description in one or two sentences.
      flag: name of the option, if it differs from the field's.
      required: whether the option must be given.
      positional: whether it is an argument without a name, before the options.
    """
    metadata = {'help': help_text, 'flag': flag, 'required': required, 'positional': positional}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class FileSource(Source):
    """A data set of one file of annotations, which may lie beside its images.

    Attributes:
      annotations_file: the file.
      image_dir: folder of the images; '' is that of the file.
    """

    annotations_file: str = option(
        '', 'File of the annotations.', flag='annotations', required=True
    )
    image_dir: str = option(
        '', 'Folder of the images; by default that of the annotations.', flag='images'
    )

    @property
    def folder(self) -> str:
        """The folder below which the images are."""
        return self.image_dir or os.path.dirname(self.annotations_file)


SourceT = TypeVar('SourceT', bound=Source)


@dataclasses.dataclass(frozen=True)
class SourceReader(Generic[SourceT]):
    """Base of readers, see `Reader`, that need only the data set and its labels.

    Attributes:
      source: the data set.
      labels: what the format calls a class by -> label.
      names_are_alone: see `file_access.are_alone`.
    """

    source: SourceT
    labels: Mapping[Any, ClassLabel]
    names_are_alone: bool = True

    @property
    def max_pixels(self) -> int:
        return self.source.max_pixels

    def read_object(
        self, annotation: Any, file: ImageFile, *, rasterize: bool = True
    ) -> AnnotatedObject:
        del rasterize
        return self.object_of(annotation, file)

    def object_of(self, annotation: Any, file: ImageFile) -> AnnotatedObject:
        """Reads one of the annotations, in a format without masks; see `Reader.read_object`."""
        raise NotImplementedError


class Found(NamedTuple):
    """A data set that `Source.detect` found.

    Attributes:
      name: name of the split, for the names of outputs; '' if there is only one.
      source: the data set, with the options that read it.
      reason: what shows that it has this format, such as 'Annotations/*.xml'.
    """

    name: str
    source: Source
    reason: str


class Listed(NamedTuple):
    """A file that may be the annotations of a data set: its folder below that of the set, or ''."""

    below: str
    name: str
    path: str


def listed(folder: str, below: Iterable[str], suffix: str, files: Files) -> Iterator[Listed]:
    """Yields the files with a suffix in a folder ('' in `below`), and in some folders of it."""
    for part in below:
        parent = file_access.join(folder, part) if part else folder
        for name in files.list(parent):
            if file_access.has_suffix(name, suffix):
                yield Listed(part, name, file_access.join(parent, name))


def first_with(folders: Iterable[str], image: str, files: Files, *, is_alone: bool = True) -> str:
    """Returns the first folder that has an image, see `file_access.image_paths`; '' if none has."""
    for folder in folders:
        paths = file_access.image_paths(folder, image, is_alone=is_alone).paths
        if file_access.first_that_exists(paths, files):
            return folder
    return ''


def without_images(path: str, title: str, image: str) -> UserError:
    """Returns the error of a file of a format whose first image is not found."""
    return UserError(
        f'{path} looks like {title}, but its first image, {image}, is in none of the usual '
        'folders; give its folder by --images, see `tfod convert --help`.'
    )


def found_or_raise(found: list[Found], errors: Sequence[UserError]) -> list[Found]:
    """Returns what `Source.detect` found; logs the first error of other files.

    Raises:
      UserError: the first error, if there is no set.
    """
    if errors and not found:
        raise errors[0]
    # Files of a part that was not downloaded, as a rule.
    if errors:
        _log.warning('%s', errors[0])
    return found


def number_classes(
    names: Iterable[str], label_map: LabelMap | None, *, sort: bool = False
) -> dict[str, ClassLabel]:
    """Returns name -> label of the classes that have one.

    Args:
      names: names of the data set's classes.
      label_map: numbers those that it knows; None numbers all from 1 on.
      sort: whether to number them in the order of the alphabet, instead of the given one.

    Raises:
      UserError: if the label map knows none of the names.
    """
    names = list(dict.fromkeys(filter(None, map(clean, names))))
    if label_map is None:
        ordered = sorted(names) if sort else names
        return {name: ClassLabel(i, name) for i, name in enumerate(ordered, start=1)}
    texts = {number: name for name, number in label_map.name_to_id.items()}
    found = {name: label_map.text_to_id.get(name, 0) for name in names}
    labels = {name: ClassLabel(i, texts[i]) for name, i in found.items() if i > 0}
    if names and not labels:
        raise expected(
            'Label map', f'some of {format_list(names)}', format_list(label_map.text_to_id)
        )
    return labels


def label_of(name: Any, labels: Mapping[str, ClassLabel]) -> ClassLabel:
    """Returns the label of a class's name.

    Raises:
      UnusableError: if there is no name, or the label map has no such class.
    """
    text = clean(name) if isinstance(name, str) else ''
    if text in labels:
        return labels[text]
    if not text:
        raise UnusableError('unknown_category', 'it has no class')
    raise UnusableError(NOT_IN_LABEL_MAP, text)


def read(reader: Reader, entry: ImageEntry, files: Files) -> ReadResult:
    """Reads an image with its annotations; the file is decoded once, to find a corrupt one.

    Raises:
      UnusableError: if the image cannot be used.
    """
    said = annotations_of(reader, entry, files)
    encoded = read_image_file(said, files)
    file = annotation_checks.check_image(encoded, said.stated_size, reader.max_pixels)
    return annotated_image.annotate(file, said, reader.read_object, reader.provided)


def read_image_file(said: ImageAnnotations, files: Files) -> bytes:
    """Returns the content of the first path that can be read, or the embedded image.

    Raises:
      UnusableError: if there is none; it has the error of the first.
    """
    first: OSError | None = None
    for path in said.paths:
        try:
            return files.read(path)
        except OSError as error:
            first = first or error
    if said.embedded:
        return said.embedded
    note = f' ({said.path_note})' if said.path_note else ''
    text = f'cannot be read: {first or "no file is named"}{note}'
    raise UnusableError('bad_image', text) from first


def entries_of(source: Source, files: Files, reader: Reader | None = None) -> Iterator[ImageEntry]:
    """Yields the images of a data set; one whose id or file another has cannot be used.

    Args:
      source: the data set.
      files: access to files.
      reader: its reader, which finds names of one file: those that differ in their letters' case
        or their suffix, and only one of which is there. None does not look for them.
    """
    return marked(source.entries(files), files, reader)


def marked(
    entries: Iterable[ImageEntry], files: Files, reader: Reader | None
) -> Iterator[ImageEntry]:
    """Yields entries, with a problem if another one has their id or file; see `entries_of`."""
    seen = Groups()  # Rows are the images of a name without suffix, in small letters.
    for entry in entries:
        image_id, name = entry.image['id'], entry.image.get('file_name')
        if reader and not entry.problem and 'frames' not in entry.image:
            *_, spelled = ('', *file_access.spellings(str(name)))
            stem = file_access.without_suffix(spelled).lower()
            if other := _of_same_file(entry, seen.rows_of(stem), reader, files):
                text = f'its file is that of another image, {other}'
                entry = ImageEntry(entry.image, [], (DUPLICATE, text))
            else:
                seen.add(stem, entry.image)
        if seen.has_image(image_id) and not entry.problem:
            text = f'another image has its id, {image_id}'
            entry = ImageEntry(entry.image, [], (DUPLICATE, text))
        seen.add_image(image_id, None, None)
        yield entry


def _of_same_file(
    entry: ImageEntry, others: Iterable[dict[str, Any]], reader: Reader, files: Files
) -> str:
    """Returns the name of another image, if it differs and has the same file; '' if none has."""
    name = entry.image['file_name']
    others = [other for other in others if other['file_name'] != name]
    path = _path(entry, reader, files) if others else ''
    same = (
        other['file_name']
        for other in others
        if _path(ImageEntry(other, []), reader, files) == path
    )
    return str(next(same, '')) if path else ''


def _path(entry: ImageEntry, reader: Reader, files: Files) -> str:
    try:
        said = annotations_of(reader, entry, files)
    except UnusableError:  # The conversion counts it.
        return ''
    return file_access.first_that_exists(said.paths, files)


def unread(names: Iterable[str], why: str) -> tuple[EntryProblem, ...]:
    """Returns the problems of files of a data set that are not read.

    Args:
      names: the files.
      why: what a reader expects.
    """
    error = UnusableError(UNKNOWN_FILE, f'it is not read; {why}')
    return tuple(EntryProblem(error, name, None, None) for name in names)


def frames_of(entry: ImageEntry) -> list[ImageEntry]:
    """Returns the frames of a clip; an image is its only one."""
    return [ImageEntry(*frame) for frame in entry.image.get('frames', [entry])]


def clip_of(entry: ImageEntry, frames: Iterable[ImageEntry]) -> Clip:
    """Returns what is known of a clip.

    Args:
      entry: the clip, whose `image` has 'dataset', 'media_id', 'start' and 'end'.
      frames: the frames that can be used, which have 'second' and 'is_annotated'.
    """
    frames = [frame.image for frame in frames]
    return Clip(
        **{key: entry.image[key] for key in ('dataset', 'media_id', 'start', 'end')},
        seconds=[frame['second'] for frame in frames],
        is_annotated=[frame['is_annotated'] for frame in frames],
    )


def annotations_of(reader: Reader, entry: ImageEntry, files: Files) -> ImageAnnotations:
    """Returns the annotations of an image.

    Raises:
      UnusableError: if they cannot be read, for any reason.
    """
    if entry.problem:
        raise UnusableError(*entry.problem)
    try:
        return reader.annotations(entry, files)
    except UnusableError:
        raise
    except OSError as error:
        raise UnusableError('bad_annotations', f'cannot be read: {error}') from error
    except UserError as error:
        raise UnusableError('bad_annotations', str(error).removesuffix('.')) from error
    # A file of unexpected form affects this image only.
    except Exception as error:
        text = f'cannot be read: {type(error).__name__}: {error}'
        raise UnusableError('bad_annotations', text) from error
