"""Says what is allowed in a config, but probably not meant: settings without the effect they name.

The fields that nothing reads at all are in `unsupported`; what is here depends on other fields.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator

from object_detection.config import (
    augmentation_rules,
    model_rules,
    schedule_cautions,
    unsupported,
)
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

_OWN_STRIDES = 'a feature pyramid has the strides of its levels'
_OWN_FRAME = 'detections of Faster R-CNN are always relative to the true image'
_NO_RATIO = 'it widens the limit of max_negatives_per_positive, which is not set'
_NO_CROPS = 'R-FCN crops score maps, to the size that rfcn_box_predictor says'
_CROP_FIELDS = (
    'initial_crop_size',
    'maxpool_kernel_size',
    'maxpool_stride',
    'use_matmul_crop_and_resize',
)
_UNUSED_KEYPOINTS = 'keypoints are decoded, but not used by Faster R-CNN'
_AVERAGES = (
    'averages are evaluated wherever they are kept; train_config.optimizer.use_moving_average: '
    'false keeps none'
)
_NOT_FINE_TUNED = 'there is no train_config.fine_tune_checkpoint'
_FINE_TUNING = (
    'fine_tune_checkpoint_type',
    'from_detection_checkpoint',
    'load_all_detection_checkpoint_vars',
)


def warn(pipeline: TrainEvalPipelineConfig, parts: Collection[str]) -> None:
    """Logs each caution about the named top-level fields of a config once a process."""
    fields = defaultdict(list)
    for part, path, reason in _without_effect(pipeline):
        if part in parts:
            fields[reason].append(path)
    unsupported.warn_once(fields)
    if 'train_config' in parts:
        for sentence in schedule_cautions.find(pipeline.train_config):
            unsupported.log_once(sentence)
        for sentence in augmentation_rules.cautions(pipeline.train_config):
            unsupported.log_once(sentence)


def _without_effect(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str, str]]:
    """Triples of a top-level field, the path of a field below it, and why that has no effect."""
    config = pipeline.model.faster_rcnn
    if model_rules.is_rfcn(config):
        for name in _CROP_FIELDS:
            if getattr(config, name):
                yield 'model', f'{model_rules.ROOT}.{name}', _NO_CROPS
    nms = config.second_stage_post_processing.batch_non_max_suppression
    if not nms.change_coordinate_frame and config.number_of_stages > 1:
        path = f'{model_rules.ROOT}.second_stage_post_processing.batch_non_max_suppression'
        yield 'model', f'{path}.change_coordinate_frame', _OWN_FRAME
    miner = config.hard_example_miner
    if miner.min_negatives_per_image and not miner.max_negatives_per_positive:
        path = f'{model_rules.ROOT}.hard_example_miner.min_negatives_per_image'
        yield 'model', path, _NO_RATIO
    extractor = config.feature_extractor
    if model_rules.has_pyramid(extractor) and extractor.HasField('first_stage_features_stride'):
        path = f'{model_rules.ROOT}.feature_extractor.first_stage_features_stride'
        yield 'model', path, _OWN_STRIDES
    if pipeline.train_input_reader.num_keypoints:
        yield 'train_input_reader', 'train_input_reader.num_keypoints', _UNUSED_KEYPOINTS
    for index, reader in enumerate(pipeline.eval_input_reader):
        if reader.num_keypoints:
            path = f'eval_input_reader[{index}].num_keypoints'
            yield 'eval_input_reader', path, _UNUSED_KEYPOINTS
    if not pipeline.train_config.fine_tune_checkpoint:
        for name in _FINE_TUNING:
            if getattr(pipeline.train_config, name):
                yield 'train_config', f'train_config.{name}', _NOT_FINE_TUNED
    asks, keeps = pipeline.eval_config, pipeline.train_config.optimizer
    if (
        asks.HasField('use_moving_averages')
        and not asks.use_moving_averages
        and keeps.use_moving_average
        and pipeline.HasField('train_config')
    ):
        yield 'eval_config', 'eval_config.use_moving_averages', _AVERAGES
