"""Ideal maps, made from the targets of the tasks, are detected as the ground truth at any size."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.meta_architectures.center_net import build
from object_detection.meta_architectures.center_net.center_net import CenterNet, PostProcessing
from object_detection.meta_architectures.center_net.deepmac import build as deepmac_builder
from object_detection.meta_architectures.center_net.deepmac.deepmac import MASK_LOGITS
from object_detection.meta_architectures.center_net.feature_extractor import CenterNetOptions
from object_detection.meta_architectures.center_net.heads import PredictionHeads
from object_detection.meta_architectures.center_net.tasks.task import centers
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.protos import center_net_pb2
from object_detection.resizers.fixed_sizes import FixedShapeResizer
from object_detection.resizers.keep_aspect_ratio import KeepAspectRatioResizer
from tests import rows

TASKS = """
  num_classes: 2
  object_center_params {
    classification_loss { penalty_reduced_logistic_focal_loss { alpha: 2 beta: 4 } }
    max_box_predictions: 3
  }
  object_detection_task { localization_loss { l1_localization_loss {} } }
  keypoint_label_map_path: 'LABELS'
  keypoint_estimation_task {
    task_name: 'pose' keypoint_class_name: 'a'
    loss {
      classification_loss { penalty_reduced_logistic_focal_loss { alpha: 2 beta: 4 } }
      localization_loss { l1_localization_loss {} }
    }
  }
  densepose_estimation_task {
    class_id: 0 num_parts: 3
    loss {
      classification_loss { weighted_softmax {} } localization_loss { l1_localization_loss {} }
    }
  }
  mask_estimation_task {
    classification_loss { weighted_sigmoid {} } mask_height: 9 mask_width: 9
  }
  track_estimation_task {
    num_track_ids: 4 reid_embed_size: 3 classification_loss { weighted_softmax {} }
  }
  temporal_offset_task { localization_loss { weighted_smooth_l1 {} } }
"""
LABELS = """
  item { id: 1 name: 'a' keypoints { id: 0 label: 'x' } keypoints { id: 1 label: 'y' } }
  item { id: 2 name: 'b' }
"""
DEEPMAC = """
  network_type: 'embedding_projection' dim: 1 pixel_embedding_dim: 1 mask_size: 8
  use_instance_embedding: false use_xy: false classification_loss { weighted_sigmoid {} }
"""
# In pixels of the true image: edges of cells, so that cells are wholly in or out.
BOX = np.array([12, 8, 36, 44], np.float32)
POINTS = np.array([[14.5, 17.5], [31.5, 40.5]], np.float32)
MULTIPLE = 32


def detector_of(tasks):
    """A CenterNet on a single convolution, whose maps are replaced."""
    images = keras.Input((None, None, 3))
    features = keras.layers.Conv2D(2, 4, strides=4, padding='same')(images)
    return CenterNet(
        num_classes=2,
        resizer=FixedShapeResizer(height=64, width=64),
        feature_extractor=FeatureExtractor(
            backbone=keras.Model(images, features),
            strides=[4],
            pad_to_multiple=MULTIPLE,
            normalize=lambda images: images,
        ),
        heads=PredictionHeads(
            {name: head for task in tasks.values() for name, head in task.heads.items()},
            num_stacks=1,
        ),
        tasks=tasks,
        post_processing=PostProcessing(max_detections=3),
    )


@pytest.fixture(scope='module')
def detector(tmp_path_factory):
    path = tmp_path_factory.mktemp('labels') / 'labels.pbtxt'
    path.write_text(LABELS)
    text = TASKS.replace('LABELS', str(path))
    return detector_of(build.build_tasks(text_format.Parse(text, center_net_pb2.CenterNet())))


def truth_of(size):
    """The object, normalized to images of `size`; its mask is its box."""
    height, width = size
    mask = np.zeros([1, height, width], np.float32)
    mask[0, 12:36, 8:44] = 1.0
    return Groundtruth.from_lists(
        [BOX[np.newaxis] / [*size, *size]],
        [[[1.0, 0.0]]],
        masks=[mask],
        keypoints=[POINTS[np.newaxis] / size],
        track_ids=[[2]],
        temporal_offsets=[[[0.25, -0.5]]],
        track_match_flags=[[1.0]],
        dp_num_points=[[2]],
        dp_part_ids=[[[1, 2]]],
        dp_surface_coords=[np.concatenate([POINTS / size, [[0.1, 0.2], [0.3, 0.4]]], 1)[None]],
    )


def at(maps, points, values):
    """Returns maps that have values in the cells of points, [n, 2]."""
    cells = [[0, *cell] for cell in np.floor(points).astype(int)]
    return tf.tensor_scatter_nd_update(maps, cells, np.asarray(values, np.float32))


def logits(targets):
    targets = tf.clip_by_value(targets, 1e-4, 1 - 1e-4)
    return tf.math.log(targets / (1 - targets))


def ideal_maps(detector, predictions, truth):
    """The predictions with the maps that the losses ask for."""
    cells = detector._cells(predictions, truth)
    zero = {name: predictions[name][0] * 0.0 for name in detector.heads.names}
    tasks = detector.tasks
    (pose,) = tasks['keypoint_estimation_task']._tasks
    points = pose.targets(cells)
    keypoints = points.points[0, 0].numpy()
    (middle,), (size,) = (each[0].numpy() for each in centers(cells.boxes))
    surfaces = tasks['densepose_estimation_task'].targets(cells)
    parts = 9.0 * np.eye(3)[surfaces.parts[0]]
    ideal = {
        'object_center': logits(tasks['object_center_params'].targets(cells)),
        'box/scale': at(zero['box/scale'], [middle], [size]),
        'box/offset': at(zero['box/offset'], [middle], [middle % 1]),
        'pose/keypoint/heatmap': logits(pose.heat_map_targets(cells, points)),
        'pose/keypoint/offset': at(zero['pose/keypoint/offset'], keypoints, keypoints % 1),
        'pose/keypoint/regression': at(
            zero['pose/keypoint/regression'], [middle], [np.ravel(keypoints - np.floor(middle))]
        ),
        'segmentation/heatmap': logits(tasks['mask_estimation_task'].targets(cells)),
        'densepose/heatmap': at(zero['densepose/heatmap'], surfaces.cells[0], parts),
        'track/reid': at(zero['track/reid'], [middle], [[3, 0, 4]]),
        'track/offset': at(zero['track/offset'], [middle], [[0.25, -0.5]]),
    }
    return {**predictions, **{name: [value] for name, value in ideal.items()}}, cells


@pytest.mark.parametrize(
    ('true_size', 'size'),
    [
        ((97, 131), None),
        ((100, 100), None),
        ((50, 70), None),
        ((64, 96), None),
        # Padded by the resizer, to no multiple either.
        ((97, 70), (97, 131)),
    ],
)
def test_ideal_maps_are_detected_as_the_ground_truth(detector, true_size, size):
    size = size or true_size
    truth = truth_of(size)
    shapes = tf.constant([[*true_size, 3]])
    predictions = detector.predict(tf.zeros([1, *size, 3]), shapes)
    padded = [-(-side // MULTIPLE) * MULTIPLE for side in size]
    assert predictions['object_center'][0].shape[1:3] == (padded[0] // 4, padded[1] // 4)

    ideal, cells = ideal_maps(detector, predictions, truth)

    # A pixel is a quarter of a cell, wherever the padding ends.
    np.testing.assert_allclose(cells.boxes[0, 0], BOX / 4, rtol=1e-6)
    found = detector.postprocess(ideal, shapes)
    np.testing.assert_allclose(
        found[DetectionFields.BOXES][0, 0], BOX / [*true_size, *true_size], rtol=1e-5
    )
    assert found[DetectionFields.CLASSES][0, 0] == 0
    np.testing.assert_allclose(
        found[DetectionFields.KEYPOINTS][0, 0], POINTS / true_size, rtol=1e-5
    )
    np.testing.assert_allclose(found['detection_temporal_offsets'][0, 0], [0.25, -0.5])
    np.testing.assert_allclose(found['detection_embeddings'][0, 0], [0.6, 0, 0.8], rtol=1e-6)
    # All of the mask's samples but those of the edges lie in cells of the object.
    assert found[DetectionFields.MASKS][0, 0, 1:-1, 1:-1].numpy().min() >= 1
    surfaces = detector.tasks['densepose_estimation_task'].targets(cells)
    np.testing.assert_array_equal(surfaces.cells[0], POINTS // 4)


def test_crops_of_masks_are_targets_in_the_same_cells(detector):
    truth = truth_of((97, 131))
    predictions = detector.predict(tf.zeros([1, 97, 131, 3]), tf.constant([[97, 131, 3]]))
    crops = truth._replace(masks=tf.ones([1, 1, 28, 28]), masks_are_crops=True)
    task = detector.tasks['mask_estimation_task']
    whole, sampled = (
        task.targets(detector._cells(predictions, each))[0, ..., 0] for each in (truth, crops)
    )
    expected = np.zeros([32, 40], np.float32)
    expected[3:9, 2:11] = 1.0
    np.testing.assert_array_equal(whole, expected)
    np.testing.assert_array_equal(sampled, expected)


def test_padding_by_the_resizer_or_the_network_gives_the_same(detector):
    images = tf.random.stateless_uniform([1, 97, 131, 3], [1, 2])
    shapes = tf.constant([[97, 131, 3]])
    by_resizer = tf.pad(images, [[0, 0], [0, 31], [0, 29], [0, 0]])
    found, expected = (detector.predict(each, shapes) for each in (images, by_resizer))
    dynamic = tf.function(
        lambda images: {n: detector.predict(images, shapes)[n] for n in detector.heads.names},
        input_signature=[tf.TensorSpec([1, None, None, 3])],
        autograph=False,
    )(images)
    # Detections depend on the maps and on the true sizes alone.
    for name in detector.heads.names:
        np.testing.assert_allclose(found[name][0], expected[name][0], rtol=0, atol=1e-4)
        np.testing.assert_allclose(dynamic[name][0], expected[name][0], rtol=0, atol=1e-4)
    losses = detector.loss(found, truth_of((97, 131)))
    others = detector.loss(expected, truth_of((128, 160)))
    assert set(losses) == set(detector.loss_names())
    for name, value in others.items():
        np.testing.assert_allclose(losses[name], value, rtol=1e-3, err_msg=name)


@pytest.mark.parametrize('whole', [False, True])
def test_deepmac_learns_and_predicts_in_the_frame_of_the_boxes(whole):
    config = text_format.Parse(DEEPMAC, center_net_pb2.CenterNet.DeepMACMaskEstimation())
    config.predict_full_resolution_masks = whole
    task = deepmac_builder.build_task(config, CenterNetOptions(batch_norm_trainable=True))
    centers_only = text_format.Parse(
        TASKS.replace("keypoint_label_map_path: 'LABELS'", ''), center_net_pb2.CenterNet()
    )
    for field in ('keypoint_estimation_task', 'mask_estimation_task', 'densepose_estimation_task'):
        centers_only.ClearField(field)
    tasks = {**build.build_tasks(centers_only), 'deepmac_mask_estimation': task}
    for name in ('track_estimation_task', 'temporal_offset_task'):
        tasks.pop(name)
    detector = detector_of(tasks)
    shapes = tf.constant([[97, 131, 3]])
    pixels = np.full([1, 32, 40, 1], -4, np.float32)
    pixels[0, 3:9, 2:11] = 4.0
    losses = []
    for size in ((97, 131), (128, 160)):
        predictions = detector.predict(tf.zeros([1, *size, 3]), shapes)
        predictions['PIXEL_EMBEDDING'] = [tf.constant(pixels)]
        predictions['INSTANCE_EMBEDDING'] = [tf.ones([1, 32, 40, 1])]
        found = detector._with_objects(predictions, truth_of(size), False, None)
        seen = found[MASK_LOGITS][0][0, 0].numpy()
        if whole:
            np.testing.assert_array_equal(seen, pixels[0, ..., 0])
        else:
            assert seen[1:-1, 1:-1].min() > 0
        losses.append(float(detector.loss(found, truth_of(size))['Loss/deep_mask_estimation']))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    # Cells next to an edge are of both sides.
    assert losses[0] < 0.6
    boxes = tf.constant(BOX / [97, 131, 97, 131], tf.float32)[tf.newaxis, tf.newaxis]
    masks = detector.predict_masks_from_boxes(predictions, shapes, boxes)[DetectionFields.MASKS]
    inner = masks.shape[2] // 8
    assert masks.numpy()[0, 0, inner:-inner, inner:-inner].min() > 0.5


@rows.parametrize(
    ('resizer', 'size'),
    [
        (FixedShapeResizer(height=100, width=70), (100, 70)),
        (KeepAspectRatioResizer(min_dimension=40, max_dimension=70), (40, 66)),
        (
            KeepAspectRatioResizer(min_dimension=40, max_dimension=70, pad_to_max_dimension=True),
            (70, 70),
        ),
    ],
)
def test_every_resizer_keeps_the_frame(detector, resizer, size):
    image, true_shape = resizer(tf.zeros([50, 82, 3]))
    assert tuple(image.shape[:2]) == size
    true_size = tuple(true_shape.numpy()[:2])
    box = np.array([0.25, 0.125, 0.75, 0.625]) * [*true_size, *true_size]
    truth = Groundtruth.from_lists([[box / [*size, *size]]], [[[0.0, 1.0]]])
    predictions = detector.predict(image[tf.newaxis], true_shape[tf.newaxis])
    cells = detector._cells(predictions, truth)
    np.testing.assert_allclose(cells.boxes[0, 0], box / 4, rtol=1e-5)
