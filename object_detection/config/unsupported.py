"""The table of the fields of the schema that nothing reads, with the messages for their users.

A field of a message type represents the whole message. Whoever builds a feature deletes its lines
here; a test walks the schema and finds every field that is neither read nor listed.
"""

import logging
from collections import defaultdict
from collections.abc import Container
from typing import Any, NamedTuple

from google.protobuf.message import Message

from object_detection.config import walk
from object_detection.errors import raise_if_any

_logger = logging.getLogger(__name__)
_warned: set[str] = set()

ERROR = 'error'
WARNING = 'warning'


class Unsupported(NamedTuple):
    """The message about a field that nothing reads.

    Attributes:
      level: ERROR if a requested effect would be missing; WARNING if nothing is lost.
      reason: what happens instead, or what to set instead.
      harmless: values that may be set without a message; if None, the default of the schema.
    """

    level: str
    reason: str
    harmless: tuple | None = None


def _error(reason: str, *harmless: Any) -> Unsupported:
    return Unsupported(ERROR, reason, harmless or None)


def _warning(reason: str, *harmless: Any) -> Unsupported:
    return Unsupported(WARNING, reason, harmless or None)


_SYNCHRONOUS = _warning('gradients are always averaged over all replicas, synchronously')
_TF_DATA = _warning('tf.data replaced the queues that it sized')
_ONE_NMS = _warning('one exact algorithm does all non-maximum suppression')
_ANCHORWISE = _warning('losses are given for each anchor and normalized by their caller')
_LOSSES_WITH_ANCHORWISE_OUTPUT = (
    'WeightedL2LocalizationLoss',
    'WeightedSmoothL1LocalizationLoss',
    'WeightedSigmoidClassificationLoss',
    'SigmoidFocalClassificationLoss',
    'WeightedSoftmaxClassificationLoss',
    'WeightedSoftmaxClassificationAgainstLogitsLoss',
    'BootstrappedSigmoidClassificationLoss',
)

_MODEL = {
    'Ssd.inplace_batchnorm_update': _warning('batch norm statistics are updated by Keras'),
    'Ssd.mask_head_config': _error(
        'single-shot detectors have no masks, nor have they in the reference implementation; use '
        'faster_rcnn with number_of_stages: 3'
    ),
    'Loss.EqualizationLoss.exclude_prefixes': _warning('equalization_loss is refused itself'),
    'CenterNet.compute_heatmap_sparse': _warning(
        'each object is drawn on the map of its class alone, one image at a time, which needs '
        'little memory'
    ),
    'DetectionModel.experimental_model': _error('there is no experimental model; use faster_rcnn'),
    'FasterRcnn.inplace_batchnorm_update': _error('batch norm statistics are updated by Keras'),
    'FasterRcnn.resize_masks': _warning(
        'mask targets are cropped from the resized ground truth and are never resized twice', False
    ),
    'FasterRcnn.use_partitioned_nms_in_first_stage': _ONE_NMS,
    'FasterRcnn.use_combined_nms_in_first_stage': _ONE_NMS,
    'BatchNonMaxSuppression.use_partitioned_nms': _ONE_NMS,
    'XYPairs.training_data_type': _warning('a calibration is applied as it is written'),
    'Hyperparams.op': _warning('each layer knows whether it is a convolution', 1, 2),
    'ConvolutionalBoxPredictor.apply_sigmoid_to_scores': _warning(
        'post_processing.score_converter turns the logits into scores'
    ),
    **{f'{loss}.anchorwise_output': _ANCHORWISE for loss in _LOSSES_WITH_ANCHORWISE_OUTPUT},
}

_TRAINING = {
    'TrainConfig.sync_replicas': _SYNCHRONOUS,
    'TrainConfig.replicas_to_aggregate': _SYNCHRONOUS,
    'TrainConfig.startup_delay_steps': _SYNCHRONOUS,
    'TrainConfig.fine_tune_checkpoint_version': _warning(
        'how fine_tune_checkpoint is stored is seen in its files', 2
    ),
    'TrainConfig.run_fine_tune_checkpoint_dummy_computation': _warning(
        'all variables exist before fine_tune_checkpoint is read', True
    ),
    'TrainConfig.batch_queue_capacity': _TF_DATA,
    'TrainConfig.num_batch_queue_threads': _TF_DATA,
    'TrainConfig.prefetch_queue_capacity': _TF_DATA,
    'TrainConfig.max_number_of_boxes': _warning('train_input_reader.max_number_of_boxes is read'),
    'TrainConfig.unpad_groundtruth_tensors': _warning(
        'ground truth stays padded; padding has weight 0, so that the losses are the same'
    ),
    'TrainConfig.retain_original_images': _warning('training needs no original images'),
    'TrainConfig.summarize_gradients': _warning('gradients are not summarized'),
}

_AUGMENTATION = {
    'PreprocessingStep.scale_boxes_to_pixel_coordinates': _error(
        'boxes stay normalized until the losses; leave it out'
    ),
}

_READING = {
    'InputReader.queue_capacity': _TF_DATA,
    'InputReader.min_after_dequeue': _TF_DATA,
    'InputReader.prefetch_size': _TF_DATA,
    'InputReader.num_parallel_map_calls': _TF_DATA,
    'InputReader.num_parallel_batches': _warning('tf.data chooses how much to do in parallel'),
    'InputReader.use_display_name': _warning('labels are looked up by name and by display name'),
    'InputReader.include_source_id': _warning('the source id is always there'),
    'InputReader.external_input_reader': _error(
        'only tf_record_input_reader, coco_input_reader, voc_input_reader and yolo_input_reader '
        'are read'
    ),
}

_EVALUATION = {
    'EvalConfig.num_examples': _warning(
        'all examples are evaluated, or those that eval_samples limits them to'
    ),
    'EvalConfig.eval_interval_secs': _warning('each checkpoint is evaluated as it appears'),
    'EvalConfig.max_evals': _warning('evaluation ends with the last checkpoint'),
    'EvalConfig.save_graph': _warning('graphs are not written'),
    'EvalConfig.eval_master': _warning('evaluation runs in this process'),
    'EvalConfig.ignore_groundtruth': _error('metrics need ground truth; use `tfod predict`'),
    # `validation` checks whether the value contradicts what happens.
    'EvalConfig.use_moving_averages': _warning(
        'averages are evaluated wherever train_config.optimizer.use_moving_average keeps them',
        True,
        False,
    ),
    'EvalConfig.eval_instance_masks': _warning('metrics_set says what is evaluated'),
    'EvalConfig.retain_original_images': _warning('pictures are drawn on the resized images'),
    'EvalConfig.retain_original_image_additional_channels': _warning(
        'the original images are not kept, nor are their further channels'
    ),
    'EvalConfig.use_dummy_loss_in_eval': _warning('losses of the evaluation are real'),
}

FIELDS: dict[str, Unsupported] = {
    **_MODEL,
    **_TRAINING,
    **_AUGMENTATION,
    **_READING,
    **_EVALUATION,
}


class Findings(NamedTuple):
    """Set fields that nothing reads: errors as sentences, warnings as reason -> paths."""

    errors: list[str]
    warnings: dict[str, list[str]]


def find_unsupported(
    config: Message, parts: Container[str] | None = None, *, path: str = ''
) -> Findings:
    """Looks up the set fields of a config in the table.

    Args:
      config: a `TrainEvalPipelineConfig`, or a message in one.
      parts: names of the top-level fields to search; None searches all.
      path: path of the message in a `TrainEvalPipelineConfig`.
    """
    errors, warnings = [], defaultdict(list)
    for found in walk.set_fields(config, path=path, skip=FIELDS.__contains__):
        entry = FIELDS.get(found.key)
        part = found.path.partition('.')[0].partition('[')[0]
        if entry is None or (parts is not None and part not in parts) or _is_harmless(found, entry):
            continue
        if entry.level == ERROR:
            errors.append(f'{found.path} is not supported: {entry.reason}.')
        else:
            warnings[entry.reason].append(found.path)
    return Findings(errors, dict(warnings))


def warn_once(warnings: dict[str, list[str]]) -> None:
    """Logs fields without effect, one line per reason and each field once per process."""
    for reason, paths in warnings.items():
        fresh = [path for path in paths if path not in _warned]
        if fresh:
            _logger.warning('no effect: %s (%s).', ', '.join(fresh), reason)
        _warned.update(fresh)


def log_once(message: str) -> None:
    """Logs a warning, but the same warning only once per process."""
    if message not in _warned:
        _logger.warning('%s', message)
    _warned.add(message)


def check_unsupported(config: Message, *, path: str = '') -> None:
    """Warns about set fields that have no effect; arguments as for `find_unsupported`.

    Raises:
      ConfigError: if fields ask for missing features; the message lists them.
    """
    findings = find_unsupported(config, path=path)
    warn_once(findings.warnings)
    raise_if_any(findings.errors)


def _is_harmless(found: walk.SetField, entry: Unsupported) -> bool:
    if isinstance(found.value, Message) or found.field.is_repeated:
        return False
    return found.value in (entry.harmless or (found.field.default_value,))
