import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.meta_architectures.faster_rcnn.variable_names import FASTER_RCNN_NAMES
from object_detection.models.backbones import inception_v2
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.weights import slim
from tests.models.backbones import slim_network


def options(*, depth_multiplier=1.0, hyperparams=None, batch_norm_trainable=False):
    return {
        'hyperparams': hyperparams or inception_v2.default_hyperparams(),
        'batch_norm_trainable': batch_norm_trainable,
        'depth_multiplier': depth_multiplier,
    }


def trunk(**kwargs) -> keras.Model:
    return inception_v2.trunk(name='backbone', **options(**kwargs))


def stage(**kwargs) -> keras.Model:
    return inception_v2.stage(name='box_classifier', **options(**kwargs))


def test_equals_the_network_of_tf_slim():
    network = slim_network.InceptionV2(depth_multiplier=0.25)
    images = np.random.default_rng(1).uniform(-1, 1, (2, 65, 97, 3)).astype(np.float32)
    expected = network(images)
    ours = {
        'backbone': trunk(depth_multiplier=0.25),
        'box_classifier': stage(depth_multiplier=0.25),
    }
    variables = {
        f'{part}/{variable.path.removeprefix(model.name + "/")}': variable
        for part, model in ours.items()
        for variable in model.variables
    }
    found = slim.match(variables, network.arrays, FASTER_RCNN_NAMES)
    assert found.keys() == variables.keys()
    assert sorted(found.values()) == sorted(network.arrays)
    for name, variable in variables.items():
        variable.assign(network.arrays[found[name]])
    features = ours['backbone'](images)
    np.testing.assert_allclose(features, expected['Mixed_4e'], rtol=1e-4, atol=1e-4)
    classified = ours['box_classifier'](features)
    np.testing.assert_allclose(classified, expected['Mixed_5c'], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_sizes():
    backbone, classifier = trunk(), stage()
    assert backbone(tf.zeros([1, 65, 33, 3])).shape == (1, 5, 3, 576)
    assert classifier(tf.zeros([3, 7, 7, 576])).shape == (3, 4, 4, 1024)
    # Inception v2 has 10.2 million parameters without its logits, norms by their offsets alone.
    count = sum(
        np.prod(variable.shape)
        for model in (backbone, classifier)
        for variable in model.trainable_variables
    )
    assert count == 10_153_336
    norm = backbone.get_layer('mixed_4e_branch1_2_bn')
    assert (norm.momentum, norm.epsilon, norm.scale, norm.center) == (0.9997, 0.001, False, True)
    assert not backbone.losses


@pytest.mark.parametrize('depthwise', [False, True])
def test_hyperparams_reach_the_separable_convolution(depthwise):
    hyperparams = LayerHyperparams(regularizer=L2(0.1), regularize_depthwise=depthwise)
    layer = trunk(depth_multiplier=0.25, hyperparams=hyperparams).get_layer('conv_1a')
    # Without a norm it has a bias, which is not penalised.
    assert [variable.path.split('/')[-1] for variable in layer.variables] == [
        'depthwise_kernel',
        'pointwise_kernel',
        'bias',
    ]
    assert layer.depthwise_kernel.shape == (7, 7, 3, 5)
    assert len(layer.losses) == 1 + depthwise


def test_a_multiplier_must_be_positive():
    with pytest.raises(ValueError, match=r'depth_multiplier\. Received: 0'):
        trunk(depth_multiplier=0.0)
