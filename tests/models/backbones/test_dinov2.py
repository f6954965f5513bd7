"""DINOv2 of RF-DETR, and as it was published, against maps that transformers computed."""

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import tracing
from object_detection.errors import UserError
from object_detection.models import precision
from object_detection.models.backbones import dinov2
from object_detection.models.backbones.dinov2 import Dinov2Spec
from object_detection.models.backbones.table import BackboneOptions
from object_detection.weights.pytorch import transformers_backbones
from tests import rows
from tests.models.backbones import peers

_TINY = {'hidden_size': 32, 'num_attention_heads': 2, 'image_size': 64, 'patch_size': 16}
WINDOWS = Dinov2Spec(
    **_TINY, num_hidden_layers=4, num_windows=2, window_block_indexes=(0, 3), layerscale_value=0.5
)
GATED = Dinov2Spec(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    patch_size=8,
    image_size=64,
    num_windows=4,
    window_block_indexes=(1,),
    use_swiglu_ffn=True,
    qkv_bias=False,
    apply_layernorm=False,
)
PLAIN = Dinov2Spec(**_TINY, num_hidden_layers=2, antialias=False)
REGISTERS = Dinov2Spec(**_TINY, num_hidden_layers=2, num_register_tokens=3)


def network(spec, out_indices):
    options = BackboneOptions(hyperparams=dinov2.default_hyperparams(), batch_norm_trainable=False)
    return dinov2.network(spec, out_indices, options)


def keys(spec: Dinov2Spec) -> Iterator[str]:
    """Yields the names of a network in transformers."""

    def both(layer: str, has_bias: bool = True) -> list[str]:
        return [f'{layer}.weight', *([f'{layer}.bias'] if has_bias else [])]

    yield from ('embeddings.cls_token', 'embeddings.position_embeddings')
    if spec.num_register_tokens:
        yield 'embeddings.register_tokens'
    yield from both('embeddings.patch_embeddings.projection')
    parts = ('gate_proj', 'up_proj', 'down_proj') if spec.use_swiglu_ffn else ('fc1', 'fc2')
    for i in range(spec.num_hidden_layers):
        scope = f'encoder.layer.{i}'
        for part in ('q', 'k', 'v', 'o'):
            yield from both(f'{scope}.attention.{part}_proj', part == 'o' or spec.qkv_bias)
        for layer in ('norm1', 'norm2', *(f'mlp.{part}' for part in parts)):
            yield from both(f'{scope}.{layer}')
        yield from (f'{scope}.layer_scale{part}.lambda1' for part in (1, 2))
    if spec.apply_layernorm:
        yield from both('layernorm')


def case(spec, out_indices, size, *samples) -> peers.Case:
    return peers.Case(
        lambda: network(spec, out_indices),
        [*keys(spec)],
        transformers_backbones.DINOV2.translate,
        size,
        samples,
        'model.backbone.backbone.',
    )


CASES = {
    'windows': case(
        WINDOWS,
        [1, 2, 4],
        (96, 128),
        [-0.4015584, 0.3212452, 0.04693892, -3.396831, -1.156561, -0.3495431],
        [0.576893, 0.7161424, 0.7937363, -1.77777, -0.6193011, 0.9239454],
        [0.1413999, 1.239378, 0.4946513, -1.679137, -0.8658442, -0.2532441],
    ),
    'gated': case(
        GATED,
        [0, 2],
        (32, 32),
        [0.5205088, -0.3984941, 0.4717753, 0.1187661, -0.2405221, 0.2912435],
        [-1.065943, -3.662146, 0.8519786, -1.012281, -5.518709, 0.7854594],
    ),
    'plain': case(
        PLAIN,
        [2],
        (96, 32),
        [-1.802877, 1.008882, 2.087206, 0.3932174, -0.4328687, 0.6208213],
    ),
    'registers': case(
        REGISTERS,
        [2],
        (96, 32),
        [-2.036735, 0.8764871, 1.973955, 0.4238298, -0.4479105, 0.6398214],
    ),
}


@rows.parametrize('name', CASES)
def test_maps_are_those_of_transformers(name):
    peers.check(CASES[name])


def test_everything_learns():
    peers.check_learning(peers.build(CASES['registers']), (64, 32))


def test_bfloat16():
    with precision.scope(precision.BFLOAT16):
        mixed = network(WINDOWS, [1, 4])
    peers.check_bfloat16(network(WINDOWS, [1, 4]), mixed, (64, 96))


def test_sizes_that_are_not_known_in_advance():
    model, pixels = peers.build(CASES['windows']), peers.images((96, 128))
    shape = tf.TensorSpec([None, None, None, 3])
    graph = tf.function(lambda images: model(images, training=False), input_signature=[shape])
    for found, expected in zip(graph(pixels), model(pixels), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert model.compute_output_shape((2, 96, 128, 3)) == [(2, 6, 8, 32)] * 3
    with pytest.raises(tf.errors.InvalidArgumentError, match='multiples of 32 pixels'):
        graph(pixels[:, :80])


def test_windows_that_see_each_other_alone():
    # The last block before the map is within windows, and the one before it is left out.
    spec = Dinov2Spec(**_TINY, num_hidden_layers=1, num_windows=2, window_block_indexes=(0,))
    model, pixels = network(spec, [1]), peers.images((64, 64)).numpy()
    before = model(pixels).numpy()
    pixels[:, :32, 32:] += 1.0
    is_changed = np.abs(model(pixels).numpy() - before).max((0, -1)) > 1e-6
    assert is_changed[:2, 2:].all()
    is_changed[:2, 2:] = False
    assert not is_changed.any()


def test_blocks_are_left_out_at_random():
    spec = Dinov2Spec(
        **_TINY, num_hidden_layers=1, drop_path_rate=0.75, num_windows=2, apply_layernorm=False
    )
    model = network(spec, [0, 1])
    pixels = tf.tile(peers.images((64, 64))[:1], [16, 1, 1, 1])

    def changes(seed: int) -> np.ndarray:
        """Whether each window of each image is left unchanged."""
        with tracing.drawing_by(tf.constant([[seed, i] for i in range(16)])):
            before, after = model(pixels, training=True)
        is_same = np.all(np.equal(before, after), axis=-1).reshape(16, 2, 2, 2, 2)
        return is_same.all((2, 4)).ravel()

    # Of 64 windows both the attention and the perceptron are left out with probability 9 / 16.
    assert 20 < changes(3).sum() < 52
    assert (changes(3) == changes(3)).all()
    assert (changes(3) != changes(4)).any()
    before, after = model(pixels, training=False)
    assert (np.abs(np.subtract(before, after)).max((1, 2, 3)) > 0).all()


@rows.parametrize(
    ('field', 'fields'),
    [
        ('hidden_size', {'hidden_size': 0}),
        ('num_attention_heads', {'num_attention_heads': 0}),
        ('drop_path_rate', {'drop_path_rate': 1.0}),
        ('image_size', {'image_size': (28, 56)}),
        ('num_windows', {'num_windows': 0}),
    ],
)
def test_networks_that_are_none(field, fields):
    with pytest.raises(UserError, match=f'DINOv2: {field}: expected '):
        Dinov2Spec(**fields)


def test_images_and_activations_that_are_not_known():
    with pytest.raises(UserError, match=r'multiples of 32 pixels.* Received: 64 x 80'):
        network(WINDOWS, [1])(tf.zeros([1, 64, 80, 3]))
    with pytest.raises(UserError, match='out_indices'):
        network(WINDOWS, [5])
    with pytest.raises(UserError, match='hidden_act'):
        network(Dinov2Spec(hidden_act='no'), [1])
