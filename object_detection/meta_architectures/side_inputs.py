"""Named inputs of a detector besides the images, such as the features of an image's context."""

from collections.abc import Collection, Mapping

import tensorflow as tf

from object_detection.errors import UserError, expected
from object_detection.meta_architectures.detection_model import DetectionModel

# Size of axes of unspecified size in a probe.
_PROBE_SIZE = 1


def select(detector: DetectionModel, entries: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the side inputs of a detector among the entries of a batch.

    Raises:
      UserError: if an input is missing.
    """
    names = detector.side_inputs().keys()
    missing = [name for name in names if name not in entries]
    if missing:
        raise expected(
            detector.name, f'the side inputs {", ".join(names)}', f'no {", ".join(missing)}'
        )
    return {name: entries[name] for name in names}


def check(detector: DetectionModel, names: Collection[str], where: str) -> None:
    """Compares the names of given side inputs with those that a detector takes.

    Args:
      detector: the detector.
      names: names of the given side inputs.
      where: beginning of the message.

    Raises:
      UserError: if they differ.
    """
    wanted = sorted(detector.side_inputs())
    if sorted(names) == wanted:
        return
    received = ', '.join(sorted(names)) or 'none'
    if not wanted:
        raise UserError(f'{where}: {detector.name} takes no side inputs. Received: {received}.')
    raise expected(where, f'the side inputs {", ".join(wanted)} of {detector.name}', received)


def zeros(detector: DetectionModel, count: int | tf.Tensor = 1) -> dict[str, tf.Tensor]:
    """Returns side inputs of `count` images, for what only traces or measures a detector."""
    return {
        name: tf.zeros([count, *(size or _PROBE_SIZE for size in spec.shape[1:])], spec.dtype)
        for name, spec in detector.side_inputs().items()
    }
