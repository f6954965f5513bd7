"""Mask targets against golden numbers, TensorFlow's kernel, and each form against the other."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import masks as mask_ops
from tests import goldens

EXECUTIONS = pytest.mark.parametrize('use_matmul', [False, True], ids=['by_index', 'matmul'])


def smooth_shape(rng, side):
    """A random blob with a smooth outline; returns the mask and its tight normalized box."""
    waves = rng.uniform(0, 0.12, (3, 1, 1))
    phases = rng.uniform(0, 2 * np.pi, (3, 1, 1))
    center = rng.uniform(0.4, 0.6, 2) * side
    y, x = np.mgrid[:side, :side] - center[:, None, None]
    theta = np.arctan2(y, x)
    swing = np.sum(waves * np.cos([[[1]], [[2]], [[3]]] * theta + phases), axis=0)
    mask = np.hypot(y, x) < side * rng.uniform(0.15, 0.3) * (1 + swing)
    rows, columns = np.nonzero(mask.any(1))[0], np.nonzero(mask.any(0))[0]
    box = np.array([rows[0], columns[0], rows[-1], columns[-1]], np.float32) / (side - 1)
    return mask.astype(np.float32), box


def test_targets_from_images_equal_the_reference():
    case = goldens.load('crop_ops', 'mask_target_native')
    masks, boxes = case.inputs['masks'], case.inputs['boxes']
    size = tuple(case.params['crop_size'])
    targets = mask_ops.mask_targets_from_images(
        tf.constant(masks[None]), tf.constant(boxes[None]), tf.range(5)[tf.newaxis], size
    )
    np.testing.assert_allclose(targets[0], case.outputs['targets'], atol=1e-6)


def test_targets_from_images_equal_the_reference_products_inside_the_image():
    # Outside of the image, the reference's product form differs from its kernel; the box of no
    # size and the sample inside are what both have in common (see test_roi_align).
    case = goldens.load('crop_ops', 'mask_target_matmul')
    masks, boxes = case.inputs['masks'], case.inputs['boxes']
    inside = np.all((boxes >= 0) & (boxes <= 1), axis=-1)
    size = tuple(case.params['crop_size'])
    targets = mask_ops.mask_targets_from_images(
        tf.constant(masks[None]), tf.constant(boxes[None]), tf.range(5)[tf.newaxis], size
    )
    assert inside.sum() >= 2
    np.testing.assert_allclose(targets[0][inside], case.outputs['targets'][inside], atol=1e-5)


def test_targets_from_images_follow_rows_and_equal_the_kernel():
    rng = np.random.default_rng(0)
    masks = rng.uniform(size=(2, 3, 12, 9)).astype(np.float32)
    boxes = np.sort(rng.uniform(-0.2, 1.2, (2, 5, 2, 2)), axis=2).reshape(2, 5, 4)
    boxes = boxes.astype(np.float32)
    rows = rng.integers(0, 3, (2, 5)).astype(np.int32)
    targets = mask_ops.mask_targets_from_images(masks, boxes, tf.constant(rows), (4, 6))
    expected = tf.image.crop_and_resize(
        masks.reshape(6, 12, 9, 1),
        boxes.reshape(10, 4),
        (rows + [[0], [3]]).reshape(10),
        (4, 6),
    )
    np.testing.assert_allclose(targets, tf.reshape(expected, [2, 5, 4, 6]), atol=1e-6)


@EXECUTIONS
def test_targets_of_the_objects_own_box_are_its_crop(use_matmul):
    rng = np.random.default_rng(1)
    crops = rng.uniform(size=(1, 2, 5, 7)).astype(np.float32)
    crop_boxes = np.array([[[0.1, 0.2, 0.7, 0.9], [0.3, 0.3, 0.5, 0.8]]], np.float32)
    # The frame changes there and back, as in a detector: edges round, and stay edges.
    boxes = (crop_boxes * np.float32(833.0)) / np.float32(833.0)
    targets = mask_ops.mask_targets_from_crops(
        tf.constant(crops),
        tf.constant(crop_boxes),
        tf.constant(boxes),
        tf.constant([[0, 1]]),
        (5, 7),
        use_matmul=use_matmul,
    )
    np.testing.assert_allclose(targets, crops, atol=1e-4)


@EXECUTIONS
def test_targets_are_zero_outside_of_the_objects_box(use_matmul):
    targets = mask_ops.mask_targets_from_crops(
        tf.ones([1, 1, 4, 4]),
        tf.constant([[[0.4, 0.4, 0.6, 0.6]]]),
        tf.constant([[[0.3, 0.4, 0.5, 0.6], [0.7, 0.7, 0.9, 0.9]]]),
        tf.zeros([1, 2], tf.int32),
        (5, 2),
        use_matmul=use_matmul,
    )
    np.testing.assert_allclose(targets[0, 0], [[0, 0], [0, 0], [1, 1], [1, 1], [1, 1]])
    np.testing.assert_array_equal(targets[0, 1], np.zeros([5, 2]))


@EXECUTIONS
def test_crop_boxes_without_size_give_zeros(use_matmul):
    targets = mask_ops.mask_targets_from_crops(
        tf.ones([1, 3, 4, 4]),
        tf.constant([[[0.0, 0, 0, 0], [0.2, 0.2, 0.2, 0.8], [0.5, 0.1, 0.6, 0.1]]]),
        tf.constant([[[0.0, 0, 1, 1], [0.1, 0.1, 0.3, 0.9], [0.0, 0, 0, 0]]]),
        tf.constant([[0, 1, 2]]),
        (3, 3),
        use_matmul=use_matmul,
    )
    np.testing.assert_array_equal(targets, np.zeros([1, 3, 3, 3]))


def test_executions_agree():
    rng = np.random.default_rng(2)
    crops = rng.uniform(size=(2, 3, 8, 8)).astype(np.float32)
    corners = rng.uniform(0, 0.5, (2, 3, 2))
    crop_boxes = np.concatenate([corners, corners + rng.uniform(0.1, 0.5, (2, 3, 2))], -1)
    rows = tf.constant(rng.integers(0, 3, (2, 6)), tf.int32)
    boxes = tf.gather(crop_boxes, rows, batch_dims=1).numpy() + rng.normal(size=(2, 6, 4)) * 0.05
    arguments = (
        crops,
        tf.constant(crop_boxes, tf.float32),
        tf.constant(boxes, tf.float32),
        rows,
        (6, 5),
    )
    np.testing.assert_allclose(
        mask_ops.mask_targets_from_crops(*arguments),
        mask_ops.mask_targets_from_crops(*arguments, use_matmul=True),
        atol=1e-5,
    )


def test_crops_and_images_give_the_same_targets():
    # A crop cuts off the bilinear slope of one pixel just outside of the object's box, and samples
    # the rest at other points than the pixels. Measured for blobs of 28 to 63 pixels: a mean
    # difference of 0.006, of 0.02 for the worst region, and 0.5 % of samples that change sides.
    rng = np.random.default_rng(3)
    side, crop_side = 100, 112
    shapes = [smooth_shape(rng, side) for _ in range(40)]
    masks = np.stack([mask for mask, _ in shapes])[None]
    crop_boxes = np.stack([box for _, box in shapes])[None]
    rows = tf.range(40)[tf.newaxis]
    crops = mask_ops.mask_targets_from_images(masks, crop_boxes, rows, (crop_side, crop_side))
    boxes = crop_boxes + rng.uniform(-0.08, 0.08, crop_boxes.shape).astype(np.float32)
    from_images = mask_ops.mask_targets_from_images(masks, boxes, rows, (28, 28))
    from_crops = mask_ops.mask_targets_from_crops(
        crops, tf.constant(crop_boxes), tf.constant(boxes), rows, (28, 28)
    )
    differences = np.abs(from_images - from_crops)[0]
    assert from_images.numpy().mean() > 0.2
    assert differences.mean() < 0.007
    assert differences.mean(axis=(1, 2)).max() < 0.025
    assert np.mean((from_images > 0.5) != (from_crops > 0.5)) < 0.007


@EXECUTIONS
def test_without_masks_or_regions(use_matmul):
    def from_crops(num_masks, num_regions):
        return mask_ops.mask_targets_from_crops(
            tf.zeros([2, num_masks, 4, 4]),
            tf.zeros([2, num_masks, 4]),
            tf.ones([2, num_regions, 4]),
            tf.zeros([2, num_regions], tf.int32),
            (3, 3),
            use_matmul=use_matmul,
        )

    np.testing.assert_array_equal(from_crops(0, 5), np.zeros([2, 5, 3, 3]))
    assert from_crops(1, 0).shape == (2, 0, 3, 3)
    images = mask_ops.mask_targets_from_images(
        tf.zeros([2, 0, 8, 8]), tf.ones([2, 5, 4]), tf.zeros([2, 5], tf.int32), (3, 3)
    )
    np.testing.assert_array_equal(images, np.zeros([2, 5, 3, 3]))


@pytest.mark.parametrize('num_masks', [0, 3])
def test_unknown_dimensions_in_a_function(num_masks):
    rng = np.random.default_rng(4)
    masks = rng.uniform(size=(2, num_masks, 9, 9)).astype(np.float32)
    crop_boxes = np.tile(np.array([0.1, 0.2, 0.8, 0.7], np.float32), (2, num_masks, 1))
    boxes = np.tile(np.array([0.0, 0.3, 0.6, 0.9], np.float32), (2, 4, 1))
    rows = np.full([2, 4], max(num_masks - 1, 0), np.int32)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, None, None]),
            tf.TensorSpec([None, None, 4]),
            tf.TensorSpec([None, None, 4]),
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([2], tf.int32),
        ],
        autograph=False,
    )
    def both(masks, crop_boxes, boxes, rows, size):
        return (
            mask_ops.mask_targets_from_images(masks, boxes, rows, (3, 4)),
            mask_ops.mask_targets_from_crops(
                masks, crop_boxes, boxes, rows, tuple(tf.unstack(size))
            ),
        )

    images, crops = both(masks, crop_boxes, boxes, rows, np.array([3, 4], np.int32))
    eager = mask_ops.mask_targets_from_images(masks, boxes, tf.constant(rows), (3, 4))
    np.testing.assert_allclose(images, eager, atol=1e-6)
    eager = mask_ops.mask_targets_from_crops(masks, crop_boxes, boxes, tf.constant(rows), (3, 4))
    np.testing.assert_allclose(crops, eager, atol=1e-6)


def test_both_forms_compile():
    rng = np.random.default_rng(5)
    masks = tf.constant(rng.uniform(size=(1, 2, 9, 9)), tf.float32)
    crop_boxes = tf.constant([[[0.1, 0.2, 0.8, 0.7], [0.0, 0.0, 1.0, 1.0]]])
    boxes = tf.constant([[[0.0, 0.3, 0.6, 0.9]]])
    rows = tf.constant([[1]])

    def both():
        return (
            mask_ops.mask_targets_from_images(masks, boxes, rows, (3, 4)),
            mask_ops.mask_targets_from_crops(masks, crop_boxes, boxes, rows, (3, 4)),
        )

    for compiled, eager in zip(
        tf.function(both, jit_compile=True, autograph=False)(), both(), strict=True
    ):
        np.testing.assert_allclose(compiled, eager, atol=1e-5)


def test_no_gradient_reaches_boxes():
    boxes = tf.constant([[[0.1, 0.1, 0.6, 0.6]]])
    with tf.GradientTape() as tape:
        tape.watch(boxes)
        targets = mask_ops.mask_targets_from_images(
            tf.ones([1, 1, 8, 8]), boxes, tf.zeros([1, 1], tf.int32), (3, 3)
        )
    assert tape.gradient(targets, boxes) is None
