"""Images are padded to the bucket that leaves them largest."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import image_resizer_builder
from object_detection.protos import image_resizer_pb2
from object_detection.resizers.keep_aspect_ratio import KeepAspectRatioResizer
from tests import rows

LANDSCAPE, PORTRAIT, SQUARE = (832, 1344), (1344, 832), (1088, 1088)
KEEP = KeepAspectRatioResizer(min_dimension=832, max_dimension=1344, pad_size=LANDSCAPE)


def sizes(resizer, height, width):
    """(height, width) of an image after resizing, and after padding."""
    image, true_shape = resizer(tf.zeros([height, width, 3], tf.uint8))
    return tuple(true_shape.numpy()[:2]), tuple(image.shape[:2])


@rows.parametrize(
    ('image', 'true_size', 'bucket'),
    [
        ((480, 640), (832, 1109), LANDSCAPE),
        ((640, 480), (1109, 832), PORTRAIT),
        ((832, 1344), (832, 1344), LANDSCAPE),
        ((2000, 500), (1344, 336), PORTRAIT),
        # Both hold it at its full size.
        ((500, 500), (832, 832), LANDSCAPE),
    ],
)
def test_the_bucket_leaves_an_image_largest(image, true_size, bucket):
    assert sizes(KEEP.with_buckets([LANDSCAPE, PORTRAIT]), *image) == (true_size, bucket)


def test_a_portrait_image_keeps_its_resolution():
    """Padded to a landscape, it has 56 % of the pixels that the same image has turned around."""
    (shrunk, _), (kept, _) = sizes(KEEP, 640, 480), sizes(KEEP.with_buckets([PORTRAIT]), 640, 480)
    (turned, _) = sizes(KEEP, 480, 640)
    assert kept == turned[::-1]
    assert shrunk == (832, 624)
    assert np.prod(shrunk) / np.prod(kept) == pytest.approx(0.5627, abs=1e-4)


def test_a_tie_goes_to_the_least_padding():
    """All hold an image of 832 x 832 at the most that the resizer makes of it."""
    for order in ([SQUARE, LANDSCAPE, (900, 900)], [(900, 900), SQUARE, LANDSCAPE]):
        assert sizes(KEEP.with_buckets(order), 70, 70) == ((832, 832), (900, 900))


def test_min_and_max_dimension_hold_within_a_bucket():
    small = KeepAspectRatioResizer(min_dimension=100, max_dimension=150)
    assert sizes(small.with_buckets([LANDSCAPE, PORTRAIT]), 640, 480) == ((133, 100), LANDSCAPE)


def test_no_image_exceeds_its_bucket():
    rng = np.random.default_rng(0)
    resizer = KEEP.with_buckets([LANDSCAPE, PORTRAIT, SQUARE])
    for height, width in rng.integers(1, 3000, (60, 2)):
        resized = tf.stack(resizer.resized_size(int(height), int(width))).numpy()
        padded = tf.stack(resizer.padded_size(*resized)).numpy()
        assert (resized <= padded).all()
        # No other bucket would leave it larger.
        alone = [KEEP.with_buckets([size]) for size in (LANDSCAPE, PORTRAIT, SQUARE)]
        largest = max(int(one.resized_size(int(height), int(width))[0]) for one in alone)
        assert resized[0] == largest


def test_images_of_unknown_size_and_masks_agree():
    resizer = KEEP.with_buckets([(40, 60), (60, 40)])
    call = tf.function(
        lambda image: (resizer(image)[0], resizer.resize_masks(image[tf.newaxis, :, :, 0])),
        input_signature=[tf.TensorSpec([None, None, 3], tf.uint8)],
        autograph=False,
    )
    for size, bucket in (((21, 14), (60, 40)), ((14, 21), (40, 60))):
        image, masks = call(np.ones((*size, 3), np.uint8))
        assert image.shape == (*bucket, 3)
        assert masks.shape == (1, *bucket)
        np.testing.assert_array_equal(masks[0] > 0, image[..., 0] > 0)


def test_one_bucket_is_a_static_shape():
    assert KEEP.with_buckets([PORTRAIT]).static_shape == (*PORTRAIT, 3)
    assert KEEP.with_buckets([PORTRAIT, LANDSCAPE]).static_shape is None
    assert KEEP.static_shape == (*LANDSCAPE, 3)  # It has not changed.


def test_wrong_buckets():
    for wrong in ([], [(0, 5)], [(5, 5), (5, -1)]):
        with pytest.raises(ValueError, match='buckets of positive height and width'):
            KEEP.with_buckets(wrong)
    fixed = text_format.Parse('fixed_shape_resizer {}', image_resizer_pb2.ImageResizer())
    with pytest.raises(ValueError, match=r'expected keep_aspect_ratio_resizer .*fixed_shape'):
        image_resizer_builder.build(fixed, [(5, 5)])
