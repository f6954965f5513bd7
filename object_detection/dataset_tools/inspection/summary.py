"""What a check found in a set of records; parts of it add up."""

import array
import dataclasses
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import numpy as np

from object_detection.data.record_checks import CheckedRecord, digest
from object_detection.dataset_tools.inspection import near_duplicates

# Maximum number of findings of a kind that are kept.
MAX_FINDINGS = 100
# Maximum number of objects and of images whose sizes are kept.
MAX_SAMPLED = 100_000


class Place(NamedTuple):
    """Where a record is: number of its file, and offset of its content in bytes."""

    file: int
    offset: int


class Finding(NamedTuple):
    """A problem of a record.

    Attributes:
      place: where it is.
      source_id: its source id, '' if unknown.
      count: number of objects that the problem concerns; 1 for a problem of the record.
      reason: a sentence.
    """

    place: Place
    source_id: str
    count: int
    reason: str


class RowSample:
    """Keeps the rows of those records whose digests are lowest: the same ones in every order.

    Args:
      num_columns: number of values of a row.
      capacity: number of rows to keep, about.
    """

    def __init__(self, num_columns: int, capacity: int = MAX_SAMPLED):
        self._capacity = capacity
        self._keys = np.zeros(0, np.uint64)
        self._rows = np.zeros((0, num_columns), np.float32)
        self._new: list[tuple[np.ndarray, np.ndarray]] = []
        self._num_new = 0

    @property
    def rows(self) -> np.ndarray:
        """The kept rows, float32 [n, columns], in the order of their digests."""
        self._merge()
        return self._rows

    def add(self, key: int, rows: np.ndarray) -> None:
        """Adds the rows of a record, float32 [n, columns]; `key` is its digest."""
        self._append(np.full(len(rows), key, np.uint64), rows)

    def update(self, other: 'RowSample') -> None:
        """Adds the rows of another sample."""
        other._merge()
        self._append(other._keys, other._rows)

    def _append(self, keys: np.ndarray, rows: np.ndarray) -> None:
        self._new.append((keys, rows))
        self._num_new += len(rows)
        if self._num_new > self._capacity:
            self._merge()

    def _merge(self) -> None:
        if not self._new:
            return
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._new)])
        rows = np.concatenate([self._rows, *(rows for _, rows in self._new)])
        order = np.argsort(keys, kind='stable')[: self._capacity]
        self._keys, self._rows, self._new, self._num_new = keys[order], rows[order], [], 0


@dataclasses.dataclass
class Summary:
    """Counts and samples of checked records.

    Attributes:
      num_records: number of records, also of those that cannot be read.
      num_skipped: number of those that a training skips.
      num_objects: number of objects of all readable records.
      num_usable: number of objects that a training uses.
      num_without_objects: number of readable records without a usable object.
      problems: kind -> number of records, or of objects for the kinds of objects.
      records_with: kind -> number of records.
      findings: kind -> the first ones.
      notes, ignored: sums of those of `CheckedRecord`.
      objects_by_class: class -> number of usable objects.
      images_by_class: class -> number of records with one.
      objects_per_image: number of objects -> number of records.
      boxes: rows (height and width of the image, ymin, xmin, ymax, xmax, class id
        or -1) of usable objects.
      images: rows (height, width, number of usable objects) of readable records.
      digests: of each record with an image: of its source id and its content, 0 without a source
        id, the hash of its picture, and its place; 40 bytes a record.
    """

    num_records: int = 0
    num_skipped: int = 0
    num_objects: int = 0
    num_usable: int = 0
    num_without_objects: int = 0
    problems: Counter[str] = dataclasses.field(default_factory=Counter)
    records_with: Counter[str] = dataclasses.field(default_factory=Counter)
    findings: dict[str, list[Finding]] = dataclasses.field(
        default_factory=lambda: defaultdict(list)
    )
    notes: Counter[str] = dataclasses.field(default_factory=Counter)
    ignored: Counter[tuple[str, Any]] = dataclasses.field(default_factory=Counter)
    objects_by_class: Counter[Any] = dataclasses.field(default_factory=Counter)
    images_by_class: Counter[Any] = dataclasses.field(default_factory=Counter)
    objects_per_image: Counter[int] = dataclasses.field(default_factory=Counter)
    boxes: RowSample = dataclasses.field(default_factory=lambda: RowSample(7))
    images: RowSample = dataclasses.field(default_factory=lambda: RowSample(3))
    digests: array.array = dataclasses.field(default_factory=lambda: array.array('Q'))

    def add(self, place: Place, record: CheckedRecord, *, is_skipped: bool) -> None:
        """Adds a record; `is_skipped` says whether a training skips it."""
        self.num_records += 1
        self.num_objects += record.num_objects
        for kind, count in record.problems.items():
            self.problems[kind] += count
            self.records_with[kind] += 1
            if len(self.findings[kind]) < MAX_FINDINGS:
                self.findings[kind].append(Finding(place, record.source_id, count, record.reason))
        if record.content:
            of_id = digest(record.source_id.encode()) if record.source_id else 0
            self.digests.extend((of_id, record.content, record.picture, *place))
        if is_skipped:
            self.num_skipped += 1
        else:
            self._add_objects(record)

    def _add_objects(self, record: CheckedRecord) -> None:
        count = len(record.boxes)
        self.num_usable += count
        self.num_without_objects += not count
        self.objects_per_image[count] += 1
        self.notes.update(record.notes)
        self.ignored.update(record.ignored)
        self.objects_by_class.update(record.classes)
        self.images_by_class.update(set(record.classes))
        size = np.array(record.size, np.float32)
        sizes = np.broadcast_to(size, (count, 2))
        ids = [value if isinstance(value, int) else -1 for value in record.classes]
        ids = np.array(ids, np.float32)[:, np.newaxis]
        self.boxes.add(record.content, np.concatenate([sizes, record.boxes, ids], axis=1))
        self.images.add(record.content, np.array([[*size, count]], np.float32))

    def update(self, other: 'Summary') -> None:
        """Adds what another summary, of later records, holds."""
        for field in dataclasses.fields(self):
            mine, others = getattr(self, field.name), getattr(other, field.name)
            if isinstance(mine, int):
                setattr(self, field.name, mine + others)
            elif isinstance(mine, Counter | RowSample):
                mine.update(others)
        self.digests.extend(other.digests)
        for kind, findings in other.findings.items():
            self.findings[kind] = (self.findings[kind] + findings)[:MAX_FINDINGS]

    def examples(self, count: int) -> list[Place]:
        """Returns the places of some records with images, from all over the data."""
        rows = _rows(self.digests)
        return [_place(row) for row in rows[:: max(1, len(rows) // count)][:count]]


class Duplicates(NamedTuple):
    """Records that are equal or similar in their source id or in their image.

    Attributes:
      num_records: number of records that repeat an earlier one, or one of another set.
      groups: places of the records of each of the first `MAX_FINDINGS` groups; pairs of a record
        and the one that it repeats, where similar pictures or other sets are compared.
    """

    num_records: int
    groups: list[list[Place]]


_COLUMNS = 5


def duplicates(digests: array.array, column: int) -> Duplicates:
    """Finds records with equal digests.

    Args:
      digests: as `Summary.digests`.
      column: 0 for the source id, 1 for the content of the image.
    """
    rows = _rows(digests)
    rows = rows[rows[:, column] > 0]
    rows = rows[np.argsort(rows[:, column], kind='stable')]
    is_repeated = rows[1:, column] == rows[:-1, column]
    starts = np.flatnonzero(np.diff(np.concatenate([[False], is_repeated])) & is_repeated)
    groups = []
    for start in starts[:MAX_FINDINGS]:
        group = rows[rows[:, column] == rows[start, column]]
        groups.append([_place(row) for row in group[:MAX_FINDINGS]])
    return Duplicates(int(is_repeated.sum()), groups)


def common(first: array.array, second: array.array) -> Duplicates:
    """Finds the images of the second set that the first has too; pairs of places, second first."""
    known, rows = _rows(first), _rows(second)
    known = known[np.argsort(known[:, 1], kind='stable')]
    found = np.minimum(np.searchsorted(known[:, 1], rows[:, 1]), max(len(known) - 1, 0))
    is_common = known[found, 1] == rows[:, 1] if len(known) else np.zeros(len(rows), bool)
    pairs = [
        [_place(rows[i]), _place(known[found[i]])] for i in np.flatnonzero(is_common)[:MAX_FINDINGS]
    ]
    return Duplicates(int(is_common.sum()), pairs)


def similar(digests: array.array, known: array.array | None = None) -> Duplicates:
    """Finds pictures that look almost like another, the most similar first.

    Args:
      digests: as `Summary.digests`.
      known: those of another set, in which is searched; None searches the earlier records. Equal
        images are left out.
    """
    rows, others = _pictures(digests), None
    if known is not None:
        others = _pictures(known)
        rows = rows[~np.isin(rows[:, 1], others[:, 1])]
    partners, distances = near_duplicates.nearest(
        rows[:, 2], None if others is None else others[:, 2]
    )
    found = np.flatnonzero(partners >= 0)
    order = found[np.argsort(distances[found], kind='stable')][:MAX_FINDINGS]
    others = rows if others is None else others
    return Duplicates(len(found), [[_place(rows[i]), _place(others[partners[i]])] for i in order])


def _pictures(digests: array.array) -> np.ndarray:
    """Returns the first row of each image of which there is a hash."""
    rows = _rows(digests)
    rows = rows[rows[:, 2] > 0]
    return rows[np.sort(np.unique(rows[:, 1], return_index=True)[1])]


def _rows(digests: array.array) -> np.ndarray:
    return np.frombuffer(digests, np.uint64).reshape(-1, _COLUMNS)


def _place(row: np.ndarray) -> Place:
    return Place(*map(int, row[3:]))
