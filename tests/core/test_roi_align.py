"""RoIAlign against golden numbers, a NumPy oracle, differences, and each execution."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import bilinear, roi_align, tracing
from object_detection.core.roi_align import SampleGrid
from tests import goldens

STRIDES = (4, 8, 16)


def eagerly(crop, *arguments):
    return crop(*arguments)


def in_a_graph(crop, *arguments):
    return tf.function(crop, autograph=False)(*arguments)


def compiled(crop, *arguments):
    return tf.function(crop, jit_compile=True, autograph=False)(*arguments)


def portably(crop, *arguments):
    with tracing.portable():
        return in_a_graph(crop, *arguments)


RUNS = pytest.mark.parametrize(
    ('run', 'use_matmul'),
    [(eagerly, False), (in_a_graph, False), (compiled, False), (eagerly, True), (portably, False)],
    ids=['eager', 'graph', 'compiled', 'matmul', 'portable'],
)

EAGER_RUNS = pytest.mark.parametrize('use_matmul', [False, True], ids=['index', 'matmul'])


def random_maps(rng, channels=3, dtype=tf.float32):
    """Of two images of 64 x 80 pixels."""
    return [
        tf.cast(rng.normal(size=(2, 64 // stride, 80 // stride, channels)), dtype)
        for stride in STRIDES
    ]


def random_boxes(rng, count, low=-8.0):
    corners = rng.uniform(low, 50, (2, count, 2))
    sizes = rng.uniform(1, 40, (2, count, 2))
    return tf.constant(np.concatenate([corners, corners + sizes], axis=-1), tf.float32)


def crop_strides(maps, boxes, levels, grid, **options):
    scales = [(1 / stride, 1 / stride) for stride in STRIDES]
    return roi_align.roi_align(maps, boxes, levels, scales, grid, **options)


@EAGER_RUNS
@goldens.rows('crop_ops', prefix='roi_align_')
def test_crops_equal_the_reference(case_name, use_matmul):
    # There, maps end in a ring of zeros, and the first and last cells lie on the image's edges.
    case = goldens.load('crop_ops', case_name)
    maps = [case.inputs[name] for name in case.inputs if name.startswith('images.')]
    scales = [(m.shape[1] - 1, m.shape[2] - 1) for m in maps]
    ratio = case.params['num_samples_per_cell']
    grid = SampleGrid(tuple(case.params['output_size']), ratio, offset=1.0)
    low, high = np.split(case.inputs['boxes'], 2, axis=-1)
    if case.params['align_corners']:
        # Its outermost samples lie on the edges of the box: as in a box that is half a step larger.
        margin = (high - low) / (np.array(grid.output_size) * ratio - 1) / 2
        low, high = low - margin, high + margin
    crops = roi_align.roi_align(
        [tf.constant(np.pad(m, [(0, 0), (1, 1), (1, 1), (0, 0)])) for m in maps],
        tf.constant(np.concatenate([low, high], axis=-1), tf.float32),
        tf.constant(case.inputs['box_levels']),
        scales,
        grid,
        use_matmul=use_matmul,
    )
    np.testing.assert_allclose(crops, case.outputs['crops'], atol=1e-5)


def oracle(maps, boxes, levels, grid):
    """Sample by sample; samples over a cell outside of a map are 0, others held on it."""
    size, ratio = grid.output_size, grid.sampling_ratio
    crops = np.zeros([*boxes.shape[:2], *size, maps[0].shape[-1]])
    for (image, box), level in np.ndenumerate(levels):
        cells = maps[level][image].numpy().astype(np.float64)
        edges = boxes[image, box].numpy().astype(np.float64) / STRIDES[level] + grid.offset
        sides = edges[2:] - edges[:2]
        if not grid.offset:
            sides = np.maximum(sides, 1.0)
        for i, j, a, b in np.ndindex(*size, ratio, ratio):
            parts = np.array([i + (a + 0.5) / ratio, j + (b + 0.5) / ratio]) / size
            y, x = edges[:2] + parts * sides
            height, width = cells.shape[:2]
            if not (-1 <= y <= height and -1 <= x <= width):
                continue
            y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
            top, left = int(y), int(x)
            bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
            upper = cells[top, left] * (1 - x % 1) + cells[top, right] * (x % 1)
            lower = cells[bottom, left] * (1 - x % 1) + cells[bottom, right] * (x % 1)
            crops[image, box, i, j] += upper * (1 - y % 1) + lower * (y % 1)
    return crops / ratio**2


@RUNS
@pytest.mark.parametrize('grid', [SampleGrid((3, 2)), SampleGrid((2, 3), 2, offset=0.0)])
def test_crops_equal_the_oracle(run, use_matmul, grid):
    rng = np.random.default_rng(0)
    maps, boxes = random_maps(rng), random_boxes(rng, 12, low=-30)
    levels = rng.integers(0, 3, (2, 12)).astype(np.int32)

    def crop(*maps):
        return crop_strides(maps, boxes, tf.constant(levels), grid, use_matmul=use_matmul)

    np.testing.assert_allclose(run(crop, *maps), oracle(maps, boxes, levels, grid), atol=1e-5)


def test_an_aligned_crop_of_cells_is_the_cells():
    cells = tf.reshape(tf.range(30.0), [1, 5, 6, 1])
    boxes = tf.constant([[[4.0, 8.0, 16.0, 20.0]]])
    crop = roi_align.roi_align(
        [cells], boxes, tf.zeros([1, 1], tf.int32), [(0.25, 0.25)], SampleGrid((3, 3))
    )
    np.testing.assert_allclose(crop[0, 0, :, :, 0], cells[0, 1:4, 2:5, 0])


@RUNS
def test_gradients_of_features_are_the_transpose_of_crops(run, use_matmul):
    # Crops are linear in the features: <crop(maps), upstream> = <maps, gradient>, for any maps.
    rng = np.random.default_rng(1)
    boxes = random_boxes(rng, 9)
    levels = tf.constant(rng.integers(0, 3, (2, 9)), tf.int32)
    upstream = tf.constant(rng.normal(size=(2, 9, 3, 2, 3)), tf.float32)
    grid = SampleGrid((3, 2), 2)

    def differentiate(*maps):
        with tf.GradientTape() as tape:
            tape.watch([*maps, boxes])
            crops = crop_strides(maps, boxes, levels, grid, use_matmul=use_matmul)
        gradients = tape.gradient(crops, [*maps, boxes], output_gradients=upstream)
        assert gradients.pop() is None
        return gradients

    gradients = run(differentiate, *random_maps(rng))
    for _ in range(2):
        maps = random_maps(rng)
        crops = crop_strides(maps, boxes, levels, grid)
        inner = sum(tf.reduce_sum(m * g) for m, g in zip(maps, gradients, strict=True))
        np.testing.assert_allclose(tf.reduce_sum(crops * upstream), inner, rtol=1e-4, atol=1e-4)


def test_gradients_of_features_are_differences_of_crops():
    rng = np.random.default_rng(2)
    maps, boxes = random_maps(rng, channels=1), random_boxes(rng, 4)
    levels = tf.constant(rng.integers(0, 3, (2, 4)), tf.int32)
    weights = tf.constant(rng.normal(size=(2, 4, 2, 2, 1)), tf.float32)

    def total(*maps):
        crops = crop_strides(maps, boxes, levels, SampleGrid((2, 2), 2))
        return tf.reduce_sum(tf.cast(crops, tf.float64) * tf.cast(weights, tf.float64))

    with tf.GradientTape() as tape:
        tape.watch(maps)
        value = total(*maps)
    for index, gradient in enumerate(tape.gradient(value, maps)):
        for cell in list(np.ndindex(*gradient.shape))[::37]:
            moved = list(maps)
            moved[index] = tf.tensor_scatter_nd_add(maps[index], [cell], [1.0])
            np.testing.assert_allclose(gradient[cell], total(*moved) - value, atol=1e-5)


@RUNS
def test_gradients_of_boxes_are_differences_of_crops(run, use_matmul):
    rng = np.random.default_rng(3)
    maps = random_maps(rng)
    # Coordinates of samples a step to each side are of the same cells.
    boxes = tf.constant([[[9.1, 13.3, 33.7, 42.2]]] * 2)
    levels = tf.ones([2, 1], tf.int32)
    weights = tf.constant(rng.normal(size=(2, 1, 2, 3, 3)), tf.float32)

    def total(boxes):
        crops = crop_strides(
            maps, boxes, levels, SampleGrid((2, 3), 2), use_matmul=use_matmul, box_gradients=True
        )
        return tf.reduce_sum(crops * weights)

    def differentiate(boxes):
        with tf.GradientTape() as tape:
            tape.watch(boxes)
            value = total(boxes)
        return tape.gradient(value, boxes)

    step = 0.05
    differences = [
        (total(boxes + step * row) - total(boxes - step * row)) / (2 * step)
        for row in tf.reshape(tf.eye(8), [8, 2, 1, 4])
    ]
    np.testing.assert_allclose(
        tf.reshape(run(differentiate, boxes), [-1]), differences, rtol=1e-2, atol=1e-3
    )


def test_native_gradient_is_the_same_each_time_where_many_boxes_overlap():
    rng = np.random.default_rng(4)
    maps = random_maps(rng, channels=32)
    boxes = tf.tile(random_boxes(rng, 2), [1, 150, 1])
    levels = tf.zeros([2, 300], tf.int32)

    @tf.function(autograph=False)
    def differentiate(*maps):
        crops = crop_strides(maps, boxes, levels, SampleGrid((7, 7), 2))
        return tf.gradients(tf.reduce_sum(crops**2), maps[0])[0]

    first = differentiate(*maps)
    assert tf.reduce_any(first != 0)
    for _ in range(3):
        np.testing.assert_array_equal(differentiate(*maps), first)


def test_unknown_dimensions_in_a_function():
    rng = np.random.default_rng(5)
    maps, boxes = random_maps(rng), random_boxes(rng, 5)
    levels = tf.constant(rng.integers(0, 3, (2, 5)), tf.int32)
    grid = SampleGrid((3, 2), 2)

    @tf.function(
        input_signature=[
            [tf.TensorSpec([None, None, None, 3])] * 3,
            tf.TensorSpec([None, None, 4]),
            tf.TensorSpec([None, None], tf.int32),
        ],
        autograph=False,
    )
    def crop_and_differentiate(maps, boxes, levels):
        crops = crop_strides(maps, boxes, levels, grid)
        return crops, tf.gradients(tf.reduce_sum(crops), maps)

    crops, gradients = crop_and_differentiate(maps, boxes, levels)
    np.testing.assert_allclose(crops, crop_strides(maps, boxes, levels, grid), atol=1e-6)
    assert [tuple(g.shape) for g in gradients] == [tuple(m.shape) for m in maps]


@RUNS
def test_no_boxes(run, use_matmul):
    def differentiate(*maps):
        with tf.GradientTape() as tape:
            tape.watch(maps)
            crops = crop_strides(
                maps,
                tf.zeros([2, 0, 4]),
                tf.zeros([2, 0], tf.int32),
                SampleGrid((3, 2), 2),
                use_matmul=use_matmul,
            )
        return crops, tape.gradient(crops, maps)

    crops, gradients = run(differentiate, *random_maps(np.random.default_rng(6)))
    assert crops.shape == (2, 0, 3, 2, 3)
    assert all(tf.reduce_all(gradient == 0) for gradient in gradients)


@RUNS
def test_boxes_that_are_not_finite_have_no_samples(run, use_matmul):
    numbers = [np.nan, np.inf, -np.inf]
    boxes = tf.constant([[[number, 4.0, 20.0, 20.0] for number in numbers]] * 2, tf.float32)
    levels = tf.zeros([2, 3], tf.int32)

    def crop(*maps):
        return crop_strides(maps, boxes, levels, SampleGrid((3, 2), 2), use_matmul=use_matmul)

    crops = run(crop, *random_maps(np.random.default_rng(8)))
    np.testing.assert_array_equal(crops, np.zeros([2, 3, 3, 2, 3]))


@RUNS
def test_crops_keep_the_dtype_of_the_features(run, use_matmul):
    rng = np.random.default_rng(7)
    maps, boxes = random_maps(rng, dtype=tf.bfloat16), random_boxes(rng, 5)
    levels = tf.constant(rng.integers(0, 3, (2, 5)), tf.int32)

    def differentiate(*maps):
        with tf.GradientTape() as tape:
            tape.watch(maps)
            crops = crop_strides(maps, boxes, levels, SampleGrid((2, 2)), use_matmul=use_matmul)
        return crops, tape.gradient(crops, maps)

    crops, gradients = run(differentiate, *maps)
    assert {crops.dtype, *(gradient.dtype for gradient in gradients)} == {tf.bfloat16}
    exact = crop_strides([tf.cast(m, tf.float32) for m in maps], boxes, levels, SampleGrid((2, 2)))
    np.testing.assert_allclose(tf.cast(crops, tf.float32), exact, rtol=0.03, atol=0.03)


@pytest.mark.parametrize('grid', [{'sampling_ratio': 0}, {'output_size': (0, 7)}])
def test_grids_without_samples_are_refused(grid):
    with pytest.raises(ValueError, match='sampling_ratio of at least 1'):
        SampleGrid(**{'output_size': (7, 7), **grid})


def test_any_number_of_boxes_is_cropped_by_few_programs_of_xla(monkeypatch):
    monkeypatch.setattr(bilinear, '_MIN_POWER', 5)
    maps, grid = random_maps(np.random.default_rng(0)), SampleGrid((3, 2))

    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec([2, None, 4]), tf.TensorSpec([2, None], tf.int32)],
    )
    def crop(boxes, levels):
        return crop_strides(maps, boxes, levels, grid)

    for count in (0, 1, 3, 7):
        boxes = random_boxes(np.random.default_rng(count), count)
        levels = tf.constant(np.arange(2 * count).reshape(2, count) % 3, tf.int32)
        crops = crop(boxes, levels)
        assert crops.shape == [2, count, 3, 2, 3]
        np.testing.assert_allclose(
            crops, crop_strides(maps, boxes, levels, grid), rtol=1e-5, atol=1e-5
        )
