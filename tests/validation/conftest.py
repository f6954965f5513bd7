import keras
import pytest

from object_detection.meta_architectures import tracing
from object_detection.models.backbones import resnet_v1

_checked = {}


@pytest.fixture
def small_backbone(monkeypatch):
    """Builds a ResNet of one layer for each level; all of its layers take a second."""

    def trunk(depth, *, levels, name, **_):
        images = keras.Input([None, None, 3])
        maps = [
            keras.layers.Conv2D(resnet_v1.stage_channels(depth, level), 1, 2**level)(images)
            for level in levels
        ]
        return keras.Model(images, maps, name=name)

    monkeypatch.setattr(resnet_v1, 'trunk', trunk)
    # What is known of such models is not known of others.
    monkeypatch.setattr(tracing, '_checked', _checked)
