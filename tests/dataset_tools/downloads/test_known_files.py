import inspect
import posixpath
from unittest import mock

import keras

from object_detection.dataset_tools.downloads.known_files import (
    COCO2017,
    WEIGHTS,
    WEIGHTS_BASE_URLS,
)
from object_detection.meta_architectures.center_net import extractors as center_net
from object_detection.meta_architectures.faster_rcnn import extractors as faster_rcnn
from object_detection.meta_architectures.ssd import extractors as ssd
from tests import rows


@rows.parametrize('name', WEIGHTS)
def test_addresses_are_those_that_keras_uses(name, monkeypatch):
    weights, asked = WEIGHTS[name], mock.Mock()
    function = getattr(keras.applications, weights.network)
    module = inspect.getmodule(function)
    module = getattr(module, 'resnet', module)  # which builds those of ResNet v2
    # The networks are not built, which takes seconds: only what they are loaded from matters.
    anything = mock.MagicMock(shape=(8, 8, 8, 8))
    for method in (anything, anything.__add__, anything.__mul__):
        method.return_value = anything
    layers = type('Layers', (), {'__getattr__': lambda self, name: anything})()
    monkeypatch.setattr(module, 'layers', layers)
    for part in ('Functional', 'Sequential', 'CustomScaleLayer', 'LayerScale'):
        monkeypatch.setattr(module, part, anything, raising=False)
    monkeypatch.setattr(module.file_utils, 'get_file', asked)
    size = 331 if 'Large' in weights.network and 'NASNet' in weights.network else 224
    function(include_top=False, weights='imagenet', input_shape=(size, size, 3))
    file = weights.file
    name, address = asked.call_args.args
    assert address == f'{WEIGHTS_BASE_URLS[0]}/{file.path}'
    assert name == file.name or 'NASNet' in weights.network
    assert asked.call_args.kwargs.get('file_hash', '') == file.checksum


def test_every_function_of_keras_has_weights():
    functions = {name for name, _ in inspect.getmembers(keras.applications, inspect.isfunction)}
    assert {weights.network for weights in WEIGHTS.values()} == functions


def test_every_extractor_that_has_weights_exists():
    named = {extractor for weights in WEIGHTS.values() for extractor in weights.extractors}
    tables = {*faster_rcnn.EXTRACTORS, *ssd.EXTRACTORS}
    extractors = {name for name in tables if name.endswith('_keras')}
    extractors |= {name for name, row in center_net.EXTRACTORS.items() if row.backbone}
    # Keras has no weights of them.
    kinds = ('resnet18', 'resnet34', 'resnet200', 'resnet_v1_18', 'resnet_v1_34', 'hourglass')
    without = {name for name in extractors if any(kind in name for kind in kinds)}
    assert named == extractors - without


def test_coco_comes_with_checksums_but_for_unlabeled_images():
    for split, files in COCO2017.items():
        assert [posixpath.dirname(file.path) for file in files] == ['zips', 'annotations']
        for file in files:
            unknown = split == 'unlabeled2017'
            assert (file.size is None, len(file.checksum)) == (unknown, 0 if unknown else 64)
