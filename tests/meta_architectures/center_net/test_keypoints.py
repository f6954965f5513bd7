"""Keypoints have the reference's targets, and move to its candidates."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import DetectionFields
from object_detection.meta_architectures.center_net import heat_maps, rules
from object_detection.meta_architectures.center_net.heat_maps import Peaks
from object_detection.meta_architectures.center_net.tasks.box import STRIDED_BOXES, Box
from object_detection.meta_architectures.center_net.tasks.keypoints import (
    KEYPOINTS,
    SCORES,
    Keypoints,
    KeypointTasks,
    Layout,
    Learning,
)
from object_detection.meta_architectures.center_net.tasks.object_center import ObjectCenter
from object_detection.meta_architectures.center_net.tasks.snapping import (
    Ranking,
    Snapping,
    best_cells,
    snap,
)
from object_detection.meta_architectures.center_net.tasks.task import Found, Head
from object_detection.meta_architectures.center_net.tasks.tracking import TemporalOffset
from object_detection.protos import center_net_pb2
from tests import goldens, rows, slow_cases
from tests.meta_architectures.center_net.test_heat_maps import cells_of

FILE = 'centernet_postprocess'


def task_of(count=5, *, learning=None, snapping=None, **layout):
    """A task of `count` keypoints of class 0, whose heads have one offset for all of them."""
    options = {
        'name': 'pose',
        'class_index': 0,
        'indices': tuple(range(count)),
        'num_total': count,
        'deviations': (1.0,) * count,
    } | layout
    return Keypoints(
        layout=Layout(**options),
        heads={'heatmap': Head(count), 'offset': Head(2), 'regression': Head(2 * count)},
        learning=learning or Learning(heatmap_loss=None, loss=None, weights={}),
        snapping=snapping or Snapping(),
    )


def target_task(case):
    params = case.params
    count = len(params['keypoint_indices'])
    return task_of(
        count,
        class_index=params['class_id'],
        indices=tuple(params['keypoint_indices']),
        deviations=tuple(params['keypoint_std_dev'] or [1.0] * count),
    )


@goldens.parametrize(
    'centernet_targets',
    names=tuple(
        f'kp_heatmap_{kind}_boxes1'
        for kind in (
            'pko0_r0_std0_sp0',
            'pko1_r2_std1_sp0',
            'pko1_r1_std1_sp1',
            'pko0_r2_std0_sp0',
        )
    ),
)
def test_heat_maps(case_name):
    case = goldens.load('centernet_targets', case_name)
    task, cells = target_task(case), cells_of(case)
    targets = task.targets(cells)
    maps = task.heat_map_targets(cells, targets)
    np.testing.assert_allclose(maps, case.outputs['heatmap'], rtol=0, atol=2e-6)
    np.testing.assert_array_equal(task.learnt_cells(cells, targets), case.outputs['valid_mask'])
    counts = np.floor(targets.weights).sum(axis=1)
    np.testing.assert_array_equal(counts, case.outputs['num_instances_per_kp_type'])


@goldens.parametrize(
    'centernet_targets',
    names=tuple(
        f'kp_{part}_{kind}{boxes}'
        for kind in (
            'pko0_r0_std0_sp0',
            'pko1_r2_std1_sp0',
            'pko1_r1_std1_sp1',
            'pko0_r2_std0_sp0',
        )
        for part, boxes in (('offset', ''), ('regression', '_boxes1'), ('depth', ''))
    ),
)
def test_vectors(case_name):
    case = goldens.load('centernet_targets', case_name)
    task, cells = target_task(case), cells_of(case)
    targets = task.targets(cells)
    radius = case.params['peak_radius']
    if '_regression_' in case_name:
        found, name = task.regression_targets(cells, targets, radius), 'batch_offsets'
    elif '_depth_' in case_name:
        found, name = task.depth_targets(cells, targets, radius), 'batch_depths'
    else:
        found, name = task.offset_targets(cells, targets, radius), 'batch_offsets'
    weights = np.reshape(found.weights, [-1])
    recorded = case.outputs['batch_weights']
    np.testing.assert_array_equal(weights, recorded)
    # What has no weight is of no account: it may lie outside of the map.
    chosen = recorded > 0
    size = found.values.shape[-1]
    values = np.reshape(found.values, [-1, size])[chosen]
    np.testing.assert_allclose(values, case.outputs[name][chosen], rtol=0, atol=4e-6)
    points = np.reshape(found.cells, [-1, 2])[chosen]
    np.testing.assert_array_equal(points, case.outputs['batch_indices'][chosen, 1:3])


@goldens.parametrize('centernet_targets', names=('center_from_keypoints',))
def test_centres_of_keypoints(case_name):
    case = goldens.load('centernet_targets', case_name)
    params = case.params
    indices = tuple(params['keypoint_indices'])
    task = task_of(
        len(indices),
        class_index=params['keypoint_class_id'],
        indices=indices,
        center_weights=tuple(map(float, params['keypoint_weights_for_center'])),
    )
    centers = ObjectCenter(
        head=Head(3), loss=None, weight=1.0, min_overlap=0.7, points_of=task.object_points
    )
    cells = cells_of(case)
    np.testing.assert_allclose(centers.targets(cells), case.outputs['heatmap'], rtol=0, atol=2e-7)
    # The vectors to the keypoints begin at the same cells.
    vectors = task.regression_targets(cells, task.targets(cells), 0)
    np.testing.assert_array_equal(
        vectors.cells[:, :, 0, 0], np.floor(task.object_points(cells).points)
    )


def test_keypoints_need_their_ground_truth():
    case = goldens.load('centernet_targets', 'size_offset_w')
    with pytest.raises(ValueError, match='num_keypoints of the input readers'):
        task_of().targets(cells_of(case))


@goldens.parametrize(
    FILE, names=('candidates_shared_nodepth_pool1', 'candidates_shared_nodepth_pool3')
)
def test_candidates(case_name):
    check_candidates(goldens.load(FILE, case_name), Learning(None, None, {}))


@goldens.parametrize(FILE, prefix='candidates_', without=('candidates_shared_nodepth',))
def test_candidates_with_own_offsets_and_depths(case_name):
    case = goldens.load(FILE, case_name)
    learning = Learning(None, None, {}, predicts_depth='depths' in case.inputs)
    check_candidates(case, learning)


def check_candidates(case, learning):
    params = case.params
    task = task_of(
        learning=learning,
        snapping=Snapping(
            score_threshold=params['keypoint_score_threshold'],
            num_candidates=params['max_candidates'],
            peak_window=params['max_pool_kernel_size'],
        ),
    )
    scores = case.inputs['heatmap']
    maps = {
        'pose/keypoint/heatmap': tf.constant(np.log(scores) - np.log1p(-scores)),
        'pose/keypoint/offset': tf.constant(case.inputs['offsets']),
    }
    if learning.predicts_depth:
        maps['pose/keypoint/depth'] = tf.constant(case.inputs['depths'])
        task.parts['depth'] = 'pose/keypoint/depth'
    found = task.candidates(maps)
    # Scores pass through a logarithm and the logistic function here.
    np.testing.assert_allclose(found.scores, case.outputs['scores'], rtol=0, atol=1e-6)
    counts = np.sum(found.scores > params['keypoint_score_threshold'], axis=1)
    np.testing.assert_array_equal(counts, case.outputs['num'])
    is_peak = case.outputs['scores'] > 0
    np.testing.assert_allclose(
        found.points[is_peak], case.outputs['candidates'][is_peak], rtol=0, atol=2e-6
    )
    if learning.predicts_depth:
        np.testing.assert_allclose(
            found.depths[is_peak], case.outputs['depths'][is_peak], rtol=1e-6
        )


@goldens.parametrize(
    FILE,
    names=tuple(
        f'refine_{mode}_{boxes}'
        for boxes, modes in (
            ('boxes', ('min_distance', 'score_distance_ratio', 'score_scaled_distance_ratio')),
            ('boxes', ('gaussian_weighted',)),
            ('noboxes', ('min_distance', 'score_distance_ratio')),
        )
        for mode in modes
    ),
)
def test_keypoints_move_to_candidates(case_name):
    case = goldens.load(FILE, case_name)
    params, inputs = case.params, case.inputs
    options = Snapping(
        score_threshold=params['keypoint_score_threshold'],
        unmatched_score=params['unmatched_keypoint_score'],
        box_scale=params['box_scale'],
        search_scale=params['candidate_search_scale'],
        ranking=Ranking(params['candidate_ranking_mode']),
        distance_offset=params['score_distance_offset'],
        distance_multiplier=params['score_distance_multiplier'],
        deviations=tuple(params['keypoint_std_dev']),
    )
    found = snap(
        options,
        tf.constant(inputs['regressed']),
        tuple(tf.constant(inputs[name]) for name in ('candidates', 'scores', 'depths')),
        tf.constant(inputs['boxes']) if 'boxes' in inputs else None,
    )
    for value, name in zip(found, ('keypoints', 'scores', 'depths'), strict=True):
        if name == 'scores':
            # Those of gaussian_weighted are products with exponentials.
            np.testing.assert_allclose(value, case.outputs[name], rtol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(value, case.outputs[name], err_msg=name)


@goldens.parametrize(
    FILE,
    names=(
        'refine_score_scaled_distance_ratio_noboxes',
        'refine_gaussian_weighted_noboxes',
        'refine_bad_mode',
    ),
)
def test_rankings_that_need_boxes_are_refused_without(case_name):
    case = goldens.load(FILE, case_name)
    assert case.raises == 'ValueError'
    config = center_net_pb2.CenterNet()
    mode = case_name.removeprefix('refine_').removesuffix('_noboxes')
    config.keypoint_estimation_task.add(task_name='a', candidate_ranking_mode=mode)
    (problem,) = [each for each in rules.check(config) if 'candidate_ranking_mode' in each]
    assert mode in problem.rpartition('Received')[2]


@rows.parametrize(
    ('changes', 'is_right'),
    [
        ({'argmax_postprocessing': True}, False),
        ({'candidate_ranking_mode': 'gaussian_weighted_const'}, False),
        (
            {'candidate_ranking_mode': 'gaussian_weighted_const', 'argmax_postprocessing': True},
            True,
        ),
    ],
)
def test_argmax_postprocessing_has_a_ranking_of_its_own(changes, is_right):
    config = center_net_pb2.CenterNet()
    config.object_detection_task.SetInParent()
    config.keypoint_estimation_task.add(task_name='a', **changes)
    problems = [each for each in rules.check(config) if 'candidate_ranking_mode' in each]
    assert bool(problems) != is_right


@goldens.parametrize(FILE, names=('argmax_locations',))
def test_best_cell_of_each_channel(case_name):
    case = goldens.load(FILE, case_name)
    found = heat_maps.top_cells(tf.constant(case.inputs['feature_map']), 1, per_channel=True)
    for value, name in zip(found[1:], ('y', 'x', 'channel'), strict=True):
        np.testing.assert_array_equal(value, case.outputs[name], err_msg=name)


@goldens.parametrize(FILE, names=('single_instance_per', 'single_instance_shared'))
def test_one_candidate_of_each_keypoint(case_name):
    case = goldens.load(FILE, case_name)
    scores, offsets = case.inputs['heatmap'], case.inputs['offsets']
    task = task_of(snapping=Snapping(num_candidates=1, peak_window=1))
    logits = np.log(scores) - np.log1p(-scores)
    maps = {'pose/keypoint/heatmap': tf.constant(logits), 'pose/keypoint/offset': offsets}
    found = task.candidates(maps)
    if case_name == 'single_instance_per':
        np.testing.assert_allclose(found.points, case.outputs['candidates'], rtol=1e-6)
        np.testing.assert_allclose(found.scores, case.outputs['scores'], rtol=0, atol=1e-6)
        return
    # The reference needs offsets of each keypoint there.
    assert case.raises == 'InvalidArgumentError'
    for keypoint in range(5):
        cell = np.unravel_index(scores[0, ..., keypoint].argmax(), scores.shape[1:3])
        np.testing.assert_allclose(found.points[0, 0, keypoint], cell + offsets[0][cell], rtol=1e-6)


@slow_cases.parametrize(1, 'is_compiled', [True, False])
def test_best_cells_of_boxes(is_compiled):
    generator = np.random.default_rng(5)
    scores = generator.uniform(size=[2, 6, 8, 3]).astype(np.float32)
    regressed = generator.uniform(0, 6, size=[2, 4, 3, 2]).astype(np.float32)
    corners = generator.uniform(0, 3, size=[2, 4, 2]).astype(np.float32)
    boxes = np.concatenate([corners, corners + 3.2], axis=-1)
    # A box between two cells.
    boxes[1, 2] = [2.1, 2.1, 2.9, 2.9]
    options = Snapping(ranking=Ranking.GAUSSIAN_WEIGHTED_CONST, denominator_ratio=0.3)

    def compute(*arguments):
        return best_cells(options, *arguments)

    compute = tf.function(compute, jit_compile=True) if is_compiled else compute
    peaks = compute(*(tf.constant(each) for each in (regressed, scores, boxes)))
    y, x = np.mgrid[:6, :8]
    for image, number, keypoint in np.ndindex(2, 4, 3):
        point, box = regressed[image, number, keypoint], boxes[image, number]
        inside = (y >= box[0]) & (y < box[2]) & (x >= box[1]) & (x < box[3])
        gauss = np.exp(-((y - point[0]) ** 2 + (x - point[1]) ** 2) / (6 * 0.3))
        weighted = scores[image, ..., keypoint] * gauss * inside
        row, column = np.unravel_index(weighted.argmax(), weighted.shape)
        place = image, number * 3 + keypoint
        assert peaks.channels[place] == keypoint
        if not inside.any():
            assert peaks.scores[place] == 0
            continue
        assert (peaks.rows[place], peaks.columns[place]) == (row, column)
        np.testing.assert_allclose(
            peaks.scores[place], scores[image, row, column, keypoint], rtol=1e-6
        )


def test_argmax_postprocessing_takes_offsets_and_depths_of_the_best_cells():
    task = task_of(
        2,
        learning=Learning(None, None, {}, predicts_depth=True),
        snapping=Snapping(ranking=Ranking.GAUSSIAN_WEIGHTED_CONST, unmatched_score=0.25),
    )
    task.parts['depth'] = 'pose/keypoint/depth'
    logits = np.full([1, 6, 8, 2], -9, np.float32)
    logits[0, 2, 3, 0] = logits[0, 4, 5, 1] = 2
    maps = {
        'pose/keypoint/heatmap': tf.constant(logits),
        'pose/keypoint/offset': tf.fill([1, 6, 8, 2], 0.25),
        'pose/keypoint/regression': tf.zeros([1, 6, 8, 4]),
        'pose/keypoint/depth': tf.reshape(tf.range(48.0), [1, 6, 8, 1]),
    }
    peaks = Peaks(tf.ones([1, 2]), *(tf.constant([each]) for each in ([3, 3], [4, 4], [0, 0])))
    # The second box holds no cell.
    boxes = tf.constant([[[0.0, 0, 6, 8], [3.1, 3.1, 3.9, 3.9]]])
    found = Found(peaks, boxes, tf.constant([[24, 32, 3]]), 4)
    points, scores, depths = task.refine(maps, found)
    np.testing.assert_allclose(points[0, 0], [[2.25, 3.25], [4.25, 5.25]])
    np.testing.assert_allclose(points[0, 1], [[3, 4], [3, 4]])
    np.testing.assert_allclose(scores[0], [[1 / (1 + np.exp(-2))] * 2, [0.25] * 2], rtol=1e-6)
    np.testing.assert_allclose(depths[0], [[19, 37], [0, 0]])


def test_boxes_enclose_keypoints_where_none_are_predicted():
    task = task_of(2, indices=(1, 2), num_total=3)
    points = tf.constant([[[[1.0, 2.0], [3.0, 0.5]], [[2.0, 1.0], [1.0, 9.0]]]])
    task.refine = lambda maps, found: (points, tf.ones([1, 2, 2]), None)
    peaks = Peaks(tf.ones([1, 2]), *[tf.zeros([1, 2], tf.int32)] * 2, tf.constant([[0, 0]]))
    found = Found(peaks, None, tf.constant([[16, 16, 3]]), 4)
    boxes = KeypointTasks([task]).detect({}, found)[DetectionFields.BOXES]
    np.testing.assert_allclose(boxes[0], [[0.25, 0.125, 0.75, 0.5], [0.25, 0.25, 0.5, 1.0]])


def found_of(inputs, **changes):
    peaks = Peaks(
        scores=tf.ones([2, 7]),
        rows=tf.constant(inputs['y']) if 'y' in inputs else tf.zeros([2, 7], tf.int32),
        columns=tf.constant(inputs['x']) if 'x' in inputs else tf.zeros([2, 7], tf.int32),
        channels=tf.zeros([2, 7], tf.int32),
    )
    shapes = inputs.get('true_image_shapes', np.array([[48, 60, 3]] * 2))
    return Found(peaks, None, tf.constant(shapes), 4)._replace(**changes)


@goldens.parametrize(FILE, prefix='normalized_keypoints')
def test_keypoints_of_the_true_image(case_name):
    case = goldens.load(FILE, case_name)
    clips = case.params['clip_out_of_frame_keypoints']
    task = task_of(snapping=Snapping(clips=clips))
    task.refine = lambda maps, found: (
        tf.constant(case.inputs['keypoints']),
        tf.constant(case.inputs['scores']),
        None,
    )
    detected = task.detect({}, found_of(case.inputs))
    np.testing.assert_allclose(detected[KEYPOINTS], case.outputs['keypoints'], rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(detected[SCORES], case.outputs['scores'])


@goldens.parametrize(FILE, names=('pad_full_keypoints',))
def test_positions_among_all_keypoints(case_name):
    case = goldens.load(FILE, case_name)
    task = task_of(
        3, indices=tuple(case.params['keypoint_inds']), num_total=case.params['num_total_keypoints']
    )
    task.refine = lambda maps, found: (
        tf.constant(case.inputs['coords']),
        tf.constant(case.inputs['scores']),
        None,
    )
    # A true image of one cell leaves the coordinates as they are.
    shapes = tf.constant([[4, 4, 3]] * 2)
    detected = task.detect({}, found_of({})._replace(true_shapes=shapes))
    np.testing.assert_array_equal(detected[KEYPOINTS], case.outputs['coords'])
    np.testing.assert_array_equal(detected[SCORES], case.outputs['scores'])


@goldens.parametrize(FILE, names=('regressed',))
def test_vectors_from_the_centres(case_name):
    case = goldens.load(FILE, case_name)
    maps = {'pose/keypoint/regression': tf.constant(case.inputs['regression'])}
    found = task_of().regressed(maps, found_of(case.inputs))
    np.testing.assert_allclose(np.reshape(found, [2, 7, 10]), case.outputs['keypoints'], rtol=1e-6)


def test_detections_of_other_classes_have_no_keypoints():
    tasks = []
    for index, positions in enumerate([(0,), (1, 2)]):
        task = task_of(len(positions), class_index=index, indices=positions, num_total=3)
        shape = [1, 2, len(positions)]
        task.refine = lambda maps, found, shape=shape: (
            tf.ones([*shape, 2]),
            tf.fill(shape, 0.5),
            None,
        )
        tasks.append(task)
    peaks = Peaks(tf.ones([1, 2]), *[tf.zeros([1, 2], tf.int32)] * 2, tf.constant([[1, 0]]))
    found = Found(peaks, None, tf.constant([[8, 4, 3]]), 4)
    detected = KeypointTasks(tasks).detect({}, found)
    assert detected[SCORES].numpy().tolist() == [[[0, 0.5, 0.5], [0.5, 0, 0]]]
    # The true image has 2 x 1 cells.
    assert detected[KEYPOINTS].numpy()[0, 1].tolist() == [[0.5, 1.0], [0.0, 0.0], [0.0, 0.0]]
    assert detected[DetectionFields.SCORES].numpy().tolist() == [[1.0, 1.0]]


@goldens.parametrize(FILE, names=('boxes', 'normalized_boxes'))
def test_boxes(case_name):
    case = goldens.load(FILE, case_name)
    task = Box(scale_head=Head(2), offset_head=Head(2), loss=None, scale_weight=1, offset_weight=1)
    if case_name == 'boxes':
        maps = {
            'box/scale': tf.constant(case.inputs['height_width']),
            'box/offset': tf.constant(case.inputs['offset']),
        }
        boxes = task.strided_boxes(maps, found_of(case.inputs))
    else:
        found = found_of(case.inputs, boxes=tf.constant(case.inputs['boxes']))
        boxes = task.detect({}, found)[DetectionFields.BOXES]
        assert STRIDED_BOXES in task.detect({}, found)
    np.testing.assert_allclose(boxes, case.outputs['boxes'], rtol=1e-6, atol=1e-6)


@goldens.parametrize(FILE, names=('temporal_offsets',))
def test_movements(case_name):
    case = goldens.load(FILE, case_name)
    task = TemporalOffset(head=Head(2), loss=None, weight=1)
    maps = {'track/offset': tf.constant(case.inputs['predictions'])}
    detected = task.detect(maps, found_of(case.inputs))
    np.testing.assert_array_equal(detected['detection_temporal_offsets'], case.outputs['offsets'])
