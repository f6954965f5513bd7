"""Context R-CNN from records of real sequences to the exported model."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import dataset_builder
from object_detection.config import show, synthetic_data
from object_detection.config.job_options import TrainOptions
from object_detection.core.fields import InputFields as F
from object_detection.errors import ConfigError
from object_detection.export import exporter, saved_model
from object_detection.runtime import input_types, side_inputs
from object_detection.training import jobs
from object_detection.utils import config_util
from object_detection.validation.validate import validate
from tests import tiny_models as tiny
from tests.data import examples

NAMES = ('context_features', 'valid_context_size')
LENGTH, SIZE = 2057, 20
CONFIG = f"""
model {{ faster_rcnn {{
  number_of_stages: 2
  num_classes: 48
  context_config {{
    max_num_context_features: {SIZE}
    context_feature_length: {LENGTH}
    attention_bottleneck_dimension: 8
  }}
}} }}
train_config {{ batch_size: 2 num_steps: 1 }}
"""


@pytest.fixture(scope='module')
def samples(shared):
    return shared / 'data' / 'tf_od_api_samples'


def pipeline_of(records, labels, sequences=True, size=SIZE):
    pipeline = tiny.tiny_pipeline(CONFIG)
    pipeline.model.faster_rcnn.context_config.max_num_context_features = size
    pipeline.train_config.ClearField('fine_tune_checkpoint')
    pipeline.train_config.ClearField('fine_tune_checkpoint_type')
    pipeline.train_config.ClearField('data_augmentation_options')
    pipeline.eval_config.ClearField('metrics_set')
    for reader in (pipeline.train_input_reader, pipeline.eval_input_reader[0]):
        reader.Clear()
        reader.label_map_path = str(labels)
        reader.tf_record_input_reader.input_path.append(str(records))
        reader.load_context_features = True
        if sequences:
            reader.input_type = (
                reader.DESCRIPTOR.fields_by_name['input_type']
                .enum_type.values_by_name['TF_SEQUENCE_EXAMPLE']
                .number
            )
    return pipeline


@pytest.fixture(scope='module')
def serengeti(samples):
    """A small model for the sequence of the Snapshot Serengeti data."""
    return pipeline_of(
        samples / 'test_data' / 'snapshot_serengeti_sequence_examples.record',
        samples / 'data' / 'snapshot_serengeti_label_map.pbtxt',
    )


@pytest.fixture(scope='module')
def trained(serengeti, tmp_path_factory) -> pathlib.Path:
    """The folder of a training of one step with an evaluation."""
    folder = tmp_path_factory.mktemp('model')
    config = folder / 'pipeline.config'
    show.write_pipeline(serengeti, str(config))
    options = TrainOptions(num_train_steps=1, eval_every_n_steps=1, log_every_n=1, seed=0)
    assert jobs.run_training(str(config), str(folder / 'model'), options) == 0
    return folder / 'model'


@pytest.mark.slow
def test_a_training_on_sequences_and_its_evaluation(trained):
    (line,) = (trained / 'train' / 'history.jsonl').read_text().splitlines()
    losses = json.loads(line)['losses']
    assert np.isfinite(list(losses.values())).all()
    assert losses['Loss/BoxClassifierLoss/classification_loss'] > 0
    metrics = json.loads((trained / 'eval' / 'metrics.json').read_text())
    assert 'DetectionBoxes_Precision/mAP' in metrics
    assert np.isfinite(metrics['Loss/BoxClassifierLoss/classification_loss'])


@pytest.fixture(scope='module')
def batch(serengeti):
    """The first two frames of the sequence, as an evaluation gets them."""
    return next(iter(dataset_builder.build_eval(serengeti, batch_size=2)))


def test_a_batch_has_the_context_of_its_sequence(batch):
    assert batch[F.CONTEXT_FEATURES].shape == (2, SIZE, LENGTH)
    np.testing.assert_array_equal(batch[F.VALID_CONTEXT_SIZE], [16, 16])
    assert not np.any(batch[F.CONTEXT_FEATURES][:, 16:])
    assert np.any(batch[F.CONTEXT_FEATURES][:, 15])


def boxes_and_scores(outputs):
    return [outputs[f'detection_{name}'].numpy() for name in ('boxes', 'scores')]


@pytest.mark.slow
def test_an_export_takes_the_context(serengeti, trained, batch, tmp_path):
    images = tf.cast(batch[F.IMAGE], tf.uint8)
    context = {name: batch[name] for name in NAMES}
    detector = exporter.load_detector(serengeti, str(trained / 'ckpt-1'), 'float32')
    preprocessed, shapes = detector.preprocess(images)
    expected = detector.postprocess(detector.predict(preprocessed, shapes, **context), shapes)
    assert expected['num_detections'].numpy().min() > 0

    exporter.export(serengeti, str(trained), tmp_path)
    loaded = tf.saved_model.load(str(tmp_path / 'saved_model'))
    of_images = loaded.signatures['serving_default']
    signature = of_images.structured_input_signature[1]
    assert {name: spec.shape.as_list() for name, spec in signature.items()} == {
        'input_tensor': [None, None, None, 3],
        'context_features': [None, SIZE, LENGTH],
        'valid_context_size': [None],
    }
    found = of_images(input_tensor=images, **context)
    for ours, wanted in zip(*map(boxes_and_scores, (found, expected)), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-3, atol=1e-3)

    given = side_inputs.parse(','.join(NAMES), f'1,{SIZE},{LENGTH}/1', 'tf.float32,tf.int32')
    encoded = saved_model.ServedDetector(
        detector, input_types.ENCODED_IMAGE_STRING_TENSOR, 'float32', None, given
    )
    png = tf.io.encode_png(images[0])
    found = encoded.serve(png[tf.newaxis], *(value[:1] for value in context.values()))
    for ours, wanted in zip(*map(boxes_and_scores, (found, expected)), strict=True):
        np.testing.assert_allclose(ours, wanted[:1], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_exports_for_examples_read_their_context(serengeti, trained, batch):
    detector = exporter.load_detector(serengeti, str(trained / 'ckpt-1'), 'float32')
    images = tf.cast(batch[F.IMAGE], tf.uint8)[:1]
    preprocessed, shapes = detector.preprocess(images)
    context = {name: batch[name][:1] for name in NAMES}
    expected = detector.postprocess(detector.predict(preprocessed, shapes, **context), shapes)
    assert expected['num_detections'].numpy().min() > 0

    of_records = saved_model.ServedDetector(detector, input_types.TF_EXAMPLE, 'float32').serve
    assert [spec.name for spec in of_records.input_signature] == ['input_tensor']
    features = context['context_features'][0, :16].numpy().ravel()
    png = tf.io.encode_png(images[0]).numpy()
    records = [
        example(png, features),
        # More than the model takes.
        example(png, np.concatenate([features, *[np.zeros(LENGTH)] * 5])),
        example(png, []),
    ]
    found = of_records(tf.constant(records))
    for ours, wanted in zip(*map(boxes_and_scores, (found, expected)), strict=True):
        np.testing.assert_allclose(ours[0], wanted[0], rtol=1e-3, atol=1e-3)
    assert of_records(tf.constant([], tf.string))['detection_boxes'].shape[0] == 0
    with pytest.raises(tf.errors.InvalidArgumentError, match=f'multiple of {LENGTH} numbers'):
        of_records(tf.constant([example(png, [1.0])]))


def example(encoded, context):
    return examples.example(
        [], labels=[], image=encoded, image__context_features=list(map(float, context))
    )


@pytest.mark.slow
def test_the_context_of_an_image_matters_to_it_alone(serengeti, trained, batch):
    detector = exporter.load_detector(serengeti, str(trained / 'ckpt-1'), 'float32')
    context = {name: batch[name] for name in NAMES}
    images, shapes = detector.preprocess(tf.cast(batch[F.IMAGE], tf.uint8))
    logits = [
        detector.predict(images, shapes, **(context | changed)).regions.class_logits
        for changed in ({}, {'valid_context_size': tf.constant([1, 16])})
    ]
    rows = np.abs(logits[0] - logits[1]).reshape(2, -1).max(axis=1)
    assert rows[0] > 10 * rows[1]


# What a config says that does not fit.


def test_readers_must_load_the_context(serengeti):
    changed = type(serengeti)()
    changed.CopyFrom(serengeti)
    changed.train_input_reader.load_context_features = False
    changed.eval_input_reader[0].load_context_features = False
    message = r'{}\.load_context_features is false, but model\.faster_rcnn\.context_config needs'
    for purpose, reader in (('train', 'train_input_reader'), ('eval', r'eval_input_reader\[0\]')):
        with pytest.raises(ConfigError, match=message.format(reader)):
            validate(changed, for_what=purpose)
    # Boxes that attend to each other alone need none.
    changed.model.faster_rcnn.context_config.use_long_term_attention = False
    changed.model.faster_rcnn.context_config.use_self_attention = True
    validate(changed, for_what=['train', 'eval'])


@pytest.fixture
def other_length(tmp_path, samples):
    records = tmp_path / 'data.record'
    record = examples.example(
        [[0.1, 0.1, 0.9, 0.9]],
        labels=[1],
        source_id='img 42',
        image=examples.png(examples.noise(64, 64)),
        image__context_features=[1.0] * 8,
        image__context_feature_length=[4],
    )
    examples.write_records(records, [record])
    labels = samples / 'data' / 'snapshot_serengeti_label_map.pbtxt'
    return pipeline_of(records, labels, sequences=False)


def test_records_of_another_length_do_not_fit(other_length, caplog):
    with pytest.raises(ConfigError, match=r'img 42.*feature_length of 2057.* Received: 4'):
        validate(other_length, for_what='train')
    # A later record is left out, and the log says why.
    assert list(dataset_builder.build_eval(other_length)) == []
    assert 'need 2057 numbers each' in caplog.text
    assert 'context_feature_length' in caplog.text


def test_synthetic_data_have_a_context(serengeti):
    pipeline = synthetic_data.without_files(serengeti)
    validate(pipeline, for_what=['train', 'eval'])
    found = next(iter(dataset_builder.build_train(pipeline, seed=1)))
    assert found[F.CONTEXT_FEATURES].shape == (2, SIZE, LENGTH)
    np.testing.assert_array_equal(found[F.VALID_CONTEXT_SIZE], [SIZE, SIZE])
    assert np.std(found[F.CONTEXT_FEATURES]) == pytest.approx(1, abs=0.05)


def test_what_scripts_for_the_reference_ask(serengeti):
    assert config_util.get_max_num_context_features(serengeti.model) == SIZE
    assert config_util.get_context_feature_length(serengeti.model) == LENGTH
    assert config_util.get_context_feature_length(tiny.tiny_pipeline().model) is None
