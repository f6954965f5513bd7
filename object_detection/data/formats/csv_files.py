"""Reads CSV and XML files of strangers, of bounded size.

CSV has commas, semicolons or tabs, in UTF-8; XML has no entities, document types or network.
"""

import collections
import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from lxml import etree

from object_detection.data import file_access
from object_detection.data.annotated_image import NOT_CONVERTED
from object_detection.data.file_access import Files
from object_detection.errors import UnusableError, UserError, expected, format_list
from object_detection.system import texts

# The boxes of all of Open Images take 2.3 GB. Fields are bounded by the csv module, at 128 KiB.
MAX_BYTES = 4 << 30
_HEAD = 1 << 16  # bytes, enough for the first line
_DELIMITERS = ',\t;'


class Table(NamedTuple):
    """A CSV file with names of columns in its first line.

    Attributes:
      path: path of the file.
      columns: name of a column -> index.
      rows: (line number, fields) of each row; all have as many fields as there are columns.
    """

    path: str
    columns: dict[str, int]
    rows: Iterator[tuple[int, list[str]]]


def rows(path: str, files: Files) -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, stripped fields) of each line that is not empty.

    Raises:
      OSError: if the file cannot be read, or is too long.
      UserError: if it is not CSV in UTF-8.
    """
    with file_access.open_to_read(path, files, MAX_BYTES) as file:
        encoding = texts.encoding_of(file.read(4))
        file.seek(0)
        lines = io.TextIOWrapper(file, encoding=encoding, newline='')
        try:
            first = lines.readline(_HEAD)
            lines.seek(0)
            reader = csv.reader(lines, delimiter=_delimiter(first))
            for fields in reader:
                if fields:
                    yield reader.line_num, [field.strip() for field in fields]
        except UnicodeDecodeError as error:
            raise UserError(f'{path}: expected text in UTF-8. Received: {error}.') from error
        except csv.Error as error:
            raise expected(f'{path}, line {reader.line_num}', 'CSV', error) from error


def table(path: str, files: Files, required: tuple[str, ...]) -> Table:
    """Opens a file whose first line names the columns.

    Args:
      path: path of the file.
      files: access to files.
      required: names of columns that it must have.

    Raises:
      OSError, UserError: as `rows`, and if a column is absent.
    """
    file_access.check_exists(path, 'file', files)
    found = rows(path, files)
    _, header = next(found, (1, []))
    columns = {name: index for index, name in enumerate(header)}
    absent = [name for name in required if name not in columns]
    if absent:
        what = f'the columns {", ".join(required)} in the first line; missing: {", ".join(absent)}'
        raise expected(path, what, format_list(header, 20) or 'nothing')
    return Table(path, columns, of_equal_length(path, found, len(header)))


class UnreadColumns:
    """Counts the values of the columns that are not read.

    Args:
      columns: name of each column -> its index.
      read: names of those that are read.
    """

    def __init__(self, columns: Mapping[str, int], read: Collection[str]):
        self._indices = [(index, name) for name, index in columns.items() if name not in read]
        self._counts: collections.Counter[str] = collections.Counter()

    def add(self, fields: Sequence[str]) -> None:
        """Counts the values of a row that are not empty."""
        self._counts.update(name for index, name in self._indices if fields[index])

    def notes(self) -> dict[str, int]:
        """Returns the notes, see `ImageAnnotations`."""
        counts = self._counts.items()
        return {f'{NOT_CONVERTED}column {name[:100]}': count for name, count in counts}


def words(path: str, files: Files, limit: int) -> list[tuple[int, list[str]]]:
    """Returns (line number, words) of each line of a text file that is not blank.

    Raises:
      OSError: if the file cannot be read, or has more than `limit` bytes.
      UserError: if it is no text.
    """
    lines = enumerate(texts.decode(files.read(path, limit), path).splitlines(), start=1)
    return [(number, line.split()) for number, line in lines if line.strip()]


def header_of(path: str, files: Files) -> list[str]:
    """Returns the fields of the first line, to recognize a file; [] if it cannot be read."""
    try:
        head = files.head(path, _HEAD)
    except OSError:
        return []
    # The last character may be cut off.
    text = head.decode(texts.encoding_of(head), errors='replace')
    first = next(iter(text.splitlines()), '')
    try:
        fields = next(csv.reader([first], delimiter=_delimiter(first)), [])
    except csv.Error:
        return []
    return [field.strip() for field in fields]


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count)


def of_equal_length(
    path: str, found: Iterator[tuple[int, list[str]]], num_columns: int
) -> Iterator[tuple[int, list[str]]]:
    """Yields rows; raises a UserError that names the first that has not so many fields."""
    for line, fields in found:
        if len(fields) != num_columns:
            raise expected(f'{path}, line {line}', f'{num_columns} fields', len(fields))
        yield line, fields


# A file with the objects of one image has kilobytes.
MAX_XML_BYTES = 8 << 20


def read(path: str, files: Files, limit: int = MAX_XML_BYTES) -> etree._Element:
    """Returns the root element of an XML file.

    Args:
      path: path of the file.
      files: access to files.
      limit: maximum number of bytes.

    Raises:
      OSError: if the file cannot be read, or is too long.
      UnusableError: if it is not XML, or has a document type, which can define entities.
    """
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(files.read(path, limit), parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise UnusableError('bad_annotations', f'{path} is not an XML file: {error}') from error
    if root.getroottree().docinfo.doctype:
        raise UnusableError('bad_annotations', f'{path}: a document type (DOCTYPE) is refused')
    return root


def text(element: etree._Element, name: str, default: str = '') -> str:
    """Returns the stripped text of an element's child; `default` if it is absent or empty."""
    return (element.findtext(name) or '').strip() or default
