"""Detection transformers: their stages, contracts and losses."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import boxes as corner_ops
from object_detection.core.groundtruth import Groundtruth
from object_detection.meta_architectures.detr import boxes as box_ops
from object_detection.meta_architectures.detr import build, loss_names, queries
from object_detection.meta_architectures.detr import losses as set_losses
from object_detection.targets.matchers import IGNORED, UNMATCHED
from tests.meta_architectures.detr import configs

# Two images with three objects and one, as [ymin, xmin, ymax, xmax].
BOXES = [[[0.1, 0.1, 0.5, 0.4], [0.3, 0.5, 0.9, 0.9], [0.0, 0.6, 0.2, 1.0]], [[0.2, 0.2, 0.8, 0.6]]]
LABELS = [[0, 2, 1], [1]]
SEEDS = tf.constant([[3, 1], [4, 1]])


def groundtruth() -> Groundtruth:
    classes = [np.eye(configs.NUM_CLASSES, dtype=np.float32)[labels] for labels in LABELS]
    return Groundtruth.from_lists([np.array(each, np.float32) for each in BOXES], classes)


@functools.cache
def detector(kind: str):
    tf.keras.utils.set_random_seed(0)
    built = build.build_detector(configs.tiny(kind), is_training=False)
    built.build_variables()
    random = np.random.default_rng(1)
    for name, variable in built.named_variables().items():
        # Heads begin with zeros, with which layers would agree.
        if name.endswith('kernel') and not np.any(variable):
            variable.assign(random.normal(0, 0.2, variable.shape))
    return built


def images() -> tf.Tensor:
    noise = np.random.default_rng(0).uniform(0, 255, [2, configs.SIDE, configs.SIDE, 3])
    return tf.constant(noise, tf.float32)


@functools.cache
def step(kind: str):
    """A training step: losses, and the gradients of their sum."""
    model = detector(kind)
    prepared, shapes = model.preprocess(images())
    variables = model.named_trainable_variables()
    with tf.GradientTape() as tape:
        found = model.predict(prepared, shapes, True, groundtruth(), SEEDS)
        losses = model.loss(found, groundtruth(), SEEDS)
        total = tf.add_n(list(losses.values()))
    return losses, tape.gradient(total, variables)


@pytest.mark.parametrize('kind', configs.KINDS)
def test_losses_have_the_names_that_are_known_before(kind):
    losses, _ = step(kind)
    assert (
        set(losses) == set(loss_names.names(configs.tiny(kind))) == set(detector(kind).loss_names())
    )
    for name, value in losses.items():
        assert np.isfinite(value), name
        assert value > 0, name


@pytest.mark.parametrize('kind', configs.KINDS)
def test_each_variable_trains(kind):
    _, gradients = step(kind)
    for name, gradient in gradients.items():
        # Keys are compared with each other: what all have in common has no effect. The nearest cell
        # stays the nearest one when a point moves a little.
        is_constant = kind == 'rt_detr_v2' and 'sampling_offsets' in name
        if 'k_proj/bias' not in name and not is_constant:
            assert gradient is not None, name
            assert np.all(np.isfinite(tf.convert_to_tensor(gradient))), name


@pytest.mark.parametrize('kind', sorted(configs.KINDS.keys() - {'detr'}))
def test_detections_are_the_best_pairs(kind):
    model = detector(kind)
    prepared, shapes = model.preprocess(images())
    found = model.predict(prepared, shapes)
    outputs = model.postprocess(found, shapes)
    scores = outputs['raw_detection_scores'].numpy()
    best = np.sort(scores.reshape(2, -1))[:, ::-1][:, :10]
    np.testing.assert_allclose(outputs['detection_scores'], best, rtol=1e-6)
    rows = outputs['detection_anchor_indices'].numpy().astype(int)
    classes = outputs['detection_classes'].numpy().astype(int)
    for image in range(2):
        np.testing.assert_array_equal(
            scores[image, rows[image], classes[image]], outputs['detection_scores'][image]
        )
        boxes = np.clip(outputs['raw_detection_boxes'].numpy()[image, rows[image]], 0, 1)
        np.testing.assert_allclose(outputs['detection_boxes'][image], boxes, atol=1e-6)


def test_boxes_are_relative_to_the_true_image():
    model = detector('rt_detr')
    shapes = tf.constant([[64, 32, 3], [32, 64, 3]])
    found = model.predict(images(), shapes)
    outputs = model.postprocess(found, shapes)
    raw = outputs['raw_detection_boxes'].numpy()
    rows = outputs['detection_anchor_indices'].numpy().astype(int)
    expected = np.clip(raw[0, rows[0]] * [1, 2, 1, 2], 0, 1)
    is_box = outputs['detection_scores'].numpy()[0] > 0
    np.testing.assert_allclose(outputs['detection_boxes'][0][is_box], expected[is_box], atol=1e-6)


@pytest.mark.parametrize('kind', ['rt_detr', 'rf_detr', 'detr'])
def test_a_padded_image_has_the_boxes_of_what_its_maps_cover(kind):
    """Images of 60 pixels are padded to 64, as if the resizer had done so."""
    model = detector(kind)
    small = model.normalize(images()[:, :60, :60])
    padded = tf.pad(small, [[0, 0], [0, 4], [0, 4], [0, 0]])
    shapes = tf.constant([[60, 60, 3]] * 2)
    found, expected = (model.predict(each, shapes) for each in (small, padded))
    np.testing.assert_allclose(found.layers[-1].boxes, expected.layers[-1].boxes, atol=1e-5)
    outputs, others = (model.postprocess(each, shapes) for each in (found, expected))
    np.testing.assert_allclose(outputs['detection_boxes'], others['detection_boxes'], atol=1e-5)
    scaled = groundtruth()
    scaled = scaled._replace(boxes=scaled.boxes * (60 / 64))
    losses = model.loss(expected, scaled)
    for name, value in model.loss(found, groundtruth()).items():
        np.testing.assert_allclose(value, losses[name], rtol=1e-4, err_msg=name)


@pytest.mark.parametrize('kind', ['rf_detr', 'detr'])
def test_boxes_of_masked_maps_are_shares_of_the_true_image(kind):
    model = detector(kind)
    shapes = tf.constant([[32, 64, 3]] * 2)
    found = model.predict(model.normalize(images()), shapes)
    outputs = model.postprocess(found, shapes)
    raw = box_ops.to_corners(found.layers[-1].boxes)
    rows = tf.cast(outputs['detection_anchor_indices'], tf.int32)
    expected = tf.clip_by_value(tf.gather(raw, rows, batch_dims=1), 0.0, 1.0)
    np.testing.assert_allclose(outputs['detection_boxes'], expected, atol=1e-6)
    # An object over the upper half of the image, which is all of what is true.
    truth = Groundtruth.from_lists(
        [np.float32([[0, 0, 0.5, 1]])] * 2, [np.float32([[1, 0, 0]])] * 2
    )
    centre = tf.constant([0.5, 0.5, 1.0, 1.0])
    perfect = found._replace(
        layers=[each._replace(boxes=tf.zeros_like(each.boxes) + centre) for each in found.layers]
    )
    assert float(model.loss(perfect, truth)['Loss/l1']) < 1e-5


def test_a_query_of_detr_detects_its_best_class_alone():
    model = detector('detr')
    prepared, shapes = model.preprocess(images())
    outputs = model.postprocess(model.predict(prepared, shapes), shapes)
    scores = outputs['raw_detection_scores'].numpy()
    np.testing.assert_allclose(
        np.sort(scores.max(axis=-1))[:, ::-1], outputs['detection_scores'], rtol=1e-6
    )


def test_losses_of_images_with_few_seen_cells_are_finite():
    model = detector('rf_detr')
    shapes = tf.constant([[8, 64, 3]] * 2)
    found = model.predict(model.normalize(images()), shapes)
    for name, value in model.loss(found, groundtruth()).items():
        assert np.isfinite(value), name


def test_images_of_too_few_cells_are_refused():
    model = detector('rf_detr')
    with pytest.raises(ValueError, match=r'at most 4, the cells of the maps.*10'):
        model.predict(images()[:, :16, :16], tf.constant([[16, 16, 3]] * 2))


@pytest.mark.parametrize('kind', ['rf_detr', 'detr'])
def test_cells_beyond_the_true_image_are_not_seen(kind):
    model = detector(kind)
    shapes = tf.constant([[32, 64, 3]] * 2)
    prepared = model.normalize(images())
    dark = tf.concat([prepared[:, :32], tf.zeros_like(prepared[:, 32:])], axis=1)
    seen = model.encoder.encode(
        model.feature_extractor.feature_stacks(dark)[0], true=shapes[:, :2], size=(64, 64)
    ).seen
    expected = [[True] * 8] * 4 + [[False] * 8] * 4
    np.testing.assert_array_equal(tf.reshape(seen[0], [8, 8]), expected)


def test_noisy_queries_repeat_the_objects_of_their_own_image():
    options = queries.QueryOptions(width=4, num_classes=3, count=10, denoising=7, label_noise=0.0)
    noisy = queries.make_noisy(options, groundtruth(), SEEDS)
    near = [[0, 1, 2, 0, 1, 2, IGNORED], [0] * 7]
    far = [[UNMATCHED] * 6 + [IGNORED], [UNMATCHED] * 7]
    np.testing.assert_array_equal(noisy.matches, np.concatenate([near, far], axis=1))
    labels = [[0, 2, 1, 0, 2, 1, 3] * 2, [1] * 14]
    np.testing.assert_array_equal(noisy.classes, labels)
    np.testing.assert_array_equal(noisy.groups, [[0, 0, 0, 1, 1, 1, -1] * 2, [*range(7)] * 2])
    corners = box_ops.to_corners(tf.sigmoid(noisy.boxes)).numpy()
    iou = corner_ops.matched_iou(corners[1], tf.constant(BOXES[1] * 14, tf.float32)).numpy()
    # Edges move by less than half a side near an object, by more beyond it.
    assert np.all(iou[:7] > iou[7:].max())


def test_noisy_queries_without_objects_learn_nothing():
    options = queries.QueryOptions(width=4, num_classes=3, count=10, denoising=4)
    empty = Groundtruth.from_lists(
        [np.zeros([0, 4], np.float32)] * 2, [np.zeros([0, 3], np.float32)] * 2
    )
    noisy = queries.make_noisy(options, empty, SEEDS)
    np.testing.assert_array_equal(noisy.matches, np.full([2, 8], IGNORED))
    np.testing.assert_array_equal(noisy.classes, np.full([2, 8], 3))


def test_queries_do_not_see_noisy_ones():
    """What they predict is the same with noisy queries and without."""
    model = detector('d_fine')
    prepared, shapes = model.preprocess(images())
    noisy = model.predict(prepared, shapes, True, groundtruth(), SEEDS)
    plain = model.predict(prepared, shapes, True, None, SEEDS)
    for ours, theirs in zip(noisy.layers, plain.layers, strict=True):
        np.testing.assert_allclose(ours.boxes[:, 12:], theirs.boxes, atol=1e-5)
        np.testing.assert_allclose(ours.class_logits[:, 12:], theirs.class_logits, atol=1e-4)


@pytest.mark.parametrize(
    ('kind', 'change'),
    [
        ('rt_detr', 'encoder { hybrid { dropout: 0.3 } }'),
        ('detr', 'encoder { transformer { dropout: 0.3 } }'),
        ('rf_detr', 'decoder { dropout: 0.3 }'),
    ],
)
def test_dropout_follows_from_the_seeds_of_images(kind, change):
    model = build.build_detector(configs.tiny(kind, change), is_training=False)
    model.build_variables()
    prepared, shapes = model.preprocess(images())

    def contents(rows, seeds):
        found = model.predict(prepared[rows], shapes[rows], True, None, seeds)
        return found.layers[-1].class_logits

    both = contents(slice(None), SEEDS)
    np.testing.assert_array_equal(contents(slice(None), SEEDS), both)
    # Convolutions of another batch size round otherwise.
    np.testing.assert_allclose(contents(slice(1, None), SEEDS[1:]), both[1:], atol=1e-4)
    assert np.max(np.abs(contents(slice(None), SEEDS + 7) - both)) > 1e-2
    without = model.predict(prepared, shapes).layers[-1].class_logits
    assert np.max(np.abs(without - both[:, : without.shape[1]])) > 1e-2


def test_crowds_are_no_objects():
    model, known = detector('rt_detr'), groundtruth()
    is_crowd = tf.constant([[False, True, False], [False, False, False]])
    without = known._replace(weights=tf.where(is_crowd, 0.0, known.weights))
    prepared, shapes = model.preprocess(images())
    found = model.predict(prepared, shapes)
    expected = model.loss(found, without)
    for name, value in model.loss(found, known._replace(is_crowd=is_crowd)).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.parametrize(
    ('change', 'field'),
    [
        ('feature_extractor { backbone: "resnet_vd_18" }', 'backbone: expected none with resnet'),
        ('encoder { hybrid { width: 18 } }', 'encoder.hybrid.width'),
        ('queries { boxes: NONE }', 'queries.boxes'),
        ('queries { groups: 2 }', 'queries.groups'),
        ('decoder { deformable_attention { points: 3 } }', 'deformable_attention.points'),
        ('decoder { deformable_attention { num_maps: 2 } }', 'deformable_attention.num_maps'),
        ('loss { classification: SOFTMAX }', 'loss.classification'),
        ('encoder { hybrid { expansion: 0.01 } }', 'encoder.hybrid.expansion'),
        (
            'decoder { fine_distributions { bins: 8 quality_top: 20 } }',
            'fine_distributions.quality_top',
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(change, field):
    with pytest.raises(ValueError, match=field):
        build.build_detector(configs.tiny('rt_detr', change), is_training=True)


def _most_frequent(matches: list[np.ndarray]) -> np.ndarray:
    """The object that each query is matched with most often: int [B, N], by counting."""
    found = np.full(matches[0].shape, UNMATCHED)
    for place in np.ndindex(found.shape):
        counts = collections.Counter(each[place] for each in matches if each[place] >= 0)
        if counts:
            found[place] = min(counts, key=lambda label: (-counts[label], label))
    return found


def test_the_union_gives_queries_the_object_of_most_sets():
    random = np.random.default_rng(0)
    matches = [np.maximum(random.integers(-6, 3, [2, 40]), UNMATCHED) for _ in range(5)]
    found = set_losses.union([tf.constant(each, tf.int32) for each in matches], groundtruth())
    np.testing.assert_array_equal(found, _most_frequent(matches))
    assert {UNMATCHED, 0, 1, 2} == set(np.unique(found))
    no_boxes, no_classes = (np.zeros([0, columns], np.float32) for columns in (4, 3))
    empty = Groundtruth.from_lists([no_boxes] * 2, [no_classes] * 2)
    none = set_losses.union([tf.fill([2, 4], UNMATCHED)] * 2, empty)
    np.testing.assert_array_equal(none, np.full([2, 4], UNMATCHED))


def test_all_losses_but_that_of_classes_take_the_union_of_matches():
    """By the definition in the authors' program of D-FINE, from the matches of each set."""
    model, united = detector('d_fine'), configs.tiny('d_fine', 'loss { unites_matches: true }')
    prepared, shapes = model.preprocess(images())
    predictions = model.predict(prepared, shapes, True, groundtruth(), SEEDS)
    before = model._set_losses.compute(predictions, groundtruth())
    after = build._build_losses(united, tf.sigmoid).compute(predictions, groundtruth())
    assert before.keys() == after.keys()
    sets = model._set_losses._sets(predictions, predictions.noisy.matches.shape[1])
    matches = model._set_losses._match(sets, groundtruth(), 1)
    best = _most_frequent([each.numpy() for each in matches])
    pairs = [(b, q, best[b, q]) for b, q in np.argwhere(best >= 0)]
    # In some set a query is matched that the last layer does not match.
    assert len(pairs) > len(np.argwhere(matches[0].numpy() >= 0))
    for each in sets:
        for kind in (loss_names.CLASS, loss_names.L1):
            name = loss_names.full_name(kind, each.suffix)
            if kind == loss_names.CLASS:
                assert after[name].sum == before[name].sum
                continue
            objects = box_ops.from_corners(groundtruth().boxes).numpy()
            boxes = np.clip(each.boxes.numpy(), 0, 1)
            total = sum(np.abs(boxes[b, q] - objects[b, m]).sum() for b, q, m in pairs)
            assert float(after[name].sum) == pytest.approx(5 * total, rel=1e-5)
            assert after[name].normalizer == len(pairs)
    for name in before:
        if '/denoising' in name:
            assert after[name].sum == before[name].sum
