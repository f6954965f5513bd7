"""What `tf.train.Checkpoint(model=detector)` sees of a detector."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from object_detection.core.nesting import nest
from object_detection.weights import restore
from object_detection.weights.interfaces import Detector


class CheckpointView:
    """A detector's variables as the objects that checkpoints are made of.

    TensorFlow matches a checkpoint to Python objects name by name and silently leaves out what does
    not match, which is everything if the detector's variables are not built yet. Here all weights
    come from the checkpoint, or reading it raises an error.
    """

    def __init__(self):
        self._named: dict[str, tf.Variable] = {}
        self._tree: dict[str, Any] = {}
        self._tree_of_file: dict[str, Any] = {}

    def children(self, named: Mapping[str, tf.Variable]) -> dict[str, Any]:
        """The objects to save: those of the same variables are always the same objects."""
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
        """The object that the checkpoint which was read last has under a name; None without one."""
        return (self._tree_of_file or self._tree).get(name)


def _trackables(named: Mapping[str, tf.Variable]) -> dict[str, Any]:
    tree = nest(named)
    holder = tf.train.Checkpoint(**tree)
    return {name: getattr(holder, name) for name in tree}
