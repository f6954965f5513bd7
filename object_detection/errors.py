"""The errors that a user can cause and correct. Each message says where, what was expected and what
was received; the `tfod` command shows it without a traceback.

All are `ValueError`s, so that callers who know no more can catch them as such.
"""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Sequence


def expectation(where: str, what: str, received: object = 'none') -> str:
    """Returns the sentence about a value: where it is, what was expected and what was received."""
    return f'{where}: expected {what}. Received: {received}.'


class UserError(ValueError):
    """A mistake of a user or a fault of the machine, as opposed to a defect of this package.

    The message alone says what to change.
    """

    # AutoGraph raises errors again, with the place in the code that it has converted. It keeps the
    # classes that have this initializer, and makes a StagingError, no ValueError, of others.
    __init__ = Exception.__init__

    @classmethod
    def expected(cls, where: str, what: str, received: object = 'none') -> 'UserError':
        """Returns the error of a value: where it is, what was expected and what was received."""
        return cls(expectation(where, what, received))


expected = UserError.expected


class OptionsError(UserError):
    """Options that contradict each other: of a command, a wrong command line."""


class ConfigError(UserError):
    """A pipeline config that cannot be used; the message names the file or field and the remedy.

    Attributes:
      problems: the sentences of the message if there are several, for programs that list them.
    """

    problems: Sequence[str] = ()


def raise_if_any(problems: Iterable[str]) -> None:
    """Raises a ConfigError that lists the problems of a config, one a line, if there are any."""
    problems = list(problems)
    if problems:
        error = ConfigError('\n'.join(problems))
        error.problems = problems
        raise error


class Problems:
    """Collects the errors of parts that do not need each other, so that all are reported at once.

    A `with` block of it keeps the ValueError of a part, in place of raising it:

        problems = Problems()
        with problems:
            resizer = build_resizer(config.resizer)
        with problems:
            losses = build_losses(config.losses)
        problems.raise_if_any()
    """

    def __init__(self) -> None:
        self._errors: list[ValueError] = []

    def __enter__(self) -> None:
        """Begins a part."""

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: object) -> bool:
        """Keeps the error of a part if it is a ValueError."""
        if not isinstance(error, ValueError):
            return False
        self._errors.append(error)
        return True

    def raise_if_any(self) -> None:
        """Raises the only error, or one that lists the sentences of several."""
        if len(self._errors) == 1:
            raise self._errors[0]
        raise_if_any(self.sentences())

    def sentences(self) -> list[str]:
        """Returns the sentences of all errors, each once."""
        return list(dict.fromkeys(each for error in self._errors for each in sentences(error)))


def sentences(error: ValueError) -> Sequence[str]:
    """Returns the problems that an error lists, or its message."""
    return getattr(error, 'problems', ()) or [str(error)]


@contextlib.contextmanager
def within(path: str) -> Iterator[None]:
    """Puts a path before each sentence of a ValueError, which becomes a ConfigError."""
    try:
        yield
    except ValueError as error:
        raise_if_any(f'{path}: {each}' for each in sentences(error))


class CheckpointError(UserError):
    """A checkpoint that is absent, does not fit the model or cannot be written."""


class CorruptCheckpointError(CheckpointError):
    """A checkpoint of which a file is absent, cut off or altered, rather than hard to read."""


class UnreadableCheckpointError(CheckpointError):
    """A checkpoint that the system cannot read now; it may be whole."""


class DataError(UserError):
    """Images, annotations or records that cannot be used."""


class UnusableError(DataError):
    """An image or an annotation that cannot be converted; the conversion continues without it.

    Attributes:
      reason: one word, by which the report counts.
    """

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


class DivergenceError(UserError):
    """A loss or a weight that is NaN or infinite."""


class WorkerError(UserError):
    """Another worker of a training in several processes has failed, or cannot be reached."""


class DownloadError(UserError):
    """Something could not be downloaded or unpacked; the message says what to do."""


class MissingFileError(FileNotFoundError, UserError):
    """A path that is not there; its text has no number of the system's error."""

    def __str__(self) -> str:
        return f'{self.strerror}: {self.filename!r}'


def missing(path: str | os.PathLike, what: str = 'file or folder') -> FileNotFoundError:
    """Returns the error of a path that is not there; the `tfod` command adds the option of it."""
    text = f'There is no {what}{backslash_hint(path)}'
    return MissingFileError(errno.ENOENT, text, os.fspath(path))


def backslash_hint(path: str | os.PathLike) -> str:
    """Returns what an error adds if a path that is not there was written for Windows; else ''."""
    is_of_windows = os.sep == '/' and '\\' in os.fspath(path)
    return ' (this system has / between folders)' if is_of_windows else ''


# Exit status (EX_TEMPFAIL) of a program that ended by a WorkerError or UnreadableCheckpointError,
# and can resume when all are started again.
LOST_WORKER_STATUS = 75


def format_list(items: Iterable[object], limit: int = 5, separator: str = ', ') -> str:
    """Returns the first items, and how many more there are: 'a, b, and 3 more'."""
    texts = [str(item) for item in items]
    more = [f'and {len(texts) - limit} more'] if len(texts) > limit else []
    return separator.join(texts[:limit] + more)
