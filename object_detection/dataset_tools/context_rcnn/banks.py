"""Plans which images share context features, and which embeddings these are.

Images of one key and one period of time are a group. A group with more embeddings than a context
may have is split, in order. The context features (the bank) of a subset are embeddings of its
images; images know which of them are their own.
"""

import itertools
import json
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from object_detection.core import tf_example_keys as keys
from object_detection.data import context_embeddings
from object_detection.dataset_tools.context_rcnn.options import TIME_HORIZONS, ContextOptions
from object_detection.dataset_tools.context_rcnn.record_job import Counts
from object_detection.dataset_tools.context_rcnn.records import Example, Place
from object_detection.errors import DataError, expected

# What `plan` counts.
COUNTS = (
    *('groups', 'banks', 'context_features', 'frames_not_annotated'),
    *('images_over_maximum', 'images_of_other_length'),
)


class Row(NamedTuple):
    """What is known of an image without its file.

    Attributes:
      path, offset: place of its record, see `records.Place`.
      source_id: identifies the image.
      date: image/date_captured, see `normal_date`; '' if it is absent.
      frame_number: image/seq_frame_num; None if it is absent.
      length: length of an embedding; 0 without any.
      scores: scores of its embeddings.
      has_boxes: whether it has annotated boxes.
      size: bytes of its file.
      frame: number of the frame in a tf.SequenceExample, see `records.Place`.
      is_annotated: false for a frame whose objects are not known.
    """

    path: str
    offset: int
    source_id: str
    date: str
    frame_number: int | None
    length: int
    scores: list[float]
    has_boxes: bool
    size: int
    frame: int
    is_annotated: bool

    @property
    def place(self) -> Place:
        return Place(self.path, self.offset, self.frame)


class Plan(NamedTuple):
    """Images that share a bank.

    Attributes:
      key: key of the group, and the number of the subset if it was split.
      rows: the images, in order.
      chosen: indices of the embeddings of each image that are in the bank, ascending.
      length: length of an embedding; 0 if the group has none.
    """

    key: str
    rows: list[Row]
    chosen: list[list[int]]
    length: int

    @property
    def num_features(self) -> int:
        """The number of context features."""
        return sum(map(len, self.chosen))


def group_key(example: Example, sequence_key: str, time_horizon: str | None) -> str:
    """Returns the key of an image's group, such as L1/2020/3/8 for a location and a day.

    Weeks are those of a month: its days 1 to 6, 7 to 13, and so on.

    Raises:
      UserError: if the image lacks the feature or a date, or there is no such horizon.
    """
    if time_horizon and time_horizon not in TIME_HORIZONS:
        raise expected('--time_horizon', f'one of {", ".join(TIME_HORIZONS)}', repr(time_horizon))
    key = _value(example, sequence_key)
    if not time_horizon:
        return key
    time = context_embeddings.time_of(example.text(keys.DATE_CAPTURED))
    if time is None:
        what = f'{keys.DATE_CAPTURED} of each image as YYYY-MM-DD HH:MM:SS'
        raise expected('--time_horizon', what, f'{example.text(keys.DATE_CAPTURED)!r} of {example}')
    if time_horizon == 'week':
        parts = [time.year, time.month, time.day // 7]
    else:
        parts = [time.year, time.month, time.day, time.hour, time.minute]
        order = [name for name in TIME_HORIZONS if name != 'week']
        parts = parts[: order.index(time_horizon) + 1]
    return '/'.join([key, *map(str, parts)])


def _value(example: Example, sequence_key: str) -> str:
    """Returns the value of the feature that groups images, a text or a number."""
    for read in (example.text, lambda key: next(map(str, example.integers(key)), '')):
        try:
            if value := read(sequence_key):
                return value
        except DataError:
            continue
    what = f'a text or a whole number {sequence_key} of each image'
    raise expected('--sequence_key', what, f'none of {example}')


def row_of(example: Example, place: Place) -> Row:
    """Returns what the plan needs of an image.

    Raises:
      DataError: if it has no file, or its embeddings are not of one length, or their number is not
        what it says.
    """
    if not example.texts(keys.ENCODED):
        raise DataError(f'{example}: expected {keys.ENCODED}. Received: none.')
    counts, lengths = map(example.integers, (keys.EMBEDDING_COUNT, keys.EMBEDDING_LENGTH))
    count, length = (counts[0], lengths[0]) if counts and lengths else (0, 0)
    scores = example.floats(keys.EMBEDDING_SCORE).tolist()
    size = example.count(keys.EMBEDDING)
    is_right = count >= 0 and count * length == size and len(scores) == count
    if len(counts) > 1 or not is_right:
        raise DataError(
            f'{example}: expected {keys.EMBEDDING} of {keys.EMBEDDING_COUNT} times '
            f'{keys.EMBEDDING_LENGTH} numbers, and a score of each. Received: {size} numbers, '
            f'counts {list(counts)}, lengths {list(lengths)} and {len(scores)} scores; '
            'generate_embedding_data.py makes them again.'
        )
    return Row(
        path=place.path,
        offset=place.offset,
        source_id=example.text(keys.SOURCE_ID),
        date=context_embeddings.normal_date(example.text(keys.DATE_CAPTURED)),
        frame_number=next(iter(example.integers(keys.SEQUENCE_FRAME_NUMBER)), None),
        length=length if count else 0,
        scores=scores,
        has_boxes=bool(example.count(keys.YMIN)),
        size=len(example.encoded()),
        frame=place.frame,
        is_annotated=0 not in example.integers(keys.IS_ANNOTATED),
    )


def to_json(row: Row) -> bytes:
    """Encodes a row, for `from_json`."""
    return json.dumps(row).encode()


def from_json(text: bytes) -> Row:
    return Row(*json.loads(text))


def sort(rows: Sequence[Row], sequence_key: str, *, sorted_image_ids: bool) -> list[Row]:
    """Returns the images of a group in order.

    Images of a sequence (image/seq_id) are ordered by the numbers of their frames, those of a
    location by their source ids if `sorted_image_ids` is true, and all others by date, or by source
    id without dates.
    """

    def order(row: Row) -> tuple:
        source_id = row.source_id.encode()
        if sequence_key == keys.SEQUENCE_ID:
            number = row.frame_number
            return number is None, number or 0, row.date, source_id
        if sequence_key == keys.LOCATION and sorted_image_ids:
            return (source_id,)
        return row.date, source_id

    # The place makes the order of images that have the same id that of the input.
    return sorted(rows, key=lambda row: (order(row), row.place))


def split(rows: Sequence[Row], max_elements: int) -> list[list[Row]]:
    """Divides images, in order, so that subsets have at most `max_elements` embeddings.

    An image that has more is a subset of its own.
    """
    subsets: list[list[Row]] = []
    size = 0
    for row in rows:
        if not subsets or (size and size + len(row.scores) > max_elements):
            subsets.append([])
            size = 0
        subsets[-1].append(row)
        size += len(row.scores)
    return subsets


def plan(
    key: str, rows: Sequence[Row], options: ContextOptions, counts: Counts | None = None
) -> list[Plan]:
    """Plans the banks of a group.

    Args:
      key: key of the group.
      rows: its images, in any order.
      options: the options of the job.
      counts: to count in, for the report: 'groups', 'banks', 'context_features' and
        'frames_not_annotated', which are context but not written; and 'images' `_over_maximum`,
        of whose embeddings the best are kept, and `_of_other_length`, whose embeddings are left
        out, as those of most images of the group have another length.
    """
    counts = Counts() if counts is None else counts
    ordered = sort(rows, options.sequence_key, sorted_image_ids=options.sorted_image_ids)
    limit = options.max_num_elements_in_context_features
    subsets = split(ordered, limit)
    length = _most_frequent_length(rows)
    plans = []
    for number, subset in enumerate(subsets):
        name = key if len(subsets) == 1 else f'{key}_{number}'
        chosen = [_chosen(i, row, length, options) for i, row in enumerate(subset)]
        plans.append(Plan(name, subset, chosen, length))
    counts['groups'] += 1
    counts['banks'] += len(plans)
    counts['context_features'] += sum(each.num_features for each in plans)
    counts['frames_not_annotated'] += sum(not row.is_annotated for row in rows)
    counts['images_over_maximum'] += sum(len(row.scores) > limit for row in rows)
    counts['images_of_other_length'] += sum(row.length not in (0, length) for row in rows)
    return plans


def _most_frequent_length(rows: Sequence[Row]) -> int:
    """Returns the length of most embeddings, of the smaller ones if as many; 0 without any."""
    counts = Counts()
    for row in rows:
        counts[row.length] += len(row.scores)
    return min((-count, length) for length, count in counts.items())[1] if counts else 0


def _chosen(index: int, row: Row, length: int, options: ContextOptions) -> list[int]:
    """Returns which embeddings of image `index` of a subset are in the bank."""
    rate = options.subsample_context_features_rate
    is_left_out = (rate and index % rate) or (options.keep_only_positives_gt and not row.has_boxes)
    if is_left_out or row.length != length:
        return []
    scores = np.asarray(row.scores, np.float32)
    chosen = np.arange(len(scores))
    if options.keep_only_positives:
        chosen = chosen[scores >= np.float32(options.context_features_score_threshold)]
    best = np.argsort(-scores[chosen], kind='stable')
    return sorted(chosen[best[: options.max_num_elements_in_context_features]].tolist())


def own_indices(plan: Plan, not_in_bank: int) -> Iterator[list[int]]:
    """Yields the indices of each image's own context features; [`not_in_bank`] if it has none."""
    start = 0
    for chosen in plan.chosen:
        yield list(range(start, start + len(chosen))) or [not_in_bank]
        start += len(chosen)


def windows(count: int, length: int | None, stride: int | None = None) -> list[range]:
    """Divides `count` frames into clips.

    Args:
      count: number of frames.
      length: most frames of a clip; None for all.
      stride: frames between the beginnings of clips; None for `length`.
    """
    length = length or max(count, 1)
    starts = range(0, count, stride or length)
    return [range(start, min(start + length, count)) for start in starts]


def within_bytes(clip: range, sizes: Sequence[int], limit: int) -> list[range]:
    """Divides a clip so that the images of each part have at most `limit` bytes.

    An image that has more is a part of its own.

    Args:
      clip: indices of images.
      sizes: bytes of all images.
      limit: most bytes of a part.
    """
    starts, size = [clip.start], 0
    for i in clip:
        if i > starts[-1] and size + sizes[i] > limit:
            starts.append(i)
            size = 0
        size += sizes[i]
    return [range(*ends) for ends in itertools.pairwise([*starts, clip.stop])]


def kept(plan: Plan, image_ids: Collection[str] | None) -> list[int]:
    """Returns the indices of the images to write; None keeps all that are annotated."""
    return [
        i
        for i, row in enumerate(plan.rows)
        if row.is_annotated and (image_ids is None or row.source_id in image_ids)
    ]
