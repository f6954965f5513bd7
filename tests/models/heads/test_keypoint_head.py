import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.errors import UserError
from object_detection.models.heads.keypoint_head import KeypointHead
from object_detection.models.hyperparams import LayerHyperparams


def test_layers_of_the_paper():
    head = KeypointHead(17, hyperparams=LayerHyperparams())
    logits = head(tf.zeros([1, 14, 14, 4]))
    assert logits.shape == (1, 17, 56, 56)
    kernels = {v.path: tuple(v.shape) for v in head.variables if v.path.endswith('kernel')}
    assert kernels.pop('keypoint_head/keypoints/kernel') == (4, 4, 17, 512)
    assert kernels.pop('keypoint_head/conv_1/kernel') == (3, 3, 4, 512)
    assert set(kernels.values()) == {(3, 3, 512, 512)}
    assert len(kernels) == 7


def test_enlargement_by_hand():
    """A transposed convolution of stride 2 from one cell, then bilinear enlargement by 2."""
    head = KeypointHead(
        1, hyperparams=LayerHyperparams(initializer=keras.initializers.Ones()), num_convs=0
    )
    logits = head(tf.constant([[[[1.0], [2.0]]]])).numpy()
    # Each cell reaches the four columns around its two; rows have one cell only.
    row = np.array([1.0, 3.0, 3.0, 2.0])
    enlarged = [1.0, 1.5, 2.5, 3.0, 3.0, 2.75, 2.25, 2.0]
    assert logits.shape == (1, 1, 4, 8)
    np.testing.assert_allclose(np.interp(np.arange(8) / 2 - 0.25, range(4), row), enlarged)
    np.testing.assert_allclose(logits[0, 0], np.tile(enlarged, (4, 1)), rtol=1e-6)


@pytest.mark.parametrize(
    ('options', 'field'), [({'num_keypoints': 0}, 'num_keypoints'), ({'conv_depth': 0}, 'conv_d')]
)
def test_numbers_out_of_range(options, field):
    with pytest.raises(UserError, match=field):
        KeypointHead(**{'num_keypoints': 3, 'hyperparams': LayerHyperparams()} | options)
