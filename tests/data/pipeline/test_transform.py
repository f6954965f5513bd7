import io

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from PIL import Image

from object_detection.builders import image_resizer_builder
from object_detection.core.example_fields import OBJECT_FIELDS
from object_detection.core.fields import InputFields as F
from object_detection.data import objects
from object_detection.data.decoder import ExampleDecoder
from object_detection.data.pipeline import transform as pipeline
from object_detection.data.pipeline.transform import ExampleTransform
from object_detection.protos import image_resizer_pb2
from object_detection.resizers.fixed_sizes import FixedShapeResizer, PadToMultipleResizer
from object_detection.resizers.keep_aspect_ratio import KeepAspectRatioResizer
from tests import goldens
from tests.data import examples
from tests.data.test_instance_masks import blobs

SEED = tf.constant([0, 0], tf.int64)


def make(resizer=None, **options):
    return ExampleTransform(
        resizer=resizer or FixedShapeResizer(height=40, width=60),
        **{'num_classes': 3, 'max_number_of_boxes': 4, **options},
    )


def run(boxes=(), labels=(), *, transform=None, mask_type=None, **record):
    decoder = ExampleDecoder(mask_type=mask_type)
    return (transform or make())(decoder(examples.example(boxes, labels, **record)), SEED)


@goldens.rows(
    'input_transforms',
    prefix=(
        'additional',
        'bfloat16',
        'confidences',
        'fixed',
        'inverted',
        'keep_',
        'keypoint_w',
        'merge',
        'multiclass_scores',
        'nan',
        'noboxes',
        'unrec',
    ),
)
def test_matches_the_reference(case_name):
    case = goldens.load('input_transforms', case_name)
    resizer = text_format.Parse(case.config, image_resizer_pb2.ImageResizer())
    transform = ExampleTransform(
        resizer=image_resizer_builder.build(resizer),
        num_classes=18,
        max_number_of_boxes=case.params.get('max_num_boxes', 5),
        mask_crop_size=0,
        merge_multiple_label_boxes=case.params.get('merge_multiple_boxes', False),
        use_multiclass_scores=case.params.get('use_multiclass_scores', False),
        keypoint_type_weights=tuple(case.params.get('keypoint_type_weight', ())),
    )
    num_objects = len(case.inputs[F.GROUNDTRUTH_BOXES])
    inputs = {
        name: tf.constant(value)
        for name, value in case.inputs.items()
        # The reference's decoder leaves fields that a record lacks without rows.
        if name not in OBJECT_FIELDS or len(value) == num_objects
    }
    for name in (F.GROUNDTRUTH_DIFFICULT, F.GROUNDTRUTH_GROUP_OF):
        inputs.setdefault(name, tf.zeros([num_objects], bool))
    # The decoder gives a class of the image without a confidence 1.
    num_classes = len(case.inputs[F.GROUNDTRUTH_IMAGE_CLASSES])
    if len(case.inputs[F.GROUNDTRUTH_IMAGE_CONFIDENCES]) != num_classes:
        inputs[F.GROUNDTRUTH_IMAGE_CONFIDENCES] = tf.ones([num_classes])
    if F.IMAGE_ADDITIONAL_CHANNELS in inputs:
        # The decoder here returns all channels as one image.
        further = inputs.pop(F.IMAGE_ADDITIONAL_CHANNELS)
        inputs[F.IMAGE] = tf.concat([inputs[F.IMAGE], further], axis=-1)
    if F.GROUNDTRUTH_INSTANCE_MASKS in inputs:
        masks = inputs[F.GROUNDTRUTH_INSTANCE_MASKS]
        inputs[F.GROUNDTRUTH_INSTANCE_MASKS] = tf.cast(masks, tf.uint8)
    if F.MULTICLASS_SCORES in case.inputs:
        # As the decoder here returns them.
        scores = case.inputs[F.MULTICLASS_SCORES]
        scores = np.reshape(scores, [num_objects, len(scores) // num_objects])
        inputs[F.MULTICLASS_SCORES] = tf.constant(scores)
    if case_name == 'multiclass_scores':
        assert case.raises == 'InvalidArgumentError'
        with pytest.raises(tf.errors.InvalidArgumentError, match='not of the 18 classes'):
            transform(inputs, SEED)
        return
    outputs = transform(inputs, SEED)
    if case_name == 'bfloat16':
        # The batch stays float32 here; the detector rounds it.
        rounded = tf.cast(outputs[F.IMAGE], tf.bfloat16)
        outputs[F.IMAGE] = tf.cast(rounded, tf.float32)
    if case_name == 'inverted_box':
        # The reference stops the training; here the object is left out and counted.
        assert case.raises == 'InvalidArgumentError'
        assert outputs[F.NUM_GROUNDTRUTH_BOXES] == 2
        assert outputs[F.NUM_INVALID_OBJECTS] == 1
        return
    names = {name[2:] for name in case.outputs if name.startswith('p/')} & outputs.keys()
    if case_name in ('additional_channels', 'merge_boxes', 'nan_boxes', 'unrecognized'):
        # The reference drops rows of boxes and classes alone; the weights belong to other objects.
        names.remove(F.GROUNDTRUTH_WEIGHTS)
    assert {F.IMAGE, F.GROUNDTRUTH_BOXES, F.GROUNDTRUTH_CLASSES} <= names
    if case_name == 'multiclass_scores_empty':
        # The reference takes ids for indices there: every class is one too far.
        classes = tf.one_hot(case.inputs[F.GROUNDTRUTH_CLASSES] - 1, 18)
        np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_CLASSES][:num_objects], classes)
        names.remove(F.GROUNDTRUTH_CLASSES)
    # The reference pads the list of confidences: they no longer tell their classes.
    names.discard(F.GROUNDTRUTH_IMAGE_CONFIDENCES)
    for name in names - {F.HASH_FROM_SOURCE_ID, F.SOURCE_ID}:
        expected, actual = case.outputs[f'p/{name}'], outputs[name].numpy()
        if name == F.GROUNDTRUTH_KEYPOINTS:
            # Padding rows are zero there and NaN, not labelled, here.
            count = outputs[F.NUM_GROUNDTRUTH_BOXES]
            assert np.isnan(actual[count:]).all()
            expected, actual = expected[:count], actual[:count]
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5, err_msg=name)


def test_rows_stay_together_when_objects_are_dropped():
    boxes = [
        [0.1, 0.1, 0.5, 0.5],
        [np.nan, 0.1, 0.5, 0.5],
        [0.6, 0.1, 0.5, 0.5],
        [0.2, 0.2, 0.2, 0.6],
        [-0.1, 0.0, 0.5, 1.2],
        [1.0, 0.0, 1.3, 0.5],
        [0.3, 0.3, 0.9, 0.9],
        [0.0, 0.0, 1.0, 1.0],
    ]
    masks = np.zeros((8, 20, 30))
    masks[0], masks[4], masks[7] = 1, np.arange(30) < 15, 0
    transform = make(mask_crop_size=3, max_number_of_boxes=5)
    outputs = run(
        boxes,
        [1, 1, 1, 1, 2, 1, 0, 3],
        transform=transform,
        mask_type='png',
        masks=masks,
        image__object__weight=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8],
        image__object__area=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        image__object__is_crowd=[0, 0, 0, 0, 0, 0, 0, 1],
    )
    # Left out: NaN, inverted, no area, no area after clipping, class 0.
    assert outputs[F.NUM_INVALID_OBJECTS] == 5
    assert outputs[F.NUM_GROUNDTRUTH_BOXES] == 3
    kept = [[0.1, 0.1, 0.5, 0.5], [0, 0, 0.5, 1], [0, 0, 1, 1], [0] * 4, [0] * 4]
    np.testing.assert_allclose(outputs[F.GROUNDTRUTH_BOXES], kept)
    np.testing.assert_allclose(outputs[F.GROUNDTRUTH_WEIGHTS], [0.1, 0.5, 0.8, 0, 0])
    np.testing.assert_allclose(outputs[F.GROUNDTRUTH_AREA], [1, 5, 8, 0, 0])
    np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_IS_CROWD], [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(
        outputs[F.GROUNDTRUTH_CLASSES],
        [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]],
    )
    crops = outputs[F.GROUNDTRUTH_INSTANCE_MASK_CROPS]
    np.testing.assert_array_equal(crops[0], np.full((3, 3), 255))
    np.testing.assert_array_equal(crops[1], [[255, 128, 0]] * 3)
    np.testing.assert_array_equal(crops[2:], np.zeros((3, 3, 3)))


def test_evaluation_ground_truth_is_exact():
    boxes = [[-0.1, 0.0, 0.5, 1.2], [0.6, 0.1, 0.5, 0.5], [0.2, 0.2, 0.2, 0.6], [0, 0, 1, 1]]
    masks = np.random.default_rng(0).integers(0, 2, (4, 20, 30))
    transform = make(num_classes=9, for_evaluation=True, max_number_of_boxes=1)
    outputs = run(boxes, [1, 1, 9, 3], transform=transform, mask_type='png', masks=masks)
    # All but the inverted box, though training would take one object alone.
    np.testing.assert_allclose(outputs[F.EVALUATION_BOXES], np.take(boxes, [0, 2, 3], 0))
    np.testing.assert_array_equal(outputs[F.EVALUATION_CLASSES], [1, 9, 3])
    assert outputs[F.NUM_EVALUATION_BOXES] == 3
    assert outputs[F.EVALUATION_MASKS][1] == examples.png(masks[2])
    assert outputs[F.NUM_EXCESS_OBJECTS] == 1
    assert outputs[F.GROUNDTRUTH_INSTANCE_MASK_CROPS].shape == (1, 112, 112)


def test_evaluation_keypoints_are_those_of_the_original_image():
    points = np.linspace(0.1, 1, 12, dtype=np.float32).reshape(3, 2, 2)
    record = examples.example(
        [[0.1, 0.1, 0.5, 0.5], [0.6, 0.1, 0.5, 0.5], [0.2, 0.2, 0.8, 0.6]],
        [1, 1, 2],
        image=examples.png(examples.noise(20, 30)),
        image__object__keypoint__y=points[..., 0].ravel().tolist(),
        image__object__keypoint__x=points[..., 1].ravel().tolist(),
        image__object__keypoint__visibility=[2, 0, 2, 2, 1, 2],
    )
    transform = make(
        for_evaluation=True, max_number_of_boxes=1, resizer=PadToMultipleResizer(multiple=64)
    )
    outputs = transform(ExampleDecoder(num_keypoints=2)(record), SEED)
    # Without the inverted box; hidden points have no coordinates.
    points[0, 1] = np.nan
    np.testing.assert_array_equal(outputs[F.EVALUATION_KEYPOINTS], points[[0, 2]])
    seen = outputs[F.EVALUATION_KEYPOINT_VISIBILITIES]
    np.testing.assert_array_equal(seen, [[True, False], [True, True]])
    # Those of training are in the frame of the padded image.
    np.testing.assert_allclose(
        outputs[F.GROUNDTRUTH_KEYPOINTS][0, 0], points[0, 0] * [20 / 64, 30 / 64], rtol=1e-6
    )


def test_objects_are_cut_to_the_number_of_rows_after_augmentation():
    # Objects 0 and 1 are cropped away: the two rows belong to the objects that are left.
    boxes = [[0.1 * i, 0.0, 0.1 * i + 0.05, 1.0] for i in range(5)]
    lower = make(
        max_number_of_boxes=2,
        augmentations=(lambda example, seed: objects.select(example, tf.range(2, 5)),),
    )
    outputs = run(boxes, [1, 2, 3, 1, 2], transform=lower)
    np.testing.assert_allclose(outputs[F.GROUNDTRUTH_BOXES], boxes[2:4], rtol=1e-6)
    assert outputs[F.NUM_GROUNDTRUTH_BOXES] == 2
    assert outputs[F.NUM_EXCESS_OBJECTS] == 1


@pytest.mark.parametrize('mask_crop_size', [0, 8])
def test_an_augmentation_may_add_objects(mask_crop_size):
    boxes = [[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0], [0.0, 0.5, 0.5, 1.0]]

    def twice(example, seed):
        return objects.select(example, tf.concat([tf.range(3), tf.range(3)], 0))

    transform = make(mask_crop_size=mask_crop_size, augmentations=(twice,))
    options = {'mask_type': 'png', 'masks': np.ones((3, 20, 30))}
    outputs = run(boxes, [1, 2, 3], transform=transform, **options)
    np.testing.assert_allclose(outputs[F.GROUNDTRUTH_BOXES], [*boxes, boxes[0]])
    assert outputs[F.NUM_EXCESS_OBJECTS] == 2
    masks = F.GROUNDTRUTH_INSTANCE_MASK_CROPS if mask_crop_size else F.GROUNDTRUTH_INSTANCE_MASKS
    assert outputs[masks].shape[0] == 4


@pytest.mark.parametrize('mask_crop_size', [0, 8])
def test_a_mask_of_another_size_is_refused_with_its_image(mask_crop_size):
    transform = make(mask_crop_size=mask_crop_size)
    masks = {'mask_type': 'png', 'masks': [np.ones((30, 20))], 'source_id': 'img 42'}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r'(?s)another size than .*42'):
        run([[0, 0, 1, 1]], [1], transform=transform, **masks)


def test_masks_of_16_bits_are_not_black():
    file = io.BytesIO()
    Image.fromarray(np.ones((20, 30), np.uint16)).save(file, 'PNG')
    masks = {'mask_type': 'png', 'image__object__mask': [file.getvalue()]}
    outputs = run([[0, 0, 1, 1]], [1], transform=make(mask_crop_size=8), **masks)
    assert tf.reduce_min(outputs[F.GROUNDTRUTH_INSTANCE_MASK_CROPS][0]) == 255


def test_numerical_masks_are_encoded_for_evaluation():
    masks, boxes = blobs()
    record = examples.example(
        boxes,
        [1] * 4,
        image=examples.png(examples.noise(37, 53)),
        image__height=[37],
        image__width=[53],
        image__object__mask=masks.ravel().astype(float).tolist(),
    )
    outputs = make(for_evaluation=True)(ExampleDecoder(mask_type='numerical')(record), SEED)
    decoded = [tf.io.decode_png(mask)[..., 0] for mask in outputs[F.EVALUATION_MASKS]]
    np.testing.assert_array_equal(decoded, masks)
    assert outputs[F.GROUNDTRUTH_INSTANCE_MASK_CROPS].shape == (4, 112, 112)


@pytest.mark.parametrize('mask_crop_size', [0, 8])
def test_numerical_masks_of_another_size_are_refused_with_their_image(mask_crop_size):
    masks, boxes = blobs()
    record = examples.example(
        boxes,
        [1] * 4,
        source_id='img 42',
        image=examples.png(examples.noise(37, 53)),
        image__height=[53],
        image__width=[37],
        image__object__mask=masks.ravel().astype(float).tolist(),
    )
    decoder, transform = ExampleDecoder(mask_type='numerical'), make(mask_crop_size=mask_crop_size)
    dataset = tf.data.Dataset.from_tensors(record)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r'(?s)have another size .*42'):
        list(dataset.map(lambda serialized: transform(decoder(serialized), SEED)))


def test_both_kinds_of_masks_give_the_same_crops():
    masks, boxes = blobs()
    image = examples.png(examples.noise(37, 53))
    png = run(boxes, [1] * 4, mask_type='png', masks=masks, image=image)
    numerical = run(
        boxes,
        [1] * 4,
        mask_type='numerical',
        image=image,
        image__height=[37],
        image__width=[53],
        image__object__mask=masks.ravel().astype(float).tolist(),
    )
    np.testing.assert_array_equal(
        png[F.GROUNDTRUTH_INSTANCE_MASK_CROPS], numerical[F.GROUNDTRUTH_INSTANCE_MASK_CROPS]
    )


def test_full_size_masks_are_resized_with_the_image():
    masks, boxes = blobs()
    resizer = KeepAspectRatioResizer(min_dimension=74, max_dimension=106, pad_to_max_dimension=True)
    image = examples.png(examples.noise(37, 53))
    outputs = run(
        boxes,
        [1] * 4,
        transform=make(resizer, mask_crop_size=0, max_number_of_boxes=6),
        mask_type='png',
        masks=masks,
        image=image,
    )
    full = outputs[F.GROUNDTRUTH_INSTANCE_MASKS]
    assert full.shape == (6, 106, 106)
    np.testing.assert_array_equal(full[:4, :74], np.repeat(np.repeat(masks, 2, 1), 2, 2))
    assert not tf.reduce_any(full[4:] > 0)
    assert not tf.reduce_any(full[:, 74:] > 0)
    # Boxes are relative to the padded image.
    scaled = boxes * [74 / 106, 1, 74 / 106, 1]
    np.testing.assert_allclose(outputs[F.GROUNDTRUTH_BOXES][:4], scaled, rtol=1e-6)
    np.testing.assert_array_equal(outputs[F.TRUE_IMAGE_SHAPE], [74, 106, 3])
    np.testing.assert_array_equal(outputs[F.ORIGINAL_IMAGE_SPATIAL_SHAPE], [37, 53])


def test_merged_boxes_keep_the_rows_of_the_first():
    boxes = [[0, 0, 0.5, 0.5], [0, 0, 1, 1], [0, 0, 0.5, 0.5]]
    masks = np.stack([np.full((20, 30), value) for value in (1, 0, 0)])
    outputs = run(
        boxes,
        [1, 2, 3],
        transform=make(merge_multiple_label_boxes=True, mask_crop_size=2),
        mask_type='png',
        masks=masks,
        image__object__weight=[0.5, 0.25, 0.125],
    )
    assert outputs[F.NUM_GROUNDTRUTH_BOXES] == 2
    np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_CLASSES][:2], [[1, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_WEIGHTS], [0.5, 0.25, 0, 0])
    crops = outputs[F.GROUNDTRUTH_INSTANCE_MASK_CROPS]
    assert crops[0, 0, 0] == 255
    assert crops[1, 0, 0] == 0


def test_class_weights_multiply_those_of_the_record():
    boxes = [[0.1, 0.1, 0.5, 0.5], [0.2, 0.2, 0.6, 0.6], [0.2, 0.2, 0.6, 0.6]]
    options = {'class_weights': (0.0, 4.0, 3.0), 'mask_crop_size': 2}
    record = {'image/object/weight': [1.0, 0.5, 0.25]}
    outputs = run(boxes, [1, 2, 3], transform=make(**options), **record)
    np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_WEIGHTS], [0.0, 2.0, 0.75, 0.0])
    # One object of two classes has the larger of their weights.
    merged = make(merge_multiple_label_boxes=True, **options)
    outputs = run(boxes, [1, 3, 2], transform=merged, **record)
    np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_WEIGHTS], [0.0, 2.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r'expected none or 3 numbers\. Received: 2'):
        make(class_weights=(1.0, 1.0))


def test_stored_scores_are_soft_labels_and_stay_with_their_objects():
    boxes = [[0.1, 0.1, 0.5, 0.5], [np.nan, 0, 1, 1], [0.2, 0.2, 0.6, 0.6]]
    scores = np.arange(9).reshape(3, 3) / 8
    decoder = ExampleDecoder(fields=[F.MULTICLASS_SCORES])
    record = examples.example(
        boxes, [1, 2, 3], image__object__class__multiclass_scores=scores.ravel().tolist()
    )
    transform = make(use_multiclass_scores=True, class_weights=(0.5, 1.0, 0.25))
    outputs = transform(decoder(record), SEED)
    np.testing.assert_allclose(outputs[F.GROUNDTRUTH_CLASSES][:2], scores[[0, 2]])
    # The class that the record names tells the weight.
    np.testing.assert_array_equal(outputs[F.GROUNDTRUTH_WEIGHTS], [0.5, 0.25, 0, 0])
    assert F.MULTICLASS_SCORES not in outputs
    hard = transform(decoder(examples.example(boxes, [1, 2, 3])), SEED)
    np.testing.assert_array_equal(hard[F.GROUNDTRUTH_CLASSES][:2], [[1, 0, 0], [0, 0, 1]])
    empty = transform(decoder(examples.example()), SEED)
    assert empty[F.GROUNDTRUTH_CLASSES].shape == (4, 3)


def test_soft_labels_need_scores_and_are_not_merged():
    transform = make(use_multiclass_scores=True)
    with pytest.raises(ValueError, match='use_multiclass_scores: expected examples with'):
        run([[0, 0, 1, 1]], [1], transform=transform)
    with pytest.raises(ValueError, match='expected use_multiclass_scores or merge_'):
        make(use_multiclass_scores=True, merge_multiple_label_boxes=True)


def test_a_class_above_num_classes_is_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r'(?s)num_classes \(3\).*img 4'):
        run([[0, 0, 1, 1]], [4], source_id='img 4')


def test_an_image_without_objects():
    transform = make(for_evaluation=True, mask_crop_size=7)
    outputs = run(transform=transform, mask_type='png')
    assert outputs[F.NUM_GROUNDTRUTH_BOXES] == 0
    assert not np.any(outputs[F.GROUNDTRUTH_BOXES])
    assert outputs[F.GROUNDTRUTH_INSTANCE_MASK_CROPS].shape == (4, 7, 7)
    assert outputs[F.EVALUATION_MASKS].shape == (0,)


def test_source_ids_and_their_hashes():
    same, other = run(source_id='b'), run(source_id='c')
    assert same[F.HASH_FROM_SOURCE_ID].dtype == tf.int32
    assert same[F.HASH_FROM_SOURCE_ID] == run(source_id='b')[F.HASH_FROM_SOURCE_ID]
    assert same[F.HASH_FROM_SOURCE_ID] != other[F.HASH_FROM_SOURCE_ID]
    assert same[F.HASH_FROM_SOURCE_ID] >= 0
    named = run(source_id='', image__filename=[b'x.jpg'])
    assert named[F.SOURCE_ID] == b'x.jpg'
    assert F.FILENAME not in named
    transform = make(for_evaluation=True)
    assert run(transform=transform, image__filename=[b'x.jpg'])[F.FILENAME] == b'x.jpg'
    assert run(transform=transform)[F.FILENAME] == b''


def test_inside_tf_data_as_alone():
    masks, boxes = blobs()
    record = examples.example(
        boxes, [1, 2, 3, 1], image=examples.png(examples.noise(37, 53)), masks=masks
    )
    decoder, transform = ExampleDecoder(mask_type='png'), make(for_evaluation=True)
    data = tf.data.Dataset.from_tensors(record).map(lambda r: transform(decoder(r), SEED))
    expected = transform(decoder(record), SEED)
    mapped = next(iter(data))
    assert mapped.keys() == expected.keys()
    for name, value in mapped.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_images_of_different_sizes_are_padded_to_the_largest_of_the_batch():
    records = [
        examples.example([[0, 0, 1, 1]], [1], image=examples.png(examples.noise(20, 30))),
        examples.example([[0.5, 0, 1, 1]] * 2, [1, 2], image=examples.png(examples.noise(40, 20))),
    ]
    resizer = KeepAspectRatioResizer(min_dimension=20, max_dimension=30)
    transform = make(resizer, for_evaluation=True)
    data = tf.data.Dataset.from_tensor_slices(records)
    data = data.map(lambda record: transform(ExampleDecoder()(record), SEED))
    batch = next(iter(pipeline.batch(data, 2, drop_remainder=True)))
    assert batch[F.IMAGE].shape == (2, 30, 30, 3)
    np.testing.assert_array_equal(batch[F.TRUE_IMAGE_SHAPE], [[20, 30, 3], [30, 15, 3]])
    np.testing.assert_array_equal(batch[F.IMAGE][0, :20], examples.noise(20, 30))
    np.testing.assert_allclose(batch[F.GROUNDTRUTH_BOXES][0, 0], [0, 0, 2 / 3, 1])
    np.testing.assert_allclose(batch[F.GROUNDTRUTH_BOXES][1, 1], [0.5, 0, 1, 0.5])
    np.testing.assert_array_equal(batch[F.EVALUATION_BOXES][0], [[0, 0, 1, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(batch[F.NUM_EVALUATION_BOXES], [1, 2])
    assert 'image_size' not in batch
