"""A file that is still being downloaded.

    NAME.part         the received bytes
    NAME.part.json    their address, and the server's identifier of this version of the file

`NAME` itself appears only when all bytes are received and their checksum is verified.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable

from object_detection.errors import DownloadError, UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# A function of the number of finished bytes and of the total, which is None while it is unknown.
Report = Callable[[int, int | None], None]

_CHUNK_BYTES = 1 << 20
_ALGORITHMS = {32: 'md5', 64: 'sha256'}


def hasher(checksum: str) -> 'hashlib._Hash':
    """Returns a hash object of the kind of `checksum`, in hex, which is determined by its length.

    Raises:
      ValueError: if it has neither the length of MD5 nor of SHA-256. '' means SHA-256.
    """
    if checksum and len(checksum) not in _ALGORITHMS:
        raise UserError(f'expected an MD5 or a SHA-256 in hex. Received: {checksum!r}.')
    # Some files are published with MD5 sums only, which detect corruption but not attacks.
    return hashlib.new(_ALGORITHMS[len(checksum) or 64], usedforsecurity=False)


def checksum_of(path: str, like: str, report: Report) -> str:
    """Returns the checksum of a file, of the kind of `like`, in hex."""
    digest = hasher(like)
    with open(path, 'rb') as file:
        _add_contents(file, digest, os.path.getsize(path), report)
    return digest.hexdigest()


class PartialFile:
    """The bytes of a file that are received so far, with their checksum; a context manager.

    Writes are not buffered, so that no bytes are lost if the process is killed.
    """

    def __init__(self, target: str, checksum: str, report: Report):
        """Opens the file, and reads the bytes of an earlier download.

        Args:
          target: path of the complete file.
          checksum: expected checksum in hex; '' if not known.
          report: called while an earlier part is read.

        Raises:
          DownloadError: if another process downloads the same file.
        """
        self.path = f'{target}.part'
        self._target = target
        self._checksum = checksum
        self._digest = hasher(checksum)
        # Closed by __exit__: the file stays open, and locked, as long as the download takes.
        self._file = open(self.path, 'a+b', buffering=0)  # noqa: SIM115
        try:
            self._lock()
            self._file.seek(0)
            self.position = os.path.getsize(self.path)
            _add_contents(self._file, self._digest, self.position, report)
        except BaseException:
            self._file.close()
            raise
        # Whether bytes of several responses were joined.
        self.joined = self.position > 0

    def __enter__(self) -> 'PartialFile':
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def version_of(self, address: str) -> str:
        """Returns the server's identifier of the version of the bytes.

        It is '' if they came from another address, or if the server gave no identifier.
        """
        try:
            with open(self._version_path, encoding='utf-8') as file:
                origin = json.load(file)
            return origin['version'] if origin['address'] == address else ''
        except (OSError, ValueError, KeyError, TypeError):
            return ''

    def restart(self, address: str = '', version: str = '') -> None:
        """Drops all bytes; further bytes come from `address` and have the given version."""
        self._file.truncate(0)
        self._digest = hasher(self._checksum)
        self.position = 0
        self.joined = False
        with open(self._version_path, 'w', encoding='utf-8') as file:
            json.dump({'address': address, 'version': version}, file)

    def write(self, data: bytes) -> None:
        """Appends bytes.

        Raises:
          DownloadError: if they cannot be stored; earlier bytes are kept.
        """
        view = memoryview(data)
        while view:
            try:
                count = self._file.write(view)
            except OSError as error:
                raise DownloadError(
                    f'{self.path}: {os.strerror(error.errno)}. What has arrived is kept; the same '
                    'command goes on from there.'
                ) from error
            self._digest.update(view[:count])
            self.position += count
            view = view[count:]

    def checksum(self) -> str:
        """Returns the checksum of all bytes, in hex."""
        return self._digest.hexdigest()

    def publish(self) -> None:
        """Gives the file its final name."""
        os.fsync(self._file.fileno())
        os.replace(self.path, self._target)
        self._forget_version()

    def remove(self) -> None:
        """Deletes the file."""
        os.remove(self.path)
        self._forget_version()

    def _forget_version(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._version_path)

    @property
    def _version_path(self) -> str:
        return f'{self.path}.json'

    def _lock(self) -> None:
        """Keeps a second process from appending to the same file."""
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DownloadError(f'{self.path}: another process is downloading it.') from None
        except OSError:
            # A network file system without locks.
            return


def _add_contents(file, digest: 'hashlib._Hash', size: int, report: Report) -> None:
    done = 0
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
        done += len(chunk)
        report(done, size)
