"""Backbones from the checkpoints of NVIDIA, TPU and Habana, TF-Slim and tensorpack."""

import io
import logging
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from object_detection.errors import CheckpointError
from object_detection.models.backbones import resnet_v1
from object_detection.models.backbones.resnet_v1 import Padding
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import Preprocess
from object_detection.models.normalization import BatchNormParams
from object_detection.weights import restore, third_party_names
from object_detection.weights.arrays import NpzArrays
from object_detection.weights.sources import open_source
from tests import rows, slow_cases
from tests.training.fake_detectors import ExtractorDetector
from tests.weights import third_party_files

IMAGENET = (np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375]))
MEANS = np.array([123.68, 116.779, 103.939], np.float32)
STEM = ('conv1_conv/kernel', 'conv1_bn/moving_mean', 'conv1_bn/moving_variance')
SYSTEMS = ('slim_detector', 'tensorpack', 'nvidia', 'tpu', 'habana', 'slim')


@pytest.fixture(scope='module', autouse=True)
def narrow_stages():
    """All layers of a ResNet-50, with few channels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resnet_v1, '_STAGE_FILTERS', third_party_files.NARROW)
        yield


@pytest.fixture(scope='module')
def detector(narrow_stages):
    return ExtractorDetector('faster_rcnn_resnet50_fpn_keras')


@pytest.fixture(scope='module')
def weights(detector):
    return third_party_files.random_weights(detector)


def write(folder, system, weights, **others):
    """Writes weights under the names of a system; returns the path for `restore`."""
    names = third_party_files.names(getattr(third_party_files, system), 50)
    arrays = {theirs: weights[ours] for ours, theirs in names.items()} | others
    if system == 'tensorpack':
        return third_party_files.write_npz(folder / 'ImageNet-R50.npz', arrays)
    return third_party_files.write_checkpoint(folder / 'model.ckpt-112603', arrays)


@slow_cases.parametrize(2, 'system', SYSTEMS)
def test_each_variable_gets_its_value(tmp_path, detector, weights, system):
    top = {'top/weights': np.ones([2, 3], np.float32)}
    report = restore.restore(detector, write(tmp_path, system, weights, **top), 'classification')
    assert len(report.restored) == 53 * 5
    assert {name.split('/')[0] for name in report.missing} == {'fpn', 'box_classifier'}
    assert report.unused == ['top/weights']
    changed = () if system.startswith('slim') else STEM
    for name in weights.keys() - set(changed):
        np.testing.assert_array_equal(detector.value(name), weights[name], err_msg=name)


def first_norm(image, weights, epsilon=1e-5):
    """What the norm after the first convolution gives, the padding of whose input is left out."""
    x = tf.nn.conv2d(image, weights['conv1_conv/kernel'], 2, 'VALID')
    gamma, beta, mean, variance = (
        weights[f'conv1_bn/{name}'] for name in ('gamma', 'beta', 'moving_mean', 'moving_variance')
    )
    return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta


@pytest.mark.parametrize('system', ['nvidia', 'tpu', 'slim', 'tensorpack'])
def test_our_images_give_what_theirs_gave_after_the_first_norm(tmp_path, detector, weights, system):
    image = np.random.default_rng(0).uniform(0, 255, [1, 32, 32, 3]).astype(np.float32)
    mean, std = (MEANS, 1.0) if system == 'slim' else IMAGENET
    theirs = ((image - mean) / std).astype(np.float32)
    if system == 'tensorpack':
        theirs = theirs[..., ::-1]
    with open_source(write(tmp_path, system, weights)) as source:
        entries = source.entries(detector)
        read = {k: entries[f'backbone/{k}'].read() for k in weights if k.startswith('conv1_')}
    actual = first_norm(detector.normalize(tf.constant(image)), read)
    np.testing.assert_allclose(actual, first_norm(theirs, weights), rtol=1e-4, atol=1e-4)
    # So that it learns as fast as there.
    size = [np.std(kernels[STEM[0]]) for kernels in (read, weights)]
    np.testing.assert_allclose(*size, rtol=0.01)


def test_the_first_norm_makes_up_for_another_epsilon(tmp_path, weights):
    norm = BatchNormParams(epsilon=100.0, scale=True)
    hyperparams = LayerHyperparams(batch_norm=norm)
    detector = ExtractorDetector(
        'faster_rcnn_resnet50_keras', hyperparams=hyperparams, override_backbone=True
    )
    path = write(tmp_path, 'nvidia', weights)
    with open_source(path) as source:
        entries = source.entries(detector)
        read = {k: entries[f'backbone/{k}'].read() for k in weights if k.startswith('conv1_')}
    image = np.random.default_rng(0).uniform(0, 255, [1, 32, 32, 3]).astype(np.float32)
    actual = first_norm(detector.normalize(tf.constant(image)), read, epsilon=100.0)
    mean, std = IMAGENET
    expected = first_norm(((image - mean) / std).astype(np.float32), weights)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def slim_features(image, weights):
    """TF-Slim's ResNet-50: a stage has its stride in the 3x3 convolution of its last unit."""

    def norm(x, layer):
        gamma, beta, mean, variance = (
            weights[f'{layer}_bn/{k}'] for k in ('gamma', 'beta', 'moving_mean', 'moving_variance')
        )
        return gamma * (x - mean) / np.sqrt(variance + 1e-5) + beta

    def conv(x, layer, stride=1):
        kernel = weights[f'{layer}_conv/kernel']
        pad = kernel.shape[0] // 2
        x = tf.pad(x, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
        return norm(tf.nn.conv2d(x, kernel, stride, 'VALID'), layer)

    x = tf.nn.max_pool2d(tf.nn.relu(conv(image, 'conv1', 2)), 3, 2, 'SAME')
    for stage, count in enumerate(third_party_files.BLOCKS[50], start=2):
        for block in range(1, count + 1):
            stride = 2 if block == count and stage < 5 else 1
            layer = f'conv{stage}_block{block}'
            y = tf.nn.relu(conv(x, f'{layer}_1'))
            y = conv(tf.nn.relu(conv(y, f'{layer}_2', stride)), f'{layer}_3')
            shortcut = conv(x, f'{layer}_0') if block == 1 else x
            x = tf.nn.relu(shortcut[:, ::stride, ::stride] + y)
    return x


def test_slim_gives_the_same_features_wherever_its_strides_are(tmp_path, detector, weights, caplog):
    with caplog.at_level(logging.WARNING, 'object_detection'):
        restore.restore(detector, write(tmp_path, 'slim', weights), 'classification')
    assert not caplog.messages
    image = np.random.default_rng(0).uniform(0, 255, [1, 64, 96, 3]).astype(np.float32)
    actual = detector.extractor.backbone(detector.normalize(tf.constant(image)))[-1]
    expected = slim_features(image - MEANS, weights)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3 * np.max(expected))


VARIANTS = {
    'nvidia': {'stride_in_1x1': False, 'padding_mode': Padding.SAME},
    'tpu': {'stride_in_1x1': False},
    'tensorpack': {'stride_in_1x1': False, 'padding_mode': Padding.SYMMETRIC_ALL},
}


def v1_5_features(image, weights, padding):
    """A ResNet v1.5 of 50 layers by TensorFlow's plain operations."""
    conv_pads, pool_pads = {  # before and after, of even sizes: of a kernel of 7, of 3; of the pool
        Padding.SAME: (((2, 3), (0, 1)), (0, 1)),
        Padding.SYMMETRIC: (((3, 3), (1, 1)), (0, 1)),
        Padding.SYMMETRIC_ALL: (((3, 3), (1, 1)), (1, 1)),
    }[padding]

    def conv(x, layer, stride=1):
        kernel = weights[f'{layer}_conv/kernel']
        side = kernel.shape[0]
        pads = (side // 2,) * 2 if stride == 1 else {7: conv_pads[0], 3: conv_pads[1]}.get(side)
        if pads is not None:
            x = tf.pad(x, [[0, 0], pads, pads, [0, 0]])
        gamma, beta, mean, variance = (
            weights[f'{layer}_bn/{k}'] for k in ('gamma', 'beta', 'moving_mean', 'moving_variance')
        )
        x = tf.nn.conv2d(x, kernel, stride, 'VALID')
        return gamma * (x - mean) / np.sqrt(variance + 1e-5) + beta

    x = tf.pad(tf.nn.relu(conv(image, 'conv1', 2)), [[0, 0], pool_pads, pool_pads, [0, 0]])
    x = tf.nn.max_pool2d(x, 3, 2, 'VALID')
    for stage, count in enumerate(third_party_files.BLOCKS[50], start=2):
        for block in range(1, count + 1):
            stride = 2 if block == 1 and stage > 2 else 1
            layer = f'conv{stage}_block{block}'
            y = tf.nn.relu(conv(x, f'{layer}_1'))
            y = conv(tf.nn.relu(conv(y, f'{layer}_2', stride)), f'{layer}_3')
            x = tf.nn.relu(y + (conv(x, f'{layer}_0', stride) if block == 1 else x))
    return x


@slow_cases.parametrize(1, 'system', VARIANTS)
def test_the_same_network_gives_the_same_features_without_a_word(tmp_path, weights, system, caplog):
    preprocess = Preprocess((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 1 / 255)
    options = VARIANTS[system]
    detector = ExtractorDetector('faster_rcnn_resnet50_fpn_keras', preprocess=preprocess, **options)
    path = write(tmp_path, system, weights)
    with caplog.at_level(logging.WARNING, 'object_detection'):
        restore.restore(detector, path, 'classification')
    assert not caplog.messages
    image = np.random.default_rng(0).uniform(0, 255, [1, 64, 96, 3]).astype(np.float32)
    mean, std = IMAGENET
    theirs = ((image - mean) / std).astype(np.float32)
    if system == 'tensorpack':
        theirs = theirs[..., ::-1]
    else:  # the same images: nothing changes
        for name in STEM:
            np.testing.assert_array_equal(detector.value(name), weights[name])
    actual = detector.extractor.backbone(detector.normalize(tf.constant(image)))[-1]
    expected = v1_5_features(theirs, weights, options.get('padding_mode', Padding.SYMMETRIC))
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3 * np.max(expected))


@pytest.mark.parametrize('system', ['nvidia', 'tpu', 'tensorpack'])
def test_differences_that_weights_cannot_compensate_are_logged_once(
    tmp_path, detector, weights, system, caplog
):
    path = write(tmp_path, system, weights)
    with caplog.at_level(logging.WARNING, 'object_detection'):
        restore.restore(detector, path, 'classification')
    (message,) = caplog.messages
    assert path in message
    assert '3x3' in message


def test_the_second_stage_of_a_slim_detector_is_taken_for_the_crops(tmp_path, weights):
    names = third_party_files.names(third_party_files.slim_detector, 50)
    first_stage = {
        theirs.replace('Second', 'First'): np.zeros_like(weights[ours])
        for ours, theirs in names.items()
        if theirs.startswith('Second')
    }
    detector = ExtractorDetector('faster_rcnn_resnet50_keras')
    path = write(tmp_path, 'slim_detector', weights, **first_stage)
    report = restore.restore(detector, path, 'classification')
    assert report.missing == []
    assert report.unused == sorted(first_stage)
    name = 'conv5_block1_0_conv/kernel'
    np.testing.assert_array_equal(
        detector.named_variables()[f'box_classifier/{name}'], weights[name]
    )


@rows.parametrize('depth', third_party_files.BLOCKS)
@rows.parametrize('system', SYSTEMS)
def test_names_of_every_depth(system, depth):
    expected = third_party_files.names(getattr(third_party_files, system), depth)
    slots = [f'{name}/Momentum' for name in expected.values()]
    in_file = [*reversed(expected.values()), *slots, 'global_step', 'dense/kernel', 'linear/W']
    found = [
        names
        for format_ in (*third_party_names.NAME_BASED, third_party_names.TENSORPACK)
        if third_party_names.FIRST in (names := format_.translate(in_file))
    ]
    assert found == [expected]


def test_a_single_file_as_slim_published_them(tmp_path, detector, weights):
    names = third_party_files.names(third_party_files.slim, 50)
    arrays = {theirs: weights[ours] for ours, theirs in names.items()}
    path = tmp_path / 'resnet_v1_50.ckpt'
    third_party_files.write_checkpoint(path, arrays, single_file=True)
    report = restore.restore(detector, str(path), 'classification')
    assert len(report.restored) == 53 * 5
    assert report.unused == []
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f'{path}.*damaged'):
        restore.restore(detector, str(path), 'classification')


def test_another_depth_is_named(tmp_path, detector):
    names = third_party_files.names(third_party_files.tpu, 101)
    arrays = {theirs: np.ones([1], np.float32) for theirs in names.values()}
    path = third_party_files.write_checkpoint(tmp_path / 'model.ckpt', arrays)
    with pytest.raises(CheckpointError, match=r'ResNet-50 .* Received: ResNet-101'):
        restore.restore(detector, path, 'classification')


def test_it_is_a_backbone_alone(tmp_path, detector, weights):
    with pytest.raises(CheckpointError, match=r"a backbone alone.* 'classification'"):
        restore.restore(detector, write(tmp_path, 'slim', weights), 'full')


def test_unknown_names_are_listed_with_what_is_known(tmp_path):
    arrays = {f'mobilenet/layer_{i}/weights': np.zeros([1], np.float32) for i in range(7)}
    path = third_party_files.write_checkpoint(tmp_path / 'model.ckpt', arrays)
    with pytest.raises(CheckpointError) as caught:
        open_source(path)
    for text in (path, 'btlnck_block', 'conv2d_1', 'TF-Slim', 'layer_4/weights, and 2 more.'):
        assert text in str(caught.value)
    with pytest.raises(CheckpointError, match=r'group0/block0.*Received: mobilenet/layer_0'):
        open_source(third_party_files.write_npz(tmp_path / 'other.npz', arrays))


@pytest.mark.parametrize('keep', [0.5, 0.999])
def test_an_archive_cut_short_is_refused(tmp_path, keep):
    path = tmp_path / 'short.npz'
    third_party_files.write_npz(path, {'conv0/W': np.zeros([7, 7, 3, 64], np.float32)})
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(CheckpointError, match=f'{path}: expected a whole NumPy archive'):
        open_source(str(path))


def test_damage_inside_an_archive_is_found_when_it_is_read(tmp_path):
    path = tmp_path / 'damaged.npz'
    third_party_files.write_npz(path, {'conv0/W': np.ones([7, 7, 3, 64], np.float32)})
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    arrays = open_source(str(path))._arrays
    with pytest.raises(CheckpointError, match=r'damaged.npz: .* Bad CRC-32'):
        arrays.read('conv0/W')


def claim_shape(path, shape):
    """Writes an archive of eight numbers, the header of which says another shape."""
    buffer = io.BytesIO()
    header = {'descr': '<f4', 'fortran_order': False, 'shape': shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    with zipfile.ZipFile(path, 'w') as file:
        file.writestr('conv0/W.npy', buffer.getvalue() + bytes(32))
    return str(path)


def test_a_shape_beyond_the_data_of_an_archive_is_refused(tmp_path):
    with open_source(claim_shape(tmp_path / 'right.npz', (2, 4))) as source:
        assert source.shapes == {'conv0/W': (2, 4)}
    path = claim_shape(tmp_path / 'huge.npz', (10**6, 10**6))
    with pytest.raises(CheckpointError, match=r'huge.npz: .* 32 bytes for the shape \[1000000'):
        open_source(path)


def test_objects_in_an_archive_are_refused_unread(tmp_path):
    path = third_party_files.write_npz(tmp_path / 'objects.npz', {'conv0/W': np.array([{}, None])})
    with pytest.raises(CheckpointError, match='Python objects in conv0/W'):
        open_source(path)


def test_a_refused_file_is_closed(tmp_path, monkeypatch):
    closed, close = [], NpzArrays.close

    def noted(arrays):
        closed.append(arrays.path)
        close(arrays)

    monkeypatch.setattr(NpzArrays, 'close', noted)
    path = third_party_files.write_npz(tmp_path / 'other.npz', {'other': np.zeros([1], np.float32)})
    with pytest.raises(CheckpointError, match='Received: other'):
        open_source(path)
    assert closed == [path]
