import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.heads.box_head import BoxHead
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import BatchNormParams


def build(num_classes: int = 3, **options) -> BoxHead:
    return BoxHead(num_classes, **({'hyperparams': LayerHyperparams()} | options))


@pytest.mark.parametrize(('share', 'boxes'), [(False, 3), (True, 1)])
def test_outputs_by_numpy(share, boxes):
    head = build(share_box_across_classes=share)
    features = tf.random.stateless_normal([5, 2, 4, 6], [1, 2])
    codes, logits = head(features)
    weights = {v.path.removeprefix('box_head/'): v.numpy() for v in head.variables}
    pooled = features.numpy().mean(axis=(1, 2))
    expected = (pooled @ weights['box_codes/kernel']).reshape(5, boxes, 4)
    np.testing.assert_allclose(codes, expected, atol=1e-5)
    np.testing.assert_allclose(logits, pooled @ weights['classes/kernel'], atol=1e-5)
    assert logits.shape == (5, 4)


def test_code_size_and_no_proposals():
    codes, logits = build(code_size=7)(tf.zeros([0, 1, 1, 6]))
    assert codes.shape == (0, 3, 7)
    assert logits.shape == (0, 4)


def test_initializer_and_regularizer_are_used():
    hyperparams = LayerHyperparams(
        initializer=keras.initializers.RandomNormal(5.0, 0.0),
        regularizer=keras.regularizers.L2(0.5),
    )
    head = build(1, hyperparams=hyperparams, share_box_across_classes=True)
    codes, _ = head(tf.ones([1, 1, 1, 2]))
    np.testing.assert_allclose(codes, [[[10.0] * 4]], rtol=1e-5)
    # Half of 25 for each of the 2 x 4 and 2 x 2 weights.
    np.testing.assert_allclose(sorted(head.losses), [50.0, 100.0], rtol=1e-5)


def test_boxes_may_start_with_values_of_their_own():
    head = build(
        hyperparams=LayerHyperparams(initializer=keras.initializers.RandomNormal(5.0, 0.0)),
        box_initializer=keras.initializers.RandomNormal(1.0, 0.0),
    )
    codes, logits = head(tf.ones([1, 1, 1, 2]))
    np.testing.assert_allclose(codes, np.full([1, 3, 4], 2.0), rtol=1e-5)
    np.testing.assert_allclose(logits, np.full([1, 4], 10.0), rtol=1e-5)


def test_dropout_only_in_training():
    head = build(dropout_rate=0.5)
    features = tf.ones([64, 1, 1, 8])
    kept, _ = head(features, training=False)
    np.testing.assert_allclose(kept, tf.broadcast_to(kept[:1], kept.shape), rtol=1e-6)
    dropped, _ = head(features, training=True)
    assert np.ptp(dropped, axis=0).max() > 0.1


def test_dropped_features_are_those_of_the_image_s_seed():
    ones = {'initializer': keras.initializers.Ones()}
    head = build(1, hyperparams=LayerHyperparams(**ones), dropout_rate=0.25)
    features = tf.ones([3 * 50, 1, 1, 80])
    seeds = tf.constant([[1, 2], [3, 4], [5, 6]])
    outputs = [output.numpy() for output in head(features, training=True, seeds=seeds)]
    # Each is a sum of what was kept, of which all are worth 4 / 3.
    kept = [output.reshape(3, 50, -1) * 0.75 for output in outputs]
    for each in kept:
        np.testing.assert_allclose(each, np.round(each), atol=1e-4)
        assert abs(each.mean() - 60.0) < 0.5  # standard error 0.3
        assert np.all(each == each[..., :1])
    assert np.any(kept[0][..., 0] != kept[1][..., 0])
    turned = head(tf.ones([2 * 50, 1, 1, 80]), training=True, seeds=seeds[2:0:-1])
    for all_of_them, two in zip(outputs, turned, strict=True):
        images = all_of_them.reshape(3, 50, *all_of_them.shape[1:])
        np.testing.assert_array_equal(two, np.concatenate([images[2], images[1]]))


@pytest.mark.parametrize('trainable', [True, False])
def test_norm(trainable):
    hyperparams = LayerHyperparams(batch_norm=BatchNormParams())
    head = build(hyperparams=hyperparams, batch_norm_trainable=trainable)
    _, logits = head(tf.random.stateless_normal([8, 1, 1, 6], [1, 2]), training=True)
    assert np.allclose(np.mean(logits, axis=0), 0, atol=1e-5) is trainable


def test_outputs_are_float32_in_mixed_precision():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy('mixed_bfloat16')
    try:
        codes, logits = build()(tf.ones([2, 1, 1, 6], tf.bfloat16))
    finally:
        keras.config.set_dtype_policy(before)
    assert codes.dtype == logits.dtype == tf.float32


def test_traced_with_unknown_sizes():
    head = build()
    features = tf.random.stateless_normal([5, 2, 4, 6], [1, 2])

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 6])], autograph=False)
    def traced(features):
        return head(features)

    for ours, eager in zip(traced(features), head(features), strict=True):
        np.testing.assert_allclose(ours, eager, atol=1e-6)
