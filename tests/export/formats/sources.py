"""Tiny models to write in every format, and photographs to compare the files on."""

import functools
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from object_detection.export import verification
from object_detection.export.formats import description, formats
from object_detection.export.formats.file_detector import FileDetector
from object_detection.export.formats.source import ExportSource, FormatOptions
from object_detection.export.inference import read_image
from object_detection.protos import pipeline_pb2
from tests import tiny_models as tiny
from tests.meta_architectures.ssd import configs

LABELS = "item { id: 1 name: 'cat' } item { id: 3 name: 'caf\\303\\251' }"
BOXES_ONLY = """
model { faster_rcnn {
  number_of_stages: 2
  second_stage_box_predictor { mask_rcnn_box_predictor { predict_instance_masks: false } }
} }
"""
PADDED = """
model { faster_rcnn { image_resizer { keep_aspect_ratio_resizer {
  min_dimension: 64 max_dimension: 64 pad_to_max_dimension: true
} } } }
"""
ROI_ALIGN = """
model { faster_rcnn {
  roi_align { output_size: 7 sampling_ratio: 2 aligned: true }
  mask_roi_align { output_size: 14 sampling_ratio: 1 aligned: false }
} }
"""
OF_ANY_SIZE = """
model { faster_rcnn { image_resizer { keep_aspect_ratio_resizer {
  min_dimension: 64 max_dimension: 96
} } } }
"""


@functools.cache
def source(family: str, *overrides: str) -> ExportSource:
    """Returns a tiny model of a family: 'ssd', 'faster_rcnn' or 'mask_rcnn'."""
    if family == 'ssd':
        pipeline = pipeline_pb2.TrainEvalPipelineConfig(model=configs.tiny(*overrides))
    else:
        boxes_only = [BOXES_ONLY] if family == 'faster_rcnn' else []
        pipeline = tiny.tiny_pipeline(*boxes_only, *overrides)
    tf.keras.utils.set_random_seed(0)
    detector = tiny.model_builder.build(pipeline.model, is_training=False)
    detector.build_variables()
    tiny.disturb_batch_norms(detector)
    tiny.shrink_last_layers(detector)
    return ExportSource(detector, pipeline, 'float32', LABELS)


def written(
    name: str, model: ExportSource, folder: pathlib.Path, options: FormatOptions | None = None
) -> pathlib.Path:
    """Writes a file of a format with its description; returns its path."""
    row, options = formats.FORMATS[name], options or FormatOptions()
    path = folder / row.file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    row.module().check(model, options)
    described = row.module().write(model, path, options)
    description.path_beside(path).write_text(described.to_json())
    return path


def photos(shared: pathlib.Path, count: int) -> list[np.ndarray]:
    """Returns photographs of several sizes, uint8 [H, W, 3]; skips the test without them."""
    paths = sorted((shared / 'data' / 'coco_permissive' / 'images').glob('*.jpg'))[:count]
    if len(paths) < count:
        pytest.skip('needs the photographs of ../shared/data/coco_permissive')
    return [read_image(path)[0] for path in paths]


@functools.cache
def in_process(model: ExportSource):
    return verification.in_process(model.detector)


def assert_agrees(
    exported: FileDetector, model: ExportSource, images: list[np.ndarray]
) -> verification.Comparison:
    """Checks that a file detects what the model in process does."""
    comparison = verification.compare(exported, in_process(model), images)
    assert comparison.detections >= len(images)
    # Once for images of all sizes.
    assert in_process(model).experimental_get_tracing_count() == 1
    assert comparison.agrees, comparison
    return comparison
