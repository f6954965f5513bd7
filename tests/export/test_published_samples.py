"""Exports of the sample configs of published detectors, at a small size."""

import os
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

import object_detection
from object_detection.benchmarking import work
from object_detection.config.reader import read_pipeline
from object_detection.errors import UserError
from object_detection.export import saved_model
from object_detection.export.formats import formats
from object_detection.export.formats.source import ExportSource
from object_detection.models.backbones import resnet_v1
from object_detection.runtime.saved_detector import SavedModelRuntime
from tests import tiny_models as tiny
from tests.export.formats import sources
from tests.weights import third_party_files

SAMPLES = pathlib.Path(object_detection.__file__).parent / 'samples' / 'configs'
PUBLISHED = ('torchvision_', 'detectron2_')
NAMES = sorted(path.stem for path in SAMPLES.glob('*.config') if path.stem.startswith(PUBLISHED))
SIDE = 96

pytestmark = pytest.mark.slow


def small(name):
    """A sample config for small images, with few regions."""
    pipeline = read_pipeline(str(SAMPLES / f'{name}.config'))
    model = getattr(pipeline.model, pipeline.model.WhichOneof('model'))
    resizer = model.image_resizer.keep_aspect_ratio_resizer
    if model.image_resizer.HasField('keep_aspect_ratio_resizer'):
        # In maps of three cells, crops of several boxes are equal, and so are their scores.
        side = 2 * SIDE if 'mobilenet' in name else SIDE
        resizer.min_dimension = resizer.max_dimension = side
        resizer.ClearField('min_dimension_range')
        resizer.pad_to_max_dimension = True
    if pipeline.model.HasField('faster_rcnn'):
        model.first_stage_max_proposals_eval = 60
        post_processing = model.second_stage_post_processing
    else:
        post_processing = model.post_processing
    suppression = post_processing.batch_non_max_suppression
    suppression.score_threshold = 0.0
    suppression.max_detections_per_class = suppression.max_total_detections = 30
    return pipeline


def spread(detector, images):
    """Scales the outputs of heads to those of a trained detector for images.

    Random ones are so large that scores are rounded to 1, or nearly equal, and so have no order.

    Args:
      detector: a detector of one stage, or of one box stage, of which only classes are scaled.
      images: uint8 [B, H, W, 3].
    """
    found = detector.predict(*detector.preprocess(tf.constant(images)), training=False)
    if hasattr(detector, 'box_stages'):
        # How regions differ from each other; a bias makes classes differ.
        widths = [('box_head/classes', np.std(found.regions.class_logits, axis=0).mean(), 1.5)]
    else:
        scope = r'box_predictor/{}(_\d+)?'
        widths = [(scope.format('classes'), np.std(found.class_logits), 1.5)]
        widths.append((scope.format('box_codes'), np.std(found.box_codes), 0.5))
    for layer, width, wanted in widths:
        pattern = re.compile(f'{layer}/kernel')
        for name, variable in detector.named_variables().items():
            if pattern.fullmatch(name):
                variable.assign(variable * wanted / width)


def build(name, images):
    """A small detector of a sample config, with heads whose outputs are not rounded; its config."""
    pipeline = small(name)
    detector = work.build_with_spread_scores(pipeline, 'float32')
    if len(getattr(detector, 'box_stages', ())) > 1:
        # Each stage would move boxes further by the rounding of the one before.
        tiny.shrink_last_layers(detector)
    else:
        spread(detector, images)
    return detector, pipeline


@pytest.fixture(scope='module', params=NAMES)
def model(request, shared):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resnet_v1, '_STAGE_FILTERS', third_party_files.NARROW)
        detector, pipeline = build(request.param, np.stack(sources.photos(shared, 1)))
        yield ExportSource(detector, pipeline, 'float32', sources.LABELS)


def test_a_saved_model_gives_the_detections_of_the_model(model, tmp_path, shared):
    saved_model.export(
        model.detector,
        str(tmp_path),
        input_type='image_tensor',
        save_checkpoint=os.mkdir,
        pipeline_text='',
        precision='float32',
    )
    sources.assert_agrees(SavedModelRuntime(str(tmp_path)), model, sources.photos(shared, 2))


def test_tflite_gives_the_detections_of_the_model_or_names_the_field(model, tmp_path, shared):
    """Its operation for single-shot detectors decodes sizes without a limit."""
    refused = {'model.ssd.': model.pipeline.model.HasField('ssd')}
    refused['predict_keypoints'] = getattr(model.detector, 'keypoint_stage', None) is not None
    for field, is_refused in refused.items():
        if is_refused:
            with pytest.raises(UserError, match=re.escape(field)):
                sources.written('tflite', model, tmp_path)
            return
    detector = formats.load(sources.written('tflite', model, tmp_path))
    sources.assert_agrees(detector, model, sources.photos(shared, 2))


@pytest.mark.parametrize(('kind', 'package'), [('onnx', 'tf2onnx'), ('openvino', 'openvino')])
def test_formats_of_other_packages_give_the_detections(model, kind, package, tmp_path, shared):
    pytest.importorskip(package, reason=f"needs {package}: pip install '.[{kind}]'")
    detector = formats.load(sources.written(kind, model, tmp_path))
    sources.assert_agrees(detector, model, sources.photos(shared, 2))
