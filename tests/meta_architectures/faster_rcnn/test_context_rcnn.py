"""Context R-CNN: what regions attend to joins their features, and the memory goes everywhere."""

import json
import logging

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.core.fields import DetectionFields
from object_detection.errors import UserError
from object_detection.export import saved_model
from object_detection.meta_architectures.faster_rcnn.variable_names import FASTER_RCNN_NAMES
from object_detection.protos import faster_rcnn_pb2
from object_detection.runtime import input_types
from object_detection.weights import restore
from object_detection.weights.checkpoint_files import VALUE_SUFFIX
from tests import rows, slow_cases
from tests import tiny_models as tiny
from tests.tiny_models import SEEDS, shapes
from tests.weights.tiny_checkpoints import save

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')

SIZE, LENGTH = 6, 5
CONTEXT = f"""
model {{ faster_rcnn {{ context_config {{
  max_num_context_features: {SIZE}
  context_feature_length: {LENGTH}
  attention_bottleneck_dimension: 8
  attention_temperature: 0.2
}} }} }}
"""
TWO_STAGES = 'model { faster_rcnn { number_of_stages: 2 } }'
ON_CROPS = 'model { faster_rcnn { context_config { attention_position: POST_RPN } } }'
ALL_KINDS = """
model { faster_rcnn { context_config {
  num_attention_heads: 2
  num_attention_layers: 2
  use_self_attention: true
  self_attention_in_sequence: true
} } }
"""
SELF_ALONE = """
model { faster_rcnn { context_config {
  use_self_attention: true
  use_long_term_attention: false
} } }
"""
MASKS_OF_FEATURES = 'model { faster_rcnn { masks_from_crops: false } }'
FEATURES = """
model { faster_rcnn {
  output_final_box_features: true
  output_final_box_rpn_features: true
} }
"""


def make(*overrides, **options):
    """A tiny detector whose attention is not that of zeros, as it is after a training."""
    detector = tiny.tiny_detector(CONTEXT, *overrides, **options)
    rng = np.random.default_rng(3)
    for name, variable in detector.named_variables().items():
        if name.startswith('context_') and name.endswith(('bias', 'beta')):
            variable.assign(rng.standard_normal(variable.shape))
    return detector


def context(batch=2, seed=0, size=SIZE):
    rng = np.random.default_rng(seed)
    return {
        'context_features': tf.constant(rng.standard_normal([batch, size, LENGTH]), tf.float32),
        'valid_context_size': tf.constant([4, 1, 0, 6][:batch]),
    }


def predict(detector, images, groundtruth=None, given=None, training=False):
    images = detector.normalize(images)
    given = context() if given is None else given
    return detector.predict(images, shapes(images), training, groundtruth, SEEDS, **given)


def losses_of(detector, images, groundtruth, given=None):
    predictions = predict(detector, images, groundtruth, given, training=True)
    return detector.loss(predictions, groundtruth, SEEDS)


@pytest.fixture(scope='module')
def detector():
    return make(TWO_STAGES, FEATURES)


@pytest.fixture(scope='module')
def plain():
    """Without a context."""
    return tiny.tiny_detector(TWO_STAGES, seed=1)


def test_it_names_its_side_inputs_and_variables(detector):
    specs = detector.side_inputs()
    assert {name: (spec.shape.as_list(), spec.dtype) for name, spec in specs.items()} == {
        'context_features': ([None, SIZE, LENGTH], tf.float32),
        'valid_context_size': ([None], tf.int32),
    }
    names = [name for name in detector.named_variables() if name.startswith('context_')]
    layers = {name.rpartition('/')[0].rpartition('/')[0] for name in names}
    assert layers == {
        'context_memory/layer_1_head_1/key',
        'context_memory/layer_1_head_1/value',
        'context_attention/layer_1_head_1/query',
        'context_attention/layer_1_head_1/output',
    }
    assert len(names) == 4 * 6


def test_keys_of_the_reference_are_all_found(detector, shared):
    path = shared / 'goldens/models/context_rcnn_resnet50_snapshot_serengeti.json'
    keys = {key for key, *_ in json.loads(path.read_text())['variables'] if '_context' in key}
    names = detector.named_variables()
    paths = FASTER_RCNN_NAMES.reference_paths([name.rpartition('/')[0] for name in names])
    found = {
        paths[layer] + variable + VALUE_SUFFIX
        for layer, _, variable in (name.rpartition('/') for name in names)
        if layer in paths
    }
    assert len(keys) == 24
    assert found == keys


@slow_cases.parametrize(
    2,
    'overrides',
    [
        (TWO_STAGES, ON_CROPS),
        (ALL_KINDS, MASKS_OF_FEATURES),
        (TWO_STAGES,),
        (TWO_STAGES, ON_CROPS, SELF_ALONE),
    ],
)
def test_every_trainable_variable_gets_a_gradient(overrides, images, groundtruth):
    detector = make(*overrides)
    given = {} if SELF_ALONE in overrides else None
    assert (detector.side_inputs() == {}) == (given == {})
    with tf.GradientTape() as tape:
        losses = losses_of(detector, images, groundtruth, given)
        total = tf.add_n(list(losses.values()))
    assert set(losses) == set(detector.loss_names())
    variables = {v.path: v.value for v in detector.trainable_variables}
    gradients = tape.gradient(total, variables)
    assert [path for path, gradient in gradients.items() if gradient is None] == []
    found = {
        path.partition('/')[0]
        for path, gradient in gradients.items()
        if path.startswith('context_') and np.any(gradient)
    }
    assert found == (
        {'context_attention'}
        if given == {}
        else set(detector.parts()) & {'context_attention', 'context_memory'}
    )


def expected_features(detector, predictions, boxes, counts, training, on_crops):
    """Features and pooled crops of boxes float32 [B, P, 4], absolute, layer by layer."""
    crops = detector._cropper(predictions.features, boxes, 64, 64)
    stage, memory = detector.context_stage, predictions.memory

    def seen(features):
        return stage.attention(features, counts, memory, training=training)

    pooled = tf.nn.max_pool2d(crops, 2, 2, 'VALID')
    if on_crops:
        pooled += seen(pooled)
    features = detector.feature_extractor.box_classifier_features(pooled, training)
    return features if on_crops else features + seen(features), pooled


# With one feature map, tests/test_check_models.py compares it with the reference.
@slow_cases.parametrize(1, 'on_crops', [False, True])
def test_what_regions_see_is_added_where_the_position_says(on_crops, detector, images, monkeypatch):
    if on_crops:
        detector = make(TWO_STAGES, FEATURES, ON_CROPS)
    # So that random weights do not move boxes out of the image.
    head = detector.box_stages[0].head
    predicted = head.call

    def call(*inputs, **options):
        codes, logits = predicted(*inputs, **options)
        return tf.zeros_like(codes), logits

    monkeypatch.setattr(head, 'call', call)
    predictions = predict(detector, images)
    proposals = predictions.proposals
    wanted, _ = expected_features(
        detector, predictions, proposals.boxes, proposals.count, False, on_crops
    )
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(predictions.regions.features, wanted, rtol=1e-4, atol=1e-5 * scale)
    # The crops stay what masks are predicted from.
    crops = detector._cropper(predictions.features, proposals.boxes, 64, 64)
    np.testing.assert_array_equal(predictions.regions.crops, crops)
    # Final boxes attend, too.
    detections = detector.postprocess(predictions, shapes(images))
    boxes = detections[DetectionFields.BOXES] * tiny.IMAGE_SIZE
    counts = tf.cast(detections[DetectionFields.NUM_DETECTIONS], tf.int32)
    assert counts.numpy().min() > 1
    features, pooled = expected_features(detector, predictions, boxes, counts, False, on_crops)
    for name, value in (('detection_features', features), ('cropped_rpn_box_features', pooled)):
        found = tf.reshape(detections[name], value.shape)
        scale = np.abs(value).max()
        np.testing.assert_allclose(found, value, rtol=1e-3, atol=1e-4 * scale, err_msg=name)


def test_padding_of_the_context_does_not_count(detector, images):
    given = context()
    first = predict(detector, images, given=given).regions
    features = given['context_features'].numpy()
    features[0, 4:], features[1, 1:] = 7, -7
    found = predict(detector, images, given=given | {'context_features': features}).regions
    np.testing.assert_allclose(found.class_logits, first.class_logits, rtol=1e-5, atol=1e-5)
    # What counts does change them.
    features[0, 3] = 7
    found = predict(detector, images, given=given | {'context_features': features}).regions
    difference = np.abs(found.class_logits - first.class_logits).reshape(2, -1).max(axis=1)
    assert difference[0] > 1e-3
    assert difference[1] < 1e-4


def test_images_without_context_train_and_are_detected(detector, images, groundtruth):
    given = {
        'context_features': tf.zeros([2, SIZE, LENGTH]),
        'valid_context_size': tf.zeros([2], tf.int32),
    }
    losses = losses_of(detector, images, groundtruth, given)
    assert all(np.isfinite(loss) for loss in losses.values())
    predictions = predict(detector, images, given=given)
    assert np.isfinite(predictions.regions.class_logits).all()


@slow_cases.parametrize(1, 'overrides', [(), (ON_CROPS,)])
def test_masks_from_crops_see_no_context(overrides, images, groundtruth):
    detector = make(*overrides)
    first, other = (
        predict(detector, images, groundtruth, context(seed=seed), True) for seed in (0, 1)
    )
    assert np.abs(first.regions.class_logits - other.regions.class_logits).max() > 1e-4
    np.testing.assert_allclose(first.masks.logits, other.masks.logits, rtol=1e-4, atol=1e-5)


@slow_cases.parametrize(1, 'overrides', [(), (ON_CROPS,)])
def test_masks_of_box_features_see_what_boxes_see(overrides, images, groundtruth):
    detector = make(MASKS_OF_FEATURES, *overrides)
    predictions = predict(detector, images, groundtruth, training=True)
    rows = predictions.regions.features
    features = tf.reshape(rows, [2, -1, *rows.shape[1:]])
    features = tf.gather(features, predictions.masks.rows, batch_dims=1)
    logits = detector.mask_stage.head(tf.reshape(features, [-1, *rows.shape[1:]]))
    np.testing.assert_allclose(predictions.masks.logits, logits, rtol=1e-4, atol=1e-4)

    predictions = predict(detector, images)
    detections = detector.postprocess(predictions, shapes(images))
    boxes = detections['detection_boxes'] * tiny.IMAGE_SIZE
    counts = tf.cast(detections['num_detections'], tf.int32)
    features, _ = expected_features(detector, predictions, boxes, counts, False, bool(overrides))
    classes = tf.cast(detections['detection_classes'], tf.int32)
    logits = detector.mask_stage.select_class(detector.mask_stage.head(features), classes)
    wanted = tf.reshape(tf.sigmoid(logits), [2, 6, 14, 14])
    np.testing.assert_allclose(detections['detection_masks'], wanted, rtol=1e-3, atol=1e-4)


def test_given_boxes_are_classified_with_the_context(detector, images):
    boxes = tf.constant([[[0.1, 0.1, 0.5, 0.6], [0.3, 0.2, 0.9, 0.9]]] * 2)
    predictions = predict(detector, images)
    found = detector.predict_masks_from_boxes(predictions, shapes(images), boxes)
    features, _ = expected_features(
        detector, predictions, boxes * tiny.IMAGE_SIZE, tf.constant([2, 2]), False, False
    )
    _, logits = detector.box_stages[0].head(features)
    wanted = detector.box_stages[0].scores(logits, 2, 2)
    np.testing.assert_allclose(
        found[DetectionFields.MULTICLASS_SCORES], wanted, rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
def test_an_export_for_given_boxes_takes_the_context(detector, images):
    boxes = tf.constant([[[0.1, 0.1, 0.5, 0.6], [0.3, 0.2, 0.9, 0.9]]] * 2)
    # Near the means that are subtracted, as large logits would hide all else.
    pixels = tf.cast(tf.round(tf.tanh(images) * 2 + [124.0, 117.0, 104.0]), tf.uint8)
    served = saved_model.ServedDetector(detector, input_types.IMAGE_AND_BOXES_TENSOR, 'float32')
    serve = served.serve.get_concrete_function()
    specs = detector.side_inputs()
    full = {
        name: tf.fill([2, *spec.shape[1:]], tf.cast(2, spec.dtype)) for name, spec in specs.items()
    }
    empty = {name: tf.zeros_like(value) for name, value in full.items()}
    found = [
        serve(input_tensor=pixels, boxes=boxes, **given)['detection_multiclass_scores']
        for given in (full, empty)
    ]
    assert np.abs(found[0] - found[1]).max() > 1e-4
    resized, true_shapes = detector.preprocess(tf.cast(pixels, tf.float32))
    predictions = detector.predict(resized, true_shapes, training=False, **full)
    wanted = detector.predict_masks_from_boxes(predictions, true_shapes, boxes)
    np.testing.assert_allclose(
        found[0], wanted[DetectionFields.MULTICLASS_SCORES], rtol=1e-3, atol=1e-5
    )


@pytest.mark.slow
def test_norms_of_the_attention_train_with_a_frozen_extractor(images, groundtruth):
    frozen = 'model { faster_rcnn { feature_extractor { batch_norm_trainable: false } } }'
    detector = make(TWO_STAGES, frozen)
    before = {name: v.numpy() for name, v in detector.named_variables().items()}
    predict(detector, images, groundtruth, training=True)
    changed = {name for name, v in detector.named_variables().items() if np.any(v != before[name])}
    assert len(changed) == 8
    assert all(name.startswith('context_') and '/moving_' in name for name in changed)
    # A detector that is not for training freezes them.
    detector = make(TWO_STAGES, is_training=False)
    before = {name: v.numpy() for name, v in detector.named_variables().items()}
    predict(detector, images, groundtruth, training=True)
    assert all(np.all(v == before[name]) for name, v in detector.named_variables().items())


def test_a_graph_of_any_batch_equals_eager_execution(detector, images):
    def detect(images, features, sizes):
        given = {'context_features': features, 'valid_context_size': sizes}
        return predict(detector, images, given=given).regions

    specs = [
        tf.TensorSpec([None, 64, 64, 3], tf.float32),
        tf.TensorSpec([None, None, LENGTH], tf.float32),
        tf.TensorSpec([None], tf.int32),
    ]
    graph = tf.function(detect, input_signature=specs, autograph=False)
    given = context()
    eager = predict(detector, images).regions
    found = graph(images, *given.values())
    scale = np.abs(eager.class_logits).max()
    np.testing.assert_allclose(found.class_logits, eager.class_logits, rtol=0, atol=1e-4 * scale)


# By default, the attention is compiled by itself (tests/models/heads/test_context_attention.py).
@pytest.mark.slow
def test_static_execution_compiles(images, groundtruth):
    detector = make(TWO_STAGES, tiny.STATIC)
    wanted = losses_of(detector, images, groundtruth)
    compiled = tf.function(losses_of, jit_compile=True, autograph=False)
    found = compiled(detector, images, groundtruth, context())
    for name, loss in found.items():
        np.testing.assert_allclose(loss, wanted[name], rtol=1e-3, err_msg=name)


@rows.parametrize(
    ('given', 'message'),
    [
        ({}, r'expected context_features \[B, N, 5\].* Received: neither'),
        ({'valid_context_size': tf.constant([1, 1])}, r'Received: valid_context_size \[2\]'),
        (
            {
                'context_features': tf.zeros([2, 6, 4]),
                'valid_context_size': tf.constant([1, 1]),
            },
            r'context_feature_length\).* Received: context_features \[2, 6, 4\]',
        ),
    ],
)
def test_a_context_that_does_not_fit_is_an_error(detector, images, given, message):
    with pytest.raises(UserError, match=message):
        predict(detector, images, given=given)


def test_a_detector_without_context_takes_none(plain, images):
    with pytest.raises(UserError, match=r'expected no context.* Received: context_features'):
        predict(plain, images)


@slow_cases.parametrize(1, 'checkpoint_type', ['full', 'detection'])
def test_fine_tuning_from_a_detector_without_context(checkpoint_type, plain, tmp_path, caplog):
    target = make(TWO_STAGES)
    before = {name: v.numpy() for name, v in target.named_variables().items()}
    with caplog.at_level(logging.INFO, 'object_detection'):
        report = restore.restore(target, save(tmp_path, plain), checkpoint_type)
    added = {name for name in before if name.startswith('context_')}
    assert added <= set(report.missing)
    (line,) = [line for line in caplog.messages if 'initialised: ' in line]
    assert 'context_attention, context_memory' in line
    for name in added:
        np.testing.assert_array_equal(target.named_variables()[name], before[name])
    if checkpoint_type == 'full':
        assert set(report.missing) == added
        for name, variable in plain.named_variables().items():
            np.testing.assert_array_equal(target.named_variables()[name], variable)


def test_the_context_of_another_size_does_not_fit(detector, tmp_path):
    prefix = save(tmp_path, detector)
    other = 'model { faster_rcnn { context_config { num_attention_heads: 2 } } }'
    with pytest.raises(restore.CheckpointError, match=r'not in it: .*layer_1_head_2'):
        restore.restore(make(TWO_STAGES, other), prefix)


@rows.parametrize(
    ('settings', 'message'),
    [
        ('max_num_context_features: 0', r'max_num_context_features: expected at least 1'),
        ('context_feature_length: 0', r'context_feature_length: expected at least 1'),
        ('attention_bottleneck_dimension: 0', r'attention_bottleneck_dimension: expected at l'),
        ('attention_temperature: 0', r'attention_temperature: expected above 0. Received: 0'),
        (
            'attention_temperature: nan',
            r'attention_temperature: expected a finite number, above 0. Received: nan',
        ),
        ('num_attention_heads: 0', r'num_attention_heads: expected at least 1'),
        ('num_attention_layers: 0', r'num_attention_layers: expected at least 1'),
        ('use_long_term_attention: false', r'context_config: expected use_long_term_attention or'),
        ('attention_position: ATTENTION_DEFAULT', r'Received: ATTENTION_DEFAULT, for which'),
    ],
)
def test_values_that_are_refused(settings, message):
    config = tiny.tiny_pipeline(CONTEXT, TWO_STAGES).model
    text_format.Merge(settings, config.faster_rcnn.context_config)
    with pytest.raises(UserError, match=message):
        model_builder.build(config)


def test_models_without_features_of_boxes_have_no_context():
    config = tiny.tiny_pipeline(CONTEXT).model
    config.faster_rcnn.number_of_stages = 1
    with pytest.raises(UserError, match=r'context_config: expected number_of_stages of 2 or 3'):
        model_builder.build(config)
    config.faster_rcnn.number_of_stages = 2
    predictor = config.faster_rcnn.second_stage_box_predictor
    predictor.Clear()
    predictor.rfcn_box_predictor.depth = 8
    with pytest.raises(UserError, match=r'context_config: expected a mask_rcnn_box_predictor'):
        model_builder.build(config)


def test_the_position_of_the_schema():
    assert faster_rcnn_pb2.Context().attention_position == faster_rcnn_pb2.POST_BOX_CLASSIFIER
