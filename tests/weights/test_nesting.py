"""Variables in nested dicts, by the parts of their names."""

import pytest
import tensorflow as tf

from object_detection.weights.arrays import nest


def test_names_that_begin_with_another_are_refused():
    for names in (['a', 'a/b'], ['a/b', 'a']):
        with pytest.raises(ValueError, match='another variable'):
            nest({name: tf.Variable(0.0) for name in names})
