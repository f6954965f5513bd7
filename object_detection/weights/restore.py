"""Restores detectors: from any file of weights to start a training, or exactly.

`restore` starts a training from a checkpoint or a weights file of any format. As in the reference
implementation, a type selects the restored weights: 'classification' the backbone, 'detection' the
whole feature extractor (backbone, pyramid, layers over the crops), 'full' everything. Unlike in the
reference, if the number of classes differs (of a CenterNet also that of keypoints or tracks), only
the layers that depend on it keep their initial values, and the backbone of a detector can be
restored with 'classification'.

`restore_exactly` and `restore_by_path` restore a whole detector for evaluation and export, from a
checkpoint of this toolkit or of the TensorFlow Object Detection API.
"""

import dataclasses
import logging
from collections.abc import Collection, Iterable, Mapping

import numpy as np
import tensorflow as tf

from object_detection.core.detector import Detector
from object_detection.core.variable_names import RANGES
from object_detection.errors import CheckpointError, UserError, format_list
from object_detection.weights import (
    checkpoint_contents,
    checkpoint_files,
    checkpoints,
    comparison,
    reference,
)
from object_detection.weights import sources as weight_sources
from object_detection.weights.arrays import CheckpointArrays
from object_detection.weights.checkpoint_contents import is_weight
from object_detection.weights.checkpoint_files import VALUE_SUFFIX
from object_detection.weights.comparison import Comparison, check, check_backbones, compare
from object_detection.weights.interfaces import Entry, WeightSource, check_type

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Report:
    """The result for each variable, by the detector's names (`unused`: by the file's names).

    Attributes:
      restored: variables with the value of the file.
      missing: variables that the type excludes or the file lacks; they keep their initial values.
      mismatched: variables of another shape in the file; they keep their initial values.
      unused: names in the file that no variable uses.
    """

    restored: list[str]
    missing: list[str]
    unused: list[str]
    mismatched: list[str]


def restore(
    detector: Detector,
    checkpoint_path: str,
    checkpoint_type: str = 'full',
    *,
    all_that_fits: bool = False,
) -> Report:
    """Assigns the weights of a file, all or, after an error, none, and logs the result.

    Args:
      detector: missing variables are created; call this in the scope of its tf.distribute strategy.
      checkpoint_path: a prefix ('DIR/ckpt-3'), a folder of checkpoints, whose newest is restored,
        or a weights file of a format that `sources.open_source` supports.
      checkpoint_type: 'classification', 'detection' or 'full'; see the module.
      all_that_fits: whether variables that are absent, or have another shape for another reason
        than the number of classes, keep their initial values; false makes them an error.

    Raises:
      CheckpointError: if there is no such file, it is corrupt, or it does not fit.
      ValueError: if there is no such type.
    """
    for problem in check_type(checkpoint_type):
        raise UserError(problem)
    if not all(part.built for part in detector.parts().values()):
        detector.build_variables()  # Else `predict` creates the mask head's only in training.
    variables, names = detector.named_variables(), detector.variable_names
    with weight_sources.open_source(checkpoint_path) as source:
        if checkpoint_type not in source.types:
            raise CheckpointError(
                f'{checkpoint_path} holds a backbone alone: expected fine_tune_checkpoint_type: '
                f"'classification'. Received: {checkpoint_type!r}."
            )
        if refusal := names.refusal(checkpoint_type, variables):
            raise CheckpointError(f'{checkpoint_path}: {refusal} Received: {checkpoint_type!r}.')
        scope = names.checkpoint_scopes(variables)[checkpoint_type]
        entries = {k: v for k, v in source.entries(detector).items() if k.startswith(scope)}
        wanted = {k: v for k, v in variables.items() if k.startswith(scope)}
        entries = comparison.adapt(entries, wanted)
        found = compare(wanted, entries, detector.num_classes, names)
        check_backbones(wanted, entries, checkpoint_path, names)
        if not all_that_fits:
            check(found, wanted, entries, checkpoint_path, checkpoint_type, names)
        if not found.restored:
            raise CheckpointError(f'{checkpoint_path} holds no variable that fits the model.')
        assign({k: variables[k] for k in found.restored}, entries, checkpoint_path)
        report = _report(found, variables, entries, source.shapes)
    _log(report, f"{source.description} ('{checkpoint_type}')", variables)
    if found.of_classes:
        _logger.info(
            'num_classes is %d, and %d there; initialised: %s',
            detector.num_classes,
            found.num_classes,
            _by_layer(found.of_classes, variables),
        )
    if found.reshaped:
        _logger.info(
            'of another shape there; initialised: %s', _by_layer(found.reshaped, variables)
        )
    return report


def assign(variables: Mapping[str, tf.Variable], entries: Mapping[str, Entry], path: str) -> None:
    """Assigns values of a file, all or, after an error, none.

    Args:
      variables: name -> variable.
      entries: entries of the file of the same shapes, for at least the same names.
      path: path of the file, for errors.

    Raises:
      CheckpointError: if the file is corrupt.
    """
    arrays = {name: _read(name, entries[name], path) for name in variables}
    # Values are assigned last, after everything that can fail.
    for name, array in arrays.items():
        variables[name].assign(array.astype(variables[name].dtype.as_numpy_dtype))


def _report(
    found: Comparison,
    variables: Collection[str],
    entries: Mapping[str, Entry],
    names_in_file: Iterable[str],
) -> Report:
    mismatched = sorted(found.of_classes + found.reshaped)
    used = {key for name in found.restored for key in entries[name].keys}
    return Report(
        restored=found.restored,
        missing=sorted(set(variables) - set(found.restored) - set(mismatched)),
        unused=[k for k in names_in_file if k not in used and is_weight(k)],
        mismatched=mismatched,
    )


def _read(name: str, entry: Entry, path: str) -> np.ndarray:
    array = entry.read()
    if not np.isfinite(array).all():
        raise CheckpointError.expected(path, 'finite weights', f'NaN or infinity in {name}')
    return array


def _log(report: Report, source: str, variables: Collection[str]) -> None:
    restored = len(report.restored)
    _logger.info('fine-tuning from %s: %d of %d variables', source, restored, len(variables))
    if report.missing:
        _logger.info('not taken from it; initialised: %s', _by_layer(report.missing, variables))
    if report.unused:
        _logger.info('not used of it: %s', _by_layer(report.unused))


def _by_layer(names: Collection[str], all_names: Collection[str] = ()) -> str:
    """Formats names by layer, or by component if all of its names in `all_names` are included."""
    parts = {name.split('/')[0] for name in all_names}
    parts -= {name.split('/')[0] for name in set(all_names) - set(names)}
    names = [name.removesuffix(VALUE_SUFFIX) for name in names]
    groups = (
        name.split('/')[0] if name.split('/')[0] in parts else _layer(name)
        for name in sorted(names)
    )
    return format_list(dict.fromkeys(groups))


def _layer(name: str) -> str:
    """Returns the layer of a variable, whose names PyTorch separates by dots."""
    return name.rpartition('/' if '/' in name else '.')[0] or name


def restore_exactly(detector: Detector, prefix: str, *, averages: bool) -> int:
    """Restores all variables of a detector or, after an error, none.

    Args:
      detector: detector with all its variables.
      prefix: prefix of one checkpoint of this toolkit or of the TensorFlow Object Detection API, or
        a file as described at `checkpoints.is_weights_file`.
      averages: whether variables are restored from their moving averages, if the checkpoint has
        them.

    Returns:
      The step at which the checkpoint was saved; 0 if it does not store one, as in the model zoo
      and of `tf.train.Checkpoint(model=detector).save`.

    Raises:
      CheckpointError: if the checkpoint is absent or damaged, or is of another model.
    """
    if checkpoints.is_weights_file(prefix):
        with weight_sources.open_source(prefix) as source:
            entries = _restore_all(detector, source, prefix)
            used = {key for name in detector.named_variables() for key in entries[name].keys}
            if unused := source.shapes.keys() - used:
                _logger.info('not used of it: %s', format_list(sorted(unused)))
        return 0
    if not _is_reference(prefix):
        return checkpoints.restore_model(
            prefix, detector.named_variables(), averages=averages, names=detector.variable_names
        )
    _restore_reference(detector, prefix, averages)
    return read_step(prefix)


def restore_by_path(detector: Detector, prefix: str) -> dict[str, tf.Variable]:
    """Restores all variables of a detector for `tf.train.Checkpoint(model=detector)`, or none.

    Args:
      detector: missing variables are created.
      prefix: prefix of one checkpoint of this toolkit, of `tf.train.Checkpoint(model=detector)`, or
        of the TensorFlow Object Detection API. Moving averages in it are ignored, as in TensorFlow.

    Returns:
      The variables by their names below `model` in the checkpoint.

    Raises:
      CheckpointError: if the checkpoint is damaged, or is of another model.
    """
    if not all(part.built for part in detector.parts().values()):
        detector.build_variables()
    variables = detector.named_variables()
    if not _is_reference(prefix):
        checkpoints.restore_model(prefix, variables, names=detector.variable_names)
        return variables
    keys = _restore_reference(detector, prefix, averages=False)
    suffix = checkpoint_files.VALUE_SUFFIX
    return {
        key.removeprefix('model/').removesuffix(suffix): variables[name]
        for name, key in keys.items()
    }


def read_step(prefix: str) -> int:
    """Returns the step at which a checkpoint was saved; 0 if it does not store one."""
    if checkpoints.is_weights_file(prefix):
        return 0
    return checkpoints.read_step(prefix, is_ours=not _is_reference(prefix))


def _is_reference(prefix: str) -> bool:
    keys = checkpoint_files.open_reader(prefix).get_variable_to_shape_map()
    return reference.is_reference(keys)


def _restore_reference(detector: Detector, prefix: str, averages: bool) -> dict[str, str]:
    """Restores a detector; returns the key of each variable."""
    arrays = CheckpointArrays(prefix)
    with reference.ReferenceCheckpoint(arrays, averages=averages) as source:
        entries = _restore_all(detector, source, prefix)
    return {name: entries[name].keys[-1] for name in detector.named_variables()}


def _restore_all(detector: Detector, source: WeightSource, path: str) -> dict[str, Entry]:
    """Restores all variables of a detector; returns the entries of the source."""
    variables, names = detector.named_variables(), detector.variable_names
    entries = source.entries(detector)
    check_backbones(variables, entries, path, names)
    found = compare(variables, entries, detector.num_classes, names)
    ranges = sorted(name for name in variables if name.startswith(RANGES))
    if ranges:
        raise CheckpointError(f'{path} {checkpoint_contents.NO_RANGES}')
    unfit = [*found.absent, *found.of_classes, *found.reshaped, *found.extra]
    if unfit:
        advice = names.advice(
            {name: entry.shape for name, entry in entries.items()},
            {name: variable.shape.as_list() for name, variable in variables.items()},
        )
        raise CheckpointError(
            f'{path} is a checkpoint of another model than the config describes; variables '
            f'that do not fit: {format_list(unfit)}. '
            f'{advice or "Use the pipeline.config that came with it."}'
        )
    used = {key for name in variables for key in entries[name].keys}
    if further := source.further_layers(source.shapes.keys() - used):
        raise CheckpointError(
            f'{path} is of a deeper model than the config describes; of layers that it lacks: '
            f'{format_list(sorted(further))}. Use the config that came with it.'
        )
    assign(variables, entries, path)
    _logger.info('restored from %s', source.description)
    return entries
