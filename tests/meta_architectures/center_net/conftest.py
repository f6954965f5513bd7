"""A detector that several files test."""

import keras
import pytest

from object_detection.builders import model_builder
from tests.meta_architectures.center_net.test_center_net import parse


@pytest.fixture(scope='package')
def detector():
    keras.utils.set_random_seed(1)
    detector = model_builder.build(parse())
    detector.build_variables()
    return detector
