"""Fields of a single-shot detector without an effect, and settings that are rarely meant."""

from collections.abc import Iterator

from object_detection.builders.ssd.rules import ROOT
from object_detection.protos.losses_pb2 import Loss
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.post_processing_pb2 import PostProcessing
from object_detection.protos.ssd_pb2 import Ssd
from object_detection.validation.models.set_fields import among, is_set

_NMS = 'post_processing.batch_non_max_suppression'
_EXPECTED = ('loss.min_num_negative_samples', 'loss.desired_negative_sampling_ratio')
_CONVERTERS = {
    'weighted_softmax': PostProcessing.SOFTMAX,
    'weighted_logits_softmax': PostProcessing.SOFTMAX,
    'weighted_sigmoid': PostProcessing.SIGMOID,
    'weighted_sigmoid_focal': PostProcessing.SIGMOID,
    'bootstrapped_sigmoid': PostProcessing.SIGMOID,
}

_NO_CONFIDENCES = 'without use_confidences_as_targets: true it is not read'
_NO_EXPECTATION = 'without loss.expected_loss_weights it is not read'
_NO_RATIO = 'it widens the limit of max_negatives_per_positive, which is not set'
_NO_DROPOUT = 'use_dropout is false'
_HARD = 'use_hard_nms suppresses outright'
_ONE_TOTAL = 'use_class_agnostic_nms has max_total_detections as its only limit'
_DECAYS = 'soft_nms_sigma lets scores decay; no box is suppressed by its overlap'


def find(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str, str]]:
    """Yields triples of a top-level field, the path of a field without effect, and the reason."""
    for path, reason in _unread(pipeline.model.ssd):
        yield 'model', f'{ROOT}.{path}', reason


def _unread(config: Ssd) -> Iterator[tuple[str, str]]:
    """Yields the paths of fields in the model's message, and why they have no effect."""
    if not config.use_confidences_as_targets:
        yield from among(config, ['implicit_example_weight'], _NO_CONFIDENCES)
    if config.loss.expected_loss_weights == Loss.NONE:
        yield from among(config, _EXPECTED, _NO_EXPECTATION)
    if not config.loss.hard_example_miner.max_negatives_per_positive:
        yield from among(config, ['loss.hard_example_miner.min_negatives_per_image'], _NO_RATIO)
    kind = config.box_predictor.WhichOneof('box_predictor_oneof')
    path = f'box_predictor.{kind}.dropout_keep_probability'
    if kind and not getattr(config.box_predictor, kind).use_dropout and is_set(config, path, 1.0):
        yield path, _NO_DROPOUT
    nms = config.post_processing.batch_non_max_suppression
    path = f'{_NMS}.max_detections_per_class'
    if nms.use_class_agnostic_nms and is_set(config, path, nms.max_total_detections):
        yield path, _ONE_TOTAL
    if nms.use_hard_nms:
        yield from among(config, [f'{_NMS}.soft_nms_sigma'], _HARD)
    elif nms.soft_nms_sigma > 0:
        yield from among(config, [f'{_NMS}.iou_threshold'], _DECAYS)


def find_untrained(config: Ssd) -> Iterator[str]:
    """Yields a sentence for each kind of layers that keeps its random weights in training."""
    if config.freeze_batchnorm:
        yield (
            f'{ROOT}.freeze_batchnorm is true, but there is no train_config.fine_tune_checkpoint: '
            'the batch norms keep a mean of 0 and a variance of 1.'
        )


def find_advice(config: Ssd) -> Iterator[str]:
    """Yields a sentence for each setting that makes detections of a new model worse."""
    kind = config.loss.classification_loss.WhichOneof('classification_loss')
    expected = _CONVERTERS.get(kind)
    if expected not in (None, config.post_processing.score_converter):
        name = PostProcessing.ScoreConverter.Name
        yield (
            f'{ROOT}.post_processing.score_converter is '
            f'{name(config.post_processing.score_converter)}, but {ROOT}.loss.classification_loss.'
            f'{kind} trains logits whose scores are made by {name(expected)}.'
        )
    if expected == PostProcessing.SOFTMAX:
        yield from _softmax_background(config, kind)
    if not config.post_processing.batch_non_max_suppression.change_coordinate_frame:
        yield (
            f'{ROOT}.{_NMS}.change_coordinate_frame is false: boxes are relative to the padded '
            'image, which is wrong for images that are padded.'
        )


def _softmax_background(config: Ssd, kind: str) -> Iterator[str]:
    has_column = config.add_background_class or config.explicit_background_class
    if config.encode_background_as_zeros or not has_column:
        field = 'encode_background_as_zeros: false' if has_column else 'add_background_class: true'
        yield (
            f'{ROOT}.loss.classification_loss.{kind} has no loss for an anchor without a class, so '
            f'that no background is learned; set {ROOT}.{field}.'
        )
