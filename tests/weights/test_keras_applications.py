"""Backbones from Keras weights files: the same features as Keras's own model gives."""

import functools
import pathlib
import shutil
import types
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.legacy.saving import legacy_h5_format

from object_detection.errors import CheckpointError
from object_detection.meta_architectures.faster_rcnn.variable_names import FASTER_RCNN_NAMES
from object_detection.weights import keras_applications, networks, restore
from object_detection.weights.keras_applications import KerasArrays, KerasWeights
from tests.training.fake_detectors import ExtractorDetector

# Keras' own writers rely on it.
pytestmark = pytest.mark.filterwarnings('ignore:__array__ implementation:DeprecationWarning')

SIZE = 64
OUTPUTS = ['conv2_block3_out', 'conv3_block4_out', 'conv4_block6_out', 'conv5_block3_out']


class KerasResnet:
    """Random weights in each layout, an image, and the features that Keras computes from it."""

    def __init__(self, folder: pathlib.Path):
        keras.utils.set_random_seed(0)
        self._model = keras.applications.ResNet50(weights=None, include_top=False)
        self._rng = np.random.default_rng(0)
        for layer in self._model.layers:
            for variable in layer.weights:
                if variable.name != 'kernel':
                    positive = variable.name in ('gamma', 'moving_variance')
                    low, high = (0.2, 0.6) if positive else (-1, 1)
                    variable.assign(self._rng.uniform(low, high, variable.shape))
        self.image = self._rng.uniform(0, 255, [1, SIZE, SIZE, 3]).astype(np.float32)
        self._folder = folder
        layers = [layer.name for layer in self._model.layers]
        self.convolutions = [name for name in layers if name.endswith('_conv')]

    @functools.cached_property
    def legacy(self) -> str:
        path = self._folder / 'resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5'
        with h5py.File(path, 'w') as file:
            legacy_h5_format.save_weights_to_hdf5_group(file, self._model)
        return str(path)

    @functools.cached_property
    def keras_3(self) -> str:
        path = self._folder / 'resnet50.weights.h5'
        self._model.save_weights(path)
        return str(path)

    @functools.cached_property
    def expected(self) -> list[tf.Tensor]:
        model = self._model
        # Its pooling is padded on all sides, that of our backbones as with 'same'.
        model.get_layer('pool1_pad').padding = ((0, 1), (0, 1))
        features = keras.Model(model.input, [model.get_layer(name).output for name in OUTPUTS])
        return features(keras.applications.resnet.preprocess_input(self.image.copy()))


@pytest.fixture(scope='module')
def keras_resnet(tmp_path_factory):
    return KerasResnet(tmp_path_factory.mktemp('weights'))


@pytest.fixture(scope='module')
def pyramid_detector():
    return ExtractorDetector('faster_rcnn_resnet50_fpn_keras')


def assert_close(actual, expected):
    scale = np.abs(expected).max()
    assert np.std(expected) > 0.01 * scale  # not all alike
    np.testing.assert_allclose(actual, expected, atol=2e-5 * scale)


@pytest.mark.slow
def test_a_pyramids_backbone_gives_keras_features(keras_resnet, pyramid_detector):
    report = restore.restore(pyramid_detector, keras_resnet.legacy, 'classification')
    extractor = pyramid_detector.extractor
    maps = extractor.backbone(extractor.normalize(tf.constant(keras_resnet.image)))
    for actual, expected in zip(maps, keras_resnet.expected, strict=True):
        assert_close(actual, expected)
    assert len(report.restored) == 53 * 5
    assert {name.split('/')[0] for name in report.missing} == {'fpn', 'box_classifier'}
    assert report.unused == report.mismatched == []


@pytest.mark.slow
def test_stages_before_and_after_the_crops_give_keras_features(keras_resnet):
    detector = ExtractorDetector('faster_rcnn_resnet50_keras')
    report = restore.restore(detector, keras_resnet.keras_3, 'classification')
    extractor = detector.extractor
    stage_4 = extractor.backbone(extractor.normalize(tf.constant(keras_resnet.image)))
    assert_close(stage_4, keras_resnet.expected[2])
    assert_close(extractor.box_classifier(stage_4), keras_resnet.expected[3])
    assert report.missing == report.unused == report.mismatched == []


@pytest.mark.slow
def test_numbered_layers_are_identified_by_their_order(keras_resnet, pyramid_detector, tmp_path):
    path = tmp_path / 'older.weights.h5'
    shutil.copy(keras_resnet.keras_3, path)
    with h5py.File(path, 'r+') as file:
        for layer in file['layers'].values():
            del layer['vars'].attrs['name']
    variables = pyramid_detector.named_variables()
    restore.restore(pyramid_detector, keras_resnet.legacy, 'classification')
    expected = {name: variable.numpy() for name, variable in variables.items()}
    for variable in variables.values():
        variable.assign(tf.zeros_like(variable))
    report = restore.restore(pyramid_detector, str(path), 'classification')
    for name in report.restored:
        np.testing.assert_array_equal(variables[name], expected[name], err_msg=name)


def values(detector):
    return {name: variable.numpy() for name, variable in detector.named_variables().items()}


def assert_refused(detector, path, *texts, checkpoint_type='classification'):
    before = values(detector)
    with pytest.raises(CheckpointError) as caught:
        restore.restore(detector, str(path), checkpoint_type)
    for text in (str(path), *texts):
        assert text in str(caught.value)
    for name, value in values(detector).items():
        np.testing.assert_array_equal(value, before[name])


def test_a_file_cut_short_is_refused(keras_resnet, pyramid_detector, tmp_path):
    whole = pathlib.Path(keras_resnet.legacy).read_bytes()
    path = tmp_path / 'short.h5'
    path.write_bytes(whole[: len(whole) // 2])
    assert_refused(pyramid_detector, path, 'expected a whole HDF5 file', 'truncated')


def test_a_compressed_model_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / 'net.keras'
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('model.weights.h5', bytes(10**7))
    assert path.stat().st_size < 20_000
    with pytest.raises(CheckpointError, match=r'net\.keras: .* compressed'):
        KerasArrays(str(path))


def test_other_files_are_refused(keras_resnet, pyramid_detector, tmp_path):
    backbone_only = {'checkpoint_type': 'full'}
    assert_refused(pyramid_detector, keras_resnet.legacy, "'full'", **backbone_only)
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name='top')]).save_weights(
        tmp_path / 'other.weights.h5'
    )
    assert_refused(pyramid_detector, tmp_path / 'other.weights.h5', 'conv1_bn', 'Received: top.')
    page = tmp_path / 'page.h5'
    page.write_text('<html>Not found</html>')
    assert_refused(pyramid_detector, page, 'expected the prefix', "b'<html>Not found<'")


def write_deeper_file(path, blocks=(3, 4, 23, 3)):
    """Names of ResNet-101 without any numbers."""
    with h5py.File(path, 'w') as file:
        file.create_dataset('conv1_conv/conv1_conv/kernel:0', (7, 7, 3, 64))
        for stage, count in enumerate(blocks, start=2):
            for block in range(1, count + 1):
                layer = f'conv{stage}_block{block}_3_conv'
                file.create_dataset(f'{layer}/{layer}/kernel:0', (1, 1, 64, 256))


def test_another_depth_is_named(pyramid_detector, tmp_path):
    write_deeper_file(tmp_path / 'deeper.h5')
    ours = 'ResNet-50 (3, 4, 6, 3 bottleneck blocks)'
    theirs = 'ResNet-101 (3, 4, 23, 3 bottleneck blocks)'
    assert_refused(pyramid_detector, tmp_path / 'deeper.h5', ours, f'Received: {theirs}')


def test_layers_are_counted_in_the_order_of_keras(keras_resnet):
    order = [f'{name}_conv' for name in networks.bottleneck_layers(53)]
    assert order == keras_resnet.convolutions
    assert [len(list(networks.bottleneck_layers(n))) for n in (104, 155, 54)] == [104, 155, 0]


def write_numbered_file(path, first_number):
    """An Inception-ResNet v2 of single numbers: the i-th numbered layer has the value i."""
    with h5py.File(path, 'w') as file:
        for i in range(203):
            conv, norm = f'conv2d_{first_number + i}', f'batch_normalization_{first_number + i}'
            file.create_dataset(f'{conv}/{conv}/kernel:0', data=np.full((1, 1, 1, 1), i, 'f'))
            file.create_dataset(f'{norm}/{norm}/beta:0', data=np.full((1,), i, 'f'))
        file.create_dataset('conv_7b/conv_7b/kernel:0', data=np.full((1, 1, 1, 1), 1000, 'f'))
        file.create_dataset('predictions/predictions/kernel:0', data=np.zeros((1, 1000), 'f'))


def test_numbered_layers_of_inception_resnet(tmp_path):
    write_numbered_file(tmp_path / 'numbered.h5', first_number=301)
    expected = {
        'backbone/conv_1a/kernel': 0,
        'backbone/conv_4a_bn/beta': 4,
        'backbone/mixed_5b_branch3_1/kernel': 11,
        'backbone/block35_2_branch2_3/kernel': 23,
        'backbone/block17_20_branch1_3_bn/beta': 155,
        'box_classifier/mixed_7a_branch0_1/kernel': 156,
        'box_classifier/block8_10_branch1_3/kernel': 202,
        'box_classifier/conv_7b/kernel': 1000,
    }
    detector = types.SimpleNamespace(
        named_variables=lambda: expected, variable_names=FASTER_RCNN_NAMES, parts=dict
    )
    with KerasWeights(KerasArrays(str(tmp_path / 'numbered.h5'))) as source:
        entries = source.entries(detector)
        assert len(entries) == 203 * 2 + 1
        assert {name: entries[name].read().item() for name in expected} == expected


@pytest.mark.parametrize('name', ['top_level_model_weights', 'conv2d_9'])
def test_a_variable_in_no_layer_is_left(tmp_path, name):
    path = tmp_path / 'numbered.h5'
    write_numbered_file(path, first_number=301)
    with h5py.File(path, 'r+') as file:
        file.create_dataset(name, data=np.ones((3,), 'f'))
    detector = types.SimpleNamespace(
        named_variables=lambda: {'backbone/conv_1a/kernel': 0},
        variable_names=FASTER_RCNN_NAMES,
        parts=dict,
    )
    with KerasWeights(KerasArrays(str(path))) as source:
        assert source.shapes[name] == (3,)
        assert source.entries(detector)['backbone/conv_1a/kernel'].read().item() == 0


def test_a_file_that_cannot_be_understood_is_closed(tmp_path, monkeypatch):
    path = tmp_path / 'weights.h5'
    write_numbered_file(path, first_number=1)

    def fail(file):
        raise KeyError('no such group')

    monkeypatch.setattr(keras_applications, '_find_datasets', fail)
    with pytest.raises(CheckpointError, match='expected a whole HDF5 file'):
        KerasWeights(KerasArrays(str(path)))
    h5py.File(path, 'r+').close()  # refused while the file is open for reading


@pytest.mark.slow
def test_inception_resnet_of_keras(tmp_path):
    model = keras.applications.InceptionResNetV2(weights=None, include_top=False)
    for layer in model.layers:
        for i, variable in enumerate(layer.weights):
            variable.assign(np.full(variable.shape, hash((layer.name, i)) % 9973, np.float32))
    model.save_weights(tmp_path / 'network.weights.h5')
    with h5py.File(tmp_path / 'notop.h5', 'w') as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, model)
    detector = ExtractorDetector('faster_rcnn_inception_resnet_v2_keras')
    # Both networks order their layers by how far from the output they are.
    expected = [layer.weights for layer in model.layers if layer.weights]
    for name in ('network.weights.h5', 'notop.h5'):
        report = restore.restore(detector, str(tmp_path / name), 'classification')
        assert report.missing == report.unused == report.mismatched == []
        layers = [la for part in detector.parts().values() for la in part.layers if la.weights]
        for ours, theirs in zip(layers, expected, strict=True):
            for variable in theirs:
                value = getattr(ours, variable.name)
                np.testing.assert_array_equal(value, variable, err_msg=f'{name}: {ours.name}')
