"""A detector trains and detects with oneDNN's kernels, which some CPUs have by default."""

import os
import subprocess
import sys

PROGRAM = """
import numpy as np

from tests import tiny_models
from tests.training import step_runs

batch = step_runs.batches(2)
train_step = step_runs.make_step(step_runs.tiny_recipe(), step_runs.element_spec(batch[0]))
for name, loss in step_runs.run(train_step, batch)[0].items():
    assert np.isfinite(loss), name
detector, images = train_step.detector, tiny_models.random_images(2)
shapes = tiny_models.shapes(images)
found = detector.postprocess(detector.predict(detector.normalize(images), shapes), shapes)
assert np.isfinite(found['detection_masks']).all()
print('onednn', found['detection_masks'].shape)
"""


def test_trains_and_detects():
    done = subprocess.run(
        [sys.executable, '-c', PROGRAM],
        env={**os.environ, 'TF_ENABLE_ONEDNN_OPTS': '1'},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 'onednn (2, ' in done.stdout
