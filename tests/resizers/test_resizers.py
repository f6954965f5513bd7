import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import image_resizer_builder
from object_detection.protos import image_resizer_pb2
from object_detection.resizers.fixed_sizes import FixedShapeResizer
from object_detection.resizers.keep_aspect_ratio import KeepAspectRatioResizer
from tests import goldens, rows


def build(text):
    return image_resizer_builder.build(text_format.Parse(text, image_resizer_pb2.ImageResizer()))


@goldens.rows('image_resizers', prefix=('fixed', 'keep_', 'cond', 'identity', 'pad_'))
def test_resizer_matches_the_reference(case_name):
    case = goldens.load('image_resizers', case_name)
    if case.raises:
        with pytest.raises(ValueError, match=r'min_dimension <= max_dimension. Received: 50, 40'):
            build(case.config)
        return
    resizer = build(case.config)
    image = case.inputs['image']
    call = resizer
    if case_name.endswith('_dyn'):
        call = tf.function(
            resizer, input_signature=[tf.TensorSpec([None, None, 3], tf.uint8)], autograph=False
        )
    outputs = case.outputs
    if 'image' in outputs:
        resized, true_shape = call(image)
        assert resized.dtype == tf.float32
        np.testing.assert_allclose(resized, outputs['image'], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(true_shape, outputs['true_shape'])
        if resizer.static_shape:
            assert resizer.static_shape == resized.shape
    elif 'masks_shape' in outputs:
        masks = resizer.resize_masks(tf.zeros([0, *image.shape[:2]]))
        np.testing.assert_array_equal(masks.shape, outputs['masks_shape'])
        np.testing.assert_array_equal(call(image)[1], outputs['true_shape'])
    if 'masks' in case.inputs:
        masks = resizer.resize_masks(tf.constant(case.inputs['masks']))
        assert masks.dtype == tf.uint8
        np.testing.assert_array_equal(masks, outputs['masks'])
        np.testing.assert_array_equal(call(image)[1], outputs['true_shape_with_masks'])


@goldens.parametrize('image_resizers', names=('empty',))
def test_a_resizer_must_be_set(case_name):
    assert goldens.load('image_resizers', case_name).raises == 'ValueError'
    with pytest.raises(ValueError, match=r'ImageResizer\.image_resizer_oneof is not set'):
        build('')


@rows.parametrize(
    'text',
    [
        'fixed_shape_resizer { height: 9 width: 8 }',
        'keep_aspect_ratio_resizer { min_dimension: 9 max_dimension: 12 '
        'pad_to_max_dimension: true }',
        'keep_aspect_ratio_resizer { min_dimension: 9 max_dimension: 12 '
        'pad_height: 10 pad_width: 13 }',
        'conditional_shape_resizer { size_threshold: 10 }',
        'identity_resizer { }',
        'pad_to_multiple_resizer { multiple: 16 }',
    ],
)
@rows.parametrize('dtype', [np.uint8, np.float32])
def test_a_batch_is_resized_as_its_images(text, dtype):
    resizer = build(text)
    images = np.random.default_rng(0).integers(0, 256, (3, 14, 21, 3)).astype(dtype)
    resized, true_shape = resizer(images)
    for image, expected in zip(images, resized, strict=True):
        alone, shape = resizer(image)
        np.testing.assert_array_equal(alone, expected)
        np.testing.assert_array_equal(shape, true_shape)
    assert true_shape.dtype == tf.int32
    assert resizer.resize_masks(tf.zeros([0, 14, 21])).shape == (0, *resized.shape[1:3])


def test_pad_values_need_as_many_channels():
    resizer = KeepAspectRatioResizer(
        min_dimension=4, max_dimension=8, pad_to_max_dimension=True, pad_values=(1.0, 2.0, 3.0)
    )
    with pytest.raises(ValueError, match='expected 1, one a channel'):
        resizer(np.zeros((4, 4, 1), np.uint8))


@rows.parametrize(
    ('size', 'resized'),
    [
        ((480, 640), (832, 1109)),  # by the shorter side
        ((427, 640), (832, 1247)),
        ((300, 640), (630, 1344)),  # by the longer side
        ((640, 480), (832, 624)),  # by the height to pad to
        ((640, 300), (832, 390)),
        ((832, 1344), (832, 1344)),
        ((1, 500), (3, 1344)),
        ((500, 1), (832, 2)),
    ],
)
def test_images_fit_the_size_that_they_are_padded_to(size, resized):
    resizer = KeepAspectRatioResizer(
        min_dimension=832, max_dimension=1344, pad_size=(832, 1344), pad_values=(1.0, 2.0, 3.0)
    )
    image, true_shape = resizer(np.full((*size, 3), 9, np.uint8))
    assert image.shape == resizer.static_shape == (832, 1344, 3)
    np.testing.assert_array_equal(true_shape, (*resized, 3))
    height, width = resized
    assert np.all(image[:height, :width] == 9)
    assert np.all(image[height:] == [1, 2, 3])
    assert np.all(image[:, width:] == [1, 2, 3])
    masks = resizer.resize_masks(tf.ones([2, *size], tf.uint8)).numpy()
    assert masks.shape == (2, 832, 1344)
    assert masks.sum() == 2 * height * width


def test_random_sizes_fit():
    resizer = KeepAspectRatioResizer(min_dimension=53, max_dimension=211, pad_size=(97, 61))
    for height, width in np.random.default_rng(0).integers(1, 400, (300, 2)):
        resized = [int(side) for side in resizer.resized_size(int(height), int(width))]
        assert resized[0] <= 97
        assert resized[1] <= 61
        largest = min(97 / height, 61 / width, 211 / max(height, width), 53 / min(height, width))
        np.testing.assert_allclose(
            resized,
            np.array([height, width]) * largest,
            atol=0.51 + (largest * min(height, width) < 1),
        )


def test_training_draws_the_shorter_side_from_both_ends_of_a_range():
    resizer = KeepAspectRatioResizer(
        min_dimension=30, max_dimension=60, min_dimension_range=(10, 13)
    )
    image = np.zeros((20, 25, 3), np.uint8)

    @tf.function(autograph=False)
    def draw(seed):
        return resizer.for_training(seed)(image)[1]

    sizes = {tuple(draw(tf.constant([1, i], tf.int64)).numpy()[:2]) for i in range(40)}
    assert sizes == {(10, 12), (11, 14), (12, 15), (13, 16)}
    np.testing.assert_array_equal(
        draw(tf.constant([1, 7], tf.int64)), draw(tf.constant([1, 7], tf.int64))
    )
    np.testing.assert_array_equal(resizer(image)[1], [30, 38, 3])


def test_other_resizers_draw_nothing():
    resizer = build('keep_aspect_ratio_resizer { }')
    assert resizer.for_training(tf.constant([1, 2])) is resizer


def test_sizes_are_rounded_down_as_by_pytorch():
    # 800 / 480 in single precision is below 5 / 3: 799.99998 and 1066.67 pixels.
    options = {'min_dimension': 800, 'max_dimension': 1333}
    down = KeepAspectRatioResizer(**options, round_down=True)
    assert tuple(map(int, down.resized_size(480, 640))) == (799, 1066)
    nearest = KeepAspectRatioResizer(**options)
    assert tuple(map(int, nearest.resized_size(480, 640))) == (800, 1067)


@pytest.mark.parametrize(('centers', 'row'), [(True, [0, 1, 3, 4]), (False, [0, 2, 4, 4])])
def test_half_pixel_centers_by_hand(centers, row):
    for resizer in (
        KeepAspectRatioResizer(min_dimension=4, max_dimension=4, half_pixel_centers=centers),
        FixedShapeResizer(height=4, width=4, half_pixel_centers=centers),
    ):
        image, _ = resizer(tf.constant([[[0.0], [4.0]], [[0.0], [4.0]]]))
        np.testing.assert_allclose(image[..., 0], [row] * 4, atol=1e-6)


def test_half_pixel_centers_are_refused_of_other_methods():
    with pytest.raises(ValueError, match='half_pixel_centers: expected BILINEAR'):
        KeepAspectRatioResizer(
            min_dimension=4, max_dimension=4, method='area', half_pixel_centers=True
        )
