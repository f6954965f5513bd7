"""DeepMAC as a whole: networks, what masks learn from, detections, zoo checkpoints."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.config import families
from object_detection.core import tracing
from object_detection.core.fields import DetectionFields
from object_detection.core.fields import InputFields as F
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import divide
from object_detection.errors import UserError
from object_detection.meta_architectures.center_net.deepmac import build, deepmac
from object_detection.meta_architectures.center_net.deepmac.rules import (
    LOSSES,
    PROJECTION,
    TYPES,
    network_depth,
)
from object_detection.meta_architectures.center_net.feature_extractor import CenterNetOptions
from object_detection.meta_architectures.center_net.tasks.task import Cells, TaskObjects
from object_detection.models.backbones.mask_networks import MaskNetwork
from object_detection.protos import center_net_pb2, pipeline_pb2
from object_detection.system import private_names
from object_detection.weights import reference
from tests import goldens, rows, slow_cases
from tests.meta_architectures.center_net.test_center_net import parse
from tests.unread import unread

# Masks in boxes, and masks of the image.
IN_BOXES = """
  dim: 4 pixel_embedding_dim: 3 mask_size: 8 network_type: 'fully_connected'
  classification_loss { weighted_sigmoid {} }
"""
OF_IMAGE = """
  dim: 6 pixel_embedding_dim: 3 network_type: 'cond_inst1' use_instance_embedding: false
  predict_full_resolution_masks: true postprocess_crop_size: 10
  classification_loss { weighted_sigmoid {} }
"""
MASKS, BOXES, COLORS, VIEWS, POINTS = (f'Loss/deep_mask_{n}' for n in LOSSES.values())
SEEDS = tf.constant([[1, 2], [3, 4]])
SIDE = 16


def task_of(text, **changes):
    keras.utils.set_random_seed(1)
    config = text_format.Parse(text, center_net_pb2.CenterNet.DeepMACMaskEstimation())
    text_format.Merge(' '.join(f'{name}: {value}' for name, value in changes.items()), config)
    return build.build_task(config, CenterNetOptions(batch_norm_trainable=True))


def objects_of(count=3, **fields):
    """Two images with `count` objects of the classes 0, 1, 2 and one row of padding each."""
    rng = np.random.default_rng(3)
    low = rng.uniform(0, 0.5, [2, count, 2])
    boxes = np.concatenate([low, low + rng.uniform(0.2, 0.5, [2, count, 2])], axis=-1)
    boxes = np.pad(boxes.astype(np.float32), [(0, 0), (0, 1), (0, 0)])
    masks = rng.integers(0, 2, [2, count + 1, 4 * SIDE, 4 * SIDE]).astype(np.float32)
    return Groundtruth(
        boxes=tf.constant(boxes),
        classes=tf.one_hot([[*range(count), 0]] * 2, 4),
        weights=tf.constant([[1.0] * count + [0.0]] * 2),
        masks=tf.constant(masks),
        **fields,
    )


def maps_of(task, stacks=1):
    return {
        name: [
            tf.random.stateless_normal([2, SIDE, SIDE, head.channels], [seed, stack])
            for stack in range(stacks)
        ]
        for seed, (name, head) in enumerate(task.heads.items())
    }


def losses_of(task, truth, *, stacks=1, training=True, forward=None, seeds=SEEDS):
    maps = maps_of(task, stacks)
    images = tf.random.stateless_uniform([2, 4 * SIDE, 4 * SIDE, 3], [5, 6], maxval=255)
    objects = TaskObjects(truth, images, training, seeds, forward or (lambda images: maps))
    found = {**maps, **task.predict_objects(maps, objects)}
    cells = Cells(truth, (SIDE, SIDE), None, tf.constant(3.0), 64 // SIDE, images)
    return {
        name: float(value) for name, value in divide(task.loss_sums(found, cells)).items()
    }, found


# The others have more of the same layers.
_LARGER = ('hourglass32', 'hourglass52', 'hourglass100', 'resnet8', 'resnet12', 'resnet16')


@slow_cases.parametrize(
    3,
    'kind',
    [
        pytest.param(kind, marks=[pytest.mark.slow] * (kind in _LARGER))
        for kind in (*TYPES, *(f'cond_inst{depth}' for depth in (1, 2, 3)))
    ],
)
def test_every_network_gives_masks(kind):
    depth = network_depth(kind)
    size = {1: 4, 2: 11, 3: 17}.get(depth, 3)
    sees = depth is None and kind != PROJECTION
    network = MaskNetwork(
        kind,
        num_inputs=3,
        num_channels=2,
        embedding_size=size,
        sees_embedding=sees,
        mask_size=8,
        batch_norm_trainable=True,
    )
    pixels = tf.random.stateless_normal([4, 8, 8, 3], [1, 2])
    embeddings = tf.random.stateless_normal([4, size], [3, 4])
    masks = network(pixels, embeddings, training=True).numpy()
    assert masks.shape == (4, 8, 8)
    assert np.isfinite(masks).all()
    # Pixels, and the object, make a difference.
    assert not np.allclose(masks, network(pixels[::-1], embeddings, training=True))
    assert not np.allclose(masks, network(pixels, embeddings[::-1], training=True))
    assert bool(network.trainable_variables) == sees


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['hourglass20_uniform_size', 'hourglass20_no_shortcut'])
def test_variants_of_hourglasses(kind):
    network = MaskNetwork(
        kind,
        num_inputs=3,
        num_channels=2,
        embedding_size=2,
        sees_embedding=True,
        mask_size=8,
        batch_norm_trainable=True,
    )
    paths = [variable.path for variable in network.weights]
    assert any('encoder_block1' in path for path in paths) == (kind == 'hourglass20_uniform_size')
    # Odd sizes are filled up, where sizes halve.
    assert network(tf.zeros([1, 7, 5, 3]), tf.zeros([1, 2])).shape == (1, 7, 5)


def test_an_unknown_network_is_named():
    with pytest.raises(UserError, match="Received: 'unet'"):
        MaskNetwork(
            'unet',
            num_inputs=3,
            num_channels=2,
            embedding_size=2,
            sees_embedding=True,
            mask_size=8,
            batch_norm_trainable=True,
        )


def test_masks_of_some_classes_learn():
    truth = objects_of()
    losses, found = losses_of(task_of(IN_BOXES, allowed_masked_classes_ids='[1, 3]'), truth)
    assert losses.keys() == {MASKS}
    # The rows of both classes alone.
    np.testing.assert_array_equal(found['MASK_ROWS'], [[0, 2]] * 2)
    np.testing.assert_array_equal(found['MASK_ROW_IS_OWN'], [[True, True]] * 2)
    # What the masks of another class are does not matter; those of an allowed one do.
    other = truth.masks.numpy()
    other[:, 1] = 1.0
    other[:, 3] = 1.0
    task = task_of(IN_BOXES, allowed_masked_classes_ids='[1, 3]')
    same, _ = losses_of(task, truth._replace(masks=tf.constant(other)))
    assert same[MASKS] == pytest.approx(losses[MASKS], rel=1e-5)
    other[:, 2] = 1.0
    task = task_of(IN_BOXES, allowed_masked_classes_ids='[1, 3]')
    changed, _ = losses_of(task, truth._replace(masks=tf.constant(other)))
    assert changed[MASKS] != pytest.approx(losses[MASKS], rel=1e-3)


def test_the_loss_is_a_mean_by_weight():
    """By hand: of embeddings that give the logit 0 everywhere, each pixel has the loss log 2."""
    task = task_of(OF_IMAGE, task_loss_weight=3)
    truth = objects_of()
    truth = truth._replace(weights=truth.weights * tf.constant([1.0, 0.5, 1.0, 1.0]))
    zeros = {name: [0.0 * each for each in maps] for name, maps in maps_of(task).items()}
    objects = TaskObjects(truth, tf.zeros([2, 64, 64, 3]), True, SEEDS, None)
    found = zeros | task.predict_objects(zeros, objects)
    cells = Cells(truth, (SIDE, SIDE), None, tf.constant(6.0), 64 // SIDE, objects.images)
    assert float(divide(task.loss_sums(found, cells))[MASKS]) == pytest.approx(
        3 * np.log(2), rel=1e-5
    )
    assert float(task.loss_sums(found, cells)[MASKS].normalizer) == 5.0


@pytest.mark.parametrize('text', [IN_BOXES, OF_IMAGE])
def test_masks_may_be_crops(text):
    """Masks of boxes: a block, so that crops and whole images hold the same."""
    rows = np.arange(4 * SIDE)
    boxes = np.array([[16, 8, 47, 39], [0, 0, 0, 0]], np.float32) / (4 * SIDE - 1)
    inside = (rows >= 16) & (rows <= 47), (rows >= 8) & (rows <= 39)
    masks = np.zeros([1, 2, 4 * SIDE, 4 * SIDE], np.float32)
    masks[0, 0] = inside[0][:, np.newaxis] & inside[1]
    whole = Groundtruth(
        boxes=tf.constant(boxes[np.newaxis]),
        classes=tf.one_hot([[0, 0]], 4),
        weights=tf.constant([[1.0, 0.0]]),
        masks=tf.constant(masks),
    )
    crops = tf.ones([1, 2, 32, 32])
    cropped = whole._replace(masks=crops, masks_are_crops=True)
    found = []
    for truth in (whole, cropped):
        task = task_of(text)
        maps = {name: [each[:1] for each in maps] for name, maps in maps_of(task).items()}
        images = tf.zeros([1, 4 * SIDE, 4 * SIDE, 3])
        objects = TaskObjects(truth, images, False, None, None)
        predictions = maps | task.predict_objects(maps, objects)
        cells = Cells(truth, (SIDE, SIDE), None, tf.constant(1.0), 64 // SIDE, images)
        found.append(float(divide(task.loss_sums(predictions, cells))[MASKS]))
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_without_masks_it_says_so():
    case = goldens.load('deepmac_ops', 'mask_loss_without_masks')
    assert not case.outputs['v'].any()
    with pytest.raises(UserError, match='task_loss_weight: 0'):
        losses_of(task_of(IN_BOXES), objects_of()._replace(masks=None))


def test_boxes_alone_are_enough():
    truth = objects_of()._replace(masks=None)
    for text in (IN_BOXES, OF_IMAGE):
        task = task_of(text, task_loss_weight=0, box_consistency_loss_weight=1)
        losses, _ = losses_of(task, truth)
        assert losses.keys() == {BOXES}
        assert losses[BOXES] > 0


def test_colors_count_in_masks_of_images():
    case = goldens.load('deepmac_ops', 'color_consistency_roi')
    assert not case.outputs['v'].any()
    changes = {'color_consistency_loss_weight': 2, 'color_consistency_threshold': 0.1}
    losses, _ = losses_of(task_of(IN_BOXES, **changes), objects_of())
    assert losses[COLORS] == 0
    losses, _ = losses_of(task_of(OF_IMAGE, **changes), objects_of())
    assert losses[COLORS] > 0


def test_a_warmup_follows_the_step():
    changes = {
        'color_consistency_loss_weight': 2,
        'color_consistency_threshold': 0.01,
        'color_consistency_warmup_start': 10,
        'color_consistency_warmup_steps': 20,
    }
    found = []
    for step in (10, 20, 30):
        with tracing.training_step(tf.Variable(step, dtype=tf.int64)):
            found.append(losses_of(task_of(OF_IMAGE, **changes), objects_of())[0][COLORS])
    outside = losses_of(task_of(OF_IMAGE, **changes), objects_of())[0][COLORS]
    np.testing.assert_allclose(found, [0, outside / 2, outside], rtol=1e-5)


def test_points():
    points = np.random.default_rng(1).uniform(0, 1, [2, 4, 5, 2]).astype(np.float32)
    labels = np.ones([2, 4, 5], np.float32)
    truth = objects_of(fields={F.GROUNDTRUTH_KEYPOINT_DEPTHS: tf.constant(labels)})
    task = task_of(OF_IMAGE, pointly_supervised_keypoint_loss_weight=1)
    losses, _ = losses_of(task, truth._replace(keypoints=tf.constant(points)))
    assert losses[POINTS] > 0
    with pytest.raises(UserError, match='num_keypoints'):
        losses_of(task, truth)


def test_points_need_labels():
    case = goldens.load('deepmac_ops', 'points_without_depths')
    assert not case.outputs['v'].any()
    truth = objects_of()._replace(keypoints=tf.zeros([2, 4, 5, 2]))
    task = task_of(OF_IMAGE, pointly_supervised_keypoint_loss_weight=1)
    with pytest.raises(UserError, match='load_keypoint_depth_features'):
        losses_of(task, truth)


@pytest.mark.parametrize('covers_image', [False, True])
def test_views_agree_where_the_network_follows(covers_image):
    """A network whose maps are mirrored with the image sees the same masks in both views."""
    task = task_of(
        """network_type: 'embedding_projection' dim: 3 pixel_embedding_dim: 3 mask_size: 8
        use_instance_embedding: false use_xy: false classification_loss { weighted_sigmoid {} }""",
        predict_full_resolution_masks=str(covers_image).lower(),
        augmented_self_supervision_loss_weight=1,
        augmented_self_supervision_flip_probability=1.0,
        augmented_self_supervision_loss='LOSS_MSE',
    )
    maps = maps_of(task)
    mirrored = {name: [each[:, :, ::-1] for each in maps] for name, maps in maps.items()}
    losses, found = losses_of(task, objects_of(), forward=lambda images: mirrored)
    (own,), (others,) = (
        found[name] for name in ('MASK_LOGITS_GT_BOXES', 'SELF_SUPERVISED_DEAUGMENTED_MASK_LOGITS')
    )
    np.testing.assert_allclose(others, own, atol=2e-4)
    assert found['SELF_SUPERVISED_SEEN'].numpy().all()
    assert losses[VIEWS] < 1e-7
    assert losses_of(task, objects_of())[0][VIEWS] > 0.01


def test_random_objects_are_chosen():
    task = task_of(IN_BOXES, mask_num_subsamples=2)
    truth = objects_of(6)
    chosen = []
    for seed in range(10):
        seeds = tf.constant([[seed, 1], [seed, 2]])
        _, found = losses_of(task, truth, seeds=seeds)
        rows = found['MASK_ROWS'].numpy()
        assert rows.shape == (2, 2)
        assert found['MASK_LOGITS_GT_BOXES'][0].shape == (2, 2, 8, 8)
        assert found['MASK_ROW_IS_OWN'].numpy().all()
        assert (rows[:, 0] != rows[:, 1]).all()
        chosen.append(rows)
    assert set(np.ravel(chosen)) == set(range(6))
    # An evaluation counts all.
    assert losses_of(task, truth, training=False)[1]['MASK_ROWS'].shape == (2, 6)


def test_more_objects_than_there_are():
    _, found = losses_of(task_of(IN_BOXES, mask_num_subsamples=9), objects_of())
    np.testing.assert_array_equal(found['MASK_ROW_IS_OWN'], [[True] * 3] * 2)


def test_images_without_objects():
    truth = objects_of()
    truth = truth._replace(weights=tf.zeros_like(truth.weights))
    losses, _ = losses_of(task_of(IN_BOXES, box_consistency_loss_weight=1), truth)
    assert losses == {MASKS: 0.0, BOXES: 0.0}


def test_regions_move_in_training():
    task = task_of(IN_BOXES, max_roi_jitter_ratio=0.4, jitter_mode='EXPAND')
    truth = objects_of()
    _, found = losses_of(task, truth)
    regions, boxes = found['MASK_REGIONS'].numpy()[:, :3], truth.boxes.numpy()[:, :3]
    sizes = np.tile(boxes[..., 2:] - boxes[..., :2], 2)
    moves = (regions - boxes) / sizes * [-1, -1, 1, 1]
    assert moves.min() >= -1e-6
    assert 0.1 < moves.max() <= 0.2 + 1e-6
    _, found = losses_of(task, truth, training=False)
    np.testing.assert_array_equal(found['MASK_REGIONS'][:, :3], boxes)


def test_a_moved_region_tells_where_the_box_ends():
    """A region twice as wide as the box, whose half outside of the box must stay empty."""
    task = task_of(IN_BOXES, task_loss_weight=0, box_consistency_loss_weight=1)
    truth = Groundtruth(
        boxes=tf.constant([[[0.25, 0.25, 0.75, 0.5]]]),
        classes=tf.one_hot([[0]], 4),
        weights=tf.ones([1, 1]),
    )
    cells = Cells(truth, (SIDE, SIDE), None, tf.constant(1.0), 64 // SIDE, tf.zeros([1, 64, 64, 3]))
    right = tf.constant([9.0] * 4 + [-9.0] * 4)
    found = {
        'MASK_ROWS': tf.zeros([1, 1], tf.int32),
        'MASK_ROW_IS_OWN': tf.ones([1, 1], tf.bool),
        'MASK_REGIONS': tf.constant([[[0.25, 0.25, 0.75, 0.75]]]),
    }
    totals = []
    for row in (right, right[::-1]):
        found['MASK_LOGITS_GT_BOXES'] = [tf.zeros([1, 1, 8, 8]) + row]
        totals.append(float(divide(task.loss_sums(found, cells))[BOXES]))
    # By hand: the samples 0 to 3 of 8 are at most in the middle; others are wrong by 9.
    assert totals[0] == pytest.approx(2 * np.log1p(np.exp(-9.0)), rel=1e-3)
    assert totals[1] == pytest.approx(9.0 + 2 * np.log1p(np.exp(-9.0)), rel=1e-3)


def test_only_the_last_stack():
    task = task_of(IN_BOXES, use_only_last_stage='true')
    assert len(losses_of(task, objects_of(), stacks=2)[1]['MASK_LOGITS_GT_BOXES']) == 1
    task = task_of(IN_BOXES)
    assert len(losses_of(task, objects_of(), stacks=2)[1]['MASK_LOGITS_GT_BOXES']) == 2


@slow_cases.parametrize(1, 'is_compiled', [False, True])
def test_batch_norms_see_no_padding(is_compiled):
    """Rows beyond the objects repeat them; where XLA compiles there are as many as rows."""
    task, truth = task_of(IN_BOXES), objects_of()
    truth = truth._replace(weights=tf.constant([[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]]))
    maps = maps_of(task)

    @tf.function(jit_compile=is_compiled)
    def predict():
        objects = TaskObjects(truth, tf.zeros([2, 64, 64, 3]), True, SEEDS, None)
        return task.predict_objects(maps, objects)

    count = 4 if is_compiled else 2
    found = predict()
    rows = np.array([[1, 2, 1, 2], [2, 2, 2, 2]])[:, :count]
    np.testing.assert_array_equal(found['MASK_ROWS'], rows)
    is_own = np.array([[True, True, False, False], [True, False, False, False]])[:, :count]
    np.testing.assert_array_equal(found['MASK_ROW_IS_OWN'], is_own)
    assert found['MASK_LOGITS_GT_BOXES'][0].shape == (2, count, 8, 8)


@pytest.mark.slow
@pytest.mark.parametrize('text', [IN_BOXES, OF_IMAGE])
def test_it_trains_detects_and_combines(text):
    keras.utils.set_random_seed(1)
    points = {'mask_num_subsamples': 2, 'box_consistency_loss_weight': 1}
    text += ' '.join(f'{name}: {value}' for name, value in points.items())
    model = parse(f"""
      use_depthwise: true feature_extractor {{ type: 'hourglass_10' }}
      track_estimation_task {{
        num_track_ids: 3 classification_loss {{ weighted_softmax {{}} }} }}
      deepmac_mask_estimation {{ {text} allowed_masked_classes_ids: 1 }}
      post_processing {{ batch_non_max_suppression {{
        max_detections_per_class: 5 max_total_detections: 5
        change_coordinate_frame: false }} }}""")
    assert not list(families.find(model).rules(model.center_net))
    detector = model_builder.build(model)
    assert detector.needs_masks
    assert tuple(families.find(model).loss_names(model.center_net)) == detector.loss_names()
    images = tf.random.stateless_uniform([2, 64, 96, 3], [1, 2], maxval=255)
    groundtruth = Groundtruth.from_lists(
        [[[0.2, 0.1, 0.7, 0.5]], [[0.3, 0.3, 0.9, 0.9], [0.0, 0.0, 0.4, 0.2]]],
        [[[1, 0]], [[0, 1], [1, 0]]],
        masks=[np.ones([1, 64, 96]), np.ones([2, 64, 96])],
        track_ids=[[1], [0, 2]],
    )
    image_inputs, shapes = detector.preprocess(images)

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            predictions = detector.predict(
                image_inputs, shapes, training=True, groundtruth=groundtruth, seeds=SEEDS
            )
            losses = detector.loss(predictions, groundtruth, seeds=SEEDS)
            total = tf.add_n(list(losses.values()))
        variables = detector.named_trainable_variables()
        return losses, tape.gradient(total, variables)

    losses, found = gradients()
    assert tuple(losses) == detector.loss_names()
    assert np.isfinite([float(value) for value in losses.values()]).all()
    assert {name for name, gradient in found.items() if gradient is None} == set()
    detections = detector.postprocess(detector.predict(image_inputs, shapes), shapes)
    size = 8 if text.startswith(IN_BOXES) else 10
    masks = detections[DetectionFields.MASKS].numpy()
    assert masks.shape == (2, 5, size, size)
    assert ((masks >= 0) & (masks <= 1)).all()
    assert detections['detection_embeddings'].shape[:2] == (2, 5)
    # Of its own boxes it gives the same masks.
    predictions = detector.predict(image_inputs, shapes)
    given = detector.predict_masks_from_boxes(
        predictions, shapes, detections[DetectionFields.BOXES]
    )
    is_whole = np.all(
        (detections[DetectionFields.BOXES] > 0) & (detections[DetectionFields.BOXES] < 1), axis=-1
    )
    np.testing.assert_allclose(
        given[DetectionFields.MASKS].numpy()[is_whole], masks[is_whole], atol=1e-4
    )
    assert given[DetectionFields.MULTICLASS_SCORES].shape == (2, 5, 2)
    assert given[DetectionFields.NUM_DETECTIONS].numpy().tolist() == [5.0, 5.0]


def test_the_family_knows_what_it_learns_and_predicts():
    text = IN_BOXES + 'task_loss_weight: 0 box_consistency_loss_weight: 2'
    model = parse(
        f"deepmac_mask_estimation {{ {text} }} feature_extractor {{ type: 'hourglass_10' }}"
    )
    detector = model_builder.build(model)
    assert tuple(families.find(model).loss_names(model.center_net)) == detector.loss_names()
    assert detector.loss_names()[-1] == BOXES
    assert families.needs(model)[:2] == (False, True)
    assert not detector.needs_masks
    assert not detector.needs_keypoints
    text = OF_IMAGE + 'pointly_supervised_keypoint_loss_weight: 1'
    model = parse(f'deepmac_mask_estimation {{ {text} }}')
    assert families.needs(model).masks
    assert families.needs(model).keypoints
    assert not families.needs(parse()).predicts_masks


@pytest.mark.usefixtures('small_backbone')
def test_colors_without_effect_are_told():
    model = parse(f'deepmac_mask_estimation {{ {IN_BOXES} color_consistency_loss_weight: 1 }}')
    ((path, reason),) = unread(model)
    assert path.endswith('deepmac_mask_estimation.color_consistency_loss_weight')
    assert 'predict_full_resolution_masks' in reason


@rows.parametrize(
    ('fields', 'reason'),
    [
        ('num_init_channels: 8', 'embedding_projection'),
        ('postprocess_crop_size: 8', 'predict_full_resolution_masks is false'),
        ('predict_full_resolution_masks: true mask_size: 8', 'predict_full_resolution_masks is'),
        ('jitter_mode: EXPAND', 'max_roi_jitter_ratio is 0'),
        ('box_consistency_tightness: true', 'box_consistency_loss_weight is 0'),
        ('color_consistency_dilation: 3', 'color_consistency_loss_weight is 0'),
        ('augmented_self_supervision_scale_max: 2', 'supervision_loss_weight is 0'),
        (
            'augmented_self_supervision_loss_weight: 1 augmented_self_supervision_warmup_start: 9',
            'augmented_self_supervision_warmup_steps is 0',
        ),
        (
            'task_loss_weight: 0 box_consistency_loss_weight: 1 ignore_per_class_box_overlap: true',
            'task_loss_weight is 0',
        ),
    ],
)
@pytest.mark.usefixtures('small_backbone')
def test_options_of_what_is_off_have_no_effect(fields, reason):
    network = "network_type: 'embedding_projection' dim: 4 pixel_embedding_dim: 4 use_xy: false"
    text = (
        f'{network} use_instance_embedding: false classification_loss {{ weighted_sigmoid {{}} }}'
    )
    model = parse(f'deepmac_mask_estimation {{ {text} {fields} }}')
    ((path, found),) = unread(model)
    assert path.endswith(fields.split()[-2].removesuffix(':'))
    assert reason in found


def test_masks_of_given_boxes_need_the_task():
    detector = model_builder.build(parse("feature_extractor { type: 'hourglass_10' }"))
    with pytest.raises(UserError, match='expected deepmac_mask_estimation'):
        detector.predict_masks_from_boxes({}, tf.ones([1, 3]), tf.zeros([1, 2, 4]))


def test_masks_of_detections_are_those_of_their_boxes():
    task = task_of(IN_BOXES)
    maps = {name: stacks[0] for name, stacks in maps_of(task).items()}
    boxes = objects_of().boxes[:, :3]
    logits = task.mask_logits(maps['INSTANCE_EMBEDDING'], maps['PIXEL_EMBEDDING'], boxes)
    seen = deepmac.crop_pixels(maps['PIXEL_EMBEDDING'], boxes, 8, use_xy=True)
    embeddings = deepmac.gather_embeddings(maps['INSTANCE_EMBEDDING'], boxes)
    expected = task.layers['mask_network'](seen[1], embeddings[1])
    np.testing.assert_allclose(logits[1], expected, atol=1e-5)


@rows.parametrize(
    ('changes', 'expected'),
    [
        ("network_type: 'hourglas52'", "did you mean 'hourglass52'?"),
        ("network_type: 'cond_inst0'", 'network_type: expected one of'),
        ("network_type: 'cond_inst2' use_instance_embedding: false", 'expected 421'),
        ("network_type: 'cond_inst1'", 'use_instance_embedding: cond_inst1 has no weights'),
        ('mask_num_subsamples: 0', 'mask_num_subsamples: expected at least 1, or -1'),
        ('allowed_masked_classes_ids: 0', 'allowed_masked_classes_ids: expected ids from 1'),
        ('allowed_masked_classes_ids: 3', 'Received: 3'),
        ('classification_loss { weighted_softmax {} }', 'a mask is a single class'),
        (
            "network_type: 'fully_connected' predict_full_resolution_masks: true",
            'fully_connected gives masks of mask_size',
        ),
        (
            'classification_loss { weighted_dice_classification_loss {} } '
            'box_consistency_loss_normalize: NORMALIZE_BALANCED',
            'NORMALIZE_BALANCED needs a loss of each pixel',
        ),
        (
            'augmented_self_supervision_loss_weight: 1 augmented_self_supervision_loss: LOSS_UNSET',
            'Received: LOSS_UNSET',
        ),
        ('augmented_self_supervision_scale_min: 2', 'augmented_self_supervision_scale_min'),
    ],
)
def test_wrong_fields_are_named(changes, expected):
    model = parse(
        'deepmac_mask_estimation { classification_loss { weighted_sigmoid {} } '
        f'num_init_channels: 21 {changes} }}'
    )
    problems = list(families.find(model).rules(model.center_net))
    assert any(expected in problem for problem in problems), problems


def test_boxes_and_a_loss_are_needed():
    model = parse('deepmac_mask_estimation {}')
    model.center_net.ClearField('object_detection_task')
    problems = ' '.join(families.find(model).rules(model.center_net))
    assert 'deepmac_mask_estimation: expected with object_detection_task' in problems
    assert 'deepmac_mask_estimation.classification_loss is not set' in problems


ZOO = (
    'center_net_deepmac_512x512_voc_only_tpu-32',
    'center_net_deepmac_1024x1024_coco_tpu-128',
    'center_net_deepmac_1024x1024_non_voc_only_tpu-128',
    'center_net_deepmac_1024x1024_voc_only_tpu-128',
)


def check_keys(variables, trainable, keys, wanted, names):
    """Checks that all variables are found, and all keys but that of random numbers."""
    found = reference.match(variables, keys, names)
    assert found.keys() == variables.keys()
    unused = {key.removesuffix('/.ATTRIBUTES/VARIABLE_VALUE') for key in keys}
    unused -= {key.removesuffix('/.ATTRIBUTES/VARIABLE_VALUE') for key in found.values()}
    # The norm at the end of a ResNet is not used by the reference either.
    norm = 'model/_feature_extractor/_base_model/layer_with_weights-45/'
    unused = {key for key in unused if not key.startswith(norm)}
    assert unused == {'model/_self_supervised_rng/_state_var'}
    for variable, key in found.items():
        assert list(variables[variable].shape) == keys[key], variable
    assert {found[name] for name in trainable} == {k for k in wanted if not k.startswith(norm)}


@pytest.mark.slow
@pytest.mark.parametrize('name', ZOO)
def test_keys_of_zoo_checkpoints(shared, name):
    zoo = json.loads((shared / 'goldens' / 'zoo_keys' / f'{name}.json').read_text())
    keys = {key: shape for key, shape, _ in zoo['keys']}
    path = shared / 'reference' / 'configs' / 'tf2' / f'{name}.config'
    pipeline = text_format.Parse(path.read_text(), pipeline_pb2.TrainEvalPipelineConfig())
    detector = model_builder.build(pipeline.model)
    detector.build_variables()
    check_keys(
        detector.named_variables(),
        detector.named_trainable_variables(),
        keys,
        {zoo['keys'][i][0] for i in zoo['trainable_order']},
        detector.variable_names,
    )


def test_every_deepmac_config_of_the_zoo_is_listed(shared):
    found = (shared / 'goldens' / 'zoo_keys').glob('center_net_deepmac_*.json')
    assert {path.stem for path in found} == set(ZOO)


@pytest.mark.parametrize('name', ['resnet18_full_resolution', 'resnet8_mask_network'])
def test_keys_of_golden_models(shared, name):
    golden = json.loads((shared / f'goldens/models/center_net_deepmac_{name}.json').read_text())
    pipeline = text_format.Parse(golden['config'], pipeline_pb2.TrainEvalPipelineConfig())
    with private_names.graph_without_values():
        detector = model_builder.build(pipeline.model)
        detector.build_variables()
    keys = {key: shape for key, shape, _ in golden['variables']}
    check_keys(
        detector.named_variables(),
        detector.named_trainable_variables(),
        keys,
        set(golden['trainable_keys']),
        detector.variable_names,
    )
