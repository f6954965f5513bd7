"""ONNX files in ONNX Runtime, against the model in process."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.suppression import nms
from object_detection.errors import UserError
from object_detection.export.formats import formats, onnx_file
from object_detection.export.formats.source import ExportSource, FormatOptions
from object_detection.resizers.fixed_sizes import PadToMultipleResizer
from object_detection.runtime import description
from tests.export.formats import sources

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')


@pytest.fixture(scope='module')
def packages():
    for name in ('tf2onnx', 'onnxruntime'):
        pytest.importorskip(name, reason=f"needs {name}: pip install '.[onnx]'")


@pytest.mark.parametrize(
    ('family', 'overrides'),
    [
        ('ssd', ()),
        ('small_ssd', (sources.GROUP_NORMS, 'pre_nms_topk_per_level: 20')),
        pytest.param('faster_rcnn', (sources.OF_ANY_SIZE,), marks=pytest.mark.slow),
        pytest.param('mask_rcnn', (sources.PADDED, sources.ROI_ALIGN), marks=pytest.mark.slow),
    ],
)
def test_a_file_gives_the_detections_of_the_model(family, overrides, packages, tmp_path, shared):
    model = sources.source(family, *overrides)
    path = sources.written('onnx', model, tmp_path)
    # The description is inside too.
    description.path_beside(path).unlink()
    detector = formats.load(path)
    assert detector.labels.names == {1: 'cat', 3: 'café'}
    assert detector.description.inputs[0].shape == (None, None, None, 3)
    sources.assert_agrees(detector, model, sources.photos(shared, 3))
    images = np.random.default_rng(0).integers(0, 255, (3, 50, 70, 3), np.uint8)
    together = detector.run_batch(tf.constant(images))
    assert {len(value) for value in together.values()} == {3}
    for index, image in enumerate(images):
        alone = detector(image)
        np.testing.assert_allclose(
            together['detection_scores'][index], alone['detection_scores'], atol=1e-5
        )
    assert len(detector.run_batch(tf.constant(images[:0]))['detection_boxes']) == 0


def test_sizes_are_rounded_up_as_in_process(packages):
    import onnxruntime

    resizer = PadToMultipleResizer(multiple=32)

    def rounded(size: tf.Tensor) -> dict[str, tf.Tensor]:
        return {'rounded': tf.stack(resizer.padded_size(size[0], size[1]))}

    spec = tf.TensorSpec([2], tf.int32, 'size')
    model = onnx_file._convert(tf.function(rounded, input_signature=[spec], autograph=False))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    found = session.run(None, {'size': np.array([64, 90], np.int32)})
    np.testing.assert_array_equal(found[0], [64, 96])


def test_a_file_that_is_no_model_is_named(packages, tmp_path):
    (tmp_path / 'a.onnx').write_bytes(b'no model')
    with pytest.raises(UserError, match=r'a\.onnx: ONNX Runtime cannot read it'):
        formats.load(tmp_path / 'a.onnx')


def test_other_precisions_are_refused():
    model = sources.source('small_ssd')
    lower = ExportSource(model.detector, model.pipeline, 'mixed_bfloat16')
    with pytest.raises(UserError, match=r'^--format onnx: .*mixed_bfloat16; add --precision'):
        onnx_file.check(lower, FormatOptions())


def test_weights_that_no_file_holds_are_refused(monkeypatch):
    monkeypatch.setattr(onnx_file, '_MAX_WEIGHTS', 1000)
    with pytest.raises(UserError, match=r'^--format onnx: a file holds at most 2 GB'):
        onnx_file.check(sources.source('small_ssd'), FormatOptions())


@pytest.mark.slow
def test_more_anchors_than_are_searched_first(packages, tmp_path, shared, monkeypatch):
    monkeypatch.setattr(nms, '_MAX_ROWS', 20)
    model = sources.source('ssd')
    detector = formats.load(sources.written('onnx', model, tmp_path))
    sources.assert_agrees(detector, model, sources.photos(shared, 2))
