"""CSV files of Open Images: the numbers of the reference system; the table of `tfod predict`."""

import json

import pytest

from object_detection.errors import UserError
from object_detection.scoring.csv_tables import OpenImagesOptions
from object_detection.scoring.evaluation import FileOptions, evaluate
from tests import goldens, rows

BOXES = 'ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsGroupOf'
DETECTIONS = 'ImageID,LabelName,Conf,XMin,XMax,YMin,YMax'
CHALLENGE = 'oid_challenge_detection_metrics'


def _write(path, *lines):
    path.write_text('\n'.join(lines) + '\n')
    return str(path)


def _write_goldens(folder):
    """Writes the recorded images of the reference; returns (boxes, detections, other files)."""
    data = goldens.load('evaluation', 'data')
    height, width = data.params['height'], data.params['width']
    boxes, detections, labels = [BOXES], [DETECTIONS], ['ImageID,Source,LabelName,Confidence']
    for number in range(5):
        rows = {
            key: data.inputs[f'img{number}.{key}'].tolist()
            for key in (
                *('gt_boxes', 'gt_classes', 'gt_group_of', 'image_classes'),
                *('det_boxes', 'det_classes', 'det_scores'),
            )
        }
        for (y0, x0, y1, x1), label, group in zip(
            rows['gt_boxes'], rows['gt_classes'], rows['gt_group_of'], strict=True
        ):
            sides = f'{x0 / width!r},{x1 / width!r},{y0 / height!r},{y1 / height!r}'
            boxes.append(f'img{number},xclick,/m/{label},1,{sides},{int(group)}')
        for (y0, x0, y1, x1), label, score in zip(
            rows['det_boxes'], rows['det_classes'], rows['det_scores'], strict=True
        ):
            sides = f'{x0 / width!r},{x1 / width!r},{y0 / height!r},{y1 / height!r}'
            detections.append(f'img{number},/m/{label},{score!r},{sides}')
        # Absent classes were searched for, too.
        labels += [f'img{number},human,/m/{label},{label % 2}' for label in rows['image_classes']]
    names = [f'/m/{category["id"]},{category["name"]}' for category in data.params['categories']]
    options = OpenImagesOptions(
        _write(folder / 'labels.csv', *labels), _write(folder / 'names.csv', *names)
    )
    truth = _write(folder / 'boxes.csv', *boxes)
    return truth, _write(folder / 'detections.csv', *detections), options


@goldens.rows('evaluation', names=('oid_v2', 'oid_challenge'))
def test_metrics_equal_reference(tmp_path, case_name):
    params = goldens.load('evaluation', case_name).params
    truth, detections, options = _write_goldens(tmp_path)
    metrics = (CHALLENGE,) if case_name == 'oid_challenge' else ()
    found = evaluate(FileOptions(truth, detections, metrics=metrics, open_images=options))
    assert (found.groundtruth_format, found.detections_format) == ('open_images', 'open_images')
    expected = {name: float(value) for name, value in params['metrics'].items()}
    assert found.metrics == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.fixture
def pair(tmp_path):
    truth = _write(tmp_path / 'truth.csv', BOXES, 'one,xclick,/m/cat,1,.1,.5,.1,.5,0')
    return truth, _write(tmp_path / 'found.csv', DETECTIONS, 'one,/m/cat,.9,.1,.5,.1,.5')


def test_hierarchy(tmp_path, pair):
    hierarchy = {
        'LabelName': '/m/entity',
        'Subcategory': [{'LabelName': '/m/animal', 'Subcategory': [{'LabelName': '/m/cat'}]}],
    }
    path = tmp_path / 'hierarchy.json'
    path.write_text(json.dumps(hierarchy))
    labels = _write(tmp_path / 'labels.csv', 'ImageID,LabelName,Confidence', 'two,/m/animal,0')
    detections = _write(
        tmp_path / 'found.csv',
        DETECTIONS,
        'one,/m/animal,.9,.1,.5,.1,.5',
        'two,/m/cat,.95,.1,.5,.1,.5',
    )
    options = OpenImagesOptions(image_labels=labels, class_hierarchy=str(path))
    found = evaluate(
        FileOptions(pair[0], detections, metrics=(CHALLENGE,), open_images=options)
    ).metrics
    prefix = 'OpenImagesDetectionChallenge_PerformanceByCategory/AP@0.5IOU'
    # The box of the cat is one of an animal; an image without animals has no cat, so that the
    # detection there counts as false, before that of no cat in the other image.
    assert found[f'{prefix}//m/animal'] == 1
    assert found[f'{prefix}//m/cat'] == 0


def test_boxes_relative_to_images_of_known_size(tmp_path, pair):
    document = {
        'images': [{'id': 'one', 'file_name': 'one.jpg', 'height': 100, 'width': 200}],
        'annotations': [{'image_id': 'one', 'category_id': 1, 'bbox': [20, 10, 80, 40]}],
        'categories': [{'id': 1, 'name': '/m/cat'}],
    }
    truth = tmp_path / 'truth.json'
    truth.write_text(json.dumps(document))
    found = evaluate(FileOptions(str(truth), pair[1]))
    assert found.metrics['DetectionBoxes_Precision/mAP'] == pytest.approx(1)


def test_table_of_predict(tmp_path, pair):
    table = _write(
        tmp_path / 'detections.csv',
        'filename,width,height,class,xmin,ymin,xmax,ymax,score,class_id,image_id',
        '/far/one.jpg,200,100,/m/cat,20.00,10.00,100.00,50.00,0.9,1,5',
        'one.jpg,200,100,,,,,,,,5',
    )
    found = evaluate(FileOptions(pair[0], table))
    assert found.detections_format == 'csv'
    assert found.metrics['OpenImagesV2_Precision/mAP@0.5IOU'] == 1


def test_sets_that_need_more(pair):
    with pytest.raises(UserError, match=r'in pixels, but the boxes of .*truth.csv'):
        evaluate(FileOptions(*pair, metrics=('coco_detection_metrics',)))
    with pytest.raises(UserError, match='--image_labels'):
        evaluate(FileOptions(*pair, metrics=(CHALLENGE,)))


@rows.parametrize(
    ('line', 'message'),
    [
        ('two,/m/cat,.9,.1,.5,.1,.5', r"ImageID: expected an image of .*'one'; .*Received: 'two'"),
        ('one,/m/dog,.9,.1,.5,.1,.5', 'LabelName: expected a class of .*: /m/cat'),
        ('one,/m/cat,,.1,.5,.1,.5', "Conf: expected a finite number. Received: ''"),
        ('one,/m/cat,.9,.1,.5,nan,.5', 'YMin: expected a finite number'),
        ('one,/m/cat,.9,.5,.1,.1,.5', 'XMax: expected at least XMin, 0.5'),
    ],
)
def test_wrong_detections(tmp_path, pair, line, message):
    found = _write(tmp_path / 'found.csv', DETECTIONS, 'one,/m/cat,.9,.1,.5,.1,.5', line)
    with pytest.raises(UserError, match=rf'found.csv, line 3: {message}'):
        evaluate(FileOptions(pair[0], found))


@rows.parametrize(
    ('line', 'message'),
    [
        ('one,xclick,/m/cat,1,.1,.5,.1,,0', 'YMax: expected a finite number'),
        ('one,xclick,/m/cat,1,.1,.5,.1,.5,yes', 'IsGroupOf: expected 0, 1 or -1'),
        ('one,xclick,,1,.1,.5,.1,.5,0', 'LabelName: expected text'),
    ],
)
def test_wrong_ground_truth(tmp_path, pair, line, message):
    truth = _write(tmp_path / 'truth.csv', BOXES, line)
    with pytest.raises(UserError, match=rf'truth.csv, line 2: {message}'):
        evaluate(FileOptions(truth, pair[1]))


def test_wrong_image_label(tmp_path, pair):
    labels = _write(tmp_path / 'labels.csv', 'ImageID,LabelName,Confidence', 'one,/m/cat,2')
    with pytest.raises(UserError, match=r'labels.csv, line 2: Confidence'):
        evaluate(FileOptions(*pair, open_images=OpenImagesOptions(image_labels=labels)))
    truth = tmp_path / 'truth.json'
    truth.write_text('{"images": [], "categories": []}')
    with pytest.raises(UserError, match='for ground truth of Open Images'):
        evaluate(FileOptions(str(truth), pair[1], open_images=OpenImagesOptions(labels)))
