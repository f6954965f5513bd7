"""Class names of a model, from a label map, a config or an export."""

import logging

import tensorflow as tf
from google.protobuf import text_format

from object_detection.data import label_map
from object_detection.errors import UserError
from object_detection.protos import pipeline_pb2
from object_detection.system import files

_logger = logging.getLogger(__name__)


def read_text(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig, label_map_path: str | None = None
) -> str | None:
    """Reads the label map of a model as text.

    Args:
      pipeline: config whose input readers name a label map.
      label_map_path: a label map to use instead; None takes the first label map of the readers,
        training before evaluation.

    Returns:
      The label map as a text proto. None if the readers name no label map, or one that cannot be
      read; the latter is logged, because the archive of a trained model contains paths of the
      machine that it was trained on.

    Raises:
      ValueError: if `label_map_path` cannot be read, or is not a label map.
    """
    if label_map_path is not None:
        return read_file(label_map_path)
    readers = [pipeline.train_input_reader, *pipeline.eval_input_reader]
    path = next((reader.label_map_path for reader in readers if reader.label_map_path), None)
    if path is None:
        return None
    try:
        return read_file(path)
    except ValueError as error:
        _logger.warning('no class names, because label_map_path cannot be used: %s', error)
        return None


def of_text(text: str | None, path: str = 'label map') -> dict[int, str]:
    """Returns id -> name of a label map's text; `path` names it in errors."""
    if text is None:
        return {}
    proto = label_map.parse(text.encode(), path)
    return {item['id']: item['name'] for item in label_map.classes(proto, path).categories}


def read_file(path: str) -> str:
    """Reads a label map, stored as text or binary, as text.

    Raises:
      ValueError: if it cannot be read, or is not a label map.
    """
    try:
        content = files.read_bytes(path)
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, 'strerror', None) or 'no such file, or no permission'
        raise UserError(f'Label map {path} cannot be read: {reason}.') from error
    proto = label_map.parse(content, path)
    label_map.classes(proto, path)
    return text_format.MessageToString(proto, as_utf8=True)
