"""Fixtures that every test may use."""

import os
import pathlib

import pytest

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

SHARED = pathlib.Path(__file__).resolve().parents[2] / 'shared'


@pytest.fixture(scope='session')
def shared() -> pathlib.Path:
    """The folder of reference facts, golden numbers and real data beside the project."""
    if not SHARED.is_dir():
        pytest.skip('needs the folder ../shared (reference facts, golden numbers, real data)')
    return SHARED
