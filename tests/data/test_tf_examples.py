import os

import numpy as np
import tensorflow as tf

from object_detection.data import tf_examples


def test_equals_tensorflow():
    ints = [0, 1, 127, 128, 300, -1, 2**63 - 1, -(2**63)]
    floats = [0.0, -1.5, 1e-30, 3.0e38, 1 / 3]
    texts = [b'', b'abc', bytes(range(256)), 'ü'.encode()]
    serialized = tf_examples.serialize(
        {
            'ints': tf_examples.int64_feature(ints),
            'floats': tf_examples.float_feature(floats),
            'bytes': tf_examples.bytes_feature(texts),
            'no ints': tf_examples.int64_feature([]),
            'no floats': tf_examples.float_feature([]),
            'no bytes': tf_examples.bytes_feature([]),
        }
    )
    feature = tf.train.Feature
    expected = tf.train.Example(
        features=tf.train.Features(
            feature={
                'ints': feature(int64_list=tf.train.Int64List(value=ints)),
                'floats': feature(float_list=tf.train.FloatList(value=floats)),
                'bytes': feature(bytes_list=tf.train.BytesList(value=texts)),
                'no ints': feature(int64_list=tf.train.Int64List()),
                'no floats': feature(float_list=tf.train.FloatList()),
                'no bytes': feature(bytes_list=tf.train.BytesList()),
            }
        )
    )
    assert tf.train.Example.FromString(serialized) == expected
    assert serialized == expected.SerializeToString(deterministic=True)


def test_takes_arrays_and_iterators():
    serialized = tf_examples.serialize(
        {
            'ints': tf_examples.int64_feature(np.array([1.0, 2.0])),
            'floats': tf_examples.float_feature(value for value in (1, 2)),
        }
    )
    features = tf.train.Example.FromString(serialized).features.feature
    assert features['ints'].int64_list.value == [1, 2]
    assert features['floats'].float_list.value == [1.0, 2.0]


def test_no_features():
    example = tf.train.Example.FromString(tf_examples.serialize({}))
    assert not example.features.feature


def test_texts_that_are_no_unicode_are_escaped():
    names = ['ü', os.fsdecode(b'a\xff.jpg'), '\ud83d']
    features = tf.train.Example.FromString(
        tf_examples.serialize({'names': tf_examples.text_feature(names)})
    ).features.feature
    assert features['names'].bytes_list.value == ['ü'.encode(), b'a\\udcff.jpg', b'\\ud83d']
