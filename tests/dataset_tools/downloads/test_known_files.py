import importlib
import posixpath
import re
from unittest import mock

import pytest

from object_detection.dataset_tools.downloads.known_files import (
    COCO2017,
    WEIGHTS,
    WEIGHTS_BASE_URLS,
)
from object_detection.models.feature_extractors import two_stage_types

FUNCTIONS = {
    **{f'resnet{depth}': f'ResNet{depth}' for depth in (50, 101, 152)},
    **{f'efficientnetb{i}': f'EfficientNetB{i}' for i in range(8)},
    'inception_resnet_v2': 'InceptionResNetV2',
    'mobilenet': 'MobileNet',
    'mobilenet_v2': 'MobileNetV2',
    'mobilenet_v3_large': 'MobileNetV3Large',
    'mobilenet_v3_small': 'MobileNetV3Small',
}


def module_of(name: str):
    family = re.sub(r'(resnet)\d+$|(efficientnet)b\d$|(mobilenet_v3)_.*', r'\1\2\3', name)
    return importlib.import_module(f'keras.src.applications.{family}')


@pytest.mark.parametrize('name', WEIGHTS)
def test_addresses_are_those_that_keras_uses(name, monkeypatch):
    module, asked = module_of(name), mock.Mock()
    # The networks are not built, which takes seconds: only what they are loaded from matters.
    anything = mock.MagicMock(shape=(8, 8, 8, 8))
    for method in (anything, anything.__add__, anything.__mul__):
        method.return_value = anything
    layers = type('Layers', (), {'__getattr__': lambda self, name: anything})()
    monkeypatch.setattr(module, 'layers', layers)
    for part in ('Functional', 'CustomScaleLayer'):
        monkeypatch.setattr(module, part, anything, raising=False)
    monkeypatch.setattr(module.file_utils, 'get_file', asked)
    getattr(module, FUNCTIONS[name])(
        include_top=False, weights='imagenet', input_shape=(224, 224, 3)
    )
    file = WEIGHTS[name].file
    assert asked.call_args.args == (file.name, f'{WEIGHTS_BASE_URLS[0]}/{file.path}')
    assert asked.call_args.kwargs.get('file_hash', '') == file.checksum


def test_every_extractor_that_has_weights_exists():
    named = {extractor for weights in WEIGHTS.values() for extractor in weights.extractors}
    extractors = {name for name in two_stage_types.FASTER_RCNN if name.endswith('_keras')}
    # Keras has no weights of them.
    kinds = ('resnet18', 'resnet34', 'resnet200')
    without = {name for name in extractors if any(kind in name for kind in kinds)}
    assert named == extractors - without


def test_coco_comes_with_checksums_but_for_unlabeled_images():
    for split, files in COCO2017.items():
        assert [posixpath.dirname(file.path) for file in files] == ['zips', 'annotations']
        for file in files:
            unknown = split == 'unlabeled2017'
            assert (file.size is None, len(file.checksum)) == (unknown, 0 if unknown else 64)
