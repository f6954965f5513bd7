import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from faster_coco_eval.core.mask import decode
from pycocotools import mask as mask_api

from object_detection.core.detections import Detections
from object_detection.metrics import detections as tools
from object_detection.metrics.mask_pasting import paste_mask
from tests import goldens, rows
from tests.evaluation import fakes


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@rows.parametrize('density', [0.0, 0.5, 1.0])
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
    first, second = Detections.from_batch(detections, shapes)
    np.testing.assert_allclose(first.boxes, [[10, 40, 30, 80]], rtol=1e-6)
    assert first.classes.tolist() == [3]
    assert first.masks is None
    assert first.size == (100, 200)
    assert [len(second.boxes), len(second.scores), len(second.classes)] == [0, 0, 0]
    exported, _ = Detections.from_batch(detections, shapes, label_id_offset=0)
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
            paste_mask(image.masks[i], image.boxes[i], *image.size),
        )
    assert 'bbox' not in tools.coco_results(image, 7, boxes=False)[0]
    assert 'segmentation' not in tools.coco_results(image, 7, masks=False)[0]


@goldens.parametrize('crop_ops', names=('reframe_empty',))
def test_no_detections(case_name):
    count, height, width = goldens.load('crop_ops', case_name).outputs['shape']
    image = Detections(
        np.zeros((count, 4)),
        np.zeros(count),
        np.zeros(count, int),
        (height, width),
        np.zeros((count, 28, 28)),
    )
    assert tools.encode_masks(image) == []
    assert tools.coco_results(image, 1) == []


@rows.parametrize(
    ('source_id', 'image_id'),
    [(b'000042', '000042'), ('-7', -7), (b'"7"', '7'), (b'img_1', 'img_1'), ('', '')],
)
def test_coco_image_id(source_id, image_id):
    assert tools.coco_image_id(source_id) == image_id


def test_importing_evaluation_is_light():
    program = (
        'import sys, object_detection.metrics.coco.evaluator\n'
        "print([m for m in ('PIL', 'matplotlib', 'tensorflow', 'cv2') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == '[]'


def test_keypoints_of_coco_results():
    batch = {
        'detection_boxes': np.array([[[0.0, 0.0, 1.0, 1.0]] * 2], np.float32),
        'detection_scores': np.array([[0.9, 0.0]], np.float32),
        'detection_keypoints': np.array([[[[0.5, 0.25], [0.75, 1.0]]] * 2], np.float32),
        'detection_keypoint_scores': np.array([[[0.5, 0.0]] * 2], np.float32),
        'num_detections': np.array([1.0], np.float32),
    }
    (found,) = Detections.from_batch(batch, np.array([[40, 80]]))
    (result,) = tools.coco_results(found, 7)
    assert result['keypoints'] == [20.0, 20.0, 0.5, 80.0, 30.0, 0.0]
    (result,) = tools.coco_results(dataclasses.replace(found, keypoint_scores=None), 7)
    assert result['keypoints'] == [20.0, 20.0, 1.0, 80.0, 30.0, 1.0]
    assert tools.coco_results(found[:0], 7) == []
