"""The classes of a model and their keypoints, of a label map, a config or an export."""

import logging

import tensorflow as tf
from google.protobuf import text_format

from object_detection.data import label_map
from object_detection.data.label_map import LabelMap
from object_detection.errors import UserError
from object_detection.protos import eval_pb2, pipeline_pb2
from object_detection.system import files
from object_detection.validation import resumption

# Name of the asset of a SavedModel with its classes.
LABEL_MAP = 'label_map.pbtxt'

_logger = logging.getLogger(__name__)


def read_text(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig,
    label_map_path: str | None = None,
    *,
    checkpoint: str = '',
    config_path: str = '',
) -> str | None:
    """Reads the label map of a model as text.

    Args:
      pipeline: config whose input readers name a label map.
      label_map_path: a label map to use instead; None takes the first label map of the readers,
        training before evaluation. If that is relative, to the folder of a command, what the
        training has stored next to its checkpoints comes before it, and the path relative to the
        config after it; if it cannot be read, both come after it.
      checkpoint: prefix of the checkpoint, in a `model_dir` or in a folder such as best/ of it.
      config_path: path of the config.

    Returns:
      The label map as a text proto, with the lines of `eval_config.keypoint_edge`. None if the
      readers name no label map, or one that cannot be read; the latter is logged, because the
      archive of a trained model contains paths of the machine that it was trained on.

    Raises:
      ValueError: if `label_map_path` cannot be read, or is not a label map.
    """
    if label_map_path is not None:
        return read_file(label_map_path)
    readers = [pipeline.train_input_reader, *pipeline.eval_input_reader]
    path = next((reader.label_map_path for reader in readers if reader.label_map_path), None)
    if path is None:
        return None
    problems = {}
    for candidate in resumption.label_maps(path, checkpoint, config_path, of_model=True):
        try:
            text = _with_edges(read_file(candidate), pipeline.eval_config)
        except ValueError as error:
            problems[candidate] = error
            continue
        if candidate != path:
            _log_choice(candidate, path, parse(text))
        return text
    _logger.warning('no class names, because label_map_path cannot be used: %s', problems[path])
    return None


def _log_choice(chosen: str, path: str, labels: LabelMap) -> None:
    try:
        other = parse(read_file(path), path)
    except ValueError:
        _logger.info('class names are those of %s; there is no %s', chosen, path)
        return
    if other.names != labels.names:
        _logger.warning(
            'class names are those of %s, with which the model was trained; %s has others, which '
            '--label_map takes',
            chosen,
            path,
        )


def parse(text: str | None, path: str = 'label map') -> LabelMap:
    """Returns the classes of a label map's text, none without one; `path` names it in errors."""
    if text is None:
        return LabelMap([], {}, {})
    return label_map.classes(label_map.parse(text.encode(), path), path)


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


def _with_edges(text: str, config: eval_pb2.EvalConfig) -> str:
    """Returns the label map with the lines of the config in place of its own, if it has some."""
    if not config.keypoint_edge:
        return text
    proto = label_map.parse(text.encode(), 'label map')
    for item in proto.item:
        del item.skeleton[:]
        if item.keypoints or len(proto.item) == 1:
            for edge in config.keypoint_edge:
                item.skeleton.add(start=edge.start, end=edge.end)
    return text_format.MessageToString(proto, as_utf8=True)
