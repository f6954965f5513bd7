"""Pictures of augmentation steps, from real records."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from PIL import Image

from object_detection.builders import dataset_builder, preprocessor_builder
from object_detection.core.fields import InputFields as F
from object_detection.data.pipeline.transform import ExampleTransform
from object_detection.errors import ConfigError, UserError
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.resizers.fixed_sizes import FixedShapeResizer
from object_detection.training.monitoring import step_pictures
from object_detection.visualization import drawing
from tests import tiny_models as tiny
from tests.data import examples

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')

STEPS = """
  data_augmentation_options { random_vertical_flip { probability: 1 } probability: 0.25 }
  data_augmentation_options { remap_labels { original_labels: 2 new_label: 1 } }
"""
COLORS = ([200, 0, 0], [0, 200, 0], [0, 0, 200])


def options(text):
    return text_format.Parse(text, TrainConfig()).data_augmentation_options


@pytest.fixture
def pipeline(tmp_path):
    """Three images of 20 x 30, each of one colour, black below, with an object in the upper half.

    A record between the first two cannot be decoded.
    """
    mask = np.zeros((20, 30), np.uint8)
    mask[2:8, 6:18] = 1
    records = []
    for number, color in enumerate(COLORS):
        image = np.full((20, 30, 3), color, np.uint8)
        image[10:] = 0
        records.append(
            examples.example(
                [[0.1, 0.2, 0.4, 0.6]],
                [2],
                image=examples.png(image),
                masks=[mask],
                source_id=str(number),
            )
        )
    records.insert(1, b'bad')
    path = examples.write_records(tmp_path / 'train.record', records)
    config = tiny.tiny_pipeline()
    config.ClearField('train_input_reader')
    del config.train_config.data_augmentation_options[:]
    reader = f"""
      train_input_reader {{
        label_map_path: '{examples.write_label_map(tmp_path)}'
        tf_record_input_reader {{ input_path: '{path}' }}
        load_instance_masks: true
        mask_type: PNG_MASKS
      }}
    """
    return text_format.Merge(reader, config)


def test_rows_of_a_config_name_probabilities_and_the_steps_of_one_of():
    rows = list(
        step_pictures.config_rows(
            options("""
              data_augmentation_options { rgb_to_gray {} stop_after_step: 90 }
              data_augmentation_options {
                one_of {
                  steps { gaussian_blur {} }
                  steps { random_horizontal_flip {} probability: 0.5 }
                  weights: [1, 3]
                }
                probability: 0.2
              }
            """)
        )
    )
    assert [(row.name, row.title) for row in rows] == [
        ('00_rgb_to_gray', '[0] rgb_to_gray (ends after training step 90)'),
        ('01_one_of', '[1] one_of (probability 0.2, drawn as if it were 1)'),
        ('01_0_gaussian_blur', '[1] one_of.steps[0] gaussian_blur (drawn for 25% of the images)'),
        (
            '01_1_random_horizontal_flip',
            '[1] one_of.steps[1] random_horizontal_flip (drawn for 75% of the images; '
            'probability 0.5, drawn as if it were 1)',
        ),
        ('all_in_order', 'all steps in order'),
    ]
    assert [step.probability for row in rows for step in row.steps] == [
        *(1, 1, 1, 1, 1),
        pytest.approx(0.2),
    ]


def test_rows_of_all_steps_take_the_first_of_the_config():
    text = """
      data_augmentation_options { adjust_gamma { gamma: 3 } }
      data_augmentation_options { adjust_gamma { gamma: 4 } }
    """
    rows = {row.name: row for row in step_pictures.all_rows(options(text))}
    assert list(rows) == preprocessor_builder.kinds()
    assert rows['adjust_gamma'].title == 'adjust_gamma (as in the config)'
    assert rows['adjust_gamma'].steps[0].adjust_gamma.gamma == 3
    assert rows['rgb_to_gray'].title == 'rgb_to_gray'


def colors_of(path, columns=3):
    """Returns the colour in the middle of the upper and the lower quarter of each picture."""
    with Image.open(path) as picture:
        pixels = np.asarray(picture).astype(int)
    # Cells of 480 x 320 pixels, with gaps of 12, below a title.
    assert pixels.shape[1] == columns * 492 + 12
    top = 24
    middles = [12 + 492 * i + 450 for i in range(columns)]
    return [(pixels[top + 40, x].tolist(), pixels[top + 280, x].tolist()) for x in middles]


def test_steps_are_drawn_alone_and_in_order(pipeline, tmp_path):
    pipeline.train_config.data_augmentation_options.extend(options(STEPS))
    done = []
    out = tmp_path / 'out'
    written = step_pictures.write(
        pipeline, out, image=1, draws=2, progress=lambda *counts: done.append(counts)
    )
    names = ['00_random_vertical_flip.png', '01_remap_labels.png', 'all_in_order.png']
    assert [path.name for path in written.pictures] == names
    assert sorted(path.name for path in out.iterdir()) == [*names, 'contact_sheet.png']
    assert (written.left_out, done) == ({}, [(0, 3), (1, 3), (2, 3)])
    # The record that cannot be decoded does not count.
    green = ([0, 200, 0], [0, 0, 0])
    assert colors_of(written.pictures[0]) == [green, green[::-1], green[::-1]]
    assert colors_of(written.pictures[1]) == [green] * 3
    # The boxes have the colour of their class.
    with Image.open(written.pictures[1]) as picture:
        pixels = np.asarray(picture)
    for class_id, is_original in ((2, True), (1, False)):
        columns = np.flatnonzero((pixels == drawing.class_color(class_id)).all(-1).any(axis=0))
        assert ((columns < 492) == is_original).all()
        assert columns.size > 100
    with Image.open(out / 'contact_sheet.png') as sheet:
        assert sheet.width == 3 * 246 + 6


class Blend:
    """Adds `factor` times the next image."""

    num_partners = 1

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, example, seed, partners):
        (partner,) = partners
        return {**example, F.IMAGE: example[F.IMAGE] + self.factor * partner[F.IMAGE]}


def test_partners_are_what_the_steps_before_make_of_the_next_images():
    transform = ExampleTransform(
        resizer=FixedShapeResizer(height=8, width=8),
        num_classes=2,
        max_number_of_boxes=4,
        augmentations=(
            lambda example, seed: {**example, F.IMAGE: example[F.IMAGE] + 1.0},
            Blend(10.0),
            Blend(1000.0),
        ),
    )
    decoded = [
        {
            F.IMAGE: tf.fill([2, 2, 3], value),
            F.SOURCE_ID: tf.constant('1'),
            F.FILENAME: tf.constant('1'),
            F.ORIGINAL_IMAGE_SPATIAL_SHAPE: tf.constant([2, 2]),
            F.GROUNDTRUTH_BOXES: tf.zeros([0, 4]),
            F.GROUNDTRUTH_CLASSES: tf.zeros([0], tf.int64),
        }
        for value in (0.0, 1.0, 2.0, 77.0)
    ]
    # 1, 2 and 3 become 1 + 20 and 2 + 30, and these 21 + 32000.
    result = step_pictures.apply(transform, decoded, 0)
    np.testing.assert_array_equal(result[F.IMAGE], np.full([2, 2, 3], 32021.0))


@pytest.mark.slow
def test_after_the_last_image_the_first_ones_are_partners(pipeline):
    plain = dataset_builder.train_transform(pipeline)
    decoded = step_pictures.decode(pipeline, plain, 2, 5)
    ids = [example[F.SOURCE_ID].numpy().decode() for example in decoded]
    assert ids == ['2', '0', '1', '2', '0']


@pytest.mark.slow
def test_all_steps_leaves_out_what_does_not_fit_the_data(pipeline, tmp_path, monkeypatch):
    kinds = ['rgb_to_gray', 'convert_class_logits_to_softmax']
    monkeypatch.setattr(preprocessor_builder, 'kinds', lambda: kinds)
    written = step_pictures.write(pipeline, tmp_path / 'out', draws=1, all_steps=True)
    assert [path.name for path in written.pictures] == ['rgb_to_gray.png']
    assert list(written.left_out) == ['convert_class_logits_to_softmax']
    assert 'load_multiclass_scores' in written.left_out['convert_class_logits_to_softmax']


def test_what_cannot_be_drawn(pipeline, tmp_path):
    with pytest.raises(ConfigError, match='at least one step to draw, or --all_steps'):
        step_pictures.write(pipeline, tmp_path)
    pipeline.train_config.data_augmentation_options.extend(options(STEPS))
    with pytest.raises(UserError, match=r'--image: expected a number below 3, .*Received: 3'):
        step_pictures.write(pipeline, tmp_path, image=3)
    pipeline.train_config.data_augmentation_options[1].remap_labels.new_label = -1
    with pytest.raises(UserError, match=r'remap_labels\.new_label'):
        step_pictures.write(pipeline, tmp_path)
    text_format.Merge('synthetic_input_reader {}', pipeline.train_input_reader)
    del pipeline.train_config.data_augmentation_options[1]
    with pytest.raises(ConfigError, match='expected files'):
        step_pictures.write(pipeline, tmp_path)
