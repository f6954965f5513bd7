"""Detectors whose regions are cropped by RoIAlign."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.core.roi_align import SampleGrid
from object_detection.meta_architectures.faster_rcnn.croppers import LevelRule, RoiAlignCropper
from tests import rows
from tests import tiny_models as tiny
from tests.meta_architectures.graphs import check_graph_equals_eager
from tests.tiny_models import shapes, train_losses

# The pyramid has the levels 2 to 4.
BOXES = """
model {
  faster_rcnn {
    maxpool_kernel_size: 1
    maxpool_stride: 1
    roi_align { canonical_level: 3 canonical_size: 20 max_level: 3 }
  }
}
"""
MASKS = """
model {
  faster_rcnn {
    mask_roi_align { sampling_ratio: 1 aligned: false canonical_size: 40 }
  }
}
"""


def detect(detector, images):
    predictions = detector.predict(detector.normalize(images), shapes(images))
    return predictions, detector.postprocess(predictions, shapes(images))


@pytest.fixture(scope='module')
def detector():
    return tiny.tiny_detector(BOXES, MASKS)


@pytest.mark.slow
def test_boxes_and_masks_have_crops_of_their_own_sizes(detector, images, groundtruth):
    seen = {}
    box_features = detector.feature_extractor.box_classifier_features
    mask_head = detector.mask_stage.head.call

    def note(name, call):
        def noting(crops, *args, **kwargs):
            seen[name] = tuple(crops.shape)
            return call(crops, *args, **kwargs)

        return noting

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            detector.feature_extractor, 'box_classifier_features', note('box', box_features)
        )
        patch.setattr(detector.mask_stage.head, 'call', note('mask', mask_head))
        train_losses(detector, images, groundtruth)
        # 8 proposals an image, of which at most 4 are positive.
        assert seen == {'box': (16, 7, 7, 8), 'mask': (8, 14, 14, 8)}
        detect(detector, images)
        assert seen == {'box': (32, 7, 7, 8), 'mask': (12, 14, 14, 8)}


def test_a_step_down_the_gradient_lowers_the_loss(images, groundtruth):
    detector = tiny.tiny_detector(BOXES, MASKS)
    tiny.shrink_last_layers(detector)
    variables = detector.trainable_variables

    def losses_and_gradients():
        with tf.GradientTape() as tape:
            losses = train_losses(detector, images, groundtruth)
            total = tf.add_n(list(losses.values()))
        return losses, total, tape.gradient(total, [v.value for v in variables])

    losses, before, gradients = losses_and_gradients()
    assert losses['Loss/BoxClassifierLoss/mask_loss'] > 0
    assert [v.path for v, g in zip(variables, gradients, strict=True) if g is None] == []
    for variable, gradient in zip(variables, gradients, strict=True):
        variable.assign_sub(1e-3 * gradient)
    _, after, _ = losses_and_gradients()
    assert after < before


@pytest.fixture(scope='module')
def static(detector):
    """Of the same numbers. STATIC makes AUTO, of the masks, products."""
    by_index = 'model { faster_rcnn { roi_align { impl: GATHER } } }'
    static = tiny.tiny_detector(tiny.STATIC, BOXES, MASKS, by_index)
    for name, variable in static.named_variables().items():
        variable.assign(detector.named_variables()[name])
    return static


@pytest.mark.slow
def test_static_execution_gives_the_same_numbers(detector, static, images, groundtruth):
    wanted = train_losses(detector, images, groundtruth)
    losses = train_losses(static, images, groundtruth)
    assert set(losses) == set(wanted)
    for name, loss in losses.items():
        np.testing.assert_allclose(loss, wanted[name], rtol=1e-4, err_msg=name)


def test_croppers_of_static_execution_compile(detector, static):
    rng = np.random.default_rng(0)
    maps = [tf.constant(rng.normal(size=(2, n, n, 8)), tf.float32) for n in (16, 8, 4)]
    corners = rng.uniform(0, 40, (2, 6, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(1, 40, (2, 6, 2))], axis=-1)

    def crop(detector, *maps):
        arguments = (list(maps), tf.constant(boxes, tf.float32), 64, 64)
        return detector._cropper(*arguments), detector.mask_stage.cropper(*arguments)

    compiled = tf.function(functools.partial(crop, static), jit_compile=True, autograph=False)(
        *maps
    )
    for crops, wanted in zip(compiled, crop(detector, *maps), strict=True):
        np.testing.assert_allclose(crops, wanted, atol=1e-4)


@pytest.mark.slow
def test_all_of_static_execution_compiles(detector, static, images, groundtruth):
    wanted = train_losses(detector, images, groundtruth)
    compiled = tf.function(train_losses, jit_compile=True, autograph=False)(
        static, images, groundtruth
    )
    for name, loss in compiled.items():
        np.testing.assert_allclose(loss, wanted[name], rtol=1e-3, err_msg=name)


@pytest.mark.slow
def test_graph_of_images_of_one_size_equals_eager(images):
    check_graph_equals_eager([BOXES, MASKS], images, [None, *images.shape[1:]])


def test_masks_of_detections_are_those_of_proposals_there(detector, images, groundtruth):
    # A proposal that is a detection's box has the same mask.
    predictions = detector.predict(
        detector.normalize(images), shapes(images), groundtruth=groundtruth
    )
    # Each box is its proposal.
    (stage,) = predictions.box_stages
    regions = stage.regions._replace(box_codes=tf.zeros_like(stage.regions.box_codes))
    predictions = predictions._replace(box_stages=[stage._replace(regions=regions)])
    detections = detector.postprocess(predictions, shapes(images))
    rows = tf.cast(detections['detection_anchor_indices'], tf.int32)
    np.testing.assert_array_equal(predictions.masks.rows[0], tf.range(16))
    logits = predictions.masks.logits
    logits = tf.gather(tf.reshape(logits, [2, 16, *logits.shape[1:]]), rows, batch_dims=1)
    classes = tf.cast(detections['detection_classes'], tf.int32)
    wanted = tf.sigmoid(tf.gather(logits, classes, axis=2, batch_dims=2))
    assert tf.reduce_all(detections['num_detections'] == 6)
    np.testing.assert_allclose(detections['detection_masks'], wanted, atol=1e-4)


@pytest.mark.slow
def test_each_field_works_alone(images, groundtruth):
    for setting in (BOXES, MASKS):
        detector = tiny.tiny_detector(setting)
        losses = train_losses(detector, images, groundtruth)
        assert all(np.isfinite(loss) for loss in losses.values())
        masks = detect(detector, images)[1]['detection_masks']
        assert masks.shape == (2, 6, 14, 14)
        assert (detector.mask_stage.cropper is None) == (setting == BOXES)


def test_levels_of_boxes_and_their_cells():
    # Cells hold their level and row: boxes of a side below 16, from 16, and from 32 on.
    maps = [
        tf.tile(level + tf.range(64 / 2**level)[None, :, None, None] / 100, [1, 1, 9, 1])
        for level in (2.0, 3.0, 4.0, 5.0)
    ]
    rule = LevelRule(min_level=3, max_level=5, canonical_level=4, canonical_size=16)
    cropper = RoiAlignCropper(
        grid=SampleGrid((1, 1)), rule=rule, strides=[4, 8, 16, 32], use_matmul=False
    )
    boxes = [[0, 0, 8, 8], [0, 0, 15.9, 15.9], [0, 0, 16, 16], [0, 0, 8, 128], [0, 0, 99, 99]]
    crops = cropper(maps, tf.constant([boxes], tf.float32), 64, 64)
    assert crops.shape == (5, 1, 1, 1)
    # The middle of a box, in cells, less half a cell; held on the map's last row.
    rows = [0, 15.9 / 2 / 8 - 0.5, 0, 0, 1]
    wanted = np.array([3, 3, 4, 5, 5]) + np.array(rows) / 100
    np.testing.assert_allclose(crops[:, 0, 0, 0], wanted, rtol=1e-6)


@rows.parametrize(
    ('setting', 'message'),
    [
        ('roi_align { max_level: 5 }', r'FasterRcnn.roi_align: .*max_level <= 4.*max_level 5'),
        ('mask_roi_align { min_level: 1 }', r'mask_roi_align: .* 2 <= min_level.*min_level 1'),
        ('roi_align { sampling_ratio: 0 }', r'roi_align.sampling_ratio: .*adaptive'),
    ],
)
def test_what_there_is_not(setting, message):
    pipeline = tiny.tiny_pipeline(f'model {{ faster_rcnn {{ {setting} }} }}')
    with pytest.raises(ValueError, match=message):
        model_builder.build(pipeline.model)
