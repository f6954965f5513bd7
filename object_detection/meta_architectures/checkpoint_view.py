"""The objects of a detector that `tf.train.Checkpoint(model=detector)` saves and restores."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from object_detection.weights import restore
from object_detection.weights.arrays import nest
from object_detection.weights.interfaces import Detector


class CheckpointView:
    """A detector's variables as the objects that checkpoints are made of.

    TensorFlow matches a checkpoint to Python objects name by name and silently omits objects
    that do not match, which are all objects if the detector's variables are not built yet. Here all
    weights come from the checkpoint, or reading it raises an error.
    """

    def __init__(self):
        self._named: dict[str, tf.Variable] = {}
        self._tree: dict[str, Any] = {}
        self._tree_of_file: dict[str, Any] = {}

    def children(self, named: Mapping[str, tf.Variable]) -> dict[str, Any]:
        """Returns the objects to save; the same variables always give the same objects."""
        is_known = self._named.keys() == named.keys() and all(
            self._named[name] is variable for name, variable in named.items()
        )
        if not is_known:
            self._named, self._tree = dict(named), _trackables(named)
        return self._tree

    def read(self, detector: Detector, path: str) -> None:
        """Restores the detector from the checkpoint at `path`, and remembers the names there.

        Raises:
          CheckpointError: as `restore.restore_by_path`.
        """
        self._tree_of_file = _trackables(restore.restore_by_path(detector, path))

    def lookup(self, name: str) -> Any:
        """Returns the object of a name in the checkpoint that was read last; None without one."""
        return (self._tree_of_file or self._tree).get(name)


def _trackables(named: Mapping[str, tf.Variable]) -> dict[str, Any]:
    tree = nest(named)
    holder = tf.train.Checkpoint(**tree)
    return {name: getattr(holder, name) for name in tree}
