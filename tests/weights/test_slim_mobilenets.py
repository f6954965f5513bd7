"""MobileNets in checkpoints of TensorFlow 1: every layer is found, alone and within a detector."""

import pytest
import tensorflow as tf

from object_detection.core.variable_names import PLAIN_NAMES
from object_detection.errors import CheckpointError
from object_detection.weights import networks, restore, slim
from tests import rows
from tests.training.fake_detectors import VariablesDetector

NORM = ('gamma', 'beta', 'moving_mean', 'moving_variance')
V1, V2 = networks.by_counts(14, 13), networks.by_counts(35, 17)
# Layer here -> layer in TF-Slim.
V1_LAYERS = {
    'conv1': 'Conv2d_0',
    **{f'conv_dw_{i}': f'Conv2d_{i}_depthwise' for i in range(1, 14)},
    **{f'conv_pw_{i}': f'Conv2d_{i}_pointwise' for i in range(1, 14)},
}
V2_LAYERS = {
    'Conv1': 'Conv',
    'expanded_conv_depthwise': 'expanded_conv/depthwise',
    'expanded_conv_project': 'expanded_conv/project',
    **{
        f'block_{i}_{part}': f'expanded_conv_{i}/{part}'
        for i in range(1, 17)
        for part in ('expand', 'depthwise', 'project')
    },
    'Conv_1': 'Conv_1',
}


def keys_of(network, layers, scope):
    """Variable here -> key there."""
    keys = {}
    for layer, norm in zip(network.layers[::2], network.layers[1::2], strict=True):
        name, kind = layer
        depthwise = 'depthwise_' if kind == networks.DEPTHWISE else ''
        theirs = f'{scope}{layers[name]}'
        keys[f'backbone/{name}/{depthwise}kernel'] = f'{theirs}/{depthwise}weights'
        keys |= {f'backbone/{norm[0]}/{each}': f'{theirs}/BatchNorm/{each}' for each in NORM}
    return keys


@rows.parametrize('scope', ['', 'FeatureExtractor/'])
@rows.parametrize(
    ('network', 'layers', 'name'), [(V1, V1_LAYERS, 'MobilenetV1'), (V2, V2_LAYERS, 'MobilenetV2')]
)
def test_every_layer_is_found(network, layers, name, scope):
    expected = keys_of(network, layers, f'{scope}{name}/')
    keys = [*expected.values(), f'{scope}{name}/Logits/Conv2d_1c_1x1/weights']
    assert slim.is_known(keys)
    assert slim.is_detector(keys) == bool(scope)
    assert slim.match(expected, keys, PLAIN_NAMES) == expected


def write(path, keys) -> str:
    prefix = str(path / 'mobilenet.ckpt')
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(keys),
        shape_and_slices=[''] * len(keys),
        tensors=[tf.fill([1], i + 1.0) for i in range(len(keys))],
    )
    return prefix


def test_a_classifier_is_restored(tmp_path):
    keys = keys_of(V1, V1_LAYERS, 'MobilenetV1/')
    prefix = write(tmp_path, [*keys.values(), 'MobilenetV1/Logits/Conv2d_1c_1x1/weights'])
    detector = VariablesDetector(dict.fromkeys(keys, (1,)), num_classes=2)
    report = restore.restore(detector, prefix, 'classification')
    assert report.unused == ['MobilenetV1/Logits/Conv2d_1c_1x1/weights']
    assert detector.values() == {name: i + 1.0 for i, name in enumerate(keys)}


def test_another_network_is_named(tmp_path):
    prefix = write(tmp_path, keys_of(V2, V2_LAYERS, 'MobilenetV2/').values())
    ours = keys_of(V1, V1_LAYERS, 'MobilenetV1/')
    detector = VariablesDetector(dict.fromkeys(ours, (1,)), num_classes=2)
    with pytest.raises(CheckpointError, match=r'MobileNet v1. Received: MobileNet v2\.'):
        restore.restore(detector, prefix, 'classification')
