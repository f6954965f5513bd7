import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import sampling
from tests import goldens
from tests.rows import parametrize


def _sample_oracle(candidates, positives, num_samples, positive_fraction, noise):
    sampled = np.zeros_like(candidates)
    for image in range(len(candidates)):
        order = np.argsort(-noise[image], kind='stable')
        order = order[candidates[image][order]]
        positive = order[positives[image][order]][: int(positive_fraction * num_samples)]
        negative = order[~positives[image][order]][: num_samples - len(positive)]
        sampled[image, positive] = sampled[image, negative] = True
    return sampled


def _draw(seed, batch_size, size):
    random = np.random.default_rng(seed)
    candidates = random.uniform(size=[batch_size, size]) < 0.7
    positives = random.uniform(size=[batch_size, size]) < 0.3
    return candidates, positives, random.uniform(size=[batch_size, size]).astype(np.float32)


def test_sample_balanced_by_hand():
    candidates = np.array([[1, 1, 1, 0, 1, 1]], bool)
    positives = np.array([[1, 0, 1, 1, 0, 1]], bool)
    noise = np.array([[0.1, 0.2, 0.3, 0.9, 0.4, 0.5]], np.float32)
    sampled = sampling.sample_balanced(candidates, positives, 4, 0.5, noise)
    # The two best positives that are candidates, both negatives.
    np.testing.assert_array_equal(sampled, [[0, 1, 1, 0, 1, 1]])
    sampled = sampling.sample_balanced(candidates, positives, 3, 0.5, noise)
    np.testing.assert_array_equal(sampled, [[0, 1, 0, 0, 1, 1]])


@parametrize('num_samples', [0, 1, 5, 16, 40])
@parametrize('positive_fraction', [0.0, 0.25, 1.0])
def test_sample_balanced_agrees_with_a_loop(num_samples, positive_fraction):
    candidates, positives, noise = _draw(num_samples, 3, 30)
    arguments = (candidates, positives, num_samples, positive_fraction, noise)
    actual = sampling.sample_balanced(*arguments)
    np.testing.assert_array_equal(actual, _sample_oracle(*arguments))


def test_sample_balanced_without_a_number_keeps_the_ratio():
    candidates, positives, noise = _draw(0, 1, 100)
    sampled = sampling.sample_balanced(candidates, positives, None, 0.5, noise).numpy()
    both = candidates & positives
    np.testing.assert_array_equal(sampled & both, both)
    assert np.sum(sampled & ~both) == np.sum(both)


def test_equal_noise_still_gives_the_number_of_samples():
    ones = np.ones([2, 9], bool)
    sampled = sampling.sample_balanced(ones, ~ones, 4, 0.5, np.zeros([2, 9], np.float32))
    np.testing.assert_array_equal(np.sum(sampled, axis=1), [4, 4])


@parametrize(('num_samples', 'fraction'), [(4, -0.1), (4, 1.5), (None, 0.0)])
def test_sample_balanced_rejects_impossible_fractions(num_samples, fraction):
    ones = np.ones([1, 4], bool)
    with pytest.raises(ValueError, match=rf'positive_fraction: .* Received: {fraction}'):
        sampling.sample_balanced(ones, ones, num_samples, fraction, np.ones([1, 4], np.float32))


def test_sampled_indices_keep_the_order():
    sampled = np.array([[0, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
    indices, valid = sampling.sampled_indices(sampled, 3)
    assert indices.dtype == tf.int32
    np.testing.assert_array_equal(indices, [[1, 3, 4], [0, 0, 0], [0, 1, 2]])
    np.testing.assert_array_equal(valid, [[1, 1, 1], [0, 0, 0], [1, 1, 1]])


def test_sampled_indices_of_fewer_rows_than_slots():
    indices, valid = sampling.sampled_indices(np.array([[0, 1]], bool), 4)
    np.testing.assert_array_equal(indices, [[1, 0, 0, 0]])
    np.testing.assert_array_equal(valid, [[1, 0, 0, 0]])


def test_an_images_noise_depends_on_its_seed_alone():
    seeds = tf.constant([[1, 2], [3, -4], [1, 2], [2, 1]])
    noise = sampling.sampling_noise(seeds, 50).numpy()
    np.testing.assert_array_equal(noise[0], noise[2])
    np.testing.assert_array_equal(sampling.sampling_noise(seeds[1:2], 50)[0], noise[1])
    np.testing.assert_array_equal(sampling.sampling_noise(seeds[1:2], 20)[0], noise[1, :20])
    assert np.all(noise[0] != noise[3])


def test_noise_is_uniform_and_unrelated_among_neighbouring_seeds():
    seeds = np.stack(np.meshgrid(np.arange(10), np.arange(10)), axis=-1).reshape(-1, 2)
    noise = sampling.sampling_noise(seeds, 10_000).numpy()
    assert noise.min() >= 0
    assert noise.max() < 1
    counts, _ = np.histogram(noise, bins=100, range=(0, 1))
    chi_squared = np.sum((counts - 10_000) ** 2 / 10_000)
    assert 50 < chi_squared < 170  # 99 degrees of freedom: 5 standard deviations.
    correlation = np.corrcoef(noise)[np.triu_indices(100, 1)]
    assert np.abs(correlation).max() < 0.055  # 5.5 / sqrt(10,000).
    along = np.corrcoef(noise[:, 1:].ravel(), noise[:, :-1].ravel())[0, 1]
    assert abs(along) < 0.005


def test_stateful_noise_needs_the_batch_size():
    noise = sampling.sampling_noise(None, 5, batch_size=3)
    assert noise.shape == [3, 5]
    with pytest.raises(ValueError, match='batch_size'):
        sampling.sampling_noise(None, 5)


@parametrize('shape', [(2, 6), (2, 6, 4), (2, 6, 3, 5)])
def test_gather_rows_is_the_same_with_matmul(shape):
    # Sixteen orders of magnitude, so every bit of the significands matters.
    random = np.random.default_rng(0)
    params = random.normal(size=shape) * 10.0 ** random.integers(-8, 8, shape)
    params = tf.constant(params, tf.float32)
    indices = tf.constant([[5, 0, 0], [1, 2, 3]])
    expected = np.stack([params[0].numpy()[indices[0]], params[1].numpy()[indices[1]]])
    np.testing.assert_array_equal(sampling.gather_rows(params, indices), expected)
    actual = sampling.gather_rows(params, indices, use_matmul=True)
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize('dtype', [tf.int32, tf.bool])
def test_gather_rows_with_matmul_keeps_the_type(dtype):
    params = tf.cast([[[0], [2**24 - 1], [7]]], dtype)
    actual = sampling.gather_rows(params, tf.constant([[1, 0]]), use_matmul=True)
    assert actual.dtype == dtype
    np.testing.assert_array_equal(actual, tf.cast([[[2**24 - 1], [0]]], dtype))


@pytest.mark.parametrize('use_matmul', [False, True])
def test_gather_rows_has_the_gradient_of_a_gather(use_matmul):
    params = tf.Variable(np.random.default_rng(0).normal(size=[1, 4, 2]), dtype=tf.float32)
    with tf.GradientTape() as tape:
        rows = sampling.gather_rows(params, tf.constant([[2, 2, 0]]), use_matmul)
        total = tf.reduce_sum(rows * [[1.0], [10.0], [100.0]])
    gradient = tf.convert_to_tensor(tape.gradient(total, params))
    np.testing.assert_array_equal(gradient, [[[100, 100], [0, 0], [11, 11], [0, 0]]])


def _sample_and_gather(candidates, positives, seeds, params):
    noise = sampling.sampling_noise(seeds, tf.shape(candidates)[1])
    sampled = sampling.sample_balanced(candidates, positives, 8, 0.25, noise)
    indices, valid = sampling.sampled_indices(sampled, 8)
    rows = [sampling.gather_rows(params, indices, use_matmul) for use_matmul in (False, True)]
    return noise, sampled, indices, valid, *rows


@pytest.mark.parametrize('jit_compile', [False, True])
@pytest.mark.parametrize('size', [5, 30])
def test_traced_with_unknown_dimensions_is_the_same(jit_compile, size):
    candidates, positives, params = _draw(1, 2, size)
    arguments = (candidates, positives, np.array([[1, 2], [3, 4]], np.int32), params[..., None])
    signature = [
        tf.TensorSpec([None, None], tf.bool),
        tf.TensorSpec([None, None], tf.bool),
        tf.TensorSpec([None, 2], tf.int32),
        tf.TensorSpec([None, None, 1]),
    ]
    traced = tf.function(
        _sample_and_gather, input_signature=signature, jit_compile=jit_compile, autograph=False
    )
    for actual, expected in zip(traced(*arguments), _sample_and_gather(*arguments), strict=True):
        np.testing.assert_array_equal(actual, expected)


@goldens.rows('samplers')
def test_golden_samplers(case_name):
    case = goldens.load('samplers', case_name)
    candidates, labels = case.inputs['indicator'], case.inputs['labels']
    noise = sampling.sampling_noise(tf.constant([[1, 2]]), candidates.size)
    num_samples, fraction = case.params['batch_size'], case.params['positive_fraction']
    sampled = sampling.sample_balanced(
        candidates[None],
        labels[None],
        num_samples,
        fraction,
        noise,
        fill=case.params['is_static'],
    ).numpy()[0]
    if case_name in ('all_fit', 'static_all_fit'):
        np.testing.assert_array_equal(sampled, case.outputs['sampled'])
    else:
        # Positives and negatives among those that are no candidates count as well.
        masks = [labels, ~labels, ~candidates]
        counts = [np.sum(sampled & mask) for mask in masks]
        if num_samples is None:
            expected = [[np.sum(case.outputs['sampled'] & mask) for mask in masks]]
        else:
            expected = case.outputs['counts_pos_neg_outside']
        np.testing.assert_array_equal(expected, [counts] * len(expected))
