"""Compares the variables of a detector with those of a file of weights."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import tensorflow as tf

from object_detection.errors import CheckpointError
from object_detection.weights import backbones
from object_detection.weights.checkpoint_contents import format_names, mask_head_advice
from object_detection.weights.interfaces import Entry

_TOLERANCE = (
    'load_all_detection_checkpoint_vars: true takes whatever fits and starts the rest anew.'
)
# What to do, by fine_tune_checkpoint_type.
_ADVICE = {
    'classification': 'Give model.faster_rcnn.feature_extractor the backbone of the file.',
    'detection': (
        "fine_tune_checkpoint_type: 'classification' takes the backbone alone, " + _TOLERANCE
    ),
    'full': (
        "fine_tune_checkpoint_type: 'detection' takes the feature extractor alone, " + _TOLERANCE
    ),
}
# Layer -> how many classes it has outputs for beside the K.
_CLASS_LAYERS = {
    'box_head/classes': 1,
    'box_head/classes_bn': 1,
    'box_head/box_codes': 0,
    'box_head/box_codes_bn': 0,
}
# An automatic depth of its convolutions depends on K, too.
_MASK_HEAD = 'mask_head/'
_MASK_FEATURES = 'mask_head/conv_1/kernel'
_CLASS_KERNEL = 'box_head/classes/kernel'


class Comparison(NamedTuple):
    """Names by what is so.

    Attributes:
      restored: in both, of the same shape.
      of_classes: of another shape, as the number of classes is another.
      reshaped: of another shape for another reason.
      absent: not in the file.
      extra: of a layer that the detector has, but only in the file.
    """

    restored: list[str]
    of_classes: list[str]
    reshaped: list[str]
    absent: list[str]
    extra: list[str]


def compare(
    variables: Mapping[str, tf.Variable], entries: Mapping[str, Entry], num_classes: int
) -> Comparison:
    """Compares names and shapes.

    Args:
      variables: of the detector, by name.
      entries: of the file, by the detector's names.
      num_classes: of the detector.
    """
    shared = sorted(variables.keys() & entries.keys())
    other_shape = [name for name in shared if entries[name].shape != _shape(variables[name])]
    their_classes = num_classes_of(variables, entries, num_classes)
    of_classes = [
        name
        for name in other_shape
        if their_classes not in (None, num_classes)
        and _depends_on_classes(
            name, (entries[name].shape, their_classes), (_shape(variables[name]), num_classes)
        )
    ]
    layers = {_layer(name) for name in variables}
    extra = (name for name in entries.keys() - variables.keys() if _layer(name) in layers)
    return Comparison(
        restored=[name for name in shared if name not in other_shape],
        of_classes=of_classes,
        reshaped=[name for name in other_shape if name not in of_classes],
        absent=sorted(variables.keys() - entries.keys()),
        extra=sorted(extra),
    )


def _depends_on_classes(
    name: str, theirs: tuple[tuple[int, ...], int], ours: tuple[tuple[int, ...], int]
) -> bool:
    """Whether two pairs of a variable's shape and the number of classes go together."""
    (shape, classes), (other_shape, other_classes) = theirs, ours
    if name == _MASK_FEATURES:
        # The depth of the features does not.
        return shape[2] == other_shape[2]
    if name.startswith(_MASK_HEAD):
        return True
    background = _CLASS_LAYERS.get(name.rpartition('/')[0])
    return (
        background is not None
        and shape[:-1] == other_shape[:-1]
        and shape[-1] * (other_classes + background) == other_shape[-1] * (classes + background)
    )


def _layer(name: str) -> str:
    """The name of a layer; a convolution and the norm after it are one."""
    return name.rpartition('/')[0].removesuffix('_bn').removesuffix('_conv')


def num_classes_of(
    variables: Mapping[str, tf.Variable], entries: Mapping[str, Entry], num_classes: int
) -> int | None:
    """Returns K of the detector that a file holds; None if it has no head for classes.

    Arguments as of `compare`.
    """
    if _CLASS_KERNEL not in variables or _CLASS_KERNEL not in entries:
        return None
    # One, or with R-FCN a map for each bin.
    outputs_per_class = variables[_CLASS_KERNEL].shape[-1] // (num_classes + 1)
    return entries[_CLASS_KERNEL].shape[-1] // outputs_per_class - 1


def check_backbones(here: Iterable[str], there: Iterable[str], path: str) -> None:
    """Compares the blocks of two ResNets by their names.

    Raises:
      CheckpointError: naming both, if they differ.
    """
    difference = backbones.differing_backbones(here, there)
    if difference:
        raise CheckpointError(
            f'{path}: expected the backbone of model.faster_rcnn.feature_extractor.type, '
            f'{difference[0]}. Received: {difference[1]}.'
        )


def check(
    found: Comparison,
    variables: Mapping[str, tf.Variable],
    entries: Mapping[str, Entry],
    path: str,
    checkpoint_type: str,
) -> None:
    """Accepts what the number of classes explains, and nothing else.

    Raises:
      CheckpointError: listing names, shapes and what to do.
    """
    reshaped = [
        f'{name} ({_key(name, entries)}{list(entries[name].shape)} there, '
        f'{list(_shape(variables[name]))} in the model)'
        for name in found.reshaped
    ]
    extra = [f'{name} ({_key(name, entries)}{list(entries[name].shape)})' for name in found.extra]
    problems = [
        f'{what}: {format_names(names)}'
        for what, names in (
            ('of another shape', reshaped),
            ('not in it', found.absent),
            ('only in it', extra),
        )
        if names
    ]
    if problems:
        advice = mask_head_advice(
            {name: entry.shape for name, entry in entries.items()},
            {name: _shape(variable) for name, variable in variables.items()},
        )
        raise CheckpointError(
            f'{path} does not fit the model; variables {"; ".join(problems)}. '
            f'{advice or _ADVICE[checkpoint_type]}'
        )


def _key(name: str, entries: Mapping[str, Entry]) -> str:
    """What the file calls a variable, if that is another name, to be followed by its shape."""
    key = entries[name].keys[0]
    return '' if key.endswith(name.partition('/')[2]) else f'{key}: '


def _shape(variable: tf.Variable) -> tuple[int, ...]:
    return tuple(variable.shape.as_list())
