"""Fixtures that every test may use."""

import os
import pathlib

import pytest

from tests import goldens

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# TensorFlow turns oneDNN on by itself on CPUs with AVX-512 or AMX. It rounds otherwise for other
# sizes of a batch, and here numbers are compared; test_onednn.py is with it.
os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '0')

# These take more than a minute each. They begin first: at the end a file has one process alone.
_LONG_FILES = (
    'tests/test_samples.py',
    'tests/export/test_saved_model.py',
    'tests/training/test_replicas.py',
    'tests/builders/test_dataset_builder.py',
    'tests/test_zoo.py',
    'tests/builders/test_buckets.py',
    'tests/meta_architectures/test_faster_rcnn.py',
    'tests/builders/test_coco_records_builder.py',
    'tests/test_check_models.py',
)

SHARED = pathlib.Path(__file__).resolve().parents[2] / 'shared'


@pytest.fixture(scope='session')
def shared() -> pathlib.Path:
    """The folder of reference facts, golden numbers and real data beside the project."""
    if not SHARED.is_dir():
        pytest.skip('needs the folder ../shared (reference facts, golden numbers, real data)')
    return SHARED


def pytest_collection_modifyitems(items: list[pytest.Item]):
    ranks = {name: rank for rank, name in enumerate(_LONG_FILES)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition('::')[0], len(ranks)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """A test that compares a golden case fails if it does not look at all of its outputs."""
    goldens.read.clear()
    result = yield
    file = getattr(getattr(item, 'function', None), 'golden_file', None)
    unread = goldens.unread((file, item.callspec.params['case_name']) if file else None)
    assert not unread, (
        'The test compares a golden case but does not read these; compare them, or give the reason '
        f'in tests/golden_lists.py: {unread}'
    )
    return result
