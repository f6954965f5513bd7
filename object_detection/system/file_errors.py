"""What a person reads of an error about a file: the option that named it, and what is wrong."""

import errno
import os
from collections.abc import Iterator, Sequence

from object_detection.errors import UserError

_REASONS = {
    errno.ENOENT: 'there is no such file or folder',
    errno.EISDIR: 'expected a file. Received: a folder',
    errno.ENOTDIR: 'expected a folder. Received: a file',
    errno.EEXIST: 'there is a file of this name',
    errno.EACCES: 'there is no permission for this',
}


def describe(error: Exception, arguments: Sequence[str]) -> str:
    """Returns the message of a user's error, after the option of the file, if one names it.

    Args:
      error: a `UserError`, an `OSError`, or an error of an object store.
      arguments: the command line.
    """
    options = list(_options(arguments))
    if isinstance(error, OSError) and error.args and isinstance(error.args[0], OSError):
        error = error.args[0]  # Beam raises IOError(error).
    if isinstance(error, OSError) and error.filename is not None:
        path = os.fsdecode(error.filename)
        system = os.strerror(error.errno) if error.errno else ''
        reason = error.strerror or system
        # Messages of this package say more than those of the system.
        reason = _REASONS.get(error.errno, reason) if reason == system else reason
        text = f'{path}: {reason[:1].lower()}{reason[1:]}.'
    else:
        text = str(error)
        path = text.partition(': ')[0]
    start = text.removeprefix('Label map ')
    named = {option for option, value in options if path == value or _is_first(value, start)}
    if named:
        # Of several options with this path, it is not known which one is wrong.
        return f'{named.pop()} {start}' if len(named) == 1 else text
    for option, value in options:
        if '://' in value and value in text and not isinstance(error, UserError):
            return f'{option} {value}: {text}'
    for option, value in options:
        if isinstance(error, OSError) and _are_related(path, value):
            return f'{option} {value}: {text}'
    return text


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields (option, value) of `--option value` and `--option=value`."""
    for index, argument in enumerate(arguments):
        option, _, value = argument.partition('=')
        if not (argument.startswith('--') and value):
            option, value = arguments[index - 1] if index else '', argument
        if value and option.startswith('--') and not value.startswith('--'):
            yield option, value


def _is_first(value: str, text: str) -> bool:
    """Whether a text begins with the value of an option, which is no number."""
    return text.startswith((f'{value} ', f'{value},', f'{value}:')) and not value.isdigit()


def _are_related(path: str, value: str) -> bool:
    """Whether a path is below that of an option, above it, or begins with it as with a prefix."""
    inner, outer = os.path.abspath(path), os.path.abspath(value)
    return outer.startswith(inner + os.sep) or (
        inner.startswith(outer) and inner[len(outer) : len(outer) + 1] in (os.sep, '-', '.')
    )
