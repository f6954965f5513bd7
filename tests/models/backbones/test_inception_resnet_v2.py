import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.meta_architectures.faster_rcnn.variable_names import FASTER_RCNN_NAMES
from object_detection.models.backbones.inception import inception, inception_resnet_v2
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.weights import slim


def options(*, batch_norm_trainable: bool = False, hyperparams: LayerHyperparams | None = None):
    return {
        'hyperparams': hyperparams or inception.default_hyperparams(),
        'batch_norm_trainable': batch_norm_trainable,
    }


def trunk(*, stride: int = 16, **kwargs) -> keras.Model:
    return inception_resnet_v2.trunk(stride=stride, name='backbone', **options(**kwargs))


def stage(**kwargs) -> keras.Model:
    return inception_resnet_v2.stage(name='box_classifier', **options(**kwargs))


def layers_with_variables(model: keras.Model) -> list[keras.layers.Layer]:
    return [layer for layer in model.layers if layer.variables]


def test_stage():
    model = stage()
    convs = [layer for layer in model.layers if isinstance(layer, keras.layers.Conv2D)]
    # Reduction, ten blocks of five, and the last; the blocks' ends have a bias and no norm.
    assert len(convs) == 7 + 10 * 5 + 1
    assert len(model.variables) == 4 * 48 + 2 * 10
    assert sum(np.prod(variable.shape) for variable in model.variables) == 27_445_376
    assert len(model.trainable_variables) == 2 * 48 + 2 * 10
    assert not model.losses
    assert [model.get_layer(f'block8_{i}_add')._scale for i in (1, 9, 10)] == [0.2, 0.2, 1.0]
    norm = model.get_layer('conv_7b_bn')
    assert (norm.momentum, norm.epsilon, norm.scale, norm.center) == (0.9997, 0.001, False, True)
    assert model(tf.zeros([1, 17, 17, 1088])).shape == (1, 9, 9, 1536)


@pytest.mark.usefixtures('short_inception_resnet_v2')
def test_trunk():
    model = trunk()
    assert model(tf.zeros([1, 67, 33, 3])).shape == (1, 5, 3, 1088)
    convs = [layer for layer in model.layers if isinstance(layer, keras.layers.Conv2D)]
    assert [conv.name for conv in convs if conv.use_bias] == ['block35_1_conv', 'block17_1_conv']
    assert model.get_layer('block17_1_branch1_2').kernel.shape == (1, 7, 128, 160)
    assert model.get_layer('block17_1_branch1_3').kernel.shape == (7, 1, 160, 192)


# Checkpoints of the reference, and of keras.applications, count the layers in this order.
@pytest.mark.usefixtures('short_inception_resnet_v2')
def test_order_of_layers_with_variables():
    names = [layer.name for layer in layers_with_variables(trunk())]
    block = names[names.index('block35_1_branch2_1') : names.index('block35_1_conv') + 1]
    assert [name.removeprefix('block35_1_') for name in block] == [
        'branch2_1', 'branch2_1_bn', 'branch1_1', 'branch2_2', 'branch1_1_bn', 'branch2_2_bn',
        'branch0_1', 'branch1_2', 'branch2_3', 'branch0_1_bn', 'branch1_2_bn', 'branch2_3_bn',
        'conv',
    ]  # fmt: skip
    names = [layer.name for layer in layers_with_variables(stage())]
    assert names[-3:] == ['block8_10_conv', 'conv_7b', 'conv_7b_bn']


@pytest.mark.slow
@pytest.mark.usefixtures('short_inception_resnet_v2')
def test_stride_8_gives_the_cells_of_stride_16_in_between():
    coarse, fine = trunk(), trunk(stride=8)
    assert [v.path for v in coarse.variables] == [v.path for v in fine.variables]
    random = np.random.default_rng(0)
    for ours, theirs in zip(coarse.variables, fine.variables, strict=True):
        if not ours.path.endswith(('kernel', 'variance')):
            ours.assign(random.normal(size=ours.shape))
        theirs.assign(ours)
    images = tf.random.stateless_normal([1, 64, 96, 3], [1, 2])
    np.testing.assert_allclose(fine(images)[:, 1::2, 1::2], coarse(images), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures('short_inception_resnet_v2')
def test_residual_block_adds_a_share_of_its_branches():
    model = trunk()
    names = ('block35_1_branch2_3_ac', 'block35_1_ac')
    probe = keras.Model(
        model.get_layer('mixed_5b').output, [model.get_layer(name).output for name in names]
    )
    end = model.get_layer('block35_1_conv')
    # Of the 128 channels of the branches it sums the last 32, which are of the third.
    end.kernel.assign(np.repeat([0.0, 0.5], [96, 32])[None, None, :, None].repeat(320, axis=3))
    end.bias.assign(tf.fill([320], -2.0))
    x = tf.random.stateless_normal([1, 3, 4, 320], [1, 2])
    branch, outputs = probe(x)
    residual = 0.5 * branch.numpy()[..., 32:].sum(-1, keepdims=True) - 2.0
    np.testing.assert_allclose(outputs, np.maximum(x + 0.17 * residual, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures('short_inception_resnet_v2')
@pytest.mark.parametrize('trainable', [True, False])
def test_batch_norm_follows_training_only_if_trainable(trainable):
    model = stage(batch_norm_trainable=trainable)
    crops = tf.random.stateless_normal([2, 5, 5, 1088], [1, 2])
    frozen, training = model(crops, training=False), model(crops, training=True)
    moved = np.abs(model.get_layer('conv_7b_bn').moving_mean.numpy()).max() > 0
    assert moved is np.bool_(trainable)
    assert np.allclose(frozen, training) is not trainable


@pytest.mark.usefixtures('short_inception_resnet_v2')
def test_hyperparams():
    hyperparams = LayerHyperparams(
        regularizer=keras.regularizers.L2(0.5), activation='relu6', batch_norm=None
    )
    model = stage(hyperparams=hyperparams)
    assert len(model.losses) == 7 + 2 * 5 + 1
    assert len(model.variables) == 2 * len(model.losses)
    assert model.get_layer('block8_1_ac').activation is keras.activations.relu6


@pytest.mark.parametrize('stride', [4, 32])
def test_bad_stride(stride):
    with pytest.raises(ValueError, match=f'expected a stride of 8 or 16. Received: {stride}'):
        trunk(stride=stride)


# The convolutions of TF-Slim's network, each followed by a norm, in branches from the first on.
SLIM_STEM = ('1a_3x3', '2a_3x3', '2b_3x3', '3b_1x1', '4a_3x3')
SLIM_BRANCHES = {
    'Mixed_5b': (('1x1',), ('0a_1x1', '0b_5x5'), ('0a_1x1', '0b_3x3', '0c_3x3'), ('0b_1x1',)),
    'Repeat/block35_1': (('1x1',), ('0a_1x1', '0b_3x3'), ('0a_1x1', '0b_3x3', '0c_3x3')),
    'Mixed_6a': (('1a_3x3',), ('0a_1x1', '0b_3x3', '1a_3x3')),
    'Repeat_1/block17_1': (('1x1',), ('0a_1x1', '0b_1x7', '0c_7x1')),
    'Mixed_7a': (('0a_1x1', '1a_3x3'), ('0a_1x1', '1a_3x3'), ('0a_1x1', '0b_3x3', '1a_3x3')),
    'Repeat_2/block8_1': (('1x1',), ('0a_1x1', '0b_1x3', '0c_3x1')),
    'Block8': (('1x1',), ('0a_1x1', '0b_1x3', '0c_3x1')),
}


@pytest.mark.usefixtures('short_inception_resnet_v2')
def test_all_layers_have_names_in_checkpoints_of_tf_slim():
    variables = {
        f'{model.name}/{variable.path.removeprefix(model.name + "/")}'
        for model in (trunk(), stage())
        for variable in model.variables
    }
    layers = [f'Conv2d_{conv}' for conv in (*SLIM_STEM, '7b_1x1')]
    for block, branches in SLIM_BRANCHES.items():
        layers += [f'{block}/Branch_{i}/Conv2d_{c}' for i, b in enumerate(branches) for c in b]
    keys = [f'InceptionResnetV2/{layer}/weights' for layer in layers]
    keys += [
        f'InceptionResnetV2/{layer}/BatchNorm/{name}'
        for layer in layers
        for name in ('beta', 'moving_mean', 'moving_variance')
    ]
    keys += [
        f'InceptionResnetV2/{block}/Conv2d_1x1/{name}'
        for block in SLIM_BRANCHES
        if 'lock' in block
        for name in ('weights', 'biases')
    ]
    found = slim.match(variables, keys, FASTER_RCNN_NAMES)
    assert found.keys() == variables
    assert sorted(found.values()) == sorted(keys)
