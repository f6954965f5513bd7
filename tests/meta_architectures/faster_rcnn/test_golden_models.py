"""Whole detectors with the reference's weights give the reference's numbers, in every mode."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.core.groundtruth import Groundtruth
from object_detection.meta_architectures.faster_rcnn.faster_rcnn import FasterRcnn
from object_detection.meta_architectures.faster_rcnn.predictions import Predictions
from tests.models import golden_models
from tests.models.golden_models import GoldenModel

TENSOR_TOLERANCE = 5e-5  # relative to the tensor's own spread
LOSS_TOLERANCE = 2e-4
GRADIENT_TOLERANCE = 1e-3
DETECTION_TOLERANCE = 1e-3  # absolute, of boxes, scores and what belongs to them

PREDICTIONS = (
    'anchors',
    'box_classifier_features',
    'class_predictions_with_background',
    'final_anchors',
    'image_shape',
    'num_proposals',
    'proposal_boxes',
    'proposal_boxes_normalized',
    'refined_box_encodings',
    'rpn_box_encodings',
    'rpn_objectness_predictions_with_background',
)
MAPS = ('feature_maps', 'rpn_box_predictor_features', 'rpn_features_to_crop')
DETECTION_FIELDS = ('detection_anchor_indices', 'detection_multiclass_scores', 'detection_masks')
FASTER_RCNN = 'faster_rcnn_resnet50_v1_fpn_640x640'
MASK_RCNN = 'mask_rcnn_resnet50_keras'


@dataclasses.dataclass(frozen=True)
class Filled:
    """A detector with the reference's weights, and what it is fed.

    The norms are frozen, which makes no difference at inference and is what the goldens of
    training were made with.
    """

    golden: GoldenModel
    detector: FasterRcnn
    images: tf.Tensor
    true_shapes: tf.Tensor
    groundtruth: Groundtruth

    def predict(self, training: bool) -> Predictions:
        groundtruth = self.groundtruth if training else None
        return self.detector.predict(self.images, self.true_shapes, training, groundtruth)


@pytest.fixture(scope='module', params=[FASTER_RCNN, MASK_RCNN])
def filled(request) -> Filled:
    golden = GoldenModel(request.param)
    golden.config.groundtruth_mask_crop_size = 0
    golden.config.feature_extractor.batch_norm_trainable = False
    detector = model_builder.build(golden.model_config)
    images, true_shapes = detector.preprocess(tf.constant(golden.arrays['images']))
    detector.build_variables()
    golden_models.fill_proposal_layers(golden, detector.feature_extractor)
    golden_models.fill_box_classifier(golden, detector.feature_extractor)
    golden_models.fill_rpn_head(golden, detector.rpn.head)
    golden_models.fill_box_head(golden, detector.box_stages[0].head)
    if detector.mask_stage is not None:
        golden_models.fill_mask_head(golden, detector.mask_stage.head)
    assert not golden.unused
    return Filled(golden, detector, images, true_shapes, _groundtruth(golden))


def test_preprocess(filled):
    filled.golden.check('preprocess/inputs', filled.images, tolerance=TENSOR_TOLERANCE)
    np.testing.assert_array_equal(
        filled.true_shapes, filled.golden.arrays['preprocess/true_image_shapes']
    )


def test_predict_and_postprocess(filled):
    predictions = filled.predict(training=False)
    _check_predictions(filled.golden, 'predict', predictions)
    detections = filled.detector.postprocess(predictions, filled.true_shapes)
    for name in ('raw_detection_boxes', 'raw_detection_scores'):
        filled.golden.check(f'postprocess/{name}', detections[name], tolerance=TENSOR_TOLERANCE)
    _check_detections(filled.golden.arrays, {k: v.numpy() for k, v in detections.items()})


@pytest.mark.slow
def test_losses_of_predictions_at_inference(filled):
    """Losses without the mask loss, which the reference computes of final detections there."""
    losses, gradients = _losses_and_gradients(filled, training=False)
    facts = filled.golden.facts['loss_eval_mode']
    has_masks = filled.detector.mask_stage is not None
    _check_losses(losses, facts, absent=['Loss/BoxClassifierLoss/mask_loss'] * has_masks)
    if not has_masks:
        _check_gradients(filled, gradients, facts)


@pytest.mark.parametrize(
    'filled', [FASTER_RCNN, pytest.param(MASK_RCNN, marks=pytest.mark.slow)], indirect=True
)
def test_training(filled):
    """Predictions, losses and gradients of all variables.

    The sampler is the static one, which takes anchors between the thresholds too: these goldens
    sample all anchors.
    """
    _check_predictions(filled.golden, 'train_predict', filled.predict(training=True))
    losses, gradients = _losses_and_gradients(filled, training=True)
    facts = filled.golden.facts['loss_train_mode']
    _check_losses(losses, facts)
    _check_gradients(filled, gradients, facts)


def _groundtruth(golden: GoldenModel) -> Groundtruth:
    fields: dict[str, list[np.ndarray]] = {}
    for image in range(len(golden.arrays['images'])):
        for field in golden.facts['groundtruth']['fields']:
            fields.setdefault(field, []).append(golden.arrays[f'gt/{field}.{image}'])
    return Groundtruth.from_lists(**fields)


def _losses_and_gradients(
    filled: Filled, training: bool
) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
    """Losses, and the gradients of their sum by the trainable variables."""
    with tf.GradientTape() as tape:
        losses = filled.detector.loss(filled.predict(training), filled.groundtruth)
        total = tf.add_n(list(losses.values()))
    variables = [variable.value for variable in filled.detector.trainable_variables]
    return losses, tape.gradient(total, variables)


def _check_predictions(golden: GoldenModel, mode: str, typed: Predictions) -> None:
    predictions = typed.to_dict()
    for name in PREDICTIONS:
        golden.check(f'{mode}/{name}', predictions[name], tolerance=TENSOR_TOLERANCE)
    for name in MAPS:
        for level, features in enumerate(predictions[name]):
            golden.check(f'{mode}/{name}.{level}', features, tolerance=TENSOR_TOLERANCE)
    if 'mask_predictions' in predictions:
        name = f'{mode}/mask_predictions'
        golden.check(name, predictions['mask_predictions'], tolerance=TENSOR_TOLERANCE)


def _check_detections(arrays: dict[str, np.ndarray], ours: dict[str, np.ndarray]) -> None:
    """Finds each golden detection among ours, whatever the order of ties, and compares it."""
    golden = {
        name.removeprefix('postprocess/'): array
        for name, array in arrays.items()
        if name.startswith('postprocess/')
    }
    np.testing.assert_array_equal(ours['num_detections'], golden['num_detections'])
    for image, count in enumerate(golden['num_detections'].astype(int)):
        left = set(range(count))
        for row in range(count):
            match = next(
                slot for slot in sorted(left) if _is_same((ours, slot), (golden, row), image)
            )
            left.remove(match)
            for name in DETECTION_FIELDS:
                if name in golden:
                    np.testing.assert_allclose(
                        ours[name][image, match],
                        golden[name][image, row],
                        rtol=0,
                        atol=DETECTION_TOLERANCE,
                        err_msg=f'{name}, image {image}, detection {row}',
                    )


def _is_same(
    first: tuple[dict[str, np.ndarray], int], second: tuple[dict[str, np.ndarray], int], image: int
) -> bool:
    """Whether two (detections, row) of an image agree in box, class and score."""

    def difference(name: str) -> float:
        (ours, slot), (golden, row) = first, second
        return np.abs(ours[name][image, slot] - golden[name][image, row]).max()

    return difference('detection_classes') == 0 and all(
        difference(name) < DETECTION_TOLERANCE for name in ('detection_boxes', 'detection_scores')
    )


def _check_losses(
    losses: dict[str, tf.Tensor], facts: dict[str, Any], absent: Sequence[str] = ()
) -> None:
    assert set(losses) == set(facts['loss']) - set(absent)
    for name, loss in losses.items():
        np.testing.assert_allclose(loss, facts['loss'][name], rtol=LOSS_TOLERANCE, err_msg=name)


def _check_gradients(filled: Filled, gradients: list[tf.Tensor], facts: dict[str, Any]) -> None:
    """Compares the gradient's norm, of all variables together and of each."""
    wanted = facts['gradient_l2_norm_of_total_loss']
    keys = [filled.golden.keys[v.path] for v in filled.detector.trainable_variables]
    norms = dict(zip(keys, [float(tf.norm(gradient)) for gradient in gradients], strict=True))
    assert set(norms) == set(wanted)

    def total(values: dict[str, float]) -> float:
        return float(np.sqrt(sum(value**2 for value in values.values())))

    np.testing.assert_allclose(total(norms), total(wanted), rtol=GRADIENT_TOLERANCE)
    for key, norm in norms.items():
        np.testing.assert_allclose(
            norm, wanted[key], rtol=GRADIENT_TOLERANCE, atol=1e-6 * total(wanted), err_msg=key
        )
