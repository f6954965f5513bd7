"""What has to hold within a CenterNet message, found without TensorFlow.

`build.build_detector` raises what `problems_of_parts` yields; the validation lists all problems.
"""

from collections.abc import Iterator

from object_detection.config import model_rules, overrides
from object_detection.meta_architectures.center_net.deepmac import rules
from object_detection.meta_architectures.center_net.extractors import EXTRACTORS
from object_detection.models import extractors
from object_detection.models.necks.table import NECKS
from object_detection.protos.center_net_pb2 import CenterNet, CenterNetFeatureExtractor
from object_detection.protos.post_processing_pb2 import PostProcessing


def type_problem(type_name: str) -> str | None:
    """Returns what is wrong with a feature extractor's type, or None.

    It continues the name of the field, such as 'expected ...'.
    """
    if type_name in EXTRACTORS:
        return None
    return overrides.unknown_choice(type_name, list(EXTRACTORS))


def unread_fields(config: CenterNetFeatureExtractor) -> Iterator[str]:
    """Yields the fields of a feature extractor that its parts do not read."""
    if config.type not in EXTRACTORS:
        return
    extractor = EXTRACTORS[config.type]
    if not (extractor.backbone or 'mobilenet').startswith('mobilenet'):
        yield 'depth_multiplier'
    neck = NECKS.get(config.neck or extractor.neck)
    fields = {'use_separable_conv', 'upsampling_interpolation'} - (neck.uses if neck else set())
    if config.neck in ('', extractor.neck) and extractor.settings.get('is_separable') is False:
        fields.add('use_separable_conv')
    yield from sorted(fields)


ROOT = 'model.center_net'

# Values of `candidate_ranking_mode`: those that need no boxes, those that do, and that of
# `argmax_postprocessing`.
_PLAIN_RANKINGS = ('min_distance', 'score_distance_ratio')
RANKINGS = (*_PLAIN_RANKINGS, 'score_scaled_distance_ratio', 'gaussian_weighted')
_ARGMAX_RANKING = 'gaussian_weighted_const'


def padding_multiple(config: CenterNet) -> int:
    """Returns the multiple to which the extractor pads the sides of images."""
    extractor = config.feature_extractor
    if extractor.type not in EXTRACTORS:
        return 1
    return extractors.padding_multiple(EXTRACTORS[extractor.type], extractor.backbone, None)


def check(config: CenterNet) -> Iterator[str]:
    """Yields one sentence for each problem that is found without TensorFlow."""
    if config.image_resizer.WhichOneof('image_resizer_oneof') is None:
        yield f'{ROOT}.image_resizer is not set; expected e.g. keep_aspect_ratio_resizer.'
    problem = type_problem(config.feature_extractor.type)
    if problem:
        yield f'{ROOT}.feature_extractor.type: {problem}'
    else:
        yield from extractors.problems(EXTRACTORS, config.feature_extractor, ROOT)
    yield from _centers(config)
    yield from _boxes(config)
    yield from _keypoints(config)
    yield from _masks(config)
    yield from _densepose(config)
    yield from _tracks(config)
    yield from problems_of_parts(config)


def problems_of_parts(config: CenterNet) -> Iterator[str]:
    """Yields one sentence for each pair of options that do not fit each other."""
    yield from rules.check(config)
    yield from _post_processing(config)
    yield from _channels(config.feature_extractor)
    for name in ('post_processing', 'mask_estimation_task'):
        if config.HasField(name) and not config.HasField('object_detection_task'):
            yield f'{ROOT}.{name}: expected with object_detection_task, as it needs boxes.'
    if config.feature_extractor.upsampling_interpolation not in ('nearest', 'bilinear'):
        yield (
            f'{ROOT}.feature_extractor.upsampling_interpolation: expected nearest or bilinear. '
            f'Received: {config.feature_extractor.upsampling_interpolation!r}.'
        )


def _post_processing(config: CenterNet) -> Iterator[str]:
    path, options = f'{ROOT}.post_processing', config.post_processing
    if not config.HasField('post_processing'):
        return
    yield from model_rules.suppression(
        options.batch_non_max_suppression, f'{path}.batch_non_max_suppression'
    )
    if options.score_converter == PostProcessing.SOFTMAX:
        yield (
            f'{path}.score_converter: expected SIGMOID, or none, since scores are always the '
            'sigmoid of the heat maps. Received: SOFTMAX.'
        )
    unread = {
        'logit_scale': options.logit_scale != 1.0,
        'calibration_config': options.HasField('calibration_config'),
    }
    for name, is_set in unread.items():
        if is_set:
            yield (
                f'{path}.{name}: expected none, as the scores of peaks are not converted; the '
                'TensorFlow Object Detection API does not read it.'
            )


def _channels(extractor: CenterNetFeatureExtractor) -> Iterator[str]:
    path = f'{ROOT}.feature_extractor'
    for name in ('channel_means', 'channel_stds'):
        values = getattr(extractor, name)
        if len(values) == 2:
            yield (
                f'{path}.{name}: expected one number, or one for each of three or more channels. '
                f'Received: {len(values)} numbers.'
            )


def _centers(config: CenterNet) -> Iterator[str]:
    path, centers = f'{ROOT}.object_center_params', config.object_center_params
    if not config.HasField('object_center_params'):
        yield f'{path} is not set; every task needs the heat map of centres.'
        return
    if centers.classification_loss.WhichOneof('classification_loss') is None:
        yield (
            f'{path}.classification_loss is not set; expected e.g. '
            'penalty_reduced_logistic_focal_loss { alpha: 2 beta: 4 }.'
        )
    weights = centers.keypoint_weights_for_center
    if weights and (
        len(config.keypoint_estimation_task) != 1 or config.HasField('object_detection_task')
    ):
        yield (
            f'{path}.keypoint_weights_for_center: expected with one keypoint_estimation_task and '
            'without object_detection_task, since boxes have centres of their own.'
        )
    if weights and not any(weights):
        yield (
            f'{path}.keypoint_weights_for_center: expected a weight above 0. '
            f'Received: {", ".join(f"{weight:g}" for weight in weights)}.'
        )
    yield from _head(centers.center_head_params, f'{path}.center_head_params')


def _boxes(config: CenterNet) -> Iterator[str]:
    if not config.HasField('object_detection_task'):
        return
    path, task = f'{ROOT}.object_detection_task', config.object_detection_task
    if task.localization_loss.WhichOneof('localization_loss') is None:
        yield f'{path}.localization_loss is not set; expected e.g. l1_localization_loss {{}}.'
    for name in ('scale_head_params', 'offset_head_params'):
        yield from _head(getattr(task, name), f'{path}.{name}')


def _keypoints(config: CenterNet) -> Iterator[str]:
    tasks = config.keypoint_estimation_task
    if tasks and not config.keypoint_label_map_path:
        yield f'{ROOT}.keypoint_label_map_path is not set; keypoints of tasks are found in it.'
    names = [task.task_name for task in tasks]
    for index, task in enumerate(tasks):
        path = f'{ROOT}.keypoint_estimation_task[{index}]'
        if not task.task_name or names.index(task.task_name) != index:
            yield f'{path}.task_name: expected a name of its own. Received: {task.task_name!r}.'
        yield from _ranking(task, path, has_boxes=config.HasField('object_detection_task'))
        for name in ('classification_loss', 'localization_loss'):
            if getattr(task.loss, name).WhichOneof(name) is None:
                yield f'{path}.loss.{name} is not set; expected one of its options.'
        for name in ('heatmap_head_params', 'offset_head_params', 'regress_head_params'):
            yield from _head(getattr(task, name), f'{path}.{name}')


def _ranking(task: CenterNet.KeypointEstimation, path: str, *, has_boxes: bool) -> Iterator[str]:
    mode = task.candidate_ranking_mode
    if task.argmax_postprocessing and mode != _ARGMAX_RANKING:
        yield (
            f'{path}.candidate_ranking_mode: expected {_ARGMAX_RANKING} with '
            f'argmax_postprocessing. Received: {mode!r}.'
        )
    elif not task.argmax_postprocessing and mode not in RANKINGS:
        yield (
            f'{path}.candidate_ranking_mode: expected one of {", ".join(RANKINGS)}, or '
            f'{_ARGMAX_RANKING} with argmax_postprocessing. Received: {mode!r}.'
        )
    elif not has_boxes and mode not in _PLAIN_RANKINGS:
        yield (
            f'{path}.candidate_ranking_mode: expected {" or ".join(_PLAIN_RANKINGS)} without '
            f'object_detection_task, as the others need boxes. Received: {mode!r}.'
        )


def _masks(config: CenterNet) -> Iterator[str]:
    if not config.HasField('mask_estimation_task'):
        return
    path, task = f'{ROOT}.mask_estimation_task', config.mask_estimation_task
    if task.classification_loss.WhichOneof('classification_loss') is None:
        yield f'{path}.classification_loss is not set; expected e.g. weighted_sigmoid {{}}.'
    yield from _head(task.mask_head_params, f'{path}.mask_head_params')


def _densepose(config: CenterNet) -> Iterator[str]:
    if not config.HasField('densepose_estimation_task'):
        return
    path, task = f'{ROOT}.densepose_estimation_task', config.densepose_estimation_task
    if not task.HasField('class_id') or not 0 <= task.class_id < max(config.num_classes, 1):
        yield (
            f'{path}.class_id: expected the class that has a surface, 0 to num_classes - 1. '
            f'Received: {task.class_id if task.HasField("class_id") else "none"}.'
        )
    for name in ('classification_loss', 'localization_loss'):
        if getattr(task.loss, name).WhichOneof(name) is None:
            yield f'{path}.loss.{name} is not set; expected one of its options.'


def _tracks(config: CenterNet) -> Iterator[str]:
    tasks = {
        'track_estimation_task': ('classification_loss', 'weighted_softmax'),
        'temporal_offset_task': ('localization_loss', 'weighted_smooth_l1'),
    }
    for name, (loss, example) in tasks.items():
        if config.HasField(name) and getattr(getattr(config, name), loss).WhichOneof(loss) is None:
            yield f'{ROOT}.{name}.{loss} is not set; expected e.g. {example} {{}}.'


def _head(params: CenterNet.PredictionHeadParams, path: str) -> Iterator[str]:
    filters, sizes = len(params.num_filters or [0]), len(params.kernel_sizes or [0])
    if filters != sizes:
        yield (
            f'{path}: expected as many kernel_sizes as num_filters. '
            f'Received: {sizes} and {filters}.'
        )
