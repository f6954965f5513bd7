"""Tiny models to write in every format, and photographs to compare the files on."""

import contextlib
import functools
import pathlib
import tempfile
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.export import verification
from object_detection.export.formats import formats
from object_detection.export.formats.source import ExportSource, FormatOptions
from object_detection.meta_architectures.ssd import build as ssd_build
from object_detection.protos import pipeline_pb2
from object_detection.runtime import description
from object_detection.runtime.file_detector import FileRuntime
from object_detection.runtime.images import read_image
from tests import tiny_models as tiny
from tests.meta_architectures.ssd import configs

POSE_LABELS = """item { id: 1 name: 'person' keypoints { id: 0 label: 'nose' }
  keypoints { id: 1 label: 'hand' } } item { id: 2 name: 'dog' }"""
CENTER_NET = """
model { center_net {
  num_classes: 2
  image_resizer { keep_aspect_ratio_resizer {
    min_dimension: 64 max_dimension: 64 pad_to_max_dimension: true
  } }
  feature_extractor { type: 'mobilenet_v2_fpn' depth_multiplier: 0.25 }
  object_center_params {
    classification_loss { penalty_reduced_logistic_focal_loss { alpha: 2 beta: 4 } }
    max_box_predictions: 6
  }
  object_detection_task { localization_loss { l1_localization_loss {} } }
  keypoint_estimation_task {
    task_name: 'pose' keypoint_class_name: 'person' num_candidates_per_keypoint: 8
    loss {
      classification_loss { penalty_reduced_logistic_focal_loss { alpha: 2 beta: 4 } }
      localization_loss { l1_localization_loss {} }
    }
  }
  mask_estimation_task {
    classification_loss { weighted_sigmoid {} } mask_height: 16 mask_width: 12
  }
  densepose_estimation_task {
    class_id: 0
    loss {
      classification_loss { weighted_softmax {} } localization_loss { l1_localization_loss {} }
    }
  }
} }
"""
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
GROUP_NORMS = """
anchor_generator { multiscale_anchor_generator {
  min_level: 3 max_level: 5 anchor_scale: 2 aspect_ratios: 1 scales_per_octave: 1
} }
box_predictor { weight_shared_convolutional_box_predictor {
  num_layers_before_predictor: 1 depth: 8
  conv_hyperparams { activation: RELU group_norm { groups: 2 } }
} }
"""
OF_ANY_SIZE = """
model { faster_rcnn { image_resizer { keep_aspect_ratio_resizer {
  min_dimension: 64 max_dimension: 96
} } } }
"""


def small_networks() -> contextlib.AbstractContextManager:
    """Builds single-shot detectors with `configs.small_extractor`."""
    return mock.patch.object(ssd_build, 'build_extractor', configs.small_extractor)


@functools.cache
def source(family: str, *overrides: str) -> ExportSource:
    """Returns a tiny model of a family.

    Args:
      family: 'ssd', 'small_ssd' (of one convolution for each map), 'faster_rcnn', 'mask_rcnn' or
        'center_net'.
      *overrides: text protos merged into its config.
    """
    if family == 'center_net':
        return _center_net(*overrides)
    if family in ('ssd', 'small_ssd'):
        pipeline = pipeline_pb2.TrainEvalPipelineConfig(model=configs.tiny(' '.join(overrides)))
    else:
        boxes_only = [BOXES_ONLY] if family == 'faster_rcnn' else []
        pipeline = tiny.tiny_pipeline(*boxes_only, *overrides)
    tf.keras.utils.set_random_seed(0)
    with small_networks() if family == 'small_ssd' else contextlib.nullcontext():
        detector = tiny.model_builder.build(pipeline.model, is_training=False)
    detector.build_variables()
    tiny.disturb_batch_norms(detector)
    tiny.shrink_last_layers(detector)
    return ExportSource(detector, pipeline, 'float32', LABELS)


def _center_net(*overrides: str) -> ExportSource:
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    # Read when the detector is built.
    with tempfile.NamedTemporaryFile('w', suffix='.pbtxt') as labels:
        labels.write(POSE_LABELS)
        labels.flush()
        for text in (CENTER_NET, *overrides):
            text_format.Merge(text, pipeline)
        pipeline.model.center_net.keypoint_label_map_path = labels.name
        tf.keras.utils.set_random_seed(0)
        detector = tiny.model_builder.build(pipeline.model, is_training=False)
    detector.build_variables()
    tiny.disturb_batch_norms(detector)
    # Sizes of some cells, and centres that are not alike.
    named = detector.named_variables()
    named['heads/box--scale_0_output/bias'].assign([5.0, 7.0])
    named['heads/object_center_0_output/kernel'].assign(
        4.0 * named['heads/object_center_0_output/kernel']
    )
    return ExportSource(detector, pipeline, 'float32', LABELS)


def written(
    name: str, model: ExportSource, folder: pathlib.Path, options: FormatOptions | None = None
) -> pathlib.Path:
    """Writes a file of a format with its description; returns its path."""
    row, options = formats.EXPORT_FORMATS[name], options or FormatOptions()
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
    exported: FileRuntime, model: ExportSource, images: list[np.ndarray]
) -> verification.Comparison:
    """Checks that a file detects what the model in process does."""
    comparison = verification.compare(exported, in_process(model), images)
    assert comparison.detections >= len(images)
    # Once for images of all sizes.
    assert in_process(model).experimental_get_tracing_count() == 1
    assert comparison.agrees, comparison
    return comparison
