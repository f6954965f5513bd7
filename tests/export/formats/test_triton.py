"""Repositories of Triton: its own schema reads them, and the model gives the same detections."""

import pathlib

import numpy as np
import pytest

from object_detection.errors import UserError
from object_detection.export.formats import formats, triton
from object_detection.export.formats.source import FormatOptions
from object_detection.runtime import description
from tests.export.formats import sources

DETECTED = ('detection_boxes', 'detection_scores', 'num_detections')

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')


def write(model, folder: pathlib.Path, backend: str, batch_size: int = 1) -> pathlib.Path:
    options = FormatOptions(batch_size=batch_size, triton_backend=backend)
    return sources.written('triton', model, folder, options)


def dims(tensor) -> list[int]:
    """The shape of a tensor of the model, without the batch, as Triton takes it."""
    return list(tensor.reshape.shape if tensor.HasField('reshape') else tensor.dims)


@pytest.mark.parametrize('backend', [pytest.param('onnx', marks=pytest.mark.slow), 'saved_model'])
def test_a_repository_gives_the_detections_of_the_model(backend, tmp_path, shared):
    if backend == 'onnx':
        for name in ('tf2onnx', 'onnxruntime'):
            pytest.importorskip(name, reason=f'needs {name}, of the extra onnx')
    model = sources.source('ssd')
    path = write(model, tmp_path, backend, batch_size=4)
    assert path == tmp_path / 'triton/detector/config.pbtxt'
    assert formats.find(tmp_path) == formats.find(path.parent) == path
    detector = formats.load(path)
    assert detector.description.details['backend'] == backend
    assert detector.labels.names == {1: 'cat', 3: 'café'}
    sources.assert_agrees(detector, model, sources.photos(shared, 2))
    outputs = detector(np.zeros((2, 50, 70, 3), np.uint8))
    schema = pytest.importorskip('tritonclient.grpc.model_config_pb2', reason='needs tritonclient')
    text_format = pytest.importorskip('google.protobuf.text_format')
    config = text_format.Parse(path.read_text(), schema.ModelConfig())
    assert config.max_batch_size == 4
    assert config.HasField('dynamic_batching')
    [given] = config.input
    assert (given.name, given.data_type) == ('input_tensor', schema.TYPE_UINT8)
    assert dims(given) == [-1, -1, 3]
    assert {each.name for each in config.output} == outputs.keys()
    for each in config.output:
        known = outputs[each.name].shape[1:]
        assert len(dims(each)) == len(known)
        assert all(side in (-1, own) for side, own in zip(dims(each), known, strict=True))


def test_a_config_without_batches():
    options = FormatOptions(triton_backend='saved_model')
    outputs = {'detection_boxes': (None, 100, 4), 'num_detections': (None,)}
    assert triton._config(sources.source('ssd'), outputs, options).splitlines() == [
        'platform: "tensorflow_savedmodel"',
        'max_batch_size: 1',
        'input { name: "input_tensor" data_type: TYPE_UINT8 dims: [ -1, -1, 3 ] }',
        'output { name: "detection_boxes" data_type: TYPE_FP32 dims: [ 100, 4 ] }',
        'output { name: "num_detections" data_type: TYPE_FP32 dims: [ 1 ] reshape: { shape: [ ] } '
        '}',
    ]


def test_a_repository_without_its_model_is_named(tmp_path):
    model = sources.source('ssd')
    described = model.describe('triton', inputs=(model.input_tensor,), outputs=DETECTED)
    path = tmp_path / 'config.pbtxt'
    path.write_text('')
    with pytest.raises(UserError, match=r'with its description config\.pbtxt\.json'):
        formats.load(path)
    description.path_beside(path).write_text(described.to_json())
    with pytest.raises(UserError, match=r'config\.pbtxt: expected a model in the folder 1'):
        formats.load(path)
