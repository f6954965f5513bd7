"""Detection transformers in every format, against the model in process."""

import functools
import importlib.util
import os

import numpy as np
import pytest
import tensorflow as tf

from object_detection.errors import UserError
from object_detection.export import saved_model
from object_detection.export.formats import formats
from object_detection.export.formats.formats import DYNAMIC, FLOAT16, INT8
from object_detection.export.formats.source import ExportSource, FormatOptions
from object_detection.protos import pipeline_pb2
from object_detection.runtime import input_types
from object_detection.runtime.saved_detector import SavedModelRuntime
from tests import slow_cases, tiny_models
from tests.export.formats import sources
from tests.meta_architectures.detr import configs

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')
_PADDED = """
image_resizer { keep_aspect_ratio_resizer {
  min_dimension: 64 max_dimension: 64 pad_to_max_dimension: true
} }
"""
# What graphs or files have that suppress boxes.
_SUPPRESSION = (b'NonMaxSuppression', b'Detection_PostProcess', b'non_max_suppression')
_IMAGES = [each for each in input_types.INPUT_TYPES if each != input_types.IMAGE_AND_BOXES_TENSOR]


@functools.cache
def source(kind: str, *changes: str) -> ExportSource:
    """A tiny model of a kind whose queries and classes differ."""
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    pipeline.model.detr.CopyFrom(configs.tiny(kind, *changes))
    tf.keras.utils.set_random_seed(0)
    detector = tiny_models.model_builder.build(pipeline.model, is_training=False)
    detector.build_variables()
    tiny_models.disturb_batch_norms(detector)
    random = np.random.default_rng(1)
    for name, variable in detector.named_variables().items():
        # Heads begin with zeros, with which boxes would not depend on the image.
        if name.endswith('kernel') and not np.any(variable):
            variable.assign(random.normal(0, 0.2, variable.shape))
    return ExportSource(detector, pipeline, 'float32', sources.LABELS)


def assert_does_not_suppress(folder):
    for path in folder.rglob('*'):
        if path.is_file():
            content = path.read_bytes()
            assert not any(each in content for each in _SUPPRESSION), path


def exported(model: ExportSource, folder, input_type: str) -> SavedModelRuntime:
    saved_model.export(
        model.detector,
        str(folder),
        input_type=input_type,
        save_checkpoint=os.mkdir,
        pipeline_text='',
        precision='float32',
    )
    return SavedModelRuntime(str(folder))


@slow_cases.parametrize(1, 'kind', configs.KINDS | configs.NETWORKS)
def test_a_saved_model_gives_the_detections_of_the_model(kind, tmp_path, shared):
    model = source(kind)
    runtime = exported(model, tmp_path / 'exported', input_types.IMAGE_TENSOR)
    sources.assert_agrees(runtime, model, sources.photos(shared, 2))
    assert_does_not_suppress(tmp_path)
    empty = runtime.run_batch(tf.zeros([0, 50, 70, 3], tf.uint8))
    assert empty['detection_boxes'].shape == (0, 10, 4)


@pytest.mark.slow
@pytest.mark.parametrize('input_type', _IMAGES)
def test_all_types_of_images_give_the_detections_of_the_model(input_type, tmp_path, shared):
    model = source('rt_detr', _PADDED)
    runtime = exported(model, tmp_path / 'exported', input_type)
    sources.assert_agrees(runtime, model, sources.photos(shared, 2))


def test_boxes_are_no_input(tmp_path):
    with pytest.raises(UserError, match='does not classify given boxes'):
        exported(source('rt_detr'), tmp_path / 'e', input_types.IMAGE_AND_BOXES_TENSOR)


@pytest.mark.slow
@pytest.mark.parametrize('changes', [(), (_PADDED,)], ids=['resized', 'padded'])
@pytest.mark.parametrize('kind', configs.KINDS | configs.NETWORKS)
@pytest.mark.parametrize(
    'name',
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                any(
                    not importlib.util.find_spec(each)
                    for each in (*row.write_packages, *row.load_packages)
                ),
                reason=f'needs {", ".join((*row.write_packages, *row.load_packages))}',
            ),
        )
        for name, row in formats.EXPORT_FORMATS.items()
        if name != 'triton'  # A folder around the file of another format; see test_triton.py.
    ],
)
def test_files_give_the_detections_of_the_model(name, kind, changes, tmp_path, shared):
    model = source(kind, *changes)
    detector = formats.load(sources.written(name, model, tmp_path))
    sources.assert_agrees(detector, model, sources.photos(shared, 2))
    assert_does_not_suppress(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize('quantization', [FLOAT16, DYNAMIC])
def test_rounded_weights_of_tflite_resemble_the_model(quantization, tmp_path, shared):
    model = source('rt_detr')
    path = sources.written('tflite', model, tmp_path, FormatOptions(quantization=quantization))
    (image,) = sources.photos(shared, 1)
    found = formats.load(path)(image)
    expected = sources.in_process(model)(tf.constant(image[np.newaxis]))
    np.testing.assert_allclose(
        found['detection_scores'], expected['detection_scores'][0], atol=0.02
    )


def test_eight_bits_are_refused(tmp_path):
    options = FormatOptions(quantization=INT8, calibration=(tmp_path / 'a.jpg',))
    with pytest.raises(UserError, match=r'--quantization int8: .*model\.detr.*float16'):
        sources.written('tflite', source('rt_detr'), tmp_path, options)
