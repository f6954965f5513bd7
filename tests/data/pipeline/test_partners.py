"""Augmentations of several images: their partners, also after a resume and with buckets."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import dataset_builder
from object_detection.core.fields import InputFields as F
from object_detection.data.pipeline import partners, record_order
from object_detection.protos import pipeline_pb2
from tests.data import examples

CONFIG = """
model {{ faster_rcnn {{
  num_classes: 2 groundtruth_mask_crop_size: 8
  image_resizer {{ {resizer} }}
}} }}
train_config {{ batch_size: 2 {steps} }}
train_input_reader {{
  max_number_of_boxes: 12 {masks} {reader}
  tf_record_input_reader {{ input_path: '{path}' }}
}}
"""
STEPS = (
    'data_augmentation_options { random_horizontal_flip {} } '
    'data_augmentation_options { mosaic { height: 20 width: 24 } probability: 0.7 } '
    'data_augmentation_options { copy_paste {} }'
)
MASKS = 'load_instance_masks: true mask_type: PNG_MASKS'
FIXED = 'fixed_shape_resizer { height: 16 width: 24 }'
BUCKETS = 'keep_aspect_ratio_resizer { min_dimension: 16 max_dimension: 24 }'
COPY = 'data_augmentation_options { copy_paste { object_probability: 1 } }'
SIZES = (
    'aspect_ratio_buckets { height: 16 width: 24 } aspect_ratio_buckets { height: 24 width: 16 }'
)
NUM_IMAGES = 7


@pytest.fixture(scope='module')
def records(tmp_path_factory):
    """Images of 20 x 30 and 30 x 20 by turns, all pixels of image i of value 10 * (i + 1)."""
    serialized = []
    for i in range(NUM_IMAGES):
        size = (20, 30) if i % 2 else (30, 20)
        mask = np.zeros(size)
        mask[i : 10 + i, 3:12] = 1
        box = [i / size[0], 3 / size[1], (10 + i) / size[0], 12 / size[1]]
        image = np.full([*size, 3], 10 * (i + 1), np.uint8)
        serialized.append(
            examples.example(
                [box], [1 + i % 2], source_id=str(i), image=examples.png(image), masks=[mask]
            )
        )
    return examples.write_records(tmp_path_factory.mktemp('data') / 'records', serialized)


def config(path, steps=STEPS, reader='', resizer=FIXED, masks=MASKS):
    text = CONFIG.format(path=path, steps=steps, reader=reader, resizer=resizer, masks=masks)
    return text_format.Parse(text, pipeline_pb2.TrainEvalPipelineConfig())


def assert_equal(batch, other):
    assert batch.keys() == other.keys()
    for name in batch:
        np.testing.assert_array_equal(batch[name], other[name], err_msg=name)


@pytest.mark.parametrize('count', [1, 3])
def test_partners_are_those_that_follow(count):
    data = tf.data.Dataset.range(5).map(lambda i: {'a': tf.fill([i], i), 'b': i})
    pairs = list(partners.with_following(data, count))
    assert [int(example['b']) for example, _ in pairs] == list(range(5))
    for i, (example, following) in enumerate(pairs):
        expected = [i + k if i + k < 5 else i for k in range(1, count + 1)]
        assert [int(each['b']) for each in following] == expected
        assert [len(each['a']) for each in following] == expected
        assert len(example['a']) == i


def test_a_mosaic_is_of_the_images_that_follow(records):
    steps = 'data_augmentation_options { mosaic { height: 40 width: 40 pad_color: 0 } }'
    resizer = 'fixed_shape_resizer { height: 40 width: 40 }'
    pipeline = config(records, steps, 'shuffle: false num_epochs: 1', resizer, masks='')
    batches = list(dataset_builder.build_train(pipeline, seed=3, batch_size=1))
    assert len(batches) == NUM_IMAGES
    for i, batch in enumerate(batches):
        values = set(np.unique(batch[F.IMAGE])) - {0}
        shown = [i + k if i + k < NUM_IMAGES else i for k in range(4)]
        # Between an image and the black around it, and nowhere else, are no other values.
        assert values == {10.0 * (number + 1) for number in shown}
        assert batch[F.SOURCE_ID].numpy() == [str(i).encode()]


@pytest.mark.slow
def test_training_resumes_exactly(records):
    """After every batch, across epochs; the order is shuffled."""
    build = functools.partial(dataset_builder.build_train, config(records), seed=5)
    batches = list(build().take(6))
    assert len({batch[F.IMAGE].numpy().tobytes() for batch in batches}) == 6
    start = record_order.cursors_of(batches[2][F.STREAM_STATE].numpy(), 1)
    for batch, other in zip(batches[3:], build(start=start).take(3), strict=True):
        assert_equal(batch, other)


def test_images_in_buckets_resume_with_their_partners(records):
    pipeline = config(records, COPY, SIZES, BUCKETS)
    build = functools.partial(dataset_builder.build_train, pipeline, seed=2)
    batches = list(build().take(6))
    assert {batch[F.IMAGE].shape[1] for batch in batches} == {16, 24}
    starts = [record_order.cursors_of(batch[F.STREAM_STATE].numpy(), 1) for batch in batches]
    done = next(i for i, start in enumerate(starts, 1) if len(start) > 1)
    following = build(start=starts[done - 1]).take(6 - done)
    for batch, other in zip(batches[done:], following, strict=True):
        assert_equal(batch, other)


@pytest.mark.slow
def test_a_step_ends_after_its_last_training_step(records):
    steps = (
        'data_augmentation_options { normalize_image { original_maxval: 255 target_maxval: 0.5 } '
        'stop_after_step: 3 }'
    )
    build = functools.partial(dataset_builder.build_train, config(records, steps), seed=5)
    largest = [float(tf.reduce_max(next(iter(build(step=n)))[F.IMAGE])) for n in (2, 3)]
    assert largest[0] <= 0.5
    assert largest[1] >= 10.0


@pytest.mark.parametrize(
    ('steps', 'message'),
    [
        (
            'one_of { steps { rgb_to_gray {} stop_after_step: 2 } }',
            'expected it in the step with',
        ),
        ('rgb_to_gray {} stop_after_step: -1', r'stop_after_step: expected at least 0.*-1'),
    ],
)
def test_a_stop_in_the_wrong_place_is_refused(records, steps, message):
    with pytest.raises(ValueError, match=message):
        dataset_builder.build_train(
            config(records, f'data_augmentation_options {{ {steps} }}'), seed=1
        )
