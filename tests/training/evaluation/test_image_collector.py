import io

import numpy as np
import pytest
from PIL import Image

from object_detection.core.fields import DetectionFields, InputFields
from object_detection.metrics.analysis import images as stored
from object_detection.metrics.coco.evaluator import CocoEvaluator
from object_detection.training.evaluation import image_collector, results
from object_detection.training.evaluation.image_collector import ImageCollector
from object_detection.training.monitoring import history

NAMES = {1: 'cat', 2: 'dog'}


def batch(names, scores, *, has_classes=True):
    """Images of 20x40 with one cat in the left half, each with one detection there of a score."""
    size = len(names)
    box = np.tile(np.array([0.0, 0.0, 1.0, 0.5], np.float32), (size, 1, 1))
    images = {
        InputFields.IMAGE: np.zeros((size, 20, 40, 3), np.float32),
        InputFields.TRUE_IMAGE_SHAPE: np.tile([20, 40, 3], (size, 1)),
        InputFields.SOURCE_ID: np.array([name.encode() for name in names]),
        InputFields.ORIGINAL_IMAGE_SPATIAL_SHAPE: np.tile([20, 40], (size, 1)),
        InputFields.NUM_EVALUATION_BOXES: np.ones(size, int),
        InputFields.EVALUATION_BOXES: box,
        InputFields.EVALUATION_CLASSES: np.ones((size, 1), int),
        InputFields.EVALUATION_IS_CROWD: np.zeros((size, 1), bool),
        InputFields.EVALUATION_AREA: np.full((size, 1), -1.0),
        InputFields.NUM_GROUNDTRUTH_BOXES: np.ones(size, int),
        InputFields.GROUNDTRUTH_BOXES: box,
        InputFields.GROUNDTRUTH_CLASSES: np.tile([1.0, 0.0], (size, 1, 1)),
    }
    found = {
        DetectionFields.BOXES: box,
        DetectionFields.SCORES: np.array(scores, np.float32)[:, np.newaxis],
        DetectionFields.NUM_DETECTIONS: np.ones(size),
    }
    if has_classes:
        found[DetectionFields.CLASSES] = np.zeros((size, 1))
    return images, found


def saved(collector, tmp_path):
    collector.save(tmp_path / 'detections.npz', 5)
    return stored.load(tmp_path / 'detections.npz')


def test_best_detections_are_kept(tmp_path):
    collector = ImageCollector(NAMES, max_detections=1)
    images, found = batch(['a'], [0.2])
    found = {name: np.repeat(value, 2, axis=1) for name, value in found.items() if value.ndim > 1}
    scores = np.array([[0.2, 0.9]], np.float32)
    found |= {DetectionFields.SCORES: scores, DetectionFields.NUM_DETECTIONS: np.array([2.0])}
    collector.add_batch(images, found)
    assert saved(collector, tmp_path).images[0].scores == pytest.approx([0.9])


def test_a_threshold_is_advised_and_written(tmp_path):
    collector = ImageCollector(NAMES)
    assert collector.advised_threshold() is None
    collector.add_batch(*batch(['a', 'b'], [0.9, 0.2]))
    # Both find their object, also at the least of the thresholds.
    expected = {'score_threshold': 0.1, 'precision': 1, 'recall': 1, 'f1': 1}
    expected['by_class'] = {'cat': 0.1}
    assert collector.advised_threshold() == expected
    details = {'latencies': {}, 'advised_threshold': expected}
    results.write(tmp_path, 5, {'AP': 0.5}, {}, details)
    (entry,) = history.read(tmp_path / results.ALL_METRICS)
    assert entry['advised_threshold'] == expected
    assert 'latencies' not in entry


def test_boxes_are_in_pixels_and_classes_are_ids(tmp_path):
    collector = ImageCollector(NAMES)
    collector.add_batch(*batch(['a', 'b'], [0.9, 0.2]))
    assert collector.evaluate() == {}
    found = saved(collector, tmp_path)
    assert (found.step, found.names, found.num_images) == (5, NAMES, 2)
    one = found.images[1]
    assert (one.name, one.height, one.width) == ('b', 20, 40)
    assert one.boxes.tolist() == one.found_boxes.tolist() == [[0, 0, 20, 20]]
    assert one.classes.tolist() == one.found_classes.tolist() == [1]
    assert one.scores == pytest.approx([0.2])


def test_the_worst_and_the_best_are_drawn(tmp_path):
    collector = ImageCollector(NAMES)
    collector.add_batch(*batch(['found', 'missed'], [0.9, 0.2]))
    pictures = saved(collector, tmp_path).pictures
    worst, best = ([p.name for p in pictures if p.is_best == is_best] for is_best in (0, 1))
    # No image is both.
    assert (worst, best) == (['missed'], ['found'])
    assert pictures[0].caption == '0 found, 1 missed, 0 false'
    picture = Image.open(io.BytesIO(pictures[0].jpeg))
    assert picture.format == 'JPEG'
    assert picture.width > picture.height


def test_images_without_a_match_are_none_of_the_best(tmp_path):
    collector = ImageCollector(NAMES)
    collector.add_batch(*batch(['a', 'b', 'c', 'd'], [0.2, 0.2, 0.2, 0.2]))
    assert not any(picture.is_best for picture in saved(collector, tmp_path).pictures)


def test_masks_are_compared_where_a_metric_does(tmp_path):
    images, found = batch(['a'], [0.9])
    mask = np.zeros((20, 40), np.uint8)
    mask[:, :10] = 255
    file = io.BytesIO()
    Image.fromarray(mask).save(file, 'PNG')
    images[InputFields.EVALUATION_MASKS] = np.array([[file.getvalue()]], object)
    found[DetectionFields.MASKS] = np.ones((1, 1, 4, 4), np.float32)
    categories = [{'id': i, 'name': name} for i, name in NAMES.items()]
    evaluators = [CocoEvaluator(categories), CocoEvaluator(categories, iou_type='segm')]
    collector = ImageCollector(NAMES)
    for each in (*evaluators, collector):
        each.add_batch(images, found)
    collector.save(tmp_path / 'detections.npz', 5, evaluators)
    (masks,) = stored.load(tmp_path / 'detections.npz').compared
    assert (masks.title, masks.class_ids) == ('masks', [1, 2])
    # The detected mask is the whole box, the annotated one half of it.
    assert masks.images[0].overlap == pytest.approx(np.array([[0.5]]))


def test_pictures_have_the_names_of_files_where_they_are_recorded(tmp_path):
    collector = ImageCollector(NAMES)
    images, found = batch(['1', '2'], [0.9, 0.2])
    images[InputFields.FILENAME] = np.array(['dög.jpg'.encode(), b''], object)
    collector.add_batch(images, found)
    evaluated = saved(collector, tmp_path)
    assert {picture.name for picture in evaluated.pictures} == {'dög.jpg', '2'}
    assert [image.name for image in evaluated.images] == ['1', '2']


def test_workers_merge_theirs(tmp_path):
    chief, other = ImageCollector(NAMES), ImageCollector(NAMES)
    chief.add_batch(*batch(['a', 'b'], [0.9, 0.9]))
    other.add_batch(*batch(['c'], [0.2]))
    chief.merge(other.part())
    found = saved(chief, tmp_path)
    assert [image.name for image in found.images] == ['a', 'b', 'c']
    assert found.pictures[0].name == 'c'


def test_images_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(image_collector, '_MAX_IMAGES', 3)
    monkeypatch.setattr(image_collector, '_NUM_PICTURES', 2)
    collector = ImageCollector(NAMES)
    for index in range(3):
        collector.add_batch(*batch([f'a{index}', f'b{index}'], [0.9, 0.2]))
    found = saved(collector, tmp_path)
    assert (len(found.images), found.num_images, len(found.pictures)) == (3, 6, 4)


def test_without_classes_all_are_objects(tmp_path):
    images, found = batch(['a'], [0.9], has_classes=False)
    images[InputFields.EVALUATION_CLASSES] += 1
    collector = ImageCollector(NAMES)
    collector.add_batch(images, found)
    evaluated = saved(collector, tmp_path)
    assert evaluated.names == {1: 'object'}
    assert evaluated.images[0].classes.tolist() == [1]


def test_nothing_is_stored_of_batches_without_boxes(tmp_path):
    images, found = batch(['a'], [0.9])
    del images[InputFields.EVALUATION_BOXES]
    collector = ImageCollector(NAMES)
    collector.add_batch(images, found)
    collector.save(tmp_path / 'detections.npz', 0)
    assert not list(tmp_path.iterdir())
