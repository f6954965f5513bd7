"""Random crops and borders: against the reference, with what it drew."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.example_fields import OBJECT_FIELDS, ObjectField
from object_detection.core.fields import InputFields as F
from object_detection.data import instance_masks
from object_detection.data.augmentation.padding import RandomPadImage, RandomPadToAspectRatio
from object_detection.data.augmentation.random_crop import InOrder, RandomCropToAspectRatio
from object_detection.data.augmentation.scale import ScaleDraws
from object_detection.data.augmentation.window import Window, cut_out
from object_detection.resizers.resizer import resample
from tests import goldens, slow_cases
from tests.data import examples
from tests.data.augmentation import test_fixed_steps as steps
from tests.data.test_instance_masks import blobs
from tests.rows import parametrize


def drawn_window(case):
    """The crop that the reference drew, or None where it left the image as it is."""
    keys = [key for key in case.outputs if key.startswith('draws.strict_crop_image')]
    if not keys:
        return None
    begin, size = (case.outputs[key] for key in sorted(keys)[:2])
    return Window(*map(int, [*begin[:2], *size[:2]]))


def border(case):
    height, width, top, left = (int(case.outputs[f'draws.pad_image..{i}']) for i in range(4))
    return Window(-top, -left, height, width)


def drawn_crop(step, example, case):
    """What a crop makes of an example with the draws of the reference."""
    operation = case.outputs.get('draws.selector_tuples.ssd_crop_selector_id', 0)
    number, window = case.outputs.get('draws.crop_image.', 1.0), drawn_window(case)
    # The draw of another operation may be recorded.
    if step.operations[operation].random_coef == 0:
        number = 1.0
    assert bool(step.is_cropped(tf.constant(operation), tf.constant(number))) == bool(window)
    return step.crop(example, tf.constant(operation), window) if window else example


CONFIDENCES, MASK_WEIGHTS = 'groundtruth_confidences', 'groundtruth_instance_mask_weights'


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    """Adds fields of objects: steps need no change for them."""
    for name in (CONFIDENCES, MASK_WEIGHTS):
        monkeypatch.setitem(OBJECT_FIELDS, name, ObjectField(tf.float32))


def check(changed, example, case):
    """Compares all fields with the outputs of the reference, which lack what it did not change.

    It forgets some fields where it drops objects, and that keypoints that it drops are invisible.
    """
    count = len(changed[F.GROUNDTRUTH_BOXES])
    for name, value in example.items():
        expected = case.outputs.get(name, value)
        if name == F.IMAGE and name in case.outputs:
            expected = expected[0]
        if name not in case.outputs and len(value) != count and name != F.IMAGE:
            assert len(changed[name]) == count
            continue
        if name == F.GROUNDTRUTH_KEYPOINT_VISIBILITIES and name not in case.outputs:
            is_there = ~np.isnan(changed[F.GROUNDTRUTH_KEYPOINTS][..., 0])
            np.testing.assert_array_equal(changed[name] & is_there, expected & is_there)
            continue
        np.testing.assert_allclose(changed[name], expected, rtol=1e-5, atol=2e-5, err_msg=name)


@goldens.rows('preprocessor', prefix=('crop_image_', 'ssd_random_crop_s', 'ssd_random_crop_o'))
def test_crops_are_those_of_the_reference(case_name):
    case = goldens.load('preprocessor', case_name)
    step, example = steps.build(case.config), steps.golden_example(case)
    check(drawn_crop(step, example, case), example, case)


@goldens.rows('preprocessor', prefix='ssd_random_crop_fixed_ar_')
def test_crops_of_one_shape_are_those_of_the_reference(case_name):
    case = goldens.load('preprocessor', case_name)
    step, example = steps.build(case.config), steps.golden_example(case)
    assert isinstance(step, InOrder)
    crop, to_shape = step.steps
    changed = to_shape.crop(
        drawn_crop(crop, example, case),
        *(int(case.outputs[f'draws.crop_to_aspect_ratio..{i}']) for i in range(2)),
    )
    check(changed, example, case)


@goldens.rows('preprocessor', prefix='ssd_random_crop_pad_fixed_ar_')
def test_padded_crops_of_one_shape_are_those_of_the_reference(case_name):
    case = goldens.load('preprocessor', case_name)
    step, example = steps.build(case.config), steps.golden_example(case)
    crop, to_shape = step.steps
    cropped = drawn_crop(crop, example, case)
    scale = case.outputs['draws.pad_to_aspect_ratio.']
    least, greatest = to_shape.scales(tf.shape(cropped[F.IMAGE])[:2])
    assert least - 1e-6 <= scale <= greatest + 1e-6
    check(to_shape.pad(cropped, tf.constant(scale)), example, case)


@goldens.rows('preprocessor', prefix='crop_to_aspect_')
def test_crops_to_a_shape_are_those_of_the_reference(case_name):
    """One of them is in the centre, where steps here are by chance alone."""
    case = goldens.load('preprocessor', case_name)
    step, example = RandomCropToAspectRatio(), steps.golden_example(case)
    if case.config:
        step = steps.build(case.config)
    offset = (int(case.outputs[f'draws.crop_to_aspect_ratio..{i}']) for i in range(2))
    check(step.crop(example, *offset), example, case)


@goldens.parametrize('preprocessor', prefix='pad_to_aspect')
def test_borders_to_a_shape_are_those_of_the_reference(case_name):
    case = goldens.load('preprocessor', case_name)
    step, example = RandomPadToAspectRatio(**case.params['kwargs']), steps.golden_example(case)
    scale = tf.constant(case.outputs['draws.pad_to_aspect_ratio.'])
    check(step.pad(example, scale), example, case)


@goldens.rows('preprocessor', prefix='crop_pad_')
def test_borders_of_crops_are_those_of_the_reference(case_name):
    """The reference leaves masks and keypoints as they were; here they move."""
    case = goldens.load('preprocessor', case_name)
    step, example = steps.build(case.config), steps.golden_example(case)
    changed = step.pad(drawn_crop(step.random_crop, example, case), 0, border(case))
    moved = (F.GROUNDTRUTH_INSTANCE_MASKS, F.GROUNDTRUTH_KEYPOINTS)
    masks, image = changed[moved[0]], changed[F.IMAGE]
    assert masks.shape[1:] == image.shape[:2]
    assert len(masks) == len(changed[moved[1]]) == len(changed[F.GROUNDTRUTH_BOXES])
    kept = {name: value for name, value in example.items() if name not in moved}
    check(changed, kept | {moved[1]: changed[moved[1]]}, case)


@goldens.rows('preprocessor', prefix=('absolute_pad_', 'pad_image_'))
def test_borders_are_those_of_the_reference(case_name):
    """One of them is even on all sides, as borders here are by chance alone."""
    case = goldens.load('preprocessor', case_name)
    step, example = RandomPadImage(pad_color=(1.0, 2.0, 3.0)), steps.golden_example(case)
    if case.config:
        step = steps.build(case.config)
    check(step.pad(example, border(case)), example, case)


@goldens.rows('preprocessor', prefix='scale_crop_pad_')
def test_squares_are_those_of_the_reference(case_name):
    case = goldens.load('preprocessor', case_name)
    step, example = steps.build(case.config), steps.golden_example(case)
    expected = case.outputs[F.IMAGE][0]
    # The offset is not recorded: the whole resized image says where the square is in it.
    size = step.resized_size(tf.constant([30, 44]), tf.constant(step.scale_max)).numpy()
    whole = resample(example[F.IMAGE][tf.newaxis], tf.constant(size))[0].numpy()
    free = np.maximum(size - step.output_size, 0)
    square = slice(None, min(size[0], 40)), slice(None, min(size[1], 40))
    offset = min(
        np.ndindex(*free + 1),
        key=lambda at: np.abs(whole[at[0] :, at[1] :][:40, :40] - expected[square]).max(),
    )
    shares = [(at + 0.5) / max(rows, 1) for at, rows in zip(offset, free, strict=True)]
    draws = ScaleDraws(*map(tf.constant, [np.float32(step.scale_max), *np.float32(shares)]))
    changed = step.change(example, draws)
    assert changed[F.IMAGE].shape == (40, 40, 3)
    check(changed, example, case)


@goldens.rows('preprocessor', prefix='ssd_random_crop_pad_s')
def test_padded_crops_are_those_of_the_reference(case_name):
    """Nothing that was drawn is recorded: the image says where the crop and its border are."""
    case = goldens.load('preprocessor', case_name)
    step, example = steps.build(case.config), steps.golden_example(case)
    image = case.outputs[F.IMAGE][0]
    is_crop = (np.abs(image - image[-1, -1]) > 1e-3).any(axis=-1)
    rows, columns = np.flatnonzero(is_crop.any(axis=1)), np.flatnonzero(is_crop.any(axis=0))
    around = Window(-int(rows[0]), -int(columns[0]), *image.shape[:2])
    cropped = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    height, width, _ = cropped.shape
    whole = example[F.IMAGE].numpy()
    (top, left), *others = [
        (y, x)
        for y, x in np.ndindex(31 - height, 45 - width)
        if np.array_equal(whole[y : y + height, x : x + width], cropped)
    ]
    assert not others
    window = Window(top, left, height, width)
    crops = [
        step.pad(step.random_crop.crop(example, i, window), i, around)
        for i in range(len(step.random_crop.operations))
    ]
    same = [
        c for c in crops if len(c[F.GROUNDTRUTH_BOXES]) == len(case.outputs[F.GROUNDTRUTH_BOXES])
    ]
    check(same[0], example, case)
    least, greatest = step.sizes(tf.constant([30, 44]), 0)
    assert (least <= image.shape[:2]).numpy().all()
    assert (image.shape[:2] < greatest).numpy().all()


SSD_OPERATIONS = """ssd_random_crop {
  operations { min_aspect_ratio: 0.5 max_aspect_ratio: 2 min_area: 0.2 max_area: 0.5 }
  operations {
    min_object_covered: 0.9 min_aspect_ratio: 1 max_aspect_ratio: 1 min_area: 0.1 max_area: 1
    overlap_thresh: 0.8 clip_boxes: false random_coef: 0.5
  }
}"""
STEPS = (
    'random_crop_image { min_object_covered: 0 min_area: 0.5 overlap_thresh: 0 }',
    'ssd_random_crop {}',
    SSD_OPERATIONS,
    'ssd_random_crop_pad {}',
    'ssd_random_crop_fixed_aspect_ratio { aspect_ratio: 1.5 }',
    'ssd_random_crop_pad_fixed_aspect_ratio {}',
    'random_absolute_pad_image { max_height_padding: 9 max_width_padding: 13 }',
    'random_absolute_pad_image { max_height_padding: 9 max_width_padding: 9 pad_color: [1, 2, 3] }',
    'random_crop_to_aspect_ratio { aspect_ratio: 0.8 }',
    'random_pad_image { max_image_height: 60 max_image_width: 80 }',
    'random_crop_pad_image {}',
    'random_scale_crop_and_pad_to_square { output_size: 40 }',
)


def seeds(count):
    return [tf.constant([11, i], tf.int64) for i in range(count)]


def annotated(num_objects=4):
    """An image of noise with objects that carry their index in a field, and masks of both kinds."""
    masks, boxes = blobs()
    masks, boxes = masks[:num_objects], boxes[:num_objects]
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2
    return {
        F.IMAGE: tf.constant(examples.noise(37, 53)),
        F.GROUNDTRUTH_BOXES: tf.constant(boxes),
        F.GROUNDTRUTH_INSTANCE_MASKS: tf.constant(masks),
        F.GROUNDTRUTH_INSTANCE_MASK_CROPS: instance_masks.crop(masks, boxes, 16),
        F.GROUNDTRUTH_KEYPOINTS: tf.stack([boxes[:, :2], centers], axis=1),
        F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: tf.fill([num_objects, 2], True),
        MASK_WEIGHTS: tf.range(float(num_objects)),
    }


def mapped(step, example, count):
    return tf.data.Dataset.range(count).map(
        lambda i: step(example, tf.stack([tf.constant(11, tf.int64), i])), num_parallel_calls=2
    )


@slow_cases.parametrize(6, 'text', [*STEPS[1::2], *STEPS[::2]])
def test_objects_stay_with_their_pixels(text):
    step, example = steps.build(text), annotated()
    if 'to_square' in text:
        assert mapped(step, example, 1).element_spec[F.IMAGE].shape == (40, 40, 3)
    sizes, dropped = set(), 0
    for seed in seeds(12):
        changed = step(example, seed)
        sizes.add(tuple(changed[F.IMAGE].shape))
        dropped += 4 - len(changed[MASK_WEIGHTS])
        check_rows(changed, example, tolerance=1.5 if 'to_square' in text else 1e-3)
    assert len(sizes) > 1 or 'to_' in text
    assert dropped or 'pad_image {' in text


def check_rows(changed, example, tolerance):
    """Each mask is in its box, and its pixels, where they are not resized, are those of before."""
    image = changed[F.IMAGE].numpy()
    height, width, _ = image.shape
    masks, boxes = changed[F.GROUNDTRUTH_INSTANCE_MASKS].numpy(), changed[F.GROUNDTRUTH_BOXES]
    assert masks.shape == (len(boxes), height, width)
    kept = changed[MASK_WEIGHTS].numpy().astype(int)
    for row, mask, box in zip(kept, masks, boxes.numpy(), strict=True):
        ys, xs = np.nonzero(mask)
        assert not len(ys) or box[0] * height - tolerance <= ys.min()
        assert not len(xs) or xs.max() + 1 <= box[3] * width + tolerance
        before = example[F.IMAGE].numpy()[example[F.GROUNDTRUTH_INSTANCE_MASKS][row] == 1]
        assert tolerance > 1 or set(map(tuple, image[ys, xs])) <= set(map(tuple, before))


@pytest.mark.parametrize('text', ['ssd_random_crop_pad {}', STEPS[-1]])
def test_an_image_without_objects(text):
    changed = next(iter(mapped(steps.build(text), annotated(num_objects=0), 1)))
    assert changed[F.GROUNDTRUTH_BOXES].shape == (0, 4)
    assert changed[F.GROUNDTRUTH_INSTANCE_MASKS].shape == (0, *changed[F.IMAGE].shape[:2])


def test_one_operation_is_drawn_for_each_image():
    step, example = steps.build('ssd_random_crop {}'), annotated()
    draw = tf.function(
        lambda seed: (step.draw_operation(seed), step(example, seed)[F.IMAGE]), autograph=False
    )
    drawn = [draw(seed) for seed in seeds(150)]
    counts = np.bincount([int(operation) for operation, _ in drawn], minlength=7)
    assert len(counts) == 7
    assert counts.min() >= 8
    unchanged = sum(image.shape == (37, 53, 3) for _, image in drawn)
    assert 8 <= unchanged <= 70  # 0.15, and crops of the whole image
    assert drawn[0][1].dtype == tf.uint8


def test_crops_meet_their_constraints():
    step = steps.build(SSD_OPERATIONS)
    example = {F.IMAGE: tf.zeros([60, 80, 3]), F.GROUNDTRUTH_BOXES: tf.constant([BOX])}
    draw = tf.function(step.draw_window, autograph=False)
    for seed in seeds(30):
        top, left, height, width = map(int, draw(example, tf.constant(0), seed))
        assert 0.19 < height * width / 4800 < 0.52
        assert 0.45 < width / height < 2.1
        top, left, height, width = map(int, draw(example, tf.constant(1), seed))
        assert abs(width - height) <= 1
        inside = [max(top, 18), max(left, 16), min(top + height, 42), min(left + width, 40)]
        assert (inside[2] - inside[0]) * (inside[3] - inside[1]) >= 0.85 * 24 * 24


# In an image of 60 x 80 pixels 24 x 24 pixels large.
BOX = [0.3, 0.2, 0.7, 0.5]


@pytest.mark.parametrize('clip', [False, True])
def test_boxes_that_are_not_clipped_keep_their_size(clip):
    example = {
        F.IMAGE: tf.zeros([60, 80, 3]),
        F.GROUNDTRUTH_BOXES: tf.constant([BOX, [0, 0, 0.2, 0.1]]),
        F.GROUNDTRUTH_INSTANCE_MASK_CROPS: tf.fill([2, 5, 5], tf.constant(255, tf.uint8)),
        F.GROUNDTRUTH_KEYPOINTS: tf.constant([[[0.4, 0.3], [0.6, 0.3]]] * 2),
        F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: tf.constant([[True, True]] * 2),
    }
    cut = cut_out(example, Window(30, 8, 30, 40), is_within=True, min_overlap=0.4, clip=clip)
    expected = [0 if clip else -0.4, 0.2, 0.4, 0.8]
    np.testing.assert_allclose(cut[F.GROUNDTRUTH_BOXES], [expected], atol=1e-6)
    crop = cut[F.GROUNDTRUTH_INSTANCE_MASK_CROPS][0].numpy()
    np.testing.assert_array_equal(crop[:, 0], [255] * 5 if clip else [0, 0, 255, 255, 255])
    visible = cut[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES].numpy()
    np.testing.assert_array_equal(visible, [[not clip, True]])
    assert np.isnan(cut[F.GROUNDTRUTH_KEYPOINTS].numpy()).any() == clip


def test_slivers_are_dropped():
    boxes = [
        [0.1, 0.1, 0.5, 0.5],
        [0.1, 0.1, 0.509, 0.9],
        [0.1, 0.1, 0.6, 0.501],
        [0.6] * 2 + [0.604] * 2,
    ]
    example = {
        F.IMAGE: tf.zeros([100, 100, 3]),
        F.GROUNDTRUTH_BOXES: tf.constant(boxes),
        MASK_WEIGHTS: tf.range(4.0),
    }
    window = Window(50, 0, 50, 100)
    kept = cut_out(example, window)[MASK_WEIGHTS]
    np.testing.assert_array_equal(kept, [1, 2, 3])
    # Less than a pixel of the second one is left; the last one is as small as it was.
    kept = cut_out(example, window, min_pixels=1.0)[MASK_WEIGHTS]
    np.testing.assert_array_equal(kept, [2, 3])


def test_no_side_is_zero():
    step = steps.build('random_scale_crop_and_pad_to_square { output_size: 20 scale_max: 0.1 }')
    example = {F.IMAGE: tf.ones([3, 900, 3]), F.GROUNDTRUTH_BOXES: tf.constant([[0.0, 0, 1, 1]])}
    changed = step(example, steps.SEED)
    np.testing.assert_array_equal(np.nonzero(changed[F.IMAGE].numpy().sum(axis=-1))[0], [0, 0])
    np.testing.assert_allclose(changed[F.GROUNDTRUTH_BOXES], [[0, 0, 0.05, 0.1]], rtol=1e-6)


OPERATION = 'min_aspect_ratio: 1 max_aspect_ratio: 1 min_area: 0.1 max_area: 1'


@parametrize(
    ('text', 'message'),
    [
        ('random_crop_image { min_area: 0 }', 'random_crop_image.min_area: expected above 0'),
        ('random_crop_image { max_area: 2 }', 'max_area: expected above 0, up to 1. Received: 2'),
        ('random_crop_image { min_aspect_ratio: 2 }', 'max_aspect_ratio. Received: 2 and 1.33'),
        ('random_crop_image { overlap_thresh: -1 }', 'overlap_thresh: expected 0 to 1'),
        (f'ssd_random_crop {{ operations {{ {OPERATION} }} operations {{}} }}', r'operations\[1\]'),
        (
            f'ssd_random_crop_pad {{ operations {{ {OPERATION} min_padded_size_ratio: 3 }} }}',
            r'operations\[0\]: expected two numbers in min_padded_size_ratio',
        ),
        (
            'ssd_random_crop_pad_fixed_aspect_ratio { max_padded_size_ratio: [0.5, 2] }',
            'smallest <= greatest',
        ),
        (
            'ssd_random_crop_fixed_aspect_ratio { aspect_ratio: -1 }',
            'aspect_ratio: expected above 0',
        ),
        ('random_pad_image { min_image_height: 3 }', 'expected both of min_image_height'),
        (
            'random_pad_image { max_image_height: 3 max_image_width: 0 }',
            'max_image_width: expected 1 to 16384',
        ),
        ('random_crop_to_aspect_ratio { aspect_ratio: 0 }', 'aspect_ratio: expected above 0'),
        (
            'random_absolute_pad_image { max_height_padding: -1 }',
            'max_height_padding: expected 0 to 16384. Received: -1',
        ),
        (
            'random_absolute_pad_image {'
            ' max_height_padding: 1 max_width_padding: 1 pad_color: [1, 2] }',
            'pad_color: expected none, or 3',
        ),
        (
            'ssd_random_crop_pad_fixed_aspect_ratio { aspect_ratio: 1e9 }',
            'aspect_ratio: expected 0.03125 to 32. Received: 1e[+]09',
        ),
        (
            'random_scale_crop_and_pad_to_square { scale_min: 3 }',
            'expected 0 < scale_min <= scale_max <= 32. Received: 3 and 2',
        ),
    ],
)
def test_wrong_fields_are_reported(text, message):
    with pytest.raises(ValueError, match=message):
        steps.build(text)


@pytest.mark.parametrize('text', ['', 'max_height_padding: 0 max_width_padding: 0'])
def test_a_border_of_no_size_is_none(text):
    """As of size 1 in the reference, of which a border has less."""
    step, example = steps.build(f'random_absolute_pad_image {{ {text} }}'), annotated()
    found = step(example, seeds(1)[0])
    for key, value in example.items():
        np.testing.assert_array_equal(found[key], value, err_msg=str(key))


@pytest.mark.parametrize('color', [300, -1])
def test_colors_beyond_those_of_bytes_stay_as_they_are(color):
    """An image that is normalized before may have them; as bytes they would be other colours."""
    text = 'max_height_padding: 1000 max_width_padding: 1 pad_color: '
    step = steps.build(f'random_absolute_pad_image {{ {text} {[color] * 3} }}')
    example = {F.IMAGE: tf.zeros([1, 1, 3], tf.uint8), F.GROUNDTRUTH_BOXES: tf.zeros([0, 4])}
    image = step(example, steps.SEED)[F.IMAGE]
    assert set(np.unique(image)) == {0, color}
