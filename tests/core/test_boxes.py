import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core.suppression import nms
from tests import goldens


def _random_boxes(seed, shape):
    corners = np.random.default_rng(seed).uniform(size=[*shape, 2, 2])
    return np.sort(corners, axis=-2).reshape([*shape, 4]).astype(np.float32)


def test_area_and_intersection_by_hand():
    boxes = np.array([[0, 0, 2, 3], [1, 1, 4, 2]], np.float32)
    others = np.array([[1, 1, 3, 5], [10, 10, 11, 11], [2, 0, 3, 1]], np.float32)
    np.testing.assert_array_equal(box_ops.area(boxes), [6, 3])
    # The first and the last touch but do not overlap.
    np.testing.assert_array_equal(box_ops.intersection(boxes, others), [[2, 0, 0], [2, 0, 0]])
    expected = [[2 / (6 + 8 - 2), 0, 0], [2 / (3 + 8 - 2), 0, 0]]
    np.testing.assert_allclose(box_ops.iou(boxes, others), expected, rtol=1e-6)
    np.testing.assert_allclose(box_ops.ioa(boxes, others), [[2 / 8, 0, 0], [2 / 8, 0, 0]])


def _iou_oracle(first, second):
    height = max(0, min(first[2], second[2]) - max(first[0], second[0]))
    width = max(0, min(first[3], second[3]) - max(first[1], second[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return height * width / (sum(areas) - height * width)


def test_iou_agrees_with_a_loop():
    boxes, others = _random_boxes(0, [2, 5]), _random_boxes(1, [2, 6])
    expected = [
        [[_iou_oracle(first, second) for second in image_others] for first in image_boxes]
        for image_boxes, image_others in zip(boxes, others, strict=True)
    ]
    np.testing.assert_allclose(box_ops.iou(boxes, others), expected, rtol=1e-5)


def test_pairs_broadcast_over_the_batch():
    boxes, others = _random_boxes(0, [2, 5]), _random_boxes(1, [6])
    actual = box_ops.iou(boxes, others)
    assert actual.shape == [2, 5, 6]
    np.testing.assert_array_equal(actual[1], box_ops.iou(boxes[1], others))


def test_zero_size_boxes_have_no_overlap():
    boxes = np.array([[0, 0, 0, 0], [0.5, 0.2, 0.5, 0.8], [0, 0, 1, 1]], np.float32)
    for function in (box_ops.iou, box_ops.ioa):
        expected = np.zeros([3, 3])
        expected[2, 2] = 1
        np.testing.assert_array_equal(function(boxes, boxes), expected)


def test_giou_by_hand():
    boxes = np.array([[0, 0, 2, 2]], np.float32)
    others = np.array([[0, 0, 2, 2], [0, 1, 2, 3], [4, 0, 6, 2], [0, 0, 0, 0]], np.float32)
    # IoU less the part of the hull that is empty; a point has neither.
    expected = [[1, 1 / 3, -2 / 6, 0]]
    np.testing.assert_allclose(box_ops.giou(boxes, others), expected, rtol=1e-6)
    np.testing.assert_allclose(box_ops.matched_giou(boxes, others), expected[0], rtol=1e-6)
    np.testing.assert_allclose(box_ops.matched_iou(boxes, others), [1, 1 / 3, 0, 0], rtol=1e-6)
    np.testing.assert_array_equal(box_ops.giou(others[3:], others[3:]), [[0]])


def test_clip_and_change_frame_have_a_window_an_image():
    boxes = np.array([[[0, 0, 1, 1]], [[0.25, 0.5, 0.75, 2]]], np.float32)
    windows = np.array([[0.2, 0.4, 0.6, 0.8], [0, 0.5, 0.5, 1]], np.float32)
    expected = np.array([[[0.2, 0.4, 0.6, 0.8]], [[0.25, 0.5, 0.5, 1]]], np.float32)
    np.testing.assert_array_equal(box_ops.clip(boxes, windows), expected)
    framed = box_ops.change_frame(expected, windows)
    np.testing.assert_allclose(framed, [[[0, 0, 1, 1]], [[0.5, 0, 1, 1]]], atol=1e-6)


def test_clip_puts_what_is_outside_on_the_edge():
    clipped = box_ops.clip(
        np.array([[3, -2, 4, -1]], np.float32), np.array([0, 0, 1, 1], np.float32)
    )
    np.testing.assert_array_equal(clipped, [[1, 0, 1, 0]])
    np.testing.assert_array_equal(box_ops.area(clipped), [0])


@pytest.mark.parametrize('sides', [(10, 20), ([10, 5], [20, 40])], ids=['scalar', 'per_image'])
def test_normalized_and_absolute_are_inverse(sides):
    boxes = _random_boxes(2, [2, 3])
    absolute = box_ops.normalized_to_absolute(boxes, *sides)
    height, width = (np.broadcast_to(side, [2]) for side in sides)
    np.testing.assert_allclose(absolute[1, 2, 2], boxes[1, 2, 2] * height[1])
    np.testing.assert_allclose(absolute[1, 2, 1], boxes[1, 2, 1] * width[1])
    back = box_ops.absolute_to_normalized(absolute, *sides)
    np.testing.assert_allclose(back, boxes, rtol=1e-6)


def test_corners_and_center_size_are_inverse():
    np.testing.assert_array_equal(
        box_ops.corners_to_center_size(tf.constant([[1.0, 2, 5, 4]])), [[3, 3, 4, 2]]
    )
    boxes = _random_boxes(3, [2, 3])
    back = box_ops.center_size_to_corners(box_ops.corners_to_center_size(boxes))
    np.testing.assert_allclose(back, boxes, atol=1e-6)


def test_unknown_dimensions_and_no_boxes():
    spec = tf.TensorSpec([None, None, 4])
    traced = tf.function(box_ops.iou, input_signature=[spec, spec])
    boxes, others = _random_boxes(0, [2, 5]), _random_boxes(1, [2, 6])
    np.testing.assert_allclose(traced(boxes, others), box_ops.iou(boxes, others), rtol=1e-6)
    assert traced(boxes[:, :0], others).shape == [2, 0, 6]


def _area_and_center_size(boxes):
    y, x, height, width = np.moveaxis(box_ops.corners_to_center_size(boxes).numpy(), -1, 0)
    return {
        'area': box_ops.area(boxes),
        'height_width.0': height,
        'height_width.1': width,
        'center_size.0': y,
        'center_size.1': x,
        'center_size.2': height,
        'center_size.3': width,
    }


def _resized(boxes, y_scale, x_scale):
    sizes = box_ops.corners_to_center_size(boxes) * [1, 1, y_scale, x_scale]
    return {'boxes': box_ops.center_size_to_corners(sizes)}


def _suppressed(boxes, scores, thresh, max_output_size):
    selection = nms.non_max_suppression(
        boxes[np.newaxis],
        scores[np.newaxis],
        max_outputs=max_output_size,
        iou_threshold=thresh,
        score_threshold=-np.inf,
    )
    assert selection.is_valid.numpy().all()
    rows = selection.indices[0].numpy()
    return {'boxes': boxes[rows], 'scores': scores[rows]}


def _clipped(boxes, scores, window):
    return {'boxes': box_ops.clip(boxes, window), 'scores': scores}


def _clipped_with_area(boxes, scores, window):
    clipped = box_ops.clip(boxes, window)
    has_area = box_ops.area(clipped) > 0
    return {'boxes': clipped[has_area], 'scores': scores[has_area]}


def _inside(boxes, window):
    rows = np.flatnonzero(box_ops.is_inside(boxes, window))
    return {'boxes': boxes[rows], 'indices': rows}


def test_a_box_on_the_border_of_the_window_is_inside():
    window = tf.constant([0.0, 0.0, 10.0, 20.0])
    boxes = tf.constant([[0.0, 0, 10, 20], [0, 0, 10, 21], [0, 0, 11, 20], [-1, 0, 10, 20]])
    assert box_ops.is_inside(boxes, window).numpy().tolist() == [True, False, False, False]


# Case -> the call that gives its outputs.
BOX_LIST_CASES = {
    'clip_to_window_filter_False': _clipped,
    'clip_to_window_filter_True': _clipped_with_area,
    'change_coordinate_frame': lambda boxes, window: {'boxes': box_ops.change_frame(boxes, window)},
    'scale': lambda boxes, y_scale, x_scale: {
        'boxes': box_ops.normalized_to_absolute(boxes, y_scale, x_scale)
    },
    'scale_height_width': _resized,
    'area_hw': _area_and_center_size,
    'to_normalized': lambda boxes, height, width: {
        'boxes': box_ops.absolute_to_normalized(boxes, height, width)
    },
    'to_absolute': lambda boxes, height, width: {
        'boxes': box_ops.normalized_to_absolute(boxes, height, width)
    },
    'nms': _suppressed,
    'prune_outside_window': _inside,
}


@goldens.rows('box_list_ops', names=tuple(BOX_LIST_CASES))
def test_golden_box_list_ops(case_name):
    case = goldens.load('box_list_ops', case_name)
    actual = BOX_LIST_CASES[case_name](**case.inputs, **case.params)
    assert actual.keys() == case.outputs.keys()
    for key, value in actual.items():
        np.testing.assert_allclose(value, case.outputs[key], rtol=1e-5, atol=1e-6, err_msg=key)


@goldens.parametrize('nms', names=('batch_iou',))
def test_golden_pairs_of_a_batch(case_name):
    case = goldens.load('nms', case_name)
    actual = box_ops.iou(*case.inputs.values()).numpy()
    expected = case.outputs['iou']
    # The reference has -1 for padding, boxes without any positive coordinate; here it is 0.
    np.testing.assert_array_equal(actual[expected < 0], 0)
    np.testing.assert_allclose(actual, np.maximum(expected, 0), rtol=1e-5, atol=1e-7)


@goldens.parametrize('ops', names=('normalized_to_image_coordinates',))
def test_golden_image_coordinates(case_name):
    case = goldens.load('ops', case_name)
    _, height, width, _ = case.params['image_shape']
    actual = box_ops.normalized_to_absolute(case.inputs['boxes'], height, width)
    np.testing.assert_allclose(actual, case.outputs['boxes'], rtol=1e-5)


@goldens.parametrize('similarity', names=('matched',))
def test_golden_matched_pairs(case_name):
    case = goldens.load('similarity', case_name)
    boxes, others = case.inputs['boxes1'], case.inputs['boxes2']
    pairs = boxes[:, np.newaxis], others[:, np.newaxis]
    actual = {
        'matched_iou': box_ops.matched_iou(boxes, others),
        'matched_intersection': box_ops.intersection(*pairs)[:, 0, 0],
        'giou': box_ops.matched_giou(boxes, others),
    }
    for key, value in actual.items():
        np.testing.assert_allclose(value, case.outputs[key], rtol=1e-5, atol=1e-6, err_msg=key)
