import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import roi_align
from tests import goldens, rows
from tests.core.position_sensitive_crops import crop_by_loops


def random_inputs(channels: int, *, batch: int = 2, count: int = 5):
    """Maps [batch, 7, 9, channels] and boxes, some of which reach over the maps."""
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(batch, 7, 9, channels))
    corner = rng.uniform(-0.2, 0.6, (batch, count, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0, 0.6, (batch, count, 2))], axis=-1)
    return tf.constant(maps, tf.float32), tf.constant(boxes, tf.float32)


@goldens.rows('crop_ops', prefix=('position_sensitive_gp', 'position_sensitive_single'))
def test_crops_equal_the_reference(case_name):
    case = goldens.load('crop_ops', case_name)
    is_one = 'image' in case.inputs
    maps = case.inputs['image'][np.newaxis] if is_one else case.inputs['images']
    boxes = case.inputs['boxes'][np.newaxis] if is_one else case.inputs['boxes']
    sizes = tuple(case.params['crop_size']), tuple(case.params['num_spatial_bins'])
    expected = case.outputs['crops'][np.newaxis] if is_one else case.outputs['crops']
    if not case.params['global_pool']:
        crops = crop_by_loops(maps, boxes, *sizes)
        np.testing.assert_allclose(crops, expected, rtol=1e-5, atol=1e-6)
    means = roi_align.mean_crop(tf.constant(maps), tf.constant(boxes), *sizes)
    np.testing.assert_allclose(means, expected.mean(axis=(2, 3)), rtol=1e-5, atol=1e-6)


def test_crops_that_the_bins_do_not_divide_are_rejected_as_by_the_reference():
    assert goldens.load('crop_ops', 'position_sensitive_bad_crop').raises == 'ValueError'
    with pytest.raises(ValueError, match='multiple of the grid'):
        roi_align.check_crop_size((3, 5), (3, 3))


@rows.parametrize(('crop_size', 'num_bins'), [((6, 6), (3, 2)), ((2, 8), (1, 4)), ((2, 3), (2, 3))])
def test_crops_by_numpy(crop_size, num_bins):
    maps, boxes = random_inputs(num_bins[0] * num_bins[1] * 2)
    expected = crop_by_loops(maps.numpy(), boxes.numpy(), crop_size, num_bins)
    means = roi_align.mean_crop(maps, boxes, crop_size, num_bins)
    np.testing.assert_allclose(means, expected.mean(axis=(2, 3)), atol=1e-5)


def test_each_bin_reads_its_own_channels():
    maps = tf.broadcast_to(tf.range(6, dtype=tf.float32), [1, 5, 5, 6])
    box = np.float32([[[0.0, 0.0, 1.0, 1.0]]])
    crops = crop_by_loops(maps.numpy(), box, (4, 6), (2, 3))
    expected = [[0, 0, 1, 1, 2, 2]] * 2 + [[3, 3, 4, 4, 5, 5]] * 2
    np.testing.assert_allclose(crops[0, 0, :, :, 0], expected, atol=1e-5)
    for channel in range(6):
        own = maps * tf.one_hot(channel, 6)
        mean = roi_align.mean_crop(own, tf.constant(box), (4, 6), (2, 3))
        np.testing.assert_allclose(mean[0, 0, 0], channel / 6, atol=1e-5)


def test_gradients_of_maps_by_differences():
    maps, boxes = random_inputs(12)
    direction = tf.constant(np.random.default_rng(1).normal(size=maps.shape), tf.float32)

    def total(maps):
        return tf.reduce_sum(tf.square(roi_align.mean_crop(maps, boxes, (4, 6), (2, 3))))

    with tf.GradientTape() as tape:
        tape.watch([maps, boxes])
        value = total(maps)
    to_maps, to_boxes = tape.gradient(value, [maps, boxes])
    assert to_boxes is None
    assert np.abs(to_maps).max() > 0.01
    # The total is a quadratic form, whose differences over any distance are exact.
    slope = (total(maps + direction) - total(maps - direction)) / 2
    np.testing.assert_allclose(tf.reduce_sum(to_maps * direction), slope, rtol=1e-4, atol=1e-4)


def test_gradients_of_boxes_by_differences():
    maps, boxes = random_inputs(12, batch=1, count=3)

    def total(boxes):
        means = roi_align.mean_crop(maps, boxes, (4, 6), (2, 3), box_gradients=True)
        return tf.reduce_sum(tf.square(means))

    with tf.GradientTape() as tape:
        tape.watch(boxes)
        value = total(boxes)
    gradient = tape.gradient(value, boxes).numpy()
    # Bilinear samples have kinks: coordinates next to one are left out of neither, so steps are
    # small; sums of float32 limit how small.
    step = 2e-3
    for index in np.ndindex(*boxes.shape):
        offset = np.zeros(boxes.shape, np.float32)
        offset[index] = step
        slope = (total(boxes + offset) - total(boxes - offset)) / (2 * step)
        np.testing.assert_allclose(gradient[index], slope, rtol=0.05, atol=0.05)
    assert np.abs(gradient).max() > 0.3


@pytest.mark.parametrize('count', [0, 5])
def test_unknown_dimensions_and_no_boxes(count):
    maps, boxes = random_inputs(8, count=count)

    @tf.function(
        input_signature=[tf.TensorSpec([None, None, None, 8]), tf.TensorSpec([None, None, 4])],
        autograph=False,
    )
    def traced(maps, boxes):
        return roi_align.mean_crop(maps, boxes, (4, 4), (2, 2))

    means = traced(maps, boxes)
    assert means.shape == (2, count, 2)
    expected = crop_by_loops(maps.numpy(), boxes.numpy(), (4, 4), (2, 2))
    np.testing.assert_allclose(means, expected.mean(axis=(2, 3)), atol=1e-5)


def test_compiles():
    maps, boxes = random_inputs(8)

    def mean_crop(maps, boxes):
        return roi_align.mean_crop(maps, boxes, (4, 4), (2, 2))

    compiled = tf.function(mean_crop, jit_compile=True, autograph=False)(maps, boxes)
    np.testing.assert_allclose(compiled, mean_crop(maps, boxes), atol=1e-5)


@rows.parametrize(
    ('channels', 'crop_size', 'message'),
    [
        (9, (6, 7), r'multiple of the grid of bins \(3, 3\). Received: \(6, 7\)'),
        (9, (0, 3), r'Received: \(0, 3\)'),
        (10, (6, 6), 'channels in a multiple of 9. Received: 10'),
    ],
)
def test_errors(channels, crop_size, message):
    maps, boxes = random_inputs(channels)
    with pytest.raises(ValueError, match=message):
        roi_align.mean_crop(maps, boxes, crop_size, (3, 3))
