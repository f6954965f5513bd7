"""Warns of settings that are allowed, but probably not meant, since they have no effect.

Fields that nothing reads at all are those of `ranges`; these warnings depend on other fields.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator

from google.protobuf.message import Message

from object_detection.builders import training_rules
from object_detection.builders.input_readers import channels
from object_detection.builders.input_readers import rules as input_reader_rules
from object_detection.builders.input_readers import rules as reader_rules
from object_detection.config import families, ranges, report, synthetic_data, walk
from object_detection.data import label_map
from object_detection.errors import format_list
from object_detection.meta_architectures import tracing
from object_detection.protos import optimizer_pb2
from object_detection.protos.input_reader_pb2 import PNG_MASKS, InputReader
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.validation import augmentation, label_map_rules, train_config
from object_detection.validation import eval_config as eval_config_rules
from object_detection.validation import train_config as train_config_rules

_NOTHING_READS_IT = 'nothing reads it'
_UNUSED_KEYPOINTS = 'keypoints are decoded, but not used by '
_AVERAGES = (
    'averages are evaluated wherever they are kept; train_config.optimizer.use_moving_average: '
    'false keeps none'
)
_ONLY_IN_TRAINING = 'evaluation sees all images and all objects'
_ONE_PASS = 'an evaluation reads each image once'
_RECORD_FIELDS = (
    'num_readers',
    'read_block_length',
    'filenames_shuffle_buffer_size',
    'record_cache',
)
_ONLY_WITH_RECORDS = '{} reads no record files'
_SERVED = 'the data_service reads the files'
_SHUFFLING = ('shuffle_buffer_size', 'filenames_shuffle_buffer_size')
# What is loaded for the models that ask for it.
_LOADING_FLAGS = (
    'load_context_features',
    'load_dense_pose',
    'load_keypoint_depth_features',
    'load_track_id',
)
_NO_MASK_METRICS = 'eval_config.metrics_set has no metrics of masks'
_RECALL_METRICS = eval_config_rules.AT_RECALL_METRICS
_UNLABELED_METRICS = f'{eval_config_rules.BOX_METRICS} nor {_RECALL_METRICS}'
_ONLY_AT_RECALL = ('recall_lower_bound', 'recall_upper_bound')
_ONE_PENALTY = 'train_config.weight_decay takes its place'
_NO_PENALTY = 'train_config.add_regularization_loss is false'
_NO_EPOCHS = 'neither num_epochs nor learning_rate_unit: EPOCHS counts in epochs'
_REGULARIZERS = ('Regularizer.l1_regularizer', 'Regularizer.l2_regularizer')
_NOT_FINE_TUNED = 'there is no train_config.fine_tune_checkpoint'
_FINE_TUNING = (
    'fine_tune_checkpoint_type',
    'from_detection_checkpoint',
    'load_all_detection_checkpoint_vars',
)


def warn(
    pipeline: TrainEvalPipelineConfig, parts: Collection[str], *, resumes: bool = False
) -> None:
    """Warns about the named top-level fields of a config.

    Args:
      pipeline: the config.
      parts: names of top-level fields.
      resumes: whether a training resumes from a checkpoint of its own.
    """
    fields = defaultdict(list)
    for part, path, reason in _without_effect(pipeline):
        if part in parts:
            fields[reason].append(path)
    report.current().warn_unused(fields)
    for path, reader in readers(pipeline, parts):
        for sentence in input_reader_rules.bucket_warnings(reader, path, pipeline.model):
            report.current().warn(sentence)
        for sentence in _unused_classes(pipeline, reader, path):
            report.current().warn(sentence)
    if 'eval_input_reader' in parts:
        for sentence in label_map_rules.warnings(pipeline):
            report.current().warn(sentence)
    if 'train_config' in parts:
        if not (resumes or _continues_detector(pipeline.train_config)):
            family, message = families.find(pipeline.model), families.options(pipeline.model)
            for sentence in family.warnings(message, _starts_at_random(pipeline)):
                report.current().warn(sentence)
        for sentence in train_config_rules.schedule_warnings(pipeline.train_config):
            report.current().warn(sentence)
        for sentence in train_config_rules.quantization_warnings(pipeline):
            report.current().warn(sentence)
        for sentence in _decays_twice(pipeline):
            report.current().warn(sentence)
        for sentence in augmentation.warnings(pipeline.train_config):
            report.current().warn(sentence)


def readers(
    pipeline: TrainEvalPipelineConfig, parts: Collection[str]
) -> Iterator[tuple[str, InputReader]]:
    """Yields the readers of the named top-level fields, with their paths."""
    if 'train_input_reader' in parts:
        yield 'train_input_reader', pipeline.train_input_reader
    if 'eval_input_reader' in parts:
        for index, reader in enumerate(pipeline.eval_input_reader):
            yield f'eval_input_reader[{index}]', reader


def _without_effect(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str, str]]:
    """Yields triples: a top-level field, the path of a field in it, why that has no effect."""
    for path, reason in _unread_of_model(pipeline):
        yield 'model', path, reason
    yield from families.find(pipeline.model).unread(pipeline)
    for path, reader in readers(pipeline, ('train_input_reader', 'eval_input_reader')):
        part = path.partition('[')[0]
        of_part = _only_in_training if part == 'eval_input_reader' else _only_in_evaluation
        for found in (of_part(reader), _of_reader(reader, part), _of_models(pipeline, reader)):
            for name, reason in found:
                yield part, f'{path}.{name}', reason
    for found in (_of_training(pipeline), _of_evaluation(pipeline)):
        for path, reason in found:
            yield path.partition('.')[0], path, reason
    if pipeline.train_config.HasField('weight_decay'):
        yield from _penalties(pipeline)


def _is_set(message: Message, name: str) -> bool:
    """Returns whether a field has another value than its default."""
    return getattr(message, name) != message.DESCRIPTOR.fields_by_name[name].default_value


def _only_in_training(reader: InputReader) -> Iterator[tuple[str, str]]:
    """Yields the fields of a reader that an evaluation does not read, and why."""
    for name in ('filter_empty_images', 'skip_crowd', 'repeat_factor_sampling'):
        if reader.HasField(name) and getattr(reader, name):
            yield name, _ONLY_IN_TRAINING
    if reader.num_epochs > 1:
        yield 'num_epochs', _ONE_PASS


def _only_in_evaluation(reader: InputReader) -> Iterator[tuple[str, str]]:
    if reader.name:
        yield 'name', 'only results of evaluations have names'


def _of_reader(reader: InputReader, part: str) -> Iterator[tuple[str, str]]:
    """Yields the fields of a reader that others of its fields leave without effect, and why."""
    shuffles = reader.shuffle and (part == 'train_input_reader' or reader.HasField('shuffle'))
    reads_annotations = reader_rules.reads_annotations(reader)
    for name in _RECORD_FIELDS if reads_annotations else ():
        if reader.HasField(name):
            yield name, _ONLY_WITH_RECORDS.format(reader.WhichOneof('input_reader'))
    for name in () if shuffles else _SHUFFLING:
        if _is_set(reader, name) and not (reads_annotations and name in _RECORD_FIELDS):
            yield name, 'the reader does not shuffle'
    if reader.data_service and reader.HasField('record_cache'):
        yield 'record_cache', _SERVED
    if reader.mask_type == PNG_MASKS and not reader.load_instance_masks:
        yield 'mask_type', 'load_instance_masks is false'


def _of_models(pipeline: TrainEvalPipelineConfig, reader: InputReader) -> Iterator[tuple[str, str]]:
    """Yields the fields of a reader that load what the model does not use, and why."""
    needs, title = families.needs(pipeline.model), families.find(pipeline.model).title
    if reader.num_keypoints and not needs.keypoints:
        yield 'num_keypoints', _UNUSED_KEYPOINTS + title
    for name in _LOADING_FLAGS:
        if getattr(reader, name) and name not in {*needs.reader_flags, *needs.input_flags}:
            yield name, f'this {title} does not use what it loads'


def _of_training(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str]]:
    """Yields the path of each field of `train_config` without effect, and why."""
    train = pipeline.train_config
    if train.steps_per_epoch and not (
        train.HasField('num_epochs')
        or train.optimizer.learning_rate_unit == optimizer_pb2.Optimizer.EPOCHS
    ):
        yield 'train_config.steps_per_epoch', _NO_EPOCHS
    yield from train_config.without_effect(train.optimizer)
    if train.weight_decay.HasField('exclude_pattern') and not train.weight_decay.weight:
        yield 'train_config.weight_decay.exclude_pattern', 'train_config.weight_decay.weight is 0'
    for name in () if train.fine_tune_checkpoint else _FINE_TUNING:
        if getattr(train, name):
            yield f'train_config.{name}', _NOT_FINE_TUNED
    is_float32 = train.precision == TrainConfig.FLOAT32 and not train.use_bfloat16
    if train.precision_exempt_patterns and is_float32:
        yield training_rules.EXEMPTIONS, 'train_config.precision is FLOAT32'


def _of_evaluation(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str]]:
    """Yields the path of each field of `eval_config` without effect, and why."""
    asks, keeps = pipeline.eval_config, pipeline.train_config.optimizer
    if asks.mask_paste_method and not eval_config_rules.mask_sets(asks):
        yield 'eval_config.mask_paste_method', _NO_MASK_METRICS
    if asks.max_detections and not eval_config_rules.limits_detections(asks):
        reason = 'eval_config.metrics_set has no metrics of COCO or LVIS, and others count all'
        yield 'eval_config.max_detections', reason
    for name in _ONLY_AT_RECALL:
        if _is_set(asks, name) and _RECALL_METRICS not in asks.metrics_set:
            yield f'eval_config.{name}', f'eval_config.metrics_set has no {_RECALL_METRICS}'
    if asks.skip_predictions_for_unlabeled_class and not eval_config_rules.skips_unlabeled(asks):
        path = 'eval_config.skip_predictions_for_unlabeled_class'
        yield path, f'eval_config.metrics_set has neither {_UNLABELED_METRICS}'
    if asks.export_path and not eval_config_rules.stores_detections(asks):
        reason = (
            'eval_config.metrics_set has no metrics that store detections: those of COCO, LVIS, '
            'panoptic quality and keypoints'
        )
        yield 'eval_config.export_path', reason
    if asks.keep_image_id_for_visualization_export and not asks.visualization_export_dir:
        path = 'eval_config.keep_image_id_for_visualization_export'
        yield path, 'there is no eval_config.visualization_export_dir'
    if asks.visualization_export_dir and not asks.num_visualizations:
        yield 'eval_config.visualization_export_dir', 'eval_config.num_visualizations is 0'
    if (
        asks.HasField('groundtruth_box_visualization_color')
        and not asks.visualize_groundtruth_boxes
    ):
        path = 'eval_config.groundtruth_box_visualization_color'
        yield path, 'eval_config.visualize_groundtruth_boxes is false'
    if asks.all_metrics_per_category and not asks.include_metrics_per_category:
        reason = 'eval_config.include_metrics_per_category is false'
        yield 'eval_config.all_metrics_per_category', reason
    if not (
        asks.image_classes_field_map_empty_to_ones
        or any(reader.load_image_labels for reader in pipeline.eval_input_reader)
    ):
        path = 'eval_config.image_classes_field_map_empty_to_ones'
        yield path, 'no eval_input_reader has load_image_labels'
    if (
        asks.HasField('use_moving_averages')
        and not asks.use_moving_averages
        and keeps.use_moving_average
        and pipeline.HasField('train_config')
    ):
        yield 'eval_config.use_moving_averages', _AVERAGES


def _unread_of_model(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str]]:
    """Yields the fields that no builder reads, except those that the schema marks as unread."""
    known = {
        found.path
        for found in walk.set_fields(pipeline.model, path='model')
        if ranges.options(found.field).is_unread
    }
    for path, reason in tracing.check(pipeline.model, channels.of_detector(pipeline)):
        if path not in known:
            yield path, reason or _NOTHING_READS_IT


def _unused_classes(
    pipeline: TrainEvalPipelineConfig, reader: InputReader, path: str
) -> Iterator[str]:
    """Yields a sentence if the model has more classes than the label map has ids."""
    model = pipeline.model.WhichOneof('model')
    num_classes = families.num_classes(pipeline.model)
    if not num_classes or not reader.label_map_path:
        return
    max_id = max(label_map.load(reader.label_map_path).name_to_id.values())
    if max_id < num_classes:
        yield (
            f'model.{model}.num_classes is {num_classes}, but {path}.label_map_path '
            f'({reader.label_map_path}) has ids up to {max_id}: no object trains the classes above '
            f'{max_id}.'
        )


def _continues_detector(config: TrainConfig) -> bool:
    """Returns whether a training starts from the weights of a detector, not of a classifier."""
    kind = train_config.resolve_type(
        config.fine_tune_checkpoint_type, config.from_detection_checkpoint
    )
    return bool(config.fine_tune_checkpoint) and kind != 'classification'


def _starts_at_random(pipeline: TrainEvalPipelineConfig) -> bool:
    """Returns whether a training on real data starts from random weights."""
    is_synthetic = synthetic_data.is_synthetic(pipeline.train_input_reader)
    return not (pipeline.train_config.fine_tune_checkpoint or is_synthetic)


def _decays_twice(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields a sentence if an optimizer decays weights that have a penalty in the loss, too."""
    config = pipeline.train_config
    kind = config.optimizer.WhichOneof('optimizer')
    optimizer = getattr(config.optimizer, kind) if kind else config.optimizer
    if not (getattr(optimizer, 'weight_decay', 0) and config.add_regularization_loss):
        return
    penalties = ['train_config.weight_decay'] if config.weight_decay.weight else []
    if not config.HasField('weight_decay'):
        penalties = list(_regularizers(pipeline))
    if penalties:
        yield (
            f'{format_list(penalties)} and train_config.optimizer.{kind}.weight_decay both act: '
            'the weights decay twice.'
        )


def _penalties(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str, str]]:
    """Yields the triples of `_without_effect` for a set `train_config.weight_decay`."""
    if not pipeline.train_config.add_regularization_loss:
        yield 'train_config', 'train_config.weight_decay', _NO_PENALTY
    for path in _regularizers(pipeline):
        yield 'train_config', path, _ONE_PENALTY


def _regularizers(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields the paths of the regularizers of the model."""
    for found in walk.set_fields(pipeline.model, path='model'):
        if found.key in _REGULARIZERS and found.value.weight:
            yield found.path
