import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.heads import context_attention
from object_detection.models.heads.context_attention import ContextAttention, ContextMemory
from tests import goldens, tolerances

ATTENTIONS = (
    'attention_inference',
    'attention_training',
    'attention_sharp',
    'attention_no_context',
)
# Our names of a projection -> the names in the golden cases.
PROJECTIONS = {
    'memory/layer_1_head_1/key': 'key',
    'memory/layer_1_head_1/value': 'val',
    'attention/layer_1_head_1/query': 'query',
    'attention/layer_1_head_1/output': 'feature',
}
VARIABLES = {
    'dense/kernel': 'kernel',
    'dense/bias': 'bias',
    'dense_bn/gamma': 'gamma',
    'dense_bn/beta': 'beta',
    'dense_bn/moving_mean': 'mean',
    'dense_bn/moving_variance': 'variance',
}


def variables_of(memory, attention):
    layers = [each for each in (memory, attention) if each is not None]
    return {
        variable.path.removeprefix('context_'): variable.value
        for layer in layers
        for variable in layer.weights
    }


def golden_names():
    return {
        f'{ours}/{variable}': f'{theirs}_{name}'
        for ours, theirs in PROJECTIONS.items()
        for variable, name in VARIABLES.items()
    }


@goldens.rows('context_rcnn', names=ATTENTIONS)
def test_attention_is_that_of_the_reference(case_name):
    case = goldens.load('context_rcnn', case_name)
    depth, training = case.params['bottleneck_dimension'], case.params['is_training']
    memory = ContextMemory(depth)
    attention = ContextAttention(depth, temperature=case.params['attention_temperature'])
    inputs = {name: tf.constant(value) for name, value in case.inputs.items()}
    boxes, counts = inputs['box_features'], inputs['num_proposals']
    memory.build(inputs['context_features'].shape)
    attention.build(boxes.shape)
    variables = variables_of(memory, attention)
    names = golden_names()
    assert variables.keys() == names.keys()
    for ours, theirs in names.items():
        variables[ours].assign(case.inputs[f'weights.{theirs}'])

    def run():
        found = memory(inputs['context_features'], inputs['valid_context_size'], training=training)
        return {'seen': attention(boxes, counts, found, training=training).numpy()}

    floats = dict(variables)
    before = {name: value.numpy() for name, value in floats.items()}
    expected = {'seen': case.outputs['features'].reshape(-1, 1, 1, boxes.shape[-1])}
    ours = run()
    after = {name: value.numpy() for name, value in floats.items()}
    for name, value in before.items():
        floats[name].assign(value)
    repeated = list(tolerances.runs_off_by_last_digits(floats, run))
    allowed = tolerances.of_rounding(expected, repeated)
    assert tolerances.differing(ours, expected, allowed) == {}
    for name, theirs in names.items():
        if training and theirs.endswith(('_mean', '_variance')):
            wanted = case.outputs[f'after.{theirs}']
            np.testing.assert_allclose(after[name], wanted, rtol=1e-4, atol=1e-6)
        else:
            np.testing.assert_array_equal(after[name], before[name])


@goldens.parametrize('context_rcnn', prefix='valid_mask')
def test_rows_beyond_the_count_are_padding(case_name):
    case = goldens.load('context_rcnn', case_name)
    found = context_attention.valid_rows(case.inputs['num_valid'], case.params['num_elements'])
    np.testing.assert_array_equal(found, case.outputs['mask'])


def test_padding_is_left_out():
    case = goldens.load('context_rcnn', 'filter_weight_value')
    weights, values, is_valid = (case.inputs[name] for name in ('weights', 'values', 'mask'))
    np.testing.assert_array_equal(
        context_attention.without_padding(weights, is_valid), case.outputs['weights']
    )
    np.testing.assert_array_equal(
        context_attention.with_zeros(values, is_valid), case.outputs['values']
    )


# An oracle in NumPy, in inference.


def project(rows, path, variables):
    """Dense, norm by the moving statistics, ReLU6: rows [..., L] -> [..., D]."""

    def of(name):
        return variables[f'{path}/{name}'].numpy().astype(np.float64)

    x = rows @ of('dense/kernel') + of('dense/bias')
    x = (x - of('dense_bn/moving_mean')) / np.sqrt(of('dense_bn/moving_variance') + 1e-3)
    return np.clip(x * of('dense_bn/gamma') + of('dense_bn/beta'), 0, 6)


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-6)


def attend(boxes, rows, paths, variables, temperature):
    """One image: boxes [p, C] attend to rows [n, L], both without padding -> [p, C]."""
    attention, memory = paths
    queries = unit(project(boxes, f'{attention}/query', variables))
    keys, values = (unit(project(rows, f'{memory}/{name}', variables)) for name in ('key', 'value'))
    logits = queries @ keys.T / temperature
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return project(weights @ values, f'{attention}/output', variables)


def seen_by(boxes, rows, variables, options):
    """What boxes [p, C] of one image see, as the options say."""
    temperature, total = options['temperature'], np.zeros_like(boxes)
    if options['use_self_attention']:
        paths = ('attention/self_attention', 'attention/self_memory')
        own = attend(boxes, boxes, paths, variables, temperature)
        total = total + own
        if options['self_in_sequence']:
            boxes = boxes + own
    for layer in range(1, options['num_layers'] + 1):
        heads = []
        for head in range(1, options['num_heads'] + 1):
            name = f'layer_{layer}_head_{head}'
            paths = (f'attention/{name}', f'memory/{name}')
            heads.append(attend(boxes, rows, paths, variables, temperature))
        boxes = boxes + np.mean(heads, axis=0)
        total = total + np.mean(heads, axis=0)
    return total


def randomize(layers, seed=1):
    rng = np.random.default_rng(seed)
    for layer in layers:
        for variable in layer.weights:
            shape = variable.shape
            name = variable.path.rpartition('/')[2]
            value = rng.standard_normal(shape)
            if name in ('gamma', 'moving_variance'):
                value = rng.uniform(0.5, 1.5, shape)
            variable.assign(value)


@pytest.mark.parametrize(
    ('num_heads', 'num_layers', 'use_self_attention', 'self_in_sequence'),
    [
        (1, 1, False, False),
        (3, 1, False, False),
        (2, 2, False, False),
        (1, 1, True, False),
        (2, 2, True, True),
        (1, 0, True, False),
    ],
)
@pytest.mark.parametrize('in_graph', [False, pytest.param(True, marks=pytest.mark.slow)])
def test_equals_an_oracle(num_heads, num_layers, use_self_attention, self_in_sequence, in_graph):
    options = {
        'num_heads': num_heads,
        'num_layers': num_layers,
        'use_self_attention': use_self_attention,
        'self_in_sequence': self_in_sequence,
        'temperature': 0.3,
    }
    rng = np.random.default_rng(0)
    boxes = rng.standard_normal([2, 4, 3, 2, 6]).astype(np.float32)
    rows = rng.standard_normal([2, 5, 7]).astype(np.float32)
    counts, sizes = np.int32([3, 4]), np.int32([4, 2])
    memory = ContextMemory(8, num_heads=num_heads, num_layers=num_layers) if num_layers else None
    attention = ContextAttention(8, **options)

    def run(boxes, counts, rows, sizes):
        found = memory(rows, sizes) if memory else None
        return attention(tf.reshape(boxes, [-1, 3, 2, 6]), counts, found)

    if in_graph:
        specs = [[None, None, 3, 2, 6], [None], [None, None, 7], [None]]
        types = [tf.float32, tf.int32, tf.float32, tf.int32]
        run = tf.function(
            run,
            input_signature=[tf.TensorSpec(*each) for each in zip(specs, types, strict=True)],
            autograph=False,
        )
    run(boxes, counts, rows, sizes)
    layers = [layer for layer in (memory, attention) if layer is not None]
    randomize(layers)
    variables = variables_of(memory, attention)
    found = np.reshape(run(boxes, counts, rows, sizes), [2, 4, 6])
    for image in range(2):
        pooled = boxes[image, : counts[image]].astype(np.float64).mean(axis=(1, 2))
        wanted = seen_by(pooled, rows[image, : sizes[image]], variables, options)
        assert np.abs(wanted).max() > 1
        np.testing.assert_allclose(found[image, : counts[image]], wanted, rtol=1e-4, atol=1e-4)


def test_padding_of_a_memory_does_not_count():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal([2, 6, 3]).astype(np.float32)
    memory, attention = ContextMemory(4), ContextAttention(4, temperature=0.1)
    boxes, counts = tf.constant(rng.standard_normal([4, 1, 1, 5]), tf.float32), tf.constant([2, 2])
    sizes = tf.constant([3, 0])

    def run(rows):
        found = memory(rows, sizes)
        # The longest memory of the batch has three rows.
        assert found.keys[0].shape == (2, 3, 4)
        return attention(boxes, counts, found).numpy()

    first = run(rows)
    rows[0, 3:], rows[1] = 100, -100
    np.testing.assert_array_equal(run(rows), first)
    compiled = tf.function(
        lambda rows: attention(boxes, counts, memory(rows, sizes)), jit_compile=True
    )
    np.testing.assert_allclose(compiled(rows), first, rtol=1e-5, atol=1e-6)


def test_no_boxes_and_no_memory():
    memory, attention = ContextMemory(4), ContextAttention(4, temperature=0.1)
    found = memory(tf.zeros([2, 0, 3]), tf.zeros([2], tf.int32))
    assert attention(tf.zeros([0, 2, 2, 5]), tf.zeros([2], tf.int32), found).shape == (0, 1, 1, 5)
    seen = attention(tf.ones([2, 2, 2, 5]), tf.ones([2], tf.int32), found)
    # Of zeros, a new projection makes zeros.
    np.testing.assert_array_equal(seen, np.zeros([2, 1, 1, 5]))


def test_frozen_norms_keep_their_statistics():
    memory = ContextMemory(4, norm_trainable=False)
    attention = ContextAttention(4, temperature=0.1, norm_trainable=False)
    rows, ones = tf.random.stateless_normal([2, 3, 3], [0, 1]), tf.ones([2], tf.int32)
    boxes = tf.random.stateless_normal([2, 1, 1, 5], [0, 2])
    inference = attention(boxes, ones, memory(rows, ones))
    training = attention(boxes, ones, memory(rows, ones, training=True), training=True)
    np.testing.assert_allclose(training, inference, rtol=1e-5, atol=1e-6)


def test_cosines_are_computed_in_float32():
    """In bfloat16 their error of 2^-9 would change logits of temperature 0.01 by 0.2."""
    keras.config.set_dtype_policy('mixed_bfloat16')
    try:
        memory, attention = ContextMemory(4), ContextAttention(4, temperature=0.01)
        found = memory(tf.ones([1, 3, 3]), tf.constant([3]))
        seen = attention(tf.ones([2, 1, 1, 5], tf.bfloat16), tf.constant([2]), found)
    finally:
        keras.config.set_dtype_policy('float32')
    dtypes = {each.dtype for each in (*found.keys, *found.values, seen)}
    assert dtypes == {tf.float32}
