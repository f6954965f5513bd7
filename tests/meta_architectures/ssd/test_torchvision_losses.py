"""The losses of the samples of SSD are those that torchvision computes of the same predictions."""

import functools
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from object_detection.config.reader import read_pipeline
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import divide
from object_detection.meta_architectures.ssd import build, loss_names
from object_detection.meta_architectures.ssd.predictions import Predictions

SAMPLES = pathlib.Path(__file__).resolve().parents[3] / 'object_detection/samples/configs'
NAMES = ('torchvision_ssd300_vgg16', 'torchvision_ssdlite320_mobilenet_v3_large')
# Pixels of the image, x and y first, as torchvision has them.
SIDE, COLUMNS, NUM_ANCHORS = 300, 4, 60
# The first box is that of an anchor, the second overlaps none by half, the third several; the
# second image has no object.
BOXES = [[[10, 20, 90, 120], [200, 5, 215, 295], [120, 130, 220, 250]], [], [[40, 40, 160, 150]]]
CLASSES = [[1, 3, 2], [], [2]]
# Of torchvision 0.29, as `PROGRAM` prints them.
RECORDED = {'bbox_regression': 3.7446227073669434, 'classification': 14.774248123168945}
PROGRAM = """
import json, sys
import numpy as np, torch
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.ssd import SSD
from torchvision.ops import box_iou

given = {k: torch.tensor(v) for k, v in np.load(sys.argv[1]).items()}
nothing = torch.nn.Identity()
model = SSD(nothing, DefaultBoxGenerator([[2]]), (300, 300), 4, head=nothing)
count = len(given['codes'])
targets = [{'boxes': given[f'boxes{i}'], 'labels': given[f'classes{i}']} for i in range(count)]
matches = [
    model.proposal_matcher(box_iou(each['boxes'], given['anchors']))
    if len(each['boxes'])
    else torch.full([len(given['anchors'])], -1)
    for each in targets
]
outputs = {'bbox_regression': given['codes'], 'cls_logits': given['logits']}
losses = model.compute_loss(targets, outputs, [given['anchors']] * count, matches)
print(json.dumps({k: float(v) for k, v in losses.items()}))
"""
OURS = {'bbox_regression': loss_names.LOCALIZATION, 'classification': loss_names.CLASSIFICATION}


@functools.cache
def inputs():
    """Anchors, boxes and predictions, in the order of torchvision."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(0, SIDE, [NUM_ANCHORS, 2])
    halves = rng.uniform(15, 70, [NUM_ANCHORS, 2])
    anchors = np.concatenate([centers - halves, centers + halves], axis=1)
    anchors[7] = BOXES[0][0]
    # Near one object, so that several anchors match it.
    anchors[20:24] = np.array(BOXES[0][2]) + rng.uniform(-12, 12, [4, 4])
    given = {
        'anchors': anchors,
        'codes': rng.normal(0, 1, [len(BOXES), NUM_ANCHORS, 4]),
        'logits': rng.normal(0, 2, [len(BOXES), NUM_ANCHORS, COLUMNS]),
        **{f'boxes{i}': np.reshape(rows, [-1, 4]) for i, rows in enumerate(BOXES)},
    }
    classes = {f'classes{i}': np.array(rows, np.int64) for i, rows in enumerate(CLASSES)}
    return {name: array.astype(np.float32) for name, array in given.items()} | classes


def losses_here(name):
    """Computes the losses of a sample."""
    config = read_pipeline(str(SAMPLES / f'{name}.config')).model.ssd
    config.num_classes = COLUMNS - 1
    given, order = inputs(), [1, 0, 3, 2]
    predictions = Predictions(
        images=tf.zeros([len(BOXES), SIDE, SIDE, 3]),
        features=[],
        anchors=tf.constant(given['anchors'][:, order] / SIDE),
        box_codes=tf.constant(given['codes'][..., order]),
        class_logits=tf.constant(given['logits']),
    )
    groundtruth = Groundtruth.from_lists(
        boxes=[given[f'boxes{i}'][:, order] / SIDE for i in range(len(BOXES))],
        classes=[np.eye(COLUMNS, dtype=np.float32)[rows][:, 1:] for rows in CLASSES],
    )
    losses = build.build_losses(config)
    return divide(losses.compute(predictions, losses.assign(predictions.anchors, groundtruth)))


def check(theirs):
    for name in NAMES:
        losses = losses_here(name)
        # Sums of some dozen float32 terms.
        found = {key: float(losses[ours]) for key, ours in OURS.items()}
        assert found == pytest.approx(theirs, rel=1e-5), name


def test_losses_are_those_that_torchvision_gave():
    check(RECORDED)


def test_losses_are_those_of_torchvision(tmp_path):
    python = os.environ.get('TORCHVISION_PYTHON')
    if not python:
        pytest.skip('needs TORCHVISION_PYTHON, an interpreter that has torch and torchvision')
    path = tmp_path / 'given.npz'
    np.savez(path, **inputs())
    environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
    options = {'check': True, 'capture_output': True, 'text': True, 'env': environment}
    found = subprocess.run([python, '-c', PROGRAM, str(path)], timeout=120, **options)
    theirs = json.loads(found.stdout.splitlines()[-1])
    check(theirs)
    assert theirs == pytest.approx(RECORDED, rel=1e-5)
