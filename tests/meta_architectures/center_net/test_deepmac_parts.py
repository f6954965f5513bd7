"""The parts of DeepMAC compute what the reference computes."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import losses_builder
from object_detection.errors import UserError
from object_detection.meta_architectures.center_net import feature_extractor as extractors
from object_detection.meta_architectures.center_net.deepmac import (
    build,
    deepmac,
    losses,
    rules,
    views,
)
from object_detection.meta_architectures.center_net.deepmac.deepmac import Warmup
from object_detection.meta_architectures.center_net.deepmac.losses import srgb_to_lab
from object_detection.models import image_values
from object_detection.models.backbones import mask_networks
from object_detection.protos import center_net_pb2
from tests import goldens, rows

FILE = 'deepmac_ops'
SIZE = 6


def message_of(text):
    return text_format.Parse(text, center_net_pb2.CenterNet.DeepMACMaskEstimation())


def pixel_loss(case):
    return losses_builder.build_classification(message_of(case.config).classification_loss)


def close(ours, expected, atol=2e-5):
    np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=atol)


def inside_the_image(boxes):
    """Where the reference's crops do not fade out over a pixel beyond the image: bool [B, N]."""
    return np.all((boxes >= 0) & (boxes <= 1), axis=-1)


def test_fill_boxes():
    case = goldens.load('deepmac_ops', 'fill_boxes')
    filled = losses.fill_boxes(case.inputs['boxes'], 12, 16)
    np.testing.assert_array_equal(filled, case.outputs['v'])


def test_crop_masks():
    case = goldens.load('deepmac_ops', 'crop_masks')
    crops = losses.crop_masks(case.inputs['masks'], case.inputs['boxes'], 5)
    chosen = inside_the_image(case.inputs['boxes'])
    assert chosen.sum() == 5
    close(crops.numpy()[chosen], case.outputs['v'][chosen])


def test_resize_masks():
    case = goldens.load('deepmac_ops', 'resize_masks')
    close(losses.resize_masks(case.inputs['masks'], 7, 20), case.outputs['v'])


@goldens.parametrize(FILE, names=('filter_classes', 'filter_classes_all'))
def test_masks_of_some_classes_learn(case_name):
    case = goldens.load(FILE, case_name)
    weights = case.inputs['weights']
    if allowed := [class_id - 1 for class_id in case.params['allowed']]:
        weights = weights * case.inputs['classes'][..., allowed].max(-1)
    np.testing.assert_array_equal(weights, case.outputs['weights'])
    # The reference also clears what has no weight.
    kept = weights[..., np.newaxis] * case.inputs['classes']
    np.testing.assert_array_equal(kept, weights[..., np.newaxis] * case.outputs['classes'])
    masks = case.outputs['masks']
    np.testing.assert_array_equal(masks[weights > 0], case.inputs['masks'][weights > 0])


def test_pixels_in_several_boxes_of_a_class():
    case = goldens.load('deepmac_ops', 'no_class_overlap')
    found = losses.not_in_several_boxes(case.inputs['classes'], case.inputs['boxes'], 12, 16)
    np.testing.assert_array_equal(found, case.outputs['v'])


@goldens.parametrize(FILE, names=('neighbors_d1', 'neighbors_d2'))
def test_neighbors(case_name):
    case = goldens.load(FILE, case_name)
    found = losses.neighbors(tf.constant(case.inputs['x']), case.params['dilation'])
    np.testing.assert_array_equal(found, case.outputs['v'])


@goldens.parametrize(FILE, names=('color_similarity_d1', 'color_similarity_d2'))
def test_color_similarity(case_name):
    case = goldens.load(FILE, case_name)
    assert case.params['theta'] == 2.0
    close(
        losses.color_similarity(tf.constant(case.inputs['x']), case.params['dilation']),
        case.outputs['v'],
    )


@goldens.parametrize(FILE, names=('same_label_d1', 'same_label_d2'))
def test_same_label_probability(case_name):
    case = goldens.load(FILE, case_name)
    masks = tf.transpose(case.inputs['masks'], [0, 2, 3, 1])
    found = [
        tf.transpose(losses.same_label_probability(masks, each), [0, 3, 1, 2])
        for each in losses.neighbors(masks, case.params['dilation'])
    ]
    close(found, case.outputs['v'])


@goldens.parametrize(FILE, names=tuple(f'conditional_conv_{depth}' for depth in (1, 2, 3)))
def test_conditional_convolutions(case_name):
    case = goldens.load(FILE, case_name)
    found = mask_networks.conditional_convolutions(
        case.inputs['x'], case.inputs['parameters'], case.params['channels'], case.params['depth']
    )
    expected = case.outputs['v'][..., 0]
    close(found, expected, atol=2e-6 * np.abs(expected).max())


def test_conditional_convolutions_count_their_parameters():
    assert goldens.load('deepmac_ops', 'conditional_conv_bad_count').raises == 'ValueError'
    with pytest.raises(UserError, match='expected 71 parameters'):
        mask_networks.conditional_convolutions(tf.zeros([1, 2, 2, 6]), tf.zeros([1, 70]), 5, 3)


def view_of(case):
    given = {name: tf.constant(case.inputs[name]) for name in ('tx', 'ty', 'sx', 'sy', 'flip')}
    return views.View(
        shifts=tf.stack([given['ty'], given['tx']], axis=1),
        scales=tf.stack([given['sy'], given['sx']], axis=1),
        flips=given['flip'],
    )


def test_views_of_images():
    case = goldens.load('deepmac_ops', 'transform_images')
    view = view_of(case)
    close(views.to_view(tf.constant(case.inputs['images']), view), case.outputs['images'])
    close(views.move_boxes(case.inputs['boxes'], view), case.outputs['boxes'])


def test_views_of_masks():
    case = goldens.load('deepmac_ops', 'transform_masks')
    masks = tf.transpose(case.inputs['masks'], [0, 2, 3, 1])
    close(tf.transpose(views.to_view(masks, view_of(case)), [0, 3, 1, 2]), case.outputs['v'])


def test_views_are_moved_back():
    # By whole pixels, so that nothing is interpolated.
    maps = tf.random.stateless_uniform([2, 9, 11, 3], [1, 2])
    view = views.View(
        tf.constant([[2 / 8, -3 / 10], [0.0, 0.0]]), tf.ones([2, 2]), tf.constant([True, False])
    )
    back = views.from_view(views.to_view(maps, view), view).numpy()
    seen = views.from_view(views.to_view(tf.ones_like(maps), view), view).numpy() > 0.99
    assert seen[0].sum() == 7 * 8 * 3
    np.testing.assert_allclose(back[seen], maps.numpy()[seen], atol=1e-5)
    assert seen[1].all()


def test_random_views_stay_within_their_bounds():
    seeds = tf.stack([tf.range(200), tf.range(200) + 7], axis=1)
    view = views.random_view(
        seeds, 200, max_translation=0.2, scales=(0.8, 1.5), flip_probability=0.25
    )
    assert -0.2 <= np.min(view.shifts) < -0.18
    assert 0.18 < np.max(view.shifts) <= 0.2
    assert 0.8 <= np.min(view.scales) < 0.83
    assert 1.47 < np.max(view.scales) <= 1.5
    assert 30 < np.sum(view.flips) < 70


def test_embeddings_of_objects():
    case = goldens.load('deepmac_ops', 'instance_embeddings')
    found = deepmac.gather_embeddings(tf.constant(case.inputs['embedding']), case.inputs['boxes'])
    np.testing.assert_array_equal(found, case.outputs['v'])
    # The reference cannot read the embedding of a box on the edge.
    edge = deepmac.gather_embeddings(tf.constant(case.inputs['embedding']), tf.ones([2, 1, 4]))
    np.testing.assert_array_equal(edge[:, 0], case.inputs['embedding'][:, -1, -1])


@goldens.parametrize(
    FILE,
    names=(
        'mask_head_input_roi',
        'mask_head_input_roi_xy',
        'mask_head_input_full',
        'mask_head_input_full_xy',
    ),
)
def test_pixels_that_the_mask_network_sees(case_name):
    case = goldens.load(FILE, case_name)
    config = message_of(case.config)
    maps, boxes = tf.constant(case.inputs['embedding']), case.inputs['boxes']
    if config.predict_full_resolution_masks:
        close(deepmac.all_pixels(maps, boxes, use_xy=config.use_xy), case.outputs['v'])
        return
    found = deepmac.crop_pixels(maps, boxes, SIZE, use_xy=config.use_xy).numpy()
    chosen = inside_the_image(boxes)
    close(found[chosen], case.outputs['v'][chosen])


def test_projection():
    case = goldens.load('deepmac_ops', 'embedding_projection_logits')
    boxes = case.inputs['boxes']
    network = mask_networks.MaskNetwork(
        'embedding_projection',
        num_inputs=8,
        num_channels=8,
        embedding_size=8,
        sees_embedding=False,
        mask_size=SIZE,
        batch_norm_trainable=True,
    )
    pixels = deepmac.crop_pixels(tf.constant(case.inputs['pixel']), boxes, SIZE, use_xy=False)
    embeddings = deepmac.gather_embeddings(tf.constant(case.inputs['instance']), boxes)
    found = network(tf.reshape(pixels, [6, SIZE, SIZE, 8]), tf.reshape(embeddings, [6, 8]))
    chosen = inside_the_image(boxes)
    expected = case.outputs['v'][chosen]
    close(np.reshape(found, [2, 3, SIZE, SIZE])[chosen], expected)


@goldens.parametrize(
    FILE,
    names=tuple(
        f'mask_loss_{resized}{kind}'
        for kind in ('sigmoid', 'dice', 'dice_squared', 'focal')
        for resized in ('', 'resized_')
    )
    + ('mask_loss_ignore_overlap',),
)
def test_loss_of_masks(case_name):
    case = goldens.load(FILE, case_name)
    given, counted = case.inputs, None
    if case_name.endswith('overlap'):
        counted = losses.not_in_several_boxes(given['classes'], given['boxes'], 12, 16)
    found = losses.of_masks(
        pixel_loss(case), tf.constant(given['logits']), tf.constant(given['gt']), counted
    )
    close(found, case.outputs['v'])


@goldens.parametrize(
    FILE,
    names=tuple(
        f'box_consistency_full{full}_tight{tight}_{how}'
        for full in (0, 1)
        for tight in (0, 1)
        for how in ('auto', 'groundtruth_count', 'balanced')
    ),
)
def test_loss_of_boxes(case_name):
    case = goldens.load(FILE, case_name)
    config = message_of(case.config)
    boxes, regions = case.inputs['boxes'], case.inputs['boxes_for_crop']
    logits, filled = tf.constant(case.inputs['logits']), losses.fill_boxes(boxes, 12, 16)
    chosen = np.ones([2, 3], bool)
    if not config.predict_full_resolution_masks:
        # Here predicted masks are those of the crops already.
        logits, filled = (losses.crop_masks(each, regions, SIZE) for each in (logits, filled))
        chosen = inside_the_image(regions)
    found = losses.of_boxes(
        pixel_loss(case),
        logits,
        filled,
        is_tight=config.box_consistency_tightness,
        normalize=build.NORMALIZERS[config.box_consistency_loss_normalize],
    ).numpy()
    assert np.isfinite(found).all()
    # A crop without any of its box is divided by 0 there.
    expected = case.outputs['v']
    chosen &= np.isfinite(expected)
    assert chosen.sum() >= 4
    close(found[chosen], expected[chosen])


@goldens.parametrize(FILE, names=('color_consistency_0.4_2', 'color_consistency_0.9_1'))
def test_loss_of_colors(case_name):
    case = goldens.load(FILE, case_name)
    config = message_of(case.config)
    found = losses.of_colors(
        tf.constant(case.inputs['logits']),
        case.inputs['boxes'],
        tf.constant(case.inputs['image']),
        threshold=config.color_consistency_threshold,
        dilation=config.color_consistency_dilation,
    )
    close(found, case.outputs['v'], atol=1e-4)


@goldens.parametrize(
    FILE, names=tuple(f'self_supervision_{kind}' for kind in ('dice', 'mse', 'kl_div'))
)
def test_loss_of_views(case_name):
    case = goldens.load(FILE, case_name)
    kind = case_name.removeprefix('self_supervision_').upper()
    value = center_net_pb2.AugmentedSelfSupervisionLoss.Value(f'LOSS_{kind}')
    found = build.VIEW_LOSSES[value](
        tf.constant(case.inputs['logits']),
        tf.constant(case.inputs['deaugmented']),
        losses.fill_boxes(case.inputs['boxes'], 12, 16),
    )
    close(found, case.outputs['v'])


def test_loss_of_points():
    case = goldens.load('deepmac_ops', 'points')
    found = losses.of_points(
        pixel_loss(case),
        tf.constant(case.inputs['logits']),
        tf.constant(case.inputs['keypoints']),
        tf.constant(case.inputs['depths']),
    )
    close(found, case.outputs['v'])


def test_colors_of_the_reference():
    # Its feature extractor does not undo what its backbone needs: it compares other colours.
    case = goldens.load('deepmac_ops', 'lab_image')
    shown = extractors.denormalization(extractors.CenterNetOptions(True))(
        image_values.caffe(tf.constant(case.inputs['image']))
    )
    close(srgb_to_lab(shown / 255.0), case.outputs['v'], atol=1e-4)


@rows.parametrize(
    ('rgb', 'lab'),
    [
        ((0, 0, 0), (0, 0, 0)),
        ((255, 255, 255), (100, 0, 0)),
        # Published values, https://en.wikipedia.org/wiki/CIELAB_color_space and calculators.
        ((255, 0, 0), (53.24, 80.09, 67.20)),
        ((0, 255, 0), (87.73, -86.18, 83.18)),
        ((0, 0, 255), (32.30, 79.19, -107.86)),
        ((119, 119, 119), (50.03, 0, 0)),
        # Dark: the straight parts of both curves. 5/255/12.92 = 0.0015177 of white;
        # 116 * (7.787 * 0.0015177 + 16/116) - 16 = 1.3709.
        ((5, 5, 5), (1.371, 0, 0)),
    ],
)
def test_known_colors(rgb, lab):
    found = srgb_to_lab(tf.constant(rgb, tf.float32) / 255.0)
    np.testing.assert_allclose(found, lab, atol=0.03)


def test_colors_have_finite_gradients():
    images = tf.constant([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [-0.2, 0.5, 1.1]])
    with tf.GradientTape() as tape:
        tape.watch(images)
        lab = srgb_to_lab(images)
    assert np.isfinite(tape.gradient(lab, images)).all()


@goldens.parametrize(FILE, names=tuple(f'warmup_{step}' for step in (0, 50, 100, 150, 250)))
def test_warmup(case_name):
    case = goldens.load(FILE, case_name)
    warmup = Warmup(case.params['start'], case.params['steps'])
    step = tf.constant(case.params['step'], tf.int64)
    np.testing.assert_allclose(warmup.factor(step), case.outputs['v'])
    assert warmup.factor(None) == 1.0
    assert Warmup(100, 0).factor(step) == 1.0


@goldens.parametrize(
    FILE,
    names=(
        'build_jitter_full',
        'build_projection_xy',
        'build_projection_dims',
        'build_unknown_network',
        'build_param_free_with_embedding',
    ),
)
def test_what_the_reference_refuses(case_name):
    case = goldens.load(FILE, case_name)
    assert case.raises == 'ValueError'
    assert any(problems(case.config))


def problems(text):
    config = center_net_pb2.CenterNet(num_classes=5)
    config.object_detection_task.SetInParent()
    config.deepmac_mask_estimation.CopyFrom(message_of(text))
    return list(rules.check(config))


@goldens.parametrize(FILE, names=('build_subsamples', 'build_fully_connected'))
def test_what_the_reference_cannot_build(case_name):
    case = goldens.load(FILE, case_name)
    assert case.raises == 'ValueError'
    assert problems(case.config) == []


def test_points_need_masks_of_the_image():
    case = goldens.load('deepmac_ops', 'points_roi')
    assert case.raises == 'NotImplementedError'
    config = "classification_loss { weighted_sigmoid {} } use_xy: false network_type: 'hourglass10'"
    (problem,) = problems(f'{config} pointly_supervised_keypoint_loss_weight: 1')
    assert 'predict_full_resolution_masks: true' in problem
