"""COCO files: the numbers of pycocotools, and errors that name the record and the field."""

import json

import numpy as np
import pytest

from object_detection.errors import UserError
from object_detection.protos import eval_pb2
from object_detection.scoring.evaluation import FileOptions, evaluate
from tests import rows, slow_cases
from tests.scoring import coco_cases

KINDS = {'bbox': 'DetectionBoxes', 'segm': 'DetectionMasks'}
SETS = {'bbox': 'coco_detection_metrics', 'segm': 'coco_mask_metrics'}


@pytest.fixture(scope='module')
def document(shared):
    path = shared / 'data/coco_permissive/annotations/instances_val.json'
    return json.loads(path.read_text())


def _tiny(**changes):
    return {
        'images': [
            {'id': 7, 'file_name': 'a/seven.jpg', 'height': 40, 'width': 60},
            {'id': 8, 'file_name': 'eight.jpg', 'height': 40, 'width': 60},
        ],
        'annotations': [
            {'id': 1, 'image_id': 7, 'category_id': 3, 'bbox': [4, 4, 10, 20], 'iscrowd': 0},
        ],
        'categories': [{'id': 3, 'name': 'cat'}, {'id': 5, 'name': 'dog'}],
        **changes,
    }


HIT = {'image_id': 7, 'category_id': 3, 'bbox': [4, 4, 10, 20], 'score': 0.5}


def _evaluate(folder, document, found, *metrics, **options):
    truth, results = coco_cases.write(folder, document, found)
    return evaluate(FileOptions(truth, results, metrics=metrics, **options))


def _assert_equal_pycocotools(paths, kind, metrics):
    expected, by_category = coco_cases.pycocotools_metrics(*paths, kind)
    prefix = KINDS[kind]
    own = [v for k, v in metrics.items() if k.startswith(prefix) and 'ByCategory' not in k]
    assert own == expected
    assert expected[0] > 0.1
    for name, value in by_category.items():
        assert metrics[f'{prefix}_PerformanceByCategory/mAP/{name}'] == value


@slow_cases.parametrize(1, 'seed', [0, 1])
def test_boxes_and_masks_equal_pycocotools(tmp_path, document, seed):
    found = coco_cases.detections(document, masks=True, seed=seed)
    paths = coco_cases.write(tmp_path, document, found)
    config = eval_pb2.EvalConfig(include_metrics_per_category=True)
    result = evaluate(FileOptions(*paths), config)
    assert result.metric_sets == tuple(SETS.values())
    assert result.num_detections == len(found)
    for kind in KINDS:
        _assert_equal_pycocotools(paths, kind, result.metrics)


@slow_cases.parametrize(1, 'kind', KINDS)
def test_masks_alone_equal_pycocotools(tmp_path, document, kind):
    # Sizes and boxes are then those of the masks.
    found = coco_cases.detections(document, masks=True, boxes=False)
    paths = coco_cases.write(tmp_path, document, found)
    config = eval_pb2.EvalConfig(include_metrics_per_category=True)
    result = evaluate(FileOptions(*paths, metrics=(SETS[kind],)), config)
    _assert_equal_pycocotools(paths, kind, result.metrics)


def test_every_form_of_masks_gives_the_same_numbers(tmp_path):
    square = [4, 4, 14, 4, 14, 24, 4, 24]
    document = _tiny()
    document['annotations'][0] |= {'segmentation': [square], 'area': 200}
    counts = [4 * 40 + 4, *[20, 20] * 9, 20, 60 * 40 - 14 * 40 + 16]
    metrics = []
    for segmentation in ([square], {'size': [40, 60], 'counts': counts}):
        found = [HIT | {'segmentation': segmentation}]
        metrics.append(_evaluate(tmp_path, document, found, 'coco_mask_metrics').metrics)
    assert metrics[0] == metrics[1]
    assert metrics[0]['DetectionMasks_Precision/mAP'] == pytest.approx(1)


def test_default_sets_are_those_that_both_files_have(tmp_path):
    document = _tiny()
    square = [[4, 4, 14, 4, 14, 24]]
    with_mask = [HIT | {'segmentation': square}]
    assert _evaluate(tmp_path, document, with_mask).metric_sets == ('coco_detection_metrics',)
    document['annotations'][0]['segmentation'] = square
    assert _evaluate(tmp_path, document, with_mask).metric_sets == tuple(SETS.values())
    assert _evaluate(tmp_path, document, [HIT]).metric_sets == ('coco_detection_metrics',)
    masks_alone = [{k: v for k, v in with_mask[0].items() if k != 'bbox'}]
    assert _evaluate(tmp_path, document, masks_alone).metric_sets == ('coco_mask_metrics',)


def test_pascal_metrics_of_coco_files(tmp_path, document):
    found = coco_cases.detections(document, masks=True)
    sets = ('pascal_voc_detection_metrics', 'pascal_voc_instance_segmentation_metrics')
    metrics = _evaluate(tmp_path, document, found, *sets).metrics
    assert 0 < metrics['PascalBoxes_Precision/mAP@0.5IOU'] < 1
    assert 0 < metrics['PascalMasks_Precision/mAP@0.5IOU'] < 1


def test_no_detections(tmp_path):
    result = _evaluate(tmp_path, _tiny(), [])
    assert result.metrics['DetectionBoxes_Precision/mAP'] == 0
    document = _tiny()
    document['annotations'][0]['segmentation'] = [[4, 4, 14, 4, 14, 24]]
    result = _evaluate(tmp_path, document, [], 'coco_mask_metrics')
    assert result.metrics['DetectionMasks_Precision/mAP'] == 0


def test_no_objects(tmp_path):
    found = [HIT | {'segmentation': [[4, 4, 14, 4, 14, 24]]}]
    result = _evaluate(tmp_path, _tiny(annotations=[]), found)
    assert result.metric_sets == tuple(SETS.values())
    assert set(result.metrics.values()) == {-1}


def test_notes_tell_where_pycocotools_takes_annotations_for_others(tmp_path):
    document = _tiny()
    document['annotations'][0]['id'] = 0
    result = _evaluate(tmp_path, document, [HIT])
    assert result.metrics['DetectionBoxes_Precision/mAP'] == pytest.approx(1)
    assert 'the id 0' in result.notes[0]
    document = _tiny()
    document['annotations'].append(document['annotations'][0] | {'bbox': [20, 20, 10, 10]})
    result = _evaluate(tmp_path, document, [HIT])
    assert result.metrics['DetectionBoxes_Recall/AR@100'] == pytest.approx(0.5)
    assert 'the same id' in result.notes[0]


def test_images_of_predict_are_found_by_name(tmp_path):
    truth, _ = coco_cases.write(tmp_path, _tiny(), [])
    folder = tmp_path / 'predicted'
    folder.mkdir()
    (folder / 'detections.json').write_text(json.dumps([HIT | {'image_id': 1}]))
    (folder / 'images.json').write_text(json.dumps([{'id': 1, 'file_name': '/far/seven.jpg'}]))
    result = evaluate(FileOptions(truth, str(folder)))
    assert result.metrics['DetectionBoxes_Precision/mAP'] == pytest.approx(1)
    (folder / 'images.json').write_text(json.dumps([{'id': 1, 'file_name': '/far/nine.jpg'}]))
    with pytest.raises(UserError, match=r'entry 0 \(image_id 1\): image_id: .*nine.jpg'):
        evaluate(FileOptions(truth, str(folder)))


def test_label_map_gives_the_numbers_of_detections(tmp_path):
    label_map = tmp_path / 'map.pbtxt'
    label_map.write_text("item { id: 1 name: 'dog' } item { id: 2 name: 'cat' }")
    found = [HIT | {'category_id': 2}]
    result = _evaluate(tmp_path, _tiny(), found, label_map=str(label_map))
    assert result.metrics['DetectionBoxes_Precision/mAP'] == pytest.approx(1)
    with pytest.raises(UserError, match=r'entry 0 .*category_id: expected a category'):
        _evaluate(tmp_path, _tiny(), found)


def test_image_list(tmp_path):
    listed = tmp_path / 'list.txt'
    listed.write_text('eight.jpg\n')
    found = [HIT, HIT | {'image_id': 8}]
    result = _evaluate(tmp_path, _tiny(), found, image_list=str(listed))
    assert (result.images, result.objects, result.num_detections) == (1, 0, 1)
    assert '1 detections are of images that are not listed' in result.notes[0]
    for content in ({'images': [{'id': 8}]}, [{'id': 7, 'file_name': 'eight.jpg'}], ['eight'], [8]):
        listed.write_text(json.dumps(content))
        assert _evaluate(tmp_path, _tiny(), found, image_list=str(listed)) == result
    for content, message in (
        ({'images': [{'id': 9}]}, r'images\[0\]: image: expected an image'),
        ([[8]], r'images\[0\]: id, file_name: expected a number or text'),
        ({'names': []}, 'expected a list of images'),
        ([], 'expected an image in its list'),
    ):
        listed.write_text(json.dumps(content))
        with pytest.raises(UserError, match=f'list.txt.*{message}'):
            _evaluate(tmp_path, _tiny(), found, image_list=str(listed))
    listed.write_text('ten.jpg\n')
    with pytest.raises(UserError, match=r'list.txt, line 1: image: .*ten.jpg'):
        _evaluate(tmp_path, _tiny(), found, image_list=str(listed))


@rows.parametrize(
    ('change', 'message'),
    [
        ({'image_id': 9}, r'image_id: expected an image of .*truth.json: 7, 8; .*Received: 9'),
        ({'image_id': 'nine'}, r"image_id: .* the name of its file. Received: 'nine'"),
        ({'image_id': True}, 'image_id: expected a number or text'),
        ({'image_id': [7]}, 'image_id: expected a number or text'),
        ({'category_id': 4}, r'category_id: expected a category of .*: 3, 5. Received: 4'),
        ({'score': None}, 'score: expected a finite number. Received: None'),
        ({'score': float('nan')}, 'score: expected a finite number. Received: nan'),
        ({'score': '0.5'}, 'score: expected a finite number'),
        ({'score': 10**400}, 'score: expected a finite number'),
        ({'bbox': [4, 4, float('inf'), 20]}, 'bbox: expected four finite numbers'),
        ({'bbox': [4, 4, 10]}, 'bbox: expected four finite numbers'),
        ({'bbox': [4, 4, 10, -20]}, 'bbox: expected four finite numbers.*at least 0'),
        ({'bbox': 'left'}, 'bbox: expected four finite numbers'),
    ],
)
def test_wrong_detections(tmp_path, change, message):
    with pytest.raises(UserError, match=rf'results.json, entry 1 \(image_id .*\): {message}'):
        _evaluate(tmp_path, _tiny(), [HIT, HIT | change])


@rows.parametrize('key', ['image_id', 'category_id', 'bbox', 'score'])
def test_missing_fields_of_detections(tmp_path, key):
    entry = {name: value for name, value in HIT.items() if name != key}
    with pytest.raises(UserError, match=rf'entry 1.*: {key}: expected a value. Received: nothing'):
        _evaluate(tmp_path, _tiny(), [HIT, entry])


@rows.parametrize(
    ('segmentation', 'message'),
    [
        ({'size': [60, 40], 'counts': [2400]}, r'run lengths are for \[60, 40\]'),
        ({'size': [40, 60], 'counts': [2300]}, 'do not add up'),
        ({'size': [40, 60], 'counts': '0' * 90}, 'do not add up'),
        ([[1e9, 1, 2, 3, 4, 5]], 'reaches farther'),
        (None, 'received None'),
    ],
)
def test_wrong_masks(tmp_path, segmentation, message):
    document = _tiny()
    square = [[4, 4, 14, 4, 14, 24]]
    document['annotations'][0]['segmentation'] = square
    found = [HIT | {'segmentation': square}, HIT | {'segmentation': segmentation}]
    with pytest.raises(UserError, match=rf'results.json, entry 1 .*{message}'):
        _evaluate(tmp_path, document, found, 'coco_mask_metrics')


@rows.parametrize(
    ('name', 'change', 'message'),
    [
        ('images', {'height': 0}, r'images\[0\] \(id 7\): height, width: expected'),
        ('images', {'height': 10**9}, r'height, width: .*at most'),
        ('images', {'id': 8}, r'images\[1\] \(id 8\): id: expected an id of its own'),
        ('annotations', {'image_id': 9}, r'annotations\[0\] \(id 1\): image_id'),
        ('annotations', {'category_id': 9}, r'annotations\[0\] \(id 1\): category_id'),
        ('annotations', {'bbox': [0, 0, -1, 2]}, r'annotations\[0\] \(id 1\): bbox'),
        ('annotations', {'area': float('nan')}, r'annotations\[0\] \(id 1\): area'),
        ('annotations', {'area': -1}, r'annotations\[0\] \(id 1\): area'),
        ('annotations', {'iscrowd': 2}, r'annotations\[0\] \(id 1\): iscrowd'),
        ('images', {'neg_category_ids': [4]}, r'images\[0\] \(id 7\): neg_category_ids: expected'),
        ('categories', {'id': 5}, 'ids must be different'),
    ],
)
def test_wrong_ground_truth(tmp_path, name, change, message):
    document = _tiny()
    document[name][0] |= change
    with pytest.raises(UserError, match=message):
        _evaluate(tmp_path, document, [HIT])


def test_wrong_files(tmp_path):
    with pytest.raises(UserError, match=r'expected a list of detections.*--groundtruth'):
        _evaluate(tmp_path, _tiny(), _tiny())
    with pytest.raises(UserError, match='expected an object with `images`'):
        _evaluate(tmp_path, [HIT], [HIT])
    with pytest.raises(FileNotFoundError, match='nowhere'):
        evaluate(FileOptions(str(tmp_path / 'nowhere'), str(tmp_path)))
    (tmp_path / 'other').write_text('nothing of the kind')
    with pytest.raises(UserError, match='--groundtruth_format'):
        evaluate(FileOptions(str(tmp_path / 'other'), str(tmp_path)))
    truth, results = coco_cases.write(tmp_path, _tiny(), [HIT])
    with pytest.raises(UserError, match='--detections_format'):
        evaluate(FileOptions(truth, str(tmp_path / 'other')))
    (tmp_path / 'results.json').write_text('[' * 100_000)
    with pytest.raises(UserError, match='is not a JSON file'):
        evaluate(FileOptions(truth, results))


def test_classes_that_images_were_searched_for(tmp_path):
    document = _tiny()
    found = [HIT, HIT | {'image_id': 8, 'score': 0.9}, HIT | {'category_id': 5}]
    document['images'][0]['neg_category_ids'] = []
    metrics = _evaluate(tmp_path, document, found, 'oid_challenge_detection_metrics').metrics
    # Nobody searched the second image for cats, nor the first for dogs.
    assert list(metrics.values())[:2] == [1, 1]
    document['images'][1]['neg_category_ids'] = [3]
    metrics = _evaluate(tmp_path, document, found, 'oid_challenge_detection_metrics').metrics
    assert list(metrics.values())[:2] == [0.5, 0.5]


def test_unknown_sets_and_sets_without_their_parts(tmp_path):
    with pytest.raises(UserError, match=r"--metrics: .*coco_mask_metrics.* Received: 'coco'"):
        _evaluate(tmp_path, _tiny(), [HIT], 'coco')
    with pytest.raises(UserError, match=r'Did you mean coco_mask_metrics\?'):
        _evaluate(tmp_path, _tiny(), [HIT], 'coco_mask_metric')
    renamed = _evaluate(tmp_path, _tiny(), [HIT], 'open_images_metrics')
    assert renamed.metric_sets == ('oid_V2_detection_metrics',)
    with pytest.raises(UserError, match=r'expected masks. Received: .*truth.json'):
        _evaluate(tmp_path, _tiny(), [HIT], 'coco_mask_metrics')
    with pytest.raises(UserError, match='image-level labels'):
        _evaluate(tmp_path, _tiny(), [HIT], 'oid_challenge_detection_metrics')


def test_classes_keep_the_order_of_their_ids(tmp_path):
    # The mean over classes of pycocotools is in this order, whatever that of the list.
    document = _tiny(categories=[{'id': 5, 'name': 'dog'}, {'id': 0, 'name': 'cow'}])
    document['categories'].append({'id': 3, 'name': 'cat'})
    config = eval_pb2.EvalConfig(include_metrics_per_category=True)
    truth, results = coco_cases.write(tmp_path, document, [HIT])
    names = list(evaluate(FileOptions(truth, results), config).metrics)[12:]
    assert [name.rpartition('/')[2] for name in names] == ['cow', 'cat', 'dog']
    assert np.all([name.startswith('DetectionBoxes_PerformanceByCategory') for name in names])


@rows.parametrize('boxes', [True, False])
def test_keypoints_equal_pycocotools(tmp_path, shared, boxes):
    path = shared / 'data/coco_permissive/annotations/person_keypoints_train.json'
    document = json.loads(path.read_text())
    found = coco_cases.detections(document, boxes=boxes, keypoints=True)
    paths = coco_cases.write(tmp_path, document, found)
    result = evaluate(FileOptions(*paths))
    boxes_sets = ('coco_detection_metrics',) if boxes else ()
    assert result.metric_sets == (*boxes_sets, 'coco_keypoint_metrics')
    expected, _ = coco_cases.pycocotools_metrics(*paths, 'keypoints')
    own = [v for k, v in result.metrics.items() if k.startswith('Keypoints') and 'AR@1' not in k]
    assert own == expected
    assert expected[0] > 0.1


def test_sigmas_of_keypoints(tmp_path):
    document = _tiny()
    document['categories'][0]['keypoints'] = ['nose']
    document['annotations'][0] |= {'area': 400, 'num_keypoints': 1, 'keypoints': [8, 9, 2]}
    # The similarity at 4 pixels: exp(-16 / (2 * 400 * (2 * sigma)^2)) is 0.135 and 0.969.
    found = [HIT | {'keypoints': [12, 9, 1]}]
    values = []
    for sigmas in ({}, {'nose': 0.4}):
        metrics = _evaluate(tmp_path, document, found, sigmas=sigmas).metrics
        values.append(metrics['Keypoints_Recall/AR ByCategory/cat'])
    assert values == [0, 1]
    for sigmas, message in (({'tail': 0.1}, "tail': 0.1"), ({'nose': 0}, "nose': 0")):
        with pytest.raises(
            UserError, match=f'--oks_sigmas: .*compared: nose. Received: .*{message}'
        ):
            _evaluate(tmp_path, document, found, sigmas=sigmas)
    with pytest.raises(UserError, match=r'--oks_sigmas: .* none are'):
        _evaluate(tmp_path, document, found, 'coco_detection_metrics', sigmas={'nose': 0.1})


def test_lvis_and_panoptic_sets(tmp_path):
    square = [[4, 4, 14, 4, 14, 24, 4, 24]]
    document = _tiny()
    for category in document['categories']:
        category['frequency'] = 'f'
    document['annotations'][0]['segmentation'] = square
    document['images'][0] |= {'neg_category_ids': [], 'not_exhaustive_category_ids': []}
    document['images'][1] |= {'neg_category_ids': [], 'not_exhaustive_category_ids': []}
    hit = HIT | {'segmentation': square}
    # Nobody searched the second image for cats.
    found = [hit, hit | {'image_id': 8, 'score': 0.9}]
    assert _lvis_precision(tmp_path, document, found) == pytest.approx(1)
    document['images'][1]['neg_category_ids'] = [3]
    assert _lvis_precision(tmp_path, document, found) == pytest.approx(0.5)
    document['images'][1]['not_exhaustive_category_ids'] = [3]
    assert _lvis_precision(tmp_path, document, found) == pytest.approx(1)
    metrics = _evaluate(tmp_path, document, found, 'coco_panoptic_metrics').metrics
    assert metrics['PanopticQuality@0.50IOU'] == pytest.approx(1 / 1.5)


def _lvis_precision(folder, document, found):
    return _evaluate(folder, document, found, 'lvis_mask_metrics').metrics['DetectionMasks_AP']


def test_keypoints_of_all_categories_are_read(tmp_path):
    """As `tfod predict` writes them: each entry has the keypoints of all categories."""
    document = _tiny()
    document['categories'] = [
        {'id': 3, 'name': 'cat', 'keypoints': ['ear']},
        {'id': 5, 'name': 'dog', 'keypoints': ['nose', 'tail']},
    ]
    document['annotations'][0] |= {'area': 200, 'num_keypoints': 1, 'keypoints': [8, 9, 2]}
    document['annotations'].append(
        {'id': 2, 'image_id': 8, 'category_id': 5, 'bbox': [4, 4, 10, 20], 'iscrowd': 0}
        | {'area': 200, 'num_keypoints': 2, 'keypoints': [5, 6, 2, 10, 20, 2]}
    )
    cat = {'keypoints': [8, 9, 0.5, 0, 0, 0, 0, 0, 0]}
    dog = {'keypoints': [0, 0, 0, 5, 6, 0.5, 10, 20, 0.5], 'image_id': 8, 'category_id': 5}
    all_of_them = [HIT | cat, HIT | dog]
    own = [
        HIT | {'keypoints': cat['keypoints'][:3]},
        HIT | dog | {'keypoints': dog['keypoints'][3:]},
    ]
    for found in (all_of_them, own):
        metrics = _evaluate(tmp_path, document, found, 'coco_keypoint_metrics').metrics
        for name in ('cat', 'dog'):
            assert metrics[f'Keypoints_Precision/mAP ByCategory/{name}'] == pytest.approx(1)
