"""Training targets of anchors, points or queries with known matches to ground truth.

Classification targets from labels with confidences, some of which say what is not there.

Boxes on crowds, which are regions of many objects without separate annotations.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import sampling, tracing
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.shapes import dimensions
from object_detection.core.suppression.nms_tiles import at_least_one_row, used_first
from object_detection.errors import expected
from object_detection.targets.assigners import Candidates
from object_detection.targets.matchers import UNMATCHED

# Maximum number of columns of the one-hot matrix when gathering by matrix products.
_GATHERED_AT_ONCE = 2**14


class Columns(NamedTuple):
    """What the columns of the classification learn.

    Attributes:
      labels: float32 [B, M, K'] of the objects (or [B, M, ...]), with the background column if the
        classes have one.
      unmatched: float32 [K'] (or [...]), of candidates without an object.
      unmatched_weight: class weight of candidates without an object.
    """

    labels: tf.Tensor
    unmatched: tf.Tensor
    unmatched_weight: float = 1.0


class Targets(NamedTuple):
    """The training targets of N candidates.

    Attributes:
      class_targets: float32 [B, N, K']; the label of the matched object, or the unmatched label.
      class_weights: float32 [B, N]; the object's weight where matched, `unmatched_weight`
        where unmatched, 0 where ignored.
      box_targets: float32 [B, N, D], codes relative to the candidates; 0 where not matched.
      box_weights: float32 [B, N]; the object's weight where matched, else 0.
      matches: int32 [B, N]: index of the matched object, -1 unmatched, -2 ignored.
    """

    class_targets: tf.Tensor
    class_weights: tf.Tensor
    box_targets: tf.Tensor
    box_weights: tf.Tensor
    matches: tf.Tensor


def encode_targets(
    matches: tf.Tensor,
    candidates: Candidates,
    groundtruth: Groundtruth,
    coder: Any,
    columns: Columns,
    use_matmul_gather: bool = False,
) -> Targets:
    """Returns the targets of a batch; gradients reach the candidates by `box_targets` alone.

    Candidates on objects of weight 0 are no negatives; they have weight 0.

    Args:
      matches: int32 [B, N], of an `Assigner`.
      candidates: N candidates.
      groundtruth: boxes, weights, and keypoints for a coder that encodes them; in the frame of the
        candidates.
      coder: one of `targets.box_coders`.
      columns: the classification targets.
      use_matmul_gather: whether rows are gathered by matrix products under XLA, see
        `core.sampling.gather_rows`; the results are the same.
    """
    use_matmul = use_matmul_gather and tracing.is_compiled()

    def gather(rows: tf.Tensor, default: tf.Tensor | float) -> tf.Tensor:
        return gather_matched(rows, matches, default, use_matmul)

    weights = gather(groundtruth.weights, 0.0)
    matched = [gather(groundtruth.boxes, tf.zeros([4]))]
    if hasattr(coder, 'num_keypoints'):
        points = tf.stop_gradient(groundtruth.keypoints)
        matched.append(gather(points, tf.zeros(tf.shape(points)[2:])))
    codes = coder.encode(matched[0], candidates.boxes, *matched[1:])
    return Targets(
        class_targets=gather(columns.labels, columns.unmatched),
        class_weights=tf.where(matches == UNMATCHED, columns.unmatched_weight, weights),
        box_targets=tf.where(matches[..., tf.newaxis] >= 0, codes, 0.0),
        box_weights=weights,
        matches=matches,
    )


def gather_matched(
    rows: tf.Tensor, matches: tf.Tensor, default: tf.Tensor | float, use_matmul: bool = False
) -> tf.Tensor:
    """Gathers entries of the matched ground truth.

    Args:
      rows: [B, M, ...], an entry for each object; M may be 0.
      matches: int32 [B, N]: an object's index, or a negative number.
      default: [...], entry for negative matches.
      use_matmul: see `core.sampling.gather_rows`.

    Returns:
      [B, N, ...] of the dtype of `rows`.
    """
    # The default is put before the rows, so that gathering works without ground truth.
    shape = tf.shape(rows)
    default = tf.broadcast_to(
        tf.cast(default, rows.dtype), tf.concat([shape[:1], [1], shape[2:]], axis=0)
    )
    default = tf.ensure_shape(default, [rows.shape[0], 1, *rows.shape[2:]])
    indices = tf.maximum(matches, UNMATCHED) + 1
    rows = tf.concat([default, rows], axis=1)
    if use_matmul and indices.shape[1] is not None and indices.shape[1] > _GATHERED_AT_ONCE:
        return _gather_in_chunks(rows, indices)
    return sampling.gather_rows(rows, indices, use_matmul)


def _gather_in_chunks(rows: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Gathers by matrix products with one-hot matrices of limited size; gradients end here."""
    count = -(-indices.shape[1] // _GATHERED_AT_ONCE)
    (batch,) = dimensions(indices, 0)
    missing = count * _GATHERED_AT_ONCE - indices.shape[1]
    padded = tf.pad(indices, [[0, 0], [0, missing]])
    chunks = tf.transpose(tf.reshape(padded, [batch, count, _GATHERED_AT_ONCE]), [1, 0, 2])
    rows = tf.stop_gradient(rows)
    gathered = tf.map_fn(
        lambda chunk: sampling.gather_rows(rows, chunk, use_matmul=True),
        chunks,
        fn_output_signature=rows.dtype,
        parallel_iterations=1,
    )
    inner = dimensions(rows, *range(2, rows.shape.rank))
    gathered = tf.transpose(gathered, [1, 0, *range(2, gathered.shape.rank)])
    gathered = tf.reshape(gathered, [batch, count * _GATHERED_AT_ONCE, *inner])
    return gathered[:, : indices.shape[1]]


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
      targets: as `encode_targets` returns them for labels float32 [B, M, K'] of such confidences.
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


def without_crowds(
    regions: tf.Tensor, groundtruth: Groundtruth, ioa_threshold: float
) -> tuple[Groundtruth, tf.Tensor]:
    """Replaces crowds by padding, and finds the regions that are on crowds.

    Args:
      regions: float32 [N, 4], or [B, N, 4] with separate regions for each image.
      groundtruth: boxes in the same frame, weights and `is_crowd`.
      ioa_threshold: a region is on a crowd that covers at least this share of its area; above 0.

    Returns:
      The ground truth, in which crowds have zero boxes of weight 0, and bool [B, N], whether each
      region is on a crowd.

    Raises:
      UserError: if the ground truth has no `is_crowd`.
    """
    is_crowd = groundtruth.is_crowd
    if is_crowd is None:
        raise expected(
            f'crowd_ioa_threshold {ioa_threshold:g}', 'groundtruth.is_crowd, bool [B, M]'
        )
    remaining = groundtruth._replace(
        boxes=tf.where(is_crowd[..., tf.newaxis], 0.0, groundtruth.boxes),
        weights=tf.where(is_crowd, 0.0, groundtruth.weights),
    )
    return remaining, is_on_crowd(regions, groundtruth.boxes, is_crowd, ioa_threshold)


def is_on_crowd(
    boxes: tf.Tensor, groundtruth_boxes: tf.Tensor, is_crowd: tf.Tensor, ioa_threshold: float
) -> tf.Tensor:
    """Returns which boxes have at least a given share of their area on one crowd.

    It compares crowd by crowd, since images have few; all pairs would need as much memory as the
    matching.

    Args:
      boxes: float32 [N, 4], or [B, N, 4].
      groundtruth_boxes: float32 [B, M, 4], in the same frame.
      is_crowd: bool [B, M]; False for padding.
      ioa_threshold: the minimum share, above 0.

    Returns:
      bool [B, N].
    """
    is_crowd = at_least_one_row(is_crowd, False)
    batch, rows = dimensions(is_crowd, 0, 1)
    (count,) = dimensions(boxes, -2)
    is_used, order = used_first(is_crowd, rows)
    crowds = tf.gather(at_least_one_row(groundtruth_boxes), order, batch_dims=1)
    crowds = tf.where(is_used[..., tf.newaxis], crowds, 0.0)
    most = tf.reduce_max(tf.reduce_sum(tf.cast(is_crowd, tf.int32), axis=1))

    def visit(row: tf.Tensor, shares: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        crowd = tf.gather(crowds, row, axis=1)[:, tf.newaxis]  # [B, 1, 4]
        on_crowd = box_ops.ioa(crowd, boxes)[:, 0]
        return row + 1, tf.ensure_shape(tf.maximum(shares, on_crowd), shares.shape)

    _, shares = tf.while_loop(lambda row, _: row < most, visit, (0, tf.zeros([batch, count])))
    return shares >= ioa_threshold
