"""Configs that continue a trained detector on other data."""

import numpy as np

from object_detection.dataset_tools import starter_parts
from object_detection.dataset_tools.data_statistics import DataStatistics
from object_detection.dataset_tools.starter_parts import (
    SINGLE_SHOT,
    TRANSFORMER,
    TWO_STAGE,
    Starter,
)
from object_detection.dataset_tools.starter_weights import Weights
from object_detection.errors import ConfigError
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig


def make(weights: Weights, train: DataStatistics, *, wants_masks: bool) -> Starter:
    """Returns a config with the model and the augmentation of a trained detector.

    Args:
      weights: the detector, with its config.
      train: the records.
      wants_masks: whether it predicts masks.

    Raises:
      ConfigError: if the detector is of another kind, or predicts no masks that are wanted.
    """
    starter = Starter(_from_detector(weights, wants_masks))
    starter.explain('model', f'is the model of {weights.path}, with the classes of the data.')
    starter_parts.remove_keypoints(starter)
    _fit_padding(starter, train)
    return starter


def _from_detector(weights: Weights, wants_masks: bool) -> TrainEvalPipelineConfig:
    pipeline = TrainEvalPipelineConfig()
    pipeline.model.CopyFrom(weights.pipeline.model)
    kind = pipeline.model.WhichOneof('model')
    if kind not in (TWO_STAGE, SINGLE_SHOT, TRANSFORMER):
        raise ConfigError(
            f'--weights {weights.path}: expected a detector of one of the kinds '
            f'{TWO_STAGE}, {SINGLE_SHOT}, {TRANSFORMER}. '
            f'Received: {kind}, which is not available yet.'
        )
    if wants_masks and not starter_parts.predicts_masks(pipeline):
        raise ConfigError(f'--weights {weights.path}: it predicts no masks; use --task boxes.')
    if starter_parts.predicts_masks(pipeline) and not wants_masks:
        starter_parts.remove_masks(pipeline)
    for step in weights.pipeline.train_config.data_augmentation_options:
        pipeline.train_config.data_augmentation_options.add().CopyFrom(step)
    pipeline.train_config.optimizer.CopyFrom(starter_parts.template(kind).train_config.optimizer)
    pipeline.train_config.gradient_clipping_by_norm = 10.0
    return pipeline


def _fit_padding(starter: Starter, train: DataStatistics) -> None:
    """Pads images that keep their shapes to one size, which those of a batch need."""
    resizer = starter.model.image_resizer.keep_aspect_ratio_resizer
    kind = starter.model.image_resizer.WhichOneof('image_resizer_oneof')
    if kind != 'keep_aspect_ratio_resizer' or resizer.pad_to_max_dimension or resizer.pad_height:
        return
    sides = np.sort(train.image_sizes, axis=1)
    factors = np.minimum(resizer.min_dimension / sides[:, 0], resizer.max_dimension / sides[:, 1])
    largest = (train.image_sizes * factors[:, np.newaxis]).max(axis=0)
    resizer.pad_height, resizer.pad_width = (starter_parts.round_up(value) for value in largest)
    starter.explain_model(
        'image_resizer',
        f'sides of {resizer.min_dimension} to {resizer.max_dimension} pixels, which the weights '
        f'were trained for, padded to {resizer.pad_height} x {resizer.pad_width} (height x width). '
        'Smaller ones train faster.',
    )
