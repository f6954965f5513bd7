import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.symmetry import RandomHorizontalFlip, RandomRotation90
from object_detection.data.augmentation.window import Window, cut_out
from object_detection.data.decoder import ExampleDecoder
from object_detection.data.pipeline import extra_fields
from object_detection.data.pipeline.transform import ExampleTransform, batch
from object_detection.resizers.fixed_sizes import IdentityResizer
from tests import goldens, rows
from tests.data import examples

SEED = tf.constant([0, 0], tf.int64)
BOXES = [[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]]
DENSEPOSE = {
    'image__object__densepose__num': [3, 1],
    'image__object__densepose__part_index': [1, 2, 3, 4],
    'image__object__densepose__y': [0.1, 0.4, 0.2, 0.7],
    'image__object__densepose__x': [0.1, 0.4, 0.3, 0.9],
    'image__object__densepose__u': [0.5, 0.6, 0.7, 0.8],
    'image__object__densepose__v': [0.15, 0.25, 0.35, 0.45],
}


def transformed(record, fields, *, num_keypoints=0, **options):
    decoder = ExampleDecoder(fields=fields, num_keypoints=num_keypoints)
    options = {'num_classes': 3, 'max_number_of_boxes': 3, **options}
    return ExampleTransform(IdentityResizer(), **options)(decoder(record), SEED)


@goldens.rows('input_transforms', prefix='k_hot')
def test_class_vectors_match_the_reference(case_name):
    case = goldens.load('input_transforms', case_name)
    ids = tf.constant(case.inputs['ids'])
    example = {
        F.GROUNDTRUTH_IMAGE_CLASSES: ids,
        F.GROUNDTRUTH_IMAGE_CONFIDENCES: tf.ones([len(ids)]),
    }
    vectors = extra_fields.class_vectors(
        example, case.params['num_classes'], empty_to_ones=case.params['map_empty_to_ones']
    )
    np.testing.assert_array_equal(vectors[F.GROUNDTRUTH_IMAGE_CLASSES], case.outputs['v'])


def test_class_vectors_of_augmentations_match_the_reference():
    """Its classes begin with 0."""
    case = goldens.load('preprocessor', 'one_hot_encoding')
    ids = tf.constant(case.inputs['labels'] + 1)
    example = {
        F.GROUNDTRUTH_IMAGE_CLASSES: ids,
        F.GROUNDTRUTH_IMAGE_CONFIDENCES: tf.ones([len(ids)]),
    }
    vectors = extra_fields.class_vectors(example, case.params['num_classes'], empty_to_ones=True)
    np.testing.assert_array_equal(vectors[F.GROUNDTRUTH_IMAGE_CLASSES], case.outputs['onehot'])


def test_classes_of_the_image_become_vectors():
    record = examples.example(
        image__class__label=[1, 3, 9],
        image__class__confidence=[1.0, 0.0, 0.5],
        image__neg_category_ids=[3, 9],
        image__not_exhaustive_category_ids=[2],
    )
    fields = [
        F.GROUNDTRUTH_IMAGE_CLASSES,
        F.GROUNDTRUTH_VERIFIED_NEG_CLASSES,
        F.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES,
    ]
    outputs = transformed(record, fields)
    np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_IMAGE_CLASSES], [1, 0, 1])
    np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_IMAGE_CONFIDENCES], [1, 0, 0])
    np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_VERIFIED_NEG_CLASSES], [0, 0, 1])
    np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES], [0, 1, 0])
    empty = transformed(examples.example(), fields)
    np.testing.assert_array_equal(empty[F.GROUNDTRUTH_IMAGE_CLASSES], [1, 1, 1])
    empty = transformed(examples.example(), fields, empty_image_classes_to_ones=False)
    np.testing.assert_array_equal(empty[F.GROUNDTRUTH_IMAGE_CLASSES], [0, 0, 0])
    assert not transformed(record, []).keys() & set(fields)


def test_a_class_of_the_image_without_a_confidence_names_the_image():
    record = examples.example(
        source_id='img 42', image__class__label=[1, 2], image__class__confidence=[1.0]
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=r'(?s)class/confidence.*img 42'):
        transformed(record, [F.GROUNDTRUTH_IMAGE_CLASSES])


def context_record(numbers, length=2, ids=(b'a', b'b', b'c')):
    return examples.example(
        source_id='img 42',
        image__context_features=numbers,
        image__context_feature_length=[length],
        image__context_features_image_id_list=list(ids),
    )


def test_contexts_are_cut_and_padded():
    fields = [F.CONTEXT_FEATURES, F.CONTEXT_FEATURES_IMAGE_ID_LIST]
    record = context_record([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    cut = transformed(record, fields, context_size=(2, 2))
    np.testing.assert_array_equal(cut[F.CONTEXT_FEATURES], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(cut[F.CONTEXT_FEATURES_IMAGE_ID_LIST], [b'a', b'b'])
    assert cut[F.VALID_CONTEXT_SIZE] == 2
    padded = transformed(record, fields, context_size=(4, 2))
    np.testing.assert_array_equal(padded[F.CONTEXT_FEATURES], [[1, 2], [3, 4], [5, 6], [0, 0]])
    assert padded[F.CONTEXT_FEATURES_IMAGE_ID_LIST][3] == b''
    assert padded[F.VALID_CONTEXT_SIZE] == 3
    with pytest.raises(tf.errors.InvalidArgumentError, match=r'(?s)need 3 numbers each.*img 42'):
        transformed(record, fields, context_size=(4, 3))


@goldens.rows('context_rcnn', names=('padding', 'padding_clipped', 'padding_empty'))
def test_contexts_fit_the_model_as_in_the_reference(case_name):
    case = goldens.load('context_rcnn', case_name)
    size = (case.params['max_num_context_features'], case.params['context_feature_length'])
    features = case.inputs['context_features']
    ids = [f'id{index}'.encode() for index in range(len(features))]
    example = {
        F.SOURCE_ID: tf.constant('img'),
        F.CONTEXT_FEATURES: tf.constant(features),
        F.CONTEXT_FEATURES_IMAGE_ID_LIST: tf.constant(ids, tf.string),
    }
    found = extra_fields.context(example, size)
    for name in (F.CONTEXT_FEATURES, F.CONTEXT_FEATURES_IMAGE_ID_LIST):
        np.testing.assert_array_equal(found[name], case.outputs[name])
    # It counts rows that it has cut off, too; the attention sees no difference.
    wanted = min(case.outputs[F.VALID_CONTEXT_SIZE], size[0])
    assert found[F.VALID_CONTEXT_SIZE] == wanted


def test_without_a_size_contexts_keep_all_features():
    assert goldens.load('context_rcnn', 'padding_without_maximum').raises == 'ValueError'
    record = context_record([1.0, 2.0, 3.0, 4.0])
    example = transformed(record, [F.CONTEXT_FEATURES])
    np.testing.assert_array_equal(example[F.CONTEXT_FEATURES], [[1, 2], [3, 4]])


def test_batches_pad_contexts_of_any_number():
    records = [context_record([1.0, 2.0]), context_record([3.0, 4.0, 5.0, 6.0])]
    data = tf.data.Dataset.from_tensor_slices(records)
    data = data.map(lambda record: transformed(record, [F.CONTEXT_FEATURES]))
    (entries,) = batch(data, 2, drop_remainder=True)
    np.testing.assert_array_equal(entries[F.CONTEXT_FEATURES], [[[1, 2], [0, 0]], [[3, 4], [5, 6]]])
    np.testing.assert_array_equal(entries[F.VALID_CONTEXT_SIZE], [1, 2])


@pytest.mark.parametrize(('numbers', 'length'), [([1.0, 2.0, 3.0], 2), ([1.0], 0)])
def test_contexts_of_another_length_name_the_image(numbers, length):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r'(?s)context_features.*img 42'):
        transformed(context_record(numbers, length), [F.CONTEXT_FEATURES])


def test_keypoints_have_the_weights_of_their_types():
    record = examples.example(
        BOXES[:1],
        [1],
        image__object__keypoint__x=[0.1, 0.2, 0.3],
        image__object__keypoint__y=[0.1, 0.2, 0.3],
        image__object__keypoint__visibility=[2, 0, 1],
    )
    outputs = transformed(record, [], num_keypoints=3, keypoint_type_weights=(0.5, 1.0, 2.0))
    expected = [[0.5, 0, 2], [0, 0, 0], [0, 0, 0]]
    np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_KEYPOINT_WEIGHTS], expected)


def test_points_of_surfaces_follow_the_image():
    def lower_right(example, seed):
        # Rows from 0.2 of the 20, columns from 0.2 of the 30 on.
        size = [tf.constant(value) for value in (4, 6, 16, 24)]
        return cut_out(example, Window(*size), is_within=True)

    record = examples.example(BOXES, [1, 2], **DENSEPOSE)
    outputs = transformed(record, [F.GROUNDTRUTH_DP_POINTS], augmentations=(lower_right,))
    # Of the first object, the first point is cut off: the others move up.
    np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_DP_NUM_POINTS], [2, 1, 0])
    np.testing.assert_array_equal(
        outputs[F.GROUNDTRUTH_DP_PART_IDS][:2, :3], [[2, 3, 0], [4, 0, 0]]
    )
    points = outputs[F.GROUNDTRUTH_DP_POINTS]
    expected = [[0.25, 0.25], [0.0, 0.125], [0.0, 0.0]]
    np.testing.assert_allclose(points[0, :3], expected, atol=1e-6)
    np.testing.assert_allclose(points[1, :2], [[0.625, 0.875], [0, 0]], atol=1e-6)
    surface = outputs[F.GROUNDTRUTH_DP_SURFACE]
    np.testing.assert_allclose(surface[0, :3], [[0.25, 0.6], [0.35, 0.7], [0, 0]])
    assert points.shape == [3, 196, 2]


def test_points_of_surfaces_turn_but_are_not_mirrored():
    record = examples.example(BOXES, [1, 2], **DENSEPOSE)
    turn = RandomRotation90(probability=1.0)
    outputs = transformed(record, [F.GROUNDTRUTH_DP_POINTS], augmentations=(turn,))
    # (y, x) -> (1 - x, y)
    np.testing.assert_allclose(outputs[F.GROUNDTRUTH_DP_POINTS][1, 0], [0.1, 0.7], atol=1e-6)
    flip = RandomHorizontalFlip(probability=1.0)
    with pytest.raises(ValueError, match='no points on the surface of bodies'):
        transformed(record, [F.GROUNDTRUTH_DP_POINTS], augmentations=(flip,))


@rows.parametrize('num', [[3, 2], [-1, 5], [4], [197, 1]])
def test_wrong_numbers_of_points_name_the_image(num):
    changed = {**DENSEPOSE, 'image__object__densepose__num': num}
    record = examples.example(BOXES, [1, 2], source_id='img 42', **changed)
    with pytest.raises(tf.errors.InvalidArgumentError, match='img 42'):
        transformed(record, [F.GROUNDTRUTH_DP_POINTS])


def test_all_fields_of_objects_stay_together():
    """Object 1 has no area and object 2 an unknown class; both leave all fields."""
    record = examples.example(
        [[0.0, 0.0, 0.5, 0.5], [0.1, 0.1, 0.1, 0.2], [0.0, 0.0, 1.0, 1.0], [0.5, 0.5, 1.0, 1.0]],
        [1, 1, 0, 2],
        image__object__track__label=[5, 6, 7, 8],
        image__object__mask__weight=[0.1, 0.2, 0.3, 0.4],
        image__object__difficult=[1, 0, 0, 0],
        image__object__group_of=[0, 0, 0, 1],
        image__object__keypoint__x=[0.1, 0.2, 0.3, 0.9],
        image__object__keypoint__y=[0.1, 0.2, 0.3, 0.8],
        image__object__keypoint__z=[1.0, 2.0, 3.0, 4.0],
        image__object__densepose__num=[0, 1, 1, 1],
        image__object__densepose__part_index=[1, 2, 3],
        **{f'image__object__densepose__{side}': [0.2, 0.3, 0.4] for side in ('y', 'x', 'u', 'v')},
    )
    fields = [
        F.GROUNDTRUTH_TRACK_IDS,
        F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS,
        F.GROUNDTRUTH_KEYPOINT_DEPTHS,
        F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS,
        F.GROUNDTRUTH_DP_POINTS,
    ]
    outputs = transformed(record, fields, num_keypoints=1)
    expected = {
        F.GROUNDTRUTH_TRACK_IDS: [5, 8, -1],
        F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS: [0.1, 0.4, 0],
        F.GROUNDTRUTH_DIFFICULT: [1, 0, 0],
        F.GROUNDTRUTH_GROUP_OF: [0, 1, 0],
        F.GROUNDTRUTH_KEYPOINT_DEPTHS: [[1], [4], [0]],
        F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS: [[1], [1], [0]],
        F.GROUNDTRUTH_DP_NUM_POINTS: [0, 1, 0],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(outputs[name], values, err_msg=name)
    assert outputs[F.GROUNDTRUTH_DP_PART_IDS][1, 0] == 3
