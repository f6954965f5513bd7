"""What tiny detectors are fed."""

import pytest

from tests import tiny_models as tiny
from tests.validation.conftest import small_backbone  # noqa: F401


@pytest.fixture(scope='module')
def images():
    return tiny.random_images(2)


@pytest.fixture(scope='module')
def groundtruth():
    return tiny.random_groundtruth(2)
