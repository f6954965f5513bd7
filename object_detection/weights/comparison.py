"""Compares the variables of a detector with the variables in a file of weights.

Adapts the first convolution of weights for RGB images to another number of channels.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core.variable_names import RANGES, VariableNames
from object_detection.errors import CheckpointError, format_list
from object_detection.weights import networks
from object_detection.weights.interfaces import Entry

_TOLERANCE = (
    'load_all_detection_checkpoint_vars: true takes all that fits and initialises the rest.'
)
# fine_tune_checkpoint_type -> advice in errors.
_ADVICE = {
    'classification': 'Give {backbone} the backbone of the file.',
    'detection': (
        "fine_tune_checkpoint_type: 'classification' takes the backbone alone, " + _TOLERANCE
    ),
    'full': (
        "fine_tune_checkpoint_type: 'detection' takes the feature extractor alone, " + _TOLERANCE
    ),
}


def listed(differences: Mapping[str, Iterable[str]]) -> str:
    """Returns 'what: a, b; ...' of the kinds of differing variables that there are."""
    lists = {what: list(names) for what, names in differences.items()}
    return '; '.join(f'{what}: {format_list(names)}' for what, names in lists.items() if names)


class Comparison(NamedTuple):
    """Names of variables by the result of the comparison.

    Attributes:
      restored: variables of the same shape in both.
      of_classes: variables whose shapes differ because the number of classes differs.
      reshaped: variables whose shapes differ for another reason.
      absent: variables that are not in the file, except for dispensable ones and the ranges of
        activations, which a training learns.
      extra: variables that are only in the file, of layers that the detector has.
      num_classes: number of classes of the detector in the file; None if it is not known.
    """

    restored: list[str]
    of_classes: list[str]
    reshaped: list[str]
    absent: list[str]
    extra: list[str]
    num_classes: int | None


def compare(
    variables: Mapping[str, tf.Variable],
    entries: Mapping[str, Entry],
    num_classes: int,
    names: VariableNames,
) -> Comparison:
    """Compares names and shapes.

    Args:
      variables: variables of the detector, by name.
      entries: entries of the file, by the detector's names.
      num_classes: number of classes of the detector.
      names: names of the detector's family.
    """
    shared = sorted(variables.keys() & entries.keys())
    here, there = _shapes(variables, entries)
    other_shape = [name for name in shared if there[name] != here[name]]
    their_classes = names.num_classes(here, there, num_classes)
    of_classes = [
        name
        for name in other_shape
        if their_classes not in (None, num_classes)
        and names.depends_on_classes(name, (there[name], their_classes), (here[name], num_classes))
    ]
    layers = {_layer(name) for name in variables}
    absent = sorted(variables.keys() - entries.keys())
    extra = (name for name in entries.keys() - variables.keys() if _layer(name) in layers)
    return Comparison(
        restored=[name for name in shared if name not in other_shape],
        of_classes=of_classes,
        reshaped=[name for name in other_shape if name not in of_classes],
        absent=[
            name for name in absent if not (names.is_dispensable(name) or name.startswith(RANGES))
        ],
        extra=sorted(extra),
        num_classes=their_classes,
    )


def _layer(name: str) -> str:
    """Returns the name of a layer; a convolution and the norm after it count as one layer."""
    return name.rpartition('/')[0].removesuffix('_bn').removesuffix('_conv')


def check_backbones(
    here: Iterable[str], there: Iterable[str], path: str, names: VariableNames
) -> None:
    """Compares two networks by the names of their layers.

    Raises:
      CheckpointError: if they differ; the message names both.
    """
    difference = networks.differing(here, there)
    if difference:
        raise CheckpointError.expected(
            path, f'the backbone of {names.backbone_field}.type, {difference[0]}', difference[1]
        )


def check(
    found: Comparison,
    variables: Mapping[str, tf.Variable],
    entries: Mapping[str, Entry],
    path: str,
    checkpoint_type: str,
    names: VariableNames,
) -> None:
    """Checks that only numbers of classes, keypoints and tracks, and whole additions, explain
    differences.

    Raises:
      CheckpointError: if there are other differences; the message lists names, shapes and advice.
    """
    reshaped = [
        f'{name} ({_key(name, entries)}{list(entries[name].shape)} there, '
        f'{list(_shape(variables[name]))} in the model)'
        for name in found.reshaped
        if not names.depends_on_data(name, tuple(entries[name].shape), _shape(variables[name]))
    ]
    parts = {name.partition('/')[0] for name in entries}
    absent = [
        name
        for name in found.absent
        if (part := name.partition('/')[0]) in parts or not names.is_addition(part)
    ]
    extra = [f'{name} ({_key(name, entries)}{list(entries[name].shape)})' for name in found.extra]
    problems = listed({'of another shape': reshaped, 'not in it': absent, 'only in it': extra})
    if problems:
        here, there = _shapes(variables, entries)
        advice = _ADVICE[checkpoint_type].format(backbone=names.backbone_field)
        raise CheckpointError(
            f'{path} does not fit: {problems}. {names.advice(there, here) or advice}'
        )


def _key(name: str, entries: Mapping[str, Entry]) -> str:
    """Returns the file's name of a variable if it differs, to be followed by its shape."""
    key = entries[name].keys[0]
    return '' if key.endswith(name.partition('/')[2]) else f'{key}: '


def _shapes(
    variables: Mapping[str, tf.Variable], entries: Mapping[str, Entry]
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Returns the shapes of the variables, and of the matching entries of a file."""
    return (
        {name: _shape(variable) for name, variable in variables.items()},
        {name: entry.shape for name, entry in entries.items()},
    )


def _shape(variable: tf.Variable) -> tuple[int, ...]:
    return tuple(variable.shape.as_list())


_RGB = 3


def adapt(entries: Mapping[str, Entry], variables: Mapping[str, tf.Variable]) -> dict[str, Entry]:
    """Returns the entries of a file, with the kernel of the first convolution in a model's shape.

    For one channel, the kernel is the sum over red, green and blue: a grey image gives what it gave
    as three equal channels. For more than three channels, the kernel is zero for the channels after
    the first three: their values have no effect at first, and are learnt.

    Args:
      entries: entries of the file, by the model's names.
      variables: variables of the model, by name.
    """
    return {
        name: _with_channels(entry, tuple(variables[name].shape)) if name in variables else entry
        for name, entry in entries.items()
    }


def _with_channels(entry: Entry, shape: tuple[int, ...]) -> Entry:
    theirs = tuple(entry.shape)
    is_kernel = len(shape) == len(theirs) == 4 and theirs[2] == _RGB
    if not is_kernel or theirs[:2] != shape[:2] or theirs[3] != shape[3] or shape[2] == _RGB:
        return entry

    def read() -> np.ndarray:
        kernel = entry.read()
        if shape[2] < _RGB:
            return np.repeat(kernel.sum(axis=2, keepdims=True), shape[2], axis=2) / shape[2]
        missing = shape[2] - _RGB
        return np.pad(kernel, [(0, 0), (0, 0), (0, missing), (0, 0)])

    return entry._replace(shape=shape, read=read)
