"""Detectors of images with other channels than red, green and blue."""

import concurrent.futures
import re

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import dataset_builder, model_builder
from object_detection.builders.input_readers import channels
from object_detection.core.fields import InputFields as F
from object_detection.core.groundtruth import Groundtruth
from object_detection.export import exporter
from object_detection.meta_architectures import detector as detector_builder
from object_detection.models import image_channels
from object_detection.models.image_values import VGG_MEANS, Preprocess, subtract_means
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.visualization import tensorboard
from object_detection.weights import restore
from tests import rows, slow_cases, tiny_models
from tests.data import examples
from tests.weights import tiny_checkpoints

BOX = [[0.1, 0.1, 0.9, 0.6]]
GREY = 'fixed_shape_resizer { convert_to_grayscale: true }'


def record(values=(0, 10, 20, 30, 40, 50), num_additional=2):
    """A PNG of 4 channels and files of one channel, each of one value."""
    size = (32, 32)
    encoded = [examples.png(np.full(size, value)) for value in values[4 : 4 + num_additional]]
    return examples.example(
        BOX,
        [1],
        image=examples.png(np.broadcast_to(values[:4], (*size, 4))),
        masks=[np.ones(size)],
        image__additional_channels__encoded=encoded,
    )


@pytest.fixture
def pipeline(tmp_path):
    def build(reader='', resizer='', has_masks=False, **options):
        path = examples.write_records(tmp_path / 'records', [record(**options)] * 2)
        config = tiny_models.tiny_pipeline(
            f'model {{ faster_rcnn {{ image_resizer {{ {resizer} }} }} }}' if resizer else ''
        )
        config.train_config.ClearField('data_augmentation_options')
        config.train_config.batch_size = 2
        config.ClearField('eval_input_reader')
        config.ClearField('train_input_reader')
        readers = [config.train_input_reader, config.eval_input_reader.add()]
        for each in readers:
            text_format.Merge(reader, each)
            if has_masks:
                text_format.Merge('load_instance_masks: true mask_type: PNG_MASKS', each)
            each.tf_record_input_reader.input_path.append(path)
        return config

    return build


@slow_cases.parametrize(
    1,
    ('reader', 'expected'),
    [
        pytest.param('', [0, 10, 20], marks=pytest.mark.slow),
        # 0.299 * 0 + 0.587 * 10 + 0.114 * 20
        ('num_channels: 1', [8]),
        ('num_channels: 4', [0, 10, 20, 30]),
        pytest.param('num_additional_channels: 2', [0, 10, 20, 40, 50], marks=pytest.mark.slow),
        ('num_channels: 1 num_additional_channels: 2', [8, 40, 50]),
    ],
)
def test_images_have_the_channels_that_the_reader_says(pipeline, reader, expected):
    config = pipeline(reader)
    (batch,) = dataset_builder.build_eval(config, batch_size=2)
    assert batch[F.IMAGE].shape == (2, 64, 64, len(expected))
    np.testing.assert_allclose(batch[F.IMAGE][0, 5, 5], expected)
    np.testing.assert_array_equal(batch[F.TRUE_IMAGE_SHAPE][0], [64, 64, len(expected)])
    assert channels.of_detector(config) == len(expected)
    picture = tensorboard.true_image({k: v.numpy() for k, v in batch.items()}, 0)
    assert picture.shape[-1] == min(len(expected), 3)


@pytest.mark.parametrize(
    ('reader', 'resizer'),
    [pytest.param('num_additional_channels: 2', '', marks=pytest.mark.slow), ('', GREY)],
)
def test_a_detector_trains_on_them(pipeline, reader, resizer):
    config = pipeline(reader, resizer, has_masks=True)
    detector = detector_builder.build(config, is_training=True)
    assert detector.num_image_channels == channels.of_detector(config) == (5 if reader else 1)
    batch = next(iter(dataset_builder.build_train(config, seed=0)))
    images = detector.normalize_padded(batch[F.IMAGE], batch[F.TRUE_IMAGE_SHAPE])
    groundtruth = Groundtruth.from_batch(batch)
    with tf.GradientTape() as tape:
        predictions = detector.predict(
            images, batch[F.TRUE_IMAGE_SHAPE], True, groundtruth, tiny_models.SEEDS
        )
        losses = detector.loss(predictions, groundtruth, tiny_models.SEEDS)
        total = tf.add_n(list(losses.values()))
    kernel = first_kernel(detector)
    (gradient,) = tape.gradient(total, [kernel])
    assert np.isfinite(total)
    assert (np.abs(gradient).sum((0, 1, 3)) > 0).all()


def test_a_model_alone_knows_that_its_images_are_grey(pipeline):
    detector = model_builder.build(pipeline('', GREY).model)
    assert detector.num_image_channels == 1


def test_threads_build_for_channels_of_their_own():
    with image_channels.scope(5), concurrent.futures.ThreadPoolExecutor(1) as threads:
        assert threads.submit(image_channels.current).result() == 3
        assert image_channels.current() == 5
    assert image_channels.current() == 3


def first_kernel(detector):
    named = detector.named_variables()
    (name,) = (name for name in named if name.startswith('backbone/conv1_conv/kernel'))
    return named[name]


@pytest.mark.slow
def test_the_first_convolution_of_rgb_weights_is_adapted(pipeline, tmp_path):
    rgb = detector_builder.build(pipeline(), is_training=True)
    prefix = tiny_checkpoints.save(tmp_path / 'ckpt', rgb)
    kernel = first_kernel(rgb).numpy()
    grey = detector_builder.build(pipeline(resizer=GREY), is_training=True)
    report = restore.restore(grey, prefix)
    assert not report.mismatched
    np.testing.assert_allclose(first_kernel(grey), kernel.sum(2, keepdims=True), rtol=1e-6)
    five = detector_builder.build(pipeline('num_additional_channels: 2'), is_training=True)
    assert not restore.restore(five, prefix).mismatched
    np.testing.assert_array_equal(first_kernel(five)[:, :, :3], kernel)
    assert not first_kernel(five)[:, :, 3:].numpy().any()


def test_channels_have_the_means_of_colors():
    images = tf.zeros([1, 1, 1, 5])
    mean = np.mean(VGG_MEANS)
    expected = [*VGG_MEANS, mean, mean]
    np.testing.assert_allclose(subtract_means(images)[0, 0, 0], -np.array(expected), rtol=1e-6)
    np.testing.assert_allclose(subtract_means(images[..., :1])[0, 0, 0], [-mean], rtol=1e-6)
    scaled = Preprocess(mean=(1, 2, 3), std=(1, 2, 3))(images)
    np.testing.assert_allclose(scaled[0, 0, 0], [-1, -1, -1, -1, -1])


def test_exports_take_three_channels(pipeline):
    with pytest.raises(ValueError, match=r'num_channels: expected 3 for exports.*Received: 4'):
        exporter.load_detector(pipeline('num_channels: 4'), 'nowhere')
    config = pipeline('num_additional_channels: 1')
    with pytest.raises(ValueError, match=r'num_additional_channels: expected 0 .*Received: 1'):
        exporter.load_detector(config, 'nowhere', only_rgb=False)


@rows.parametrize(
    ('train', 'evaluation', 'resizer', 'problem'),
    [
        ('num_channels: 1', '', '', 'eval_input_reader.*as many channels'),
        ('num_channels: 4', 'num_channels: 4', GREY, 'expected images of 3 channels for an image'),
        (
            'num_additional_channels: 1 coco_input_reader { }',
            'num_additional_channels: 1',
            '',
            'a tf_record_input_reader',
        ),
    ],
)
def test_channels_that_do_not_fit(train, evaluation, resizer, problem):
    text = (
        f'model {{ ssd {{ image_resizer {{ {resizer} }} }} }}'
        f'train_input_reader {{ {train} }} eval_input_reader {{ {evaluation} }}'
    )
    config = text_format.Parse(text, TrainEvalPipelineConfig())
    found = [
        *channels.check(config, config.train_input_reader, 'train_input_reader'),
        *channels.check(config, config.eval_input_reader[0], 'eval_input_reader[0]'),
    ]
    assert any(re.search(problem, each) for each in found), found


def test_steps_of_colors_need_colors():
    config = text_format.Parse(
        'train_input_reader { num_channels: 4 } train_config {'
        '  data_augmentation_options { random_adjust_hue { } }'
        '  data_augmentation_options { random_pad_image { pad_color: [1, 2, 3] } }'
        '  data_augmentation_options { random_horizontal_flip { } } }',
        TrainEvalPipelineConfig(),
    )
    found = list(channels.check(config, config.train_input_reader, 'train_input_reader'))
    assert '[0].random_adjust_hue:' in found[0]
    assert '[1].random_pad_image.pad_color:' in found[1]
    assert len(found) == 2


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'num_additional': 1}, 'needs 2 image/additional_channels'),
        pytest.param(
            {'num_additional': 0}, 'needs 2 image/additional_channels', marks=pytest.mark.slow
        ),
    ],
)
def test_records_need_the_files_of_all_channels(pipeline, options, message):
    config = pipeline('num_additional_channels: 2 strict_data: true', **options)
    with pytest.raises(tf.errors.OpError, match=message):
        next(iter(dataset_builder.build_eval(config)))
