"""ResNets of RT-DETR and DETR, against maps that transformers computed."""

import functools
from collections.abc import Iterator

import pytest
import tensorflow as tf

from object_detection.errors import UserError
from object_detection.models import precision
from object_detection.models.backbones import resnet_d
from object_detection.models.backbones.resnet_d import ResNetSpec
from object_detection.models.backbones.table import BackboneOptions, find
from object_detection.weights.pytorch import transformers_backbones
from tests import rows
from tests.models.backbones import peers

_VARIABLES = (
    'convolution.weight',
    *(f'normalization.{name}' for name in ('weight', 'bias', 'running_mean', 'running_var')),
)
# The oneDNN of TensorFlow 2.21 needs 16 channels; see test_resnet_v1.py.
BASIC = ResNetSpec(
    embedding_size=32, hidden_sizes=(32, 48, 48), depths=(2, 1, 1), is_bottleneck=False
)
BOTTLENECK = ResNetSpec(
    embedding_size=32,
    hidden_sizes=(64, 96),
    depths=(1, 2),
    downsample_in_first_stage=True,
    downsample_in_bottleneck=True,
    activation='silu',
)
_PLAIN = functools.partial(ResNetSpec, is_deep_stem=False, average_pool_shortcut=False)


def network(spec, out_indices, *, is_trained=True, **settings):
    options = BackboneOptions(
        hyperparams=resnet_d.default_hyperparams(),
        batch_norm_trainable=is_trained,
        settings=settings,
    )
    return resnet_d.network(spec, out_indices, options)


def keys(stem: int, *stages: str, convs: int) -> Iterator[str]:
    """Yields the names of a network; a stage is a shortcut for each of its blocks, - if none."""
    layers = [f'embedder.embedder.{i}' for i in range(stem)] or ['embedder.embedder']
    for stage, shortcuts in enumerate(stages):
        for block, shortcut in enumerate(shortcuts.split()):
            scope = f'encoder.stages.{stage}.layers.{block}'
            if shortcut != '-':
                layers.append(f'{scope}.{shortcut}')
            layers += [f'{scope}.layer.{i}' for i in range(convs)]
    return (f'{layer}.{name}' for layer in layers for name in _VARIABLES)


def case(spec, out_indices, names, size, *samples) -> peers.Case:
    return peers.Case(
        lambda: network(spec, out_indices),
        [*names],
        transformers_backbones.RESNET_D.translate,
        size,
        samples,
    )


CASES = {
    'basic': case(
        BASIC,
        [0, 1, 2, 3],
        keys(3, 'shortcut -', 'shortcut.1', 'shortcut', convs=2),
        (75, 96),
        [-0.4658734, 0.2174888, -0.5957187, -0.1153183, -0.2201729, 0.2104902],
        [-1.476866, 3.085916, 0.1185148, 0.5242734, -0.1862942, 1.321074],
        [-1.051995, 0.005385673, -0.7021342, 2.195444, 2.342148, -2.209541],
        [-0.2809459, 1.152013, -2.557102, 0.6649483, 2.427246, 2.163176],
    ),
    'bottleneck': case(
        BOTTLENECK,
        [1, 2],
        keys(3, 'shortcut.1', 'shortcut.1 -', convs=3),
        (75, 96),
        [0.4886256, 0.04221956, -0.06845481, 0.1925322, 0.07072404, 0.1454783],
        [0.1267936, 0.4758404, 0.03084157, 0.01157429, -0.5547557, 0.1340284],
    ),
    'plain': case(
        _PLAIN(embedding_size=16, hidden_sizes=(64, 96), depths=(1, 2)),
        [0, 1, 2],
        keys(0, 'shortcut', 'shortcut -', convs=3),
        (75, 96),
        [0.5185571, 0.01041655, -0.7264645, 0.9141732, -0.6863385, -1.498669],
        [1.843711, -0.6192108, 1.110694, 0.3342339, -0.7028489, -0.09652553],
        [1.213158, -0.2355131, -0.8199931, -0.9529541, -0.4758812, -1.303701],
    ),
    # Its pooling is padded with less than a negative activation.
    'plain basic': case(
        _PLAIN(
            embedding_size=16,
            hidden_sizes=(32, 48),
            depths=(2, 1),
            is_bottleneck=False,
            activation='gelu',
        ),
        [2],
        keys(0, 'shortcut -', 'shortcut', convs=2),
        (64, 64),
        [-1.752552, -0.8315462, 0.4466269, -1.317494, -0.3459938, 0.3852926],
    ),
}


@rows.parametrize('name', CASES)
def test_maps_are_those_of_transformers(name):
    peers.check(CASES[name])


def test_everything_learns():
    peers.check_learning(peers.build(CASES['basic']), (64, 64))


def test_bfloat16():
    with precision.scope(precision.BFLOAT16):
        mixed = network(BASIC, [1, 3])
    peers.check_bfloat16(network(BASIC, [1, 3]), mixed, (64, 96))


def test_strides_and_channels():
    for spec in (BASIC, BOTTLENECK):
        count = len(spec.depths) + 1
        outputs = network(spec, range(count))(tf.zeros([1, 128, 64, 3]))
        assert [tuple(each.shape) for each in outputs] == [
            (1, 128 // spec.stride(i), 64 // spec.stride(i), spec.channels(i)) for i in range(count)
        ]


def test_frozen_stages_and_norms():
    model = network(BASIC, [3], is_trained=False, frozen_stages=2)
    trained = {variable.path.split('_')[0] for variable in model.trainable_variables}
    assert trained == {'conv3', 'conv4'}
    before = [variable.numpy() for variable in model.non_trainable_variables]
    with tf.GradientTape() as tape:
        images = tf.ones([2, 64, 64, 3])
        tape.watch(images)
        loss = tf.reduce_mean(peers.maps(model, images, training=True)[0])
    assert tape.gradient(loss, images) is None
    for old, variable in zip(before, model.non_trainable_variables, strict=True):
        assert (old == variable.numpy()).all(), variable.path


def test_rows():
    row = find('resnet_vd_50')
    options = BackboneOptions(hyperparams=row.hyperparams, batch_norm_trainable=True)
    model = row.trunk([2, 3], options)
    assert [output.shape[-1] for output in model.outputs] == [256, 512]
    assert float(row.normalize(tf.fill([1, 1, 1, 3], 51.0))[0, 0, 0, 0]) == pytest.approx(0.2)
    assert len(model.losses) == 3 + 3 * 3 + 1 + 4 * 3 + 1


@rows.parametrize(
    ('field', 'fields'),
    [
        ('depths', {'depths': (1, 2)}),
        ('depths', {'hidden_sizes': (16,), 'depths': (0,)}),
        ('hidden_sizes', {'hidden_sizes': (2,), 'depths': (1,)}),
        (r'hidden_sizes\[0\]', {'is_bottleneck': False}),
    ],
)
def test_networks_that_are_none(field, fields):
    with pytest.raises(UserError, match=f'ResNet: .*{field}'):
        ResNetSpec(**fields)


def test_unknown_maps_and_activations():
    with pytest.raises(UserError, match=r'out_indices: expected ascending numbers within 0\.\.3'):
        network(BASIC, [4])
    spec = ResNetSpec(activation='reluu')
    with pytest.raises(UserError, match=r"activation: expected one of relu, .*'reluu'"):
        network(spec, [1])
