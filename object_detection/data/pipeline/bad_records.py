"""Skips records that cannot be used and counts what is left out of the data, with reasons.

A record that cannot be decoded keeps its position in the order of records, so that a run resumes
exactly. Nothing here calls Python as long as records are usable.
"""

import ast
import collections
import dataclasses
import hashlib
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from object_detection.core import tf_example_keys as keys
from object_detection.data import objects, tf_examples
from object_detection.errors import DataError, format_list

FILE_NAME = 'bad_records.jsonl'
# Kinds of what is left out of usable records. Such a class may be left out on purpose, by a label
# map that selects some classes; so it does not count as bad data.
UNKNOWN_CLASS = 'unknown_class'

# Begins what stands for a record that could not be read: a reason and a text. No tf.Example does.
_MARKER = b'\x00bad record\x00'
# What TensorFlow says about an image that cannot be decoded, and what own checks say.
IMAGE_ERRORS = (
    'Decode(Image|Png|Jpeg|Bmp|Gif|WebP|AndCropJpeg)|ExtractJpegShape|'
    'Expected a (BMP|GIF|JPEG|WebP)|Unknown image file format|Invalid (PNG|JPEG|GIF|BMP|WebP)|'
    'Input is empty|Failed to decode|Input size should match|jpeg'
)
# What TensorFlow says about a record that cannot be decoded -> kind of the problem.
_KINDS = {
    'more pixels than': 'image_too_large',
    # Masks are the only content that is inflated.
    r'nstance masks? (is|has|have)|palette of an instance mask|inflate\(\)': 'mask',
    IMAGE_ERRORS: 'image',
    'Could not parse example|parse serialized|Data types don|Key: |parse input': 'not_an_example',
    'one value a box|whole number of|ConcatOp : Dimension': 'number_of_values',
    'class id is above': 'class_above_num_classes',
    'multiclass_scores of a record': 'multiclass_scores',
}
# Where an error of TensorFlow says in which functions and operations it arose.
_INTERNAL = re.compile(
    r'^Graph execution error:\s+(?:Detected at node[^\n]*\n(?:\s*(?:File |<stack)[^\n]*\n)*\s*)*'
    r'|\{\{.*?\}\}|\[\[.*?\]\]|\[Op:\w*\].*',
    re.DOTALL,
)
# The error of a failed assertion, and its message, if it is raised eagerly and in a graph.
_EAGER_ASSERTION = re.compile(
    r"Expected 'tf\.Tensor\(False.*?to be true\. Summarized data:\s*", re.DOTALL
)
_GRAPH_ASSERTION = re.compile(r'assertion failed: \[(.*?)\](?= \[|$)', re.DOTALL)
# A text as an eager assertion shows it.
_BYTES = re.compile(r"""\bb('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
# Records without their images that `map_guarded` reads in turn.
READ_IN_TURN = 64
# Records that the share is taken of, at least: the first ones say little about the data.
_MIN_RECORDS = 200
# Records without a usable one after which it is certain that there is none.
_MAX_CONSECUTIVE = 1000
_MAX_WARNINGS = 10
_MAX_LETTERS = 500

_log = logging.getLogger(__name__)


class TooManyBadRecordsError(DataError):
    """More bad data than the input reader tolerates; the message ends with a table of reasons."""


def marker(reason: str, detail: str) -> bytes:
    """Returns what stands for a record that could not be read; `reason` is a kind."""
    return _MARKER + tf_examples.encoded(f'{reason}\x00{detail}')


def is_marker(serialized: bytes) -> bool:
    """Whether it stands for a record that could not be read."""
    return serialized.startswith(_MARKER)


def plain_message(message: str) -> str:
    """Returns the message of a TensorFlow error without the names of its functions."""

    def text_of(literal: re.Match) -> str:
        text = ast.literal_eval(literal[0]).decode(errors='replace')
        # What was asserted is a sentence, the values after it are quoted.
        return repr(text) if literal.start() else text

    text = _INTERNAL.sub(' ', message).strip()
    if assertion := _EAGER_ASSERTION.match(text):
        text = _BYTES.sub(text_of, text[assertion.end() :])
    text = _GRAPH_ASSERTION.sub(lambda match: re.sub(r'\\(["\'])', r'\1', match[1]), text)
    return ' '.join(text.split()).rstrip('.')


def map_guarded(
    elements: tf.data.Dataset,
    load: Callable[..., Any],
    instead: Callable[..., Any],
    *,
    chunk: int,
    parallel: bool = False,
) -> tf.data.Dataset:
    """Maps each element by `load`, or by `instead` if `load` fails, in their order.

    A graph cannot catch errors otherwise than by a dataset, whose functions are made ready each
    time that it is read: as much work as an image without masks. So each reads several elements.

    Args:
      elements: tuples of tensors.
      load: function of the tensors of an element.
      instead: returns tensors of the same dtypes and compatible shapes.
      chunk: number of elements that one thread reads in turn, and whose results are in memory.
      parallel: whether several chunks are read at a time.

    Returns:
      (element, result).
    """
    specs: list[Any] = []

    def packed(index: tf.Tensor, element: tuple[Any, ...]) -> tuple[tf.Tensor, tf.Tensor]:
        result = load(*element)
        # It is traced before `unpacked`.
        specs.append(tf.nest.map_structure(tf.TensorSpec.from_tensor, result))
        return index, tf.raw_ops.OptionalFromValue(components=tf.nest.flatten(result))

    @tf.autograph.experimental.do_not_convert
    def of_chunk(*rows: Any) -> tuple[Any, tf.Tensor]:
        attempts = tf.data.Dataset.from_tensor_slices(rows).enumerate().map(packed)
        last = tf.data.Dataset.from_tensors(
            (tf.constant(chunk, tf.int64), tf.raw_ops.OptionalNone())
        )
        found = attempts.ignore_errors().concatenate(last).batch(chunk + 1)
        indices, results = found.get_single_element()
        # Those that failed have the last result, which is none.
        count = tf.size(indices)
        places = tf.tensor_scatter_nd_update(
            tf.fill([chunk + 1], count - 1), indices[:, tf.newaxis], tf.range(count)
        )
        return rows, tf.gather(results, places[: tf.shape(tf.nest.flatten(rows)[0])[0]])

    @tf.autograph.experimental.do_not_convert
    def unpacked(element: tuple[Any, ...], result: tf.Tensor) -> tuple[Any, Any]:
        spec = specs[-1]
        flat = tf.nest.flatten(spec)

        def loaded() -> Any:
            types, shapes = [each.dtype for each in flat], [each.shape for each in flat]
            values = tf.raw_ops.OptionalGetValue(
                optional=result, output_types=types, output_shapes=shapes
            )
            return tf.nest.pack_sequence_as(spec, values)

        has_value = tf.raw_ops.OptionalHasValue(optional=result)
        return element, tf.cond(has_value, loaded, lambda: instead(*element))

    options = {'num_parallel_calls': tf.data.AUTOTUNE, 'deterministic': True} if parallel else {}
    chunks = elements.batch(chunk).map(of_chunk, **options)
    return chunks.unbatch().map(unpacked)


def empty(spec: Any) -> Any:
    """Returns zeros of the structure `spec`, with unknown sizes 0."""

    def fill(entry: tf.TensorSpec) -> tf.Tensor:
        return tf.zeros([size or 0 for size in entry.shape], entry.dtype)

    return tf.nest.map_structure(fill, spec)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a record is: its file, the offset of its content (-1: unknown), and its source id."""

    file: str
    offset: int
    source_id: str


class BadRecords:
    """Counts and logs bad records, and ends the reading when there are too many.

    Each record counts once. Threads may share it.

    Args:
      where: path of the reader in the config, for messages.
      max_share: largest share of bad records among those read; of the first 200 records, as if all
        had been read.
      is_strict: whether the first bad record ends the reading.
      path: the file of JSON lines that gets an entry for each bad record; None writes none. Those
        that it has, from before a run was resumed, are not written again.

    Attributes:
      records: kind -> number of records that were skipped.
      objects: kind -> number of objects that were left out of other records.
    """

    def __init__(
        self,
        where: str,
        *,
        max_share: float = 0.01,
        is_strict: bool = False,
        path: str | os.PathLike | None = None,
    ):
        self._where = where
        self._max_share = max_share
        self._is_strict = is_strict
        self._path = path
        self._lock = threading.Lock()
        self.records: collections.Counter[str] = collections.Counter()
        self.objects: collections.Counter[str] = collections.Counter()
        self._seen: set[tuple[str, ...]] = set()
        self._written = set(_entries(path))
        self._num_bad, self._reason, self._num_logged = 0, '', 0
        self._consecutive, self._latest = 0, -1
        self._num_before = 0

    def add_read(self, count: int) -> None:
        """Counts records that were read, and whose numbers begin again from now on."""
        with self._lock:
            self._num_before, self._latest = count, -1

    def add_record(
        self, place: Place, number: int, serialized: bytes, explain: Callable[[bytes], str]
    ) -> None:
        """Adds a record that cannot be used.

        Args:
          place: where it is.
          number: how many records were read before it.
          serialized: the record, or a `marker`.
          explain: returns why a record cannot be decoded.

        Raises:
          TooManyBadRecordsError: if too many are bad.
        """
        with self._lock:
            self._consecutive = self._consecutive + 1 if number == self._latest + 1 else 1
            self._latest = number
            if self._consecutive > _MAX_CONSECUTIVE:
                self._end(
                    f'none of the last {_MAX_CONSECUTIVE} records can be used; {self._reason}'
                )
            # Without place and source id, records differ by their contents.
            name = place.source_id or ('' if place.offset >= 0 else _digest(serialized))
            identity = (place.file, str(place.offset), name)
            if identity in self._seen:
                return
            kind, reason = _describe(serialized, explain)
            self.records[kind] += 1
            self._add(place, identity, number, {'kind': kind, 'reason': reason})

    def add_objects(self, place: Place, number: int, counts: Mapping[str, int]) -> None:
        """Adds the objects, kind -> number, that a usable record lost; as `add_record`."""
        with self._lock:
            identity = (place.file, str(place.offset), place.source_id)
            if identity in self._seen:
                return
            self.objects.update(counts)
            bad = {kind: count for kind, count in counts.items() if kind != UNKNOWN_CLASS}
            if not bad:
                self._seen.add(identity)
                return
            text = ', '.join(f'{count} {kind}' for kind, count in bad.items())
            entry = {'kind': 'objects', 'reason': text, 'objects': sum(bad.values())}
            self._add(place, identity, number, entry)

    def add_class(self, place: Place, text: str) -> None:
        """Lists a class of the records that the label map lacks, once, with the first record."""
        with self._lock:
            identity = (UNKNOWN_CLASS, text)
            if identity not in self._seen:
                self._seen.add(identity)
                reason = (
                    f'class {text!r} is not in the label map, or several share it as display_name'
                )
                entry = {'kind': UNKNOWN_CLASS, 'reason': reason, 'class': text}
                self._write(identity, dataclasses.asdict(place) | entry)

    def log_objects(self) -> None:
        """Logs how many objects were left out so far, and why, if more than at the last call."""
        with self._lock:
            total = self.objects.total()
            if total > self._num_logged:
                self._num_logged = total
                reasons = objects.describe_invalid(self.objects)
                _log.warning('%s: %d objects were left out: %s.', self._where, total, reasons)

    def check_any_is_usable(self) -> None:
        """Raises `TooManyBadRecordsError` if records were skipped; for data that gave no example.

        A share of a few records says nothing, so they may all be bad without another error.
        """
        with self._lock:
            if self.records:
                self._end(f'no record can be used; {self._reason}')

    def counts(self) -> dict[str, int]:
        """Returns what was left out: 'records', 'objects' and each kind -> number."""
        with self._lock:
            return {
                'records': self.records.total(),
                'objects': self.objects.total(),
                **self.records,
                **self.objects,
            }

    def _add(
        self, place: Place, identity: tuple[str, ...], number: int, entry: dict[str, Any]
    ) -> None:
        self._seen.add(identity)
        self._num_bad += 1
        self._reason = f'{_format(place)}: {entry["reason"]}'
        line = {**dataclasses.asdict(place), **entry}
        self._write(identity, line)
        # Lost objects are logged by `left_out.DroppedObjectsReport`.
        num_skipped = 0 if 'objects' in entry else self.records.total()
        if 0 < num_skipped <= _MAX_WARNINGS:
            _log.warning('%s: skipped %s: %s', self._where, _format(place), entry['reason'])
        elif num_skipped == _MAX_WARNINGS + 1:
            _log.warning('%s: further records that are skipped are not named.', self._where)
        if self._is_strict:
            self._end(f'{self._reason} (strict_data)')
        # As if the first records had all been read.
        read = max(self._num_before + number + 1, _MIN_RECORDS)
        if self._num_bad > self._max_share * read:
            self._end(
                f'{self._num_bad} of the first {read} records are bad, more than '
                f'max_bad_records_share = {self._max_share:g}',
                'A higher max_bad_records_share accepts them.',
            )

    def _write(self, identity: tuple[str, ...], line: dict[str, Any]) -> None:
        if self._path is None or identity in self._written:
            return
        os.makedirs(os.path.dirname(self._path) or '.', exist_ok=True)
        with open(self._path, 'a') as file:
            file.write(json.dumps(line) + '\n')

    def _end(self, problem: str, help_text: str = '') -> None:
        raise TooManyBadRecordsError(
            f'{self._where}: {problem}. Left out so far:\n{self.table()}'
            + (f'\n{self._path} lists each.' if self._path else '')
            + (f'\n{help_text}' if help_text else '')
        )

    def table(self) -> str:
        """Returns the table of reasons, a line each."""
        rows = [(count, kind, 'records') for kind, count in self.records.most_common()]
        rows += [(count, kind, 'objects') for kind, count in self.objects.most_common()]
        return '\n'.join(f'  {count:>8} {unit:<8} {kind}' for count, kind, unit in rows)


def _describe(serialized: bytes, explain: Callable[[bytes], str]) -> tuple[str, str]:
    """Returns kind and reason of a bad record."""
    if is_marker(serialized):
        kind, text = serialized[len(_MARKER) :].decode(errors='replace').split('\x00', 1)
        return kind, text[:_MAX_LETTERS]
    text = explain(serialized)
    kinds = (kind for pattern, kind in _KINDS.items() if re.search(pattern, text))
    return next(kinds, 'other'), text[:_MAX_LETTERS]


def _digest(serialized: bytes) -> str:
    return hashlib.blake2b(serialized, digest_size=8).hexdigest()


def source_id(serialized: bytes) -> str:
    """Returns the source id of a serialized example, '' if it has none or is corrupt."""
    try:
        features = tf.train.Example.FromString(serialized).features.feature
    except Exception:  # The class of errors depends on the implementation of protocol buffers.
        return ''
    for key in (keys.SOURCE_ID, keys.FILENAME):
        if key in features and features[key].bytes_list.value:
            return features[key].bytes_list.value[0].decode(errors='replace')
    return ''


def _entries(path: str | os.PathLike | None) -> Iterator[tuple[str, ...]]:
    """Yields what identifies each entry of a file."""
    if path is None or not os.path.exists(path):
        return
    with open(path) as file:
        for line in file:
            try:
                entry = json.loads(line)
                if entry['kind'] == UNKNOWN_CLASS:
                    yield UNKNOWN_CLASS, entry['class']
                else:
                    yield entry['file'], str(entry['offset']), entry['source_id']
            except (ValueError, KeyError, TypeError):
                continue  # A kill may have truncated a line.


def _format(place: Place) -> str:
    parts = [f'source id {place.source_id!r}'] if place.source_id else []
    if place.file:
        parts = [f'{place.file}, byte {place.offset}', *parts]
    return f'record ({format_list(parts)})' if parts else 'a record'
