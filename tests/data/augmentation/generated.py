"""Examples and configs of steps that hypothesis generates, for `test_properties.py`.

Each object has an id, which all of its fields encode: `expected` tells the rows of some ids. Rows
that a step permutes or drops in one field alone are seen by that.
"""

import dataclasses

import numpy as np
from hypothesis import strategies as st

from object_detection.core.example_fields import OBJECT_FIELDS
from object_detection.core.fields import InputFields as F
from object_detection.protos import preprocessor_pb2

# Classes, keypoints and surface points of an object; side of mask crops; objects of an image.
K, P, D, S = 3, 4, 3, 8
MAX_OBJECTS = 6
MAX_SIDE = 40
# Of the id + 1, in mask crops; 24 objects of four images fit into uint8.
CROP_STEP = 10
# Corners of boxes lie on so many lines: most between pixels, and no power of 2.
_GRID = 1000

_POINT_FIELDS = (
    F.GROUNDTRUTH_DP_POINTS,
    F.GROUNDTRUTH_DP_SURFACE,
    F.GROUNDTRUTH_DP_PART_IDS,
    F.GROUNDTRUTH_DP_NUM_POINTS,
)
_KEYPOINT_FIELDS = (
    F.GROUNDTRUTH_KEYPOINTS,
    F.GROUNDTRUTH_KEYPOINT_VISIBILITIES,
    F.GROUNDTRUTH_KEYPOINT_DEPTHS,
    F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS,
)
_MASK_FIELDS = (F.GROUNDTRUTH_INSTANCE_MASKS, F.GROUNDTRUTH_INSTANCE_MASK_CROPS)
# Fields that do not tell about positions, and therefore only about the id of their object.
_BY_ID = {
    F.MULTICLASS_SCORES: lambda ids: ids[:, np.newaxis] + np.arange(K) / 8,
    F.GROUNDTRUTH_WEIGHTS: lambda ids: 1 + ids / 64,
    F.GROUNDTRUTH_IS_CROWD: lambda ids: ids % 5 == 3,
    F.GROUNDTRUTH_AREA: lambda ids: 100 + ids,
    F.GROUNDTRUTH_DIFFICULT: lambda ids: ids % 3 == 1,
    F.GROUNDTRUTH_GROUP_OF: lambda ids: ids % 4 == 2,
    F.GROUNDTRUTH_TRACK_IDS: lambda ids: ids,
    F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS: lambda ids: 2 + ids / 64,
    F.GROUNDTRUTH_KEYPOINT_DEPTHS: lambda ids: ids[:, np.newaxis] + np.arange(P) / 8,
    F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS: lambda ids: 100 + ids[:, np.newaxis] + np.arange(P) / 8,
    F.GROUNDTRUTH_DP_SURFACE: lambda ids: ids[:, np.newaxis, np.newaxis] + np.ones([D, 2]) / 8,
    F.GROUNDTRUTH_DP_PART_IDS: lambda ids: ids[:, np.newaxis] + np.arange(D),
    F.GROUNDTRUTH_DP_NUM_POINTS: lambda ids: ids % (D + 1),
}
# Before masks are decoded, classes are ids.
_OF_LABEL_STEPS = {
    F.GROUNDTRUTH_CLASSES: lambda ids: 1 + ids % K,
    F.GROUNDTRUTH_ENCODED_MASKS: lambda ids: np.array([b'%d' % i for i in ids], object),
}
_OF_OTHER_STEPS = {F.GROUNDTRUTH_CLASSES: lambda ids: np.eye(K)[ids % K]}


def expected(ids: np.ndarray, *, of_labels: bool) -> dict[str, np.ndarray]:
    """The rows of the objects of some ids, int [n], in the fields that only depend on it."""
    return {
        name: rows(ids)
        for name, rows in (_BY_ID | (_OF_LABEL_STEPS if of_labels else _OF_OTHER_STEPS)).items()
    }


@dataclasses.dataclass(frozen=True)
class Variant:
    """Which fields examples have.

    Attributes:
      of_labels: whether for steps of labels alone.
      dtype: dtype of images.
      channels: number of channels of images.
      without: names of fields of objects that are left out.
    """

    of_labels: bool = False
    dtype: str = 'uint8'
    channels: int = 3
    without: tuple[str, ...] = ()


def make(variant: Variant, size: tuple[int, int], corners: np.ndarray, seed: int, first: int = 0):
    """Makes an example as arrays.

    Args:
      variant: which fields.
      size: height and width of the image.
      corners: int [n, 4], boxes in 0.._GRID.
      seed: seed of pixels, keypoints and whatever is drawn within an object.
      first: id of the first object.
    """
    rng = np.random.default_rng(seed)
    count = len(corners)
    ids = np.arange(first, first + count)
    boxes = np.float32(corners.reshape(-1, 4) / _GRID)
    image = rng.integers(0, 256, (*size, variant.channels)).astype(variant.dtype)
    example = {F.GROUNDTRUTH_BOXES: boxes, **expected(ids, of_labels=variant.of_labels)}
    for name, per_object in ((F.GROUNDTRUTH_KEYPOINTS, P), (F.GROUNDTRUTH_DP_POINTS, D)):
        share = rng.choice([0, 0.25, 0.5, 1], (count, per_object, 2))
        start, end = boxes[:, np.newaxis, :2], boxes[:, np.newaxis, 2:]
        example[name] = start + share * (end - start)
    example[F.GROUNDTRUTH_KEYPOINTS][rng.random([count, P]) < 0.2] = np.nan
    is_known = ~np.isnan(example[F.GROUNDTRUTH_KEYPOINTS]).any(axis=-1)
    example[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES] = is_known & (rng.random([count, P]) < 0.7)
    if not variant.of_labels:
        example |= _masks(boxes, size, ids)
    dtypes = {name: field.dtype.as_numpy_dtype for name, field in OBJECT_FIELDS.items()}
    if not variant.of_labels:
        dtypes[F.GROUNDTRUTH_CLASSES] = np.float32
    return {F.IMAGE: image, F.SOURCE_ID: np.array(b'source', object)} | {
        name: np.asarray(value, dtypes[name])
        for name, value in example.items()
        if name not in variant.without
    }


def _masks(boxes, size, ids):
    """Full-size masks of all pixels that a box touches, and crops of one value."""
    height, width = size
    scaled = boxes * np.tile(size, 2)
    masks = np.zeros([len(boxes), height, width])
    for mask, (top, left, bottom, right) in zip(masks, scaled, strict=True):
        mask[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))] = 1
    crops = np.broadcast_to(CROP_STEP * (ids + 1)[:, np.newaxis, np.newaxis], [len(boxes), S, S])
    return {F.GROUNDTRUTH_INSTANCE_MASKS: masks, F.GROUNDTRUTH_INSTANCE_MASK_CROPS: crops}


@st.composite
def corners(draw) -> np.ndarray:
    """Boxes of 0 to MAX_OBJECTS objects, int [n, 4] in 0.._GRID, each with an area."""

    def side():
        start = draw(st.integers(0, _GRID - 1))
        return start, draw(st.integers(start + 1, _GRID))

    sides = [(side(), side()) for _ in range(draw(st.integers(0, MAX_OBJECTS)))]
    boxes = [(y[0], x[0], y[1], x[1]) for y, x in sides]
    return np.array(boxes, np.int64).reshape(-1, 4)


@st.composite
def images(draw, variant: Variant, first: int = 0):
    """Examples of one variant, whose ids begin with `first`."""
    size = draw(st.tuples(st.integers(1, MAX_SIDE), st.integers(1, MAX_SIDE)))
    return make(variant, size, draw(corners()), draw(st.integers(0, 2**32 - 1)), first)


@st.composite
def variants(
    draw, *, of_labels: bool, channels: st.SearchStrategy, without: tuple[str, ...], has_masks: bool
):
    """Variants of examples.

    Args:
      of_labels: whether for steps of labels alone.
      channels: numbers of channels.
      without: fields that a step refuses.
      has_masks: whether a step needs masks.
    """
    forms = st.sampled_from(
        [*((name,) for name in _MASK_FIELDS), *[_MASK_FIELDS] * (not has_masks)]
    )
    left_out = [*without, *draw(forms)]
    for group in (_POINT_FIELDS, _KEYPOINT_FIELDS):
        left_out += group if draw(st.booleans()) else ()
    dtype = draw(st.sampled_from(('uint8', 'float32')))
    return Variant(of_labels, dtype, draw(channels), tuple(left_out))


def full_variant(*, of_labels: bool, without: tuple[str, ...]) -> Variant:
    """The variant with all fields that a step accepts."""
    return Variant(of_labels=of_labels, without=without)


# Ranges of values: of a field, by its name or the message's and its own; or of two in order.
_SHARE = (0, 1)
_RANGES = {
    **dict.fromkeys(
        (
            'change_probability',
            'channel_swap_probability',
            'concat_horizontal_probability',
            'concat_vertical_probability',
            'drop_probability',
            'max_brightness_delta',
            'max_delta',
            'max_hue_delta',
            'max_translation',
            'min_object_covered',
            'min_visible_share',
            'object_probability',
            'overlap_thresh',
            'probability',
            'random_coef',
            'ratio',
            'size_to_image_ratio',
            'small_area',
        ),
        _SHARE,
    ),
    **dict.fromkeys(
        ('new_height', 'new_width', 'output_size', 'target_height', 'target_width'),
        (1, MAX_SIDE),
    ),
    'alpha': (0.1, 5),
    'aspect_ratio': (0.2, 5),
    'blend_sigma': (0, 2),
    'color_ordering': (0, 1),
    'gain': (0, 1),
    'gamma': (0, 3),
    'height': (2, MAX_SIDE),
    'label': (1, K),
    'magnitude': (0, 10),
    'max_black_patches': (0, 20),
    'max_border': (0, MAX_SIDE),
    'max_degrees': (0, 180),
    'max_height_padding': (1, MAX_SIDE),
    'max_objects': (1, MAX_OBJECTS),
    'max_shear_degrees': (0, 40),
    'max_width_padding': (1, MAX_SIDE),
    'means': (0, 255),
    'min_share': (0, 0.5),
    'new_label': (1, K),
    'num_layers': (1, 3),
    'num_scales': (1, 5),
    'original_labels': (1, K),
    'original_maxval': (1, 300),
    'original_minval': (-100, 0),
    'pad_color_b': (0, 255),
    'pad_color_g': (0, 255),
    'pad_color_r': (0, 255),
    'target_maxval': (-2, 2),
    'target_minval': (-2, 2),
    'temperature': (0.1, 10),
    'width': (2, MAX_SIDE),
}
_ORDERED_RANGES = {
    ('min_area', 'max_area'): (0.01, 1),
    ('min_aspect_ratio', 'max_aspect_ratio'): (0.1, 10),
    ('min_contrast', 'max_contrast'): (0, 2),
    ('min_delta', 'max_delta'): (0, 2),
    ('min_gaussian_stddev', 'max_gaussian_stddev'): _SHARE,
    ('min_image_height', 'max_image_height'): (1, 2 * MAX_SIDE),
    ('min_image_width', 'max_image_width'): (1, 2 * MAX_SIDE),
    ('min_jpeg_quality', 'max_jpeg_quality'): (0, 100),
    ('min_length', 'max_length'): (1, 9),
    ('min_padded_size_ratio', 'max_padded_size_ratio'): (0.5, 2.5),
    ('min_patch_size', 'max_patch_size'): (0, 2 * MAX_SIDE),
    ('min_saturation', 'max_saturation'): (0, 2),
    ('min_scale', 'max_scale'): (0.1, 1),
    ('min_scale_ratio', 'max_scale_ratio'): (0.1, 2),
    ('min_sigma', 'max_sigma'): (0.1, 3),
    ('min_target_pixels', 'max_target_pixels'): (1, 2000),
    ('minval', 'maxval'): (0, 2),
    ('scale_min', 'scale_max'): (0.1, 2),
}
# Numbers of values of repeated fields.
_COUNTS = {
    'max_padded_size_ratio': (2, 2),
    'means': (3, 3),
    'min_padded_size_ratio': (2, 2),
    'operations': (0, 2),
    'original_labels': (1, K),
}
_TEXTS = {'AutoAugmentImage.policy_name': ('v0', 'v1', 'v2', 'v3', 'test')}
# These are those of the minimal config.
_AS_THEY_ARE = ('RandAugment.operations', 'OneOf.steps', 'OneOf.weights')


def set_fields(draw, message) -> None:
    """Sets all fields of a message to values within their ranges.

    Raises:
      AssertionError: for a field that has no range here.
    """
    fields = message.DESCRIPTOR.fields_by_name
    done = set()
    for (low, high), bounds in _ORDERED_RANGES.items():
        if low in fields and high in fields:
            count = 2 if fields[low].is_repeated else 1
            pairs = [
                sorted(draw(st.tuples(*[_numbers(fields[low], bounds)] * 2))) for _ in range(count)
            ]
            for name, values in zip((low, high), zip(*pairs, strict=True), strict=True):
                _assign(message, fields[name], values)
            done |= {high, low}
    for name, field in fields.items():
        if name not in done and f'{message.DESCRIPTOR.name}.{name}' not in _AS_THEY_ARE:
            _set_field(draw, message, field)


def _set_field(draw, message, field) -> None:
    full_name = f'{message.DESCRIPTOR.name}.{field.name}'
    if field.message_type is not None:
        for _ in range(draw(st.integers(*_COUNTS[field.name]))):
            set_fields(draw, getattr(message, field.name).add())
    elif field.name.endswith('_permutation'):
        _assign(message, field, draw(st.permutations(range(P))))
    elif field.name == 'pad_color':
        count = draw(st.sampled_from((0, 3)))
        _assign(message, field, [draw(_numbers(field, (0, 255))) for _ in range(count)])
    elif field.enum_type is not None:
        _assign(message, field, [draw(st.sampled_from([*field.enum_type.values_by_number]))])
    elif field.type == field.TYPE_BOOL:
        _assign(message, field, [draw(st.booleans())])
    elif full_name in _TEXTS:
        _assign(message, field, [draw(st.sampled_from(_TEXTS[full_name]))])
    else:
        assert field.name in _RANGES, (
            f'{full_name}: give its range in tests/data/augmentation/generated.py, so that it is '
            'tried with random values.'
        )
        count = draw(st.integers(*_COUNTS[field.name])) if field.is_repeated else 1
        _assign(message, field, [draw(_numbers(field, _RANGES[field.name])) for _ in range(count)])


def _numbers(field, bounds) -> st.SearchStrategy:
    if field.type in (field.TYPE_INT32, field.TYPE_INT64):
        return st.integers(*bounds)
    # Of 1/100, which float32 rounds.
    return st.integers(round(bounds[0] * 100), round(bounds[1] * 100)).map(lambda i: i / 100)


def _assign(message, field, values) -> None:
    if field.is_repeated:
        getattr(message, field.name).extend(values)
    else:
        (value,) = values
        setattr(message, field.name, value)


@st.composite
def configs(draw, minimal: preprocessor_pb2.PreprocessingStep):
    """Configs of the step of a minimal config, whose fields are all drawn."""
    config = preprocessor_pb2.PreprocessingStep()
    kind = minimal.WhichOneof('preprocessing_step')
    options = getattr(config, kind)
    options.SetInParent()
    for field, value in getattr(minimal, kind).ListFields():
        if f'{options.DESCRIPTOR.name}.{field.name}' in _AS_THEY_ARE:
            getattr(options, field.name).extend(value)
    set_fields(draw, options)
    return config
