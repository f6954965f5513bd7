"""Heat maps have the reference's targets and peaks."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import divide
from object_detection.meta_architectures.center_net import heat_maps
from object_detection.meta_architectures.center_net.center_net import make_cells
from object_detection.meta_architectures.center_net.tasks.object_center import ObjectCenter
from object_detection.meta_architectures.center_net.tasks.task import Head, centers
from tests import goldens, rows, slow_cases


def truth_of(inputs) -> Groundtruth:
    """The ground truth of a case; without weights all objects have the weight 1."""

    def lists(name):
        found = [inputs[key] for key in sorted(inputs) if key.startswith(f'{name}.')]
        return found or None

    further = {
        name: lists(f'gt_{name}')
        for name in ('keypoint_weights', 'keypoint_depths', 'keypoint_depth_weights')
        if lists(f'gt_{name}')
    }
    boxes = lists('gt_boxes') or [np.zeros([4, 4], np.float32)] * 2
    classes = lists('gt_classes') or [np.ones([len(rows), 1], np.float32) for rows in boxes]
    return Groundtruth.from_lists(
        boxes, classes, lists('gt_weights'), keypoints=lists('gt_keypoints'), **further
    )


def cells_of(case, **changes):
    params = case.params
    size = params['height'] // params['stride'], params['width'] // params['stride']
    shapes = tf.constant([[params['height'], params['width'], 3]] * 2)
    return make_cells(truth_of({**case.inputs, **changes}), size, shapes, params['stride'])


@goldens.parametrize('centernet_targets', prefix='max_distance_for_overlap')
def test_shift_of_boxes(case_name):
    case = goldens.load('centernet_targets', case_name)
    sizes = case.inputs['height'], case.inputs['width']
    found = heat_maps.max_shift(*sizes, case.params['min_iou'])
    # The difference of a square root of about 30 and a number near it.
    np.testing.assert_allclose(found, case.outputs['distance'], rtol=0, atol=2e-5)
    found = heat_maps.peak_widths(*sizes, case.params['min_iou'])
    np.testing.assert_allclose(found, case.outputs['std_dev'], rtol=1e-6)


@goldens.parametrize('centernet_targets', prefix='coordinates_to_heatmap')
def test_peaks_are_drawn(case_name):
    case = goldens.load('centernet_targets', case_name)
    inputs = case.inputs
    maps = heat_maps.draw_peaks(
        np.stack([inputs['y'], inputs['x']], axis=-1)[np.newaxis],
        inputs['sigma'][np.newaxis],
        inputs['channel_onehot'].argmax(axis=-1).astype(np.int32)[np.newaxis],
        inputs['channel_weights'][np.newaxis],
        num_channels=3,
        size=(case.params['height'], case.params['width']),
    )
    np.testing.assert_allclose(maps[0], case.outputs['heatmap'], rtol=0, atol=2e-7)


@goldens.parametrize(
    'centernet_targets',
    names=tuple(
        f'center_mo{overlap}_sparse{sparse}_adaptive_gaussian_exp1.0_{weights}'
        for overlap, sparse in (('0.7', 0), ('0.3', 0), ('0.7', 1))
        for weights in ('w', 'now')
    ),
)
def test_centers(case_name):
    case = goldens.load('centernet_targets', case_name)
    task = ObjectCenter(head=Head(3), loss=None, weight=1.0, min_overlap=case.params['min_overlap'])
    maps = task.targets(cells_of(case))
    np.testing.assert_allclose(maps, case.outputs['heatmap'], rtol=0, atol=2e-7)


def test_classes_that_an_image_was_not_searched_for_are_not_learnt():
    def loss(logits, targets, weights):
        return (logits - targets) * weights

    truth = Groundtruth.from_lists(
        [np.zeros([0, 4], np.float32)] * 2,
        [np.zeros([0, 3], np.float32)] * 2,
        image_classes=[[1, 0, 0], [1, 1, 1]],
        verified_neg_classes=[[0, 1, 0], [0, 0, 0]],
    )
    cells = make_cells(truth, (2, 2), tf.constant([[8, 8, 3], [8, 4, 3]]), 4)
    task = ObjectCenter(head=Head(3), loss=loss, weight=1.0, min_overlap=0.7, only_labeled=True)
    logits = tf.constant([1.0, 10.0, 100.0]) * tf.ones([2, 2, 2, 1])
    # Four cells of two classes, and two cells of all of them.
    (value,) = divide(task.loss_sums({'object_center': [logits]}, cells)).values()
    assert value == 4 * 11 + 2 * 111
    cells = cells._replace(groundtruth=truth._replace(fields={}))
    with pytest.raises(ValueError, match='load_image_labels of the input readers'):
        divide(task.loss_sums({'object_center': [logits]}, cells))


def test_a_channel_without_objects_is_zero():
    maps = heat_maps.draw_peaks(
        tf.zeros([1, 0, 2]),
        tf.zeros([1, 0]),
        tf.zeros([1, 0], tf.int32),
        tf.zeros([1, 0]),
        num_channels=2,
        size=(3, 4),
    )
    assert maps.shape == (1, 3, 4, 2)
    assert not np.any(maps)


@goldens.parametrize('centernet_targets', names=('size_offset_w', 'size_offset_now'))
def test_sizes_and_offsets(case_name):
    case = goldens.load('centernet_targets', case_name)
    cells = cells_of(case)
    points, sizes = centers(cells.boxes)
    flat = np.reshape(points, [-1, 2])
    np.testing.assert_array_equal(np.floor(flat), case.outputs['batch_indices'][:, 1:])
    np.testing.assert_array_equal(np.repeat([0, 1], 4), case.outputs['batch_indices'][:, 0])
    found = np.reshape(sizes, [-1, 2])
    np.testing.assert_allclose(found, case.outputs['batch_box_height_width'], rtol=1e-6)
    offsets = flat - np.floor(flat)
    np.testing.assert_allclose(offsets, case.outputs['batch_offsets'], rtol=0, atol=2e-6)
    weights = np.reshape(cells.groundtruth.weights, [-1])
    np.testing.assert_array_equal(weights, case.outputs['batch_weights'])


@goldens.parametrize('centernet_targets', names=('blackout_weights',))
def test_cells_in_boxes(case_name):
    case = goldens.load('centernet_targets', case_name)
    found = heat_maps.cells_outside(
        tf.constant(case.inputs['boxes'])[tf.newaxis],
        tf.constant(case.inputs['blackout'])[tf.newaxis, :, tf.newaxis],
        (case.params['height'], case.params['width']),
    )
    np.testing.assert_array_equal(found[0, ..., 0], case.outputs['weights'])


@goldens.parametrize('centernet_targets', names=('surrounding_grids',))
def test_neighbors(case_name):
    case = goldens.load('centernet_targets', case_name)
    points = tf.stack([case.inputs['y'], case.inputs['x']], axis=-1)
    size = case.params['height'], case.params['width']
    cells, is_valid = heat_maps.neighbors(points, case.params['radius'], size)
    np.testing.assert_array_equal(is_valid, case.outputs['valid'])
    np.testing.assert_array_equal(
        np.where(is_valid, cells[..., 0], 0), np.where(is_valid, case.outputs['y_indices'], 0)
    )
    np.testing.assert_array_equal(
        np.where(is_valid, cells[..., 1], 0), np.where(is_valid, case.outputs['x_indices'], 0)
    )


@goldens.parametrize('centernet_postprocess', prefix='topk')
def test_top_cells(case_name):
    case = goldens.load('centernet_postprocess', case_name)
    maps = heat_maps.find_peaks(
        tf.constant(case.inputs['feature_map']), case.params['max_pool_kernel_size']
    )
    found = heat_maps.top_cells(maps, case.params['k'], per_channel=case.params['per_channel'])
    for value, name in zip(found, ('scores', 'y', 'x', 'channel'), strict=True):
        np.testing.assert_array_equal(value, case.outputs[name], err_msg=name)


@rows.parametrize('per_channel', [False, True])
@slow_cases.parametrize(
    2,
    ('shape', 'count'),
    [((48, 64, 6), 7), ((5, 7, 2), 80), ((37, 41, 3), 9), ((5, 7, 2), 30), ((40, 40, 1), 1600)],
)
@rows.parametrize('mode', ['static', 'dynamic', 'compiled'])
def test_the_highest_cells_are_found_without_sorting_whole_maps(mode, shape, count, per_channel):
    generator = np.random.default_rng(2)
    # Few values, so that many are equal, and a map that is zero almost everywhere.
    maps = generator.integers(0, 40, size=[2, *shape]).astype(np.float32)
    maps[1] *= generator.uniform(size=shape) < 0.01

    def find(maps):
        return heat_maps.top_cells(maps, count, per_channel=per_channel)

    spec = tf.TensorSpec([2, *shape] if mode != 'dynamic' else [None, None, None, shape[2]])
    find = tf.function(find, input_signature=[spec], jit_compile=mode == 'compiled')
    found = find(maps)
    for image in range(2):
        if per_channel:
            rows = maps[image].reshape(-1, shape[2]).T
        else:
            rows = maps[image].reshape(1, -1)
        order = np.argsort(-rows, axis=1, kind='stable')[:, :count]
        scores = np.take_along_axis(rows, order, axis=1)
        # Where there are fewer, the last one is repeated without a score.
        missing = [(0, 0), (0, count - scores.shape[1])]
        scores = np.pad(scores, missing).ravel()
        order = np.pad(order, missing, constant_values=rows.shape[1] - 1)
        cells, channels = order.ravel(), np.repeat(np.arange(len(rows)), count)
        if not per_channel:
            cells, channels = cells // shape[2], cells % shape[2]
        expected = (scores, cells // shape[1], cells % shape[1], channels)
        for value, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(value[image], wanted)


@goldens.parametrize('centernet_postprocess', names=('valid_anchor_weights',))
def test_valid_cells(case_name):
    case = goldens.load('centernet_postprocess', case_name)
    size = case.params['height'], case.params['width']
    found = heat_maps.valid_cells(case.inputs['true_image_shapes'], size, 1)
    np.testing.assert_array_equal(np.reshape(found, [2, -1]), case.outputs['weights'])


def test_a_cell_that_the_true_image_covers_in_part_is_valid():
    found = heat_maps.valid_cells(tf.constant([[5, 8, 3]]), (3, 3), 4)
    assert found[0].numpy().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_cells_beyond_the_map_are_moved_to_its_edge():
    maps = tf.reshape(tf.range(6.0), [1, 2, 3, 1])
    rows, columns = tf.constant([[-1, 5, 1]]), tf.constant([[0, 1, 3]])
    found = heat_maps.gather_cells(maps, rows, columns)
    assert found[0, :, 0].numpy().tolist() == [0.0, 4.0, 5.0]
