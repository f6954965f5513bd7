"""Says what is allowed in a config, but probably not meant: settings without the effect they name.

The fields that nothing reads at all are in `unsupported`; what is here depends on other fields.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator

from object_detection.config import model_rules, unsupported
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

_OWN_STRIDES = 'a feature pyramid has the strides of its levels'
_UNUSED_KEYPOINTS = 'keypoints are decoded, but not used by Faster R-CNN'


def warn(pipeline: TrainEvalPipelineConfig, parts: Collection[str]) -> None:
    """Logs each caution about the named top-level fields of a config once a process."""
    fields = defaultdict(list)
    for part, path, reason in _without_effect(pipeline):
        if part in parts:
            fields[reason].append(path)
    unsupported.warn_once(fields)
    if 'train_config' in parts:
        _warn_of_steps_without_learning(pipeline.train_config)


def _without_effect(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str, str]]:
    """Triples of a top-level field, the path of a field below it, and why that has no effect."""
    extractor = pipeline.model.faster_rcnn.feature_extractor
    if model_rules.has_pyramid(extractor) and extractor.HasField('first_stage_features_stride'):
        path = f'{model_rules.ROOT}.feature_extractor.first_stage_features_stride'
        yield 'model', path, _OWN_STRIDES
    if pipeline.train_input_reader.num_keypoints:
        yield 'train_input_reader', 'train_input_reader.num_keypoints', _UNUSED_KEYPOINTS
    for index, reader in enumerate(pipeline.eval_input_reader):
        if reader.num_keypoints:
            path = f'eval_input_reader[{index}].num_keypoints'
            yield 'eval_input_reader', path, _UNUSED_KEYPOINTS


def _warn_of_steps_without_learning(config) -> None:
    kind = config.optimizer.WhichOneof('optimizer')
    rate = getattr(config.optimizer, kind).learning_rate if kind else None
    if rate is None or rate.WhichOneof('learning_rate') != 'cosine_decay_learning_rate':
        return
    total = rate.cosine_decay_learning_rate.total_steps
    if config.num_steps > total:
        path = f'train_config.optimizer.{kind}.learning_rate.cosine_decay_learning_rate.total_steps'
        unsupported.log_once(
            f'train_config.num_steps is {config.num_steps}, but {path} is {total}: the learning '
            f'rate is 0 for the last {config.num_steps - total} steps.'
        )
