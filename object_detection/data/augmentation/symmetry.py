"""Random flips, and rotations by 90 degrees."""

from collections.abc import Callable, Mapping

import tensorflow as tf

from object_detection.core.example_fields import OBJECT_FIELDS, Geometry
from object_detection.core.fields import InputFields as F
from object_detection.data.objects import Example
from object_detection.errors import UserError

MapTensor = Callable[[tf.Tensor], tf.Tensor]


class RandomSymmetry:
    """Mirrors or rotates an image and its objects with a probability; subclasses define how.

    Args:
      probability: probability of the change, in [0, 1].
      keypoint_permutation: index of the keypoint that replaces each keypoint (left eye <-> right
        eye).

    Raises:
      ValueError: if the argument is not a permutation.
    """

    # Name of the step in the config.
    name: str
    # Geometry -> the function that maps its fields.
    map_objects: Mapping[Geometry, MapTensor]
    # Name of the permutation in the config.
    permutation_field = 'keypoint_flip_permutation'
    # Whether examples with keypoints need a permutation.
    needs_permutation = True

    def __init__(self, *, probability: float = 0.5, keypoint_permutation: tuple[int, ...] = ()):
        if sorted(keypoint_permutation) != list(range(len(keypoint_permutation))):
            raise UserError(
                f'{self.name}.{self.permutation_field}: expected every index from 0 on once. '
                f'Received: {tuple(keypoint_permutation)}.'
            )
        self._probability = probability
        self._permutation = tuple(keypoint_permutation)

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Maps `example` with the given probability.

        Args:
          example: image [H, W, C] and, if present: boxes and keypoints normalized to it; mask crops
            relative to the boxes, or full-size masks.
          seed: integer [2], on which alone the random decision depends.

        Raises:
          ValueError: if the number of keypoints is not the length of the permutation, or a flip
            gets points of DensePose.
        """
        if self.needs_permutation and F.GROUNDTRUTH_DP_POINTS in example:
            raise UserError(
                f'{self.name}: expected no points on the surface of bodies (load_dense_pose): '
                'there is no table of those of mirrored bodies.'
            )
        names = {F.IMAGE, *filter(self._is_mapped, OBJECT_FIELDS)}
        present = {name: value for name, value in example.items() if name in names}
        if F.GROUNDTRUTH_KEYPOINTS in present:
            self._check_keypoints(present[F.GROUNDTRUTH_KEYPOINTS])
        do_it = tf.random.stateless_uniform([], seed) < self._probability
        return {**example, **tf.cond(do_it, lambda: self._map(present), lambda: dict(present))}

    def map_image(self, image: tf.Tensor) -> tf.Tensor:
        """Returns the mirrored or rotated image [H, W, C]; each subclass defines it."""
        raise NotImplementedError

    def _map(self, entries: Example) -> Example:
        return {
            name: self.map_image(value) if name == F.IMAGE else self._map_field(name, value)
            for name, value in entries.items()
        }

    @classmethod
    def _is_mapped(cls, name: str) -> bool:
        field = OBJECT_FIELDS[name]
        return field.geometry in cls.map_objects or field.is_by_keypoint

    def _map_field(self, name: str, value: tf.Tensor) -> tf.Tensor:
        field = OBJECT_FIELDS[name]
        mapped = self.map_objects.get(field.geometry, tf.identity)(value)
        if self._permutation and field.is_by_keypoint:
            mapped = tf.gather(mapped, self._permutation, axis=1)
        return mapped

    def _check_keypoints(self, keypoints: tf.Tensor) -> None:
        if not self._permutation and not self.needs_permutation:
            return
        if keypoints.shape[1] != len(self._permutation):
            raise UserError(
                f'{self.name}.{self.permutation_field}: expected one entry for each of the '
                f'{keypoints.shape[1]} keypoints. Received: {self._permutation}.'
            )


def _flips(axis: int) -> dict[Geometry, MapTensor]:
    """Returns, by geometry, the functions that flip fields along y (axis 0) or x (axis 1)."""

    def flip_masks(masks: tf.Tensor) -> tf.Tensor:
        # [n, H, W]; a flipped box holds the flipped crop.
        return tf.reverse(masks, [axis + 1])

    def flip_boxes(boxes: tf.Tensor) -> tf.Tensor:
        ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
        if axis == 0:
            return tf.stack([1.0 - ymax, xmin, 1.0 - ymin, xmax], axis=-1)
        return tf.stack([ymin, 1.0 - xmax, ymax, 1.0 - xmin], axis=-1)

    def flip_points(points: tf.Tensor) -> tf.Tensor:
        y, x = tf.unstack(points, axis=-1)
        return tf.stack([1.0 - y, x] if axis == 0 else [y, 1.0 - x], axis=-1)

    return {
        Geometry.BOX: flip_boxes,
        Geometry.POINTS: flip_points,
        Geometry.IMAGE_MASK: flip_masks,
        Geometry.BOX_MASK: flip_masks,
    }


class RandomHorizontalFlip(RandomSymmetry):
    """Mirrors an image and its objects horizontally."""

    name = 'random_horizontal_flip'
    map_objects = _flips(axis=1)

    def map_image(self, image: tf.Tensor) -> tf.Tensor:
        return tf.reverse(image, [1])


class RandomVerticalFlip(RandomSymmetry):
    """Mirrors an image and its objects vertically."""

    name = 'random_vertical_flip'
    map_objects = _flips(axis=0)

    def map_image(self, image: tf.Tensor) -> tf.Tensor:
        return tf.reverse(image, [0])


def _turn_masks(masks: tf.Tensor) -> tf.Tensor:
    """Rotates masks or mask crops: [n, H, W] -> [n, W, H]."""
    return tf.reverse(tf.transpose(masks, [0, 2, 1]), [1])


def _turn_boxes(boxes: tf.Tensor) -> tf.Tensor:
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    return tf.stack([1.0 - xmax, ymin, 1.0 - xmin, ymax], axis=-1)


def _turn_points(points: tf.Tensor) -> tf.Tensor:
    y, x = tf.unstack(points, axis=-1)
    return tf.stack([1.0 - x, y], axis=-1)


_MAP_OBJECTS = {
    Geometry.BOX: _turn_boxes,
    Geometry.POINTS: _turn_points,
    Geometry.IMAGE_MASK: _turn_masks,
    Geometry.BOX_MASK: _turn_masks,
}


class RandomRotation90(RandomSymmetry):
    """Rotates an image and its objects counterclockwise by 90 degrees.

    Without a permutation, keypoints keep their order.
    """

    name = 'random_rotation90'
    map_objects = _MAP_OBJECTS
    permutation_field = 'keypoint_rot_permutation'
    needs_permutation = False

    def map_image(self, image: tf.Tensor) -> tf.Tensor:
        return tf.image.rot90(image)
