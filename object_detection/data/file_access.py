"""Access to the files of data sets, on this machine or in an object store.

Readers of annotation formats see files only through a `Files`. Beam jobs use the file systems of
Beam (`dataset_tools/converters/sharded_writer.py`); everything else uses `LocalFiles`.

Annotations were often written on another machine: the names of images have backslashes, codes of
URLs (%20), no suffix or one in other letters, or begin with folders that are not here.
"""

import collections
import errno
import io
import json
import os
import posixpath
import re
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple, Protocol

from object_detection.errors import DataError, UnusableError, missing

# Bytes that are read at a time: a limit on the size of a file is no reason to allocate it.
_BLOCK = 1 << 20
_READ_SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.gif', '.webp', '.jpe', '.jfif', '.mpo')
_READ_SUFFIXES += ('.tif', '.tiff')
# Images that are not read; each is counted, as one that does not decode.
_OTHER_SUFFIXES = (*('.heic', '.heif', '.avif', '.jp2', '.jxl', '.ppm', '.pgm', '.tga'),)
# A drive of Windows, or the root.
_ROOT = re.compile(r'^(?:[A-Za-z]:|/+)')


class Files(Protocol):
    """How files are read. Paths are local ones or URLs (gs://...)."""

    def read(self, path: str, limit: int | None = None) -> bytes:
        """Returns the content of a file.

        Raises:
          OSError: if it cannot be read, or has more than `limit` bytes.
        """

    def head(self, path: str, length: int) -> bytes:
        """Returns the first bytes of a file, at most `length`.

        Raises:
          OSError: if it cannot be read.
        """

    def list(self, folder: str, *, recursive: bool = False) -> list[str]:
        """Returns the sorted paths, relative to a folder, of the files in it; [] if it is absent.

        Folders are not listed: object stores have none.
        """

    def exists(self, path: str) -> bool:
        """Whether there is a file of this path, or a folder; in object stores one with files."""


class LocalFiles:
    """Files of this machine, and URLs through TensorFlow, which is imported when one is met."""

    def read(self, path: str, limit: int | None = None) -> bytes:
        return checked_length(self.head(path, -1 if limit is None else limit + 1), path, limit)

    def head(self, path: str, length: int) -> bytes:
        if not is_url(path):
            with open(path, 'rb') as file:
                return read_at_most(file, length)
        import tensorflow as tf

        try:
            with tf.io.gfile.GFile(path, 'rb') as file:
                return file.read(length)
        except tf.errors.OpError as error:
            raise OSError(errno.EIO, str(error), path) from error

    def list(self, folder: str, *, recursive: bool = False) -> list[str]:
        if not is_url(folder):
            return list_local(folder, recursive=recursive)
        import tensorflow as tf

        if not tf.io.gfile.isdir(folder):
            return []
        found = tf.io.gfile.walk(folder)
        return _relative(found if recursive else [next(iter(found))], folder)

    def exists(self, path: str) -> bool:
        if not is_url(path):
            return os.path.exists(path)
        import tensorflow as tf

        try:
            return tf.io.gfile.exists(path)
        except tf.errors.OpError as error:  # There is no such kind of URL.
            raise OSError(errno.EIO, str(error), path) from error


def is_url(path: str) -> bool:
    return '://' in path


def join(folder: str, *names: str) -> str:
    """Returns the path of a file below a folder, which may be a URL."""
    return (posixpath if is_url(folder) else os.path).join(folder, *names)


def read_at_most(file: BinaryIO, length: int) -> bytes:
    """Reads at most `length` bytes, all if it is negative, without a buffer of that size.

    A file of known size is read as one block, as joined blocks take its size twice.
    """
    blocks, size = [], max(_size(file), _BLOCK)
    while length:
        block = file.read(size if length < 0 else min(length, size))
        size = _BLOCK
        if not block:
            break
        blocks.append(block)
        length -= len(block) if length > 0 else 0
    return b''.join(blocks)


def _size(file: BinaryIO) -> int:
    """Returns the size of a file on this machine; 0 if it is not known."""
    try:
        return os.fstat(file.fileno()).st_size
    except (AttributeError, OSError):
        return 0


def check_exists(path: str, what: str, files: Files) -> None:
    """Raises a FileNotFoundError that names `what`, if there is no file or folder of a path."""
    if not files.exists(path):
        raise missing(path, what)


def parse_json(content: bytes | str, path: str, **options: Any) -> Any:
    """Parses the content of a JSON file; `options` are those of `json.loads`.

    Raises:
      DataError: if it is not JSON, or too deeply nested.
    """
    try:
        return json.loads(content, **options)
    except (ValueError, RecursionError) as error:
        raise DataError(f'{path} is not a JSON file: {error}.') from error


def open_to_read(path: str, files: Files, limit: int | None = None) -> BinaryIO:
    """Opens a file to be read piece by piece; one that is not on this machine is read whole.

    Raises:
      OSError: if it cannot be read, or has more than `limit` bytes.
    """
    # Others than regular files, such as pipes, have no size that can be checked.
    if is_url(path) or not os.path.isfile(path):
        return io.BytesIO(files.read(path, limit))
    if limit is not None and os.path.getsize(path) > limit:
        raise _too_long(path, limit)
    return open(path, 'rb')


def checked_length(content: bytes, path: str, limit: int | None) -> bytes:
    """Returns content that was read up to one byte beyond a limit.

    Raises:
      OSError: if it is longer than the limit.
    """
    if limit is not None and len(content) > limit:
        raise _too_long(path, limit)
    return content


def _too_long(path: str, limit: int) -> OSError:
    return OSError(errno.EFBIG, f'The file has more than {limit} bytes', path)


def list_local(folder: str, *, recursive: bool) -> list[str]:
    """Returns `Files.list` of a folder of this machine."""
    folder = folder or '.'
    if recursive:
        return _relative(os.walk(folder, followlinks=True), folder)
    if not os.path.isdir(folder):
        return []
    with os.scandir(folder) as found:
        return sorted(item.name for item in found if item.is_file())


def path_within(folder: str, name: str, key: str = 'file_name') -> str:
    """Returns the path of a file that annotations name.

    Args:
      folder: folder of the files, local or of an object store (`gs://...`).
      name: name in the annotations, relative to the folder.
      key: what the annotations call the name, for the error.

    Raises:
      UnusableError: if it leads out of the folder.
    """
    path = join(folder, name)
    parts = name.split(os.sep)
    # Most names are plain, and images have many of them.
    if not {'', '.', '..'} & {*parts} and os.altsep is None and '\0' not in name:
        return path
    normalize = str if is_url(folder) else os.path.abspath
    root = join(normalize(folder), '')
    has_parents = is_url(folder) and '..' in name.split('/')
    if has_parents or '\0' in name or not normalize(path).startswith(root):
        text = f'{key} leads out of the folder of the images, {folder}: {name!r}'
        raise UnusableError('bad_image', text)
    return path


class ImagePaths(NamedTuple):
    """Where an image may be.

    Attributes:
      paths: in this order.
      note: what an error adds if it is at none of them; '' if nothing.
    """

    paths: tuple[str, ...]
    note: str


def is_image(name: str) -> bool:
    """Whether a file is an image by its suffix."""
    return name.lower().endswith(_READ_SUFFIXES + _OTHER_SUFFIXES)


def has_suffix(name: str, *suffixes: str) -> bool:
    """Whether a name ends with one of these suffixes, which are in small letters."""
    return name.lower().endswith(suffixes)


def without_suffix(name: str) -> str:
    return os.path.splitext(name)[0]


def image_paths(
    folder: str,
    name: str,
    stem: str = '',
    *,
    below: str = '',
    key: str = 'file_name',
    is_alone: bool = True,
) -> ImagePaths:
    """Returns where an image may be that annotations name.

    Args:
      folder: folder of the data set's images, which is never left.
      name: the name, which may be a path on the machine of the annotator.
      stem: name of the annotation file without suffix, which the image may have too; or ''.
      below: folder in `folder` to which both are relative.
      key: what the annotations call the name, for errors.
      is_alone: whether no other image of the set has the same name in another folder, so that the
        image may also be looked for without the folders in front of its name.
    """
    spelled = list(spellings(name))
    candidates = [each for each in spelled if not _ROOT.match(each)]
    candidates += [tail for each in spelled for tail in _tails(each)] if is_alone else []
    candidates = [each for candidate in candidates for each in _with_suffixes(candidate)]
    candidates += [stem + suffix for suffix in _all_suffixes() if stem]
    paths, note = [], ''
    for candidate in dict.fromkeys(candidates):
        try:
            paths.append(path_within(folder, join(below, candidate), key))
        # A name that leads out of the folder is that of a file elsewhere, on another machine.
        except UnusableError as error:
            note = note or str(error)
    if not note and spelled and _ROOT.match(spelled[0]):
        note = f'{key} is a path of another machine, and was looked for in {folder}: {name!r}'
    return ImagePaths(tuple(paths), note)


def first_that_exists(paths: Iterable[str], files: Files) -> str:
    """Returns the first path that exists; '' if none does."""
    return next((path for path in paths if files.exists(path)), '')


def are_alone(names: Iterable[str]) -> bool:
    """Whether no two different names differ by their folders only."""
    counts = collections.Counter(_base(name) for name in {*names})
    return all(count == 1 for count in counts.values())


def unlisted(folder: str, names: Iterable[str], files: Files) -> list[str]:
    """Returns the images below a local folder that no name in annotations stands for.

    Object stores are not asked, as each thousand files are a request.

    Args:
      folder: folder of images.
      names: names of images in annotations.
      files: access to files.
    """
    if is_url(folder):
        return []
    every, names = [*filter(is_image, files.list(folder, recursive=True))], {*names}
    # Of most sets all images are named as they are, and the rest takes much memory.
    if names.issuperset(every):
        return []
    found = collections.defaultdict(list)  # path without suffix, in small letters -> images
    for image in every:
        found[without_suffix(image).lower()].append(image)
    # Each name stands for one file at most: that of its own folders, or of the last of them; or, if
    # no name has such a file, for any file of this name, since folders of annotators are others.
    named: collections.Counter[str] = collections.Counter()
    others: collections.Counter[str] = collections.Counter()
    for name in names:
        stem = next((each for each in _stems(name) if each in found), None)
        if stem is not None:
            named[stem] += 1
        else:
            others.update({os.path.basename(each) for each in _stems(name)})
    with_folders = {os.path.basename(stem) for stem in named}
    left = collections.defaultdict(list)
    result = []
    for stem, images in found.items():
        base = os.path.basename(stem)
        if base in with_folders:
            result += images[named[stem] :]
        else:
            left[base] += images
    for base, images in left.items():
        result += images[others[base] :]
    return sorted(result)


def _stems(name: str) -> Iterator[str]:
    """Yields what a file that has this name may be called, in small letters, without suffix."""
    for spelled in spellings(name):
        for end in (spelled, *_tails(spelled)):
            yield from (without_suffix(end).lower(), end.lower())


def spellings(name: str) -> Iterator[str]:
    """Yields a name as it is, with slashes, and without codes of URLs, as far as they differ."""
    slashed = name.replace('\\', '/')
    yield from dict.fromkeys(filter(None, (name, slashed, urllib.parse.unquote(slashed))))


def variants(name: str) -> Iterator[str]:
    """Yields the spellings of a name with the suffixes that it may have in fact."""
    yield from dict.fromkeys(
        each for spelled in spellings(name) for each in _with_suffixes(spelled)
    )


def _relative(found: Iterable[tuple[str, list[str], list[str]]], folder: str) -> list[str]:
    return sorted(
        join(parent, name)[len(join(folder, '')) :] for parent, _, names in found for name in names
    )


def _base(name: str) -> str:
    return os.path.basename(name.replace('\\', '/'))


def _tails(name: str) -> Iterator[str]:
    """Yields the ends of a path, the longest first."""
    parts = [part for part in _ROOT.sub('', name, count=1).split('/') if part not in ('', '.')]
    for start in range(len(parts)):
        if '..' not in parts[start:]:
            yield '/'.join(parts[start:])


def _with_suffixes(name: str) -> Iterator[str]:
    """Yields a name, and those with the suffixes that it may have in fact."""
    yield name
    stem, suffix = os.path.splitext(name)
    if is_image(name):
        yield from (stem + each for each in (suffix.lower(), suffix.upper()) if each != suffix)
    else:
        yield from (name + each for each in _all_suffixes())


def _all_suffixes() -> Iterator[str]:
    for suffix in _READ_SUFFIXES:
        yield from (suffix, suffix.upper())
