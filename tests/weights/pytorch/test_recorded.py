"""The names and shapes of torchvision's detectors, as they were recorded."""

import json

import numpy as np
import pytest

from object_detection.weights import restore, sources
from object_detection.weights.pytorch import detectors
from tests import goldens
from tests.weights.pytorch import models

PEERS = goldens.COMPONENTS.parent / 'peers'


class RecordedArrays:
    """An open file of zeros; see `interfaces.Arrays`."""

    taken = ''

    def __init__(self, path, variables):
        self.path = str(path)
        self.shapes = {name: tuple(shape) for name, shape, _ in variables}
        self.dtypes = {name: dtype for name, _, dtype in variables}

    def read(self, name):
        return np.zeros(self.shapes[name], self.dtypes[name])

    def close(self):
        pass


@pytest.mark.slow  # detectors of full size
@pytest.mark.parametrize('name', models.MODELS)
def test_all_variables_are_restored_and_none_is_left_over(name, monkeypatch):
    path = PEERS / f'torchvision_{name}_resnet50_fpn.json'
    arrays = RecordedArrays(path, json.loads(path.read_text())['variables'])
    monkeypatch.setattr(sources, 'open_source', lambda path: detectors.recognize(arrays))
    detector = models.build(name, is_small=False)
    report = restore.restore(detector, str(path), 'full')
    assert (report.missing, report.mismatched, report.unused) == ([], [], [])
    assert len(report.restored) == len(detector.named_variables())
