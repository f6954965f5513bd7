"""Crops against golden numbers, a NumPy oracle, and each execution against the other."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import crop_and_resize
from tests import goldens

EXECUTIONS = pytest.mark.parametrize('use_matmul', [False, True], ids=['native', 'matmul'])


def random_boxes(rng, batch, count, *, low=0.0, high=0.6):
    corners = rng.uniform(low, high, (batch, count, 2))
    sizes = rng.uniform(0.05, 0.4, (batch, count, 2))
    return np.concatenate([corners, corners + sizes], axis=-1).astype(np.float32)


def random_pyramid(rng, batch=2, channels=3):
    return [
        tf.constant(rng.normal(size=(batch, side, side + 2, channels)), tf.float32)
        for side in (16, 8, 4)
    ]


@EXECUTIONS
@goldens.rows('crop_ops', prefix='native_')
def test_crops_equal_the_reference(case_name, use_matmul):
    case = goldens.load('crop_ops', case_name)
    crops = crop_and_resize.crop_and_resize(
        tf.constant(case.inputs['image']),
        tf.constant(case.inputs['boxes']),
        tuple(case.params['crop_size']),
        use_matmul=use_matmul,
    )
    np.testing.assert_allclose(crops, case.outputs['crops'], atol=1e-5)


@EXECUTIONS
@goldens.rows('crop_ops', prefix='matmul_')
def test_crops_equal_the_reference_products_inside_the_image(case_name, use_matmul):
    # Outside of the image, the reference's products fade out over a pixel, where its kernel (and
    # both of our executions) cut off; so only boxes inside can agree.
    case = goldens.load('crop_ops', case_name)
    boxes = case.inputs['boxes']
    crops = crop_and_resize.crop_and_resize(
        tf.constant(case.inputs['image']),
        tf.constant(boxes),
        tuple(case.params['crop_size']),
        use_matmul=use_matmul,
    )
    inside = np.all((boxes >= 0) & (boxes <= 1), axis=-1)
    assert inside.sum() >= 3
    np.testing.assert_allclose(crops[inside], case.outputs['crops'][inside], atol=1e-5)


@EXECUTIONS
@goldens.rows('crop_ops', prefix='multilevel_')
def test_multilevel_crops_equal_the_reference(case_name, use_matmul):
    case = goldens.load('crop_ops', case_name)
    boxes = case.inputs['boxes']
    maps = [tf.constant(case.inputs[name]) for name in case.inputs if name.startswith('images.')]
    levels = case.inputs.get('box_levels', np.zeros(boxes.shape[:2], np.int32))
    crops = crop_and_resize.multilevel_crop_and_resize(
        maps,
        tf.constant(boxes),
        tf.constant(levels),
        tuple(case.params['crop_size']),
        use_matmul=use_matmul,
    )
    expected = case.outputs['crops']
    if 'matmul' in case_name:  # See the test above.
        inside = np.all((boxes >= 0) & (boxes <= 1), axis=-1)
        crops, expected = crops[inside], expected[inside]
    np.testing.assert_allclose(crops, expected, atol=1e-5)


@goldens.rows('ops', prefix='fpn_levels')
def test_levels_equal_the_reference(case_name):
    case = goldens.load('ops', case_name)
    side = 224.0 * case.params['image_ratio']
    levels = crop_and_resize.fpn_levels(
        tf.constant(case.inputs['boxes']),
        side,
        side,
        case.params['num_levels'],
        unit_level=case.params['unit_scale_index'],
    )
    np.testing.assert_array_equal(levels, case.outputs['levels'])


def test_levels_by_hand():
    # 224 pixels belong to level L - 2 = 2, each doubling to one more.
    boxes = tf.constant([[0, 0, 0.25, 0.25], [0, 0, 0.125, 0.125], [0, 0, 1, 1], [0, 0, 0, 0]])
    levels = crop_and_resize.fpn_levels(boxes[tf.newaxis], tf.constant(896), 896, 4)
    np.testing.assert_array_equal(levels, [[2, 1, 3, 0]])


def test_samples_lie_on_the_edges_of_the_box():
    rows = np.arange(5, dtype=np.float32)
    features = tf.constant(np.tile(rows[:, None, None], (1, 5, 1))[None])
    # A box from pixel 1 to pixel 3: its three samples are those pixels.
    crops = crop_and_resize.crop_and_resize(
        features, tf.constant([[[0.25, 0.25, 0.75, 0.75]]]), (3, 1)
    )
    np.testing.assert_allclose(crops[0, 0, :, 0, 0], [1, 2, 3])


@EXECUTIONS
def test_samples_outside_of_the_map_are_zero(use_matmul):
    crops = crop_and_resize.crop_and_resize(
        tf.ones([1, 4, 4, 2]),
        tf.constant([[[-1.0, 0.0, 1.0, 1.0]]]),
        (3, 2),
        use_matmul=use_matmul,
    )
    np.testing.assert_allclose(crops[0, 0, :, :, 0], [[0, 0], [1, 1], [1, 1]])


def test_executions_have_the_same_gradients():
    rng = np.random.default_rng(0)
    maps = random_pyramid(rng)
    boxes = tf.constant(random_boxes(rng, 2, 9, low=-0.2))
    levels = tf.constant(rng.integers(0, 3, (2, 9)), tf.int32)
    upstream = tf.constant(rng.normal(size=(2, 9, 5, 4, 3)), tf.float32)
    gradients = []
    for use_matmul in (False, True):
        with tf.GradientTape() as tape:
            tape.watch([*maps, boxes])
            crops = crop_and_resize.multilevel_crop_and_resize(
                maps, boxes, levels, (5, 4), use_matmul=use_matmul
            )
            total = tf.reduce_sum(crops * upstream)
        *to_maps, to_boxes = tape.gradient(total, [*maps, boxes])
        assert to_boxes is None
        gradients.append(to_maps)
    for native, matmul in zip(*gradients, strict=True):
        np.testing.assert_allclose(native, matmul, atol=1e-5)


def test_native_gradient_loses_nothing_where_many_boxes_overlap():
    # Every sample of every box adds its upstream gradient to the map once, over four pixels.
    features = tf.zeros([1, 8, 8, 64])
    boxes = tf.tile(tf.constant([[[0.1, 0.1, 0.9, 0.9]]]), [1, 200, 1])
    with tf.GradientTape() as tape:
        tape.watch(features)
        total = tf.reduce_sum(crop_and_resize.crop_and_resize(features, boxes, (14, 14)))
    gradient = tape.gradient(total, features)
    np.testing.assert_allclose(tf.reduce_sum(gradient, [1, 2]), 200 * 14 * 14, rtol=1e-4)


@EXECUTIONS
@pytest.mark.parametrize('count', [0, 1])
def test_levels_without_boxes(use_matmul, count):
    rng = np.random.default_rng(1)
    maps = random_pyramid(rng)
    boxes = tf.constant(random_boxes(rng, 2, count))
    levels = tf.ones([2, count], tf.int32)
    with tf.GradientTape() as tape:
        tape.watch(maps)
        crops = crop_and_resize.multilevel_crop_and_resize(
            maps, boxes, levels, (3, 3), use_matmul=use_matmul
        )
        total = tf.reduce_sum(crops)
    assert crops.shape == (2, count, 3, 3, 3)
    fine, middle, _ = tape.gradient(total, maps)
    np.testing.assert_array_equal(fine, tf.zeros_like(fine))
    np.testing.assert_allclose(tf.reduce_sum(middle), 2 * count * 27, rtol=1e-5)


@EXECUTIONS
def test_unknown_dimensions_in_a_function(use_matmul):
    rng = np.random.default_rng(2)
    maps = random_pyramid(rng)
    boxes = tf.constant(random_boxes(rng, 2, 5))
    levels = tf.constant(rng.integers(0, 3, (2, 5)), tf.int32)
    spec = tf.TensorSpec([None, None, None, 3])

    @tf.function(
        autograph=False,
        input_signature=[
            [spec, spec, spec],
            tf.TensorSpec([None, None, 4]),
            tf.TensorSpec([None, None], tf.int32),
        ],
    )
    def crop_and_differentiate(maps, boxes, levels):
        crops = crop_and_resize.multilevel_crop_and_resize(
            maps, boxes, levels, (3, 2), use_matmul=use_matmul
        )
        return crops, tf.gradients(tf.reduce_sum(crops), maps)

    crops, gradients = crop_and_differentiate(maps, boxes, levels)
    eager = crop_and_resize.multilevel_crop_and_resize(
        maps, boxes, levels, (3, 2), use_matmul=use_matmul
    )
    np.testing.assert_allclose(crops, eager, atol=1e-6)
    assert [tuple(g.shape) for g in gradients] == [tuple(m.shape) for m in maps]


@EXECUTIONS
def test_both_executions_compile(use_matmul):
    rng = np.random.default_rng(3)
    maps = random_pyramid(rng)
    boxes = tf.constant(random_boxes(rng, 2, 5, low=-0.2))
    levels = tf.constant(rng.integers(0, 3, (2, 5)), tf.int32)
    upstream = tf.constant(rng.normal(size=(2, 5, 3, 2, 3)), tf.float32)

    def crop(boxes, *maps):
        with tf.GradientTape() as tape:
            tape.watch([boxes, *maps])
            crops = crop_and_resize.multilevel_crop_and_resize(
                maps, boxes, levels, (3, 2), use_matmul=use_matmul, box_gradients=True
            )
        one_level = crop_and_resize.crop_and_resize(maps[0], boxes, (3, 1), use_matmul=use_matmul)
        return [crops, one_level, *tape.gradient(crops, [boxes, *maps], upstream)]

    compiled = tf.function(crop, jit_compile=True, autograph=False)(boxes, *maps)
    for ours, expected in zip(compiled, crop(boxes, *maps), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=2e-5)


@EXECUTIONS
def test_crops_keep_the_dtype_of_the_features(use_matmul):
    features = tf.ones([1, 4, 4, 2], tf.bfloat16)
    boxes = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])
    with tf.GradientTape() as tape:
        tape.watch(features)
        crops = crop_and_resize.crop_and_resize(features, boxes, (2, 2), use_matmul=use_matmul)
    assert crops.dtype == tf.bfloat16
    assert tape.gradient(crops, features).dtype == tf.bfloat16


@pytest.mark.optimized
@pytest.mark.parametrize('use_matmul', [False, True])
@pytest.mark.parametrize('length', [8, 15, 16, 50])
def test_no_sample_of_a_box_that_ends_at_the_border_rounds_past_it(use_matmul, length):
    # In a graph, whose optimizer changes how some divisions are rounded.
    random = np.random.default_rng(length)
    low = random.uniform(0, 0.9, [1, 2000, 2]).astype(np.float32)
    high = random.choice(np.float32([1, 1 - 2**-24, 1 - 2**-23, 1 - 2**-22]), [1, 2000, 2])
    boxes = np.concatenate([low, high], axis=-1)

    @tf.function(input_signature=[tf.TensorSpec([1, None, 4])], autograph=False)
    def crop(boxes):
        features = tf.ones([1, length, length, 1])
        return crop_and_resize.crop_and_resize(features, boxes, (14, 14), use_matmul=use_matmul)

    np.testing.assert_allclose(crop(boxes), 1.0, rtol=1e-5)


@pytest.mark.parametrize('use_matmul', [False, True])
def test_gradients_of_boxes_are_differences_of_crops(use_matmul):
    random = np.random.default_rng(0)
    features = tf.constant(random.normal(size=[1, 9, 11, 2]), tf.float32)
    boxes = tf.constant([[[0.11, 0.23, 0.71, 0.87]]])
    weights = tf.constant(random.normal(size=[1, 1, 3, 4, 2]), tf.float32)

    def total(boxes, box_gradients=True):
        crops = crop_and_resize.crop_and_resize(
            features, boxes, (3, 4), use_matmul=use_matmul, box_gradients=box_gradients
        )
        return tf.reduce_sum(crops * weights)

    with tf.GradientTape(persistent=True) as tape:
        tape.watch(boxes)
        wanted, unwanted = total(boxes), total(boxes, box_gradients=False)
    assert tape.gradient(unwanted, boxes) is None
    step = 1e-3
    differences = [
        (total(boxes + step * row) - total(boxes - step * row)) / (2 * step)
        for row in tf.eye(4)[:, None, None]
    ]
    np.testing.assert_allclose(tape.gradient(wanted, boxes)[0, 0], differences, rtol=5e-3)


@pytest.mark.optimized
def test_samples_on_the_border_have_a_gradient():
    """Where the optimizer of graphs rounds them past it, too."""
    low = np.random.default_rng(0).uniform(0.0, 0.9, [400, 1, 2])
    boxes = tf.constant(np.concatenate([low, np.ones_like(low)], axis=-1), tf.float32)

    @tf.function(autograph=False)
    def gradient(boxes):
        maps = tf.ones([400, 2, 2, 1])
        with tf.GradientTape() as tape:
            tape.watch(maps)
            crops = crop_and_resize.crop_and_resize(maps, boxes, (4, 4))
        return crops, tape.gradient(crops, maps)

    crops, spread = gradient(boxes)
    np.testing.assert_allclose(crops, np.ones([400, 1, 4, 4, 1]), rtol=1e-6)
    np.testing.assert_allclose(np.sum(spread, axis=(1, 2, 3)), np.full([400], 16.0), rtol=1e-6)
