import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.heads.rfcn_head import RfcnHead
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import BatchNormParams
from tests import rows, slow_cases
from tests.core.position_sensitive_crops import crop_by_loops

BOXES = tf.constant(
    [[[0.0, 0.0, 1.0, 1.0], [0.1, 0.2, 0.5, 0.9]], [[0.5, 0.5, 0.6, 0.7], [0.0] * 4]], tf.float32
)


def build(num_classes: int = 3, **options) -> RfcnHead:
    defaults = {'depth': 4, 'crop_size': (4, 6), 'num_bins': (2, 3)}
    return RfcnHead(num_classes, **({'hyperparams': LayerHyperparams()} | defaults | options))


def random_features(seed: int = 1) -> tf.Tensor:
    return tf.random.stateless_normal([2, 5, 6, 7], [seed, 2])


def test_outputs_by_numpy():
    head = build()
    features = random_features()
    codes, logits = head(features, BOXES)
    weights = {v.path.removeprefix('rfcn_head/'): v for v in head.variables}
    assert {name: tuple(v.shape) for name, v in weights.items()} == {
        'reduce_depth/kernel': (1, 1, 7, 4),
        'reduce_depth/bias': (4,),
        'box_codes/kernel': (1, 1, 4, 6 * 3 * 4),
        'box_codes/bias': (6 * 3 * 4,),
        'classes/kernel': (1, 1, 4, 6 * 4),
        'classes/bias': (6 * 4,),
    }
    for name, variable in weights.items():
        if name.endswith('bias'):
            variable.assign(np.random.default_rng(0).normal(size=variable.shape))
    codes, logits = head(features, BOXES)

    def conv(x, name):
        return x @ weights[f'{name}/kernel'].numpy()[0, 0] + weights[f'{name}/bias'].numpy()

    reduced = np.maximum(conv(features.numpy(), 'reduce_depth'), 0)

    def mean_crops(name):
        crops = crop_by_loops(conv(reduced, name), BOXES.numpy(), (4, 6), (2, 3))
        return crops.mean(axis=(2, 3))

    np.testing.assert_allclose(codes, mean_crops('box_codes').reshape(4, 3, 4), atol=1e-5)
    np.testing.assert_allclose(logits, mean_crops('classes').reshape(4, 4), atol=1e-5)


def test_a_box_depends_on_its_own_region_and_image_only():
    keras.utils.set_random_seed(1)
    head = build()
    features = random_features().numpy()
    before = np.concatenate([tf.reshape(x, [4, -1]) for x in head(features, BOXES)], axis=-1)
    features[0, -1, 0] += 1.0  # In the first image's first box, but not in its second.
    after = np.concatenate([tf.reshape(x, [4, -1]) for x in head(features, BOXES)], axis=-1)
    assert np.abs(after - before).max(axis=1)[0] > 1e-3
    np.testing.assert_allclose(after[1:], before[1:], atol=1e-6)


def test_initializer_regularizer_and_activation_are_used():
    hyperparams = LayerHyperparams(
        initializer=keras.initializers.RandomNormal(5.0, 0.0),
        regularizer=keras.regularizers.L2(0.5),
        activation='relu6',
    )
    head = build(1, hyperparams=hyperparams, depth=2, num_bins=(1, 1), crop_size=(2, 2))
    codes, logits = head(tf.ones([1, 3, 3, 2]), tf.constant([[[0.0, 0.0, 1.0, 1.0]]]))
    # The first convolution gives 10, which ReLU6 cuts off.
    np.testing.assert_allclose(codes, [[[60.0] * 4]], rtol=1e-5)
    np.testing.assert_allclose(logits, [[60.0] * 2], rtol=1e-5)
    # Half of 25 for each of the 2 x 2, 2 x 4 and 2 x 2 weights.
    np.testing.assert_allclose(sorted(head.losses), [50.0, 50.0, 100.0], rtol=1e-5)


@pytest.mark.parametrize('trainable', [True, False])
def test_norms(trainable):
    hyperparams = LayerHyperparams(batch_norm=BatchNormParams(momentum=0.5))
    head = build(hyperparams=hyperparams, batch_norm_trainable=trainable)
    statistics = [
        v for v in (head(random_features(), BOXES), head.variables)[1] if 'moving_mean' in v.path
    ]
    assert len(statistics) == 3
    head(random_features(), BOXES, training=True)
    assert [np.any(v.numpy() != 0) for v in statistics] == [trainable] * 3


def test_mixed_precision_keeps_boxes_and_outputs_in_float32():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy('mixed_bfloat16')
    try:
        head = build(1, num_bins=(1, 1), crop_size=(1, 1))
        # A box that bfloat16 would move by a third of a pixel.
        box = tf.constant([[[0.0, 0.3339, 0.0, 0.3339]]])
        codes, logits = head(tf.ones([1, 1, 512, 1], tf.bfloat16), box)
        seen = []
        head._class_norm = lambda x, training: (
            seen.append(x.dtype)
            or tf.cast(tf.broadcast_to(tf.range(512.0)[:, tf.newaxis], [1, 1, 512, 2]), tf.float32)
        )
        _, positions = head(tf.ones([1, 1, 512, 1], tf.bfloat16), box)
    finally:
        keras.config.set_dtype_policy(before)
    assert codes.dtype == logits.dtype == tf.float32
    assert seen == [tf.bfloat16]
    np.testing.assert_allclose(positions, [[0.3339 * 511] * 2], rtol=1e-5)


@slow_cases.parametrize(1, 'count', [2, 0])
def test_traced_with_unknown_sizes(count):
    head = build()

    @tf.function(
        input_signature=[tf.TensorSpec([None, None, None, 7]), tf.TensorSpec([None, None, 4])],
        autograph=False,
    )
    def traced(features, boxes):
        return head(features, boxes)

    boxes = BOXES[:, :count]
    codes, logits = traced(random_features(), boxes)
    assert codes.shape == (2 * count, 3, 4)
    for ours, eager in zip((codes, logits), head(random_features(), boxes), strict=True):
        np.testing.assert_allclose(ours, eager, atol=1e-6)


def test_compiles():
    head = build()
    compiled = tf.function(head, jit_compile=True, autograph=False)(random_features(), BOXES)
    for ours, eager in zip(compiled, head(random_features(), BOXES), strict=True):
        np.testing.assert_allclose(ours, eager, atol=1e-5)
    assert compiled[0].shape == (4, 3, 4)


@rows.parametrize(
    ('options', 'message'),
    [
        ({'crop_size': (5, 6)}, r'multiple of the grid of bins \(2, 3\). Received: \(5, 6\)'),
        ({'num_bins': (0, 3)}, r'num_bins above 0. .*, \(0, 3\)'),
        ({'depth': 0}, 'depth, code_size and num_bins above 0. Received: 0'),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)
