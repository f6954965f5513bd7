"""Runs the checker beside the project: whole detectors with the reference's weights.

It restores a checkpoint with the reference's keys and compares preprocess, predict, postprocess,
losses and gradients with recorded numbers.
"""

import os
import subprocess
import sys

import pytest

MODELS = (
    'context_rcnn_resnet50_post_rpn',
    'context_rcnn_resnet50_snapshot_serengeti',
    'faster_rcnn_resnet50_v1_640x640',
    'faster_rcnn_resnet50_v1_fpn_640x640',
    'mask_rcnn_inception_resnet_v2_1024x1024',
    'mask_rcnn_resnet50_keras',
    'rfcn_resnet50',
)


@pytest.mark.slow
@pytest.mark.parametrize('model', MODELS)
def test_detector(shared, model):
    # A process of its own: the checker imports modules by names of its own folder.
    finished = subprocess.run(
        [sys.executable, str(shared / 'goldens' / 'check_models.py'), '--only', model],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | {'CUDA_VISIBLE_DEVICES': '', 'PYTHONDONTWRITEBYTECODE': '1'},
    )
    assert finished.returncode == 0, f'{finished.stdout}\n{finished.stderr[-2000:]}'


def test_every_two_stage_model_is_listed(shared):
    folder = shared / 'goldens' / 'models'
    paths = [*folder.glob('*_rcnn_*.json'), *folder.glob('rfcn_*.json')]
    assert {path.stem for path in paths} == set(MODELS)
