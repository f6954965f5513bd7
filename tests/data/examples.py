"""Builds serialized tf.Examples for tests."""

import io
import pathlib

import numpy as np
import tensorflow as tf
from PIL import Image

from object_detection.core.fields import InputFields
from object_detection.data.pipeline import record_files

LABEL_MAP = "item { name: 'cat' id: 1 } item { name: 'dog' id: 2 display_name: 'Hund' }"


def png(array: np.ndarray, format: str = 'PNG') -> bytes:
    """Encodes a uint8 image [H, W] or [H, W, C]."""
    file = io.BytesIO()
    Image.fromarray(np.asarray(array, np.uint8)).save(file, format)
    return file.getvalue()


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    """A random image uint8 [height, width, 3]."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def example(
    boxes=(),
    labels=(),
    texts=(),
    *,
    image: bytes | None = None,
    source_id: str = '7',
    masks=(),
    **extra,
) -> bytes:
    """A serialized example; `extra` holds further features, '__' standing for '/'."""
    boxes = np.asarray(boxes, np.float32).reshape(-1, 4)
    features = {
        'image/encoded': [image if image is not None else png(noise(20, 30))],
        'image/source_id': [source_id.encode()],
        'image/object/class/label': list(labels),
        'image/object/class/text': [text.encode() for text in texts],
        'image/object/mask': [png(mask) for mask in masks],
        **{name.replace('__', '/'): list(values) for name, values in extra.items()},
    }
    for i, name in enumerate(('ymin', 'xmin', 'ymax', 'xmax')):
        features[f'image/object/bbox/{name}'] = boxes[:, i].tolist()
    proto = tf.train.Example()
    for name, values in features.items():
        _set(proto.features.feature[name], values)
    return proto.SerializeToString()


def write_records(path: pathlib.Path, examples: list[bytes]) -> str:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for serialized in examples:
            writer.write(serialized)
    return str(path)


def write_label_map(folder: pathlib.Path, text: str = LABEL_MAP) -> str:
    path = folder / 'label_map.pbtxt'
    path.write_text(text)
    return str(path)


def _set(feature: tf.train.Feature, values: list) -> None:
    if not values:
        return
    if isinstance(values[0], bytes):
        feature.bytes_list.value.extend(values)
    elif isinstance(values[0], float):
        feature.float_list.value.extend(values)
    else:
        feature.int64_list.value.extend(values)


def batches_of_ids(
    records, left_out, reader, transform, *, batch_size, drop_remainder, **_
) -> tf.data.Dataset:
    """In place of `batches.build`: batches with nothing but the source ids, which is faster."""
    del left_out, reader, transform
    features = {'image/source_id': tf.io.FixedLenFeature([], tf.string)}

    def source_id(cursors: tf.Tensor, record: record_files.Record) -> dict[str, tf.Tensor]:
        del cursors
        serialized = record_files.fetch(record)['serialized']
        example = tf.io.parse_single_example(serialized, features)
        return {InputFields.SOURCE_ID: example['image/source_id']}

    return records.map(source_id).batch(batch_size, drop_remainder=drop_remainder)
