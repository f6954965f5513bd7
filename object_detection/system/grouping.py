"""Groups the rows of large annotation files by their images, on the disk.

Files list the objects of an image in any order, and have gigabytes. A `Groups` holds them in a
temporary SQLite database, of which a few megabytes are in memory; SQLite writes it to the folder
TMPDIR, or /var/tmp, and the system removes it when the process ends, for whatever reason.
"""

import contextlib
import errno
import itertools
import os
import pickle
import sqlite3
from collections.abc import Iterator
from typing import Any

_CACHE_KIB = 16_384
_TABLES = """
CREATE TABLE images (place INTEGER PRIMARY KEY, id, name, content);
CREATE TABLE rows (place INTEGER PRIMARY KEY, image_id, id, content);
"""
# They are made for what is there at the first query, which takes half the time of growing them.
_INDICES = (
    'CREATE INDEX images_by_id ON images (id)',
    'CREATE INDEX rows_by_image ON rows (image_id)',
)
_INSERT_IMAGE = 'INSERT INTO images (id, name, content) VALUES (?, ?, ?)'
_INSERT_ROW = 'INSERT INTO rows (image_id, id, content) VALUES (?, ?, ?)'
# Bytes of contents that wait to be written together.
_MAX_WAITING = 1 << 18


class Groups:
    """Images and the rows that belong to them; ids are numbers or texts, and 1 is 1.0, not '1'."""

    def __init__(self):
        # One process uses it, from any of its threads.
        self._database = sqlite3.connect('', isolation_level=None, check_same_thread=False)
        self._database.create_function('base', 1, _base, deterministic=True)
        for setting in (f'cache_size = -{_CACHE_KIB}', 'journal_mode = OFF', 'synchronous = OFF'):
            self._database.execute(f'PRAGMA {setting}')
        self._database.executescript(_TABLES)
        self._database.execute('BEGIN')
        self._indices = _INDICES
        self._waiting: dict[str, list[tuple]] = {_INSERT_IMAGE: [], _INSERT_ROW: []}
        self._num_waiting = 0

    def query(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """Runs a query of the tables `images` (place, id, name, content) and `rows` (image_id, id).

        `place` counts in the order of `add_image` and `add`; `content` is for `unpacked`.
        """
        with _named_errors():
            self._write()
            for index in self._indices:
                self._database.execute(index)
            self._indices = ()
            return self._database.execute(sql, [*map(_stored, values)])

    def number(self, sql: str) -> int:
        """Returns the number that a query counts."""
        return self.query(sql).fetchone()[0]

    def add_image(self, image_id: Any, name: str | None, content: Any) -> None:
        """Adds an image; `content` is a JSON value."""
        self._add(_INSERT_IMAGE, image_id, name, content)

    def add(self, image_id: Any, content: Any, row_id: Any = None) -> None:
        """Adds a row of an image, which may be added later; `content` is a JSON value."""
        self._add(_INSERT_ROW, image_id, row_id, content)

    def _add(self, statement: str, key: Any, other: Any, content: Any) -> None:
        # Writing the numbers of outlines as text takes as long as all the rest.
        packed = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
        self._waiting[statement].append((_stored(key), _stored(other), packed))
        self._num_waiting += len(packed)
        if self._num_waiting > _MAX_WAITING:
            with _named_errors():
                self._write()

    def _write(self) -> None:
        for statement, rows in self._waiting.items():
            if rows:
                self._database.executemany(statement, rows)
                rows.clear()
        self._num_waiting = 0

    def has_image(self, image_id: Any) -> bool:
        return self.query('SELECT 1 FROM images WHERE id = ?', image_id).fetchone() is not None

    def num_images(self) -> int:
        return self.number('SELECT COUNT(*) FROM images')

    def has_row(self, row_id: Any) -> bool:
        self.query('CREATE INDEX IF NOT EXISTS rows_by_id ON rows (id)')
        return self.query('SELECT 1 FROM rows WHERE id = ?', row_id).fetchone() is not None

    def rows_of(self, image_id: Any) -> list[Any]:
        """Returns the contents of the rows of an image, in order."""
        found = self.query('SELECT content FROM rows WHERE image_id = ? ORDER BY place', image_id)
        return [unpacked(content) for (content,) in found]

    def __iter__(self) -> Iterator[tuple[Any, list[Any]]]:
        """Yields the contents of each image and its rows, in order; the first one of equal ids."""
        found = self.query(
            'SELECT images.place, images.content, rows.content FROM images LEFT JOIN rows '
            f'ON rows.image_id = images.id WHERE {is_first("images", "id")} '
            'ORDER BY images.place, rows.place'
        )
        for (_, image), group in itertools.groupby(found, lambda row: row[:2]):
            contents = [content for _, _, content in group]
            yield unpacked(image), [unpacked(each) for each in contents if each is not None]

    def repeated_images(self) -> Iterator[tuple[Any, str]]:
        """Yields (id, name) of the images whose id one before has."""
        found = self.query(
            f'SELECT id, name FROM images WHERE NOT {is_first("images", "id")} ORDER BY place'
        )
        return ((given(image_id), given(name)) for image_id, name in found)

    def without_image(self) -> Iterator[tuple[Any, Any]]:
        """Yields (image id, id) of the rows of images that are not there."""
        found = self.query(
            'SELECT image_id, id FROM rows WHERE NOT EXISTS '
            '(SELECT 1 FROM images WHERE images.id = rows.image_id) ORDER BY place'
        )
        return ((given(image_id), given(row_id)) for image_id, row_id in found)

    def names(self) -> Iterator[str]:
        """Yields the names of the images."""
        return (given(name) for (name,) in self.query('SELECT name FROM images ORDER BY place'))

    def names_are_alone(self) -> bool:
        """Returns `file_access.are_alone` of the names."""
        return not self.number(
            'SELECT EXISTS (SELECT 1 FROM (SELECT DISTINCT name FROM images) '
            'GROUP BY base(name) HAVING COUNT(*) > 1)'
        )


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        text = f'{error} (the folder of temporary files, TMPDIR)'
        raise OSError(errno.EIO, text) from error


def unpacked(content: bytes) -> Any:
    """Returns the content of an image or row as it was added."""
    return pickle.loads(content)


def is_first(table: str, key: str) -> str:
    """Returns the condition that no row of a table before this one has its key."""
    return (
        f'NOT EXISTS (SELECT 1 FROM {table} AS first '
        f'WHERE first.{key} = {table}.{key} AND first.place < {table}.place)'
    )


def _base(name: bytes) -> bytes:
    return os.path.basename(name.replace(b'\\', b'/'))


def _stored(value: Any) -> Any:
    """Returns an id or name as SQLite holds it."""
    # It has no text for names of files that are not UTF-8.
    if isinstance(value, str):
        return value.encode(errors='surrogatepass')
    is_number = isinstance(value, int | float) and abs(value) < 2**63
    return value if is_number else repr(value)


def given(value: Any) -> Any:
    """Returns an id or name as it was added, from a row of a query."""
    return value.decode(errors='surrogatepass') if isinstance(value, bytes) else value
