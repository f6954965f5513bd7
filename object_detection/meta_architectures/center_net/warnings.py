"""Fields of a CenterNet without an effect, and settings that are rarely meant.

Errors of the builders of those components of a CenterNet that are cheap to build.
"""

from collections.abc import Iterator

from object_detection.config import walk, warnings
from object_detection.config.walk import among
from object_detection.meta_architectures.center_net import rules
from object_detection.meta_architectures.center_net.deepmac.rules import without_effect
from object_detection.meta_architectures.center_net.rules import ROOT
from object_detection.meta_architectures.tracing import problems
from object_detection.protos.center_net_pb2 import CenterNet
from object_detection.protos.losses_pb2 import ClassificationLoss, LocalizationLoss
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

_NO_EXTRACTOR = (
    'no extractor reads it; use_separable_conv makes the convolutions of a pyramid separable, and '
    f'{ROOT}.use_depthwise those of the heads'
)
# Fields of a keypoint task -> the values of candidate_ranking_mode that read them.
_RANKED_BY = {
    'score_distance_offset': ('score_distance_ratio',),
    'score_distance_multiplier': ('score_scaled_distance_ratio',),
    'std_dev_multiplier': ('gaussian_weighted',),
    'gaussian_denom_ratio': ('gaussian_weighted_const',),
    **dict.fromkeys(
        (
            'keypoint_candidate_score_threshold',
            'num_candidates_per_keypoint',
            'peak_max_pool_kernel_size',
            'box_scale',
            'candidate_search_scale',
        ),
        rules.RANKINGS,
    ),
}
_OF_BOXES = ('box_scale', 'candidate_search_scale')
_OF_DEPTH = ('per_keypoint_depth', 'keypoint_depth_loss_weight')


def find(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str, str]]:
    """Yields triples of a top-level field, the path of a field without effect, and the reason."""
    yield from without_effect(pipeline)
    for path, reason in _unread(pipeline.model.center_net):
        yield 'model', f'{ROOT}.{path}', reason


def _unread(config: CenterNet) -> Iterator[tuple[str, str]]:
    kind = config.feature_extractor.type
    unread = [f'feature_extractor.{name}' for name in rules.unread_fields(kind)]
    yield from among(config, unread, f'feature extractors of the type {kind} do not read it')
    yield from among(config, ['feature_extractor.use_depthwise'], _NO_EXTRACTOR)
    for index, task in enumerate(config.keypoint_estimation_task):
        for name, reason in _unread_of_keypoints(config, task):
            yield f'keypoint_estimation_task[{index}].{name}', reason
    yield from warnings.suppression(config, 'post_processing')


def _unread_of_keypoints(
    config: CenterNet, task: CenterNet.KeypointEstimation
) -> Iterator[tuple[str, str]]:
    mode = task.candidate_ranking_mode
    unread = [name for name, modes in _RANKED_BY.items() if mode not in modes]
    yield from among(task, unread, f'candidate_ranking_mode is {mode}')
    if not config.HasField('object_detection_task'):
        yield from among(task, _OF_BOXES, 'without object_detection_task there are no boxes')
    if not task.rescore_instances:
        yield from among(task, ['rescoring_threshold'], 'rescore_instances is false')
    if not task.predict_depth:
        yield from among(task, _OF_DEPTH, 'predict_depth is false')


def find_advice(config: CenterNet) -> Iterator[str]:
    """Yields a sentence for each default that makes detections of a new model worse."""
    losses = {'object_center_params': config.object_center_params.classification_loss}
    for index, task in enumerate(config.keypoint_estimation_task):
        losses[f'keypoint_estimation_task[{index}].loss'] = task.loss.classification_loss
    for path, loss in losses.items():
        yield from _focal(loss, f'{ROOT}.{path}.classification_loss')
    # Without a fixed shape, a batch is padded to its largest image, if not by the resizer.
    is_fixed = config.image_resizer.WhichOneof('image_resizer_oneof') == 'fixed_shape_resizer'
    if not config.ignore_padding and not is_fixed:
        yield (
            f'{ROOT}.ignore_padding is false: peaks of the heat maps in the padding of images, '
            'which nothing trains, become detections. For a new model set it to true.'
        )


def _focal(loss: ClassificationLoss, path: str) -> Iterator[str]:
    kind = 'penalty_reduced_logistic_focal_loss'
    if loss.WhichOneof('classification_loss') == kind and not getattr(loss, kind).alpha:
        yield (
            f'{path}.{kind}.alpha is 0: easy cells, which are most, weigh as much as the others. '
            'Objects as Points has alpha: 2 beta: 4.'
        )


def check(config: CenterNet) -> Iterator[str]:
    """Yields one sentence per problem; loads TensorFlow."""
    from object_detection.builders import (
        image_resizer_builder,
        losses_builder,
        post_processing_builder,
    )
    from object_detection.meta_architectures.center_net.build import build_layouts

    parts = {'image_resizer': image_resizer_builder.build}
    if config.HasField('post_processing'):
        parts['post_processing'] = post_processing_builder.build
    for name, build in parts.items():
        yield from problems(build, getattr(config, name), f'{ROOT}.{name}')
    if config.keypoint_estimation_task:
        yield from problems(build_layouts, config, ROOT)
    builders = {
        ClassificationLoss: losses_builder.build_classification,
        LocalizationLoss: losses_builder.build_localization_of_codes,
    }
    for field in walk.set_fields(config, path=ROOT):
        if build := builders.get(type(field.value)):
            yield from problems(build, field.value, field.path)
