"""Mosaics, blended images, pasted objects; masks as crops are compared with full-size ones."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import preprocessor_builder
from object_detection.core.fields import InputFields as F
from object_detection.data import instance_masks
from object_detection.data.augmentation.several_images import CopyPaste, MixUp, Mosaic, MosaicDraws
from object_detection.data.augmentation.zoom import LargeScaleJitter, ZoomDraws
from object_detection.protos import preprocessor_pb2
from tests import rows
from tests.data.test_instance_masks import blobs


def example(value, size, boxes, masks=None, **fields):
    """An image of one value, uint8, with objects; classes count from the value."""
    count = len(boxes)
    fields = {
        F.IMAGE: tf.fill([*size, 3], tf.constant(value, tf.uint8)),
        F.GROUNDTRUTH_BOXES: tf.reshape(tf.constant(boxes, tf.float32), [-1, 4]),
        F.GROUNDTRUTH_WEIGHTS: tf.ones([count]),
        F.GROUNDTRUTH_CLASSES: tf.fill([count, 2], float(value)),
        F.GROUNDTRUTH_IS_CROWD: tf.zeros([count], tf.bool),
        **fields,
    }
    if masks is not None:
        fields[F.GROUNDTRUTH_INSTANCE_MASKS] = tf.constant(np.array(masks, np.uint8))
    return fields


def zooms(*numbers):
    """Draws of four images: scale, and offset along y and x."""
    return tuple(ZoomDraws(tf.constant(s), tf.constant([y, x])) for s, y, x in numbers)


def test_four_images_that_fill_a_mosaic():
    box = [0.0, 0.25, 0.5, 1.0]
    examples = [example(i, (8, 8), [box]) for i in range(4)]
    # At half of the scale at which an image would fill all: eight pixels.
    draws = MosaicDraws(tf.constant([0.5, 0.5]), zooms(*[(0.5, 0.3, 0.7)] * 4))
    mosaic = Mosaic(height=16, width=16).change(examples, draws)
    corners = np.kron([[0, 1], [2, 3]], np.ones([8, 8]))
    np.testing.assert_array_equal(mosaic[F.IMAGE], np.repeat(corners[..., np.newaxis], 3, axis=-1))
    offsets = np.array([[0, 0, 0, 0], [0, 0.5, 0, 0.5], [0.5, 0, 0.5, 0], [0.5, 0.5, 0.5, 0.5]])
    np.testing.assert_array_equal(
        mosaic[F.GROUNDTRUTH_BOXES], np.array(box, np.float32) / 2 + offsets.astype(np.float32)
    )
    np.testing.assert_array_equal(mosaic[F.GROUNDTRUTH_CLASSES][:, 0], [0, 1, 2, 3])


def test_images_are_cropped_and_padded_at_the_point_of_a_mosaic():
    boxes = [[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]]
    masks = [np.kron(np.eye(2)[i][:, np.newaxis] * np.eye(2)[i], np.ones([4, 4])) for i in (0, 1)]
    keypoints = tf.constant([[[0.25, 0.25]], [[0.75, 0.75]]])
    examples = [
        example(10 * (i + 1), (8, 8), boxes, masks, **{F.GROUNDTRUTH_KEYPOINTS: keypoints})
        for i in range(4)
    ]
    draws = MosaicDraws(tf.constant([0.25, 0.25]), zooms(*[(0.5, 0.0, 0.0)] * 4))
    mosaic = Mosaic(height=16, width=16, pad_color=(7.0,)).change(examples, draws)
    image = np.full([16, 16], 7)
    image[:4, :4], image[:4, 4:12], image[4:12, :4], image[4:12, 4:12] = 10, 20, 30, 40
    np.testing.assert_array_equal(mosaic[F.IMAGE][..., 0], image)
    # The top left image shows its first object alone, that beside it both columns of it, and so on.
    np.testing.assert_array_equal(mosaic[F.GROUNDTRUTH_CLASSES][:, 0], [10, 20, 30, 40, 40])
    expected = [[0, 0, 4, 4], [0, 4, 4, 8], [4, 0, 8, 4], [4, 4, 8, 8], [8, 8, 12, 12]]
    np.testing.assert_array_equal(mosaic[F.GROUNDTRUTH_BOXES], np.array(expected) / 16)
    expected = [[[2, 2]], [[2, 6]], [[6, 2]], [[6, 6]], [[10, 10]]]
    np.testing.assert_array_equal(mosaic[F.GROUNDTRUTH_KEYPOINTS], np.array(expected) / 16)
    for mask, box in zip(
        mosaic[F.GROUNDTRUTH_INSTANCE_MASKS], mosaic[F.GROUNDTRUTH_BOXES], strict=True
    ):
        ymin, xmin, ymax, xmax = np.array(box * 16, int)
        inside = np.zeros([16, 16])
        inside[ymin:ymax, xmin:xmax] = 1
        np.testing.assert_array_equal(mask, inside)


def test_fields_of_different_lengths_are_combined():
    """Images have different numbers of points on bodies, and of scores."""
    points = [tf.fill([1, count, 2], 0.5) for count in (0, 3)]
    first, second = (
        example(i, (4, 4), [[0, 0, 1, 1]], **{F.GROUNDTRUTH_DP_POINTS: each})
        for i, each in enumerate(points)
    )
    mixed = MixUp().change(first, second, tf.constant(0.5))
    expected = [[[0.0] * 2] * 3, [[0.5] * 2] * 3]
    np.testing.assert_array_equal(mixed[F.GROUNDTRUTH_DP_POINTS], expected)


def test_blended_images():
    first = example(100, (4, 6), [[0, 0, 1, 1]])
    second = example(200, (8, 3), [[0.5, 0, 1, 1]])
    mixed = MixUp().change(first, second, tf.constant(0.75))
    image = np.zeros([8, 6])
    image[:4] += 75
    image[:, :3] += 50
    np.testing.assert_array_equal(mixed[F.IMAGE][..., 1], image)
    np.testing.assert_array_equal(mixed[F.GROUNDTRUTH_BOXES], [[0, 0, 0.5, 1], [0.5, 0, 1, 0.5]])
    np.testing.assert_array_equal(mixed[F.GROUNDTRUTH_WEIGHTS], [0.75, 0.25])
    mixed = MixUp(weigh_objects=False).change(first, second, tf.constant(0.75))
    np.testing.assert_array_equal(mixed[F.GROUNDTRUTH_WEIGHTS], [1, 1])


def test_blended_white_stays_white():
    """The sum of two shares of 255 is rounded beyond it, for some of these."""
    white = example(255, (1, 1), [])
    blends = [MixUp().change(white, white, share)[F.IMAGE] for share in tf.linspace(0.0, 1.0, 50)]
    np.testing.assert_array_equal(blends, np.full([50, 1, 1, 3], 255))


def test_shares_of_blended_images_are_beta_distributed():
    seeds = tf.random.split([1, 2], 400)
    shares = np.array([MixUp(alpha=1.5).draw(seed) for seed in seeds])
    # Mean 1/2 and variance 1 / (4 * (2 * alpha + 1)) = 1/16; four standard errors of each.
    assert abs(shares.mean() - 0.5) < 4 * 0.25 / 20
    assert abs(shares.var() - 1 / 16) < 4 * 0.0625 / 20


def pasted(min_visible_share=0.1, numbers=(0.1,), **fields):
    below = np.zeros([2, 8, 8])
    below[0, :4] = 1
    below[1, 2:4, :6] = 1
    target = example(10, (8, 8), [[0, 0, 0.5, 1], [0.25, 0, 0.5, 0.75]], below)
    above = np.zeros([1, 8, 8])
    above[0, 2:6, :4] = 1
    other = example(200, (8, 8), [[0.25, 0, 0.75, 0.5]], above, **fields)
    step = CopyPaste(min_visible_share=min_visible_share)
    return step.change(target, other, tf.constant(numbers)), below, above


def test_objects_are_pasted_over_those_below():
    changed, below, above = pasted()
    np.testing.assert_array_equal(changed[F.IMAGE][..., 2], np.where(above[0], 200, 10))
    np.testing.assert_array_equal(changed[F.GROUNDTRUTH_CLASSES][:, 0], [10, 10, 200])
    left = below * (1 - above)
    np.testing.assert_array_equal(changed[F.GROUNDTRUTH_INSTANCE_MASKS], [*left, *above])
    # The first object is seen in all of its rows and columns, the second in two columns.
    expected = [[0, 0, 0.5, 1], [0.25, 0.5, 0.5, 0.75], [0.25, 0, 0.75, 0.5]]
    np.testing.assert_array_equal(changed[F.GROUNDTRUTH_BOXES], expected)


def test_objects_that_are_mostly_hidden_are_dropped():
    changed, *_ = pasted(min_visible_share=0.5)  # A third of the second object is left.
    np.testing.assert_array_equal(changed[F.GROUNDTRUTH_CLASSES][:, 0], [10, 200])


@pytest.mark.parametrize(
    'options', [{'numbers': (0.6,)}, {F.GROUNDTRUTH_IS_CROWD: tf.constant([True])}]
)
def test_objects_that_are_not_drawn_and_crowds_are_not_pasted(options):
    changed, below, _ = pasted(**options)
    np.testing.assert_array_equal(changed[F.GROUNDTRUTH_INSTANCE_MASKS], below)
    np.testing.assert_array_equal(changed[F.IMAGE], np.full([8, 8, 3], 10))


@pytest.mark.parametrize('is_crop', [False, True])
def test_objects_without_a_mask_are_not_pasted(is_crop):
    """They would be boxes of objects that are not in the image."""
    masks = np.zeros([2, 8, 8])
    masks[1, 4:, 4:] = 1
    images = [example(i, (8, 8), [[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]], masks) for i in (10, 200)]
    for image in images if is_crop else ():
        full = image.pop(F.GROUNDTRUTH_INSTANCE_MASKS)
        crops = instance_masks.crop(full, image[F.GROUNDTRUTH_BOXES], 8)
        image[F.GROUNDTRUTH_INSTANCE_MASK_CROPS] = crops
    changed = CopyPaste(min_visible_share=0.5).change(*images, tf.constant([0.1, 0.2]))
    # What is below and has no mask stays; what the pasted object covers does not.
    np.testing.assert_array_equal(changed[F.GROUNDTRUTH_CLASSES][:, 0], [10, 200])
    np.testing.assert_array_equal(
        changed[F.GROUNDTRUTH_BOXES], [[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]]
    )


def test_masks_as_crops_are_pasted_like_full_size_masks():
    size = (40, 60)
    forms = []
    for is_crop in (False, True):
        images = []
        for seed in (0, 3):
            masks, boxes = blobs(4, *size, seed=seed)
            image = example(seed, size, boxes, masks)
            if is_crop:
                full = image.pop(F.GROUNDTRUTH_INSTANCE_MASKS)
                crops = instance_masks.crop(full, image[F.GROUNDTRUTH_BOXES], 56)
                image[F.GROUNDTRUTH_INSTANCE_MASK_CROPS] = crops
            images.append(image)
        numbers = tf.constant([0.1, 0.9, 0.2, 0.6])
        forms.append(CopyPaste(min_visible_share=0.2).change(*images, numbers))
    full, crops = forms
    differs = np.mean(np.any(full[F.IMAGE] != crops[F.IMAGE], axis=-1))
    assert 0.1 < np.mean(full[F.IMAGE] == 3) < 0.9
    assert differs < 0.02
    for name in (F.GROUNDTRUTH_CLASSES, F.GROUNDTRUTH_WEIGHTS):
        np.testing.assert_array_equal(full[name], crops[name])
    pixels = (full[F.GROUNDTRUTH_BOXES] - crops[F.GROUNDTRUTH_BOXES]) * [*size, *size]
    assert np.abs(pixels).max() < 1.5
    assert np.any(full[F.GROUNDTRUTH_BOXES][:4] != blobs(4, *size)[1][: len(full)])
    drawn = [
        instance_masks.union(crop[np.newaxis], box[np.newaxis], tf.constant(size))
        for crop, box in zip(
            crops[F.GROUNDTRUTH_INSTANCE_MASK_CROPS], crops[F.GROUNDTRUTH_BOXES], strict=True
        )
    ]
    masks = full[F.GROUNDTRUTH_INSTANCE_MASKS].numpy() > 0
    overlap = np.sum(masks & drawn, axis=(1, 2)) / np.sum(masks | drawn, axis=(1, 2))
    assert overlap.min() > 0.85


def test_a_scaled_image_is_cropped_or_padded():
    image = example(0, (8, 4), [[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 0.5]])
    image[F.IMAGE] = tf.reshape(tf.cast(tf.range(96) // 3, tf.uint8), [8, 4, 3])
    step = LargeScaleJitter(height=8, width=8, pad_color=(9.0, 8.0, 7.0))
    # As large as it fits: on the left, with the colour on the right.
    changed = step.change(image, ZoomDraws(tf.constant(1.0), tf.constant([0.0, 0.0])))
    np.testing.assert_array_equal(changed[F.IMAGE][:, :4], image[F.IMAGE])
    np.testing.assert_array_equal(changed[F.IMAGE][:, 4:], np.tile([9, 8, 7], [8, 4, 1]))
    expected = [[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.25]]
    np.testing.assert_array_equal(changed[F.GROUNDTRUTH_BOXES], expected)
    # Twice as large: four of eight rows fit, the last ones with the greatest offset.
    changed = step.change(image, ZoomDraws(tf.constant(2.0), tf.constant([0.999, 0.5])))
    np.testing.assert_array_equal(changed[F.IMAGE][0, 0], [16, 16, 16])
    np.testing.assert_array_equal(changed[F.GROUNDTRUTH_BOXES], [[0, 0, 1, 0.5]])
    # Half as large.
    changed = step.change(image, ZoomDraws(tf.constant(0.5), tf.constant([0.5, 0.5])))
    expected = [[0, 0, 0.25, 0.25], [0.25, 0, 0.5, 0.125]]
    np.testing.assert_array_equal(changed[F.GROUNDTRUTH_BOXES], expected)
    np.testing.assert_array_equal(changed[F.IMAGE][4:], np.tile([9, 8, 7], [4, 8, 1]))


@rows.parametrize(
    ('text', 'message'),
    [
        ('mosaic { height: 1 }', 'mosaic.height: expected 2 to 16384. Received: 1'),
        ('mosaic { min_scale: 2 }', 'mosaic: expected 0 < min_scale <= max_scale.*2 and 1.5'),
        ('mosaic { min_share: 0.6 }', r'mosaic\.min_share: expected 0 to 0\.5.*0\.6'),
        ('mosaic { pad_color: [1, 2] }', r'mosaic\.pad_color: expected none, or 3'),
        ('mix_up { alpha: 0 }', r'mix_up\.alpha: expected above 0.*0'),
        ('copy_paste { max_objects: 0 }', r'copy_paste\.max_objects: expected at least 1'),
        ('copy_paste { min_visible_share: 2 }', r'copy_paste\.min_visible_share: expected 0 to 1'),
        ('large_scale_jitter { overlap_thresh: -1 }', r'jitter\.overlap_thresh: expected 0 to 1'),
    ],
)
def test_wrong_fields_are_reported(text, message):
    step = text_format.Parse(text, preprocessor_pb2.PreprocessingStep())
    with pytest.raises(ValueError, match=message):
        preprocessor_builder.build(step)


def test_pasting_needs_masks():
    image = example(1, (4, 4), [[0, 0, 1, 1]])
    with pytest.raises(ValueError, match='load_instance_masks: true'):
        CopyPaste()(image, tf.constant([1, 2]), [image])
