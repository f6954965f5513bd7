import contextlib

import keras
import numpy as np

from object_detection.core import tracing
from object_detection.models.feature_extractor import FeatureExtractor
from tests import goldens


@goldens.parametrize('ops', names=('pad_to_multiple',))
def test_padding_of_images(case_name):
    case = goldens.load('ops', case_name)
    images = keras.Input((None, None, 4))
    extractor = FeatureExtractor(
        backbone=keras.Model(images, keras.layers.Identity()(images)),
        strides=[1],
        pad_to_multiple=case.params['multiple'],
    )
    for scope in (contextlib.nullcontext(), tracing.BasicOperations()):
        with scope:
            ((padded,),) = extractor.feature_stacks(case.inputs['x'])
        np.testing.assert_array_equal(padded, case.outputs['x'])
