"""What the logits of the first stage mean: two of background and object, or one of object.

Two go through softmax, one through a sigmoid; the functions tell by the last dimension.
"""

import tensorflow as tf


def margins(logits: tf.Tensor) -> tf.Tensor:
    """Returns by how much object exceeds background, [...], of logits [..., 1 or 2].

    Larger margins have larger probabilities, also where these are rounded to 1.
    """
    if logits.shape[-1] == 1:
        return logits[..., 0]
    return logits[..., 1] - logits[..., 0]


def probabilities(logits: tf.Tensor) -> tf.Tensor:
    """Returns the probabilities of background and object, [..., 2], of logits [..., 1 or 2]."""
    if logits.shape[-1] == 1:
        return tf.concat([tf.sigmoid(-logits), tf.sigmoid(logits)], axis=-1)
    return tf.nn.softmax(logits)


def cross_entropy(logits: tf.Tensor, is_object: tf.Tensor) -> tf.Tensor:
    """Returns the loss of each anchor, [...], of logits [..., 1 or 2] and bool [...]."""
    if logits.shape[-1] == 1:
        return tf.nn.sigmoid_cross_entropy_with_logits(
            labels=tf.cast(is_object, logits.dtype), logits=logits[..., 0]
        )
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(is_object, tf.int32), logits=logits
    )
