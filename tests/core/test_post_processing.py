"""Batched suppression against golden numbers, and its options by hand."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import post_processing_builder
from object_detection.core import post_processing
from object_detection.core.post_processing import (
    NmsParams,
    batch_multiclass_non_max_suppression,
)
from object_detection.core.suppression.nms import non_max_suppression
from object_detection.protos import post_processing_pb2
from tests import goldens, slow_cases
from tests.rows import parametrize

# The reference's padded kernel, and its partitioned one, take a box without any positive
# coordinate for a suppressed one. Goldens agree where such boxes are left out.
LOSES_BOXES = ('agnostic_static', 'agnostic_static_partitioned', 'single_multiclass_padded')
# The reference's partitioned kernel sorts boxes and scores, but not what is carried along.
WRONG_FIELDS = ('static_partitioned_masks',)
# The reference restricts these combinations; here one algorithm does them all.
LIFTED = (
    'soft_nms_static',
    'combined_numvalid',
    'combined_masks',
    'combined_agnostic',
    'combined_change_frame',
    'agnostic_two_classes',
)
RAISING = ('change_frame_without_window', 'bad_iou', 'bad_max', 'bad_soft')


def run(case, **changes):
    """Calls what the case's config builds with the case's inputs."""
    config = text_format.Parse(case.config, post_processing_pb2.PostProcessing())
    nms, _ = post_processing_builder.build(config)
    inputs = {**case.inputs, **changes}
    named = ('clip_window', 'num_valid_boxes', 'masks')
    prefix = 'additional.'
    return nms(
        inputs['boxes'],
        inputs['scores'],
        additional_fields={
            name.removeprefix(prefix): value
            for name, value in inputs.items()
            if name.startswith(prefix)
        },
        **{name: inputs.get(name) for name in named},
    )


def without_lost_boxes(case):
    """The case's scores, 0 for boxes without any positive coordinate."""
    boxes = case.inputs['boxes']
    return np.where(np.all(boxes <= 0, axis=-1), 0, case.inputs['scores'])


@goldens.rows(
    'nms', without=('combined', 'single_', 'partitioned_padded', 'batch_iou', *RAISING, *LIFTED)
)
def test_detections_equal_the_reference(case_name):
    case = goldens.load('nms', case_name)
    changes = {'scores': without_lost_boxes(case)} if case_name in LOSES_BOXES else {}
    detections = run(case, **changes)
    expected = case.outputs
    np.testing.assert_array_equal(detections.num_detections, expected['num_detections'])
    actual = {
        'nmsed_boxes': detections.boxes,
        'nmsed_scores': detections.scores,
        'nmsed_classes': detections.classes,
        'nmsed_masks': detections.masks,
    }
    if case_name not in WRONG_FIELDS:
        fields = detections.additional_fields.items()
        actual.update({f'additional.{name}': value for name, value in fields})
    else:
        del actual['nmsed_masks']
    # With static shapes, the reference's unused rows hold score -1 and any box; ours are zero.
    slots = np.arange(detections.scores.shape[1]) < expected['num_detections'][:, np.newaxis]
    for name, value in actual.items():
        if value is None:
            assert name not in expected
            continue
        assert value.shape == expected[name].shape
        used = slots.reshape(slots.shape + (1,) * (value.shape.rank - 2))
        assert not np.any(np.where(used, 0, value)), f'{name}: unused rows are not zero'
        is_static = 'use_static_shapes: true' in case.config
        wanted = np.where(used, expected[name], 0) if is_static else expected[name]
        np.testing.assert_allclose(value, wanted, atol=1e-5, err_msg=name)


@goldens.rows('nms', prefix='combined', without=LIFTED)
def test_combined_detections_equal_the_reference(case_name):
    case = goldens.load('nms', case_name)
    detections = run(case)
    np.testing.assert_array_equal(detections.num_detections, case.outputs['num_detections'])
    np.testing.assert_allclose(detections.scores, case.outputs['nmsed_scores'], atol=1e-6)

    def rows(scores, classes, boxes):
        """Of one image; the reference orders those of equal scores at random."""
        rows = np.column_stack([scores, classes, boxes])
        return rows[np.lexsort((rows[:, 1], -rows[:, 0]))]

    for i in range(2):
        ours = rows(detections.scores[i], detections.classes[i], detections.boxes[i])
        names = ('nmsed_scores', 'nmsed_classes', 'nmsed_boxes')
        theirs = rows(*(case.outputs[name][i] for name in names))
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@goldens.rows('nms', prefix='single_')
def test_single_images_equal_the_reference(case_name):
    case = goldens.load('nms', case_name)
    params, inputs, expected = case.params, case.inputs, case.outputs
    total = params['max_total_size'] or len(expected['boxes'])
    scores = without_lost_boxes(case) if case_name in LOSES_BOXES else inputs['scores']
    window = params.get('clip_window')
    fields = {name: inputs[name][np.newaxis] for name in ('aux',)}
    detections = batch_multiclass_non_max_suppression(
        inputs['boxes'][np.newaxis],
        scores[np.newaxis],
        NmsParams(
            score_threshold=params['score_thresh'],
            iou_threshold=params['iou_thresh'],
            max_detections_per_class=params.get('max_size_per_class', total),
            max_total_detections=total,
            use_class_agnostic_nms='agnostic' in case_name,
            change_coordinate_frame=params.get('change_coordinate_frame', False),
        ),
        clip_window=None if window is None else tf.constant(window),
        masks=inputs['masks'][np.newaxis],
        additional_fields=fields,
    )
    count = int(expected['num_valid'])
    assert detections.num_detections[0] == count
    for name, value in {
        'boxes': detections.boxes,
        'scores': detections.scores,
        'classes': detections.classes,
        'masks': detections.masks,
        'aux': detections.additional_fields['aux'],
    }.items():
        np.testing.assert_allclose(
            value[0, :count], expected[name][:count], atol=1e-5, err_msg=name
        )


@goldens.rows('nms', names=LIFTED)
def test_restrictions_of_the_reference_are_lifted(case_name):
    case = goldens.load('nms', case_name)
    assert case.raises == 'ValueError'
    without = {'soft_nms_static': 'soft_nms', 'combined_masks': 'combined'}.get(case_name)
    if without:
        # Of the same boxes, the selection is that of the form without the option.
        expected = run(goldens.load('nms', without), **case.inputs)
        np.testing.assert_allclose(run(case).boxes, expected.boxes, atol=1e-6)
    assert run(case).num_detections.numpy().min() > 0


@goldens.rows('nms', names=RAISING)
def test_raises_where_the_reference_does(case_name):
    case = goldens.load('nms', case_name)
    assert case.raises == 'ValueError'
    with pytest.raises(ValueError, match='Received'):
        run(case)


@pytest.mark.parametrize('static', [False, True])
def test_clips_after_suppressing_and_drops_what_is_left_without_area(static):
    boxes = tf.constant(
        [[[0.0, 1.2, 1, 2.2], [0, 1.1, 1, 2.1], [0.5, 0.5, 0.7, 1.5], [0, 0, 0, 0]]]
    )
    detections = batch_multiclass_non_max_suppression(
        boxes[:, :, tf.newaxis],
        tf.constant([[[0.9], [0.8], [0.3], [0.5]]]),
        NmsParams(max_detections_per_class=3, max_total_detections=4, iou_threshold=0.5),
        clip_window=tf.constant([0.0, 0, 1, 2]),
        static=static,
        change_coordinate_frame=False,
    )
    # The second is suppressed by the first; the last has no area but takes one of three places.
    np.testing.assert_array_equal(detections.num_detections, [2])
    expected = [[0, 1.2, 1, 2], [0.5, 0.5, 0.7, 1.5], [0, 0, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(detections.boxes[0], expected)
    np.testing.assert_allclose(detections.scores[0], [0.9, 0.3, 0, 0])


@pytest.mark.parametrize('static', [False, True])
def test_combined_form_keeps_what_is_outside_the_window(static):
    detections = batch_multiclass_non_max_suppression(
        tf.constant([[[[0.1, 0.1, 0.5, 1.5]], [[-0.5, 0.2, -0.1, 0.4]], [[0.0, 0, 0, 0]]]]),
        tf.constant([[[0.9], [0.8], [0.7]]]),
        NmsParams(use_combined_nms=True, change_coordinate_frame=False),
        clip_window=tf.constant([0.0, 0, 1, 1]),
        static=static,
    )
    np.testing.assert_array_equal(detections.num_detections, [3])
    expected = [[0.1, 0.1, 0.5, 1], [0, 0.2, -0.1, 0.4], [0, 0, 0, 0]]
    np.testing.assert_allclose(detections.boxes[0, :3], expected)


def test_frame_can_be_overridden():
    arguments = (
        tf.constant([[[[1.0, 1, 2, 3]]]]),
        tf.constant([[[0.5]]]),
        NmsParams(change_coordinate_frame=False),
    )
    window = tf.constant([[0.0, 1, 4, 5]])
    kept = batch_multiclass_non_max_suppression(*arguments, clip_window=window)
    np.testing.assert_allclose(kept.boxes[0, 0], [1, 1, 2, 3])
    changed = batch_multiclass_non_max_suppression(
        *arguments, clip_window=window, change_coordinate_frame=True
    )
    np.testing.assert_allclose(changed.boxes[0, 0], [0.25, 0, 0.5, 0.5])


def test_negative_scores_are_never_returned():
    detections = batch_multiclass_non_max_suppression(
        tf.constant([[[[0.0, 0, 1, 1]], [[2, 2, 3, 3]], [[4, 4, 5, 5]]]]),
        tf.constant([[[-0.5, 0.0], [0.5, -0.1], [-0.2, -0.1]]]),
        NmsParams(score_threshold=-1.0, change_coordinate_frame=False),
    )
    np.testing.assert_array_equal(detections.num_detections, [2])
    np.testing.assert_allclose(detections.scores[0, :2], [0.5, 0.0])
    np.testing.assert_allclose(detections.classes[0, :2], [0, 1])


@parametrize('static', [False, True])
@parametrize(
    ('count', 'expected'),
    [
        (1, [(0.9, 1, 0), (0.6, 0, 2)]),
        # The second box is suppressed with all its classes; 0.2 is not above the threshold.
        (2, [(0.9, 1, 0), (0.7, 2, 0), (0.6, 0, 2), (0.5, 2, 2)]),
        # As many as there is room for.
        (3, [(0.9, 1, 0), (0.7, 2, 0), (0.6, 0, 2), (0.5, 2, 2), (0.3, 0, 0)]),
    ],
)
def test_a_box_of_several_classes(count, expected, static):
    detections = batch_multiclass_non_max_suppression(
        tf.constant([[[[0.0, 0, 1, 1]], [[0, 0, 1, 0.9]], [[2, 2, 3, 3]]]]),
        tf.constant([[[0.3, 0.9, 0.7], [0.8, 0.8, 0.8], [0.6, 0.2, 0.5]]]),
        NmsParams(
            score_threshold=0.25,
            max_detections_per_class=5,
            max_total_detections=5,
            use_class_agnostic_nms=True,
            max_classes_per_detection=count,
            change_coordinate_frame=False,
        ),
        additional_fields={'rows': tf.constant([[0, 1, 2]])},
        static=static,
    )
    used = int(detections.num_detections[0])
    found = zip(
        detections.scores[0].numpy(),
        detections.classes[0].numpy(),
        detections.additional_fields['rows'][0].numpy(),
        strict=True,
    )
    assert list(found)[:used] == [pytest.approx(row) for row in expected]
    assert not np.any(detections.scores[0, used:])
    np.testing.assert_array_equal(detections.boxes[0, 0], [0, 0, 1, 1])


def test_the_decay_of_a_box_is_that_of_all_its_classes():
    params = {'soft_nms_sigma': 0.5, 'change_coordinate_frame': False}
    arguments = (
        tf.constant([[[[0.0, 0, 1, 1]], [[0, 0, 1, 0.5]]]]),
        tf.constant([[[0.9, 0.1], [0.4, 0.8]]]),
    )
    one, two = (
        batch_multiclass_non_max_suppression(
            *arguments,
            NmsParams(use_class_agnostic_nms=True, max_classes_per_detection=count, **params),
        )
        for count in (1, 2)
    )
    # IoU 0.5: exp(-0.25 / (2 * 0.5)) of 0.8, and of 0.4.
    decay = np.exp(-0.25)
    np.testing.assert_allclose(one.scores[0, :3], [0.9, 0.8 * decay, 0], rtol=1e-5)
    expected = [0.9, 0.8 * decay, 0.4 * decay, 0.1, 0]
    np.testing.assert_allclose(two.scores[0, :5], expected, rtol=1e-5)
    np.testing.assert_array_equal(two.classes[0, :4], [0, 1, 0, 1])


@slow_cases.parametrize(2, 'agnostic', [False, True, 2])
@pytest.mark.parametrize('sigma', [0.0, 0.5])
def test_executions_agree_with_unknown_dimensions(agnostic, sigma):
    rng = np.random.default_rng(0)
    params = NmsParams(
        max_detections_per_class=5,
        max_total_detections=8,
        use_class_agnostic_nms=bool(agnostic),
        max_classes_per_detection=max(1, int(agnostic)),
        soft_nms_sigma=sigma,
    )

    def detect(boxes, scores, static):
        return batch_multiclass_non_max_suppression(
            boxes,
            scores,
            params,
            clip_window=tf.constant([0.1, 0.1, 0.9, 0.9]),
            masks=tf.reshape(boxes, [tf.shape(boxes)[0], -1, 3, 2, 2]),
            additional_fields={'rows': tf.range(tf.shape(boxes)[1])[tf.newaxis] + [[0], [100]]},
            static=static,
        )

    unknown = tf.function(
        lambda boxes, scores: detect(boxes, scores, False),
        input_signature=[tf.TensorSpec([None, None, 3, 4]), tf.TensorSpec([None, None, 3])],
        autograph=False,
    )
    for count in (0, 20):
        corners = np.sort(rng.random((2, count, 3, 2, 2)), axis=3)
        boxes = tf.constant(corners.reshape(2, count, 3, 4), tf.float32)
        scores = tf.constant(rng.random((2, count, 3)), tf.float32)
        eager = detect(boxes, scores, True)
        assert bool(tf.reduce_all((eager.num_detections > 0) == (count > 0)))
        assert eager.additional_fields['rows'].dtype == tf.int32
        tf.nest.map_structure(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
            tuple(eager),
            tuple(unknown(boxes, scores)),
        )


def test_static_execution_compiles():
    rng = np.random.default_rng(1)
    corners = np.sort(rng.random((2, 50, 1, 2, 2)), axis=3)
    boxes = tf.constant(corners.reshape(2, 50, 1, 4), tf.float32)
    scores = tf.constant(rng.random((2, 50, 4)), tf.float32)

    def detect():
        detections = batch_multiclass_non_max_suppression(
            boxes,
            scores,
            NmsParams(max_detections_per_class=6, max_total_detections=15),
            clip_window=tf.constant([0.1, 0.1, 0.9, 0.9]),
            num_valid_boxes=tf.constant([50, 20]),
            additional_fields={'scores': scores},
            static=True,
        )
        return [field for field in detections if field is not None]

    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        tf.function(detect, jit_compile=True, autograph=False)(),
        detect(),
    )


def test_shapes_that_disagree_raise():
    with pytest.raises(ValueError, match=r'q = 1 or q = K.*Received'):
        batch_multiclass_non_max_suppression(
            tf.zeros([1, 5, 2, 4]), tf.zeros([1, 5, 3]), NmsParams(change_coordinate_frame=False)
        )


@pytest.mark.parametrize(
    ('gpus', 'use_cpu_nms', 'static', 'native'),
    [
        ([], False, False, True),
        ([], False, True, False),
        (['GPU:0'], False, False, False),
        (['GPU:0'], True, False, True),
    ],
)
def test_the_kernel_for_cpus_is_not_used_with_a_gpu(monkeypatch, gpus, use_cpu_nms, static, native):
    used = []

    def spy(*arguments, native, **options):
        used.append(native)
        return non_max_suppression(*arguments, native=native, **options)

    monkeypatch.setattr(post_processing, 'non_max_suppression', spy)
    monkeypatch.setattr(tf.config, 'list_logical_devices', lambda kind: gpus)
    detections = batch_multiclass_non_max_suppression(
        tf.constant([[[[0.0, 0, 1, 1]], [[0, 0, 1, 0.9]], [[2, 2, 3, 3]]]]),
        tf.constant([[[0.5], [0.6], [0.4]]]),
        NmsParams(change_coordinate_frame=False, use_cpu_nms=use_cpu_nms),
        static=static,
    )
    assert used == [native]
    np.testing.assert_allclose(detections.scores[0, :3], [0.6, 0.4, 0.0])


def test_boxes_may_be_clipped_before_suppression():
    # Within the image the two are one box, and the third is outside.
    boxes = np.array([[0, 0, 0.5, 1], [-3, 0, 0.5, 1], [2, 0, 3, 1]], np.float32)
    scores = np.array([0.9, 0.8, 0.7], np.float32)[np.newaxis, :, np.newaxis]
    counts = []
    for clips, combined in ((False, False), (True, False), (True, True)):
        params = NmsParams(
            iou_threshold=0.5, clip_before_suppression=clips, use_combined_nms=combined
        )
        found = batch_multiclass_non_max_suppression(
            tf.constant(boxes[np.newaxis, :, np.newaxis]),
            tf.constant(scores),
            params,
            clip_window=tf.constant([0.0, 0, 1, 1]),
        )
        counts.append(int(found.num_detections[0]))
    assert counts == [2, 1, 2]
