"""Exports a single-shot detector as a SavedModel for TFLite's converter, as the reference does."""

import logging
import os
import pathlib
import tempfile

import tensorflow as tf

from object_detection.errors import UserError
from object_detection.export import exporter
from object_detection.export.formats import tflite_graph
from object_detection.protos import pipeline_pb2
from object_detection.system import files
from object_detection.weights import checkpoints

_logger = logging.getLogger(__name__)

_FOLDER = 'saved_model'


def export(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig,
    checkpoint: str,
    output_directory: str | os.PathLike,
    *,
    max_detections: int,
    use_regular_nms: bool,
) -> str:
    """Writes `saved_model/` below `output_directory`; an earlier one there is replaced.

    Its signature `serving_default` takes `input`, float32 [1, H, W, 3], normalized already, and
    returns what `TfliteSsd` does. It computes in float32.

    Args:
      pipeline: the config that the checkpoint was trained with.
      checkpoint: a directory or a prefix.
      output_directory: created if necessary.
      max_detections: maximum number of detections of an image.
      use_regular_nms: whether each class is suppressed for itself.

    Returns:
      The folder of the SavedModel.

    Raises:
      CheckpointError: if there is no checkpoint, or it is of another model.
      UserError: if the model is not one that the converter can take.
    """
    if max_detections < 1:
        raise UserError(f'--max_detections: expected at least 1. Received: {max_detections}.')
    options = tflite_graph.post_process_options(pipeline.model.ssd, max_detections, use_regular_nms)
    prefix = checkpoints.find(checkpoint)
    _logger.info('exporting %s', exporter.describe(checkpoint, prefix))
    detector = exporter.load_detector(pipeline, prefix, 'float32')
    graph = tflite_graph.TfliteSsd(detector, options, normalizes=False, input_name='input')
    output = pathlib.Path(output_directory)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='.export-', dir=output) as scratch:
        draft, target = pathlib.Path(scratch) / 'new', output / _FOLDER
        tf.saved_model.save(graph, str(draft), signatures={'serving_default': graph.serve})
        old = [(target, pathlib.Path(scratch) / 'old')] if target.exists() else []
        files.move_all([*old, (draft, target)])
    return str(target)
