import numpy as np
import pytest
import tensorflow as tf

from object_detection.losses.anchor_sampling import (
    Expectation,
    ExpectedLossWeights,
    RandomExampleSampler,
)

# Two objects and an anchor that is one in half of the cases.
PROBABILITIES = tf.constant([[1.0, 1.0, 0.5] + [0.0] * 7, [0.0] * 10])


def test_the_sampler_keeps_all_positives_and_their_ratio_of_negatives():
    positives = tf.constant([[True] * 2 + [False] * 18, [False] * 20])
    candidates = tf.constant([[True] * 15 + [False] * 5] * 2)
    seeds = tf.constant([[1, 2], [3, 4]])
    chosen = RandomExampleSampler(0.25)(candidates, positives, seeds)
    assert np.all(chosen[0, :2])
    assert np.sum(chosen[0]) == 2 + 6
    assert not np.any(chosen[:, 15:])
    assert not np.any(chosen[1])
    assert np.any(chosen != RandomExampleSampler(0.25)(candidates, positives, seeds + 1))


def test_expected_sampling_weighs_an_anchor_by_the_chance_to_be_chosen():
    foreground, background = ExpectedLossWeights(Expectation.SAMPLING, 2.0)(PROBABILITIES)
    np.testing.assert_array_equal(foreground, PROBABILITIES)
    # Given that it is a negative, each of the last seven is among 7.5 negatives, for 2.5 positives.
    expected = [0, 0, 0.5 * 4 / 8] + [5 / 7.5] * 7
    np.testing.assert_allclose(background, [expected, [0] * 10], rtol=1e-6)


def test_expected_sampling_chooses_no_anchor_twice():
    weights = ExpectedLossWeights(Expectation.SAMPLING, 3.0, min_negatives=4.0)
    _, background = weights(PROBABILITIES)
    np.testing.assert_allclose(background[0, 3:], 1.0)
    np.testing.assert_allclose(background[1], 0.4)


def test_reweighting_gives_all_negatives_the_desired_share():
    weights = ExpectedLossWeights(Expectation.REWEIGHTING, 6.0, min_negatives=5.0)
    foreground, background = weights(PROBABILITIES)
    np.testing.assert_allclose(tf.reduce_sum(background, 1), [6 * 2.5, 5], rtol=1e-6)
    np.testing.assert_allclose(background[0, 2:], [0.5 * 2] + [2] * 7, rtol=1e-6)
    np.testing.assert_array_equal(foreground, PROBABILITIES)


def test_all_anchors_may_be_objects():
    weights = ExpectedLossWeights(Expectation.REWEIGHTING)
    _, background = weights(tf.ones([1, 3]))
    np.testing.assert_array_equal(background, [[0, 0, 0]])


@pytest.mark.parametrize('kind', Expectation)
def test_ignored_anchors_have_no_weight_and_do_not_count(kind):
    weights = ExpectedLossWeights(kind, 2.0, min_negatives=1.0)
    candidates = tf.constant([[True] * 8 + [False] * 2] * 2)
    of_all = weights(PROBABILITIES, candidates)
    of_few = weights(PROBABILITIES[:, :8])
    for whole, part in zip(of_all, of_few, strict=True):
        np.testing.assert_allclose(whole, tf.pad(part, [[0, 0], [0, 2]]), rtol=1e-6)


def test_independent_classes_count_as_anchors():
    weights = ExpectedLossWeights(Expectation.SAMPLING, 2.0, min_negatives=1.0)
    flat = weights(PROBABILITIES)
    by_class = weights(tf.reshape(PROBABILITIES, [2, 5, 2]))
    for whole, part in zip(flat, by_class, strict=True):
        np.testing.assert_allclose(whole, tf.reshape(part, [2, 10]), rtol=1e-6)


def test_numbers_out_of_range():
    with pytest.raises(ValueError, match='positive_sample_fraction'):
        RandomExampleSampler(0.0)
    with pytest.raises(ValueError, match='desired_negative_sampling_ratio'):
        ExpectedLossWeights(Expectation.SAMPLING, -1.0)
    with pytest.raises(ValueError, match='min_num_negative_samples'):
        ExpectedLossWeights(Expectation.SAMPLING, min_negatives=-1.0)
