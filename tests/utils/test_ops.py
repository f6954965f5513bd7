import numpy as np
import pytest
import tensorflow as tf

from object_detection.utils import ops, shape_utils
from tests import goldens


@goldens.rows('crop_ops', names=('reframe_nearest', 'reframe_uint8', 'reframe_bilinear'))
def test_pasted_masks_equal_the_reference(case_name, monkeypatch):
    # Notebooks do this.
    monkeypatch.setattr(ops, 'tf', tf.compat.v1)
    case = goldens.load('crop_ops', case_name)
    masks, boxes = case.inputs['box_masks'], case.inputs['boxes']
    pasted = ops.reframe_box_masks_to_image_masks(masks, boxes, **case.params)
    expected = case.outputs['image_masks']
    assert pasted.dtype == expected.dtype
    # A box without area sets its first pixel there.
    has_area = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    assert has_area.sum() >= 4
    np.testing.assert_allclose(pasted[has_area], expected[has_area], atol=2e-6)
    np.testing.assert_array_equal(pasted[~has_area], 0)


def test_no_masks_are_pasted_to_no_masks():
    pasted = ops.reframe_box_masks_to_image_masks(
        tf.zeros([0, 7, 9]), tf.zeros([0, 4]), tf.constant(30), tf.constant(34)
    )
    assert pasted.shape == (0, 30, 34)


def test_normalized_boxes_become_pixels():
    case = goldens.load('ops', 'normalized_to_image_coordinates')
    pixels = ops.normalized_to_image_coordinates(
        case.inputs['boxes'], tf.constant(case.params['image_shape'])
    )
    np.testing.assert_allclose(pixels, case.outputs['boxes'], rtol=1e-6)


def test_one_hot_rows_have_columns_in_front():
    case = goldens.load('ops', 'padded_one_hot')
    for pad in range(3):
        rows = ops.padded_one_hot_encoding(case.inputs['indices'], case.params['depth'], pad)
        np.testing.assert_array_equal(rows, case.outputs[f'pad{pad}'])
    with pytest.raises(ValueError, match='left_pad'):
        ops.padded_one_hot_encoding([0], 1, -1)


def test_crops_are_those_of_tensorflow():
    image = np.random.default_rng(0).uniform(size=(1, 9, 8, 2)).astype(np.float32)
    boxes = np.array([[0.1, 0.2, 0.7, 0.9]], np.float32)
    crops = ops.native_crop_and_resize(image, boxes[np.newaxis], [4, 5])
    expected = tf.image.crop_and_resize(image, boxes, [0], [4, 5])
    np.testing.assert_allclose(crops[0], expected, atol=1e-6)


def test_names_that_do_not_exist_name_their_replacement():
    with pytest.raises(AttributeError, match=r'tf\.gather'):
        ops.matmul_gather_on_zeroth_axis  # noqa: B018


def test_tensors_are_padded_and_clipped():
    rows = tf.reshape(tf.range(1, 7), [3, 2])
    np.testing.assert_array_equal(shape_utils.pad_tensor(rows, 4)[2:], [[5, 6], [0, 0]])
    np.testing.assert_array_equal(shape_utils.clip_tensor(rows, 1), [[1, 2]])
    np.testing.assert_array_equal(shape_utils.pad_or_clip_tensor(rows, 2), [[1, 2], [3, 4]])
    both = shape_utils.pad_or_clip_nd(rows, [4, 1])
    np.testing.assert_array_equal(both, [[1], [3], [5], [0]])


def test_sizes_are_static_where_they_are_known():
    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def pad(rows):
        count, width = shape_utils.combined_static_and_dynamic_shape(rows)
        assert tf.is_tensor(count)
        assert width == 3
        padded = shape_utils.pad_or_clip_nd(rows, [2, None])
        assert padded.shape == (2, 3)
        return padded, shape_utils.pad_or_clip_tensor(rows, count + 1)

    fixed, longer = pad(tf.ones([1, 3]))
    np.testing.assert_array_equal(fixed, [[1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(longer, fixed)
