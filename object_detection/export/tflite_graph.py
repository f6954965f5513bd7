"""Exports a detector of anchors as a SavedModel for TFLite's converter, as the reference does."""

import logging
import os

import tensorflow as tf

from object_detection.errors import UserError
from object_detection.export import drafts, exporter
from object_detection.export.formats import tflite_graph
from object_detection.protos import pipeline_pb2
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
    returns what `TfliteAnchorDetector` does. It computes in float32.

    Args:
      pipeline: the config that the checkpoint was trained with, of a family with an
        `anchor_detection` in `builders.families.MODELS`.
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
    options = tflite_graph.post_process_options(pipeline.model, max_detections, use_regular_nms)
    prefix = checkpoints.find(checkpoint)
    _logger.info('exporting %s', exporter.describe(checkpoint, prefix))
    detector = exporter.load_detector(pipeline, prefix, 'float32')
    graph = tflite_graph.TfliteAnchorDetector(
        detector, options, normalizes=False, input_name='input'
    )
    with drafts.open_draft(output_directory) as draft:
        folder = str(draft.folder / _FOLDER)
        tf.saved_model.save(graph, folder, signatures={'serving_default': graph.serve})
        draft.publish([_FOLDER])
    return os.path.join(output_directory, _FOLDER)
