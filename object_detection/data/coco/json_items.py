"""Reads JSON files of any size, one entry of their lists at a time."""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from object_detection.errors import DataError, expected
from object_detection.system import texts

# Characters that are read at a time, and the most that an entry may have.
_BLOCK = 1 << 20
_MAX_ENTRY = 1 << 28
_SPACE = re.compile(r'[ \t\n\r]*')
# Number of an `Item` that is a value, or a list itself.
WHOLE = -1


class Item(NamedTuple):
    """An entry of a list in the object of a file.

    Attributes:
      key: the list's key in the object.
      index: number of the entry; WHOLE for a list before its entries, which comes as [], and for a
        value that is no list.
      value: the entry.
    """

    key: str
    index: int
    value: Any


def items(file: BinaryIO, path: str) -> Iterator[Item]:
    """Yields the values of the object in a JSON file, and of lists one entry after the other.

    Args:
      file: the file, which can be positioned.
      path: names it in errors.

    Raises:
      DataError: if it is not JSON, has an entry of more than 256 million characters, or has two
        values of one key.
      UserError: if it is no object.
    """
    text = _Text(file, path)
    if text.next() != '{':
        raise expected(path, 'an object of lists', type(text.value()).__name__)
    keys: set[str] = set()
    for _ in text.parts('}'):
        key = text.value()
        if not isinstance(key, str) or key in keys:
            raise text.error(f'the name of a value must be a new text, is {str(key)[:100]!r}')
        keys.add(key)
        text.skip(':')
        if text.next() == '[':
            yield Item(key, WHOLE, [])
            for index, _ in enumerate(text.parts(']')):
                yield Item(key, index, text.value())
        else:
            yield Item(key, WHOLE, text.value())
    if text.next():
        raise text.error('something follows its object')


class _Text:
    """The text of a file, of which a part is in memory."""

    def __init__(self, file: BinaryIO, path: str):
        encoding = json.detect_encoding(file.read(4))
        file.seek(0)
        # As `json.loads` decodes bytes.
        self._decoder = codecs.getincrementaldecoder(encoding)('surrogatepass')
        self._file, self._path = file, path
        self._decode = json.JSONDecoder().raw_decode
        self._part, self._place, self._start, self._is_end = '', 0, 0, False

    def error(self, reason: str) -> DataError:
        place = self._start + self._place
        return DataError(f'{self._path} is not a JSON file: {reason} (at character {place}).')

    def next(self) -> str:
        """Returns the next character that is no space; '' at the end of the file."""
        while True:
            self._place = _SPACE.match(self._part, self._place).end()
            if self._place < len(self._part) or self._is_end:
                return self._part[self._place : self._place + 1]
            self._read()

    def skip(self, character: str) -> None:
        if self.next() != character:
            raise self.error(f'{character!r} is missing')
        self._place += 1

    def parts(self, end: str) -> Iterator[None]:
        """Stops before each part of the object or list that begins here; the caller reads it."""
        self._place += 1
        if self.next() != end:
            yield
            while self.next() != end:
                self.skip(',')
                yield
        self._place += 1

    def value(self) -> Any:
        """Reads a value."""
        self.next()
        while True:
            problem = None
            try:
                value, end = self._decode(self._part, self._place)
            except json.JSONDecodeError as error:
                problem, end = error, len(self._part)
            except RecursionError as error:
                raise self.error(str(error)) from error
            # A number may go on after the part, also if that ends within its exponent: 1e+.
            if end + len('e+') < len(self._part) or self._is_end:
                break
            if end - self._place > _MAX_ENTRY:
                raise self.error(f'an entry has more than {_MAX_ENTRY} characters') from problem
            self._read()
        if problem:
            self._place = problem.pos
            raise self.error(problem.msg) from problem
        self._place = end
        return value

    def _line(self, end: int) -> int:
        """Returns the number, from 1 on, of the line in which a byte of the file is."""
        self._file.seek(0)
        breaks = 0
        while end > 0 and (content := self._file.read(min(end, _BLOCK))):
            breaks, end = breaks + content.count(b'\n'), end - len(content)
        return breaks + 1

    def _read(self) -> None:
        """Reads on; a long entry is not parsed again for each block of it."""
        left = self._part[self._place :]
        self._start += self._place
        content = self._file.read(max(_BLOCK, len(left)))
        try:
            more = self._decoder.decode(content, final=not content)
        except UnicodeDecodeError as error:
            # What the decoder kept of the block before is part of `error.object`.
            before = self._file.tell() - len(error.object) + error.start
            raise texts.undecodable(error, self._path, self._line(before)) from error
        self._part, self._place, self._is_end = left + more, 0, not content
