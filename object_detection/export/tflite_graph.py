"""Exports a detector as a SavedModel for TFLite's converter, as the reference does."""

import logging
import os

import tensorflow as tf

from object_detection.config import families
from object_detection.errors import UserError
from object_detection.export import exporter
from object_detection.export.formats import tflite_graph
from object_detection.export.formats.source import ExportSource
from object_detection.protos import pipeline_pb2
from object_detection.system import publishing
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
    include_keypoints: bool = False,
) -> str:
    """Writes `saved_model/` below `output_directory`; an earlier one there is replaced.

    Its signature `serving_default` takes `input`, float32 [1, H, W, 3], normalized already, and
    returns what `TfliteAnchorDetector` does. Of a family without anchors, it takes pixels from 0 to
    255 and returns what `TfliteDetector` does. It computes in float32.

    Args:
      pipeline: the config that the checkpoint was trained with.
      checkpoint: a directory or a prefix.
      output_directory: created if necessary.
      max_detections: maximum number of detections of an image.
      use_regular_nms: whether each class is suppressed for itself; of anchors alone.
      include_keypoints: whether keypoints are among the outputs; without anchors alone.

    Returns:
      The folder of the SavedModel.

    Raises:
      CheckpointError: if there is no checkpoint, or it is of another model.
      UserError: if the model is not one that the converter can take.
    """
    if max_detections < 1:
        raise UserError(f'--max_detections: expected at least 1. Received: {max_detections}.')
    has_anchors = families.decodes_anchors(pipeline.model)
    options = None
    if has_anchors:
        options = tflite_graph.post_process_options(pipeline.model, max_detections, use_regular_nms)
    else:
        pipeline = _with_max_detections(pipeline, max_detections)
    prefix = checkpoints.find(checkpoint)
    _logger.info('exporting %s', exporter.describe(checkpoint, prefix))
    detector = exporter.load_detector(pipeline, prefix, 'float32')
    if options is not None:
        graph = tflite_graph.TfliteAnchorDetector(
            detector, options, normalizes=False, input_name='input'
        )
    else:
        graph = tflite_graph.TfliteDetector(
            ExportSource(detector, pipeline, 'float32'),
            'tflite',
            input_name='input',
            has_keypoints=include_keypoints,
        )
    with publishing.open_draft(output_directory) as draft:
        folder = str(draft.folder / _FOLDER)
        tf.saved_model.save(graph, folder, signatures={'serving_default': graph.serve})
        draft.publish([_FOLDER])
    return os.path.join(output_directory, _FOLDER)


def _with_max_detections(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig, max_detections: int
) -> pipeline_pb2.TrainEvalPipelineConfig:
    """Returns the config of a CenterNet with a maximum number of detections of an image."""
    changed = pipeline_pb2.TrainEvalPipelineConfig()
    changed.CopyFrom(pipeline)
    changed.model.center_net.object_center_params.max_box_predictions = max_detections
    return changed
