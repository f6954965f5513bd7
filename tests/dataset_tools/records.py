"""Reads the TFRecords that the tools write."""

import hashlib
import io
import pathlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from PIL import Image

Features = dict[str, list | np.ndarray]


def read(path: pathlib.Path | str) -> list[Features]:
    return [parse(record) for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()]


def read_set(prefix: pathlib.Path | str, num_shards: int) -> list[Features]:
    return [
        features
        for shard in range(num_shards)
        for features in read(f'{prefix}-{shard:05d}-of-{num_shards:05d}')
    ]


def parse(record: bytes) -> Features:
    """Returns key -> list of values of a serialised tf.train.Example."""
    features = tf.train.Example.FromString(record).features.feature
    return {
        key: list(getattr(value, value.WhichOneof('kind')).value) for key, value in features.items()
    }


def masks(features: Features) -> list[np.ndarray]:
    encoded = features['image/object/mask']
    return [np.asarray(Image.open(io.BytesIO(png))) for png in encoded]


def as_golden(features: Features) -> Iterator[tuple[str, np.ndarray]]:
    """Yields features in the form of `tf_examples.npz`: pictures as hash and as arrays."""
    for key, values in features.items():
        if key == 'image/encoded':
            digest = hashlib.sha256(values[0]).hexdigest().encode()
            yield f'{key}#sha256', np.array([digest])
        elif key == 'image/object/mask':
            yield f'{key}#count', np.array(len(values))
            for index, mask in enumerate(masks(features)):
                yield f'{key}#mask{index}', mask
        else:
            yield key, np.array(values)


def assert_equal_to_golden(name: str, ours: np.ndarray, expected: np.ndarray) -> None:
    if expected.dtype.kind == 'f':
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=0, err_msg=name)
    else:
        np.testing.assert_array_equal(ours, expected, err_msg=name)
