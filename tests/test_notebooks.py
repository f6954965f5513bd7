"""The calls of notebooks for the TensorFlow Object Detection API, as their users write them."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.errors import UserError
from object_detection.protos import pipeline_pb2
from object_detection.utils import config_util
from tests import tiny_models as tiny
from tests.meta_architectures.ssd import configs as ssd_configs

SIDE = 64


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """The files of a trained detector: its config, and its checkpoint."""
    folder = tmp_path_factory.mktemp('trained')
    pipeline = pipeline_pb2.TrainEvalPipelineConfig(model=ssd_configs.tiny())
    config_util.save_pipeline_config(pipeline, str(folder))
    tf.keras.utils.set_random_seed(0)
    detector = model_builder.build(pipeline.model, is_training=False)
    detector.build_variables()
    tf.train.Checkpoint(model=detector).save(str(folder / 'ckpt'))
    return folder, detector


def test_a_model_is_restored_and_detects(trained):
    folder, original = trained
    pipeline_config, checkpoint = str(folder / 'pipeline.config'), str(folder / 'ckpt-1')

    configs = config_util.get_configs_from_pipeline_file(pipeline_config)
    model_config = configs['model']
    detection_model = model_builder.build(model_config=model_config, is_training=False)
    ckpt = tf.compat.v2.train.Checkpoint(model=detection_model)
    ckpt.restore(checkpoint).expect_partial()

    @tf.function
    def detect_fn(image):
        image, shapes = detection_model.preprocess(image)
        prediction_dict = detection_model.predict(image, shapes)
        detections = detection_model.postprocess(prediction_dict, shapes)
        return detections, tf.reshape(shapes, [-1])

    image_np = np.random.default_rng(0).integers(0, 255, (80, 60, 3), np.uint8)
    input_tensor = tf.convert_to_tensor(np.expand_dims(image_np, 0), dtype=tf.float32)
    detections, shapes = detect_fn(input_tensor)
    assert shapes.numpy().tolist() == [SIDE, SIDE, 3]
    images, shapes = original.preprocess(input_tensor)
    expected = original.postprocess(original.predict(images, shapes), shapes)
    for key in ('detection_boxes', 'detection_scores'):
        np.testing.assert_allclose(detections[key], expected[key], atol=1e-5)


def train_step_function(model, optimizer, vars_to_fine_tune, batch_size):
    @tf.function
    def train_step_fn(image_tensors, groundtruth_boxes_list, groundtruth_classes_list):
        shapes = tf.constant(batch_size * [[SIDE, SIDE, 3]], dtype=tf.int32)
        model.provide_groundtruth(
            groundtruth_boxes_list=groundtruth_boxes_list,
            groundtruth_classes_list=groundtruth_classes_list,
        )
        with tf.GradientTape() as tape:
            preprocessed_images = tf.concat(
                [model.preprocess(image_tensor)[0] for image_tensor in image_tensors], axis=0
            )
            prediction_dict = model.predict(preprocessed_images, shapes)
            losses_dict = model.loss(prediction_dict, shapes)
            total_loss = (
                losses_dict['Loss/localization_loss'] + losses_dict['Loss/classification_loss']
            )
            gradients = tape.gradient(total_loss, vars_to_fine_tune)
            optimizer.apply_gradients(zip(gradients, vars_to_fine_tune, strict=True))
        return total_loss

    return train_step_fn


@pytest.mark.slow
def test_a_model_is_trained_with_a_few_images(trained):
    folder, _ = trained
    configs = config_util.get_configs_from_pipeline_file(str(folder / 'pipeline.config'))
    model_config = configs['model']
    model_config.ssd.freeze_batchnorm = True
    detection_model = model_builder.build(model_config=model_config, is_training=True)
    tf.compat.v2.train.Checkpoint(model=detection_model).restore(str(folder / 'ckpt-1'))
    image, shapes = detection_model.preprocess(tf.zeros([1, SIDE, SIDE, 3]))
    prediction_dict = detection_model.predict(image, shapes)
    _ = detection_model.postprocess(prediction_dict, shapes)
    assert len(detection_model.trainable_variables) > 0

    # In the reference: trainable_variables whose names begin with those of its layers.
    to_fine_tune = [
        variable
        for name, variable in detection_model.named_trainable_variables().items()
        if name.startswith('box_predictor')
    ]
    rng = np.random.default_rng(0)
    images = [tf.constant(rng.uniform(0, 255, (1, SIDE, SIDE, 3)), tf.float32) for _ in range(2)]
    # Images with different numbers of objects.
    boxes = [tf.constant([[0.1, 0.1, 0.6, 0.5]]), tf.constant([[0.4, 0.5, 0.9, 1], [0, 0, 0.5, 1]])]
    classes = [tf.one_hot([0], 3), tf.one_hot([1, 2], 3)]
    optimizer = tf.keras.optimizers.SGD(learning_rate=0.01, momentum=0.9)
    step = train_step_function(detection_model, optimizer, to_fine_tune, len(images))
    losses = [float(step(images, boxes, classes)) for _ in range(10)]
    assert losses[-1] < 0.8 * losses[0]

    # Ground truth of another tf.function does not make an inference a training.
    detect = tf.function(lambda image, shapes: detection_model.predict(image, shapes))
    assert detect(image, shapes).targets is None
    assert detection_model.predict(image, shapes).targets is None


def test_losses_equal_those_of_a_padded_batch():
    with tiny.plain_backbone():
        detector = tiny.tiny_detector(tiny.PLAIN_BACKBONE)
    images, truth = tiny.random_images(2), tiny.random_groundtruth(2)
    normalized, shapes = detector.normalize(images), tiny.shapes(images)
    masks = tf.cast(np.random.default_rng(0).uniform(size=(2, 5, 64, 64)) > 0.5, tf.float32)
    truth = truth._replace(masks=masks, masks_are_crops=False)
    detector.provide_groundtruth(
        # The last rows are padding.
        groundtruth_boxes_list=[rows[:4] for rows in truth.boxes],
        groundtruth_classes_list=[rows[:4] for rows in truth.classes],
        groundtruth_masks_list=[rows[:4] for rows in masks],
    )
    predictions = detector.predict(normalized, shapes, seeds=tiny.SEEDS)
    losses = detector.loss(predictions, shapes, tiny.SEEDS)
    expected = detector.loss(
        detector.predict(normalized, shapes, True, truth, tiny.SEEDS), truth, tiny.SEEDS
    )
    assert losses.keys() == expected.keys() == set(detector.loss_names())
    for name, value in expected.items():
        np.testing.assert_allclose(losses[name], value, rtol=1e-4)
    # As many images, but an inference by request; and another number of images.
    assert detector.predict(normalized, shapes, training=False).targets is None
    assert detector.predict(normalized[:1], shapes[:1]).targets is None


def test_ground_truth_that_does_not_fit_is_an_error(trained):
    _, detector = trained
    boxes, classes = [tf.zeros([1, 4])], [tf.zeros([1, 3])]
    with pytest.raises(UserError, match='groundtruth_tracks_list'):
        detector.provide_groundtruth(boxes, classes, groundtruth_tracks_list=[])
    with pytest.raises(UserError, match='one entry an image'):
        detector.provide_groundtruth(boxes, classes * 2)
    with pytest.raises(UserError, match='provide_groundtruth'):
        detector.loss(None, tf.zeros([1, 3]))
    with pytest.raises(AttributeError, match=r'weights\.restore\.restore'):
        detector._box_predictor  # noqa: B018


def test_a_config_is_written_as_text_of_a_message(tmp_path):
    pipeline = pipeline_pb2.TrainEvalPipelineConfig(model=ssd_configs.tiny())
    path = tmp_path / 'pipeline.config'
    with tf.io.gfile.GFile(str(path), 'wb') as file:
        file.write(text_format.MessageToString(pipeline))
    again = pipeline_pb2.TrainEvalPipelineConfig()
    with tf.io.gfile.GFile(str(path), 'r') as file:
        text_format.Merge(file.read(), again)
    assert config_util.create_configs_from_pipeline_proto(again)['model'] == pipeline.model
