"""TFLite files, run by the interpreter, against the model in process."""

import collections
import contextlib
import dataclasses
import json
import pathlib
import re
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from object_detection.benchmarking import jobs, work
from object_detection.config.reader import read_pipeline
from object_detection.core import boxes as box_ops
from object_detection.core.fields import DetectionFields
from object_detection.errors import UserError
from object_detection.export import exporter, verification
from object_detection.export.formats import (
    formats,
    tflite,
    tflite_file,
    tflite_graph,
    tflite_metadata,
)
from object_detection.export.formats.source import ExportSource, FormatOptions
from object_detection.meta_architectures import detector as detector_builder
from object_detection.meta_architectures.ssd.ssd import Ssd
from object_detection.prediction import loading
from object_detection.protos import pipeline_pb2
from object_detection.runtime import description
from object_detection.runtime.in_process import ProcessRuntime
from object_detection.system import cpu, private_names
from tests import rows, slow_cases
from tests.export.formats import sources

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')

PADDED = """
  image_resizer { keep_aspect_ratio_resizer {
    min_dimension: 64 max_dimension: 64 pad_to_max_dimension: true
  } }
  post_processing { batch_non_max_suppression {
    max_detections_per_class: 5
    # Of all classes: boxes in the padding take up rows of the file.
    max_total_detections: 15
  } }
"""
FEW = 'post_processing { batch_non_max_suppression { max_total_detections: 6 } }'
KEYPOINTS = """
model { faster_rcnn {
  keypoint_roi_align { output_size: 4 canonical_size: 20 }
  second_stage_box_predictor { mask_rcnn_box_predictor {
    predict_keypoints: true
    keypoint_head { num_keypoints: 2 num_convs: 1 conv_depth: 4 }
  } }
} }
"""
AGNOSTIC = """
  post_processing { batch_non_max_suppression { use_class_agnostic_nms: true } }
"""


@pytest.fixture(scope='module')
def padded_file(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('tflite')
    return sources.written('tflite', sources.source('ssd', PADDED), folder)


@pytest.fixture(scope='module')
def int8_file(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('int8')
    rng = np.random.default_rng(0)
    paths = []
    for index in range(4):
        paths.append(folder / f'{index}.png')
        Image.fromarray(rng.integers(0, 255, (40, 50, 3), np.uint8)).save(paths[-1])
    options = FormatOptions(quantization='int8', calibration=tuple(paths))
    return sources.written('tflite', sources.source('ssd'), folder, options)


# Regular suppression by two threads would miss the last one of the three classes.
@pytest.mark.parametrize('threads', [1, 2, 3])
def test_a_padded_image_gives_the_detections_of_the_model(
    padded_file, shared, threads, monkeypatch
):
    monkeypatch.setattr(cpu, 'num_cores', lambda: float(threads))
    detector = formats.load(padded_file)
    comparison = sources.assert_agrees(
        detector, sources.source('ssd', PADDED), sources.photos(shared, 3)
    )
    assert comparison.unmatched == 0
    assert detector.labels.names == {1: 'cat', 3: 'café'}
    assert len(detector.run_batch(tf.zeros([2, 30, 40, 3], tf.uint8))['detection_boxes']) == 2


def test_detections_in_the_padding_are_no_differences(tmp_path):
    image = np.random.default_rng(0).integers(0, 255, (16, 64, 3), np.uint8)
    source = sources.source('ssd', PADDED + FEW)
    path = sources.written('tflite', source, tmp_path)

    def expected(sees_padding):
        detect = verification.in_process(source.detector, sees_padding=sees_padding)
        return [(image, detect(tf.constant(image[np.newaxis])))]

    # The file looks for objects in the padding too, which take the places of some in the image.
    others = verification.compare_with(formats.load(path), expected(False))
    assert others.unmatched > 0
    seconds = []
    comparison = exporter._compare('tflite', path, expected, seconds)
    assert (comparison.detections > 0, comparison.unmatched, len(seconds)) == (True, 0, 1)


def test_the_file_names_its_tensors_in_the_order_of_the_reference(padded_file):
    schema = private_names.tflite_schema()
    model = padded_file.read_bytes()
    tree = schema.ModelT.InitFromPackedBuf(bytearray(model), 0)
    (graph,), (signature,) = tree.subgraphs, tree.signatureDefs
    outputs = [graph.tensors[index].name.decode() for index in graph.outputs]
    assert outputs == [
        'detection_boxes',
        'detection_classes',
        'detection_scores',
        'num_detections',
    ]
    assert outputs == [each.name.decode() for each in signature.outputs]
    assert [graph.tensors[index].name for index in graph.inputs] == [b'image']
    entries = {each.name.decode(): each.buffer for each in tree.metadata}
    metadata = bytes(tree.buffers[entries[tflite_metadata.BUFFER]].data)
    assert metadata[4:8] == b'M001'
    for text in (b'location', b'number of detections', tflite_metadata.LABELS.encode()):
        assert text in metadata
    assert tflite_metadata.read_file(model, tflite_metadata.LABELS).decode() == 'cat\n???\ncafé\n'


def test_the_description_in_the_file_is_that_beside_it(padded_file, tmp_path):
    alone = tmp_path / 'other.tflite'
    alone.write_bytes(padded_file.read_bytes())
    inside = formats.load(alone).description
    assert inside == description.read_beside(padded_file, 'tflite')
    assert inside.inputs[0].shape == (1, 64, 64, 3)
    assert loading.load(alone).class_names == {1: 'cat', 3: 'café'}


@pytest.mark.slow
def test_int8_takes_pixels_as_they_are(int8_file, shared):
    detector = formats.load(int8_file)
    details = detector.description.details
    assert (details['quantization'], details['calibration_images']) == ('int8', 4)
    assert details['edge_tpu_refuses'] == []
    assert detector.description.inputs[0].dtype == 'uint8'
    interpreter = tflite.interpreter(int8_file, int8_file.read_bytes())
    (image,) = interpreter.get_input_details()
    assert image['dtype'] == np.uint8
    assert image['quantization'] == (1.0, 0)
    model = sources.source('ssd')
    in_process = sources.in_process(model)
    expected = [(each, in_process(tf.constant(each[None]))) for each in sources.photos(shared, 3)]
    resemblance = verification.resemble(detector, expected)
    assert resemblance.detections > 0
    assert resemblance.found >= 0.8 * resemblance.detections, resemblance
    scores = detector(expected[0][0])['detection_scores']
    assert scores.max() > 0
    assert len(set(scores)) > 1


def quantized(family: str, *overrides: str) -> ExportSource:
    """A model as of a training with `graph_rewriter.quantization`, with ranges for all values."""
    model = sources.source(family, *overrides)
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    pipeline.CopyFrom(model.pipeline)
    pipeline.graph_rewriter.quantization.delay = 0
    with sources.small_networks() if family == 'small_ssd' else contextlib.nullcontext():
        detector = detector_builder.build(pipeline, is_training=False, has_penalty=False)
    weights = model.detector.named_variables()
    for name, variable in detector.named_variables().items():
        variable.assign(weights.get(name, -4.0 if name.endswith('min') else 6.0))
    return ExportSource(detector, pipeline, 'float32', sources.LABELS)


@pytest.mark.slow
def test_a_file_is_benchmarked_in_its_runtime(int8_file):
    job = jobs.BenchmarkJob(task=jobs.INFERENCE, source=str(int8_file), steps=2, batch_size=2)
    found = jobs.run_alone(job)
    assert found['precision'] == 'int8'
    assert found['images_per_second'] > 0
    assert 'parts' not in found


# Hard swish, and squeeze-and-excitation of two operations.
V3 = "feature_extractor { type: 'ssd' backbone: 'mobilenet_v3_small' }"


@pytest.mark.slow
@pytest.mark.parametrize('overrides', [[], [V3]], ids=['v2', 'v3'])
def test_int8_takes_the_ranges_of_a_training(overrides, tmp_path, shared):
    model = quantized('ssd', *overrides)
    path = sources.written('tflite', model, tmp_path, FormatOptions(quantization='int8'))
    interpreter = tflite.interpreter(path, path.read_bytes())
    types = {each['index']: each['dtype'] for each in interpreter.get_tensor_details()}
    convolutions = [
        {types[index] for index in [*each['inputs'][:2], *each['outputs']]}
        for each in interpreter._get_ops_details()
        if each['op_name'] in ('CONV_2D', 'DEPTHWISE_CONV_2D')
    ]
    assert len(convolutions) > 20
    assert all(each == {np.int8} for each in convolutions)
    if overrides:
        others = ('ADD', 'HARD_SWISH', 'MEAN', 'MUL')
        found = collections.Counter(
            (each['op_name'], types[each['outputs'][0]])
            for each in interpreter._get_ops_details()
            if each['op_name'] in others
        )
        # Eleven blocks, nine of which squeeze, and the first and last convolution.
        assert found == {
            ('ADD', np.int8): 16,
            ('HARD_SWISH', np.int8): 18,
            ('MEAN', np.int8): 9,
            ('MUL', np.int8): 18,
            ('MUL', np.float32): 1,
        }
    detector, in_process = formats.load(path), sources.in_process(model)
    assert 'calibration_images' not in detector.description.details
    expected = [(each, in_process(tf.constant(each[None]))) for each in sources.photos(shared, 3)]
    resemblance = verification.resemble(detector, expected)
    assert resemblance.detections > 0
    assert resemblance.found >= 0.8 * resemblance.detections, resemblance


def test_options_that_do_not_fit_a_quantized_training_are_refused():
    source = quantized('small_ssd')
    quantization = source.detector.quantization
    images = (pathlib.Path('a.png'),)

    def check(row):
        config, options, message = row
        with (
            mock.patch.object(
                quantization, 'params', dataclasses.replace(quantization.params, **config)
            ),
            pytest.raises(UserError, match=f'^{message}'),
        ):
            tflite.check(source, FormatOptions(**options))

    rows.check_rows(
        [
            ({}, {}, '--quantization: expected int8'),
            ({}, {'quantization': 'int8', 'calibration': images}, '--calibration: expected none'),
            (
                {'weight_bits': 4},
                {'quantization': 'int8'},
                r'graph_rewriter\.quantization\.weight_bits: expected 8',
            ),
        ],
        check,
    )


def test_what_an_edge_tpu_refuses_is_named(padded_file):
    refused = tflite_file.edge_tpu_problems(padded_file.read_bytes())
    assert any('CONV_2D: computes in floating point' in each for each in refused)


@slow_cases.parametrize(
    4,
    ('changes', 'options', 'message'),
    [
        ('', {'quantization': 'int8'}, '--calibration: expected images with'),
        ('', {'calibration': (pathlib.Path('a.png'),)}, '--calibration: expected images with'),
        ('', {'quantization': 'int4'}, '--quantization: expected one of float32, '),
        ('', {'batch_size': 2}, '--batch_size: expected 1'),
        ('image_resizer { identity_resizer {} }', {}, '--format tflite: needs images of one size'),
        (
            'box_coder { mean_stddev_box_coder {} }',
            {},
            'model.ssd.box_coder: expected faster_rcnn_box_coder',
        ),
        (
            'box_coder { faster_rcnn_box_coder { max_log_size: 4.125 } }',
            {},
            'model.ssd.box_coder.faster_rcnn_box_coder.max_log_size: expected none, as .* '
            r'Received: 4\.125',
        ),
        (
            'post_processing { batch_non_max_suppression { soft_nms_sigma: 0.5 } }',
            {},
            'model.ssd.post_processing.batch_non_max_suppression.soft_nms_sigma: expected 0',
        ),
    ],
)
def test_what_the_format_cannot_express_is_refused(changes, options, message):
    with pytest.raises(UserError, match=rf'^{message}'):
        tflite.check(sources.source('small_ssd', changes), FormatOptions(**options))


def test_keypoints_of_regions_are_refused():
    """The interpreter would end the process."""
    model = sources.source('faster_rcnn', sources.PADDED, KEYPOINTS)
    message = '--format tflite: expected a detector whose regions have no keypoints'
    with pytest.raises(UserError, match=f'^{message}.* Received: predict_keypoints: true of model'):
        tflite.check(model, FormatOptions())


def test_16_bits_are_refused_in_favour_of_quantization():
    model = sources.source('ssd', PADDED)
    source = ExportSource(model.detector, model.pipeline, 'bfloat16')
    with pytest.raises(UserError, match=r'--precision float32.*Received: bfloat16'):
        tflite.check(source, FormatOptions())


def test_files_that_are_no_models_are_refused(padded_file, tmp_path):
    path = tmp_path / 'model.tflite'
    path.write_bytes(b'\0' * 100)
    with pytest.raises(UserError, match=r'with its description model\.tflite\.json'):
        formats.load(path)
    described = description.path_beside(padded_file).read_text()
    description.path_beside(path).write_text(described)
    with pytest.raises(UserError, match=r'model\.tflite: cannot be read as a TFLite file'):
        formats.load(path)
    path.write_bytes(padded_file.read_bytes())
    first = ['detection_boxes', 'detection_scores', 'num_detections']
    for change, message in (
        ({'outputs': first}, 'outputs: expected detection_boxes, '),
        ({'details': {'quantization': 'int4'}}, 'details.quantization .*: expected float32 or'),
        (
            {'details': {'quantization': 'int8', 'boxes_relative_to': 'moon'}},
            'details.boxes_relative_to .*: expected padded_image. Received: "moon"',
        ),
        (
            {
                'inputs': [{'name': 'image', 'dtype': 'float32', 'shape': [1, 32, 64, 3]}],
                'resizer': 'fixed_shape_resizer { height: 32 width: 64 }',
            },
            r'image: expected shape \[1, 32, 64, 3\].* Received: \[1, 64, 64, 3\]',
        ),
    ):
        description.path_beside(path).write_text(json.dumps(json.loads(described) | change))
        with pytest.raises(UserError, match=message):
            formats.load(path)


def test_suppression_of_any_class_needs_no_spare_columns():
    model = sources.source('small_ssd', AGNOSTIC)
    options = tflite_graph.post_process_options(model.pipeline.model)
    assert not options.use_regular_nms
    assert options.num_spare == 0
    regular = dataclasses.replace(options, use_regular_nms=True)
    assert regular.num_spare == tflite_graph.SPARE_CLASSES
    assert dataclasses.replace(regular, num_classes=2).num_spare == 0


@pytest.mark.slow
@pytest.mark.parametrize('quantization', ['float16', 'dynamic'])
def test_smaller_weights_give_like_detections(quantization, tmp_path, shared):
    model = sources.source('ssd', PADDED)
    path = sources.written('tflite', model, tmp_path, FormatOptions(quantization=quantization))
    whole = sources.written('tflite', model, tmp_path / 'whole')
    assert path.stat().st_size < 0.7 * whole.stat().st_size
    in_process = sources.in_process(model)
    expected = [(each, in_process(tf.constant(each[None]))) for each in sources.photos(shared, 3)]
    resemblance = verification.resemble(formats.load(path), expected)
    assert resemblance.found >= 0.8 * resemblance.detections > 0, resemblance


@pytest.mark.slow
def test_suppression_of_any_class_gives_the_detections_of_the_model(tmp_path, shared):
    model = sources.source('small_ssd', AGNOSTIC)
    detector = formats.load(sources.written('tflite', model, tmp_path))
    sources.assert_agrees(detector, model, sources.photos(shared, 3))
    outputs = detector(np.zeros((64, 64, 3), np.uint8))
    assert set(outputs) == {
        DetectionFields.BOXES,
        DetectionFields.CLASSES,
        DetectionFields.SCORES,
        DetectionFields.NUM_DETECTIONS,
    }


def _spread_scores(detector: Ssd, image: tf.Tensor) -> None:
    """Makes class logits vary by 1.5, as those of trained weights do."""
    logits = tf.function(lambda *inputs: detector.predict(*inputs).class_logits, autograph=False)
    spread = np.std(logits(*detector.preprocess(image)))
    for name, variable in detector.named_variables().items():
        if re.fullmatch(r'box_predictor/classes/(?:pointwise_)?kernel', name):
            variable.assign(variable * (1.5 / spread))


@pytest.mark.slow
@pytest.mark.parametrize(
    'config',
    ['ssd_mobilenet_v2_fpnlite_320x320_coco17_tpu-8', 'ssd_efficientdet_d0_512x512_coco17_tpu-8'],
)
def test_a_detector_of_the_zoo_gives_the_boxes_and_scores_of_the_model(config, tmp_path, shared):
    path = shared / 'reference' / 'configs' / 'tf2' / f'{config}.config'
    if not path.is_file():
        pytest.skip(f'needs {path}')
    pipeline = read_pipeline(str(path))
    model = ExportSource(
        work.build_with_spread_scores(pipeline, 'float32'), pipeline, 'float32', sources.LABELS
    )
    images = [tf.constant(np.uint8(work.images(1, size))) for size in ((480, 640), (512, 512))]
    _spread_scores(model.detector, images[0])
    detector = formats.load(sources.written('tflite', model, tmp_path))
    in_process = ProcessRuntime(model.detector)
    for image in images:
        expected = in_process.run_batch(image)
        found = detector.run_batch(image)
        # Boxes in the padding take up rows of the file.
        is_padded = model.pads and image.shape[1] != image.shape[2]
        count = int((found if is_padded else expected)['num_detections'][0])
        scores = expected['detection_scores'][0, :count].numpy()
        assert count > 50
        assert np.ptp(scores) > 0.05
        np.testing.assert_allclose(found['detection_scores'][0, :count], scores, atol=1e-3)
        ious = box_ops.iou(expected['detection_boxes'][0], found['detection_boxes'][0]).numpy()
        is_same = (
            expected['detection_classes'][0, :, None] == found['detection_classes'][0]
        ).numpy()
        # At the cut-off two nearly equal scores may change places.
        assert np.mean((ious * is_same)[:count].max(axis=1) > 0.95) >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize('family', ['faster_rcnn', 'mask_rcnn'])
def test_detectors_of_two_stages_are_made_of_operations_of_tflite(family, tmp_path, shared):
    model = sources.source(family, sources.PADDED)
    detector = formats.load(sources.written('tflite', model, tmp_path))
    assert [each.name for each in detector.description.inputs] == ['image', 'true_image_shape']
    assert ('detection_masks' in detector.description.outputs) == (family == 'mask_rcnn')
    sources.assert_agrees(detector, model, sources.photos(shared, 3))


def test_detectors_of_two_stages_have_no_8_bits():
    options = FormatOptions(quantization='int8', calibration=(pathlib.Path('a.png'),))
    with pytest.raises(
        UserError,
        match=r'--quantization int8: expected a model that ends with TFLite_Detection_PostProcess',
    ):
        tflite.check(sources.source('faster_rcnn'), options)
