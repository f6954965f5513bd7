"""Classification targets from labels with confidences, some of which say what is not there."""

import tensorflow as tf

from object_detection.target_assigners.target_assigner import Targets


def confidence_targets(
    targets: Targets, *, has_background: bool, implicit_weight: float = 1.0
) -> Targets:
    """Turns targets whose labels are confidences into those of verified and unverified classes.

    A label of an object is positive for its classes, negative for classes that it is known not to
    be of, and 0 where nothing is known. Both known cases are explicit examples of weight 1; all
    others, including anchors that match no object, are implicit negatives. An anchor whose object
    has no positive label is background. As in the reference, the weights of objects matter only
    for the matching.

    Args:
      targets: as `TargetAssigner.assign` returns them for labels float32 [B, M, K'] of such
        confidences.
      has_background: whether the first column is background.
      implicit_weight: class weight of implicit examples.

    Returns:
      Targets with `class_weights` float32 [B, N, K'], a weight for each class.
    """
    labels = targets.class_targets[..., 1:] if has_background else targets.class_targets
    is_explicit = tf.cast(labels != 0.0, tf.float32)
    is_object = tf.cast(tf.reduce_any(labels > 0.0, axis=-1), tf.float32)
    class_targets = tf.maximum(labels, 0.0)
    if has_background:
        is_object_column = is_object[..., tf.newaxis]
        is_explicit = tf.concat([is_object_column, is_explicit], axis=-1)
        class_targets = tf.concat([1.0 - is_object_column, class_targets], axis=-1)
    return targets._replace(
        class_targets=class_targets,
        class_weights=implicit_weight + (1.0 - implicit_weight) * is_explicit,
        box_targets=targets.box_targets * is_object[..., tf.newaxis],
        box_weights=is_object,
    )
