"""Writes an annotated image as a tf.train.Example, without TensorFlow.

A Beam worker that imports TensorFlow starts five seconds later and takes half a gigabyte more; the
message itself is a map from a name to a list of one of three types.
(https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/feature.proto)
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from object_detection.core import tf_example_keys as keys
from object_detection.data.annotated_image import AnnotatedImage

# Field numbers in the message `Feature`.
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_LENGTH_DELIMITED = 2
_INT64_MASK = (1 << 64) - 1


class Clip(NamedTuple):
    """A part of a video.

    Attributes:
      dataset: name of the data set.
      media_id: identifies the video.
      start, end: its first second, and the one after its last.
      seconds: when each of its frames was taken.
      is_annotated: 1 for each frame whose objects are known, also if there is none; else 0.
    """

    dataset: str
    media_id: str
    start: int
    end: int
    seconds: Sequence[int]
    is_annotated: Sequence[int]


def to_example(image: AnnotatedImage) -> bytes:
    """Returns the serialised tf.train.Example of an image; equal images give equal bytes.

    Keys and values are the ones that the reference system's readers expect, plus the integer label
    of each object; fields that the image does not have are left out. `keys.FORMAT` is the file's
    actual format.
    """
    return serialize(
        _image_features(image)
        | _object_features(image)
        | _keypoint_features(image)
        | _densepose_features(image)
        | {key: _feature(values) for key, values in image.object_details.items()}
        | {key: _feature(values) for key, values in image.image_details.items()}
    )


def to_sequence_example(frames: Sequence[AnnotatedImage], clip: Clip) -> bytes:
    """Returns the serialised tf.train.SequenceExample of the frames of a clip.

    Args:
      frames: at least one, in the order of time.
      clip: what is known of the clip.
    """
    boxes = {
        key: [float_feature(frame.boxes[:, i]) for frame in frames]
        for i, key in enumerate(keys.SEQUENCE_BOX_SIDES)
    }
    lists = boxes | {
        keys.ENCODED: [bytes_feature([frame.encoded]) for frame in frames],
        keys.SOURCE_ID: [text_feature([frame.source_id]) for frame in frames],
        keys.TIMESTAMP: [int64_feature([second]) for second in clip.seconds],
        keys.IS_ANNOTATED: [int64_feature([value]) for value in clip.is_annotated],
        keys.SEQUENCE_LABEL: [text_feature(frame.class_texts) for frame in frames],
    }
    context = {
        keys.DATASET_NAME: text_feature([clip.dataset]),
        keys.MEDIA_ID: text_feature([clip.media_id]),
        keys.CLIP_START: int64_feature([clip.start]),
        keys.CLIP_END: int64_feature([clip.end]),
        keys.CLIP_FRAMES: int64_feature([len(frames)]),
        keys.HEIGHT: int64_feature([frames[0].height]),
        keys.WIDTH: int64_feature([frames[0].width]),
        keys.FORMAT: bytes_feature([frames[0].format.encode()]),
    }
    return serialize_sequence(context, lists)


def _image_features(image: AnnotatedImage) -> dict[str, bytes]:
    return {
        keys.HEIGHT: int64_feature([image.height]),
        keys.WIDTH: int64_feature([image.width]),
        keys.FILENAME: text_feature([image.file_name]),
        keys.SOURCE_ID: text_feature([image.source_id]),
        keys.SHA256: bytes_feature([hashlib.sha256(image.encoded).hexdigest().encode()]),
        keys.ENCODED: bytes_feature([image.encoded]),
        keys.FORMAT: bytes_feature([image.format.encode()]),
    }


def _object_features(image: AnnotatedImage) -> dict[str, bytes]:
    features = {key: float_feature(image.boxes[:, i]) for i, key in enumerate(keys.BOX_SIDES)}
    features |= {
        keys.CLASS_TEXT: text_feature(image.class_texts),
        keys.CLASS_LABEL: int64_feature(image.class_labels),
        keys.IS_CROWD: int64_feature(image.is_crowd),
        keys.AREA: float_feature(image.areas),
    }
    if image.masks is not None:
        features[keys.MASK] = bytes_feature(image.masks)
    return features


def _keypoint_features(image: AnnotatedImage) -> dict[str, bytes]:
    if image.keypoints is None:
        return {}
    texts = [*image.keypoint_names] * len(image)
    return {
        keys.KEYPOINT_X: float_feature(image.keypoints[..., 1].ravel()),
        keys.KEYPOINT_Y: float_feature(image.keypoints[..., 0].ravel()),
        keys.KEYPOINT_VISIBILITY: int64_feature(image.keypoint_visibilities.ravel()),
        keys.NUM_KEYPOINTS: int64_feature(image.num_keypoints),
        keys.KEYPOINT_TEXT: text_feature(texts),
    }


def _densepose_features(image: AnnotatedImage) -> dict[str, bytes]:
    if image.densepose is None:
        return {}
    rows = np.concatenate([np.zeros((0, 5)), *image.densepose])
    return {
        keys.DENSEPOSE_NUM: int64_feature(len(points) for points in image.densepose),
        keys.DENSEPOSE_PART: int64_feature(rows[:, 0]),
        keys.DENSEPOSE_X: float_feature(rows[:, 1]),
        keys.DENSEPOSE_Y: float_feature(rows[:, 2]),
        keys.DENSEPOSE_U: float_feature(rows[:, 3]),
        keys.DENSEPOSE_V: float_feature(rows[:, 4]),
    }


def _feature(values: np.ndarray) -> bytes:
    """Returns the feature of an array of texts, floats or integers."""
    if values.dtype.kind in 'OU':
        return text_feature(values)
    return float_feature(values) if values.dtype.kind == 'f' else int64_feature(values)


def encoded(text: str) -> bytes:
    r"""Returns a text as UTF-8; bytes of a file name that are not UTF-8 become \udcff and such."""
    return text.encode(errors='backslashreplace')


def text_feature(texts: Iterable[str]) -> bytes:
    """Returns the serialised tf.train.Feature of texts, see `encoded`."""
    return bytes_feature(map(encoded, texts))


def bytes_feature(values: Iterable[bytes]) -> bytes:
    """Returns a serialised `Feature` that holds byte strings."""
    return _field(_BYTES_LIST, b''.join(_field(1, value) for value in values))


def float_feature(values: Iterable[float]) -> bytes:
    """Returns a serialised `Feature` that holds float32 numbers."""
    # Context features are millions of numbers.
    values = values if isinstance(values, np.ndarray) else list(values)
    packed = np.asarray(values, np.dtype('<f4')).tobytes()
    return _field(_FLOAT_LIST, _field(1, packed) if packed else b'')


def int64_feature(values: Iterable[int]) -> bytes:
    """Returns a serialised `Feature` that holds int64 numbers."""
    packed = b''.join(_varint(int(value) & _INT64_MASK) for value in values)
    return _field(_INT64_LIST, _field(1, packed) if packed else b'')


def serialize(features: Mapping[str, bytes]) -> bytes:
    """Returns a serialised `Example`; equal features give equal bytes.

    Args:
      features: key -> a serialised `Feature`, from the functions above.
    """
    entries = (
        _field(1, _field(1, key.encode()) + _field(2, feature))
        for key, feature in sorted(features.items())
    )
    return _field(1, b''.join(entries))


def serialize_sequence(context: Mapping[str, bytes], lists: Mapping[str, Sequence[bytes]]) -> bytes:
    """Returns the serialised `SequenceExample`; equal features give equal bytes.

    Args:
      context: key -> a serialised `Feature` of the whole sequence.
      lists: key -> a serialised `Feature` for each frame.
    """
    entries = (
        _field(1, _field(1, key.encode()) + _field(2, b''.join(_field(1, each) for each in values)))
        for key, values in sorted(lists.items())
    )
    return serialize(context) + _field(2, b''.join(entries))


def _field(number: int, payload: bytes) -> bytes:
    return b'%c%b%b' % (number << 3 | _LENGTH_DELIMITED, _varint(len(payload)), payload)


def _varint(value: int) -> bytes:
    if value <= 0x7F:  # Most are.
        return value.to_bytes()
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
