"""Encoded masks."""

import io

import numpy as np
import pytest
from PIL import Image

from object_detection.metrics import instances


def test_areas_of_more_masks_than_fit_into_a_byte():
    mask = np.zeros((6, 8), np.uint8)
    mask[1:3, 2:7] = 1
    encoded = instances.mask_api.encode(np.asfortranarray(mask))['counts']
    np.testing.assert_array_equal(instances.mask_areas([encoded] * 300, 6, 8), np.full(300, 10.0))
    assert instances.mask_areas([], 6, 8).shape == (0,)


def test_masks_of_other_formats_start_no_program():
    eps = b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 6\n%%EndComments\nshowpage\n'
    with pytest.raises(ValueError, match=r"image '7': expected a PNG file. Received: b'%!PS-Ado'"):
        instances.encode_png(eps, 6, 8, '7')


def test_mask_of_another_size_is_refused_before_it_is_decoded(monkeypatch):
    file = io.BytesIO()
    Image.new('1', (9000, 9000)).save(file, 'PNG')
    monkeypatch.setattr(Image.Image, 'load', lambda self: pytest.fail('it was decoded'))
    with pytest.raises(ValueError, match=r'its size, \(6, 8\). Received: \(9000, 9000\)'):
        instances.encode_png(file.getvalue(), 6, 8, '7')
