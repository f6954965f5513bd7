"""Downloads files over HTTP and resumes interrupted downloads.

A partial file is only continued with bytes of the same version of the file (If-Range, RFC 9110), or
if a checksum will verify the whole file. Proxies are read from the environment (HTTPS_PROXY,
NO_PROXY).

A file that is still being downloaded.

    NAME.part         the received bytes
    NAME.part.json    their address, and the server's identifier of this version of the file

`NAME` itself appears only when all bytes are received and their checksum is verified.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import posixpath
import re
import time
from collections.abc import Callable, Sequence

import requests

from object_detection.errors import DownloadError, UserError
from object_detection.system import disk, folder_lock

# A function of the number of finished bytes and of the total, which is None while it is unknown.
Report = Callable[[int, int | None], None]

_PARTIAL_FILE_CHUNK_BYTES = 1 << 20
# By the number of digits; 8 are the beginning of a SHA-256, as in names of PyTorch's files.
_ALGORITHMS = {8: 'sha256', 32: 'md5', 64: 'sha256'}


def hasher(checksum: str) -> 'hashlib._Hash':
    """Returns a hash object of the kind of `checksum`, in hex, which is determined by its length.

    Raises:
      ValueError: if it has the length neither of MD5, SHA-256 nor of the beginning of one. ''
        means SHA-256.
    """
    if checksum and len(checksum) not in _ALGORITHMS:
        raise UserError(
            'expected an MD5, a SHA-256 or the first 8 digits of one in hex. Received: '
            f'{checksum!r}.'
        )
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
            # Keeps a second process from appending to the same file.
            taken = DownloadError(f'{self.path}: another process is downloading it.')
            folder_lock.lock(self._file, taken=taken)
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
                    'command continues from there.'
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


def _add_contents(file, digest: 'hashlib._Hash', size: int, report: Report) -> None:
    done = 0
    while chunk := file.read(_PARTIAL_FILE_CHUNK_BYTES):
        digest.update(chunk)
        done += len(chunk)
        report(done, size)


# Maximum number of bytes that are lost when a connection breaks.
_CHUNK_BYTES = 1 << 16
_MAX_PAUSE_SECONDS = 30.0
# HTTP status codes of temporary failures.
_TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}
_BROKEN_OFF = (
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
)


class _TransientError(Exception):
    """A temporary failure: the next attempt may succeed."""


class _RefusedError(Exception):
    """A permanent failure: this address does not provide the file."""


@dataclasses.dataclass(frozen=True)
class RemoteFile:
    """A published file.

    Attributes:
      path: its path relative to a base URL.
      size: size in bytes; None if not published.
      checksum: SHA-256, its first 8 digits, or MD5, in hex; '' if none is published.
    """

    path: str
    size: int | None = None
    checksum: str = ''

    @property
    def name(self) -> str:
        """Name of the local file."""
        return posixpath.basename(self.path)


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """Timeouts and retries of a download.

    Attributes:
      connect_seconds, read_seconds: timeouts for a connection and for the next bytes.
      attempts: number of consecutive attempts without progress before an address is abandoned.
      pause_seconds: pause after the first failed attempt; it doubles with each further one.
    """

    connect_seconds: float = 20.0
    read_seconds: float = 60.0
    attempts: int = 6
    pause_seconds: float = 1.0


class Downloader:
    """Downloads files into a folder."""

    def __init__(
        self,
        *,
        report: Report = lambda done, total: None,
        print_line: Callable[[str], None] = lambda line: None,
        patience: RetryPolicy | None = None,
    ):
        """Creates the downloader.

        Args:
          report: called with the number of received bytes of the current file and the total.
          print_line: called with a line when a download differs from the plan, e.g. on a retry.
          patience: timeouts and retries.
        """
        self._report = report
        self._print_line = print_line
        self._patience = patience or RetryPolicy()

    def fetch(self, file: RemoteFile, folder: str, base_urls: Sequence[str]) -> str:
        """Downloads a file, unless it exists.

        Args:
          file: the file to download.
          folder: target folder; created if necessary.
          base_urls: base URLs of `file.path`; the next one is tried if one fails.

        Returns:
          The path of the complete file, whose size and checksum are verified.

        Raises:
          DownloadError: if no address provides the file, or it cannot be stored. Received bytes are
            kept as NAME.part.
        """
        os.makedirs(folder, exist_ok=True)
        target = os.path.join(folder, file.name)
        if os.path.exists(target):
            self._verify(file, target)
            return target
        if not file.checksum:
            self._print_line(f'{file.name}: no checksum is published; only its length is checked.')
        problems = []
        with PartialFile(target, file.checksum, self._report) as part:
            for base_url in base_urls:
                address = f'{base_url.rstrip("/")}/{file.path}'
                try:
                    self._fetch_from(address, file, part)
                except _RefusedError as error:
                    problems.append(f'{address}: {error}')
                    continue
                part.publish()
                return target
            if not part.position:
                part.remove()
        raise DownloadError(f'{file.name} cannot be downloaded. {" ".join(problems)}')

    def _verify(self, file: RemoteFile, target: str) -> None:
        """Verifies an existing file."""
        size = os.path.getsize(target)
        if file.size is not None and size != file.size:
            problem = f'expected {file.size} bytes. Received: {size}'
        elif file.checksum and not (
            found := checksum_of(target, file.checksum, self._report)
        ).startswith(file.checksum):
            problem = f'expected the checksum {file.checksum}. Received: {found}'
        else:
            return
        raise DownloadError(f'{target}: {problem}. Delete it, or name another folder.')

    def _fetch_from(self, address: str, file: RemoteFile, part: PartialFile) -> None:
        """Tries one address until `part` is complete and correct."""
        furthest, failures = part.position, 0
        while True:
            try:
                self._continue(address, file, part)
                self._check_whole(file, part)
                return
            except requests.exceptions.SSLError as error:
                raise _RefusedError(f'{_reason(error)}.') from error
            except (_TransientError, *_BROKEN_OFF) as error:
                # Bytes count as progress only once: otherwise a server that always breaks off early
                # and starts again would be retried forever.
                failures = 1 if part.position > furthest else failures + 1
                furthest = max(furthest, part.position)
                if failures >= self._patience.attempts:
                    raise _RefusedError(f'{_reason(error)} ({failures} attempts).') from error
                seconds = self._patience.pause_seconds * 2 ** (failures - 1)
                seconds = min(seconds, _MAX_PAUSE_SECONDS)
                self._print_line(f'{file.name}: {_reason(error)}; trying again in {seconds:g} s.')
                time.sleep(seconds)
            except requests.exceptions.RequestException as error:
                raise _RefusedError(f'{_reason(error)}.') from error

    def _check_whole(self, file: RemoteFile, part: PartialFile) -> None:
        found = part.checksum()
        if found.startswith(file.checksum):
            return
        joined = part.joined
        part.restart()
        if joined:
            # The parts may belong to different versions, or an earlier one was corrupt.
            raise _TransientError('the joined parts have a wrong checksum')
        raise _RefusedError(f'expected the checksum {file.checksum}. Received: {found}.')

    def _continue(self, address: str, file: RemoteFile, part: PartialFile) -> None:
        """Requests the missing bytes and appends them."""
        if part.position and part.position == file.size:
            return
        version = part.version_of(address)
        if not version and not file.checksum:
            part.restart()
        headers = {'Accept-Encoding': 'identity'}
        if part.position:
            headers['Range'] = f'bytes={part.position}-'
            if version:
                headers['If-Range'] = version
        timeout = (self._patience.connect_seconds, self._patience.read_seconds)
        with requests.get(address, headers=headers, timeout=timeout, stream=True) as response:
            if response.status_code == 416 and _total(response) == part.position > 0:
                return
            total = _place(response, address, file, part)
            if total is not None:
                disk.require_space(os.path.dirname(part.path), total - part.position, file.name)
            self._report(part.position, total)
            for chunk in response.iter_content(_CHUNK_BYTES):
                part.write(chunk)
                self._report(part.position, total)
        if total is not None and part.position != total:
            # A file that is longer than announced cannot become valid.
            if part.position > total:
                part.restart()
            raise _TransientError(f'expected {total} bytes. Received: {part.position}')


def _place(
    response: requests.Response, address: str, file: RemoteFile, part: PartialFile
) -> int | None:
    """Prepares `part` for the bytes of a response; returns the length of the whole file."""
    status = response.status_code
    if status in _TRANSIENT_STATUSES:
        raise _TransientError(f'the server answers {status} {response.reason}')
    if status not in (200, 206, 416):
        raise _RefusedError(f'the server answers {status} {response.reason}.')
    total = _total(response)
    if status != 200 and (status == 416 or not _fits(response, address, part)):
        part.restart()
        raise _TransientError('the server has another version of the file than before')
    if file.size is not None and total not in (None, file.size):
        raise _RefusedError(f'expected {file.size} bytes. Received: {total}.')
    if status == 200:
        part.restart(address, _version(response))
    else:
        part.joined = True
    return total if total is not None else file.size


def _fits(response: requests.Response, address: str, part: PartialFile) -> bool:
    """Whether a response begins at the end of `part` and has the same version."""
    match = re.match(r'bytes (\d+)-', response.headers.get('Content-Range', ''))
    expected = part.version_of(address)
    same_version = not expected or _version(response) in ('', expected)
    return same_version and match is not None and int(match[1]) == part.position


def _total(response: requests.Response) -> int | None:
    """Returns the length of the whole file, if the server states it."""
    if response.status_code == 200:
        length = response.headers.get('Content-Length', '')
    else:
        length = response.headers.get('Content-Range', '').rpartition('/')[2]
    return int(length) if length.isdecimal() else None


def _version(response: requests.Response) -> str:
    """Returns a value for If-Range: a strong ETag, or else the time of the last modification."""
    tag = response.headers.get('ETag', '')
    strong = tag if tag.startswith('"') else ''
    return strong or response.headers.get('Last-Modified', '')


def _reason(error: Exception) -> str:
    """Describes an error of a connection in a few words."""
    reasons = {
        requests.exceptions.SSLError: "the server's certificate is not trusted",
        requests.exceptions.ProxyError: 'the proxy of the environment does not answer',
        requests.exceptions.ConnectTimeout: 'the server does not answer',
        requests.exceptions.ReadTimeout: 'the server sends nothing any more',
        requests.exceptions.ChunkedEncodingError: 'the connection broke off',
        requests.exceptions.ConnectionError: 'the connection to the server failed',
    }
    known = [text for kind, text in reasons.items() if isinstance(error, kind)]
    return known[0] if known else str(error)
