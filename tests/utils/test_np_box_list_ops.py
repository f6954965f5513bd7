import numpy as np
import pytest
import tensorflow as tf
from pycocotools import mask as coco_masks

from object_detection.core import boxes as box_ops
from object_detection.errors import UserError
from object_detection.utils import np_box_list, np_box_list_ops, np_box_ops, np_mask_ops
from tests import goldens, rows


def recorded(case):
    boxes = np_box_list.BoxList(case.inputs.get('boxes', case.inputs.get('boxes1')))
    if 'scores' in case.inputs:
        boxes.add_field('scores', case.inputs['scores'])
    return case, boxes


def check(found, case):
    np.testing.assert_allclose(found.get(), case.outputs['boxes'], rtol=1e-6, atol=1e-7)
    if 'scores' in case.inputs:
        np.testing.assert_array_equal(found.get_field('scores'), case.outputs['scores'])


def random_boxes(count, seed):
    corners = np.sort(np.random.default_rng(seed).uniform(size=(count, 2, 2)), axis=1)
    return corners.reshape(count, 4).astype(np.float32)


@rows.parametrize('name', ['area', 'intersection', 'iou', 'ioa'])
def test_overlaps_equal_those_of_tensors(name):
    boxes = random_boxes(5, 0)
    others = np.concatenate([random_boxes(4, 1), [[0.5, 0.5, 0.5, 0.5]]]).astype(np.float32)
    arguments = (boxes,) if name == 'area' else (boxes, others)
    expected = getattr(box_ops, name)(*map(tf.constant, arguments))
    np.testing.assert_allclose(getattr(np_box_ops, name)(*arguments), expected, atol=1e-6)
    lists = [np_box_list.BoxList(each) for each in arguments]
    np.testing.assert_allclose(getattr(np_box_list_ops, name)(*lists), expected, atol=1e-6)


def test_masks_overlap_as_in_pycocotools():
    masks = (np.random.default_rng(0).uniform(size=(5, 6, 7)) > 0.5).astype(np.uint8)
    masks[4] = 0
    first, second = masks[:2], masks[2:]
    runs = [
        coco_masks.encode(np.asfortranarray(each.transpose(1, 2, 0))) for each in (first, second)
    ]
    expected = coco_masks.iou(*runs, [0] * 3)
    np.testing.assert_allclose(np_mask_ops.iou(first, second), expected, rtol=1e-6)
    # Relative to the area of the first argument, as crowds are in pycocotools.
    share = coco_masks.iou(runs[1], runs[0], [1] * 2)
    share[2] = 0  # Of an empty mask, where pycocotools divides by 0.
    np.testing.assert_allclose(np_mask_ops.ioa(first, second), share.T, rtol=1e-6)
    with pytest.raises(UserError, match='uint8'):
        np_mask_ops.area(masks.astype(bool))


def test_boxes_move_as_in_the_reference():
    case, boxes = recorded(goldens.load('box_list_ops', 'change_coordinate_frame'))
    check(np_box_list_ops.change_coordinate_frame(boxes, case.inputs['window']), case)
    case, boxes = recorded(goldens.load('box_list_ops', 'scale'))
    check(np_box_list_ops.scale(boxes, case.params['y_scale'], case.params['x_scale']), case)


@goldens.rows('box_list_ops', names=('clip_to_window_filter_True', 'clip_to_window_filter_False'))
def test_boxes_are_clipped_as_in_the_reference(case_name):
    case, boxes = recorded(goldens.load('box_list_ops', case_name))
    drops = case_name.endswith('True')
    check(np_box_list_ops.clip_to_window(boxes, case.inputs['window'], drops), case)


def test_boxes_are_left_out_as_in_the_reference():
    case, boxes = recorded(goldens.load('box_list_ops', 'prune_outside_window'))
    found, indices = np_box_list_ops.prune_outside_window(boxes, case.inputs['window'])
    check(found, case)
    np.testing.assert_array_equal(indices, case.outputs['indices'])
    case, boxes = recorded(goldens.load('box_list_ops', 'prune_non_overlapping_boxes'))
    others = np_box_list.BoxList(case.inputs['boxes2'])
    minimum = case.params['min_overlap']
    found = np_box_list_ops.prune_non_overlapping_boxes(boxes, others, minimum)
    check(found, case)
    np.testing.assert_array_equal(found.get(), boxes.get()[case.outputs['indices']])


def test_boxes_are_sorted_and_suppressed_as_in_the_reference():
    case, boxes = recorded(goldens.load('box_list_ops', 'sort_by_field'))
    check(np_box_list_ops.sort_by_field(boxes, 'scores'), case)
    ascending = np_box_list_ops.sort_by_field(boxes, 'scores', np_box_list_ops.SortOrder.ASCEND)
    assert (np.diff(ascending.get_field('scores')) >= 0).all()
    case, boxes = recorded(goldens.load('box_list_ops', 'nms'))
    kept = np_box_list_ops.non_max_suppression(
        boxes, case.params['max_output_size'], case.params['thresh']
    )
    check(kept, case)


def test_classes_are_suppressed_one_by_one():
    boxes = np_box_list.BoxList(np.array([[0, 0, 1, 1], [0, 0, 1, 0.9], [0, 2, 1, 3.0]]))
    boxes.add_field('scores', np.array([[0.9, 0.3], [0.8, 0.4], [0.1, 0.7]]))
    found = np_box_list_ops.multi_class_non_max_suppression(boxes, 0.2, 0.5, 2)
    np.testing.assert_array_equal(found.get_field('scores'), [0.9, 0.7, 0.4])
    np.testing.assert_array_equal(found.get_field('classes'), [0, 1, 1])
    both = np_box_list_ops.concatenate([found, found], fields=['classes'])
    assert (both.num_boxes(), both.get_extra_fields()) == (6, ['classes'])
    high = np_box_list_ops.filter_scores_greater_than(found, 0.4)
    assert high.num_boxes() == 2


def test_a_box_list_checks_its_rows():
    boxes = np_box_list.BoxList(np.array([[0.0, 0, 1, 2]]))
    boxes.add_field('classes', np.array([3]))
    assert [float(each[0]) for each in boxes.get_coordinates()] == [0, 0, 1, 2]
    assert boxes.has_field('classes')
    with pytest.raises(UserError, match='exists'):
        boxes.add_field('classes', np.array([3]))
    with pytest.raises(UserError, match='1 rows'):
        boxes.add_field('scores', np.array([3, 4]))
    with pytest.raises(UserError, match='scores'):
        boxes.get_field('scores')
    for wrong in (np.zeros([1, 4], int), np.zeros([4]), np.array([[1.0, 0, 0, 1]])):
        with pytest.raises(UserError, match='BoxList: expected'):
            np_box_list.BoxList(wrong)
