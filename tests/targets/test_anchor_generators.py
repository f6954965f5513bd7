import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import anchor_generator_builder
from object_detection.protos import anchor_generator_pb2
from object_detection.targets.anchors import (
    AnchorGrid,
    FlexibleGridAnchorGenerator,
    GridAnchorGenerator,
    MultiscaleGridAnchorGenerator,
)
from object_detection.targets.default_boxes import SsdAnchorGenerator, linear_scales, ssd_box_specs
from tests import goldens, rows


def _build(config):
    return anchor_generator_builder.build(
        text_format.Parse(config, anchor_generator_pb2.AnchorGenerator())
    )


# Where the reference raises another error than the ValueError of this project.
ERROR_OF_THE_REFERENCE = {'ssd_one_layer_div0': 'ZeroDivisionError'}


@goldens.rows('anchors')
def test_golden_anchors(case_name):
    case = goldens.load('anchors', case_name)
    shapes = [tuple(shape) for shape in case.params['feature_map_shape_list']]
    sides = case.params['im_height'], case.params['im_width']
    if case.raises:
        assert case.raises == ERROR_OF_THE_REFERENCE.get(case_name, 'ValueError')
        with pytest.raises(ValueError, match=r'Received'):
            _build(case.config).generate(shapes, *sides)
        return
    if case.params['dynamic']:
        sides = [tf.constant(side) for side in sides]
    generator = _build(case.config)
    np.testing.assert_array_equal(
        generator.num_anchors_per_location(), case.outputs['num_anchors_per_location']
    )
    levels = generator.generate(shapes, *sides)
    np.testing.assert_array_equal([len(level) for level in levels], case.outputs['level_counts'])
    np.testing.assert_allclose(
        tf.concat(levels, axis=0), case.outputs['boxes'], rtol=1e-5, atol=1e-6
    )


GENERATORS = {
    'grid': (GridAnchorGenerator([0.5, 1], [1, 2], (32, 32)), [(3, 4)]),
    'multiscale': (MultiscaleGridAnchorGenerator(3, 4, 4, [1, 2], 2), [(4, 8), (2, 4)]),
    'ssd': (SsdAnchorGenerator(ssd_box_specs(2, [0.2, 0.9], [1, 2])), [(4, 8), (2, 4)]),
    'flexible': (
        FlexibleGridAnchorGenerator(
            [AnchorGrid([8, 16], [1, 2], (8, 8), (4, 4)), AnchorGrid([32], [1], (16, 16))]
        ),
        [(4, 8), (2, 4)],
    ),
}


@pytest.mark.parametrize('name', GENERATORS)
@pytest.mark.parametrize('jit_compile', [False, True])
def test_sizes_that_are_tensors(name, jit_compile):
    generator, shapes = GENERATORS[name]

    @tf.function(jit_compile=jit_compile)
    def generate(image, features):
        sizes = [(tf.shape(feature)[0], tf.shape(feature)[1]) for feature in features]
        return generator.generate(sizes, tf.shape(image)[0], tf.shape(image)[1])

    # 32 x 64 is a multiple of every stride here, so static and dynamic sizes agree.
    static = generator.generate(shapes, 32, 64)
    dynamic = generate(tf.zeros([32, 64]), [tf.zeros(shape) for shape in shapes])
    for level, (actual, expected) in enumerate(zip(dynamic, static, strict=True)):
        assert expected.dtype == tf.float32
        cells = np.prod(shapes[level])
        assert expected.shape == [cells * generator.num_anchors_per_location()[level], 4]
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@rows.parametrize('name', GENERATORS)
def test_number_of_feature_maps_must_fit(name):
    generator, shapes = GENERATORS[name]
    with pytest.raises(ValueError, match='feature maps, one a level'):
        generator.generate([*shapes, (1, 1)], 32, 64)


def test_frames():
    frames = {name: generator.normalized for name, (generator, _) in GENERATORS.items()}
    assert frames == {'grid': False, 'multiscale': True, 'ssd': True, 'flexible': True}


def test_grid_by_hand():
    generator = GridAnchorGenerator([1, 2], [1, 4], (8, 8), (16, 32), (1, 2))
    (anchors,) = generator.generate([(2, 2)])
    sizes = [(8, 8), (16, 16), (4, 16), (8, 32)]  # Height and width, the scale varies fastest.
    centers = [(1, 2), (1, 34), (17, 2), (17, 34)]
    expected = [
        [y - height / 2, x - width / 2, y + height / 2, x + width / 2]
        for y, x in centers
        for height, width in sizes
    ]
    np.testing.assert_allclose(anchors, expected, rtol=1e-6)


def test_multiscale_offsets_of_static_and_dynamic_sides():
    generator = MultiscaleGridAnchorGenerator(5, 5, 4, [1.0], 1, normalized=False)

    def first_center(height, width):
        anchor = generator.generate([(1, 1)], height, width)[0][0].numpy()
        return [(anchor[0] + anchor[2]) / 2, (anchor[1] + anchor[3]) / 2]

    assert first_center(64, 65) == [16, 0]
    assert first_center(np.int64(65), 64) == [0, 16]
    assert first_center(tf.constant(65), tf.constant(65)) == [16, 16]


def test_linear_scales():
    np.testing.assert_allclose(linear_scales(4, 0.2, 0.95), [0.2, 0.45, 0.7, 0.95])


@rows.parametrize(
    ('config', 'message'),
    [
        ('ssd_anchor_generator { num_layers: 2 scales: 0.1 }', 'scales'),
        ('ssd_anchor_generator { num_layers: 1 scales: [0.1, 0.2, 0.3] }', 'scales'),
        ('ssd_anchor_generator { height_stride: 8 }', 'width_stride'),
        ('ssd_anchor_generator { num_layers: 2 height_offset: 8 width_offset: 8 }', 'offsets'),
        ('ssd_anchor_generator { min_scale: -2 }', 'min_scale and max_scale'),
        ('ssd_anchor_generator { aspect_ratios: 0 }', 'aspect_ratios must be'),
        (
            'ssd_anchor_generator { num_layers: 2 aspect_ratios: 1 num_aspect_ratios: 1 }',
            r'num_aspect_ratios: expected none, or 2 numbers up to 1, .* Received: \[1\]',
        ),
        (
            'ssd_anchor_generator { num_layers: 2 aspect_ratios: 1 num_aspect_ratios: [1, 2] }',
            r'num_aspect_ratios: expected none, or 2 numbers up to 1, .* Received: \[1, 2\]',
        ),
        ('ssd_anchor_generator { base_anchor_height: 0 }', 'base_anchor_height'),
        ('grid_anchor_generator { scales: -1 aspect_ratios: 1 }', 'positive'),
        ('grid_anchor_generator { height_stride: 0 }', 'positive'),
        (
            'multiscale_anchor_generator { min_level: 5 max_level: 4 }',
            r'max_level. Received: \(5, 4\)',
        ),
        ('multiscale_anchor_generator { scales_per_octave: 0 }', 'scales_per_octave'),
        ('multiscale_anchor_generator { anchor_center_offset: 1.5 }', 'anchor_center_offset'),
        ('flexible_grid_anchor_generator { anchor_grid { base_sizes: 4 } }', 'base_sizes'),
        (
            'flexible_grid_anchor_generator { anchor_grid { base_sizes: 4 aspect_ratios: 1 } }',
            'stride',
        ),
    ],
)
def test_numbers_that_do_not_fit_are_rejected(config, message):
    with pytest.raises(ValueError, match=message):
        _build(config)


@rows.parametrize('offset', [0.0, 0.25, 0.5])
def test_offset_of_multiscale_centers(offset):
    generator = _build(f"""multiscale_anchor_generator {{
      min_level: 3 max_level: 4 aspect_ratios: 1 scales_per_octave: 1 normalize_coordinates: false
      anchor_center_offset: {offset}
    }}""")
    for height in (64, 65, tf.constant(65)):
        for level, anchors in enumerate(generator.generate([(2, 2), (1, 1)], height, 65), 3):
            first = (anchors[0, :2] + anchors[0, 2:]) / 2
            np.testing.assert_array_equal(first, [offset * 2**level] * 2)


def test_rounded_boxes_and_strides_of_maps():
    # Half of 32 / sqrt(2) is 11.3, half of 32 * sqrt(2) is 22.6.
    generator = MultiscaleGridAnchorGenerator(
        2, 3, 8.0, [2.0], 1, False, center_offset=0.0, round_boxes=True, strides_of_maps=True
    )
    fine, coarse = generator.generate([(3, 7), (1, 2)])
    np.testing.assert_array_equal(fine[1], [-11, -19, 11, 27])
    # The finest map is 28 pixels wide: 14 a cell.
    np.testing.assert_array_equal(coarse, [[-23, -45, 23, 45], [-23, -31, 23, 59]])


def test_limited_sizes_of_ssd():
    # 0.9 * sqrt(4) is 1.8 wide, and half of 0.9 high.
    generator = SsdAnchorGenerator([[(0.9, 4.0), (0.2, 1.0)]], limit_sizes=True)
    boxes = generator.generate([(1, 2)], 320, 320)[0].numpy()
    expected = [[0.275, -0.25, 0.725, 0.75], [0.4, 0.15, 0.6, 0.35]]
    np.testing.assert_allclose(boxes[:2], expected, atol=1e-6)
    free = SsdAnchorGenerator([[(0.9, 4.0), (0.2, 1.0)]]).generate([(1, 2)], 320, 320)[0]
    np.testing.assert_allclose(free[0], [0.275, 0.25 - 0.9, 0.725, 0.25 + 0.9], atol=1e-6)


def test_maps_may_have_fewer_aspect_ratios():
    specs = ssd_box_specs(2, [0.2, 0.5, 0.8], [1, 2, 0.5], 1, False, [1, 3])
    ratios = [[ratio for _, ratio in layer] for layer in specs]
    assert ratios == [[1, 1], [1, 2, 0.5, 1]]
    np.testing.assert_allclose([layer[-1][0] for layer in specs], np.sqrt([0.1, 0.4]))
    # A scale may follow the last one, though there is no map.
    assert SsdAnchorGenerator(specs).num_anchors_per_location() == [2, 4]


def test_truncated_sizes():
    # 32, 40.3 and 50.8 pixels; 46 is 2 * round(40 / 2 * sqrt(4 / 3)).
    generator = MultiscaleGridAnchorGenerator(
        3, 3, 4.0, [1.0, 4 / 3], 3, False, 0.0, round_boxes=True, truncate_sizes=True
    )
    boxes = generator.generate([(1, 1)])[0].numpy()
    np.testing.assert_array_equal(boxes[:3, 2] - boxes[:3, 0], [32, 40, 50])
    np.testing.assert_array_equal((boxes[:, 2:] - boxes[:, :2])[4], [34, 46])


def test_rounded_boxes_and_strides_of_maps_by_hand_for_each_map():
    grids = [AnchorGrid([32.0], [2.0], stride) for stride in ((4, 4), (9, 9))]
    generator = FlexibleGridAnchorGenerator(grids, False, round_boxes=True, strides_of_maps=True)
    fine, coarse = generator.generate([(3, 7), (1, 2)])
    np.testing.assert_array_equal(fine[1], [-11, -19, 11, 27])
    np.testing.assert_array_equal(coarse[1], [-11, -9, 11, 37])
    exact = FlexibleGridAnchorGenerator(grids, False).generate([(3, 7), (1, 2)])[1]
    np.testing.assert_allclose(
        exact[1], [-8 * 2**0.5, 9 - 16 * 2**0.5, 8 * 2**0.5, 9 + 16 * 2**0.5]
    )


def test_strides_of_maps_of_unknown_size():
    generator = MultiscaleGridAnchorGenerator(
        2, 3, 8.0, [2.0], 1, False, center_offset=0.0, strides_of_maps=True
    )

    @tf.function(input_signature=[tf.TensorSpec([2, 2], tf.int32)])
    def generate(shapes):
        return generator.generate([(each[0], each[1]) for each in tf.unstack(shapes)])

    shapes = [(3, 7), (1, 2)]
    for found, expected in zip(generate(shapes), generator.generate(shapes), strict=True):
        np.testing.assert_array_equal(found, expected)
