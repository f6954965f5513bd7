"""Weights for evaluation and export: of our checkpoints and, whole, of the reference's."""

import logging

import tensorflow as tf

from object_detection.errors import CheckpointError
from object_detection.weights import checkpoint_files, checkpoints, mask_features, reference
from object_detection.weights import comparison as weight_comparison
from object_detection.weights import restore as restoring
from object_detection.weights.arrays import CheckpointArrays
from object_detection.weights.checkpoint_contents import listing
from object_detection.weights.interfaces import Detector

_logger = logging.getLogger(__name__)


def restore(detector: Detector, prefix: str, *, averages: bool) -> int:
    """Restores all variables of a detector or, after an error, none.

    Args:
      detector: with all its variables.
      prefix: of one checkpoint of ours, or of the TensorFlow Object Detection API.
      averages: whether a variable gets the moving average that the checkpoint holds of it.

    Returns:
      The step that the checkpoint was saved at; 0 if it does not say, as those of the zoo.

    Raises:
      CheckpointError: if the checkpoint is absent or damaged, or is of another model.
    """
    if not _is_reference(prefix):
        return checkpoints.restore_model(prefix, detector.named_variables(), averages=averages)
    _restore_reference(detector, prefix, averages)
    return reference.read_step(prefix)


def restore_by_path(detector: Detector, prefix: str) -> dict[str, tf.Variable]:
    """Restores all variables of a detector for `tf.train.Checkpoint(model=detector)`, or none.

    Args:
      detector: variables that it lacks are made.
      prefix: of one checkpoint of ours, of `tf.train.Checkpoint(model=detector)`, or of the
        TensorFlow Object Detection API. Moving averages in it are left, as TensorFlow leaves them.

    Returns:
      The variables by their names below `model` in the checkpoint.

    Raises:
      CheckpointError: if the checkpoint is damaged, or is of another model.
    """
    if not all(part.built for part in detector.parts().values()):
        detector.build_variables()
    variables = detector.named_variables()
    if not _is_reference(prefix):
        checkpoints.restore_variables(prefix, variables)
        return variables
    keys = _restore_reference(detector, prefix, averages=False)
    return {_below_model(key): variables[name] for name, key in keys.items()}


def read_step(prefix: str) -> int:
    """Returns what `restore` does."""
    if _is_reference(prefix):
        return reference.read_step(prefix)
    return checkpoints.read_step(prefix)


def _is_reference(prefix: str) -> bool:
    keys = checkpoint_files.open_reader(prefix).get_variable_to_shape_map()
    return reference.is_reference(keys)


def _below_model(key: str) -> str:
    return key.removeprefix('model/').removesuffix(checkpoint_files.VALUE_SUFFIX)


def _restore_reference(detector: Detector, prefix: str, averages: bool) -> dict[str, str]:
    """Restores a detector; returns the key of each variable."""
    variables = detector.named_variables()
    arrays = CheckpointArrays(prefix)
    with reference.ReferenceCheckpoint(arrays, averages=averages) as source:
        entries = source.entries(detector)
        found = weight_comparison.compare(variables, entries, detector.num_classes)
        unfit = [*found.absent, *found.of_classes, *found.reshaped, *found.extra]
        if unfit:
            advice = mask_features.advice(
                {name: entry.shape for name, entry in entries.items()},
                {name: variable.shape.as_list() for name, variable in variables.items()},
            )
            raise CheckpointError(
                f'{prefix} is a checkpoint of another model than the config describes; variables '
                f'that do not fit: {listing(unfit)}. '
                f'{advice or "Use the pipeline.config that came with it."}'
            )
        restoring.assign(variables, entries, prefix)
    _logger.info('restored from %s', source.description)
    return {name: entries[name].keys[-1] for name in variables}
