"""Writes images with their context features, as tf.Examples or as tf.SequenceExamples."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from object_detection.core import tf_example_keys as keys
from object_detection.data import image_files, tf_examples
from object_detection.dataset_tools.context_rcnn import banks, records
from object_detection.dataset_tools.context_rcnn.banks import Plan
from object_detection.dataset_tools.context_rcnn.options import ContextOptions
from object_detection.dataset_tools.context_rcnn.record_job import Counts
from object_detection.dataset_tools.context_rcnn.records import Example, Place
from object_detection.errors import UnusableError, UserError, expected

# Images of a clip in bytes: a sequence is parsed in memory.
CLIP_BYTES = 256 << 20
# Readers refuse records of more than 1 GiB, which is half the limit of protocol buffers.
_MAX_SEQUENCE_BYTES = (1 << 30) - (1 << 20)
# Features that reducing an image would make wrong.
_PIXEL_KEYS = (keys.MASK, keys.ADDITIONAL_CHANNELS)
# Key in a tf.Example -> key of the list in a tf.SequenceExample. All frames have the first ones.
_FRAME_LISTS = {
    keys.ENCODED: keys.ENCODED,
    keys.SOURCE_ID: keys.SOURCE_ID,
    **dict(zip(keys.BOX_SIDES, keys.SEQUENCE_BOX_SIDES, strict=True)),
    keys.CLASS_LABEL: keys.SEQUENCE_LABEL_INDEX,
    keys.CLASS_TEXT: keys.SEQUENCE_LABEL,
}
_OPTIONAL_FRAME_LISTS = (keys.LOCATION, keys.DATE_CAPTURED, keys.UNIX_TIME, keys.UNIX_SECONDS)


def bank_features(plan: Plan, options: ContextOptions) -> dict[str, bytes]:
    """Reads the embeddings of a bank out of the records of its images, one record at a time.

    A bank without embeddings has no context features, and a context_feature_length nevertheless.

    Returns:
      Key -> serialized `Feature`.
    """
    length = plan.length or options.context_feature_length
    count = plan.num_features
    limit = options.max_num_elements_in_context_features
    num_rows = max(count, limit) if options.pad_context_features else count
    bank = np.zeros((num_rows, length), np.float32)
    ids: list[bytes] = []
    reader = records.Reader()
    for row, chosen in zip(plan.rows, plan.chosen, strict=True):
        if chosen:
            example = reader.read(row.place)
            values = example.floats(keys.EMBEDDING).reshape(len(row.scores), length)
            bank[len(ids) : len(ids) + len(chosen)] = values[chosen]
            ids += [row.source_id.encode()] * len(chosen)
    features = {
        keys.CONTEXT_FEATURES: tf_examples.float_feature(bank.ravel()),
        keys.CONTEXT_FEATURE_LENGTH: tf_examples.int64_feature([length]),
    }
    if options.keep_context_features_image_id_list:
        ids += [b''] * (num_rows - count)
        features[keys.CONTEXT_IMAGE_IDS] = tf_examples.bytes_feature(ids)
    return features


class Frame(NamedTuple):
    """An image to write.

    Attributes:
      place: where its record is.
      own: indices of its own context features, see `banks.own_indices`.
      size: bytes of its file, before it is reduced.
    """

    place: Place
    own: Sequence[int]
    size: int = 0


def frames(plan: Plan, image_ids: frozenset[str] | None, options: ContextOptions) -> list[Frame]:
    """Returns the images of a plan that are written, in order."""
    own = list(banks.own_indices(plan, options.max_num_elements_in_context_features + 1))
    return [
        Frame(plan.rows[i].place, own[i], plan.rows[i].size) for i in banks.kept(plan, image_ids)
    ]


def to_example(
    frame: Frame,
    bank: Mapping[str, bytes] | None,
    options: ContextOptions,
    counts: Counts,
    read: Callable[[Place], Example] = records.read,
) -> bytes:
    """Returns the tf.Example of an image with its bank; None writes no context features."""
    example = read(frame.place)
    features = dict(_reduced(example, options, counts))
    if bank is not None:
        features |= bank
        features[keys.CONTEXT_INDICES] = tf_examples.int64_feature(frame.own)
    return example.with_features(features)


def to_sequence_example(
    name: str,
    clip: Iterable[Frame],
    bank: Mapping[str, bytes] | None,
    options: ContextOptions,
    counts: Counts,
    read: Callable[[Place], Example] = records.read,
) -> bytes:
    """Returns the tf.SequenceExample of a clip with its bank; None writes no context features.

    Frame numbers are its time: the clip begins at 0 and ends at the number of its frames.

    Raises:
      UserError: if the images of the clip and the bank are too large for a record.
    """
    found: list[dict[str, bytes]] = []
    own: list[bytes] = []
    size = sum(map(len, (bank or {}).values()))
    for frame in clip:
        example = read(frame.place)
        features = example.raw() | _reduced(example, options, counts)
        size += len(features.get(keys.ENCODED, b''))
        if size > _MAX_SEQUENCE_BYTES:
            raise UserError(
                f'--max_clip_length: expected clips whose images and context features have at '
                f'most {_MAX_SEQUENCE_BYTES} bytes. Received: the clip {name}, of which '
                f'{len(found) + 1} images and the features have {size}.'
            )
        found.append(features)
        own.append(tf_examples.int64_feature(frame.own))
    count = len(found)
    empty = tf_examples.bytes_feature([])
    lists = {
        target: [features.get(key, _EMPTY.get(key, empty)) for features in found]
        for key, target in _FRAME_LISTS.items()
    }
    lists |= {
        key: [features.get(key, b'') for features in found]
        for key in _OPTIONAL_FRAME_LISTS
        if any(key in features for features in found)
    }
    lists[keys.TIMESTAMP] = [tf_examples.int64_feature([i]) for i in range(count)]
    lists[keys.IS_ANNOTATED] = [tf_examples.int64_feature([1])] * count
    context = {
        keys.MEDIA_ID: tf_examples.text_feature([name]),
        keys.CLIP_START: tf_examples.int64_feature([0]),
        keys.CLIP_END: tf_examples.int64_feature([count]),
        keys.CLIP_FRAMES: tf_examples.int64_feature([count]),
        keys.CHANNELS: tf_examples.int64_feature([3]),
        keys.FORMAT: found[0].get(keys.FORMAT, tf_examples.bytes_feature([b'jpeg'])),
    }
    context |= {key: found[0][key] for key in (keys.HEIGHT, keys.WIDTH) if key in found[0]}
    if bank is not None:
        context |= bank
        lists[keys.SEQUENCE_CONTEXT_INDICES] = own
    return tf_examples.serialize_sequence(context, lists)


_EMPTY = {
    **dict.fromkeys(keys.BOX_SIDES, tf_examples.float_feature([])),
    keys.CLASS_LABEL: tf_examples.int64_feature([]),
}


def _reduced(example: Example, options: ContextOptions, counts: Counts) -> dict[str, bytes]:
    """Returns the features that differ in an image that is made smaller; {} for others."""
    if not options.reduce_image_size:
        return {}
    encoded = example.encoded()
    try:
        image = image_files.reduce(encoded, options.max_image_dimension)
    except UnusableError:
        counts['images_not_reduced'] += 1
        return {}
    if image is None:
        return {}
    if found := [key for key in _PIXEL_KEYS if key in example]:
        what = f'images without {", ".join(found)}, which would no longer fit'
        raise expected('--reduce_image_size', what, f'{example}; give --noreduce_image_size')
    counts['images_reduced'] += 1
    digest = hashlib.sha256(image.encoded).hexdigest()
    features = {
        keys.ENCODED: tf_examples.bytes_feature([image.encoded]),
        keys.FORMAT: tf_examples.bytes_feature([image.format.encode()]),
        keys.SHA256: tf_examples.bytes_feature([digest.encode()]),
        keys.HEIGHT: tf_examples.int64_feature([image.height]),
        keys.WIDTH: tf_examples.int64_feature([image.width]),
    }
    if keys.AREA in example:
        height, width = image_files.stored_size(encoded)
        share = image.height * image.width / (height * width)
        features[keys.AREA] = tf_examples.float_feature(example.floats(keys.AREA) * share)
    return features
