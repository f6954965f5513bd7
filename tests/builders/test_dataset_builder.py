import functools
import logging
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import dataset_builder
from object_detection.builders.input_readers import channels, tf_records
from object_detection.core.fields import InputFields as F
from object_detection.core.groundtruth import Groundtruth
from object_detection.data.pipeline import record_order
from object_detection.protos import pipeline_pb2
from tests import rows
from tests.data import examples

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = """
model {{ faster_rcnn {{
  num_classes: 2 groundtruth_mask_crop_size: 8
  image_resizer {{ {resizer} }}
}} }}
train_config {{ batch_size: 4 data_augmentation_options {{ random_horizontal_flip {{
  keypoint_flip_permutation: 1 keypoint_flip_permutation: 0
}} }} }}
train_input_reader {{
  max_number_of_boxes: 3 tf_record_input_reader {{ input_path: '{path}' }}
}}
eval_config {{ batch_size: 4 }}
eval_input_reader {{
  max_number_of_boxes: 3 tf_record_input_reader {{ input_path: '{path}' }}
}}
"""
FIXED = 'fixed_shape_resizer { height: 16 width: 24 }'
# Every option that adds entries to the batches.
FULL = (
    'load_instance_masks: true mask_type: PNG_MASKS load_image_labels: true '
    'load_track_id: true num_keypoints: 2 load_keypoint_depth_features: true '
)
KEEP = 'keep_aspect_ratio_resizer { min_dimension: 16 max_dimension: 24 }'


def config(path, *, resizer=FIXED, reader=''):
    """A pipeline config; `reader` is merged into both readers."""
    text = CONFIG.format(path=path, resizer=resizer)
    pipeline = text_format.Parse(text, pipeline_pb2.TrainEvalPipelineConfig())
    for message in (pipeline.train_input_reader, pipeline.eval_input_reader[0]):
        text_format.Merge(reader, message)
    return pipeline


@functools.cache
def training_batches(path, resizer):
    """The specification of a training's batches, and eight of them."""
    pipeline = config(path, resizer=resizer, reader=FULL)
    dataset = dataset_builder.build_train(pipeline, seed=1)
    return dataset.element_spec, list(dataset.take(8))


@pytest.fixture
def ids_alone(monkeypatch):
    """Batches have only the source ids, for tests of which records are read, and in which order."""

    monkeypatch.setattr(dataset_builder.batches_builder, 'build', examples.batches_of_ids)


def ids(batches):
    return [int(source_id) for batch in batches for source_id in batch[F.SOURCE_ID].numpy()]


def check_names(entries):
    """Every entry of a batch has a name and is explained."""
    assert entries <= {value for name, value in vars(F).items() if name.isupper()}
    conventions = (ROOT / 'docs' / 'conventions.md').read_text()
    assert [name for name in sorted(entries) if name not in conventions] == []


@pytest.mark.parametrize('resizer', [FIXED, pytest.param(KEEP, marks=pytest.mark.slow)])
def test_training_batches(records, resizer):
    specs, batches = training_batches(records, resizer)
    check_names(specs.keys())
    if resizer == FIXED:
        assert all(spec.shape.is_fully_defined() for spec in specs.values())
    for batch in batches:
        assert batch[F.IMAGE].dtype == tf.float32
        assert batch[F.IMAGE].shape[0] == 4
        assert resizer == KEEP or batch[F.IMAGE].shape == (4, 16, 24, 3)
        assert batch[F.TRUE_IMAGE_SHAPE].shape == (4, 3)
        assert batch[F.GROUNDTRUTH_BOXES].shape == (4, 3, 4)
        assert batch[F.GROUNDTRUTH_CLASSES].shape == (4, 3, 2)
        counts = batch[F.NUM_GROUNDTRUTH_BOXES].numpy()
        np.testing.assert_array_equal(counts, [int(i) % 3 for i in batch[F.SOURCE_ID].numpy()])
        np.testing.assert_array_equal(tf.reduce_sum(batch[F.GROUNDTRUTH_WEIGHTS], 1), counts)
        crops = batch[F.GROUNDTRUTH_INSTANCE_MASK_CROPS]
        assert crops.shape == (4, 3, 8, 8)
        np.testing.assert_array_equal(
            tf.reduce_max(crops, [2, 3]) > 0, np.arange(3) < counts[:, None]
        )
        groundtruth = Groundtruth.from_batch(batch)
        assert groundtruth.masks_are_crops


def test_every_image_once_an_epoch_in_another_order(records):
    _, batches = training_batches(records, FIXED)
    epochs = np.reshape(ids(batches)[:30], [3, 10])
    np.testing.assert_array_equal(np.sort(epochs), np.tile(np.arange(10), [3, 1]))
    assert (epochs[0] != epochs[1]).any()
    assert (epochs[1] != epochs[2]).any()


def test_another_seed_is_another_order(records, ids_alone):
    first, again, other = (
        ids(dataset_builder.build_train(config(records), seed=seed).take(8)) for seed in (1, 1, 2)
    )
    assert first == again == ids(training_batches(records, FIXED)[1])
    assert first != other


@pytest.mark.slow
def test_flips_do_not_depend_on_the_number_of_threads(records):
    def boxes(threads):
        dataset = dataset_builder.build_train(config(records), seed=1)
        options = tf.data.Options()
        options.threading.private_threadpool_size = threads
        options.autotune.enabled = threads > 1
        return [batch[F.GROUNDTRUTH_BOXES] for batch in dataset.with_options(options).take(6)]

    np.testing.assert_array_equal(boxes(1), boxes(8))


@pytest.mark.slow
def test_unshuffled_finite_training_data(records):
    reader = 'shuffle: false num_epochs: 2 drop_remainder: false num_readers: 1'
    dataset = dataset_builder.build_train(config(records, reader=reader))
    order = [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]
    assert ids(dataset) == order * 2


@pytest.mark.parametrize('resizer', [pytest.param(FIXED, marks=pytest.mark.slow), KEEP])
def test_evaluation_sees_every_image_once_in_file_order(records, resizer):
    reader = FULL + 'read_block_length: 1 '
    # Not of evaluations; and fields that are refused with other values.
    reader += 'filter_empty_images: true '
    reader += 'load_multiclass_scores: false num_additional_channels: 0'
    pipeline = config(records, resizer=resizer, reader=reader)
    batches = list(dataset_builder.build_eval(pipeline))
    assert [len(batch[F.SOURCE_ID]) for batch in batches] == [4, 4, 2]
    assert ids(batches) == list(range(10))
    check_names(batches[0].keys())
    for batch in batches:
        counts = batch[F.NUM_EVALUATION_BOXES].numpy()
        size = max(counts)
        assert batch[F.EVALUATION_BOXES].shape[1:] == (size, 4)
        assert batch[F.EVALUATION_CLASSES].dtype == tf.int64
        np.testing.assert_array_equal(
            batch[F.EVALUATION_CLASSES] > 0, np.arange(size) < counts[:, None]
        )
        np.testing.assert_array_equal(
            batch[F.EVALUATION_MASKS] != '', np.arange(size) < counts[:, None]
        )
    first = batches[0]
    np.testing.assert_allclose(first[F.EVALUATION_BOXES][1, 0], [0.1, 0.1, 0.5, 0.2])
    mask = tf.io.decode_png(first[F.EVALUATION_MASKS][1, 0])
    np.testing.assert_array_equal(mask.shape[:2], first[F.ORIGINAL_IMAGE_SPATIAL_SHAPE][1])


@pytest.mark.slow
def test_evaluation_may_leave_images_at_their_own_size(records):
    pipeline = config(records)
    sizes = (F.TRUE_IMAGE_SHAPE, F.ORIGINAL_IMAGE_SPATIAL_SHAPE)
    resized, _ = (next(iter(dataset_builder.build_eval(pipeline)))[name] for name in sizes)
    np.testing.assert_array_equal(resized[:, :2], [[16, 24]] * 4)
    pipeline.eval_config.force_no_resize = True
    batch = next(iter(dataset_builder.build_eval(pipeline)))
    true, original = (batch[name].numpy() for name in sizes)
    np.testing.assert_array_equal(true[:, :2], original)
    np.testing.assert_array_equal(batch[F.IMAGE].shape[1:3], original.max(axis=0))
    # The training resizes all the same.
    assert next(iter(dataset_builder.build_train(pipeline)))[F.IMAGE].shape[1:3] == (16, 24)
    resizer = pipeline.model.faster_rcnn.image_resizer.fixed_shape_resizer
    resizer.convert_to_grayscale = True
    (problem,) = channels.check(pipeline, pipeline.eval_input_reader[0], 'eval_input_reader[0]')
    assert problem.startswith('eval_config.force_no_resize: expected false')


def test_workers_share_the_images_of_an_evaluation(records, ids_alone):
    pipeline = config(records, reader='read_block_length: 1')
    assert ids(dataset_builder.build_eval(pipeline, shard=(2, 3))) == [2, 5, 8]
    pipeline.eval_config.eval_samples = 4
    assert ids(dataset_builder.build_eval(pipeline, shard=(1, 2))) == [1, 3]
    del pipeline.eval_input_reader[0].tf_record_input_reader.input_path[:]
    pipeline.eval_input_reader[0].synthetic_input_reader.num_examples = 7
    pipeline.eval_config.batch_size = 2
    assert ids(dataset_builder.build_eval(pipeline, shard=(1, 2))) == [2, 3]


def test_evaluation_is_shuffled_only_on_request(records, ids_alone):
    shuffled = ids(dataset_builder.build_eval(config(records, reader='shuffle: true')))
    assert shuffled != list(range(10))
    assert sorted(shuffled) == list(range(10))


@pytest.mark.slow
def test_evaluation_says_that_it_keeps_the_last_batch(records, caplog):
    with caplog.at_level(logging.WARNING):
        batches = dataset_builder.build_eval(config(records, reader='drop_remainder: true'))
    assert len(ids(batches)) == 10
    assert 'eval_input_reader[0].drop_remainder' in caplog.text


def test_one_of_n_examples_is_the_same_subset_in_every_epoch(records, ids_alone):
    reader = 'sample_1_of_n_examples: 3 read_block_length: 1'
    for seed in (1, 2):
        dataset = dataset_builder.build_train(config(records, reader=reader), seed=seed)
        assert set(ids(dataset.take(8))) == {0, 3, 6, 9}
    assert ids(dataset_builder.build_eval(config(records, reader=reader))) == [0, 3, 6, 9]


@pytest.mark.parametrize('pipelines', [2, 4])
def test_input_pipelines_share_the_data(records, ids_alone, pipelines):
    """By files, or by records where there are fewer files than pipelines."""
    seen = []
    for i in range(pipelines):
        context = tf.distribute.InputContext(pipelines, i, num_replicas_in_sync=4)
        dataset = dataset_builder.build_train(
            config(records, reader='num_epochs: 1'), input_context=context, seed=1
        )
        batches = list(dataset)
        assert all(len(batch[F.SOURCE_ID]) == 1 for batch in batches)
        seen += ids(batches)
    assert sorted(seen) == list(range(10))


def test_weights_of_data_sets(tmp_path, ids_alone):
    for name, source_id in (('a', '1'), ('b', '2')):
        examples.write_records(tmp_path / name, [examples.example(source_id=source_id)])
    reader = f"""
      tf_record_input_reader {{ input_path: '{tmp_path / 'b'}' }}
      sample_from_datasets_weights: 0.9 sample_from_datasets_weights: 0.1
    """
    pipeline = config(tmp_path / 'a', reader=reader)
    drawn = ids(dataset_builder.build_train(pipeline, seed=3).take(50))
    assert 150 < drawn.count(1) < 198
    del pipeline.train_input_reader.sample_from_datasets_weights[1]
    with pytest.raises(ValueError, match=r'sample_from_datasets_weights: expected 2'):
        dataset_builder.build_train(pipeline)


@pytest.mark.slow
def test_class_weights_are_of_training_alone(records):
    pipeline = config(records)
    text_format.Merge('class_weight { id: 2 weight: 5 }', pipeline.train_config)
    for batch in dataset_builder.build_train(pipeline, seed=1).take(3):
        classes, weights = batch[F.GROUNDTRUTH_CLASSES], batch[F.GROUNDTRUTH_WEIGHTS]
        np.testing.assert_array_equal(weights, classes.numpy() @ [1.0, 5.0])
    for batch in dataset_builder.build_eval(pipeline):
        assert set(batch[F.GROUNDTRUTH_WEIGHTS].numpy().ravel()) <= {0.0, 1.0}


def test_text_classes_go_through_the_label_map(tmp_path, caplog):
    """Classes that it lacks are named once. An evaluation keeps crowds and empty images."""
    texts = (['Hund', 'cat', 'bird'], ['Hund', 'bird', 'ant'], ['Hund', 'bird', 'ant'])
    crowd = {'image__object__is_crowd': [0, 1, 0]}
    records = [examples.example([[0, 0, 1, 1]] * 3, [1, 1, 1], each, **crowd) for each in texts]
    path = examples.write_records(tmp_path / 'a', [*records, examples.example()])
    reader = f"label_map_path: '{examples.write_label_map(tmp_path)}'"
    pipeline = config(path, reader=f'{reader} skip_crowd: true filter_empty_images: true')
    pipeline.eval_config.batch_size = 2
    with caplog.at_level(logging.WARNING):
        batch, last = dataset_builder.build_eval(pipeline)
    np.testing.assert_array_equal(batch[F.EVALUATION_CLASSES], [[2, 1], [2, 0]])
    np.testing.assert_array_equal(batch[F.EVALUATION_IS_CROWD], [[0, 1], [0, 0]])
    np.testing.assert_array_equal(batch[F.GROUNDTRUTH_CLASSES][0], [[0, 1], [1, 0], [0, 0]])
    np.testing.assert_array_equal(last[F.EVALUATION_CLASSES], [[2], [0]])
    named = [message for message in caplog.messages if message.startswith('Class ')]
    assert [message.split()[1] for message in named] == ["'bird'", "'ant'"]


@rows.parametrize(
    ('reader', 'message'),
    [
        ('frame_index: 3', 'train_input_reader.frame_index: expected input_type'),
        ('num_channels: 0', 'train_input_reader.num_channels: expected at least 1'),
        ('keypoint_type_weight: 1', 'train_input_reader.keypoint_type_weight'),
        ('input_type: TF_SEQUENCE_EXAMPLE', 'needs a label_map_path'),
        ('external_input_reader { }', 'train_input_reader.external_input_reader'),
        ('max_number_of_boxes: 0', 'max_number_of_boxes: expected at least 1'),
        ("label_map_path: '/nowhere'", 'Label map /nowhere cannot be read'),
    ],
)
def test_what_is_not_supported_is_rejected_by_name(records, reader, message):
    with pytest.raises(ValueError, match=message):
        dataset_builder.build_train(config(records, reader=reader))


def test_other_errors_name_the_field(records, tmp_path):
    with pytest.raises(ValueError, match=r'eval_input_reader\[0\].*matches no file.*none-\*'):
        dataset_builder.build_eval(config(tmp_path / 'none-*'))
    with pytest.raises(ValueError, match=r'reader_index: expected one of 1 .* Received: 1'):
        dataset_builder.build_eval(config(records), 1)
    pipeline = config(records)
    pipeline.train_config.use_multiclass_scores = True
    with pytest.raises(ValueError, match='use_multiclass_scores: expected train_input_reader'):
        dataset_builder.build_train(pipeline)
    pipeline = config(records)
    pipeline.train_input_reader.ClearField('tf_record_input_reader')
    with pytest.raises(ValueError, match='input_path is not set'):
        dataset_builder.build_train(pipeline)
    pipeline = config(records)
    pipeline.ClearField('model')
    with pytest.raises(ValueError, match='model is not set'):
        dataset_builder.build_train(pipeline)


@pytest.mark.slow
def test_stored_logits_become_soft_labels_and_other_steps_apply(tmp_path):
    logits = np.log([[0.75, 0.25], [0.5, 0.5]]).ravel().tolist()
    record = examples.example(
        [[0.1, 0.1, 0.5, 0.5]] * 2, [7, 2], image__object__class__multiclass_scores=logits
    )
    path = examples.write_records(tmp_path / 'train', [record])
    pipeline = config(path, reader='load_multiclass_scores: true')
    text_format.Merge(
        """
        use_multiclass_scores: true
        data_augmentation_options { subtract_channel_mean { means: [300, 300, 300] } }
        data_augmentation_options { convert_class_logits_to_softmax {} }
        data_augmentation_options { remap_labels { original_labels: 7 new_label: 1 } }""",
        pipeline.train_config,
    )
    batch = next(iter(dataset_builder.build_train(pipeline, seed=1)))
    np.testing.assert_allclose(
        batch[F.GROUNDTRUTH_CLASSES][0], [[0.75, 0.25], [0.5, 0.5], [0, 0]], rtol=1e-6
    )
    assert tf.reduce_max(batch[F.IMAGE]) < 0
    # Evaluation reads them too, and leaves them alone.
    text_format.Merge('label_map_path: ""', pipeline.eval_input_reader[0])
    pipeline.model.faster_rcnn.num_classes = 7
    batch = next(iter(dataset_builder.build_eval(pipeline)))
    np.testing.assert_array_equal(batch[F.EVALUATION_CLASSES], [[7, 2]])


def write_mixed_images(tmp_path):
    """Images 0 to 7; those with something to train on are 1, 4 (beside a crowd) and 6 (a crowd)."""
    box, flat, outside = [0.1, 0.1, 0.5, 0.5], [0.2, 0.2, 0.2, 0.6], [1.2, 0.1, 1.4, 0.5]
    crowd, weight = 'image__object__is_crowd', 'image__object__weight'
    serialized = [
        examples.example(source_id='0'),
        examples.example([box], [1], source_id='1'),
        examples.example([flat, outside], [1, 1], source_id='2'),
        examples.example([box], [1], ['bird'], source_id='3'),
        examples.example([box, box], [1, 2], source_id='4', **{crowd: [1, 0]}),
        examples.example([box], [1], source_id='5', **{weight: [0.0]}),
        examples.example([box], [2], source_id='6', **{crowd: [1]}),
        examples.example([[float('nan')] * 4], [1], source_id='7'),
    ]
    return examples.write_records(tmp_path / 'mixed', serialized)


@pytest.mark.parametrize(('skip_crowd', 'left'), [(False, [1, 4, 6]), (True, [1, 4])])
def test_images_without_a_usable_object_are_left_out_of_training(
    tmp_path, caplog, ids_alone, skip_crowd, left
):
    reader = (
        f"label_map_path: '{examples.write_label_map(tmp_path)}' filter_empty_images: true "
        f'skip_crowd: {str(skip_crowd).lower()} shuffle: false num_epochs: 2 '
    )
    pipeline = config(write_mixed_images(tmp_path), reader=reader)
    with caplog.at_level(logging.INFO):
        batches = list(dataset_builder.build_train(pipeline, batch_size=1))
    assert ids(batches) == left * 2
    told = [message for message in caplog.messages if 'filter_empty_images' in message]
    number = 8 - len(left)
    assert told == [
        f'train_input_reader.filter_empty_images: {number} images without a usable object are '
        'left out of each pass over the data'
    ]


def test_nothing_but_empty_images_ends_the_data(tmp_path, ids_alone):
    path = examples.write_records(tmp_path / 'a', [examples.example()] * 3)
    dataset = dataset_builder.build_train(config(path, reader='filter_empty_images: true'))
    assert list(dataset) == []


def test_every_data_set_of_a_mixture_counts_its_own_empty_images(tmp_path, caplog, ids_alone):
    path = write_mixed_images(tmp_path)
    other = examples.write_records(tmp_path / 'b', [examples.example([[0, 0, 1, 1]], [1])])
    reader = f"""
      tf_record_input_reader {{ input_path: '{other}' }} filter_empty_images: true num_epochs: 1
      sample_from_datasets_weights: 0.5 sample_from_datasets_weights: 0.5 drop_remainder: false
    """
    with caplog.at_level(logging.INFO):
        list(dataset_builder.build_train(config(path, reader=reader), seed=1))
    told = [message.split()[1] for message in caplog.messages if 'left out of each' in message]
    assert sorted(told) == ['0', '4']


def test_crowds_are_left_out_of_training_and_images_that_lose_objects_are_named_once(
    tmp_path, caplog
):
    reader = 'skip_crowd: true shuffle: false num_epochs: 2'
    pipeline = config(write_mixed_images(tmp_path), reader=reader)
    with caplog.at_level(logging.WARNING):
        batches = list(dataset_builder.build_train(pipeline, seed=0))
    counts = np.concatenate([batch[F.NUM_GROUNDTRUTH_BOXES] for batch in batches])
    np.testing.assert_array_equal(counts, [0, 1, 0, 1, 1, 1, 0, 0] * 2)
    invalid = np.concatenate([batch[F.NUM_INVALID_OBJECTS] for batch in batches])
    np.testing.assert_array_equal(invalid, [0, 0, 2, 0, 0, 0, 0, 1] * 2)
    np.testing.assert_array_equal(batches[1][F.GROUNDTRUTH_CLASSES][0, 0], [0, 1])
    assert caplog.messages == [
        'Image 2: objects are left out: 1 with a box without area.',
        'Image 2: objects are left out: 1 with a box outside the image.',
        'Image 7: objects are left out: 1 with a box that has a NaN coordinate.',
    ]


MULTI_SCALE = """keep_aspect_ratio_resizer {
  min_dimension: 16 max_dimension: 24 min_dimension_range { min: 8 max: 12 } PAD
}"""


@pytest.mark.slow
def test_training_images_draw_their_size(records):
    pipeline = config(records, resizer=MULTI_SCALE.replace('PAD', 'pad_height: 16 pad_width: 24'))

    def shorter_sides(dataset):
        shapes = np.concatenate([batch[F.TRUE_IMAGE_SHAPE] for batch in dataset])
        return shapes[:, :2].min(axis=1)

    dataset = dataset_builder.build_train(pipeline, seed=1)
    assert dataset.element_spec[F.IMAGE].shape == (4, 16, 24, 3)
    drawn = shorter_sides(dataset.take(25))
    assert set(drawn) == {8, 9, 10, 11, 12}
    again = dataset_builder.build_train(pipeline, seed=1)
    np.testing.assert_array_equal(drawn[:20], shorter_sides(again.take(5)))
    # Of images 20 x 30 to 29 x 48, with the longer side at most 24.
    assert set(shorter_sides(dataset_builder.build_eval(pipeline))) == {14, 15, 16}


@pytest.mark.slow
def test_images_of_drawn_sizes_are_padded_to_the_batch(records):
    pipeline = config(records, resizer=MULTI_SCALE.replace('PAD', ''))
    for batch in dataset_builder.build_train(pipeline, seed=1).take(3):
        size, shapes = batch[F.IMAGE].shape[1:3], batch[F.TRUE_IMAGE_SHAPE].numpy()
        np.testing.assert_array_equal(size, shapes.max(axis=0)[:2])
        counts = batch[F.NUM_GROUNDTRUTH_BOXES].numpy()
        expected = 0.5 * shapes[:, 0] / size[0]  # ymax
        boxes = batch[F.GROUNDTRUTH_BOXES].numpy()
        np.testing.assert_allclose(boxes[counts > 0, 0, 2], expected[counts > 0], rtol=1e-6)


@pytest.mark.parametrize(
    'reader',
    [
        pytest.param('shuffle_buffer_size: 4 filter_empty_images: true', marks=pytest.mark.slow),
        pytest.param('sample_1_of_n_examples: 2 shuffle: false', marks=pytest.mark.slow),
        pytest.param(
            "tf_record_input_reader { input_path: 'PATH' } "
            'sample_from_datasets_weights: 0.7 sample_from_datasets_weights: 0.3',
            marks=pytest.mark.optimized,
        ),
        'synthetic_input_reader { num_examples: 9 }',
    ],
    ids=['filtered', 'in order', 'mixture', 'synthetic'],
)
def test_resumes_from_the_state_of_a_batch(records, reader):
    pipeline = config(records, reader=reader.replace('PATH', records))
    cursor_size = tf_records.cursor_size(pipeline.train_input_reader)

    def take(count, start=None):
        return list(dataset_builder.build_train(pipeline, seed=1, start=start).take(count))

    whole = take(7)
    start = record_order.cursors_of(whole[3][F.STREAM_STATE].numpy(), cursor_size)
    for batch, expected in zip(take(3, start), whole[4:], strict=True):
        for name in expected:
            np.testing.assert_array_equal(batch[name], expected[name], err_msg=name)
