"""Training and evaluation data in a few static sizes."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import dataset_builder
from object_detection.builders.input_readers import examples as examples_builder
from object_detection.core.fields import InputFields as F
from object_detection.data.pipeline import record_order
from object_detection.protos import pipeline_pb2
from tests.data import examples

LANDSCAPE, PORTRAIT = (16, 24), (24, 16)
NUM_LANDSCAPE, NUM_IMAGES = 7, 12
CONFIG = """
model {{ faster_rcnn {{
  num_classes: 2 groundtruth_mask_crop_size: {crop_size}
  image_resizer {{ keep_aspect_ratio_resizer {{
    min_dimension: 16 max_dimension: 24 pad_height: 16 pad_width: 24
  }} }}
}} }}
train_config {{ batch_size: 2 data_augmentation_options {{ random_horizontal_flip {{ }} }} }}
train_input_reader {{ {reader} }}
eval_config {{ batch_size: 2 }}
eval_input_reader {{ {reader} }}
"""
READER = """
max_number_of_boxes: 3 load_instance_masks: true mask_type: PNG_MASKS read_block_length: 1
tf_record_input_reader {{ input_path: '{path}' }}
aspect_ratio_buckets {{ height: 16 width: 24 }} aspect_ratio_buckets {{ height: 24 width: 16 }}
"""


@pytest.fixture(scope='module')
def records(tmp_path_factory):
    """Images 0 to 6 of 20 x 30, the others of 40 x 20; image i has i % 3 objects."""
    serialized = []
    for i in range(NUM_IMAGES):
        size = (20, 30) if i < NUM_LANDSCAPE else (40, 20)
        mask = np.zeros(size)
        mask[: size[0] // 2, : size[1] // 2] = 1
        serialized.append(
            examples.example(
                [[0.0, 0.0, 0.5, 0.5]] * (i % 3),
                [1] * (i % 3),
                source_id=str(i),
                image=examples.png(examples.noise(*size, seed=i)),
                masks=[mask] * (i % 3),
            )
        )
    # No order of the files' own.
    order = np.random.default_rng(0).permutation(NUM_IMAGES)
    path = tmp_path_factory.mktemp('data') / 'records'
    return examples.write_records(path, [serialized[i] for i in order])


def config(path, reader='', crop_size=8):
    text = CONFIG.format(reader=READER.format(path=path) + reader, crop_size=crop_size)
    return text_format.Parse(text, pipeline_pb2.TrainEvalPipelineConfig())


def ids(batch):
    return [int(source_id) for source_id in batch[F.SOURCE_ID].numpy()]


def size_of(number):
    return LANDSCAPE if number < NUM_LANDSCAPE else PORTRAIT


def test_the_sizes_of_a_reader(records):
    pipeline = config(records)
    assert examples_builder.bucket_sizes(pipeline.train_input_reader) == (LANDSCAPE, PORTRAIT)
    pipeline.train_input_reader.ClearField('aspect_ratio_buckets')
    assert examples_builder.bucket_sizes(pipeline.train_input_reader) == ()


EPOCHS = 10


@pytest.fixture(scope='module')
def ten_epochs(records):
    """The specification of the batches, and the batches of ten epochs of the images."""
    dataset = dataset_builder.build_train(config(records), seed=1)
    return dataset.element_spec, list(dataset.take(EPOCHS * NUM_IMAGES // 2))


def test_batches_hold_images_of_one_bucket(ten_epochs):
    specs, batches = ten_epochs
    assert specs[F.IMAGE].shape.as_list() == [2, None, None, 3]
    others = {name: spec for name, spec in specs.items() if name != F.IMAGE}
    assert all(spec.shape.is_fully_defined() for spec in others.values())
    seen = set()
    for batch in batches:
        sizes = {size_of(number) for number in ids(batch)}
        assert sizes == {tuple(batch[F.IMAGE].shape[1:3])}
        seen |= sizes
    assert seen == {LANDSCAPE, PORTRAIT}


def test_no_image_is_lost_or_repeated_but_waits_for_its_batch(ten_epochs):
    """After n epochs each image was given n times, but for those that wait in their bucket.

    One that waited meets its own next copy in a batch where the next epoch begins with it.
    """
    counts = np.zeros(NUM_IMAGES, int)
    for batch in ten_epochs[1]:
        np.add.at(counts, ids(batch), 1)
    # At any time one image of each bucket at most waits for another.
    assert counts.sum() == EPOCHS * NUM_IMAGES
    assert set(counts) <= {EPOCHS - 1, EPOCHS, EPOCHS + 1}
    assert np.count_nonzero(counts != EPOCHS) <= 2


@pytest.mark.slow
def test_the_end_of_the_data_leaves_partial_batches_or_none(records):
    def batches(reader):
        pipeline = config(records, f'num_epochs: 1 {reader}')
        return [ids(batch) for batch in dataset_builder.build_train(pipeline, seed=1)]

    kept = batches('drop_remainder: false')
    assert sorted(itertools.chain(*kept)) == list(range(NUM_IMAGES))
    assert sorted(map(len, kept)) == [1, 1, 2, 2, 2, 2, 2]
    assert sorted(map(len, batches(''))) == [2, 2, 2, 2, 2]


def test_images_meet_others_in_every_epoch(ten_epochs):
    pairs = [frozenset(ids(batch)) for batch in ten_epochs[1]]
    assert len(set(pairs)) > NUM_IMAGES  # Of unchanging ones there would be 6.


@pytest.mark.slow
def test_a_seed_makes_them_reproducible_whatever_the_number_of_threads(records):
    def take(threads):
        options = tf.data.Options()
        options.threading.private_threadpool_size = threads
        options.autotune.enabled = threads > 1
        dataset = dataset_builder.build_train(config(records), seed=3).with_options(options)
        return list(dataset.take(14))

    for one, other in zip(take(1), take(8), strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.slow
def test_frames_are_those_of_each_bucket(records):
    """The box is the upper left quarter of every image; the mask fills it."""
    pipeline = config(records, crop_size=0)
    for batch in dataset_builder.build_eval(pipeline):
        padded = np.array(batch[F.IMAGE].shape[1:3])
        boxes, masks = batch[F.GROUNDTRUTH_BOXES], batch[F.GROUNDTRUTH_INSTANCE_MASKS]
        assert masks.shape[2:] == tuple(padded)
        for i, number in enumerate(ids(batch)):
            true_size = batch[F.TRUE_IMAGE_SHAPE].numpy()[i, :2]
            assert tuple(true_size) == ((16, 24) if number < NUM_LANDSCAPE else (24, 12))
            for row in range(number % 3):
                np.testing.assert_allclose(boxes[i, row, 2:], true_size / padded / 2)
                expected = np.zeros(padded)
                expected[: true_size[0] // 2, : true_size[1] // 2] = 1
                np.testing.assert_array_equal(masks[i, row], expected)


@pytest.mark.slow
def test_evaluation_sees_every_image_once(records):
    batches = list(dataset_builder.build_eval(config(records)))
    assert sorted(itertools.chain(*map(ids, batches))) == list(range(NUM_IMAGES))
    assert sorted(len(ids(batch)) for batch in batches) == [1, 1, 2, 2, 2, 2, 2]


@pytest.mark.slow
def test_alone_images_of_an_evaluation_keep_the_order_of_the_files(records):
    alone = [ids(batch) for batch in dataset_builder.build_eval(config(records), batch_size=1)]
    pipeline = config(records)
    pipeline.eval_input_reader[0].ClearField('aspect_ratio_buckets')
    assert alone == [ids(batch) for batch in dataset_builder.build_eval(pipeline, batch_size=1)]


@pytest.mark.slow
def test_the_replicas_of_a_step_get_one_size(records):
    context = tf.distribute.InputContext(1, 0, num_replicas_in_sync=2)
    dataset = dataset_builder.build_train(config(records), input_context=context, seed=1)
    assert dataset.element_spec[F.IMAGE].shape[0] == 1
    sizes = [tuple(batch[F.IMAGE].shape[1:3]) for batch in dataset.take(40)]
    assert sizes[::2] == sizes[1::2]
    assert len(set(sizes)) == 2


@pytest.mark.slow
def test_one_bucket_is_a_static_shape(records):
    pipeline = config(records)
    del pipeline.train_input_reader.aspect_ratio_buckets[0]
    dataset = dataset_builder.build_train(pipeline, seed=1)
    assert dataset.element_spec[F.IMAGE].shape == (2, *PORTRAIT, 3)
    assert len(next(iter(dataset))[F.SOURCE_ID]) == 2


@pytest.mark.slow
def test_resumes_from_each_batch_with_the_buffered_images(records):
    context = tf.distribute.InputContext(1, 0, num_replicas_in_sync=2)
    pipeline = config(records, 'shuffle_buffer_size: 4')

    def take(count, start=None):
        dataset = dataset_builder.build_train(
            pipeline, input_context=context, seed=1, batch_size=2, start=start
        )
        return list(dataset.take(count))

    whole = take(14)
    has_waited = set()
    # The last batches of a step, which all replicas have got then.
    for done in (6, 10):
        start = record_order.cursors_of(whole[done - 1][F.STREAM_STATE].numpy(), 1)
        has_waited |= {len(start) > 1}
        for index, (batch, expected) in enumerate(zip(take(4, start), whole[done:], strict=False)):
            # Between the batches of a step no state is needed.
            for name in expected.keys() - ({F.STREAM_STATE} if index % 2 == 0 else set()):
                np.testing.assert_array_equal(batch[name], expected[name], err_msg=name)
    assert True in has_waited


@pytest.mark.slow
def test_what_the_end_of_the_data_left_over_is_not_read_again(records):
    pipeline = config(records, 'num_epochs: 2 drop_remainder: false')

    def read(start=None):
        return list(dataset_builder.build_train(pipeline, seed=1, start=start, batch_size=4))

    whole = read()
    # 14 and 10 images.
    assert [len(ids(batch)) for batch in whole] == [4, 4, 4, 4, 4, 2, 2]
    for done in (6, 7):
        resumed = read(record_order.cursors_of(whole[done - 1][F.STREAM_STATE].numpy(), 1))
        assert list(map(ids, resumed)) == list(map(ids, whole[done:]))
