"""Finds the repeat factors of the classes of a reader with `repeat_factor_sampling`."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from object_detection.builders.input_readers import examples as examples_builder
from object_detection.data import label_map
from object_detection.data.formats.records import ImageRecords, version
from object_detection.data.pipeline import image_counts, repeats
from object_detection.data.pipeline.image_counts import ImageCounts
from object_detection.errors import UserError
from object_detection.protos.input_reader_pb2 import InputReader

_log = logging.getLogger(__name__)
# Factors of classes in the log.
_NUM_LOGGED = 5


def of_records(reader: InputReader, where: str, files: Sequence[str]) -> repeats.RecordRepeats:
    """Builds what repeats the records of a reader, of which `files` are all files.

    Raises:
      ValueError: if the counts cannot be used.
    """
    usable = examples_builder.usable_objects(reader)
    versions = tuple((each.length, each.mtime_nsec) for each in map(tf.io.gfile.stat, files))
    key = (tuple(files), versions, *_what_counts(reader))

    def count() -> ImageCounts:
        return _counted(key, lambda: repeats.classes_of_records(files, usable))

    return repeats.RecordRepeats(usable, _factors(reader, where, count))


def of_images(reader: InputReader, where: str, sources: Sequence[ImageRecords]) -> list[np.ndarray]:
    """Finds the repeat factor of each image of a reader: float32 [n] for each source.

    Raises:
      ValueError: if the counts cannot be used.
    """
    labels = label_map.load(reader.label_map_path) if reader.label_map_path else None
    above = labels.ancestors if labels and reader.expand_labels_hierarchy else {}
    classes = [
        [
            ids and ids.union(*(above.get(number, ()) for number in ids))
            for ids in source.classes(
                ids=labels and labels.text_to_id, skip_crowd=reader.skip_crowd
            )
        ]
        for source in sources
    ]
    readable = [ids for found in classes for ids in found if ids is not None]
    factors = _factors(reader, where, lambda: image_counts.count(readable))

    def factor(ids: frozenset[int] | None) -> float:
        return max([1.0, *(factors.get(number, 1.0) for number in ids or ())])

    return [np.array([*map(factor, found)], np.float32) for found in classes]


def described(reader: InputReader) -> Iterator[str]:
    """Yields a line about what the factors of a reader depend on, in addition to its files."""
    config = reader.repeat_factor_sampling
    if reader.HasField('repeat_factor_sampling'):
        counts = label_map.read(config.image_counts_path) if config.image_counts_path else ''
        yield f'repeat_factor_sampling={config.threshold}, {counts}'


def _what_counts(reader: InputReader) -> tuple:
    """Returns what the classes of a record depend on, in addition to the record."""
    path = reader.label_map_path
    return path, path and version(path), reader.skip_crowd, reader.expand_labels_hierarchy


def _factors(
    reader: InputReader, where: str, count: Callable[[], ImageCounts]
) -> Mapping[int, float]:
    config = reader.repeat_factor_sampling
    field = f'{where}.repeat_factor_sampling'
    if config.image_counts_path:
        try:
            counts = image_counts.read(config.image_counts_path, reader.label_map_path)
        except ValueError as error:
            raise UserError(f'{field}.image_counts_path: {error}') from error
    else:
        start = time.monotonic()
        counts = count()
        _log.info(
            '%s: the classes of %d images were counted in %.1f s; image_counts_path saves this.',
            field,
            counts.num_images,
            time.monotonic() - start,
        )
    factors = image_counts.repeat_factors(counts, config.threshold)
    rare = sorted((number for number in factors if factors[number] > 1), key=factors.get)
    texts = [f'{number}: {factors[number]:.2f}' for number in reversed(rare[-_NUM_LOGGED:])]
    _log.info(
        '%s: %d of %d classes are repeated%s',
        field,
        len(rare),
        len(factors),
        f', most those with the ids {", ".join(texts)}' if texts else '',
    )
    return factors


def _counted(key: tuple, classes: Callable[[], Iterable[set[int]]]) -> ImageCounts:
    """Counts once for each key: pipelines of a process, and those after a change, share it."""
    if key not in _COUNTS:
        _COUNTS.clear()
        _COUNTS[key] = image_counts.count(classes())
    return _COUNTS[key]


_COUNTS: dict[tuple, ImageCounts] = {}
