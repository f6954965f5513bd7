import io
import json
import re

import numpy as np
import pytest
import tensorflow as tf
from faster_coco_eval.core import mask as coco_mask
from PIL import Image

from object_detection.data.coco import masks as coco_masks
from object_detection.data.formats import outlines
from object_detection.errors import UnusableError
from tests import rows

SIZE = (20, 30)


def _oracle(segmentation) -> np.ndarray:
    encoded = coco_mask.frPyObjects(segmentation, *SIZE)
    return coco_mask.decode(coco_mask.merge(encoded) if isinstance(encoded, list) else encoded)


def test_polygon_by_hand():
    mask = coco_masks.decode([[2, 3, 7, 3, 7, 5, 2, 5]], *SIZE)
    expected = np.zeros(SIZE, np.uint8)
    expected[3:5, 2:7] = 1
    np.testing.assert_array_equal(mask, expected)
    assert mask.dtype == np.uint8


@pytest.mark.parametrize(
    'segmentation',
    [
        [[2.2, 3.7, 17.4, 5.1, 9.9, 15.5]],
        [[1, 1, 5, 1, 5, 5], [10.5, 8, 20, 9, 15, 18.25, 11, 17]],
        [[-4, -3, 40, 5, 12, 25]],
        [[3, 3, 3, 3, 3, 3]],
    ],
    ids=['one', 'parts', 'beyond the edge', 'point'],
)
def test_polygons_are_coco_s(segmentation):
    np.testing.assert_array_equal(coco_masks.decode(segmentation, *SIZE), _oracle(segmentation))


def test_line_is_passed_over():
    polygon = [2, 3, 7, 3, 7, 5]
    np.testing.assert_array_equal(
        coco_masks.decode([[1, 1, 9, 9], polygon], *SIZE), coco_masks.decode([polygon], *SIZE)
    )


@rows.parametrize('density', [0.0, 0.1, 0.5, 1.0])
@rows.parametrize('height', [3, 400])
def test_run_lengths_compressed_or_not(density, height):
    mask = np.random.default_rng(0).random((height, 17)) < density
    # Long and short runs, as differences of both signs.
    mask[:, 3:9] = density > 0.1
    compressed = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    for segmentation in (
        outlines.encode_rle(mask),
        {'size': compressed['size'], 'counts': compressed['counts']},
        {'size': compressed['size'], 'counts': compressed['counts'].decode()},
    ):
        np.testing.assert_array_equal(coco_masks.decode(segmentation, *mask.shape), mask)


@pytest.mark.parametrize(
    'segmentation',
    [
        None,
        [],
        5,
        'text',
        [[1, 2, 3, 4]],
        [[1, 2, 3, 4, 5, 6, 7]],
        [['a'] * 6],
        [[None] * 6],
        [[float('nan')] * 6],
        [[[1, 1, 1], [5, 1, 1], [5, 5, 1]]],
        [[1, 1], [5, 5]],
        [[1, 1, 5, 1, 5, 1e9]],
        {'size': list(SIZE)},
        {'size': [20, 31], 'counts': [620]},
        {'size': list(SIZE), 'counts': [599]},
        {'size': list(SIZE), 'counts': [700, -100]},
        {'size': list(SIZE), 'counts': [10**30]},
        # Their sum wraps around to 600 in 64 bits.
        {'size': list(SIZE), 'counts': [2**62, 2**62, 2**62, 2**62 + 600]},
        {'size': list(SIZE), 'counts': [[300, 300]]},
        {'size': list(SIZE), 'counts': 'zzz'},
        {'size': list(SIZE), 'counts': 5},
        # A hundred bytes, 1.2 million pixels of edges.
        [[0, 0, 29, 19] * 20_700],
    ],
    ids=lambda value: str(value)[:60],
)
def test_unusable(segmentation):
    with pytest.raises(UnusableError) as caught:
        coco_masks.decode(segmentation, *SIZE)
    assert caught.value.reason == 'bad_mask'
    with pytest.raises(UnusableError, match=re.escape(str(caught.value))):
        coco_masks.check(segmentation, *SIZE)


@rows.parametrize(
    'segmentation',
    [
        [2, 3, 17, 5, 9, 15],
        [[2, 3], [17, 5], [9, 15]],
        [[[2, 3], [17, 5], [9, 15]]],
    ],
)
def test_polygons_of_another_nesting(segmentation):
    expected = coco_masks.decode([[2, 3, 17, 5, 9, 15]], *SIZE)
    np.testing.assert_array_equal(coco_masks.decode(segmentation, *SIZE), expected)
    coco_masks.check(segmentation, *SIZE)


@rows.parametrize(
    ('segmentation', 'match'),
    [
        ([[10, 10, 30, 20]], r'received the four numbers of a box: \[\[10, 10, 30, 20\]\]'),
        ([[1, 2, 3, 4, 5, 6, 7]], r'three corners each, received \[\[1, 2, 3, 4, 5, 6, 7\]\]'),
        ([], r'expected a list of polygons, .*, received \[\]'),
        (None, 'received None'),
    ],
)
def test_what_is_no_polygon_is_named(segmentation, match):
    with pytest.raises(UnusableError, match=match):
        coco_masks.check(segmentation, *SIZE)


def test_encoded_is_pycocotools_s():
    for segmentation in (
        [[2.2, 3.7, 17.4, 5.1, 9.9, 15.5], [10, 8, 20, 9, 15, 18]],
        {'size': list(SIZE), 'counts': [100, 50, 450]},
    ):
        expected = coco_mask.encode(np.asfortranarray(_oracle(segmentation)))['counts']
        assert coco_masks.encode(segmentation, *SIZE) == expected
        compressed = {'size': list(SIZE), 'counts': expected.decode()}
        assert coco_masks.encode(compressed, *SIZE) == expected


def test_empty_runs_do_not_hide_what_follows_them():
    plain, split = [100, 100, 400], [100, 50, 0, 50, 400]
    encoded = [
        coco_masks.encode({'size': list(SIZE), 'counts': runs}, *SIZE) for runs in (plain, split)
    ]
    assert encoded[0] == encoded[1]


def test_outline_is_measured_along_all_polygons_of_an_object():
    half = [0, 0, 29, 19] * 10_400
    coco_masks.check([half], *SIZE)
    with pytest.raises(UnusableError, match='its edges are 1206400 pixels long'):
        coco_masks.check([half, half], *SIZE)


def test_images_larger_than_pycocotools_counts():
    for segmentation in ([[0, 0, 9, 0, 9, 9]], {'size': [2**16, 2**16], 'counts': [2**32]}):
        with pytest.raises(UnusableError, match='65536 x 65536 pixels'):
            coco_masks.check(segmentation, 2**16, 2**16)


def test_png_is_white_where_the_mask_is_not_0():
    mask = 3 * coco_masks.decode([[2, 3, 7, 3, 7, 5]], *SIZE)
    with Image.open(io.BytesIO(coco_masks.to_png(mask))) as image:
        assert image.mode == '1'
        np.testing.assert_array_equal(np.asarray(image), mask > 0)


@rows.parametrize(
    ('columns', 'width'),
    [((0, 30), 30), ((3, 5), 30), ((8, 16), 30), ((29, 30), 30), ((7, 9), 16), ((0, 1), 1)],
)
def test_png_of_runs_is_the_same_mask(columns, width):
    mask = np.zeros((20, width), np.uint8)
    inside = mask[:, slice(*columns)]
    inside[:] = np.random.default_rng(0).random(inside.shape) < 0.4
    pixels = mask.T.ravel()
    ends = np.flatnonzero(np.diff(pixels, prepend=0, append=2))
    png = coco_masks.runs_to_png(np.diff(ends, prepend=0), *mask.shape)
    assert png == coco_masks.to_png(mask)
    with Image.open(io.BytesIO(png)) as image:
        assert image.mode == '1'
        np.testing.assert_array_equal(np.asarray(image), mask)
    decoded = tf.io.decode_png(png, channels=1)[..., 0]
    np.testing.assert_array_equal(decoded, 255 * mask)


@rows.parametrize('counts', [[600], [0, 600], [600, 0], [0, 0, 600], [10, 0, 590]])
def test_png_of_nothing_or_everything(counts):
    png = coco_masks.runs_to_png(np.array(counts), *SIZE)
    expected = coco_masks.fill(np.array(counts), SIZE[0])
    with Image.open(io.BytesIO(png)) as image:
        np.testing.assert_array_equal(np.asarray(image), expected)


def test_check_passes_what_can_be_decoded():
    coco_masks.check([[2, 3, 7, 3, 7, 5]], *SIZE)
    coco_masks.check({'size': list(SIZE), 'counts': [600]}, *SIZE)


def test_real_annotations(shared):
    path = shared / 'data/coco_permissive/annotations/instances_val.json'
    document = json.loads(path.read_text())
    sizes = {image['id']: (image['height'], image['width']) for image in document['images']}
    for annotation in document['annotations'][::10]:
        size = sizes[annotation['image_id']]
        encoded = coco_mask.frPyObjects(annotation['segmentation'], *size)
        encoded = coco_mask.merge(encoded) if isinstance(encoded, list) else encoded
        np.testing.assert_array_equal(
            coco_masks.decode(annotation['segmentation'], *size), coco_mask.decode(encoded)
        )
