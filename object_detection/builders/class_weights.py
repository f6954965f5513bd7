"""The weights of classes in training, looked up by the label map of the training data."""

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence

from object_detection.data import label_map
from object_detection.errors import ConfigError
from object_detection.protos.train_pb2 import ClassWeight

_FIELD = 'train_config.class_weight'
_LABEL_MAP = 'train_input_reader.label_map_path'
_MOST_NAMES = 12


def resolve(
    entries: Sequence[ClassWeight], label_map_path: str, num_classes: int
) -> tuple[float, ...]:
    """Returns the weight of each of the K classes, 1 where none is set; () if no class has one.

    Args:
      entries: of `train_config.class_weight`.
      label_map_path: of the training data; may be empty where the entries have ids.
      num_classes: K.

    Raises:
      ConfigError: naming every entry that is wrong.
      ValueError: if the label map cannot be read.
    """
    if not entries:
        return ()
    found = list(problems(entries, label_map_path, num_classes))
    if found:
        raise ConfigError('\n'.join(found))
    ids = _ids(entries, label_map_path)
    weights = [1.0] * num_classes
    for entry in entries:
        weights[_id(entry, ids) - 1] = entry.weight
    return tuple(weights)


def problems(
    entries: Sequence[ClassWeight], label_map_path: str, num_classes: int
) -> Iterator[str]:
    """Yields what is wrong with the entries, if the label map can be read; see `resolve`."""
    try:
        ids = _ids(entries, label_map_path)
    except ValueError:  # A rule of its own tells it.
        return
    first: dict[int, int] = {}
    for index, entry in enumerate(entries):
        path = f'{_FIELD}[{index}]'
        if not entry.HasField('weight'):
            yield f'{path}.weight is not set; expected 0 or more.'
        elif not 0 <= entry.weight < math.inf:
            yield f'{path}.weight: expected 0 or more. Received: {entry.weight:g}.'
        problem = _label_problem(entry, path, ids, num_classes)
        if problem:
            yield problem
        elif first.setdefault(_id(entry, ids), index) != index:
            yield (
                f'{path}: expected one entry a class. Received: another one for the class of '
                f'{_FIELD}[{first[_id(entry, ids)]}].'
            )
    if len(first) == num_classes > 0 and not any(entry.weight for entry in entries):
        yield f'{_FIELD}: expected a class with a weight above 0. Received: 0 for every class.'


def _label_problem(
    entry: ClassWeight, path: str, ids: Mapping[str, int] | None, num_classes: int
) -> str | None:
    """Returns what is wrong with the name or id of an entry."""
    label = entry.WhichOneof('label')
    if label is None:
        return f'{path}: expected a name or an id of a class. Received: neither.'
    if label == 'name' and ids is None:
        return f'{path}.name: expected {_LABEL_MAP} with it, or an id. Received: {entry.name!r}.'
    if label == 'name' and entry.name not in ids:
        nearest = difflib.get_close_matches(entry.name, ids, n=1)
        meant = f', did you mean {nearest[0]!r}?' if nearest else '.'
        return (
            f'{path}.name: expected a class of {_LABEL_MAP}, such as '
            f'{", ".join(list(ids)[:_MOST_NAMES])}. Received: {entry.name!r}{meant}'
        )
    if not 1 <= _id(entry, ids) <= num_classes:
        which = '' if label == 'id' else f'{entry.name!r}, '
        return (
            f'{path}.{label}: expected a class with an id of 1 to {num_classes} (num_classes). '
            f'Received: {which}{_id(entry, ids)}.'
        )
    return None


def _id(entry: ClassWeight, ids: Mapping[str, int] | None) -> int:
    return ids[entry.name] if entry.HasField('name') else entry.id


def _ids(entries: Sequence[ClassWeight], label_map_path: str) -> dict[str, int] | None:
    """Names and display names of the classes -> ids; None without a label map, or need of one."""
    if label_map_path and any(entry.HasField('name') for entry in entries):
        return label_map.load(label_map_path).text_to_id
    return None
