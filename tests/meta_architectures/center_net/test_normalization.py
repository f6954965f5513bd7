"""The losses of a batch are the same, however its images are shared out."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.core import replicas
from object_detection.core.groundtruth import Groundtruth
from object_detection.meta_architectures.center_net import build
from object_detection.meta_architectures.center_net.deepmac import build as deepmac_builder
from object_detection.meta_architectures.center_net.feature_extractor import CenterNetOptions
from object_detection.protos import center_net_pb2
from tests.meta_architectures.center_net.test_frames import DEEPMAC, LABELS, TASKS, detector_of

SIDE = 32
# Objects of each image of the batch.
COUNTS = (3, 0)


@pytest.fixture(scope='module')
def detector(tmp_path_factory):
    path = tmp_path_factory.mktemp('labels') / 'labels.pbtxt'
    path.write_text(LABELS)
    text = TASKS.replace('LABELS', str(path))
    tasks = build.build_tasks(text_format.Parse(text, center_net_pb2.CenterNet()))
    config = text_format.Parse(DEEPMAC, center_net_pb2.CenterNet.DeepMACMaskEstimation())
    config.box_consistency_loss_weight = 1.0
    options = CenterNetOptions(batch_norm_trainable=True)
    tasks['deepmac_mask_estimation'] = deepmac_builder.build(config, options)
    return detector_of(tasks)


def truth_of(images):
    """Returns the ground truth of some of the images, with three rows each."""
    rng = np.random.default_rng(3)
    low = rng.uniform(0.0, 0.5, [3, 2])
    boxes = np.concatenate([low, low + 0.4], axis=1)
    points = low[:, np.newaxis] + rng.uniform(0.1, 0.3, [3, 2, 2])
    number = len(images)
    return Groundtruth.from_lists(
        [boxes] * number,
        [np.eye(2)[[0, 1, 0]]] * number,
        [np.arange(3) < COUNTS[image] for image in images],
        masks=[rng.integers(0, 2, [3, SIDE, SIDE])] * number,
        keypoints=[points] * number,
        track_ids=[[0, 1, 2]] * number,
        temporal_offsets=[low] * number,
        track_match_flags=[[1.0] * 3] * number,
        dp_num_points=[[2, 0, 1]] * number,
        dp_part_ids=[[[0, 1]] * 3] * number,
        dp_surface_coords=[np.concatenate([points, points], axis=2)] * number,
    )


@pytest.fixture(scope='module')
def values(detector):
    """A function from images to the losses and normalizers of them as one batch."""
    pixels = tf.random.stateless_uniform([2, SIDE, SIDE, 3], [1, 2])
    shapes = tf.constant([[SIDE, SIDE, 3]] * 2)

    def compute(*images):
        chosen = tf.gather(pixels, images), tf.gather(shapes, images)
        truth = truth_of(images)
        predictions = detector.predict(*chosen, training=False, groundtruth=truth)
        return tuple(
            {name: float(value) for name, value in found.items()}
            for found in (
                detector.loss(predictions, truth),
                detector.loss_normalizers(predictions, truth),
            )
        )

    return compute


def test_parts_of_a_batch(values):
    expected, _ = values(0, 1)
    with replicas.PerReplica():
        parts = [values(0), values(1)]
    for name, loss in expected.items():
        sums = [losses[name] * normalizers[name] for losses, normalizers in parts]
        whole = sum(normalizers[name] for _, normalizers in parts)
        # As `LossGradients` weighs them.
        assert sum(sums) / max(whole, 1.0) == pytest.approx(loss, rel=1e-4), name


def test_replicas(values, monkeypatch):
    expected, _ = values(0, 1)
    numbers, totals = {0: [], 1: []}, None

    def all_reduce(operation, value):
        assert operation is tf.distribute.ReduceOp.SUM
        numbers[image].append(value)
        return value if totals is None else totals[len(numbers[image]) - 1]

    context = SimpleNamespace(num_replicas_in_sync=2, all_reduce=all_reduce)
    monkeypatch.setattr(replicas, '_several_replicas', lambda: context)
    # Replicas are run one after the other, first to learn what each of them adds.
    for image in numbers:
        values(image)
    totals = [sum(pair) for pair in zip(*numbers.values(), strict=True)]
    numbers = {0: [], 1: []}
    losses = []
    for image in numbers:
        losses.append(values(image)[0])
    for name, loss in expected.items():
        mean = (losses[0][name] + losses[1][name]) / 2
        assert mean == pytest.approx(loss, rel=1e-4), name
