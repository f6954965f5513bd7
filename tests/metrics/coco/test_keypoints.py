import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from object_detection.metrics.coco import metrics as coco_metrics
from object_detection.metrics.coco.annotations import CocoAnnotations
from object_detection.metrics.coco.keypoints import ALIASES, KeypointEvaluator
from object_detection.metrics.coco.metrics import keypoints
from object_detection.metrics.instances import Instances
from tests import goldens, rows
from tests.metrics.coco import golden_batches, peers

NAMES = ('nose', 'eye', 'ear')
CATEGORIES = [
    {'id': 1, 'name': 'pole'},
    {'id': 2, 'name': 'person', 'keypoints': {'ear': 3, 'nose': 0, 'eye': 2}},
]
SIGMAS = {'nose': 0.1, 'eye': 0.05, 'ear': 0.2}


@goldens.parametrize('evaluation', prefix='coco_keypoints')
def test_metrics_equal_reference(case_name, monkeypatch):
    params = goldens.load('evaluation', case_name).params
    keypoints = {each['name']: each['id'] for each in params['category_keypoints']}
    categories = goldens.load('evaluation', 'data').params['categories']
    categories = [category | {'keypoints': keypoints} for category in categories]
    evaluator = KeypointEvaluator(categories, params['class_text'], params.get('oks_sigmas'))
    golden_batches.add_all(evaluator, params, monkeypatch)
    metrics = evaluator.evaluate()
    assert {name: metrics[name] for name in params['metrics']} == pytest.approx(
        params['metrics'], abs=1e-12
    )
    # The rest are the names of COCO, of which the reference's are aliases.
    suffix = f' ByCategory/{params["class_text"]}'
    names = {
        f'Keypoints_{name}{suffix}': f'Keypoints_{alias}{suffix}'
        for alias, name in (ALIASES.items())
    }
    assert set(metrics) - set(params['metrics']) == set(names)
    assert all(metrics[name] == metrics[alias] for name, alias in names.items())


def _image(name=b'1', points=((10, 10), (20, 10), (10, 30)), found=None, seen=(1, 1, 1), **changes):
    """One object, of 100 x 50 pixels, in an image of 200 x 100, and one detection at its box."""
    places = [0, 2, 3]
    size = np.array([200.0, 100.0])
    row = np.full((1, 1, 4, 2), np.nan)
    row[0, 0, places] = np.array(points) / size
    detected = np.zeros((1, 1, 4, 2))
    detected[0, 0, places] = np.array(points if found is None else found) / size
    visibilities = np.zeros((1, 1, 4), bool)
    visibilities[0, 0, places] = np.array(seen, bool)
    box = np.array([[[0.0, 0.0, 0.5, 0.5]]])
    batch = {
        'source_id': np.array([name], object),
        'original_image_spatial_shape': np.array([[200, 100]]),
        'evaluation_boxes': box,
        'evaluation_classes': np.array([[2]]),
        'evaluation_is_crowd': np.zeros((1, 1), bool),
        'evaluation_area': np.array([[-1.0]]),
        'evaluation_keypoints': row,
        'evaluation_keypoint_visibilities': visibilities,
        'num_evaluation_boxes': np.array([1]),
    }
    detections = {
        'detection_boxes': box,
        'detection_scores': np.array([[0.5]]),
        'detection_classes': np.array([[1.0]]),
        'detection_keypoints': detected,
        'num_detections': np.array([1.0]),
    }
    for side in (batch, detections):
        side |= {key: value for key, value in changes.items() if key in side}
    return batch, detections


def _evaluate(*images, **options):
    evaluator = KeypointEvaluator(CATEGORIES, 'person', SIGMAS, **options)
    for image in images:
        evaluator.add_batch(*image)
    metrics = evaluator.evaluate()
    return {
        name.removeprefix('Keypoints_').partition(' ByC')[0]: each for name, each in metrics.items()
    }


def _moved(similarity, *, area=5000.0, visible=3):
    """Keypoints, the first of which is moved so that the object keypoint similarity is given."""
    left = similarity * visible - (visible - 1)
    distance = np.sqrt(-np.log(left) * 2 * area * (2 * SIGMAS['nose']) ** 2)
    return ((10 + distance, 10), (20, 10), (10, 30))


@rows.parametrize(('similarity', 'count'), [(0.93, 9), (0.77, 6), (0.68, 4)])
def test_similarity_by_hand(similarity, count):
    # Thresholds .5, .55 ... up to the similarity are reached.
    metrics = _evaluate(_image(found=_moved(similarity)))
    assert metrics['Recall/AR'] == pytest.approx(count / 10)
    assert metrics['Recall/AR@.75IOU'] == float(similarity > 0.75)
    # The box of 5,000 pixels is medium.
    assert metrics['Recall/AR (medium)'] == pytest.approx(count / 10)
    assert metrics['Recall/AR (large)'] == -1


def test_recorded_area_and_hidden_points_change_the_similarity():
    # Of an object of 20,000 pixels, the same distance is nearer.
    found = _moved(0.77, area=20000.0)
    area = np.array([[20000.0]])
    metrics = _evaluate(_image(found=found, evaluation_area=area))
    assert metrics['Recall/AR'] == pytest.approx(6 / 10)
    assert metrics['Recall/AR (large)'] == pytest.approx(6 / 10)
    # With one point hidden, the mean is over two.
    hidden = _image(found=_moved(0.77, visible=2), seen=(1, 0, 1))
    assert _evaluate(hidden)['Recall/AR'] == pytest.approx(6 / 10)


def test_objects_without_visible_keypoints_and_crowds_are_ignored():
    nothing = _image(b'2', seen=(0, 0, 0))
    assert set(_evaluate(nothing).values()) == {-1.0}
    crowd = _image(b'3', evaluation_is_crowd=np.ones((1, 1), bool))
    metrics = _evaluate(_image(found=_moved(0.93)), nothing, crowd)
    # Detections of ignored objects are neither right nor wrong.
    assert metrics['Precision/mAP@.50IOU'] == pytest.approx(1)
    assert metrics['Recall/AR'] == pytest.approx(0.9)


def test_analyses_have_the_similarities():
    evaluator = KeypointEvaluator(CATEGORIES, 'person', SIGMAS)
    for each in (_image(found=_moved(0.77)), _image(b'2', seen=(0, 0, 0))):
        evaluator.add_batch(*each)
    found = evaluator.analysed(max_images=5, max_detections=100)
    assert (found.title, found.class_ids) == ('keypoints of person', [2])
    first, second = found.images
    assert first.overlap == pytest.approx(np.array([[0.77]]))
    assert not first.is_crowd.any()
    # Objects without visible keypoints do not count.
    assert second.is_crowd.all()


def test_other_classes_do_not_count():
    other = _image(b'2', evaluation_classes=np.array([[1]]), found=((0, 0),) * 3)
    metrics = _evaluate(_image(), other)
    assert metrics['Recall/AR'] == pytest.approx(1)
    # Scores are equal; the wrong one comes second, so precision at full recall stays.
    assert metrics['Precision/mAP'] == pytest.approx(1)
    pole = _image(b'0', found=((0, 0),) * 3, detection_classes=np.array([[0.0]]))
    assert _evaluate(pole)['Precision/mAP'] == 0


def test_parts_are_merged():
    images = [_image(b'1'), _image(b'2', found=_moved(0.77)), _image(b'3', seen=(0, 1, 0))]
    first, second = (KeypointEvaluator(CATEGORIES, 'person', SIGMAS) for _ in range(2))
    first.add_batch(*images[2])
    for image in images[:2]:
        second.add_batch(*image)
    first.merge(pickle.loads(pickle.dumps(second.part())))
    whole = KeypointEvaluator(CATEGORIES, 'person', SIGMAS)
    for image in images:
        whole.add_batch(*image)
    assert first.evaluate() == whole.evaluate()


def test_results_have_the_keypoints_in_the_order_of_their_positions():
    evaluator = KeypointEvaluator(CATEGORIES, 'person', SIGMAS)
    evaluator.add_batch(*_image(b'7'))
    (entry,) = evaluator.coco_results()
    assert entry == {
        'image_id': 7,
        'category_id': 2,
        'keypoints': pytest.approx([10, 10, 1, 10, 20, 1, 30, 10, 1]),
        'bbox': [0.0, 0.0, 50.0, 100.0],
        'score': 0.5,
    }


def _file(category, annotation):
    annotation = {'image_id': 1, 'category_id': 9, 'bbox': [0, 0, 50, 100], **annotation}
    document = {
        'images': [{'id': 1, 'height': 200, 'width': 100}],
        'categories': [{'id': 9, 'name': 'person', **category}, {'id': 4, 'name': 'pole'}],
        'annotations': [annotation, {**annotation, 'category_id': 4}],
    }
    return CocoAnnotations(document, 'val.json', {1: ['pole'], 2: ['person']})


def test_annotation_file_lists_keypoints_by_name():
    # x, y and visibility; the file's order is another one, and it has one more.
    points = [0, 0, 0, 30, 10, 2, 10, 20, 1, 10, 10, 2]
    annotations = _file({'keypoints': ['tail', 'ear', 'eye', 'nose']}, {'keypoints': points})
    batch, detections = _image(found=_moved(0.77))
    assert _evaluate((batch, detections), annotations=annotations)['Recall/AR'] == pytest.approx(
        6 / 10
    )
    # An object without keypoints is ignored.
    nothing = _file({'keypoints': ['ear', 'eye', 'nose']}, {})
    assert _evaluate((batch, detections), annotations=nothing)['Recall/AR'] == -1


def test_annotation_file_without_a_keypoint():
    annotations = _file({'keypoints': ['ear', 'eye']}, {'keypoints': [0] * 6})
    with pytest.raises(ValueError, match=r"'nose', 'eye', 'ear'.*Received: \['ear', 'eye'\]"):
        _evaluate(_image(), annotations=annotations)


@rows.parametrize(
    ('class_name', 'sigmas', 'message'),
    [
        ('pole', {}, r"one of \['person'\]. Received: 'pole'"),
        ('', {}, "Received: ''"),
        ('person', {'tail': 0.1}, "keypoints of 'person'.*Received: \\['tail'\\]"),
        ('person', {'ear': 0.0}, "Received: {'ear': 0.0}"),
    ],
)
def test_wrong_arguments(class_name, sigmas, message):
    with pytest.raises(ValueError, match=message):
        KeypointEvaluator(CATEGORIES, class_name, sigmas)


@rows.parametrize(
    ('side', 'key', 'message'),
    [
        (0, 'evaluation_keypoints', 'num_keypoints'),
        (1, 'detection_keypoints', 'a model that predicts keypoints'),
        (1, 'detection_classes', 'a model that classifies'),
    ],
)
def test_entries_that_are_needed(side, key, message):
    pair = _image()
    del pair[side][key]
    with pytest.raises(ValueError, match=message):
        _evaluate(pair)


def test_too_few_keypoints():
    batch, detections = _image()
    detections['detection_keypoints'] = detections['detection_keypoints'][:, :, :3]
    with pytest.raises(ValueError, match=r'position 3 in the label map\. Received: 3 keypoints'):
        _evaluate((batch, detections))


@st.composite
def _cases(draw):
    """Poses of some images: crowds, ignored areas, no visible keypoints, equal scores, nothing."""
    coordinates = st.integers(0, 12).map(lambda value: 5.0 * value)
    visibilities = st.sampled_from([0, 1, 2])
    areas = st.sampled_from([20.0, 32.0**2, 50.0**2, 96.0**2, 1e5])
    images = []
    for _ in range(draw(st.integers(1, 3))):
        counts = draw(st.integers(0, 4)), draw(st.integers(0, 25))
        sides = []
        for count in counts:
            points = draw(
                st.lists(
                    st.tuples(coordinates, coordinates), min_size=3 * count, max_size=3 * count
                )
            )
            sides.append(np.array(points, np.float64).reshape(count, 3, 2))
        seen = draw(st.lists(visibilities, min_size=3 * counts[0], max_size=3 * counts[0]))
        seen = np.array(seen, np.float64).reshape(counts[0], 3, 1)
        lists = [
            draw(st.lists(each, min_size=counts[0], max_size=counts[0]))
            for each in (areas, st.booleans())
        ]
        scores = draw(
            st.lists(st.sampled_from([0.1, 0.5, 0.9]), min_size=counts[1], max_size=counts[1])
        )
        found_areas = draw(st.lists(areas, min_size=counts[1], max_size=counts[1]))
        images.append((sides, seen, lists, scores, found_areas))
    return images


def _instances(points, visibilities, areas, **values):
    """Boxes are around the points."""
    count = len(points)
    boxes = np.zeros((count, 4))
    if count:
        boxes = np.concatenate([points.min(axis=1), points.max(axis=1)], axis=1)
    keypoints = np.concatenate([points, visibilities], axis=2)
    classes = np.full(count, 2)
    return Instances(boxes, classes, np.array(areas, np.float64), keypoints=keypoints, **values)


@settings(max_examples=60, deadline=None)
@given(_cases())
def test_equals_pycocotools_to_the_last_bits(images):
    annotated, detected = [], []
    for sides, seen, (areas, crowds), scores, found_areas in images:
        annotated.append(
            _instances(
                sides[0],
                seen,
                areas,
                is_crowd=np.array(crowds, bool),
                is_ignored=~(seen > 0).any(axis=(1, 2)),
            )
        )
        ones = np.ones((len(sides[1]), 3, 1))
        detected.append(_instances(sides[1], ones, found_areas, scores=np.array(scores)))
    sigmas = np.array([0.1, 0.3, 1.0])
    metrics = coco_metrics.measure(
        annotated,
        detected,
        [2],
        compare=keypoints(sigmas),
        rules=coco_metrics.Rules(
            {name: coco_metrics.AREA_RANGES[name] for name in ('all', 'medium', 'large')}, (20,)
        ),
    )
    expected = peers.pycocotools(annotated, detected, [2], 'keypoints', sigmas=sigmas)
    for area, name in enumerate(('all', 'medium', 'large')):
        np.testing.assert_array_equal(
            metrics.precision[name], expected['precision'][..., area, -1], err_msg=name
        )
        np.testing.assert_array_equal(
            metrics.recall[name, 20], expected['recall'][..., area, -1], err_msg=name
        )
