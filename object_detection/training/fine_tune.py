"""Starts a training from the weights that `train_config.fine_tune_checkpoint` names.

`restore` is defined in `object_detection.weights.restore`; programs of users import it from here.
"""

import os

from object_detection.errors import CheckpointError
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.protos import train_pb2
from object_detection.validation.train_config import WEIGHTS_SUFFIXES, resolve_type
from object_detection.weights.restore import Report, restore

__all__ = ['from_config', 'restore']


def from_config(
    detector: DetectionModel, train_config: train_pb2.TrainConfig, model_dir: str | None = None
) -> Report | None:
    """Restores the weights that `train_config` names; returns None if it names no checkpoint.

    Args:
      detector: with all variables built.
      train_config: the fields of fine-tuning are read.
      model_dir: folder of the new training; None does not check where the checkpoint is.

    Raises:
      CheckpointError: as `restore`, or if the checkpoint is in `model_dir` itself, where new
        checkpoints would replace it.
    """
    path = train_config.fine_tune_checkpoint
    if not path:
        return None
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    is_checkpoint = not path.endswith(WEIGHTS_SUFFIXES)
    if model_dir and is_checkpoint and os.path.realpath(folder) == os.path.realpath(model_dir):
        raise CheckpointError(
            'train_config.fine_tune_checkpoint: expected one outside model_dir, where the new '
            f'checkpoints go. Received: {path}.'
        )
    all_that_fits = train_config.load_all_detection_checkpoint_vars
    checkpoint_type = resolve_type(
        train_config.fine_tune_checkpoint_type, train_config.from_detection_checkpoint
    )
    if all_that_fits and checkpoint_type == 'detection':
        checkpoint_type = 'full'
    return restore(detector, path, checkpoint_type, all_that_fits=all_that_fits)
