"""Splits TFRecord files into parts, such as for training and validation."""

import bisect
import collections
import contextlib
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from object_detection.core import tf_example_keys as keys
from object_detection.data import tf_record_files
from object_detection.data.record_checks import digest
from object_detection.dataset_tools.converters import sharded_writer
from object_detection.errors import DataError, UserError, expected
from object_detection.protos.tf_example_pb2 import TfExample
from object_detection.system import files as system_files

_RANGE = 1 << 64


class Part(NamedTuple):
    """What a part holds.

    Attributes:
      num_records: number of records.
      objects: class text, or label -> number of objects.
      paths: its files.
    """

    num_records: int
    objects: collections.Counter[str]
    paths: list[str]


def split(
    names: Sequence[str],
    output: str,
    shares: Mapping[str, float],
    *,
    seed: int = 0,
    shards: int = 1,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> dict[str, Part]:
    """Writes `OUTPUT/PART-00000-of-0000N` with the records of each part, unchanged.

    `OUTPUT/PART.txt` lists the source ids of their images, one a line.

    The part of a record follows from its source id and the seed alone, so that it stays the same
    when records are added. Records of one source id are never in two parts; neither are records of
    one image file under several source ids, of which one decides. Two digests and the source id
    of each record are in memory, about 300 bytes.

    Args:
      names: TFRecord files.
      output: folder, created if necessary.
      shares: name of each part -> its share of the images, above 0; they sum up to 1.
      seed: another seed draws other images.
      shards: number of files of each part.
      progress: called with the number of records done, and None.

    Returns:
      Name of each part -> its contents.

    Raises:
      UserError: if shares are not valid, or a file would be replaced by a part of it.
      DataError: if a file or a record is corrupt; then nothing is written.
    """
    check_shares(shares)
    prefixes = {part: os.path.join(output, part) for part in shares}
    _check_replaced(names, prefixes.values(), shards)
    parts = _draw_parts(names, shares, seed)
    _check_parts(parts, shares)
    counts = {}
    ids: dict[str, dict[str, None]] = {part: {} for part in shares}
    with contextlib.ExitStack() as stack:
        outputs = {
            part: stack.enter_context(sharded_writer.open_output(prefix, shards))
            for part, prefix in prefixes.items()
        }
        with contextlib.ExitStack() as writing:
            files = {}
            for part, each in outputs.items():
                files[part] = [writing.enter_context(each.writing(i)) for i in range(shards)]
                paths = [each.shard_path(i) for i in range(shards)]
                counts[part] = Part(0, collections.Counter(), paths)
            contents = ((name, content) for name in names for content in _records(name))
            for done, (name, content) in enumerate(contents, start=1):
                features = _features(name, content)
                source_id = _source_id(name, features)
                part = parts[digest(source_id)]
                # A line must be one id; readers of lists join words by one blank, too.
                ids[part][' '.join(source_id.decode(errors='replace').split())] = None
                count = counts[part]
                tf_record_files.write_record(files[part][count.num_records % shards], content)
                count.objects.update(_classes(features))
                counts[part] = count._replace(num_records=count.num_records + 1)
                progress(done, None)
        for part, each in outputs.items():
            each.publish({i: file.draft() for i, file in enumerate(files[part])})
            lines = ''.join(f'{source_id}\n' for source_id in ids[part])
            system_files.write_text(f'{prefixes[part]}.txt', lines)
    return counts


def _check_replaced(names: Sequence[str], prefixes: Iterable[str], shards: int) -> None:
    """Raises a UserError if a file would be replaced by a part of it, or removed with its set."""
    for prefix in prefixes:
        for path in sharded_writer.Output(prefix, shards, job='').replaced_paths():
            if any(os.path.exists(path) and os.path.samefile(path, name) for name in names):
                raise expected(path, 'another folder than that of the data', 'the same')


def check_shares(shares: Mapping[str, float]) -> None:
    """Raises a UserError for shares that are not above 0, or do not sum up to 1."""
    if not all(share > 0 for share in shares.values()) or abs(sum(shares.values()) - 1) > 1e-6:
        raise expected('--share', 'two or more parts above 0 that sum up to 1', shares)


def _check_parts(parts: Mapping[int, str], shares: Mapping[str, float]) -> None:
    empty = [part for part in shares if part not in parts.values()]
    if empty:
        raise UserError(
            f'--share: no image is in {", ".join(empty)}; expected more than {len(parts)} images, '
            'a larger share or another --seed.'
        )


def _draw_parts(names: Sequence[str], shares: Mapping[str, float], seed: int) -> dict[int, str]:
    """Returns digest of each source id -> name of its part."""
    groups = _Groups()
    for name in names:
        for content in _records(name):
            features = _features(name, content)
            groups.join(digest(_source_id(name, features)), digest(_image(features)))
    ends = list(itertools.accumulate(shares.values()))
    parts = {}
    for of_id in groups.ids:
        root = groups.root(of_id).to_bytes(8, 'little')
        drawn = hashlib.blake2b(f'{seed} '.encode() + root, digest_size=8).digest()
        place = bisect.bisect(ends, int.from_bytes(drawn, 'little') / _RANGE)
        # The sum of the shares may be a little less than 1.
        parts[of_id] = list(shares)[min(place, len(shares) - 1)]
    return parts


class _Groups:
    """Groups source ids that share an image; a group is named by its lowest digest.

    Attributes:
      ids: digest of each source id -> another of its group, or itself.
    """

    def __init__(self):
        self.ids: dict[int, int] = {}
        self._first_id: dict[int, int] = {}

    def join(self, of_id: int, of_image: int) -> None:
        self.ids.setdefault(of_id, of_id)
        first, second = self.root(of_id), self.root(self._first_id.setdefault(of_image, of_id))
        self.ids[max(first, second)] = min(first, second)

    def root(self, of_id: int) -> int:
        while self.ids[of_id] != of_id:
            self.ids[of_id] = self.ids[self.ids[of_id]]
            of_id = self.ids[of_id]
        return of_id


def _records(name: str) -> Iterator[bytes]:
    try:
        yield from tf_record_files.records(name)
    except tf_record_files.CorruptFileError as error:
        raise DataError(f'{error}. `tfod data check` lists what is corrupt.') from None


def _features(name: str, content: bytes):
    try:
        return TfExample.FromString(content).features.feature
    except DecodeError:
        raise DataError(f'{name} holds a record that is no tf.Example.') from None


def _source_id(name: str, features) -> bytes:
    for key in (keys.SOURCE_ID, keys.FILENAME):
        values = features[key].bytes_list.value
        if values and values[0]:
            return values[0]
    raise DataError(
        f'{name} holds a record without {keys.SOURCE_ID} and {keys.FILENAME}; expected one of '
        'them, by which the part of the record is drawn.'
    )


def _image(features) -> bytes:
    values = features[keys.ENCODED].bytes_list.value
    return values[0] if values else b''


def _classes(features) -> list[str]:
    texts = features[keys.CLASS_TEXT].bytes_list.value
    if texts:
        return [text.decode(errors='replace') for text in texts]
    return [str(value) for value in features[keys.CLASS_LABEL].int64_list.value]
