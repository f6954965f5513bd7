import numpy as np
import pytest
import tensorflow as tf
from pycocotools import mask as mask_api

from object_detection.core.detections import Detections, boxes_to_absolute
from object_detection.core.masks import mask_targets_from_images
from object_detection.metrics.detections import (
    encode_masks,
)
from object_detection.metrics.mask_pasting import PasteMethod, mask_window, paste_mask
from tests import goldens, rows

RESIZE, ACCURATE = PasteMethod.RESIZE, PasteMethod.ACCURATE


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def _full(mask, box, height, width, *method):
    window, top, left = mask_window(mask, box, height, width, *method)
    full = np.zeros((height, width), np.float32)
    full[top : top + window.shape[0], left : left + window.shape[1]] = window
    return full


@goldens.parametrize('crop_ops', names=('reframe_bilinear',))
def test_mask_window_equals_reference(case_name):
    case = goldens.load('crop_ops', case_name)
    size = (case.params['image_height'], case.params['image_width'])
    boxes = boxes_to_absolute(case.inputs['boxes'], *size)
    expected = case.outputs['image_masks'].copy()
    # The last box is a padding row, all zero. Dividing 0 by 0, the reference sets the first pixel;
    # a box without area covers nothing.
    assert not boxes[-1].any()
    assert np.flatnonzero(expected[-1]).tolist() == [0]
    expected[-1] = 0
    pasted = [
        _full(mask, box, *size) for mask, box in zip(case.inputs['box_masks'], boxes, strict=True)
    ]
    np.testing.assert_allclose(np.stack(pasted), expected, rtol=1e-5, atol=1e-5)


def _oracle(mask, box, height, width):
    """Samples pixel by pixel; the first and last pixel's centres lie on the image's edges."""
    pasted = np.zeros((height, width))
    ymin, xmin, ymax, xmax = box / np.array([height, width, height, width])
    for i in range(height):
        for j in range(width):
            y = (i / (height - 1) - ymin) / (ymax - ymin) * (mask.shape[0] - 1)
            x = (j / (width - 1) - xmin) / (xmax - xmin) * (mask.shape[1] - 1)
            if not (0 <= y <= mask.shape[0] - 1 and 0 <= x <= mask.shape[1] - 1):
                continue
            y0, x0 = int(y), int(x)
            y1, x1 = min(y0 + 1, mask.shape[0] - 1), min(x0 + 1, mask.shape[1] - 1)
            top = mask[y0, x0] * (1 - (x - x0)) + mask[y0, x1] * (x - x0)
            bottom = mask[y1, x0] * (1 - (x - x0)) + mask[y1, x1] * (x - x0)
            pasted[i, j] = top * (1 - (y - y0)) + bottom * (y - y0)
    return pasted


@rows.parametrize('box', [[3, 4, 15, 11], [-5, -3.3, 30, 9.1], [2.2, 3.3, 2.9, 20]])
def test_mask_window_equals_oracle(rng, box):
    mask = rng.random((5, 7)).astype(np.float32)
    box = np.array(box, np.float64)
    np.testing.assert_allclose(_full(mask, box, 20, 17), _oracle(mask, box, 20, 17), atol=1e-6)


def test_paste_mask_by_hand():
    # The left half of the box is the object: columns 0 .. 2 of 0 .. 4 have probability >= .5;
    # at exactly .5 a pixel is background.
    mask = np.array([[1, 0], [1, 0]], np.float32)
    pasted = paste_mask(mask, np.array([0.0, 0.0, 5.0, 5.0]), 5, 5)
    assert pasted.dtype == np.uint8
    np.testing.assert_array_equal(pasted, np.tile([1, 1, 0, 0, 0], (5, 1)))


@rows.parametrize(
    'box',
    [[0, 0, 0, 0], [3, 3, 3, 9], [9, 9, 3, 3], [30, 30, 40, 40], [-40, 0, -30, 9], [np.nan] * 4],
)
def test_box_that_covers_nothing_pastes_nothing(box):
    mask = np.ones((4, 4), np.float32)
    for method in PasteMethod:
        assert paste_mask(mask, np.array(box, np.float64), 20, 20, method).sum() == 0


def test_mask_of_one_sample_fills_its_box_only():
    pasted = paste_mask(np.ones((1, 1), np.float32), np.array([0.0, 0.0, 10, 5]), 10, 10)
    np.testing.assert_array_equal(pasted, np.tile([1] * 5 + [0] * 5, (10, 1)))


def test_image_of_one_pixel():
    assert paste_mask(np.ones((2, 2), np.float32), np.array([0.0, 0, 1, 1]), 1, 1) == 1


def test_cells_of_the_exact_box_by_hand():
    # Cells of two pixels; pixels lie a quarter of a cell beside their centres.
    mask = np.array([[1, 0]], np.float32)
    window, top, left = mask_window(mask, np.array([0.0, 2, 1, 6]), 1, 8, ACCURATE)
    assert (top, left) == (0, 1)
    np.testing.assert_allclose(window, [[0.25, 0.75, 0.75, 0.25, 0, 0]])
    # A box that ends within a pixel holds the pixel if its centre is inside.
    full = np.ones((4, 4), np.float32)
    for right, columns in ((3.4, 3), (3.6, 4)):
        pasted = paste_mask(full, np.array([0.0, 0.0, 2, right]), 2, 6, ACCURATE)
        np.testing.assert_array_equal(pasted, np.tile(np.arange(6) < columns, (2, 1)))


def test_resized_enlarged_box_by_hand():
    # The box 2 .. 4 becomes 1 .. 5, of five pixels; the mask 1, 1 becomes 0, 1, 1, 0.
    mask = np.ones((2, 2), np.float32)
    window, top, left = mask_window(mask, np.array([2.0, 2, 4, 4]), 8, 8, RESIZE)
    assert (top, left) == (1, 1)
    # (i + .5) * 4 / 5 - .5 = -.1, .7, 1.5, 2.3, 3.1 in the four samples.
    np.testing.assert_allclose(window[2], [0, 0.7, 1, 0.7, 0], atol=1e-6)
    np.testing.assert_allclose(window[:, 1], [0, 0.49, 0.7, 0.49, 0], atol=1e-6)
    # From -1.5 on it is cut off, rounded toward zero.
    _, top, left = mask_window(mask, np.array([-1.0, -1, 0, 0]), 8, 8, RESIZE)
    assert (top, left) == (0, 0)


def _sample(values, y, x):
    """Interpolates [n, m] with zeros around at one point, where samples lie at whole numbers."""
    total = 0.0
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            total += values[i, j] * max(0, 1 - abs(y - i)) * max(0, 1 - abs(x - j))
    return total


def _accurate_oracle(mask, box, height, width):
    """What `grid_sample` of PyTorch gives for the centres of pixels, corners not aligned."""
    ymin, xmin, ymax, xmax = box
    pasted = np.zeros((height, width))
    for i, j in np.ndindex(height, width):
        # From -1 to 1 in the box, then samples of the mask.
        y = 2 * (i + 0.5 - ymin) / (ymax - ymin) - 1
        x = 2 * (j + 0.5 - xmin) / (xmax - xmin) - 1
        rows, columns = mask.shape
        pasted[i, j] = _sample(mask, ((y + 1) * rows - 1) / 2, ((x + 1) * columns - 1) / 2)
    return pasted


def _resize_oracle(mask, box, height, width):
    """Resizes the padded mask as a whole, then cuts out what lies in the image."""
    padded = np.pad(mask, 1)
    center, half = (box[:2] + box[2:]) / 2, (box[2:] - box[:2]) / 2
    scale = np.array(padded.shape) / mask.shape
    low, high = (center - half * scale).astype(int), (center + half * scale).astype(int)
    size = high - low + 1
    pasted = np.zeros((height, width))
    for i, j in np.ndindex(*size):
        if 0 <= low[0] + i < height and 0 <= low[1] + j < width:
            point = (np.array([i, j]) + 0.5) * padded.shape / size - 0.5
            point = np.clip(point, 0, np.array(padded.shape) - 1)
            pasted[low[0] + i, low[1] + j] = _sample(padded, *point)
    return pasted


@rows.parametrize('box', [[3, 4, 15, 11], [-5, -3.3, 30, 9.1], [2.2, 3.3, 2.9, 20]])
@rows.parametrize(('method', 'oracle'), [(ACCURATE, _accurate_oracle), (RESIZE, _resize_oracle)])
def test_other_methods_equal_their_oracles(rng, method, oracle, box):
    mask = rng.random((5, 7)).astype(np.float32)
    box = np.array(box, np.float64)
    full = _full(mask, box, 20, 17, method)
    np.testing.assert_allclose(full, oracle(mask, box, 20, 17), atol=1e-6)


def test_the_default_restores_what_mask_targets_are_cropped_of():
    """The left part of an image, cropped as a target is."""
    image = np.zeros((1, 1, 41, 41), np.float32)
    image[..., :12] = 1
    box = np.array([0.21, 0.11, 0.91, 0.81], np.float32)
    (target,) = mask_targets_from_images(
        tf.constant(image), box[None, None], np.zeros((1, 1), np.int32), (28, 28)
    ).numpy()
    # Pixel i of 41 lies at i / 40: the first in the box is 5 across, 9 down.
    expected = np.zeros((41, 41))
    expected[9:37, 5:12] = 1
    np.testing.assert_array_equal(paste_mask(target[0], box * 41, 41, 41), expected)


def test_encoded_masks_are_those_of_the_method(rng):
    masks = rng.random((3, 6, 6)).astype(np.float32)
    boxes = np.array([[3.3, 4, 25, 11], [-5, -3.3, 30, 9.1], [2.2, 3.3, 12.9, 30]])
    image = Detections(boxes, np.ones(3), None, (28, 32), masks)
    encoded = {method: encode_masks(image, method) for method in PasteMethod}
    assert encode_masks(image) == encoded[PasteMethod.UNCROP]
    for method, counts in encoded.items():
        for mask, box, count in zip(masks, boxes, counts, strict=True):
            pasted = np.asfortranarray(paste_mask(mask, box, 28, 32, method))
            assert mask_api.encode(pasted)['counts'] == count
    assert len({tuple(counts) for counts in encoded.values()}) == len(PasteMethod)
