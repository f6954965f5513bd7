"""Starts a detector from the weights of a checkpoint, or of a Keras weights file.

A type says what is taken, as in the reference implementation: 'classification' the backbone,
'detection' the whole feature extractor (backbone, pyramid, layers over the crops), 'full'
everything. Unlike there, a changed number of classes starts just the layers concerned anew.
"""

import dataclasses
import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from object_detection.config import fine_tune_rules
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.protos import train_pb2
from object_detection.training import weight_sources
from object_detection.training.checkpoint_contents import listing
from object_detection.training.errors import CheckpointError
from object_detection.training.weight_comparison import (
    Comparison,
    check,
    check_backbones,
    compare,
    num_classes_of,
)
from object_detection.training.weight_entry import Entry

_logger = logging.getLogger(__name__)

# Beginnings of the names of what each type takes.
_SCOPES = {
    'classification': re.compile(r'backbone/|box_classifier/conv\d'),
    'detection': re.compile(r'(backbone|fpn|box_classifier)/'),
    'full': re.compile(''),
}
# What a checkpoint holds beside the weights of a model.
_NO_WEIGHTS = ('optimizer/', 'step')


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of each variable; the detector's names, but for `unused`.

    Attributes:
      restored: have their value from the file.
      missing: the type does not take them, or the file lacks them; started anew.
      mismatched: have another shape there; started anew.
      unused: in the file, by its names, and in no variable.
    """

    restored: list[str]
    missing: list[str]
    unused: list[str]
    mismatched: list[str]


def from_config(
    detector: DetectionModel,
    train_config: train_pb2.TrainConfig,
    model_dir: str | None = None,
) -> Report | None:
    """Restores what `train_config` says; None if it names no checkpoint.

    Args:
      detector: with all its variables.
      train_config: its fields about fine-tuning are read.
      model_dir: of the new training; None does not look where the checkpoint lies.

    Raises:
      CheckpointError: as `restore`, or if the checkpoint lies in `model_dir` itself, where the new
        ones would replace it.
    """
    path = train_config.fine_tune_checkpoint
    if not path:
        return None
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    is_checkpoint = not path.endswith(fine_tune_rules.KERAS_SUFFIXES)
    if model_dir and is_checkpoint and os.path.realpath(folder) == os.path.realpath(model_dir):
        raise CheckpointError(
            'train_config.fine_tune_checkpoint: expected one outside model_dir, where the new '
            f'checkpoints go. Received: {path}.'
        )
    whatever_fits = train_config.load_all_detection_checkpoint_vars
    checkpoint_type = fine_tune_rules.resolve_type(
        train_config.fine_tune_checkpoint_type, train_config.from_detection_checkpoint
    )
    if whatever_fits and checkpoint_type == 'detection':
        checkpoint_type = 'full'
    return restore(detector, path, checkpoint_type, whatever_fits=whatever_fits)


def restore(
    detector: DetectionModel,
    checkpoint_path: str,
    checkpoint_type: str = 'full',
    *,
    whatever_fits: bool = False,
) -> Report:
    """Assigns the weights of a file, all or, after an error, none; logs what became of which.

    Args:
      detector: with all its variables; in the scope of their tf.distribute strategy.
      checkpoint_path: a prefix ('DIR/ckpt-3'), a folder of checkpoints (the newest is taken), or a
        Keras weights file of a ResNet.
      checkpoint_type: 'classification', 'detection' or 'full'; see the module.
      whatever_fits: whether variables that are absent, or have another shape for another reason
        than the number of classes, are started anew rather than an error.

    Raises:
      CheckpointError: if there is no such file, it is damaged, or it does not fit.
      ValueError: if there is no such type.
    """
    for problem in fine_tune_rules.check_type(checkpoint_type):
        raise ValueError(problem)
    variables = detector.named_variables()
    with weight_sources.open_source(checkpoint_path) as source:
        if checkpoint_type not in source.types:
            raise CheckpointError(
                f'{checkpoint_path} holds a backbone alone: expected fine_tune_checkpoint_type: '
                f"'classification'. Received: {checkpoint_type!r}."
            )
        scope = _SCOPES[checkpoint_type]
        entries = {k: v for k, v in source.entries(variables).items() if scope.match(k)}
        wanted = {k: v for k, v in variables.items() if scope.match(k)}
        found = compare(wanted, entries, detector.num_classes)
        check_backbones(wanted, entries, checkpoint_path)
        if not whatever_fits:
            check(found, wanted, entries, checkpoint_path, checkpoint_type)
        if not found.restored:
            raise CheckpointError(f'{checkpoint_path} holds no variable that fits the model.')
        arrays = {name: _read(name, entries[name], checkpoint_path) for name in found.restored}
        # Only now, when nothing can fail any more.
        for name, array in arrays.items():
            variables[name].assign(array.astype(variables[name].dtype.as_numpy_dtype))
        report = _report(found, variables, entries, source.shapes)
    _log(report, f"{source.description} ('{checkpoint_type}')", variables)
    if found.of_classes:
        _logger.info(
            'num_classes is %d, and %d there; started anew: %s',
            detector.num_classes,
            num_classes_of(entries),
            _by_layer(found.of_classes, variables),
        )
    if found.reshaped:
        _logger.info(
            'of another shape there; started anew: %s', _by_layer(found.reshaped, variables)
        )
    return report


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
        unused=[k for k in names_in_file if k not in used and not k.startswith(_NO_WEIGHTS)],
        mismatched=mismatched,
    )


def _read(name: str, entry: Entry, path: str) -> np.ndarray:
    array = entry.read()
    if not np.isfinite(array).all():
        raise CheckpointError(
            f'{path}: expected finite weights. Received: NaN or infinity in {name}.'
        )
    return array


def _log(report: Report, source: str, variables: Collection[str]) -> None:
    restored = len(report.restored)
    _logger.info('fine-tuning from %s: %d of %d variables', source, restored, len(variables))
    if report.missing:
        _logger.info('not taken from it; started anew: %s', _by_layer(report.missing, variables))
    if report.unused:
        _logger.info('not used of it: %s', _by_layer(report.unused))


def _by_layer(names: Collection[str], all_names: Collection[str] = ()) -> str:
    """Lists names by layer, or by part where all of `all_names` in that part are among them."""
    parts = {name.split('/')[0] for name in all_names}
    parts -= {name.split('/')[0] for name in set(all_names) - set(names)}
    groups = (
        name.split('/')[0] if name.split('/')[0] in parts else name.rpartition('/')[0]
        for name in sorted(names)
    )
    return listing(dict.fromkeys(groups))
