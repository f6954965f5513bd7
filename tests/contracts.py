"""Checks that every component of a kind must pass, whatever it computes."""

from typing import Any

import numpy as np
import tensorflow as tf


def check_box_coder(coder: Any, num_keypoints: int = 0) -> None:
    """Checks code size, round trip, broadcasting, unknown dimensions and padding rows of a coder.

    Args:
      coder: has `code_size`, `encode(boxes, anchors)` and `decode(codes, anchors)`.
      num_keypoints: where not 0, `encode` takes keypoints [..., N, num_keypoints, 2] as well, and
        `decode_keypoints` gives them back.
    """
    random = np.random.default_rng(0)
    boxes, anchors = _random_squares(random, [2, 7]), _random_squares(random, [7])
    extra = []
    if num_keypoints:
        extra = [tf.constant(random.uniform(size=[2, 7, num_keypoints, 2]), tf.float32)]

    codes = coder.encode(boxes, anchors, *extra)
    assert codes.dtype == tf.float32
    assert codes.shape == [2, 7, coder.code_size]

    # Square boxes, as coders of square boxes keep nothing else.
    np.testing.assert_allclose(coder.decode(codes, anchors), boxes, atol=1e-5)
    if num_keypoints:
        points = coder.decode_keypoints(codes, anchors)
        np.testing.assert_allclose(points, extra[0], atol=1e-5)

    both = tf.stack([anchors, anchors])
    np.testing.assert_allclose(coder.encode(boxes, both, *extra), codes, rtol=1e-6)
    np.testing.assert_allclose(coder.decode(codes, both), coder.decode(codes, anchors), rtol=1e-6)
    one = coder.encode(boxes[1], anchors, *[values[1] for values in extra])
    np.testing.assert_allclose(one, codes[1], rtol=1e-6)

    signature = [tf.TensorSpec([None, None, 4]), tf.TensorSpec([None, 4])]
    signature += [tf.TensorSpec([None, None, num_keypoints, 2])] if num_keypoints else []
    traced = tf.function(coder.encode, input_signature=signature, autograph=False)
    np.testing.assert_allclose(traced(boxes, anchors, *extra), codes, rtol=1e-5, atol=1e-5)
    empty = traced(boxes[:, :0], anchors[:0], *[values[:, :0] for values in extra])
    assert empty.shape == [2, 0, coder.code_size]
    assert coder.decode(empty, anchors[:0]).shape == [2, 0, 4]

    for padded in [(0 * boxes, anchors), (boxes, 0 * anchors), (0 * boxes, 0 * anchors)]:
        codes = coder.encode(*padded, *extra)
        assert np.isfinite(codes).all()
        assert np.isfinite(coder.decode(codes, padded[1])).all()


def _random_squares(random: np.random.Generator, shape: list[int]) -> tf.Tensor:
    """Boxes [*shape, 4] with sides from 0.1 to 0.5."""
    corner = random.uniform(0, 0.5, [*shape, 2])
    side = random.uniform(0.1, 0.5, [*shape, 1])
    return tf.constant(np.concatenate([corner, corner + side], axis=-1), tf.float32)
