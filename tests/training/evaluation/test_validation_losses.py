"""Validation losses of a whole detector do not depend on how images are put into batches."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import evaluator_builder
from object_detection.core.fields import InputFields
from object_detection.training.evaluation import inference
from tests import tiny_models

NUM_IMAGES = 4


def _examples(detector):
    """Images with 0 to 3 objects, so that batches hold different numbers of positives.

    The objects are where the detector proposes some.
    """
    groundtruth = tiny_models.random_groundtruth(NUM_IMAGES, rows=4)
    size = tiny_models.IMAGE_SIZE
    images = tiny_models.random_images(NUM_IMAGES) * 1.0
    true_shapes = tf.constant([[size, size, 3]] * NUM_IMAGES)
    proposals = detector.predict(detector.normalize(images), true_shapes)
    boxes = proposals.proposals_normalized[:, :4]
    counts = np.array([3, 0, 1, 2])
    weights = (np.arange(4) < counts[:, np.newaxis]).astype(np.float32)
    return {
        InputFields.IMAGE: images,
        InputFields.TRUE_IMAGE_SHAPE: true_shapes,
        InputFields.HASH_FROM_SOURCE_ID: np.arange(NUM_IMAGES, dtype=np.int32),
        InputFields.GROUNDTRUTH_BOXES: boxes * weights[..., np.newaxis],
        InputFields.GROUNDTRUTH_CLASSES: groundtruth.classes * weights[..., np.newaxis],
        InputFields.GROUNDTRUTH_WEIGHTS: weights,
        InputFields.GROUNDTRUTH_IS_CROWD: np.zeros([NUM_IMAGES, 4], bool),
        InputFields.NUM_GROUNDTRUTH_BOXES: counts.astype(np.int32),
        InputFields.GROUNDTRUTH_INSTANCE_MASK_CROPS: tf.cast(groundtruth.masks * 255, tf.uint8),
    }


def test_losses_do_not_depend_on_the_batch_size(tmp_path):
    with tiny_models.plain_backbone():
        detector = tiny_models.tiny_detector(tiny_models.PLAIN_BACKBONE, is_training=False)
    examples = tf.data.Dataset.from_tensor_slices(_examples(detector))
    predict = inference.make_predict(detector, examples.batch(1).element_spec)
    # The last batches have two images and one.
    two, three = (
        inference.evaluate(detector, examples.batch(size), [], predict=predict) for size in (2, 3)
    )
    assert two['Loss/BoxClassifierLoss/mask_loss'] > 0
    assert three == pytest.approx(two, rel=1e-4)
    parts = [value for name, value in two.items() if name != 'Loss/total_loss']
    assert two['Loss/total_loss'] == pytest.approx(sum(parts))

    # Those are the names that a config may choose.
    pipeline = tiny_models.tiny_pipeline()
    labels = tmp_path / 'label_map.pbtxt'
    labels.write_text('item { id: 1 name: "a" }')
    pipeline.eval_input_reader[0].label_map_path = str(labels)
    names = evaluator_builder.metric_names(pipeline, 0)
    assert {name for name in names if name.startswith('Loss/')} == two.keys()


@pytest.mark.slow
def test_compiled_evaluation_is_the_same():
    # Of images of any size, and with a last batch of fewer; texts and what is for evaluators alone
    # stay outside.
    detector = tiny_models.tiny_detector(is_training=False)
    tiny_models.shrink_last_layers(detector)
    examples = _examples(detector) | {
        InputFields.SOURCE_ID: np.array(['a'] * NUM_IMAGES),
        'evaluation_boxes': np.zeros([NUM_IMAGES, 7, 4], np.float32),
    }
    batches = tf.data.Dataset.from_tensor_slices(examples).batch(3)
    spec = dict(batches.element_spec)
    spec[InputFields.IMAGE] = tf.TensorSpec([None, None, None, 3])
    plain, compiled = (
        inference.make_predict(detector, spec, jit_compile=jit_compile)
        for jit_compile in (False, True)
    )
    for batch in batches:
        for ours, expected in zip(compiled(batch), plain(batch), strict=True):
            assert ours.keys() == expected.keys()
            for name, values in expected.items():
                np.testing.assert_allclose(ours[name], values, rtol=1e-4, atol=1e-4, err_msg=name)
