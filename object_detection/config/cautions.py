"""Says what is allowed in a config, but probably not meant: settings without the effect they name.

The fields that nothing reads at all are in `unsupported`; what is here depends on other fields.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator

from object_detection.config import (
    augmentation_rules,
    model_cautions,
    schedule_cautions,
    unsupported,
    walk,
)
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.train_pb2 import TrainConfig

_UNUSED_KEYPOINTS = 'keypoints are decoded, but not used by Faster R-CNN'
_AVERAGES = (
    'averages are evaluated wherever they are kept; train_config.optimizer.use_moving_average: '
    'false keeps none'
)
_ONLY_IN_TRAINING = 'evaluation sees all images and all objects'
_NO_CROWDS = 'train_input_reader.skip_crowd leaves crowds out'
_ONE_PENALTY = 'train_config.weight_decay takes its place'
_NO_PENALTY = 'train_config.add_regularization_loss is false'
_TWO_DECAYS = (
    'train_config.weight_decay and train_config.optimizer.lars_optimizer.weight_decay both act: '
    'the weights decay twice.'
)
_REGULARIZERS = ('Regularizer.l1_regularizer', 'Regularizer.l2_regularizer')
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
        if _decays_twice(pipeline.train_config):
            unsupported.log_once(_TWO_DECAYS)
        for sentence in augmentation_rules.cautions(pipeline.train_config):
            unsupported.log_once(sentence)


def _without_effect(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str, str]]:
    """Triples of a top-level field, the path of a field below it, and why that has no effect."""
    for path, reason in model_cautions.find(pipeline.model.faster_rcnn):
        yield 'model', path, reason
    if pipeline.train_input_reader.num_keypoints:
        yield 'train_input_reader', 'train_input_reader.num_keypoints', _UNUSED_KEYPOINTS
    for index, reader in enumerate(pipeline.eval_input_reader):
        if reader.num_keypoints:
            path = f'eval_input_reader[{index}].num_keypoints'
            yield 'eval_input_reader', path, _UNUSED_KEYPOINTS
        for name in ('filter_empty_images', 'skip_crowd'):
            if getattr(reader, name):
                yield 'eval_input_reader', f'eval_input_reader[{index}].{name}', _ONLY_IN_TRAINING
    threshold = pipeline.model.faster_rcnn.first_stage_crowd_ioa_threshold
    if pipeline.train_input_reader.skip_crowd and threshold:
        path = 'model.faster_rcnn.first_stage_crowd_ioa_threshold'
        yield 'train_input_reader', path, _NO_CROWDS
    if pipeline.train_config.HasField('weight_decay'):
        yield from _penalties(pipeline)
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


def _decays_twice(config: TrainConfig) -> bool:
    lars = config.optimizer.HasField('lars_optimizer') and config.optimizer.lars_optimizer
    return bool(lars and lars.weight_decay and config.weight_decay.weight)


def _penalties(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str, str]]:
    """As `_without_effect`, where `train_config.weight_decay` is set."""
    if not pipeline.train_config.add_regularization_loss:
        yield 'train_config', 'train_config.weight_decay', _NO_PENALTY
    for found in walk.set_fields(pipeline.model, path='model'):
        if found.key in _REGULARIZERS and found.value.weight:
            yield 'train_config', found.path, _ONE_PENALTY
