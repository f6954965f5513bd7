"""What the first batch tells of a config."""

import numpy as np
import pytest

from object_detection.core.fields import InputFields as F
from object_detection.errors import ConfigError
from object_detection.training import run_start
from tests.training import fakes


@pytest.fixture
def batch():
    (batch,) = fakes.dataset(2, 2)
    arrays = {name: tensor.numpy() for name, tensor in batch.items()}
    arrays[F.GROUNDTRUTH_INSTANCE_MASK_CROPS] = np.full([2, 2, 4, 4], 255, np.uint8)
    return arrays


def _check(batch, num_classes=fakes.NUM_CLASSES, has_masks=True):
    detector = fakes.FakeDetector()
    detector.num_classes, detector.needs_masks = num_classes, has_masks
    run_start.check_batch(detector, batch)


def test_a_right_batch_passes(batch, caplog):
    _check(batch)
    assert not caplog.records


def test_labels_are_compared_with_num_classes(batch):
    with pytest.raises(ConfigError, match=r'num_classes = 5 classes. Received: 2'):
        _check(batch, num_classes=5)


def test_boxes_are_compared_with_the_frame(batch):
    boxes = batch[F.GROUNDTRUTH_BOXES].copy()
    batch[F.GROUNDTRUTH_BOXES] = boxes * 8
    with pytest.raises(ConfigError, match=r"source ids '0', '1'.*normalized to 0..1. Received: "):
        _check(batch)
    batch[F.GROUNDTRUTH_BOXES] = boxes / fakes.SIZE
    with pytest.raises(ConfigError, match='divided by the image size twice'):
        _check(batch)
    # Rows of padding do not count.
    batch[F.GROUNDTRUTH_BOXES] = np.concatenate([boxes[:, :1], boxes[:, 1:] * 9], axis=1)
    batch[F.NUM_GROUNDTRUTH_BOXES][:] = 1
    _check(batch)


def test_masks_are_compared_with_the_mask_head(batch):
    batch[F.GROUNDTRUTH_INSTANCE_MASK_CROPS][:] = 0
    with pytest.raises(ConfigError, match='Received: 4 empty masks'):
        _check(batch)
    del batch[F.GROUNDTRUTH_INSTANCE_MASK_CROPS]
    with pytest.raises(ConfigError, match='load_instance_masks: true'):
        _check(batch)
    _check(batch, has_masks=False)


def test_a_batch_without_objects_is_warned_of(batch, caplog):
    batch[F.NUM_GROUNDTRUTH_BOXES][:] = 0
    batch[F.INVALID_OBJECTS] = np.array([[2, 0, 0, 0, 1], [1, 0, 0, 0, 0]])
    _check(batch)
    reasons = '3 with an unknown class, 1 with a box outside the image.'
    assert f'no image has an object to learn from; objects were left out: {reasons}' in caplog.text


def test_few_objects_may_be_odd_by_chance(batch, caplog):
    batch[F.NUM_GROUNDTRUTH_BOXES][:] = 1
    batch[F.GROUNDTRUTH_BOXES] = batch[F.GROUNDTRUTH_BOXES] / fakes.SIZE
    batch[F.GROUNDTRUTH_INSTANCE_MASK_CROPS][:] = 0
    _check(batch)
    assert 'divided by the image size twice' in caplog.text
    assert 'Received: 2 empty masks' in caplog.text
