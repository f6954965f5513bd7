"""Replaces files by generated data, to measure speed where there are no files."""

import os

from object_detection.config import reader
from object_detection.errors import ConfigError
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files

# Number of images of COCO's train2017 and val2017: the length of an epoch and an evaluation.
TRAINING_IMAGES = 118287
EVALUATION_IMAGES = 5000

# Factor of all learning rates. Random weights with frozen norms give losses of hundreds and
# gradients of a norm above 10,000, with which a schedule for pretrained weights may diverge.
_STANDSTILL = 1e-9

# Fields about files, their content, or weights to read.
_READER_FIELDS = (
    'input_type',
    'frame_index',
    'label_map_path',
    'num_epochs',
    'num_keypoints',
    'load_multiclass_scores',
    'sample_1_of_n_examples',
    'sample_from_datasets_weights',
    'filter_empty_images',
    'skip_crowd',
    'repeat_factor_sampling',
    'data_service',
    'record_cache',
)
_TRAINING_FIELDS = (
    'class_weight',
    'data_augmentation_options',
    'merge_multiple_label_boxes',
    'use_multiclass_scores',
    'fine_tune_checkpoint',
    'fine_tune_checkpoint_type',
    'from_detection_checkpoint',
    'load_all_detection_checkpoint_vars',
)


def without_files(pipeline: TrainEvalPipelineConfig) -> TrainEvalPipelineConfig:
    """Returns a config whose readers produce synthetic data and that needs no file.

    Ground truth rows, masks, batches and buckets are kept. Images are not augmented. Training
    starts from random weights and hardly changes them.
    """
    changed = TrainEvalPipelineConfig()
    changed.CopyFrom(pipeline)
    if changed.HasField('train_input_reader'):
        _replace(changed.train_input_reader, TRAINING_IMAGES)
    for each in changed.eval_input_reader:
        _replace(each, EVALUATION_IMAGES)
    if changed.HasField('train_config'):
        for field in _TRAINING_FIELDS:
            changed.train_config.ClearField(field)
        multipliers = changed.train_config.optimizer.learning_rate_multiplier
        del multipliers[:]
        multipliers.add(variables='.', multiplier=_STANDSTILL)
    return changed


def is_synthetic(config: InputReader) -> bool:
    """Returns whether the data of a reader are generated."""
    return config.HasField('synthetic_input_reader')


def check_same_kind_of_data(pipeline: TrainEvalPipelineConfig, earlier: str) -> None:
    """Checks that a training on real data is not resumed with synthetic data, or vice versa.

    Args:
      pipeline: config of the training to resume.
      earlier: path of the config that the training was started with; it may not exist.

    Raises:
      ConfigError: if the kinds of data differ; the message names the flag.
    """
    if not files.exists(earlier):
        return
    try:
        before = reader.read_pipeline(earlier)
    except ConfigError:  # A file for people, who may have changed it.
        return
    was_synthetic = is_synthetic(before.train_input_reader)
    if was_synthetic != is_synthetic(pipeline.train_input_reader):
        raise ConfigError(
            '--use_synthetic_data: expected another model_dir, as a training continues with the '
            f'kind of data that it began with. Received: {os.path.dirname(earlier)}, a training on '
            f'{"synthetic" if was_synthetic else "real"} data.'
        )


def _replace(config: InputReader, num_examples: int) -> None:
    for field in _READER_FIELDS:
        config.ClearField(field)
    if not is_synthetic(config):
        config.synthetic_input_reader.num_examples = num_examples
