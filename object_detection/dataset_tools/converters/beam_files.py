"""Files of data sets by Beam's file systems, for `data.file_access.Files`."""

import contextlib
import errno
from collections.abc import Iterator

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from object_detection.data import file_access


class BeamFiles:
    """Files of this machine, and of every object store that Beam knows; it is pickled."""

    def read(self, path: str, limit: int | None = None) -> bytes:
        # Beam's errors are subclasses of OSError.
        with (
            _of_a_known_kind(path),
            FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file,
        ):
            content = file_access.read_at_most(file, -1 if limit is None else limit + 1)
        return file_access.checked_length(content, path, limit)

    def head(self, path: str, length: int) -> bytes:
        with (
            _of_a_known_kind(path),
            FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file,
        ):
            return file_access.read_at_most(file, length)

    def list(self, folder: str, *, recursive: bool = False) -> list[str]:
        # Beam reads all folders below a local one even if the pattern has one level.
        if not file_access.is_url(folder):
            return file_access.list_local(folder, recursive=recursive)
        root = file_access.join(folder, '')
        pattern = root + ('**' if recursive else '*')
        with _of_a_known_kind(folder):
            found = FileSystems.match([pattern])[0].metadata_list
        return sorted(file.path.removeprefix(root) for file in found)

    def exists(self, path: str) -> bool:
        with _of_a_known_kind(path):
            if FileSystems.exists(path):
                return True
        if not file_access.is_url(path):
            return False
        # There are no folders in an object store, only objects.
        pattern = file_access.join(path, '*')
        return bool(FileSystems.match([pattern], limits=[1])[0].metadata_list)


@contextlib.contextmanager
def _of_a_known_kind(path: str) -> Iterator[None]:
    """Makes an OSError of Beam's ValueError about a URL for which it has no file system."""
    try:
        yield
    except ValueError as error:
        raise OSError(errno.EIO, str(error), path) from error
