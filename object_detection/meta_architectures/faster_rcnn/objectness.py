"""Objectness logits of the first stage: two of background and object, or one of object.

Two logits are for softmax, one for a sigmoid; the last dimension decides.
"""

import tensorflow as tf


def logit_difference(logits: tf.Tensor) -> tf.Tensor:
    """Returns the logit of object minus the logit of background, [...], for logits [..., 1 or 2].

    A larger difference means a larger probability, even where probabilities are rounded to 1.
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
