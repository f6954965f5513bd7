import keras
import pytest

from object_detection.meta_architectures import tracing
from object_detection.models.backbones import mobilenet_v2, resnet_v1, resnet_v2

_checked = {}
_LEVELS = {name: level for level, name in (*mobilenet_v2.LEVELS.items(), (4, 'block_9'))} | {
    mobilenet_v2.BEFORE_LAST_STRIDE: 4
}


@pytest.fixture
def small_backbone(monkeypatch):
    """Builds a ResNet or a MobileNet v2 of one layer for each level; all layers take a second."""

    def network(levels, channels, name):
        images = keras.Input([None, None, 3])
        maps = [
            keras.layers.Conv2D(count, 1, 2**level)(images)
            for count, level in zip(channels, levels, strict=True)
        ]
        return keras.Model(images, maps, name=name)

    def resnet(depth, *, levels, name, **_):
        channels = [resnet_v1.stage_channels(depth, level) for level in levels]
        return network(levels, channels, name)

    def biased_resnet(depth, *, stages, **options):
        return resnet(depth, levels=stages, **options)

    def mobilenet(outputs, *, name, **_):
        return network([_LEVELS[output] for output in outputs], [8] * len(outputs), name)

    monkeypatch.setattr(resnet_v1, 'trunk', resnet)
    monkeypatch.setattr(resnet_v2, 'trunk', biased_resnet)
    monkeypatch.setattr(mobilenet_v2, 'trunk', mobilenet)
    # What is known of such models is not known of others.
    monkeypatch.setattr(tracing, '_checked', _checked)
