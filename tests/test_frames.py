"""Every family detects the ground truth from the outputs that its losses ask for, at any size.

The outputs are made from the targets, so that any difference between the frame of the targets and
that of the detections shows: a part that takes the true image, the padded image and the maps of the
network for one another.
"""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import image_resizer_builder, model_builder
from object_detection.config import families
from object_detection.core import boxes as box_ops
from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.meta_architectures.center_net.tasks.task import centers
from object_detection.meta_architectures.detr import boxes as detr_boxes
from object_detection.meta_architectures.faster_rcnn.predictions import BoxPredictions
from object_detection.protos.image_resizer_pb2 import ImageResizer
from object_detection.protos.model_pb2 import DetectionModel
from tests import rows
from tests import tiny_models as tiny
from tests.export.formats import sources
from tests.meta_architectures.detr import configs as detr_configs
from tests.meta_architectures.ssd import configs as ssd_configs

RESIZERS = {
    'fixed_shape_resizer': 'fixed_shape_resizer { height: 100 width: 70 }',
    'keep_aspect_ratio_resizer': """keep_aspect_ratio_resizer {
      min_dimension: 80 max_dimension: 100 }""",
    'padded': """keep_aspect_ratio_resizer {
      min_dimension: 80 max_dimension: 100 pad_to_max_dimension: true }""",
    'identity_resizer': 'identity_resizer {}',
    'conditional_shape_resizer': """conditional_shape_resizer {
      condition: GREATER size_threshold: 90 }""",
    'pad_to_multiple_resizer': 'pad_to_multiple_resizer { multiple: 24 }',
}
# Of the true image: one object that reaches its lower edge, one small one.
BOXES = np.array([[0.4, 0.1, 1.0, 0.7], [0.05, 0.55, 0.3, 0.9]], np.float32)
CLASSES = np.array([1, 0])


def logits(targets):
    return 12.0 * tf.cast(targets > 0.5, tf.float32) - 6.0


def ideal_ssd(detector, predictions, truth, true_shapes):
    targets = predictions.targets
    return predictions._replace(
        box_codes=targets.box_targets, class_logits=logits(targets.class_targets)
    )


def ideal_faster_rcnn(detector, predictions, truth, true_shapes):
    size = predictions.image_shape[1], predictions.image_shape[2]
    objects = box_ops.normalized_to_absolute(truth.boxes, *size)
    anchors = predictions.anchors
    targets, _ = detector.rpn._assign(anchors, truth._replace(boxes=objects))
    scores = logits(targets.class_targets)
    anchors = anchors._replace(
        box_codes=targets.box_targets, objectness_logits=tf.concat([-scores, scores], axis=-1)
    )
    proposals = detector.rpn.propose(anchors, true_shapes, False)
    targets = detector.box_stages[0].assign(proposals.boxes, objects, truth)
    codes = tf.reshape(targets.box_targets, [-1, 1, 4])
    regions = predictions.regions._replace(
        box_codes=tf.broadcast_to(codes, tf.shape(predictions.regions.box_codes)),
        class_logits=tf.reshape(logits(targets.class_targets), [-1, detector.num_classes + 1]),
    )
    return predictions._replace(
        anchors=anchors, proposals=proposals, box_stages=[BoxPredictions(proposals, regions)]
    )


def ideal_center_net(detector, predictions, truth, true_shapes):
    cells = detector._cells(predictions, truth)
    middles, sizes = (each[0].numpy() for each in centers(cells.boxes))
    rows = [[0, *cell] for cell in np.floor(middles).astype(int)]

    def at(name, values):
        maps = tf.zeros_like(predictions[name][0])
        return [tf.tensor_scatter_nd_update(maps, rows, values.astype(np.float32))]

    heat = tf.clip_by_value(detector.tasks['object_center_params'].targets(cells), 1e-4, 1 - 1e-4)
    return {
        **predictions,
        'object_center': [tf.math.log(heat / (1 - heat))],
        'box/scale': at('box/scale', sizes),
        'box/offset': at('box/offset', middles % 1),
    }


def ideal_detr(detector, predictions, truth, true_shapes):
    """The first queries predict the objects."""
    last = predictions.layers[-1]
    objects = detr_boxes.from_corners(truth.boxes * predictions.frame)
    count = objects.shape[1]
    scores = tf.where(truth.classes > 0, 10.0, -10.0)
    others = tf.fill(tf.shape(last.class_logits[:, count:]), -10.0)
    layer = last._replace(
        class_logits=tf.concat([scores, others], axis=1),
        boxes=tf.concat([objects, last.boxes[:, count:]], axis=1),
    )
    return predictions._replace(layers=[layer])


# Family -> (detector, predictions, ground truth, true shapes) -> what its losses ask for.
IDEAL = {
    'ssd': ideal_ssd,
    'faster_rcnn': ideal_faster_rcnn,
    'center_net': ideal_center_net,
    'detr': ideal_detr,
}


def config_of(family):
    if family == 'ssd':
        return ssd_configs.tiny()
    if family == 'detr':
        return DetectionModel(detr=detr_configs.tiny('rt_detr'))
    if family == 'center_net':
        config = text_format.Parse(sources.CENTER_NET, tiny.pipeline_pb2.TrainEvalPipelineConfig())
        for task in ('keypoint_estimation', 'mask_estimation', 'densepose_estimation'):
            config.model.center_net.ClearField(f'{task}_task')
        return config.model
    config = tiny.tiny_pipeline(sources.BOXES_ONLY).model
    # The few anchors of an object make it a proposal of its own.
    config.faster_rcnn.first_stage_nms_iou_threshold = 0.7
    return config


@pytest.fixture(scope='module', params=IDEAL)
def family(request):
    detector = model_builder.build(config_of(request.param), is_training=False)
    detector.build_variables()
    return request.param, detector


def test_each_family_and_each_resizer_is_tested():
    assert (
        IDEAL.keys()
        == families.FAMILIES.keys()
        == {field.name for field in DetectionModel.DESCRIPTOR.oneofs_by_name['model'].fields}
        - {'experimental_model'}
    )
    options = ImageResizer.DESCRIPTOR.oneofs_by_name['image_resizer_oneof'].fields
    assert {field.name for field in options} <= RESIZERS.keys()


@rows.parametrize('resizer', RESIZERS)
def test_ideal_predictions_are_detected_as_the_ground_truth(family, resizer):
    name, detector = family
    config = text_format.Parse(RESIZERS[resizer], ImageResizer())
    images, true_shape = image_resizer_builder.build(config)(tf.zeros([1, 97, 131, 3]))
    share = true_shape[:2] / tf.shape(images)[1:3]
    boxes = BOXES * tf.cast(tf.tile(share, [2]), tf.float32).numpy()
    truth = Groundtruth.from_lists([boxes], [np.eye(detector.num_classes)[CLASSES]])
    shapes = true_shape[tf.newaxis]
    predictions = detector.predict(detector.normalize(images), shapes, False, truth)
    found = detector.postprocess(IDEAL[name](detector, predictions, truth, shapes), shapes)
    scores = found[DetectionFields.SCORES][0].numpy()
    best = np.argsort(-scores, kind='stable')[:2]
    assert (scores[best] > 0.9).all()
    order = best[np.argsort(found[DetectionFields.CLASSES].numpy()[0, best])]
    np.testing.assert_array_equal(found[DetectionFields.CLASSES].numpy()[0, order], [0, 1])
    np.testing.assert_allclose(
        found[DetectionFields.BOXES].numpy()[0, order], BOXES[::-1], atol=2e-5
    )
