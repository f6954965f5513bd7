"""Parts of images: against the reference, with what it drew, alone, and in the pipeline."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data import instance_masks
from object_detection.data.augmentation.crop import (
    RandomSquareCropByScale,
    SmallObjectCrop,
    SquareDraws,
)
from object_detection.data.augmentation.window import Window, cut_out
from tests import goldens, slow_cases
from tests.data import examples
from tests.data.augmentation import test_fixed_steps as steps
from tests.data.test_instance_masks import blobs
from tests.rows import parametrize

SEED = steps.SEED
STEP = 'random_square_crop_by_scale {}'
# Of crops around small objects.
SIZE = (100, 200)
LARGE = (0.1, 0.1, 0.9, 0.9)
SMALL = (0.80, 0.30, 0.85, 0.35)


def seeds(count):
    return [tf.constant([7, i], tf.int64) for i in range(count)]


def part(image, window):
    """NumPy oracle: a window of [H, W, ...], zeros where it reaches beyond it."""
    size = max(window.height, window.width, *image.shape[:2])
    padded = np.pad(image, [(size, size)] * 2 + [(0, 0)] * (image.ndim - 2))
    top, left = window.top + size, window.left + size
    return padded[top : top + window.height, left : left + window.width]


@goldens.rows('preprocessor', prefix='square_crop_')
def test_matches_the_reference_with_its_draws(case_name):
    case = goldens.load('preprocessor', case_name)
    example, step = steps.golden_example(case), steps.build(case.config)
    draws = SquareDraws(
        *(case.outputs[f'draws.square_crop_scale.{f}'] for f in SquareDraws._fields)
    )
    window = Window(*map(int, step.window(tf.constant([30, 44]), draws)))
    cut = cut_out(example, window)
    same = (F.GROUNDTRUTH_CLASSES, F.GROUNDTRUTH_WEIGHTS)
    for name in (F.GROUNDTRUTH_BOXES, F.GROUNDTRUTH_KEYPOINTS, *same):
        expected = case.outputs.get(name, example[name])
        np.testing.assert_allclose(cut[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_array_equal(cut[F.IMAGE], part(example[F.IMAGE].numpy(), window))
    # The reference loses the last row and column that a square covers: of an odd one, or at the
    # image's edge.
    image = case.outputs[F.IMAGE][0]
    rows, columns = (np.flatnonzero(image.any(axis=(1 - axis, 2)))[-1] + 1 for axis in (0, 1))
    assert rows >= window.height - 1 or window.top + rows == 29
    masks = np.moveaxis(case.outputs[F.GROUNDTRUTH_INSTANCE_MASKS], 0, -1)
    cut_masks = np.moveaxis(cut[F.GROUNDTRUTH_INSTANCE_MASKS].numpy(), 0, -1)
    for ours, theirs in ((cut[F.IMAGE].numpy(), image), (cut_masks, masks)):
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(ours[:rows, :columns], theirs[:rows, :columns])
        assert not ours[rows + 1 :].any()
        assert not ours[:, columns + 1 :].any()


WINDOWS = {
    'inside': Window(3, 5, 20, 30),
    'beyond the top and left': Window(-9, -4, 20, 20),
    'beyond the bottom and right': Window(30, 40, 33, 21),
    'around the image': Window(-2, -1, 60, 59),
    'beside the image': Window(-20, 60, 10, 10),
}


@slow_cases.parametrize(4, 'window', WINDOWS.values(), ids=WINDOWS.keys())
@pytest.mark.parametrize('dtype', [np.uint8, np.float32])
def test_pixels_and_masks_are_those_of_the_window(window, dtype):
    masks, boxes = blobs()
    image = examples.noise(37, 53).astype(dtype)
    example = {
        F.IMAGE: tf.constant(image),
        F.GROUNDTRUTH_BOXES: tf.constant(boxes),
        F.GROUNDTRUTH_INSTANCE_MASKS: tf.constant(masks),
        F.GROUNDTRUTH_AREA: tf.range(float(len(boxes))),
    }
    cut = tf.function(cut_out, autograph=False)(example, Window(*map(tf.constant, window)))
    assert cut[F.IMAGE].dtype == dtype
    np.testing.assert_array_equal(cut[F.IMAGE], part(image, window))
    kept = cut[F.GROUNDTRUTH_AREA].numpy().astype(int)
    for mask, row in zip(cut[F.GROUNDTRUTH_INSTANCE_MASKS], kept, strict=True):
        np.testing.assert_array_equal(mask, part(masks[row], window))
    # In pixels, boxes have moved, and no further than the window's sides.
    scale = np.array([window.height, window.width] * 2)
    moved = boxes * [37, 53, 37, 53] - [window.top, window.left] * 2
    clipped = np.clip(moved, 0, scale)
    is_visible = (clipped[:, 2:] > clipped[:, :2]).all(axis=1)
    np.testing.assert_array_equal(kept, np.flatnonzero(is_visible))
    np.testing.assert_allclose(
        cut[F.GROUNDTRUTH_BOXES] * scale, clipped[is_visible], rtol=1e-4, atol=1e-4
    )


def test_mask_crops_are_cut_as_masks_are():
    """A crop of 112 of a cut mask, and the cut crop: edges apart, the same."""
    masks, boxes = blobs()
    example = {
        F.IMAGE: tf.zeros([37, 53, 3]),
        F.GROUNDTRUTH_BOXES: tf.constant(boxes),
        F.GROUNDTRUTH_INSTANCE_MASKS: tf.constant(masks),
        F.GROUNDTRUTH_INSTANCE_MASK_CROPS: instance_masks.crop(masks, boxes, 112),
    }
    cut = cut_out(example, Window(6, 8, 24, 30))
    of_cut = instance_masks.crop(
        cut[F.GROUNDTRUTH_INSTANCE_MASKS], cut[F.GROUNDTRUTH_BOXES], 112
    ).numpy()
    crops = cut[F.GROUNDTRUTH_INSTANCE_MASK_CROPS].numpy()
    assert crops.dtype == np.uint8
    assert len(crops) > 1
    assert ((crops > 127) == (of_cut > 127)).mean() > 0.93
    whole = cut_out(example, Window(0, 0, 37, 53))[F.GROUNDTRUTH_INSTANCE_MASK_CROPS]
    np.testing.assert_array_equal(whole, example[F.GROUNDTRUTH_INSTANCE_MASK_CROPS])


def test_a_cut_crop_by_hand():
    """The left half of the box is outside; the right half of its crop is left."""
    crop = np.zeros([1, 5, 5], np.uint8)
    crop[:, :, 3:] = 200
    example = {
        F.IMAGE: tf.zeros([10, 10, 3]),
        F.GROUNDTRUTH_BOXES: tf.constant([[0.2, 0.0, 0.6, 0.8]]),
        F.GROUNDTRUTH_INSTANCE_MASK_CROPS: tf.constant(crop),
    }
    cut = cut_out(example, Window(0, 4, 10, 6))
    np.testing.assert_allclose(cut[F.GROUNDTRUTH_BOXES], [[0.2, 0, 0.6, 4 / 6]], rtol=1e-6)
    row = [0, 100, 200, 200, 200]
    np.testing.assert_array_equal(cut[F.GROUNDTRUTH_INSTANCE_MASK_CROPS], [[row] * 5])


def test_keypoints_outside_are_neither_there_nor_visible():
    example = {
        F.IMAGE: tf.zeros([10, 10, 3]),
        F.GROUNDTRUTH_BOXES: tf.constant([[0.0, 0.0, 1.0, 1.0]]),
        F.GROUNDTRUTH_KEYPOINTS: tf.constant([[[0.5, 0.5], [0.9, 0.5], [0.5, np.nan]]]),
        F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: tf.constant([[True, True, False]]),
    }
    cut = cut_out(example, Window(0, 0, 8, 8))
    expected = [[[0.625, 0.625], [np.nan] * 2, [np.nan] * 2]]
    np.testing.assert_allclose(cut[F.GROUNDTRUTH_KEYPOINTS], expected)
    np.testing.assert_array_equal(cut[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES], [[True, False, False]])


# Height and width, and the border that is left of 128 pixels: halved until it fits twice.
@pytest.mark.parametrize(('size', 'border'), [((600, 320), (128, 128)), ((255, 20), (64, 8))])
def test_squares_are_drawn_evenly(size, border):
    step = RandomSquareCropByScale(scale_min=0.5, scale_max=1.25, num_scales=4)
    draw = tf.function(step.draw, autograph=False)
    drawn = np.array([[x.numpy() for x in draw(tf.constant(size), seed)] for seed in seeds(200)])
    scales, counts = np.unique(drawn[:, 0], return_counts=True)
    np.testing.assert_allclose(scales, [0.5, 0.75, 1, 1.25])
    assert counts.min() > 30
    for centers, side, excluded in zip(drawn.T[1:], size, border, strict=True):
        assert excluded <= centers.min() <= centers.max() <= side - excluded
        assert np.ptp(centers) > 0.8 * (side - 2 * excluded)
    assert np.abs(np.corrcoef(drawn.T)[np.triu_indices(3, 1)]).max() < 0.25


def test_the_square_is_around_its_centre():
    step = RandomSquareCropByScale()
    draws = SquareDraws(tf.constant(0.6), tf.constant(10), tf.constant(30))
    assert [int(x) for x in step.window(tf.constant([20, 45]), draws)] == [-3, 17, 27, 27]
    tiny = SquareDraws(tf.constant(0.1), tf.constant(2), tf.constant(1))
    assert [int(x) for x in step.window(tf.constant([4, 3]), tiny)] == [2, 1, 1, 1]


@parametrize(
    ('text', 'message'),
    [
        ('max_border: -1', 'max_border: expected 0 to 16384. Received: -1'),
        ('scale_min: 2', 'expected 0 < scale_min <= scale_max <= 32. Received: 2 and 1.3'),
        ('scale_min: 0', 'scale_min: expected above 0, up to 32'),
        ('num_scales: 0', 'num_scales: expected 1 to 16384. Received: 0'),
    ],
)
def test_wrong_fields_are_reported(text, message):
    with pytest.raises(ValueError, match=f'random_square_crop_by_scale.*{message}'):
        steps.build(f'random_square_crop_by_scale {{ {text} }}')


@slow_cases.parametrize(1, ('mask_crop_size', 'num_objects'), [(8, 4), (0, 0)])
def test_inside_tf_data_as_alone(mask_crop_size, num_objects):
    zoo = ('random_horizontal_flip {}', 'random_adjust_hue {}', STEP)
    transform = steps.make(zoo, mask_crop_size=mask_crop_size)
    example = steps.decoded(num_objects)
    data = tf.data.Dataset.range(6).map(
        lambda i: transform(example, tf.stack([tf.constant(7, tf.int64), i])),
        num_parallel_calls=4,
    )
    assert data.element_spec[F.IMAGE].shape == (37, 53, 3)
    images, counts = [], []
    for mapped, seed in zip(data, seeds(6), strict=True):
        alone = transform(example, seed)
        images.append(mapped.pop(F.IMAGE))
        assert mapped.pop(F.SOURCE_ID) == alone[F.SOURCE_ID]
        counts.append(int(mapped[F.NUM_GROUNDTRUTH_BOXES]))
        np.testing.assert_allclose(images[-1], alone[F.IMAGE], rtol=1e-4, atol=1e-3)
        for name, value in mapped.items():
            np.testing.assert_allclose(value, alone[name], rtol=1e-5, atol=1e-6, err_msg=name)
        assert not mapped[F.GROUNDTRUTH_WEIGHTS][counts[-1] :].numpy().any()
    assert np.abs(images[0] - images[1]).mean() > 10
    assert num_objects == 0 or min(counts) < max(counts)


def draw_many(step, boxes, *, size=SIZE, count=200):
    """Windows of several seeds: int [count, 4], the first row and column, height and width."""
    draw = tf.function(step.draw, autograph=False)
    boxes = tf.constant(np.reshape(boxes, [-1, 4]), tf.float32)
    return np.array(
        [draw(tf.constant(size), boxes, tf.constant([7, i], tf.int64)) for i in range(count)]
    )


def contains(windows, box, size=SIZE):
    corners = np.concatenate([windows[:, :2], windows[:, :2] + windows[:, 2:]], axis=1)
    box = np.array(box) * [*size, *size] + [1e-4, 1e-4, -1e-4, -1e-4]
    return ((corners[:, :2] <= box[:2]) & (corners[:, 2:] >= box[2:])).all(axis=1)


def test_the_window_is_anywhere_around_a_small_object():
    windows = draw_many(SmallObjectCrop(), [LARGE, SMALL])
    assert contains(windows, SMALL).all()
    assert not contains(windows, LARGE).any()
    ends = windows[:, :2] + windows[:, 2:]
    assert windows.min() >= 0
    assert (ends <= SIZE).all()
    scale = windows[:, 2:] / SIZE
    np.testing.assert_allclose(scale[:, 0], scale[:, 1], atol=0.0051)  # Half a pixel of 100.
    assert 0.295 < scale.min() < 0.33 < 0.77 < scale.max() < 0.805
    assert abs(scale.mean() - 0.55) < 0.03
    # From the object's first row or column at the window's end to its last one at the start.
    assert (windows[:, :2].min(axis=0) < [25, 5]).all()
    assert (windows[:, :2].max(axis=0) > [68, 57]).all()


def test_each_small_object_is_drawn_and_no_large_one():
    others = [(0.1, 0.1, 0.15, 0.15), (0.1, 0.9, 0.15, 0.95), SMALL]
    step = SmallObjectCrop(min_scale=0.2, max_scale=0.3)
    windows = draw_many(step, [*others, LARGE], count=300)
    drawn = np.array([contains(windows, box) for box in others])
    np.testing.assert_array_equal(drawn.sum(axis=0), 1)
    np.testing.assert_allclose(drawn.mean(axis=1), 1 / 3, atol=0.09)


def test_without_small_objects_any_is_drawn_and_the_window_grows_with_it():
    step = SmallObjectCrop(small_area=0.01, min_scale=0.2, max_scale=0.3)
    windows = draw_many(step, [LARGE, (0.0, 0.0, 0.25, 0.1)])
    is_large = contains(windows, LARGE)
    assert 0.35 < is_large.mean() < 0.65
    # 0.8 of both sides.
    assert (windows[is_large] == [10, 20, 80, 160]).all()
    rest = windows[~is_large]
    assert contains(rest, (0.0, 0.0, 0.25, 0.1)).all()
    assert (rest[:, 2:] <= [30, 60]).all()


@parametrize('size', [SIZE, (1, 1), (1, 7)])
def test_without_objects_the_window_is_anywhere(size):
    windows = draw_many(SmallObjectCrop(), np.zeros([0, 4]), size=size)
    assert windows[:, :2].min() == 0
    assert (windows[:, 2:] >= 1).all()
    ends = windows[:, :2] + windows[:, 2:]
    assert (ends.max(axis=0) == size).all()


@parametrize('size', [(1, 1), (1, 7), (3, 2)])
def test_tiny_images_are_cropped_too(size):
    windows = draw_many(SmallObjectCrop(), [SMALL, LARGE, (0.0, 0.0, 0.01, 1.0)], size=size)
    assert (windows[:, :2] >= 0).all()
    assert (windows[:, 2:] >= 1).all()
    assert (windows[:, :2] + windows[:, 2:] <= size).all()


def test_few_other_small_objects_are_cut():
    """A chain of objects with gaps between them: for each window there is a place without a cut."""
    chain = np.array([(0.48, x, 0.52, x + 0.04) for x in np.arange(0.1, 0.9, 0.1)])
    windows = draw_many(SmallObjectCrop(min_scale=0.5, max_scale=0.5), chain, size=(100, 100))
    columns = chain[:, [1, 3]] * 100
    start, end = windows[:, 1, np.newaxis], (windows[:, 1] + windows[:, 3])[:, np.newaxis]
    sees = (columns[:, 1] > start + 1e-3) & (columns[:, 0] < end - 1e-3)
    whole = (columns[:, 0] >= start - 1e-3) & (columns[:, 1] <= end + 1e-3)
    # A window drawn evenly would cut one at either end with a probability of 0.3 or more.
    assert (sees & ~whole).any(axis=1).mean() < 0.02


def test_small_objects_that_are_cut_are_dropped_and_large_ones_clipped():
    boxes = np.array(
        [
            [0.2, 0.2, 0.25, 0.25],  # whole
            [0.48, 0.2, 0.53, 0.25],  # small and cut: 2 of 5 rows are left
            [0.1, 0.1, 0.6, 0.4],  # large, 4 of 5 are left
            [0.3, 0.3, 0.9, 0.9],  # large, but a ninth is left
            [0.45, 0.45, 0.5, 0.5],  # ends at the corner of the window
            [0.8, 0.8, 0.85, 0.85],  # outside
        ],
        np.float32,
    )
    example = {
        F.IMAGE: tf.constant(examples.noise(100, 200)),
        F.GROUNDTRUTH_BOXES: tf.constant(boxes),
        F.GROUNDTRUTH_TRACK_IDS: tf.range(6),
    }
    step = steps.build('small_object_crop { overlap_thresh: 0.3 }')
    cropped = step.crop(example, Window(*map(tf.constant, (0, 0, 50, 100))))
    np.testing.assert_array_equal(cropped[F.GROUNDTRUTH_TRACK_IDS], [0, 2, 4])
    np.testing.assert_array_equal(cropped[F.IMAGE], example[F.IMAGE][:50, :100])
    expected = [[0.4, 0.4, 0.5, 0.5], [0.2, 0.2, 1.0, 0.8], [0.9, 0.9, 1.0, 1.0]]
    np.testing.assert_allclose(cropped[F.GROUNDTRUTH_BOXES], expected, atol=1e-6)


def test_the_drawn_object_stays_whole():
    """A small object in a wild place is kept, whatever is rounded."""
    rng = np.random.default_rng(0)
    specs = {
        F.IMAGE: tf.TensorSpec([None, None, 1], tf.uint8),
        F.GROUNDTRUTH_BOXES: tf.TensorSpec([None, 4]),
    }
    # A graph takes an image in a tenth of the time.
    step = tf.function(
        SmallObjectCrop(), input_signature=[specs, tf.TensorSpec([2], tf.int64)], autograph=False
    )
    for i in range(100):
        height, width = rng.integers(20, 60, 2)
        corner, size = rng.uniform(0, 0.9, 2), rng.uniform(0.01, 0.09, 2)
        box = np.float32([[*corner, *(corner + size)]])
        example = {
            F.IMAGE: tf.zeros([height, width, 1], tf.uint8),
            F.GROUNDTRUTH_BOXES: tf.constant(box),
        }
        cropped = step(example, tf.constant([1, i], tf.int64))
        (new,) = cropped[F.GROUNDTRUTH_BOXES].numpy()
        scale = np.array(cropped[F.IMAGE].shape[:2]) / [height, width]
        np.testing.assert_allclose((new[2:] - new[:2]) * scale, size, atol=1e-6)


@parametrize(
    ('text', 'message'),
    [
        ('small_area: 2', 'small_area: expected 0 to 1. Received: 2'),
        ('overlap_thresh: -1', 'overlap_thresh: expected 0 to 1. Received: -1'),
        ('min_scale: 0', 'min_scale: expected above 0, up to 1. Received: 0'),
        ('max_scale: 1.5', 'max_scale: expected above 0, up to 1. Received: 1.5'),
        ('min_scale: 0.9', 'expected 0 < min_scale <= max_scale <= 1. Received: 0.9 and 0.8'),
    ],
)
def test_wrong_fields_of_crops_around_objects_are_reported(text, message):
    with pytest.raises(ValueError, match=f'small_object_crop.*{message}'):
        steps.build(f'small_object_crop {{ {text} }}')
