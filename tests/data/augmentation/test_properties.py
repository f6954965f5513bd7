"""What holds for every step of the schema: tried with examples and values that are generated.

A step that is added is tried too. All fields of objects stay in step, boxes and pixels stay in
their ranges, and the same seed gives the same bits alone, in a graph, and in tf.data.

The default run tries few examples of each step, always the same ones; `pytest -m slow` tries 500,
other ones each time.
"""

import dataclasses

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from object_detection.builders import preprocessor_builder, training_rules
from object_detection.core.example_fields import OBJECT_FIELDS
from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation import choice
from tests.data.augmentation import generated
from tests.data.augmentation import test_fixed_steps as steps

KINDS = sorted(preprocessor_builder.AUGMENTATIONS)
FACTS = {
    kind: training_rules.step_facts(preprocessor_builder.build_sample_steps(kind)) for kind in KINDS
}
# The permutation of keypoints by which flips replace them.
_PERMUTATION = 'permutation: [1, 0, 3, 2]'
# Steps with fields that must be set, that are rarely applied as they are, or that are for images of
# more pixels than here.
MINIMAL = {
    'copy_paste': 'object_probability: 0.7',
    'drop_label_probabilistically': 'label: 1 drop_probability: 0.5',
    'large_scale_jitter': 'height: 24 width: 20',
    'mosaic': 'height: 24 width: 20',
    'normalize_image': 'original_maxval: 255',
    'one_of': 'steps { random_horizontal_flip { keypoint_flip_permutation: [1, 0, 3, 2] } } '
    'steps { random_square_crop_by_scale {} } steps { random_jitter_boxes {} } '
    'weights: [1, 2, 1]',
    'random_absolute_pad_image': 'max_height_padding: 9 max_width_padding: 12',
    'random_affine': 'max_degrees: 45 max_shear_degrees: 10',
    'random_downscale_to_target_pixels': 'min_target_pixels: 40 max_target_pixels: 400',
    'random_horizontal_flip': f'keypoint_flip_{_PERMUTATION}',
    'random_resize_method': 'target_height: 24 target_width: 20',
    'random_rgb_to_gray': 'probability: 0.5',
    'random_scale_crop_and_pad_to_square': 'output_size: 24',
    'random_self_concat_image': 'concat_vertical_probability: 0.5 concat_horizontal_probability: 1',
    'random_vertical_flip': f'keypoint_flip_{_PERMUTATION}',
    'remap_labels': 'original_labels: [1, 2] new_label: 3',
    'resize_image': 'new_height: 24 new_width: 20',
    'subtract_channel_mean': 'means: [1, 2, 3]',
}
# Steps that do the same for every seed.
NOT_RANDOM = (
    'adjust_gamma',
    'convert_class_logits_to_softmax',
    'normalize_image',
    'remap_labels',
    'resize_image',
    'rgb_to_gray',
    'subtract_channel_mean',
)
# Steps after which values are not in 0..255.
OTHER_VALUES = ('normalize_image', 'subtract_channel_mean')
# Fields that refer to objects alone, and are changed nevertheless.
CHANGED = {
    'convert_class_logits_to_softmax': (F.MULTICLASS_SCORES,),
    'mix_up': (F.GROUNDTRUTH_WEIGHTS,),
    'remap_labels': (F.GROUNDTRUTH_CLASSES,),
}
# Flips do not know where the points of a mirrored body are.
_POINTS = generated._POINT_FIELDS
WITHOUT = {
    'one_of': _POINTS,
    'random_horizontal_flip': _POINTS,
    'random_vertical_flip': _POINTS,
}
# Steps of examples with masks.
WITH_MASKS = ('copy_paste',)
# Steps that move boxes on purpose, but not what they show: at random, or to what is not covered.
MOVES_BOXES = ('copy_paste', 'one_of', 'random_jitter_boxes')
# Steps that cut objects inside of the new image; others do at its border alone.
CUT_INSIDE = ('mosaic',)
# Steps that may rotate twice, so that masks of few samples fade.
FADES_MASKS = ('autoaugment_image', 'rand_augment')
# Steps that copy objects.
COPIES = ('random_self_concat_image',)


@pytest.fixture
def graphs_as_they_are():
    """Graphs are optimized here, as in training: no bit may depend on it."""


def minimal(kind):
    config = steps.parse(f'{kind} {{ {MINIMAL.get(kind, "")} }}')
    try:
        preprocessor_builder.build(config)
    except ValueError as error:
        pytest.fail(f'{kind} is not built from its defaults; give it a row in MINIMAL: {error}')
    return config


def signature(example):
    """Specs of fields whose number of objects and image size are not known."""
    static = {
        F.IMAGE: [None, None, example[F.IMAGE].shape[-1]],
        F.GROUNDTRUTH_INSTANCE_MASKS: [None, None, None],
    }
    return {
        name: tf.TensorSpec(
            static.get(name, [None, *value.shape[1:]][: value.ndim]),
            tf.string if value.dtype == object else value.dtype,
        )
        for name, value in example.items()
    }


def apply(step, example, seed, *partners):
    return choice.apply(step, example, seed, partners)


def tensors(example):
    return {name: tf.constant(value) for name, value in example.items()}


@dataclasses.dataclass(frozen=True)
class Case:
    """A step and what is known about it."""

    kind: str
    config: object
    variant: generated.Variant

    @property
    def step(self):
        return preprocessor_builder.build(self.config)

    def sample(self, draw):
        """An example, its partners, and a seed."""
        count = 1 + choice.num_partners(self.step)
        images = [
            draw(generated.images(self.variant, i * generated.MAX_OBJECTS)) for i in range(count)
        ]
        seed = draw(st.integers(0, 2**31 - 1))
        return images, np.array([seed, 5], np.int64)

    def check(self, given, changed):
        """Asserts what holds for any step, of arrays before and after it."""
        before = given[0]
        assert changed.keys() == before.keys()
        self._check_image(before, changed)
        ids = changed[F.GROUNDTRUTH_TRACK_IDS]
        known = np.concatenate([each[F.GROUNDTRUTH_TRACK_IDS] for each in given])
        assert np.isin(ids, known).all()
        assert self.kind in COPIES or len(set(ids)) == len(ids)
        self._check_fields_of_ids(before, changed, ids)
        self._check_boxes(changed)
        origins = {
            id: (each, row)
            for each in given
            for row, id in enumerate(each[F.GROUNDTRUTH_TRACK_IDS])
        }
        for row, id in enumerate(ids):
            origin, of_origin = origins[id]
            old = {name: origin[name][of_origin] for name in OBJECT_FIELDS if name in origin}
            new = {name: changed[name][row] for name in old}
            self._check_object(id, old, new, origin[F.IMAGE].shape, changed[F.IMAGE].shape)

    def _check_image(self, before, changed):
        image = changed[F.IMAGE]
        assert changed[F.SOURCE_ID] == before[F.SOURCE_ID]
        assert image.dtype in (before[F.IMAGE].dtype, np.float32)
        assert image.ndim == 3
        assert image.shape[-1] == before[F.IMAGE].shape[-1]
        assert image.size
        assert np.isfinite(image).all()
        if self.kind not in OTHER_VALUES:
            assert image.min() >= 0
            assert image.max() <= 255

    def _check_fields_of_ids(self, before, changed, ids):
        rows = generated.expected(ids, of_labels=self.variant.of_labels)
        for name in OBJECT_FIELDS.keys() & changed.keys():
            value = changed[name]
            assert value.dtype == before[name].dtype, name
            assert value.ndim == before[name].ndim, name
            assert len(value) == len(ids), name
            if name not in rows or name in CHANGED.get(self.kind, ()):
                continue
            row = rows[name]
            if OBJECT_FIELDS[name].is_by_keypoint:  # Flips permute them.
                value = np.sort(value, axis=1)
            np.testing.assert_array_equal(value, np.asarray(row, before[name].dtype), name)

    def _check_boxes(self, changed):
        boxes = changed[F.GROUNDTRUTH_BOXES]
        assert np.isfinite(boxes).all()
        assert (boxes[:, 2:] > boxes[:, :2]).all()
        if 'clip_boxes: false' not in str(self.config):
            assert (boxes >= 0).all()
            assert (boxes <= 1).all()

    def _check_object(self, id, old, new, old_shape, new_shape):
        box = new[F.GROUNDTRUTH_BOXES].astype(np.float64)
        if F.GROUNDTRUTH_KEYPOINTS in new:
            order = self._keypoint_order(id, new)
            is_visible = new[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES]
            points = new[F.GROUNDTRUTH_KEYPOINTS]
            is_known = ~np.isnan(points).any(axis=-1)
            assert (old[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES][order] >= is_visible).all()
            assert (is_visible <= is_known).all()
            assert (~np.isnan(old[F.GROUNDTRUTH_KEYPOINTS]).any(axis=-1)[order] >= is_known).all()
            self._check_inside(points, box)
        if F.GROUNDTRUTH_DP_POINTS in new:
            self._check_inside(new[F.GROUNDTRUTH_DP_POINTS], box)
        if F.GROUNDTRUTH_INSTANCE_MASK_CROPS in new:
            crop = new[F.GROUNDTRUTH_INSTANCE_MASK_CROPS]
            assert crop.shape == (generated.S, generated.S)
            value = generated.CROP_STEP * (id + 1.0)
            assert crop.max() <= value + 2
            assert crop.max() == 0 or crop.max() >= value - 2 or self.kind in FADES_MASKS
        if F.GROUNDTRUTH_INSTANCE_MASKS in new:
            mask = new[F.GROUNDTRUTH_INSTANCE_MASKS]
            assert mask.shape == new_shape[:2]
            assert mask.max(initial=0) <= 1
            old_box = old[F.GROUNDTRUTH_BOXES].astype(np.float64)
            self._check_mask(mask, box, old_box, old_shape)

    def _keypoint_order(self, id, new):
        """Index of what each keypoint was before; depths tell it, and go along with the rest."""
        depths = new[F.GROUNDTRUTH_KEYPOINT_DEPTHS]
        np.testing.assert_array_equal(new[F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS], depths + 100)
        return np.int64((depths - id) * 8)

    def _check_inside(self, points, box):
        """Points of an object stay in its box, as they were before."""
        if self.kind not in MOVES_BOXES:
            points = points[~np.isnan(points).any(axis=-1)]
            assert (points >= box[:2] - 1e-4).all()
            assert (points <= box[2:] + 1e-4).all()

    def _check_mask(self, mask, box, old_box, old_shape):
        """Masks of objects stay in their boxes, but for the pixels of their borders."""
        may_be_cut = self.kind in CUT_INSIDE or (box <= 0).any() or (box >= 1).any()
        if self.kind in MOVES_BOXES or may_be_cut:
            return  # What is cut does not tell how many pixels a former one is now.
        sides = np.array(mask.shape)
        zoom = (box[2:] - box[:2]) * sides / ((old_box[2:] - old_box[:2]) * old_shape[:2])
        excess = (1 + 2 * zoom) / sides
        rows, columns = np.nonzero(mask)
        for axis, places in enumerate((rows, columns)):
            places = (places + 0.5) / sides[axis]
            assert (places > box[axis] - excess[axis]).all()
            assert (places < box[2 + axis] + excess[axis]).all()


def arrays(example):
    return {name: np.asarray(value) for name, value in example.items()}


def assert_same(changed, others):
    assert changed.keys() == others.keys()
    for name, value in changed.items():
        np.testing.assert_array_equal(value, others[name], name)


def settings(count):
    is_default = count != LONG
    return hypothesis.settings(
        max_examples=count,
        derandomize=is_default,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


LONG = 500
FEW = pytest.mark.parametrize('count', [6, pytest.param(LONG, marks=pytest.mark.slow)])


@FEW
@pytest.mark.parametrize('kind', KINDS)
def test_objects_stay_in_step_for_all_values_of_fields(kind, count):
    least, of_labels = minimal(kind), FACTS[kind].is_of_labels

    @settings(count)
    @hypothesis.given(st.data())
    def check(data):
        config = data.draw(generated.configs(least))
        is_of_color = FACTS[kind].takes_rgb or 'pad_color' in str(config)
        variant = data.draw(
            generated.variants(
                of_labels=of_labels,
                channels=st.just(3) if is_of_color else st.sampled_from((1, 3, 5)),
                without=WITHOUT.get(kind, ()),
                has_masks=kind in WITH_MASKS,
            )
        )
        case = Case(kind, config, variant)
        given, seed = case.sample(data.draw)
        changed = apply(case.step, *map(tensors, given[:1]), seed, *map(tensors, given[1:]))
        case.check(given, arrays(changed))

    check()


def graph_of(kind):
    """The case of a step with all fields, and the step as a graph of images of any size."""
    of_labels = FACTS[kind].is_of_labels
    variant = generated.full_variant(of_labels=of_labels, without=WITHOUT.get(kind, ()))
    case = Case(kind, minimal(kind), variant)
    step = case.step
    spec = signature(generated.make(variant, (1, 1), _NO_OBJECTS, 0))
    function = tf.function(
        lambda example, seed, *partners: apply(step, example, seed, *partners),
        autograph=False,
        input_signature=[spec, tf.TensorSpec([2], tf.int64)] + [spec] * choice.num_partners(step),
    )
    return case, function


_NO_OBJECTS = np.zeros([0, 4], np.int64)
_CORNERS = np.array([[100, 200, 500, 600], [300, 50, 800, 400], [0, 0, 1000, 1000]])


# Of each kind of step one, since graphs take long to make; the others are slow.
_QUICK_GRAPHS = (
    'mix_up',
    'one_of',
    'random_affine',
    'random_distort_color',
    'random_horizontal_flip',
    'random_jitter_boxes',
    'random_rotation90',
    'ssd_random_crop',
)


@pytest.mark.parametrize(
    'kind',
    [
        pytest.param(kind, marks=[] if kind in _QUICK_GRAPHS else [pytest.mark.slow])
        for kind in KINDS
    ],
)
def test_elements_of_data_sets_have_the_bits_of_steps_alone(kind):
    """With images as elements: graphs may compute with constants in another order."""
    case, function = graph_of(kind)
    step = case.step

    def images(size, corners):
        return [
            generated.make(case.variant, (size - i, size + 10 + i), corners, i, i * 6)
            for i in range(1 + choice.num_partners(step))
        ]

    given, empty = images(30, _CORNERS), images(13, _NO_OBJECTS)
    seeds = np.stack([np.arange(9), np.full(9, 3)], axis=1)
    data = tf.data.Dataset.from_tensors(tuple(map(tensors, given))).repeat(8)
    data = data.concatenate(tf.data.Dataset.from_tensors(tuple(map(tensors, empty))))
    data = tf.data.Dataset.zip(data, tf.data.Dataset.from_tensor_slices(seeds)).map(
        lambda images, seed: function(images[0], seed, *images[1:]), num_parallel_calls=4
    )
    assert_static(data.element_spec, tensors(given[0]))
    mapped = [arrays(changed) for changed in data]
    for i, changed in enumerate(mapped):
        of_element = empty if i == 8 else given
        case.check(of_element, changed)
        if i in (0, 1, 8):
            alone = apply(step, tensors(of_element[0]), seeds[i], *map(tensors, of_element[1:]))
            assert_same(changed, arrays(alone))
    if kind in NOT_RANDOM:
        for changed in mapped[:8]:
            assert_same(changed, mapped[0])
    else:
        assert any(
            value.shape != mapped[0][name].shape or (value != mapped[0][name]).any()
            for changed in mapped[:8]
            for name, value in changed.items()
        )


@pytest.mark.slow
@pytest.mark.parametrize('kind', KINDS)
def test_graphs_keep_objects_in_step_and_give_the_same_bits(kind):
    case, function = graph_of(kind)

    @settings(LONG)
    @hypothesis.given(st.data())
    def check(data):
        given, seed = case.sample(data.draw)
        first, *partners = map(tensors, given)
        changed = arrays(function(first, seed, *partners))
        case.check(given, changed)
        assert_same(changed, arrays(function(first, seed, *partners)))

    check()


def assert_static(specs, example):
    """Ranks of all fields are known; so are dtypes, and the sizes that no step changes."""
    for name, value in example.items():
        assert specs[name].shape.rank == value.shape.rank, name
        if name in OBJECT_FIELDS and name != F.GROUNDTRUTH_INSTANCE_MASKS:
            assert specs[name].shape[1:] == value.shape[1:], name
    assert specs[F.IMAGE].shape[-1] == example[F.IMAGE].shape[-1]


def test_generated_examples_have_all_fields_of_objects():
    """But one, which is made after the augmentations."""
    names = set()
    for of_labels in (False, True):
        variant = generated.full_variant(of_labels=of_labels, without=())
        names |= generated.make(variant, (5, 6), np.zeros([0, 4], np.int64), 0).keys()
    assert OBJECT_FIELDS.keys() - names == {F.GROUNDTRUTH_KEYPOINT_WEIGHTS}
