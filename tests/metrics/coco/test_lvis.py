import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pycocotools import mask as mask_api

from object_detection.metrics.coco.annotations import CocoAnnotations
from object_detection.metrics.coco.collecting import Image, Searched
from object_detection.metrics.coco.lvis import LvisEvaluator
from tests import goldens, rows
from tests.evaluation import fakes
from tests.metrics.coco import cases, golden_batches, peers

CATEGORIES = [
    {'id': 1, 'name': 'dog', 'frequency': 'f'},
    {'id': 2, 'name': 'cat', 'frequency': 'r'},
    {'id': 3, 'name': 'bird', 'frequency': 'r'},
]
SIZE = 20
BOX = (0, 0, 10, 10)


def test_metrics_equal_reference(monkeypatch):
    params = goldens.load('evaluation', 'lvis_mask').params
    categories = goldens.load('evaluation', 'data').params['categories']
    categories = [
        category | {'frequency': frequency}
        for category, frequency in zip(categories, params['frequency'], strict=True)
    ]
    evaluator = LvisEvaluator(categories, per_category=True)
    golden_batches.add_all(evaluator, params, monkeypatch)
    metrics = evaluator.evaluate()
    names, expected = list(metrics), params['metrics']
    assert names[: len(expected)] == list(expected)
    assert names[len(expected)] == 'DetectionMasks_PerformanceByCategory/mAP/alpha'
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    # Only the first category is rare.
    assert metrics[names[len(expected)]] == metrics['DetectionMasks_APr']


def _mask(box):
    mask = np.zeros((SIZE, SIZE), np.uint8)
    mask[box[0] : box[2], box[1] : box[3]] = 1
    return mask


def _pair(name=b'1', objects=((BOX, 1),), found=((BOX, 1),), absent=(), incomplete=()):
    """One image; detections are best first. Masks of detections fill their boxes."""

    def vector(labels):
        values = np.zeros((1, 3), np.float32)
        values[0, [label - 1 for label in labels]] = 1
        return values

    boxes = np.array([box for box, _ in objects], np.float64).reshape(1, -1, 4) / SIZE
    batch = {
        'source_id': np.array([name], object),
        'original_image_spatial_shape': np.array([[SIZE, SIZE]]),
        'evaluation_boxes': boxes,
        'evaluation_classes': np.array([[label for _, label in objects]], np.int64),
        'evaluation_is_crowd': np.zeros((1, len(objects)), bool),
        'evaluation_area': np.full((1, len(objects)), -1.0),
        'evaluation_masks': np.array([[fakes.png(_mask(b)) for b, _ in objects]], object),
        'num_evaluation_boxes': np.array([len(objects)]),
        'groundtruth_verified_neg_classes': vector(absent),
        'groundtruth_not_exhaustive_classes': vector(incomplete),
    }
    detections = {
        'detection_boxes': np.array([b for b, _ in found], np.float64).reshape(1, -1, 4) / SIZE,
        'detection_scores': np.linspace(0.9, 0.1, len(found))[np.newaxis],
        'detection_classes': np.array([[label - 1.0 for _, label in found]]),
        'detection_masks': np.ones((1, len(found), 4, 4), np.float32),
        'num_detections': np.array([float(len(found))]),
    }
    return batch, detections


def _evaluate(*pairs, **options):
    evaluator = LvisEvaluator(CATEGORIES, **options)
    for pair in pairs:
        evaluator.add_batch(*pair)
    metrics = evaluator.evaluate()
    return {name.removeprefix('DetectionMasks_'): value for name, value in metrics.items()}


OTHER = (10, 10, 20, 20)


@rows.parametrize(
    ('options', 'precision'),
    [
        # The better one of two detections of class 2 is wrong.
        ({'absent': [2]}, 1 / 2),
        # The image was not searched for class 2.
        ({}, 1),
        # Whether more objects of class 2 are there is not known.
        ({'absent': [2], 'incomplete': [2]}, 1),
    ],
)
def test_detections_count_where_an_image_was_searched(options, precision):
    pair = _pair(b'1', [(BOX, 1)], [(BOX, 1), (BOX, 2)], **options)
    right = _pair(b'2', [(OTHER, 2)], [(BOX, 1), (OTHER, 2)])
    right[1]['detection_scores'][:] = [[0.2, 0.05]]
    metrics = _evaluate(pair, right)
    assert metrics['APf'] == pytest.approx(1)
    assert metrics['APr'] == pytest.approx(precision)
    assert metrics['APc'] == -1


def test_the_best_300_detections_of_all_classes_are_taken():
    found = [(OTHER, 1)] * 150 + [(OTHER, 3)] * 150 + [(BOX, 1)]
    assert _evaluate(_pair(found=found))['AR@300'] == 0
    assert _evaluate(_pair(found=found[1:]))['AR@300'] == 1


def test_results_have_all_detections_also_of_classes_that_do_not_count():
    evaluator = LvisEvaluator(CATEGORIES)
    evaluator.add_batch(*_pair(b'7', found=[(BOX, 1), (OTHER, 3)]))
    results = evaluator.coco_results()
    assert [(each['image_id'], each['category_id']) for each in results] == [(7, 1), (7, 3)]
    assert [mask_api.area(each['segmentation']) for each in results] == [100, 100]
    assert 'bbox' not in results[0]
    assert results[0]['score'] == pytest.approx(0.9)


def test_annotation_file_says_what_images_were_searched_for():
    image = {'id': 1, 'height': SIZE, 'width': SIZE, 'neg_category_ids': [20]}
    image['not_exhaustive_category_ids'] = []
    segmentation = mask_api.encode(np.asfortranarray(_mask(BOX)))
    annotation = {'image_id': 1, 'category_id': 10, 'bbox': [0, 0, 10, 10], 'area': 100}
    document = {
        'images': [image, {**image, 'id': 2}],
        'annotations': [annotation | {'segmentation': segmentation, 'iscrowd': 0}],
        'categories': [{'id': 10 * c['id'], 'name': c['name']} for c in CATEGORIES],
    }
    classes = {category['id']: [category['name']] for category in CATEGORIES}
    annotations = CocoAnnotations(document, 'val.json', classes)
    pair = _pair(b'1', found=[(BOX, 1), (BOX, 2), (BOX, 3)])
    evaluator = LvisEvaluator(CATEGORIES, annotations=annotations)
    evaluator.add_batch(*pair)
    assert evaluator.part()[1][0].counts.tolist() == [True, True, False]
    assert evaluator.evaluate()['DetectionMasks_AP'] == pytest.approx(1)
    assert [each['category_id'] for each in evaluator.coco_results()] == [10, 20, 30]
    del image['neg_category_ids']
    annotations = CocoAnnotations(document, 'val.json', classes)
    with pytest.raises(ValueError, match=r'a list `neg_category_ids` .*Received: None'):
        _evaluate(pair, annotations=annotations)


def test_categories_need_a_frequency():
    with pytest.raises(ValueError, match=r"Received: none of \['dog'\]"):
        LvisEvaluator([{'id': 1, 'name': 'dog'}, CATEGORIES[1]])


@rows.parametrize(
    ('side', 'key', 'message'),
    [
        (0, 'groundtruth_verified_neg_classes', 'load_image_labels: true'),
        (0, 'evaluation_masks', 'load_instance_masks: true'),
        (1, 'detection_masks', 'number_of_stages: 3'),
    ],
)
def test_entries_that_are_needed(side, key, message):
    pair = _pair()
    del pair[side][key]
    with pytest.raises(ValueError, match=message):
        _evaluate(pair)


def test_no_images_and_no_detections():
    assert set(_evaluate().values()) == {-1.0}
    metrics = _evaluate(_pair(found=[]), _pair(b'2', objects=[], found=[]))
    assert metrics['AP'] == metrics['AR@300'] == 0
    assert metrics['APr'] == -1


@pytest.fixture(scope='module')
def lvis():
    server = peers.Server('LVIS_PYTHON', 'lvis_server.py')
    yield server
    server.close()


_LISTS = st.lists(st.sampled_from(cases.CATEGORIES), unique=True)


@settings(max_examples=100, deadline=None)
@given(cases.IMAGES, st.data())
def test_equals_the_lvis_package(lvis, images, data):
    assume(any(len(detected.classes) for _, detected in images))
    categories = [
        {'id': label, 'name': str(label), 'frequency': data.draw(st.sampled_from('rcf'))}
        for label in cases.CATEGORIES
    ]
    evaluator = LvisEvaluator(categories)
    infos = []
    for number, (annotated, detected) in enumerate(images, 1):
        absent, incomplete = data.draw(_LISTS), data.draw(_LISTS)
        size = {'id': number, 'height': cases.SIZE, 'width': cases.SIZE}
        lists = {'neg_category_ids': absent, 'not_exhaustive_category_ids': incomplete}
        infos.append(size | lists)
        searched = Searched(*(np.array(ids, np.int64) for ids in (absent, incomplete)))
        annotated = annotated._replace(is_crowd=None)
        image = Image(str(number), cases.SIZE, cases.SIZE, annotated, detected)
        evaluator._images.append(evaluator._stored(image, searched))
    objects = peers.entries([annotated for annotated, _ in images], cases.SIZE)
    for each in objects:
        each['segmentation'] = each['segmentation'] | {
            'counts': each['segmentation']['counts'].decode()
        }
    expected = lvis.ask(
        {
            'groundtruth': {'images': infos, 'annotations': objects, 'categories': categories},
            'results': evaluator.coco_results(),
        }
    )
    metrics = evaluator.evaluate()
    assert metrics == pytest.approx(
        {f'DetectionMasks_{name}': value for name, value in expected.items()}, abs=1e-12
    )
