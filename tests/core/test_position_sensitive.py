import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import position_sensitive
from tests import goldens


def random_inputs(channels: int, *, batch: int = 2, count: int = 5):
    """Maps [batch, 7, 9, channels] and boxes, some of which reach over the maps."""
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(batch, 7, 9, channels))
    corner = rng.uniform(-0.2, 0.6, (batch, count, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0, 0.6, (batch, count, 2))], axis=-1)
    return tf.constant(maps, tf.float32), tf.constant(boxes, tf.float32)


def crop_by_loops(maps, boxes, crop_size, num_bins):
    """NumPy: each bin sampled as a box, sample by sample, out of its channels."""
    batch, height, width, channels = maps.shape
    depth = channels // (num_bins[0] * num_bins[1])
    # A frame of zeros, which samples outside of the maps fade to.
    framed = np.zeros((batch, height + 2, width + 2, channels))
    framed[:, 1:-1, 1:-1] = maps
    crops = np.zeros((batch, boxes.shape[1], *crop_size, depth))

    def position(low, high, number, size, length, index):
        """Pixel coordinate of a sample of the framed maps along one axis, and its bin."""
        group, sample = divmod(index, size // number)
        share = sample / (size // number - 1) if size > number else 0.5
        coordinate = (low + (group + share) * (high - low) / number) * (length - 1) + 1
        return np.clip(coordinate, 0, length + 1), group

    for image, box, i, j in np.ndindex(*crops.shape[:4]):
        low_y, low_x, high_y, high_x = boxes[image, box].astype(np.float64)
        y, row = position(low_y, high_y, num_bins[0], crop_size[0], height, i)
        x, column = position(low_x, high_x, num_bins[1], crop_size[1], width, j)
        group = (row * num_bins[1] + column) * depth
        own = framed[image, ..., group : group + depth]
        for pixel_y, pixel_x in np.ndindex(*own.shape[:2]):
            weight = max(0, 1 - abs(y - pixel_y)) * max(0, 1 - abs(x - pixel_x))
            crops[image, box, i, j] += weight * own[pixel_y, pixel_x]
    return crops


@goldens.parametrize('crop_ops', prefix=('position_sensitive_gp', 'position_sensitive_single'))
def test_crops_equal_the_reference(case_name):
    case = goldens.load('crop_ops', case_name)
    is_one = 'image' in case.inputs
    maps = case.inputs['image'][np.newaxis] if is_one else case.inputs['images']
    boxes = case.inputs['boxes'][np.newaxis] if is_one else case.inputs['boxes']
    sizes = tuple(case.params['crop_size']), tuple(case.params['num_spatial_bins'])
    if case.params['global_pool']:
        crops = position_sensitive.mean_crop(tf.constant(maps), tf.constant(boxes), *sizes)
        crops = crops[:, :, np.newaxis, np.newaxis]
    else:
        crops = position_sensitive.crop(tf.constant(maps), tf.constant(boxes), *sizes)
    expected = case.outputs['crops'][np.newaxis] if is_one else case.outputs['crops']
    np.testing.assert_allclose(crops, expected, rtol=1e-5, atol=1e-6)


def test_crops_that_the_bins_do_not_divide_are_rejected_as_by_the_reference():
    assert goldens.load('crop_ops', 'position_sensitive_bad_crop').raises == 'ValueError'
    with pytest.raises(ValueError, match='multiple of the grid'):
        position_sensitive.check_crop_size((3, 5), (3, 3))


@pytest.mark.parametrize(
    ('crop_size', 'num_bins'), [((6, 6), (3, 2)), ((2, 8), (1, 4)), ((2, 3), (2, 3))]
)
def test_crops_by_numpy(crop_size, num_bins):
    maps, boxes = random_inputs(num_bins[0] * num_bins[1] * 2)
    expected = crop_by_loops(maps.numpy(), boxes.numpy(), crop_size, num_bins)
    crops = position_sensitive.crop(maps, boxes, crop_size, num_bins)
    np.testing.assert_allclose(crops, expected, atol=1e-5)
    means = position_sensitive.mean_crop(maps, boxes, crop_size, num_bins)
    np.testing.assert_allclose(means, expected.mean(axis=(2, 3)), atol=1e-5)


def test_each_bin_reads_its_own_channels():
    maps = tf.broadcast_to(tf.range(6, dtype=tf.float32), [1, 5, 5, 6])
    crops = position_sensitive.crop(maps, tf.constant([[[0.0, 0.0, 1.0, 1.0]]]), (4, 6), (2, 3))
    expected = [[0, 0, 1, 1, 2, 2]] * 2 + [[3, 3, 4, 4, 5, 5]] * 2
    np.testing.assert_allclose(crops[0, 0, :, :, 0], expected, atol=1e-5)


def test_gradients_are_those_of_the_crops_mean():
    maps, boxes = random_inputs(12)

    def gradients(crop_mean):
        with tf.GradientTape() as tape:
            tape.watch([maps, boxes])
            total = tf.reduce_sum(tf.square(crop_mean()))
        return tape.gradient(total, [maps, boxes])

    ours, to_boxes = gradients(lambda: position_sensitive.mean_crop(maps, boxes, (4, 6), (2, 3)))
    wanted, _ = gradients(
        lambda: tf.reduce_mean(position_sensitive.crop(maps, boxes, (4, 6), (2, 3)), axis=[2, 3])
    )
    assert to_boxes is None
    assert np.abs(wanted).max() > 0.01
    np.testing.assert_allclose(ours, wanted, atol=1e-6)


def test_gradients_of_boxes_by_differences():
    maps, boxes = random_inputs(12, batch=1, count=3)

    def total(boxes):
        means = position_sensitive.mean_crop(maps, boxes, (4, 6), (2, 3), box_gradients=True)
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
        input_signature=[tf.TensorSpec([None, None, None, 8]), tf.TensorSpec([None, None, 4])]
    )
    def traced(maps, boxes):
        return (
            position_sensitive.crop(maps, boxes, (4, 4), (2, 2)),
            position_sensitive.mean_crop(maps, boxes, (4, 4), (2, 2)),
        )

    crops, means = traced(maps, boxes)
    assert crops.shape == (2, count, 4, 4, 2)
    assert means.shape == (2, count, 2)
    expected = crop_by_loops(maps.numpy(), boxes.numpy(), (4, 4), (2, 2))
    np.testing.assert_allclose(crops, expected, atol=1e-5)
    np.testing.assert_allclose(means, expected.mean(axis=(2, 3)), atol=1e-5)


def test_compiles():
    maps, boxes = random_inputs(8)

    def both(maps, boxes):
        return (
            position_sensitive.crop(maps, boxes, (4, 4), (2, 2)),
            position_sensitive.mean_crop(maps, boxes, (4, 4), (2, 2)),
        )

    for compiled, eager in zip(
        tf.function(both, jit_compile=True)(maps, boxes), both(maps, boxes), strict=True
    ):
        np.testing.assert_allclose(compiled, eager, atol=1e-5)


@pytest.mark.parametrize(
    ('channels', 'crop_size', 'message'),
    [
        (9, (6, 7), r'multiple of the grid of bins \(3, 3\). Received: \(6, 7\)'),
        (9, (0, 3), r'Received: \(0, 3\)'),
        (10, (6, 6), 'multiple of 9 channels, .*Received: 10'),
    ],
)
def test_errors(channels, crop_size, message):
    maps, boxes = random_inputs(channels)
    for function in (position_sensitive.crop, position_sensitive.mean_crop):
        with pytest.raises(ValueError, match=message):
            function(maps, boxes, crop_size, (3, 3))
