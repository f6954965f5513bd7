"""What the benchmarks count for the recipe is what a count by hand gives."""

import pathlib
import runpy

import pytest

from object_detection.benchmarking import training_step, work
from object_detection.config.reader import read_pipeline
from tests.benchmarks import hand_count

SAMPLES = pathlib.Path(__file__).resolve().parents[2] / 'object_detection' / 'samples' / 'configs'
CONFIG = SAMPLES / 'mask_rcnn_resnet50_fpn_832x1344_coco17.config'
SETTINGS = runpy.run_path(SAMPLES.parents[2] / 'benchmarks' / 'jobs.py')['SETTINGS']
# Sides that all strides divide.
HEIGHT, WIDTH = 128, 192


@pytest.fixture(scope='module')
def pipeline():
    return read_pipeline(CONFIG, settings=SETTINGS['torchvision'])


def test_by_hand_at_full_size():
    """Figures that others give for this model."""
    assert hand_count.inference(832, 1344) / 1e9 == pytest.approx(554, rel=1e-2)
    assert hand_count.training(832, 1344) / 1e9 == pytest.approx(1622, rel=1e-2)
    assert hand_count.training(832, 1344, mask_rois=20) / 1e9 == pytest.approx(1278, rel=1e-2)


@pytest.mark.slow
def test_inference(pipeline):
    import tensorflow as tf

    from object_detection.training.monitoring import model_summary

    detector = work.build_detector(pipeline, 'float32', is_training=False)
    shapes = tf.constant([[HEIGHT, WIDTH, 3]])

    @tf.function(autograph=False)
    def detect(images):
        return detector.postprocess(detector.predict(images, shapes), shapes)

    spec = tf.TensorSpec([1, HEIGHT, WIDTH, 3], tf.float32)
    counted = model_summary.count(detect.get_concrete_function(spec).graph)
    assert counted.unknown == []
    assert counted.total == pytest.approx(hand_count.inference(HEIGHT, WIDTH), rel=5e-3)


@pytest.mark.slow  # Three graphs of a whole training step.
def test_training(pipeline):
    """Padded mask RoIs, and 20 in place of as many as there happen to be."""
    import tensorflow as tf

    detector = work.build_detector(pipeline, 'float32', is_training=True)
    arrays = work.batch(1, (HEIGHT, WIDTH), detector.num_classes, 112)
    batch = {name: tf.constant(array) for name, array in arrays.items()}
    step = training_step.build_step(pipeline, detector, batch)
    counted = training_step.count_flops(pipeline, step, batch, 128)
    assert counted.unknown == []
    assert counted.total == pytest.approx(hand_count.training(HEIGHT, WIDTH), rel=5e-3)
    detector.mask_stage.pad_regions = False
    step = training_step.build_step(pipeline, detector, batch)
    counted = training_step.count_flops(pipeline, step, batch, 20)
    wanted = hand_count.training(HEIGHT, WIDTH, mask_rois=20)
    assert counted.total == pytest.approx(wanted, rel=5e-3)
