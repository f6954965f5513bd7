import json
import subprocess
import sys

import numpy as np
import pytest
from faster_coco_eval.core.mask import decode
from pycocotools import mask as mask_api

from object_detection.evaluation import detections as tools
from tests import goldens
from tests.evaluation import fakes


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def _full(mask, box, height, width):
    window, top, left = tools.mask_window(mask, box, height, width)
    full = np.zeros((height, width), np.float32)
    full[top : top + window.shape[0], left : left + window.shape[1]] = window
    return full


@goldens.parametrize('crop_ops', names=('reframe_bilinear',))
def test_mask_window_equals_reference(case_name):
    case = goldens.load('crop_ops', case_name)
    size = (case.params['image_height'], case.params['image_width'])
    boxes = tools.boxes_to_absolute(case.inputs['boxes'], *size)
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


@pytest.mark.parametrize('box', [[3, 4, 15, 11], [-5, -3.3, 30, 9.1], [2.2, 3.3, 2.9, 20]])
def test_mask_window_equals_oracle(rng, box):
    mask = rng.random((5, 7)).astype(np.float32)
    box = np.array(box, np.float64)
    np.testing.assert_allclose(_full(mask, box, 20, 17), _oracle(mask, box, 20, 17), atol=1e-6)


def test_paste_mask_by_hand():
    # The left half of the box is the object: columns 0 .. 2 of 0 .. 4 have probability >= .5;
    # at exactly .5 a pixel is background.
    mask = np.array([[1, 0], [1, 0]], np.float32)
    pasted = tools.paste_mask(mask, np.array([0.0, 0.0, 5.0, 5.0]), 5, 5)
    assert pasted.dtype == np.uint8
    np.testing.assert_array_equal(pasted, np.tile([1, 1, 0, 0, 0], (5, 1)))


@pytest.mark.parametrize(
    'box', [[0, 0, 0, 0], [3, 3, 3, 9], [9, 9, 3, 3], [30, 30, 40, 40], [np.nan] * 4]
)
def test_box_that_covers_nothing_pastes_nothing(box):
    mask = np.ones((4, 4), np.float32)
    assert tools.paste_mask(mask, np.array(box, np.float64), 20, 20).sum() == 0


def test_mask_of_one_sample_fills_its_box_only():
    pasted = tools.paste_mask(np.ones((1, 1), np.float32), np.array([0.0, 0.0, 10, 5]), 10, 10)
    np.testing.assert_array_equal(pasted, np.tile([1] * 5 + [0] * 5, (10, 1)))


def test_image_of_one_pixel():
    assert tools.paste_mask(np.ones((2, 2), np.float32), np.array([0.0, 0, 1, 1]), 1, 1) == 1


@pytest.mark.parametrize('density', [0.0, 0.5, 1.0])
def test_encode_window_equals_pycocotools(rng, density):
    for _ in range(20):
        window = rng.random(rng.integers(0, 9, 2)) < density
        top, left, below, right = rng.integers(0, 3, 4)
        full = np.pad(window, ((top, below), (left, right)))
        if full.size == 0:
            continue
        expected = mask_api.encode(np.asfortranarray(full, dtype=np.uint8))['counts']
        assert tools.encode_window(window, top, left, *full.shape) == expected


def test_unbatch_drops_padding_and_shifts_classes():
    detections = {
        'detection_boxes': np.array([[[0.1, 0.2, 0.3, 0.4], [0, 0, 0, 0]]] * 2, np.float32),
        'detection_scores': np.array([[0.9, 0.0]] * 2, np.float32),
        'detection_classes': np.array([[2.0, 0.0]] * 2, np.float32),
        'num_detections': np.array([1.0, 0.0], np.float32),
    }
    shapes = np.array([[100, 200], [50, 60]])
    first, second = tools.unbatch(detections, shapes)
    np.testing.assert_allclose(first.boxes, [[10, 40, 30, 80]], rtol=1e-6)
    assert first.classes.tolist() == [3]
    assert first.masks is None
    assert (first.height, first.width) == (100, 200)
    assert [len(second.boxes), len(second.scores), len(second.classes)] == [0, 0, 0]
    exported, _ = tools.unbatch(detections, shapes, label_id_offset=0)
    assert exported.classes.tolist() == [2]


def test_coco_results_decode_to_the_pasted_masks(rng):
    image = fakes.image_detections(fakes.random_image(rng, 0, with_areas=False))
    results = json.loads(json.dumps(tools.coco_results(image, 7)))
    for i, result in enumerate(results):
        assert result['image_id'] == 7
        assert result['category_id'] == image.classes[i]
        assert result['score'] == pytest.approx(image.scores[i])
        ymin, xmin, ymax, xmax = image.boxes[i]
        assert result['bbox'] == pytest.approx([xmin, ymin, xmax - xmin, ymax - ymin])
        np.testing.assert_array_equal(
            decode(result['segmentation']),
            tools.paste_mask(image.masks[i], image.boxes[i], image.height, image.width),
        )
    assert 'bbox' not in tools.coco_results(image, 7, boxes=False)[0]
    assert 'segmentation' not in tools.coco_results(image, 7, masks=False)[0]


@goldens.parametrize('crop_ops', names=('reframe_empty',))
def test_no_detections(case_name):
    count, height, width = goldens.load('crop_ops', case_name).outputs['shape']
    image = tools.ImageDetections(
        np.zeros((count, 4)),
        np.zeros(count),
        np.zeros(count, int),
        np.zeros((count, 28, 28)),
        height,
        width,
    )
    assert tools.encode_masks(image) == []
    assert tools.coco_results(image, 1) == []


@pytest.mark.parametrize(
    ('source_id', 'image_id'), [(b'000042', 42), ('7', 7), (b'img_1', 'img_1'), ('', '')]
)
def test_coco_image_id(source_id, image_id):
    assert tools.coco_image_id(source_id) == image_id


def test_importing_evaluation_is_light():
    program = (
        'import sys, object_detection.evaluation.coco\n'
        "print([m for m in ('PIL', 'matplotlib', 'tensorflow', 'cv2') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == '[]'
