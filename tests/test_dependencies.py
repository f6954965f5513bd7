"""What the package imports and what it requires are the same distributions."""

import functools
import importlib.metadata
import re
import sys
import tomllib

from tests.test_imports import PACKAGE, ROOT, imported, modules

# Required, and not imported yet: for the charts of reports.
NOT_IMPORTED_YET = {'matplotlib'}
# Used as a program, by the documents: tensorboard --logdir.
PROGRAMS = {'tensorboard'}
# Comes with TensorFlow, which requires it.
OF_TENSORFLOW = {'flatbuffers', 'keras'}
# Imported if the user has installed it.
OPTIONAL = {
    'ai-edge-litert',
    'ai_edge_litert',
    'av',
    'cv2',
    'datasets',
    'fastapi',
    'faster-coco-eval',
    'h11',
    'keras-hub',
    'keras_hub',
    'mlflow',
    'onnx',
    'onnxruntime',
    'opencv-python',
    'opencv-python-headless',
    'openvino',
    'prometheus-client',
    'prometheus_client',
    'rasterio',
    'scipy',
    'starlette',
    'supervision',
    'tensorflow-datasets',
    'tensorflow_datasets',
    'tf2onnx',
    'trackers',
    'uvicorn',
    'wandb',
}


def _imported() -> set[str]:
    """The first part of the names of all modules that the package imports; of google's, two."""
    parts = [name.split('.') for path in modules() for name in imported(path)]
    tops = {'.'.join(each[: 2 if each[0] == 'google' else 1]) for each in parts}
    return tops - sys.stdlib_module_names - {PACKAGE.name}


@functools.cache
def _distributions() -> set[str]:
    """The distributions of what is imported; the name itself of what is not installed."""
    of_module = importlib.metadata.packages_distributions() | {'google.protobuf': ['protobuf']}
    return {of_module.get(name, [name])[0].lower() for name in _imported()}


def _required() -> set[str]:
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
    return {re.match(r'[\w.-]+', text)[0].lower() for text in project['dependencies']}


def test_everything_that_is_required_is_imported():
    assert _required() - _distributions() - NOT_IMPORTED_YET - PROGRAMS == set()


def test_everything_that_is_imported_is_required():
    assert _distributions() - _required() - OF_TENSORFLOW - OPTIONAL == set()
