"""Text of files that users write, with any editor of any system, and tables of text."""

import codecs
import unicodedata
from collections.abc import Sequence

from object_detection.errors import DataError

# UTF-32 comes first, as its mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, 'utf-32'),
    (codecs.BOM_UTF32_BE, 'utf-32'),
    (codecs.BOM_UTF16_LE, 'utf-16'),
    (codecs.BOM_UTF16_BE, 'utf-16'),
)


def encoding_of(head: bytes) -> str:
    """Returns the encoding of text by its byte order mark; without one it is UTF-8."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), 'utf-8-sig')


def decode(content: bytes, path: str) -> str:
    """Returns the text of a file, without its byte order mark.

    Raises:
      DataError: if it is not UTF-8, nor UTF-16 or UTF-32 with a byte order mark.
    """
    try:
        return content.decode(encoding_of(content))
    except UnicodeDecodeError as error:
        line = content.count(b'\n', 0, error.start) + 1
        raise undecodable(error, path, line) from error


def undecodable(error: UnicodeDecodeError, path: str, line: int) -> DataError:
    """Returns the error of a file that is no text in UTF-8, by the line of its first such byte."""
    received = error.object[error.start : error.start + 4]
    return DataError(
        f'{path}, line {line}: expected text in UTF-8. Received: {received!r}, which is not.'
    )


def visible(text: str) -> str:
    """Returns text in which each invisible character is named, <U+200B ZERO WIDTH SPACE>."""
    return ''.join(each if each.isprintable() else _name(each) for each in text)


def first_invisible(text: str) -> str:
    """Returns the place and the name of the first invisible character of text; '' if none."""
    for number, line in enumerate(text.splitlines(), start=1):
        for column, letter in enumerate(line, start=1):
            if not letter.isprintable() and letter != '\t':
                return f'line {number}, column {column} has the invisible character {_name(letter)}'
    return ''


def aligned(rows: Sequence[Sequence[str]], *, left: int = 0, least: int = 0) -> list[str]:
    """Returns the rows of a table as lines.

    Args:
      rows: as many cells each.
      left: number of columns whose cells begin below each other; those of others end there.
      least: width of a column at least.
    """
    widths = [max(least, *map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        cells[:left] = [cell.ljust(width) for cell, width in zip(row[:left], widths, strict=False)]
        lines.append('  '.join(cells).rstrip())
    return lines


def _name(letter: str) -> str:
    name = unicodedata.name(letter, '')
    return f'<U+{ord(letter):04X}{" " if name else ""}{name}>'
