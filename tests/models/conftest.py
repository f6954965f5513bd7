import dataclasses

import pytest

from object_detection.models.backbones import inception_resnet_v2


@pytest.fixture
def short_inception_resnet_v2(monkeypatch):
    """Builds every kind of residual block of Inception-ResNet v2 once, to save time."""
    for kind in ('_BLOCK35', '_BLOCK17', '_BLOCK8'):
        block = dataclasses.replace(getattr(inception_resnet_v2, kind), repeats=1)
        monkeypatch.setattr(inception_resnet_v2, kind, block)
