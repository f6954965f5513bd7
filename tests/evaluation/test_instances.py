"""Encoded masks."""

import numpy as np

from object_detection.evaluation import instances


def test_areas_of_more_masks_than_fit_into_a_byte():
    mask = np.zeros((6, 8), np.uint8)
    mask[1:3, 2:7] = 1
    encoded = instances.mask_api.encode(np.asfortranarray(mask))['counts']
    np.testing.assert_array_equal(instances.mask_areas([encoded] * 300, 6, 8), np.full(300, 10.0))
    assert instances.mask_areas([], 6, 8).shape == (0,)
