"""FCOS within the single-shot family: targets, losses and scores as torchvision has them."""

import json
import os
import re
import subprocess
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.core.groundtruth import Groundtruth
from object_detection.errors import UserError
from object_detection.export import exporter
from object_detection.export.formats import tflite_graph
from object_detection.meta_architectures.ssd import build, loss_names, rules
from object_detection.meta_architectures.ssd.family import FAMILY
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.runtime.saved_detector import SavedModelRuntime
from object_detection.weights import checkpoints
from tests.meta_architectures import loss_families
from tests.meta_architectures.ssd.configs import tiny

HEIGHT, WIDTH = 64, 96
# Cells of the three maps, and classes with background.
CELLS, COLUMNS = 8 * 12 + 4 * 6 + 2 * 3, 4
FCOS = """
  image_resizer { fixed_shape_resizer { height: 64 width: 96 } }
  anchor_generator { multiscale_anchor_generator {
    min_level: 3 max_level: 5 anchor_scale: 1 aspect_ratios: 1 scales_per_octave: 1
    normalize_coordinates: false anchor_center_offset: 0 strides_of_maps: true
  } }
  matcher { point_matcher {} }
  box_coder { distance_box_coder {} }
  centerness {}
  box_predictor { weight_shared_convolutional_box_predictor {
    num_layers_before_predictor: 1 depth: 8 share_norms: true
    box_encodings_clip_range { min: 0 max: inf }
    conv_hyperparams { activation: RELU force_use_bias: true group_norm { groups: 2 } }
  } }
  loss {
    localization_loss { weighted_giou {} }
    classification_loss { weighted_sigmoid_focal { alpha: 0.25 gamma: 2 } }
  }
"""
# [ymin, xmin, ymax, xmax] and classes. Of the first image, boxes are within one another, one has a
# side on points of all levels, and one is as large as the image; the second has no object.
BOXES = [
    [
        *([8.0, 8.0, 40.0, 56.0], [16.5, 20.0, 36.0, 47.5]),
        *([0.0, 0.0, 64.0, 96.0], [3.0, 70.0, 23.0, 95.0]),
    ],
    [],
    [[10.0, 10.0, 60.0, 50.0]],
]
CLASSES = [[1, 2, 3, 1], [], [2]]
# The losses of torchvision 0.29 of `outputs`, as `PROGRAM` prints them.
RECORDED = {
    'classification': 5.889201641082764,
    'bbox_regression': 0.9180461764335632,
    'bbox_ctrness': 1.230122685432434,
}
PROGRAM = """
import json, sys
import numpy as np, torch
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.fcos import FCOS
from torchvision.models.detection.image_list import ImageList

given = np.load(sys.argv[1])
backbone = torch.nn.Conv2d(3, 8, 1)
backbone.out_channels = 32
sizes = ((8,), (16,), (32,))
model = FCOS(backbone, 4, anchor_generator=AnchorGenerator(sizes, ((1.0,),) * 3))
cells = [(8, 12), (4, 6), (2, 3)]
images = torch.zeros(3, 3, 64, 96)
maps = [torch.zeros(3, 1, *each) for each in cells]
anchors = model.anchor_generator(ImageList(images, [(64, 96)] * 3), maps)
names = {'cls_logits': 'logits', 'bbox_regression': 'codes', 'bbox_ctrness': 'centerness'}
outputs = {k: torch.tensor(given[v]) for k, v in names.items()}
outputs['bbox_regression'] = outputs['bbox_regression'][..., [1, 0, 3, 2]]
targets = [
    {
        'boxes': torch.tensor(given[f'boxes{i}'])[:, [1, 0, 3, 2]],
        'labels': torch.tensor(given[f'classes{i}']),
    }
    for i in range(3)
]
losses = model.compute_loss(targets, outputs, anchors, [h * w for h, w in cells])
print(json.dumps({k: float(v) for k, v in losses.items()}))
"""
NAMES = {
    'classification': loss_names.CLASSIFICATION,
    'bbox_regression': loss_names.LOCALIZATION,
    'bbox_ctrness': loss_names.CENTERNESS,
}


def fcos(changes: str = '') -> DetectionModel:
    model = tiny()
    for name in ('similarity_calculator', 'box_predictor', 'anchor_generator', 'loss'):
        model.ssd.ClearField(name)
    text_format.Merge(FCOS, model.ssd)
    text_format.Merge(changes, model.ssd)
    return model


def small_extractor():
    """Puts a convolution for each map in place of a whole network."""
    extractor = loss_families.extractor(4, [8, 16, 32], 1)
    return mock.patch.object(build, 'build_extractor', return_value=extractor)


def build_detector(changes: str = ''):
    tf.keras.utils.set_random_seed(0)
    with small_extractor():
        detector = build.build_detector(fcos(changes).ssd, is_training=True)
    detector.build_variables()
    return detector


@pytest.fixture(scope='module')
def detector():
    return build_detector()


@pytest.fixture(scope='module')
def groundtruth():
    size = np.array([HEIGHT, WIDTH] * 2, np.float32)
    return Groundtruth.from_lists(
        boxes=[np.reshape(boxes, [-1, 4]).astype(np.float32) / size for boxes in BOXES],
        classes=[np.eye(COLUMNS, dtype=np.float32)[classes][:, 1:] for classes in CLASSES],
    )


def outputs():
    """Predictions that any head could give: codes are not negative, some are 0."""
    rng = np.random.default_rng(0)
    return {
        'codes': np.maximum(rng.normal(2, 2, [3, CELLS, 4]), 0).astype(np.float32),
        'logits': rng.normal(-2, 2, [3, CELLS, COLUMNS]).astype(np.float32),
        'centerness': rng.normal(0, 2, [3, CELLS, 1]).astype(np.float32),
    }


def predictions_of(detector):
    images, shapes = detector.preprocess(tf.zeros([3, HEIGHT, WIDTH, 3]))
    given = {name: tf.constant(value) for name, value in outputs().items()}
    return detector.predict(images, shapes)._replace(
        box_codes=given['codes'],
        class_logits=given['logits'],
        further={'centerness': given['centerness']},
    )


def losses_of_torchvision(python, folder):
    """Runs `PROGRAM` on `outputs`."""
    path = folder / 'given.npz'
    boxes = {f'boxes{i}': np.reshape(rows, [-1, 4]).astype('f') for i, rows in enumerate(BOXES)}
    classes = {f'classes{i}': np.array(rows, np.int64) for i, rows in enumerate(CLASSES)}
    np.savez(path, **outputs(), **boxes, **classes)
    words = [python, '-c', PROGRAM, str(path)]
    environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
    options = {'check': True, 'capture_output': True, 'text': True, 'env': environment}
    found = subprocess.run(words, timeout=120, **options)
    return json.loads(found.stdout.splitlines()[-1])


def check_losses(losses, theirs):
    # Sums of some hundred float32 terms.
    for name, ours in NAMES.items():
        assert float(losses[ours]) == pytest.approx(theirs[name], rel=2e-5), name


def test_losses_are_those_that_torchvision_gave(detector, groundtruth):
    check_losses(detector.loss(predictions_of(detector), groundtruth), RECORDED)


def test_losses_are_those_of_torchvision(detector, groundtruth, tmp_path):
    python = os.environ.get('TORCHVISION_PYTHON')
    if not python:
        pytest.skip('needs TORCHVISION_PYTHON, an interpreter that has torch and torchvision')
    theirs = losses_of_torchvision(python, tmp_path)
    check_losses(detector.loss(predictions_of(detector), groundtruth), theirs)
    assert theirs == pytest.approx(RECORDED, rel=1e-5)


def test_scores_are_means_of_class_and_centerness(detector):
    predictions = predictions_of(detector)
    given = outputs()
    scores = detector.postprocess(predictions, tf.constant([[HEIGHT, WIDTH, 3]] * 3))
    sigmoid = 1 / (1 + np.exp(-given['logits'])) / (1 + np.exp(-given['centerness']))
    np.testing.assert_allclose(scores['raw_detection_scores'], np.sqrt(sigmoid), rtol=1e-5)


def test_targets_do_not_depend_on_where_they_are_found(detector, groundtruth):
    images, shapes = detector.preprocess(tf.zeros([3, HEIGHT, WIDTH, 3]))
    early = detector.predict(images, shapes, True, groundtruth)
    losses = detector.loss(early, groundtruth)
    assert list(losses) == list(detector.loss_names())
    assert list(losses) == list(FAMILY.loss_names(fcos().ssd))
    late = detector.loss(early._replace(targets=None), groundtruth)
    assert {name: float(loss) for name, loss in losses.items()} == pytest.approx(
        {name: float(loss) for name, loss in late.items()}, rel=1e-6
    )


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (
            'matcher { point_matcher { min_distance: 8 } }',
            r'matcher.point_matcher.min_distance: expected less than max_distance \(8\)',
        ),
        (
            'anchor_generator { multiscale_anchor_generator { scales_per_octave: 2 } }',
            'anchor_generator: expected multiscale_anchor_generator { aspect_ratios: 1 ',
        ),
        (
            'anchor_generator { multiscale_anchor_generator { aspect_ratios: 2 } }',
            'anchor_generator: expected multiscale_anchor_generator { aspect_ratios: 1 ',
        ),
        (
            'matcher { argmax_matcher {} } similarity_calculator { iou_similarity {} }',
            r'centerness: expected model.ssd.matcher.point_matcher with it',
        ),
        (
            'box_coder { mean_stddev_box_coder {} }',
            r'centerness: expected model.ssd.box_coder.distance_box_coder with it',
        ),
        (
            'post_processing { score_converter: IDENTITY }',
            'post_processing.score_converter: expected SIGMOID with model.ssd.centerness',
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(changes, message):
    assert list(rules.check(fcos().ssd)) == []
    problems = list(rules.check(fcos(changes).ssd))
    assert len(problems) == 1
    assert re.match(f'model.ssd.{message}', problems[0]), problems
    with pytest.raises(UserError, match=message):
        build_detector(changes)


def test_its_saved_model_gives_the_same_detections_and_tflite_refuses_it(detector, tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (1, HEIGHT, WIDTH, 3), np.uint8)
    pipeline, folder = TrainEvalPipelineConfig(model=fcos()), str(tmp_path / 'checkpoint')
    checkpoints.save_model(folder, detector.named_variables(), 7)
    with small_extractor():
        exporter.export(pipeline, folder, tmp_path / 'out')
    found = SavedModelRuntime(tmp_path / 'out')(images)
    preprocessed, shapes = detector.preprocess(tf.constant(images))
    expected = detector.postprocess(detector.predict(preprocessed, shapes, False), shapes)
    assert int(expected['num_detections'][0]) > 0
    for name in ('detection_boxes', 'detection_scores'):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
    np.testing.assert_array_equal(found['detection_classes'], expected['detection_classes'] + 1)
    with pytest.raises(UserError, match=r'model.ssd.box_coder: expected faster_rcnn_box_coder'):
        tflite_graph.post_process_options(fcos(), 10, False)
