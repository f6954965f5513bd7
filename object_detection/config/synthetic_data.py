"""Puts generated data in the place of files, for measuring speed where there are none."""

import os

from object_detection.config import reader
from object_detection.errors import ConfigError
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files

# Images of COCO's train2017 and val2017: what an epoch and an evaluation are.
TRAINING_IMAGES = 118287
EVALUATION_IMAGES = 5000

# Factor of all learning rates. Random weights under frozen norms make losses of hundreds and
# gradients of a norm above 10,000, with which a schedule for pretrained weights may diverge.
_STANDSTILL = 1e-9

# Fields about files, their content, or weights that would be read.
_OF_READERS = (
    'label_map_path',
    'num_epochs',
    'num_keypoints',
    'load_multiclass_scores',
    'sample_1_of_n_examples',
    'sample_from_datasets_weights',
    'filter_empty_images',
    'skip_crowd',
    'data_service',
    'record_cache',
)
_OF_TRAINING = (
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
    """Returns a config whose readers give synthetic data and that needs no file.

    The rows of the ground truth, masks, batches and buckets stay. Nothing is augmented. Training
    starts from random weights and all but keeps them.
    """
    changed = TrainEvalPipelineConfig()
    changed.CopyFrom(pipeline)
    if changed.HasField('train_input_reader'):
        _replace(changed.train_input_reader, TRAINING_IMAGES)
    for each in changed.eval_input_reader:
        _replace(each, EVALUATION_IMAGES)
    if changed.HasField('train_config'):
        for field in _OF_TRAINING:
            changed.train_config.ClearField(field)
        multipliers = changed.train_config.optimizer.learning_rate_multiplier
        del multipliers[:]
        multipliers.add(variables='.', multiplier=_STANDSTILL)
    return changed


def is_synthetic(config: InputReader) -> bool:
    """Whether a reader's data are generated."""
    return config.HasField('synthetic_input_reader')


def check_same_kind_of_data(pipeline: TrainEvalPipelineConfig, earlier: str) -> None:
    """Checks that no real training goes on with noise, or the other way round.

    Args:
      pipeline: of the training that goes on.
      earlier: the config that it was started with, a file; there may be none.

    Raises:
      ConfigError: naming the flag.
    """
    if not files.exists(earlier):
        return
    try:
        before = reader.read_pipeline(earlier)
    except ConfigError:  # It is only written, for people; they may have changed it.
        return
    was_synthetic = is_synthetic(before.train_input_reader)
    if was_synthetic != is_synthetic(pipeline.train_input_reader):
        raise ConfigError(
            '--use_synthetic_data: expected another model_dir, as a training goes on with the kind '
            f'of data that it began with. Received: {os.path.dirname(earlier)}, a training on '
            f'{"synthetic" if was_synthetic else "real"} data.'
        )


def _replace(config: InputReader, num_examples: int) -> None:
    for field in _OF_READERS:
        config.ClearField(field)
    if not is_synthetic(config):
        config.synthetic_input_reader.num_examples = num_examples
