"""Masks and DensePose have the reference's targets and detections."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import divide
from object_detection.meta_architectures.center_net import heat_maps
from object_detection.meta_architectures.center_net.center_net import make_cells
from object_detection.meta_architectures.center_net.heat_maps import Peaks
from object_detection.meta_architectures.center_net.tasks.densepose import SURFACES, DensePose
from object_detection.meta_architectures.center_net.tasks.masks import Masks
from object_detection.meta_architectures.center_net.tasks.task import Found, Head
from tests import goldens, slow_cases


def mask_task(num_classes=3, *, loss=None, size=(20, 24), densepose=None):
    return Masks(
        head=Head(num_classes),
        loss=loss,
        weight=1.0,
        mask_size=size,
        score_threshold=0.5,
        densepose=densepose,
    )


def densepose_task(num_parts=4, class_index=1, *, losses=(None, None), at_input_size=False):
    return DensePose(
        part_head=Head(num_parts),
        surface_head=Head(2 * num_parts),
        class_index=class_index,
        part_loss=losses[0],
        surface_loss=losses[1],
        part_weight=1.0,
        surface_weight=1.0,
        at_input_size=at_input_size,
    )


def cells_of(truth, height, width, stride=4):
    shapes = tf.constant([[height, width, 3]] * truth.boxes.shape[0])
    return make_cells(truth, (height // stride, width // stride), shapes, stride)


def lists(inputs, name):
    return [inputs[key] for key in sorted(inputs) if key.startswith(f'{name}.')]


@goldens.parametrize('centernet_targets', prefix='mask_')
def test_class_maps(case_name):
    case = goldens.load('centernet_targets', case_name)
    inputs, params = case.inputs, case.params
    masks, classes = lists(inputs, 'gt_masks'), lists(inputs, 'gt_classes')
    boxes = lists(inputs, 'gt_boxes') or [np.zeros([4, 4], np.float32)] * len(masks)
    cells = cells_of(
        Groundtruth.from_lists(boxes, classes, masks=masks), params['height'], params['width']
    )
    expected = case.outputs['segmentation_targets']
    if params.get('mask_resize_method') == 'nearest':
        # No config leads to it; how masks of a class are merged is the same.
        for rows, of_rows, wanted in zip(masks, classes, expected, strict=True):
            small = tf.image.resize(rows[..., None], cells.size, 'nearest')[..., 0]
            values = tf.cast(small, tf.float32) * of_rows.max(-1)[:, None, None]
            found = heat_maps.highest_of_channel(values, of_rows.argmax(-1), 3)
            np.testing.assert_array_equal(found, wanted)
    else:
        found = mask_task().targets(cells)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    weights = case.outputs['segmentation_weight']
    if 'gt_mask_weights.0' not in inputs:
        np.testing.assert_array_equal(mask_task().learnt_cells(cells)[..., 0], weights)
        return
    hidden = tf.constant(np.stack(lists(inputs, 'gt_mask_weights')) <= 0)[..., tf.newaxis]
    scale = params.get('boxes_scale', 1.0)
    found = heat_maps.cells_outside(cells.boxes, hidden, cells.size, scale)
    np.testing.assert_array_equal(found[..., 0], weights)


def test_boxes_of_objects_without_masks_are_enlarged():
    truth = Groundtruth.from_lists([[[0.2, 0.2, 0.8, 0.8]]], [[[1]]], mask_weights=[[0.0]])
    weights = mask_task(1).learnt_cells(cells_of(truth, 160, 160))[0, ..., 0].numpy()
    # Rows 8 to 32 of 40, enlarged by 5 %: from 7.4 to 32.6.
    expected = np.ones([40, 40])
    expected[8:33, 8:33] = 0
    np.testing.assert_array_equal(weights, expected)


def test_crops_give_the_maps_of_whole_masks():
    # Boxes of whole pixels, and ellipses inside of them.
    height, width = 96, 128
    pixels = np.array([[8, 16, 71, 95], [30, 4, 90, 60]], np.float32)
    y, x = np.mgrid[:height, :width]
    masks = []
    for top, left, bottom, right in pixels:
        ry, rx = (bottom - top) / 2, (right - left) / 2
        masks.append(((y - top - ry) / ry) ** 2 + ((x - left - rx) / rx) ** 2 <= 1)
    masks = np.stack(masks).astype(np.float32)
    boxes = pixels / np.array([height - 1, width - 1] * 2, np.float32)
    classes = np.eye(2, dtype=np.float32)
    whole = Groundtruth.from_lists([boxes], [classes], masks=[masks])
    crops = tf.image.crop_and_resize(masks[..., None], boxes, [0, 1], (112, 112))[..., 0]
    cropped = whole._replace(masks=crops[tf.newaxis], masks_are_crops=True)
    task = mask_task(2)
    expected = task.targets(cells_of(whole, height, width)).numpy()
    found = task.targets(cells_of(cropped, height, width)).numpy()
    assert found.shape == expected.shape == (1, 24, 32, 2)
    # Cells on the outline may differ, as the crop blurs it.
    assert np.mean(np.abs(found - expected)) < 0.01
    is_plain = (expected == 0) | (expected == 1)
    assert np.mean((found > 0.5) == (expected > 0.5)) > 0.99
    assert np.mean(np.abs(found - expected)[is_plain]) < 0.005


def test_the_mask_loss_is_a_mean_over_the_cells_that_learn():
    def loss(logits, targets, weights):
        return tf.abs(logits - targets) * weights

    masks = np.zeros([1, 16, 16], np.float32)
    masks[0, :8] = 1
    truth = Groundtruth.from_lists(
        [[[0, 0, 0.5, 1.0]]], [[[0, 1]]], masks=[masks], mask_weights=[[1.0]]
    )
    task, cells = mask_task(2, loss=loss), cells_of(truth, 16, 16)
    # Of 16 cells, 8 are of class 1: each class misses by 1 in half of the cells, for two stacks.
    stacks = {'segmentation/heatmap': [tf.ones([1, 4, 4, 2]), tf.zeros([1, 4, 4, 2])]}
    losses = divide(task.loss_sums(stacks, cells))
    assert list(losses) == list(task.loss_names)
    # Ones miss class 0 in all cells and class 1 in half of them; zeros miss class 1 in half.
    np.testing.assert_allclose(losses['Loss/segmentation/heatmap'], (1.5 + 0.5) / 2, rtol=1e-6)
    hidden = truth._replace(fields={'groundtruth_instance_mask_weights': tf.zeros([1, 1])})
    losses = divide(task.loss_sums(stacks, cells_of(hidden, 16, 16)))
    # The box, enlarged, covers the upper 9 of 16 rows, of which cells are hidden by their corner:
    # two rows of cells, and the third one, which begins at 8 of 8.2.
    np.testing.assert_allclose(losses['Loss/segmentation/heatmap'], (1 + 1 + 0 + 0) / 2, rtol=1e-6)


def test_masks_need_their_ground_truth():
    truth = Groundtruth.from_lists([[[0, 0, 1, 1]]], [[[1, 0, 0]]])
    with pytest.raises(ValueError, match='load_instance_masks of the input readers'):
        mask_task().targets(cells_of(truth, 16, 16))


def found_of(inputs, stride):
    classes = tf.constant(inputs['classes'])
    shapes = tf.constant(inputs['true_image_shapes'])
    sizes = np.tile(inputs['true_image_shapes'][:, :2] / stride, 2)[:, None]
    boxes = tf.constant(inputs['boxes'] * sizes.astype(np.float32))
    nothing = tf.zeros_like(classes)
    return Found(Peaks(tf.ones_like(boxes[..., 0]), nothing, nothing, classes), boxes, shapes, 4)


@goldens.parametrize('centernet_postprocess', names=('instance_masks', 'instance_masks_densepose'))
@slow_cases.parametrize(1, 'is_compiled', [True, False])
def test_masks_of_detections(case_name, is_compiled):
    case = goldens.load('centernet_postprocess', case_name)
    inputs = case.inputs
    logits = np.log(inputs['masks']) - np.log1p(-inputs['masks'])
    maps = {'segmentation/heatmap': tf.constant(logits)}
    densepose = None
    if 'part_heatmap' in inputs:
        maps['densepose/heatmap'] = tf.constant(inputs['part_heatmap'])
        maps['densepose/regression'] = tf.constant(inputs['surface_coords'])
        densepose = densepose_task(class_index=case.params['densepose_class_index'])
    size = case.params['mask_height'], case.params['mask_width']
    task = mask_task(size=size, densepose=densepose)
    detect = tf.function(task.detect, jit_compile=True) if is_compiled else task.detect
    found = detect(maps, found_of(inputs, case.params['stride']))
    expected = case.outputs['masks']
    # A pixel may be at the threshold, and scores pass through a logarithm here.
    assert np.mean(found[DetectionFields.MASKS].numpy() != expected) < 1e-3
    if densepose is not None:
        differ = np.abs(found[SURFACES] - case.outputs['surface_coords']) > 1e-5
        assert np.mean(differ) < 1e-3
        assert np.any(case.outputs['surface_coords'])
    else:
        assert SURFACES not in found


@goldens.parametrize('centernet_targets', names=('densepose',))
def test_surface_points(case_name):
    case = goldens.load('centernet_targets', case_name)
    inputs, outputs = case.inputs, case.outputs
    boxes = [np.zeros([4, 4], np.float32)] * 2
    truth = Groundtruth.from_lists(
        boxes,
        [np.ones([4, 1], np.float32)] * 2,
        lists(inputs, 'gt_weights'),
        dp_num_points=lists(inputs, 'num_points'),
        dp_part_ids=lists(inputs, 'part_ids'),
        dp_surface_coords=lists(inputs, 'surface_coords'),
    )
    cells = cells_of(truth, case.params['height'], case.params['width'])
    points = densepose_task(24).targets(cells)
    np.testing.assert_array_equal(np.reshape(points.weights, -1), outputs['batch_weights'])
    has_weight = outputs['batch_weights'] > 0
    indices = np.concatenate(
        [np.reshape(points.cells, [-1, 2]), np.reshape(points.parts, [-1, 1])], axis=1
    )
    expected = outputs['batch_indices'][:, 1:]
    np.testing.assert_array_equal(indices[has_weight], expected[has_weight])
    one_hot = tf.one_hot(tf.reshape(points.parts, [-1]), 24)
    np.testing.assert_array_equal(one_hot[has_weight], outputs['batch_part_ids'][has_weight])
    found = np.reshape(points.coordinates, [-1, 2])
    np.testing.assert_allclose(
        found[has_weight], outputs['batch_surface_coords'][has_weight], rtol=1e-6
    )


def test_points_are_compared_with_enlarged_maps():
    """Only the values at the points are interpolated; they are those of the enlarged maps."""

    def part_loss(logits, targets, weights):
        return tf.reduce_sum(tf.square(logits - targets) * weights, axis=-1)

    def surface_loss(values, targets, weights):
        return tf.reduce_sum(tf.abs(values - targets), axis=-1) * weights

    generator = np.random.default_rng(7)
    maps = {
        'densepose/heatmap': [generator.normal(size=[2, 4, 6, 3]).astype(np.float32)],
        'densepose/regression': [generator.normal(size=[2, 4, 6, 6]).astype(np.float32)],
    }
    points = generator.uniform(size=[2, 2, 5, 4]).astype(np.float32)
    points[0, 0, 0, :2], points[0, 0, 1, :2] = 0.0, 0.999
    parts = generator.integers(3, size=[2, 2, 5])
    counts, weights = np.array([[5, 3], [0, 2]]), np.array([[1, 0.5], [1, 0]], np.float32)
    truth = Groundtruth.from_lists(
        np.zeros([2, 2, 4]),
        np.ones([2, 2, 1]),
        weights,
        dp_num_points=counts,
        dp_part_ids=parts,
        dp_surface_coords=points,
    )
    task = densepose_task(3, 0, losses=(part_loss, surface_loss), at_input_size=True)
    cells = cells_of(truth, 16, 24)
    losses = divide(
        task.loss_sums({name: [tf.constant(each[0])] for name, each in maps.items()}, cells)
    )
    large = {name: tf.image.resize(each[0], [16, 24]).numpy() for name, each in maps.items()}
    expected, number = [0.0, 0.0], 0
    for image, row, point in np.ndindex(2, 2, 5):
        weight = weights[image, row] * (point < counts[image, row])
        y, x = (points[image, row, point, :2] * [16, 24]).astype(int)
        part = parts[image, row, point]
        logits = large['densepose/heatmap'][image, y, x]
        expected[0] += weight * np.sum((logits - np.eye(3)[part]) ** 2)
        coordinates = large['densepose/regression'][image, y, x].reshape(3, 2)[part]
        expected[1] += weight * np.sum(np.abs(coordinates - points[image, row, point, 2:]))
        number += weight > 0
    assert number == 8
    for name, value in zip(task.loss_names, expected, strict=True):
        np.testing.assert_allclose(losses[name], value / number, rtol=1e-5)
