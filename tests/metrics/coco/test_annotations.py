"""Evaluation against an annotation file gives the numbers of records made from it."""

import contextlib
import copy
import io
import json

import numpy as np
import pytest
from pycocotools import mask as mask_api
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from object_detection.data import tf_examples
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats.coco import CocoSource
from object_detection.metrics.coco.annotations import CocoAnnotations, match_categories
from object_detection.metrics.coco.evaluator import CocoEvaluator
from tests import rows
from tests.data.coco import reading
from tests.dataset_tools import records
from tests.evaluation import coco_files, fakes

AP = {'bbox': 'DetectionBoxes_Precision/mAP', 'segm': 'DetectionMasks_Precision/mAP'}


def _images(count=9, with_areas=True):
    rng = np.random.default_rng(3)
    return [fakes.random_image(rng, n, with_areas=with_areas) for n in range(count)]


def _annotations(document, **options):
    return CocoAnnotations(document, 'file.json', coco_files.CLASSES, **options)


def _evaluator(images, iou_type, annotations=None, categories=fakes.CATEGORIES):
    evaluator = CocoEvaluator(categories, iou_type=iou_type, annotations=annotations)
    for batch, detections in fakes.batches(images, 4):
        evaluator.add_batch(batch, detections)
    return evaluator


def _without_groundtruth(images):
    empty = {
        'boxes': np.zeros((0, 4), np.float32),
        'classes': np.zeros(0, np.int64),
        'is_crowd': np.zeros(0, bool),
        'area': np.zeros(0, np.float32),
        'masks': [],
    }
    return [image | empty for image in images]


def _of_pycocotools(document, results, iou_type):
    with contextlib.redirect_stdout(io.StringIO()):
        groundtruth = COCO()
        # pycocotools needs areas and changes what it is given.
        groundtruth.dataset = copy.deepcopy(document)
        groundtruth.createIndex()
        engine = COCOeval(groundtruth, groundtruth.loadRes(results), iou_type)
        engine.evaluate()
        engine.accumulate()
        engine.summarize()
    return engine


@rows.parametrize('iou_type', ['bbox', 'segm'])
@rows.parametrize('with_areas', [False, True])
def test_numbers_are_those_of_records_made_from_the_file(iou_type, with_areas):
    images = _images(with_areas=with_areas)
    document = coco_files.document(images)
    assert any(annotation['iscrowd'] for annotation in document['annotations'])
    expected = _evaluator(images, iou_type).evaluate()
    bare = _without_groundtruth(images)
    ours = _evaluator(bare, iou_type, _annotations(document)).evaluate()
    assert 0.05 < ours[AP[iou_type]] < 0.95
    assert ours == pytest.approx(expected, abs=1e-9)


@rows.parametrize('iou_type', ['bbox', 'segm'])
def test_the_results_file_has_the_ids_of_the_annotation_file(iou_type):
    images = _images()
    document = coco_files.document(images)
    evaluator = _evaluator(images, iou_type, _annotations(document))
    results = json.loads(json.dumps(evaluator.coco_results()))
    assert {entry['category_id'] for entry in results} <= set(coco_files.CATEGORY_IDS.values())
    engine = _of_pycocotools(document, results, iou_type)
    ours = list(evaluator.evaluate().values())
    assert ours == pytest.approx(engine.stats.tolist(), abs=1e-9)


@pytest.mark.parametrize('iou_type', ['bbox', 'segm'])
def test_images_that_no_record_has_count_as_missed(iou_type, caplog):
    images = _images()
    document = coco_files.document(images)
    lost = [image | {'detection_boxes': np.zeros((0, 4), np.float32)} for image in images[6:]]
    for image in lost:
        for key in ('detection_classes', 'detection_scores', 'detection_masks'):
            image[key] = image[key][:0]
    expected = _evaluator(images[:6] + lost, iou_type).evaluate()
    annotations = _annotations(document)
    ours = _evaluator(images[:6], iou_type, annotations).evaluate()
    assert ours == pytest.approx(expected, abs=1e-9)
    _evaluator(images[:6], iou_type, annotations).evaluate()
    assert caplog.text.count('3 of its 9 images were not evaluated; their objects count') == 1

    part = _annotations(document, is_complete=False)
    ours = _evaluator(images[:6], iou_type, part).evaluate()
    expected = _evaluator(images[:6], iou_type).evaluate()
    assert ours == pytest.approx(expected, abs=1e-9)
    assert caplog.text.count('3 of its 9 images were not evaluated; they are left out') == 1


def test_a_number_and_a_text_are_two_images():
    image = {'height': 20, 'width': 30}
    document = {
        'images': [image | {'id': 1, 'file_name': 'a'}, image | {'id': '1', 'file_name': 'b'}],
        'annotations': [],
        'categories': coco_files.document(_images(1))['categories'],
    }
    annotations = _annotations(document)
    assert annotations.image_id('1') == 1
    assert annotations.image_id('"1"') == '1'


def test_images_may_go_by_their_file_names():
    images = _images()
    document = coco_files.document(images)
    expected = _evaluator(images, 'bbox', _annotations(document)).evaluate()
    for image in images:
        image['source_id'] = f'picture {int(image["source_id"])}.jpg'.encode()
    assert _evaluator(images, 'bbox', _annotations(document)).evaluate() == expected


def test_an_image_that_the_file_lacks():
    images = _images()
    document = coco_files.document(images)
    document['images'] = document['images'][1:]
    with pytest.raises(ValueError, match=r"file.json: .*'100'.* Its ids begin with: 101, 102"):
        _evaluator(images, 'bbox', _annotations(document))


def test_an_image_of_another_size():
    images = _images()
    document = coco_files.document(images)
    document['images'][2]['height'] = 7
    with pytest.raises(ValueError, match=r'\(7, \d+\) for the image 102'):
        _evaluator(images, 'bbox', _annotations(document))


@rows.parametrize(
    ('height', 'message'),
    [(None, 'expected the height and width of image 102'), ('tall', 'height must be a whole')],
)
def test_an_image_of_no_size(height, message):
    images = _images()
    document = coco_files.document(images)
    document['images'][2]['height'] = height
    with pytest.raises(ValueError, match=rf'file\.json.*{message}'):
        _evaluator(images, 'bbox', _annotations(document))


def test_crowds_and_sizes_may_be_text():
    images = _images()
    document = coco_files.document(images)
    expected = _evaluator(images, 'bbox', _annotations(document)).evaluate()
    for annotation in document['annotations']:
        annotation['iscrowd'] = str(annotation['iscrowd'])
    for image in document['images']:
        image['height'] = str(image['height'])
    assert _evaluator(images, 'bbox', _annotations(document)).evaluate() == expected


def test_objects_of_other_categories_and_broken_ones_are_left_out(caplog):
    caplog.set_level('INFO', logger='object_detection')
    images = _images()
    document = coco_files.document(images)
    expected = {t: _evaluator(images, t, _annotations(document)).evaluate() for t in AP}
    document['categories'].append({'id': 77, 'name': 'fish'})
    good = document['annotations'][0]
    document['annotations'] += [
        good | {'id': 901, 'category_id': 77},
        good | {'id': 902, 'bbox': [1, 1, -1, 5]},
        good | {'id': 903, 'bbox': [1, 1, float('nan'), 5]},
        good | {'id': 904, 'bbox': None},
        good | {'id': 906, 'bbox': [1, 1, 10**400, 5]},
        good | {'id': 907, 'area': 'large'},
        good | {'id': 908, 'iscrowd': 'perhaps'},
    ]
    ours = {t: _evaluator(images, t, _annotations(document)).evaluate() for t in AP}
    assert ours == expected
    assert '1 of its ' in caplog.text
    for what, first in (('box', 902), ('area', 907), ('iscrowd', 908)):
        expected_text = f'without a {what} that can be used are left out; the first is annotation'
        assert f'{expected_text} {first}' in caplog.text
    document['annotations'].append(good | {'id': 905, 'segmentation': []})
    assert _evaluator(images, 'segm', _annotations(document)).evaluate() == expected['segm']
    assert 'without a mask that can be used are left out; the first is annotation 905' in (
        caplog.text
    )


@rows.parametrize(
    ('document', 'message'),
    [
        ([], 'expected an object with .* Received: list'),
        ({}, '`images`: expected a list. Received: nothing'),
        ({'images': {}}, '`images`: expected a list. Received: dict'),
        ({'images': [{'id': 1}]}, r'images\[0\] must have .* missing: height, width'),
        ({'images': [], 'categories': []}, '`annotations`: expected a list. Received: nothing'),
        (
            {'images': [], 'annotations': [{'image_id': 1}]},
            r'annotations\[0\] must have .* missing: category_id, bbox',
        ),
    ],
)
def test_what_is_no_annotation_file(document, message):
    with pytest.raises(ValueError, match=f'^file.json: {message}'):
        _annotations(document)


def test_categories_are_matched_by_name_or_else_by_id():
    def match(classes):
        return match_categories(categories, classes, 'file.json')

    categories = [{'id': 3, 'name': 'cat '}, {'id': 4, 'name': 'dog'}, {'id': 7, 'name': 'dog'}]
    assert match({1: ['cat']}) == {1: 3}
    assert match({1: ['/m/01yrx', 'cat']}) == {1: 3}
    assert match({3: ['Katze'], 4: ['Hund']}) == {3: 3, 4: 4}
    # Of two categories with one name, the id tells.
    assert match({3: ['cat'], 7: ['dog_7']}) == {3: 3, 7: 7}
    for wrong in ({1: ['fish']}, {4: ['cat'], 3: ['Hund']}, {1: ['cat'], 4: ['dog']}):
        with pytest.raises(ValueError, match=r'Received none for: .* Its categories: cat, dog'):
            match(wrong)


@pytest.mark.parametrize(
    'segmentation',
    [
        # A string of a smaller and one of a larger mask: comparing them never ended.
        {'size': [20, 30], 'counts': mask_api.encode(np.zeros((9, 9), np.uint8, 'F'))['counts']},
        {'size': [20, 30], 'counts': mask_api.encode(np.zeros((90, 90), np.uint8, 'F'))['counts']},
        {'size': [20, 30], 'counts': [700, -100]},
        {'size': [20, 30], 'counts': [10**30]},
        # The rasteriser took 800 MB, or ended the process.
        [[1, 1, 1e7, 1, 5, 9]],
        [[1, 1, float('nan'), 1, 5, 9]],
        [[0, 0, 29, 19] * 20_700],
        'text',
        None,
    ],
    ids=lambda value: str(value)[:40],
)
def test_masks_that_would_harm_the_process_are_left_out(segmentation, caplog):
    document = {
        'images': [{'id': 1, 'height': 20, 'width': 30}],
        'categories': [{'id': i, 'name': c['name']} for i, c in enumerate(fakes.CATEGORIES)],
        'annotations': [
            {'id': key, 'image_id': 1, 'category_id': 0, 'bbox': [2, 3, 10, 10]}
            | {'segmentation': value}
            for key, value in enumerate([[[2, 3, 12, 3, 12, 13]], segmentation])
        ],
    }
    instances = _annotations(document).instances(1, with_masks=True)
    assert len(instances.masks) == 1
    assert 'the first is annotation 1 of image 1' in caplog.text


def test_a_box_without_area_counts_as_missed():
    images = _images(1)
    document = coco_files.document(images)
    box = [10, 10, 30, 20]
    of_image = {'image_id': 100, 'category_id': 18, 'iscrowd': 0, 'segmentation': []}
    document['annotations'] = [
        of_image | {'id': 1, 'bbox': box, 'area': 600},
        of_image | {'id': 2, 'bbox': [50, 50, 0, 20], 'area': 0},
    ]
    height, width = images[0]['shape']
    found = np.array([[10, 10, 30, 40]]) / [height, width, height, width]
    image = images[0] | {
        'detection_boxes': found.astype(np.float32),
        'detection_classes': np.zeros(1, np.float32),
        'detection_scores': np.ones(1, np.float32),
        'detection_masks': images[0]['detection_masks'][:1],
    }
    evaluator = _evaluator([image], 'bbox', _annotations(document))
    # One of two is found: precision 1 at the 51 recalls up to 0.5, of 101.
    assert evaluator.evaluate()[AP['bbox']] == pytest.approx(51 / 101)
    engine = _of_pycocotools(document, evaluator.coco_results(), 'bbox')
    assert list(evaluator.evaluate().values()) == pytest.approx(engine.stats.tolist(), abs=1e-9)


def _row(features, rng):
    """An image of a record as `fakes` has it, with detections near its objects."""
    height, width = features['image/height'][0], features['image/width'][0]
    keys = ('ymin', 'xmin', 'ymax', 'xmax')
    boxes = np.stack([np.array(features[f'image/object/bbox/{key}']) for key in keys], axis=1)
    boxes = boxes.astype(np.float32).reshape(-1, 4)
    classes = np.array(features['image/object/class/label'], np.int64)
    found = np.clip(boxes + rng.normal(0, 0.01, boxes.shape), 0, 1).astype(np.float32)
    found[:, 2:] = np.maximum(found[:, 2:], found[:, :2] + 0.01)
    return {
        'source_id': features['image/source_id'][0],
        'shape': np.array([height, width], np.int32),
        'boxes': boxes,
        'classes': classes,
        'is_crowd': np.array(features['image/object/is_crowd'], bool),
        'area': np.array(features['image/object/area'], np.float32),
        'masks': features['image/object/mask'],
        'detection_boxes': found,
        'detection_classes': (classes - 1).astype(np.float32),
        'detection_scores': rng.random(len(found)).astype(np.float32),
        'detection_masks': rng.uniform(0.4, 1.0, (len(found), 14, 14)).astype(np.float32),
    }


def test_real_data_gives_the_numbers_of_its_records(shared):
    folder = shared / 'data/coco_permissive'
    path = folder / 'annotations/instances_val.json'
    if not path.exists():
        pytest.skip(f'needs {path}')
    source = CocoSource(str(folder / 'images'), str(path), masks=True)
    contents = source.open(LocalFiles(), None).reader.contents
    rng, images = np.random.default_rng(0), []
    # Those with crowds and some others.
    found = list(source.entries(LocalFiles()))
    found.sort(key=lambda image: -sum(a['iscrowd'] for a in image.annotations))
    for coco_image in found[:6]:
        encoded = (folder / 'images' / coco_image.image['file_name']).read_bytes()
        image = reading.read(coco_image, encoded, contents).image
        images.append(_row(records.parse(tf_examples.to_example(image)), rng))
    assert any(image['is_crowd'].any() for image in images)
    labels = contents.classes.labels.values()
    categories = [{'id': label.label, 'name': label.text} for label in labels]
    classes = {label.label: [label.text] for label in labels}
    annotations = CocoAnnotations(
        json.loads(path.read_text()), str(path), classes, is_complete=False
    )
    for iou_type in AP:
        expected = _evaluator(images, iou_type, categories=categories).evaluate()
        ours = _evaluator(images, iou_type, annotations, categories).evaluate()
        assert 0.05 < ours[AP[iou_type]] < 0.95
        assert ours == pytest.approx(expected, abs=1e-6)
