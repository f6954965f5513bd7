"""The fit of anchors to objects, and the anchors that `tfod data anchors` proposes."""

import numpy as np
from click.testing import CliRunner
from google.protobuf import text_format

from object_detection.builders import anchor_generator_builder
from object_detection.cli import data
from object_detection.config.families import AnchorOptions
from object_detection.dataset_tools.inspection import anchor_share
from object_detection.protos.anchor_generator_pb2 import AnchorGenerator
from object_detection.protos.image_resizer_pb2 import ImageResizer
from tests import rows
from tests.dataset_tools.inspection.damaged_records import example, write

GRID = (
    'grid_anchor_generator { scales: [0.25, 0.5] aspect_ratios: [0.5, 1.0] height: 128 width: 128 }'
)
MULTISCALE = (
    'multiscale_anchor_generator { min_level: 3 max_level: 5 aspect_ratios: [1.0, 2.0] %s }'
)
SSD = 'ssd_anchor_generator { num_layers: 3 aspect_ratios: [1.0, 2.0] }'
FLEXIBLE = (
    'flexible_grid_anchor_generator { normalize_coordinates: false '
    'anchor_grid { base_sizes: [20, 30] aspect_ratios: [1, 2] height_stride: 16 width_stride: 16 '
    'height_offset: 4 } '
    'anchor_grid { base_sizes: 60 aspect_ratios: 1 height_stride: 32 width_stride: 32 } }'
)
SIZE = (96, 112)  # height and width of images, and after the resizer


def options(text: str, **more) -> AnchorOptions:
    resizer = ImageResizer()
    resizer.fixed_shape_resizer.height, resizer.fixed_shape_resizer.width = SIZE
    generator = text_format.Parse(text, AnchorGenerator())
    return AnchorOptions('anchor_generator', generator, resizer, 0.5, **more)


def random_rows(seed: int, count: int = 60) -> np.ndarray:
    """Returns rows of `Summary.boxes`."""
    random = np.random.default_rng(seed)
    corners = np.sort(random.uniform(0, 1, (count, 2, 2)), axis=1).reshape(count, 4)
    sizes = np.broadcast_to(np.array(SIZE), (count, 2))
    return np.concatenate([sizes, corners, np.ones((count, 1))], axis=1).astype(np.float32)


def best_iou(boxes: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    lowest = np.maximum(boxes[:, None, :2], anchors[None, :, :2])
    highest = np.minimum(boxes[:, None, 2:], anchors[None, :, 2:])
    common = np.maximum(highest - lowest, 0).prod(axis=-1)
    areas = [(each[:, 2:] - each[:, :2]).prod(axis=-1) for each in (boxes, anchors)]
    return (common / (areas[0][:, None] + areas[1][None] - common)).max(axis=1)


@rows.parametrize(
    ('text', 'strides', 'unit', 'more'),
    [
        (GRID, [16], 1, {}),
        (GRID, [16], 1, {'is_inside_only': True}),
        (MULTISCALE % 'normalize_coordinates: false', [8, 16, 32], 1, {'is_inside_only': True}),
        (MULTISCALE % '', [8, 16, 32], 2, {'sees_static_size': True}),
        (SSD, [16, 32, 64], 2, {'sees_static_size': True}),
        (FLEXIBLE, [16, 32], 1, {}),
    ],
)
def test_the_best_anchor_is_that_of_all_anchors(text, strides, unit, more):
    given = options(text, **more)
    rows = random_rows(len(strides))
    generator = anchor_generator_builder.build(given.generator)
    shapes = [tuple(-(-side // stride) for side in SIZE) for stride in strides]
    anchors = np.concatenate(generator.generate(shapes, *SIZE)).astype(np.float64)
    if unit == 2:
        anchors *= [*SIZE, *SIZE]
    if given.is_inside_only:
        anchors = anchors[(anchors[:, :2] >= 0).all(1) & (anchors[:, 2:] <= SIZE).all(1)]
    boxes = rows[:, 2:6].astype(np.float64) * [*SIZE, *SIZE]
    share = anchor_share.measure(given, rows)
    # Anchors are float32 numbers of up to 200 pixels.
    np.testing.assert_allclose(share.best_iou, best_iou(boxes, anchors), atol=1e-5)
    assert share.unmatched == np.mean(share.best_iou < 0.5)


@rows.parametrize('text', [GRID, MULTISCALE % '', SSD, FLEXIBLE])
def test_proposals_match_more_objects(text):
    rows = random_rows(0, 300)
    # Wide, flat objects.
    random = np.random.default_rng(1)
    height = random.uniform(0.1, 0.3, 300)
    rows[:, 4] = rows[:, 2] + height
    rows[:, 5] = rows[:, 3] + random.uniform(2.5, 3.5, 300) * height
    given = options(text)
    found = anchor_share.propose(given, rows)
    assert found.after.unmatched < found.before.unmatched
    kind = given.generator.WhichOneof('anchor_generator_oneof')
    assert found.generator.WhichOneof('anchor_generator_oneof') == kind
    per_cell = [
        anchor_generator_builder.build(generator).num_anchors_per_location()
        for generator in (given.generator, found.generator)
    ]
    assert per_cell[0] == per_cell[1]


def test_the_command(tmp_path):
    wide = [(0.1, 0.1, 0.3, 0.9)]
    name = write(tmp_path / 'a.record', [example(seed, wide, labels=[1]) for seed in range(4)])
    config = tmp_path / 'my.config'
    config.write_text(
        f'model {{ ssd {{ num_classes: 1 anchor_generator {{ {SSD} }} '
        'image_resizer { fixed_shape_resizer { height: 96 width: 96 } } '
        'matcher { argmax_matcher { } } } } '
        f'train_input_reader {{ tf_record_input_reader {{ input_path: "{name}" }} }}'
    )
    output = tmp_path / 'anchors.config'
    arguments = ['anchors', '--config', str(config), '--output', str(output)]
    done = CliRunner().invoke(data.command, arguments)
    assert done.exit_code == 0, done.output
    assert 'ssd_anchor_generator' in output.read_text()
    assert '100.0% after' in done.output
    wrong = CliRunner().invoke(data.command, [*arguments, '--num_sizes', '2'])
    assert 'num_sizes' in str(wrong.exception)
