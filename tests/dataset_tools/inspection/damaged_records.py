"""TFRecord files with known faults, written without TensorFlow."""

import io
import struct

import google_crc32c
import numpy as np
from PIL import Image

from object_detection.core import tf_example_keys as keys
from object_detection.data import tf_examples

SIZE = (24, 32)  # height, width


def jpeg(seed: int = 0, size: tuple[int, int] = SIZE) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (*size, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, 'JPEG')
    return file.getvalue()


def png(size: tuple[int, int] = SIZE, dtype: type = np.uint8) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.ones(size, dtype)).save(file, 'PNG')
    return file.getvalue()


def example(
    seed: int = 0,
    boxes=((0.1, 0.2, 0.6, 0.7),),
    texts=None,
    labels=None,
    encoded: bytes | None = None,
    masks=None,
    source_id: str | None = None,
    **more: bytes,
) -> bytes:
    """Returns a serialized tf.Example; `more` maps the ends of keys to features."""
    boxes = np.array(boxes, np.float32).reshape(-1, 4)
    texts = ['cat'] * len(boxes) if texts is None and labels is None else texts
    features = {
        keys.ENCODED: tf_examples.bytes_feature([jpeg(seed) if encoded is None else encoded]),
        keys.HEIGHT: tf_examples.int64_feature([SIZE[0]]),
        keys.WIDTH: tf_examples.int64_feature([SIZE[1]]),
        keys.SOURCE_ID: tf_examples.bytes_feature(
            [(f'image {seed}' if source_id is None else source_id).encode()]
        ),
        **{key: tf_examples.float_feature(boxes[:, i]) for i, key in enumerate(keys.BOX_SIDES)},
        **{getattr(keys, name): feature for name, feature in more.items()},
    }
    if texts is not None:
        features[keys.CLASS_TEXT] = tf_examples.bytes_feature(text.encode() for text in texts)
    if labels is not None:
        features[keys.CLASS_LABEL] = tf_examples.int64_feature(labels)
    if masks is not None:
        features[keys.MASK] = tf_examples.bytes_feature(masks)
    return tf_examples.serialize(features)


def record(content: bytes) -> bytes:
    """Returns a record of a TFRecord file."""
    header = struct.pack('<Q', len(content))
    return header + _checksum(header) + content + _checksum(content)


def _checksum(content: bytes) -> bytes:
    value = google_crc32c.value(content)
    return struct.pack('<I', ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def write(path, contents) -> str:
    path.write_bytes(b''.join(map(record, contents)))
    return str(path)
