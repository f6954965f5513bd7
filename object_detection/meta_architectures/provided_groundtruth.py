"""Ground truth that a script gives a detector before it calls `predict` and `loss`.

Training loops of this toolkit pass a `Groundtruth` as an argument instead.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from object_detection.core.groundtruth import Groundtruth
from object_detection.core.shapes import dimensions
from object_detection.errors import UserError, expected

# Argument of the reference -> attribute of `Groundtruth` and type.
ARGUMENTS = {
    'groundtruth_boxes_list': ('boxes', tf.float32),
    'groundtruth_classes_list': ('classes', tf.float32),
    'groundtruth_masks_list': ('masks', tf.float32),
    'groundtruth_keypoints_list': ('keypoints', tf.float32),
    'groundtruth_weights_list': ('weights', tf.float32),
    'groundtruth_is_crowd_list': ('is_crowd', tf.bool),
}


class ProvidedGroundtruth:
    """The last ground truth that was given, and the graph of the tf.function where it was given."""

    def __init__(self):
        self._groundtruth: Groundtruth | None = None
        self._graph: tf.Graph | None = None

    def set(self, lists: Mapping[str, Sequence[Any] | None]) -> None:
        """Keeps ground truth of lists with one entry an image; see `ARGUMENTS` for their names.

        Raises:
          UserError: if a name is unknown, or lists differ in their number of images.
        """
        given = {name: rows for name, rows in lists.items() if rows is not None}
        unknown = given.keys() - ARGUMENTS.keys()
        if unknown:
            raise expected('provide_groundtruth', ', '.join(ARGUMENTS), ', '.join(sorted(unknown)))
        counts = {name: len(rows) for name, rows in given.items()}
        if len(set(counts.values())) != 1:
            raise expected('provide_groundtruth', 'one entry an image in each list', counts)
        fields = {ARGUMENTS[name][0]: _stack(name, rows) for name, rows in given.items()}
        if 'weights' not in fields:
            ones = [
                tf.ones([dimensions(tf.convert_to_tensor(rows), 0)[0]])
                for rows in given['groundtruth_boxes_list']
            ]
            fields['weights'] = _stack('groundtruth_weights_list', ones)
        self._groundtruth, self._graph = Groundtruth(**fields), _current_graph()

    def for_predict(
        self, images: tf.Tensor, training: bool | None, groundtruth: Groundtruth | None
    ) -> tuple[bool, Groundtruth | None]:
        """Returns `training` and `groundtruth` of `predict`.

        These are the arguments if there are any. Otherwise it is a training with the ground truth
        that was given in the same tf.function, or outside of all, for as many images.
        """
        if training is not None or groundtruth is not None or not self._is_here():
            return bool(training), groundtruth
        batches = {self._groundtruth.boxes.shape[0], images.shape[0]} - {None}
        return (True, self._groundtruth) if len(batches) == 1 else (False, None)

    def for_loss(self, groundtruth: Groundtruth | tf.Tensor) -> Groundtruth:
        """Returns the argument of `loss`, or the ground truth that was given if it is a tensor.

        Raises:
          UserError: if there is none of the same tf.function.
        """
        if isinstance(groundtruth, Groundtruth):
            return groundtruth
        if not self._is_here():
            raise UserError(
                'loss: expected a Groundtruth, or `provide_groundtruth` before `predict` in the '
                f'same tf.function. Received: {type(groundtruth).__name__}.'
            )
        return self._groundtruth

    def _is_here(self) -> bool:
        return self._groundtruth is not None and self._graph is _current_graph()


def _current_graph() -> tf.Graph | None:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _stack(name: str, rows: Sequence[Any]) -> tf.Tensor:
    """Stacks tensors [n_i, ...] to [B, max n_i, ...]; padding is 0, of keypoints NaN."""
    attribute, dtype = ARGUMENTS[name]
    rows = [tf.cast(row, dtype) for row in rows]
    sizes = [dimensions(row, 0)[0] for row in rows]
    is_static = not any(tf.is_tensor(size) for size in sizes)
    largest = max(sizes) if is_static else tf.reduce_max(tf.stack(sizes))
    fill = float('nan') if attribute == 'keypoints' else tf.zeros([], dtype)
    return tf.stack(
        [
            tf.pad(
                row, [[0, largest - size], *[[0, 0]] * (row.shape.rank - 1)], constant_values=fill
            )
            for row, size in zip(rows, sizes, strict=True)
        ]
    )
