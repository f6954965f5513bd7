"""Fixtures that every test may use."""

import os
import pathlib

import pytest

from tests import goldens

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# TensorFlow turns oneDNN on by itself on CPUs with AVX-512 or AMX. It rounds otherwise for other
# sizes of a batch, and here numbers are compared; test_onednn.py is with it.
os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '0')

SHARED = pathlib.Path(__file__).resolve().parents[2] / 'shared'


@pytest.fixture(scope='session')
def shared() -> pathlib.Path:
    """The folder of reference facts, golden numbers and real data beside the project."""
    if not SHARED.is_dir():
        pytest.skip('needs the folder ../shared (reference facts, golden numbers, real data)')
    return SHARED


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
