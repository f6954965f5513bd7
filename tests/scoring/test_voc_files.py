"""Files of PASCAL VOC: the numbers of the reference system, and errors that name the line."""

import json
import shutil

import pytest
from lxml import etree

from object_detection.errors import UserError
from object_detection.protos import eval_pb2
from object_detection.scoring.evaluation import FileOptions, evaluate
from tests import goldens, rows

CASES = ('pascal', 'pascal_difficult', 'weighted_pascal', 'precision_at_recall')
SETS = {
    'pascal': 'pascal_voc_detection_metrics',
    'pascal_difficult': 'pascal_voc_detection_metrics',
    'weighted_pascal': 'weighted_pascal_voc_detection_metrics',
    'precision_at_recall': 'precision_at_recall_detection_metrics',
}


def _annotation(size, names, boxes, difficult):
    root = etree.Element('annotation')
    sides = etree.SubElement(root, 'size')
    for side, value in zip(('height', 'width'), size, strict=True):
        etree.SubElement(sides, side).text = str(value)
    for name, box, flag in zip(names, boxes, difficult, strict=True):
        item = etree.SubElement(root, 'object')
        etree.SubElement(item, 'name').text = name
        etree.SubElement(item, 'difficult').text = str(int(flag))
        corners = etree.SubElement(item, 'bndbox')
        for side, value in zip(('ymin', 'xmin', 'ymax', 'xmax'), box, strict=True):
            etree.SubElement(corners, side).text = repr(float(value))
    return etree.tostring(root)


def _write_goldens(folder, *, with_difficult):
    """Writes the recorded images of the reference as files; returns (XML, results, label map)."""
    data = goldens.load('evaluation', 'data')
    names = {category['id']: category['name'] for category in data.params['categories']}
    size = data.params['height'], data.params['width']
    (folder / 'Annotations').mkdir()
    (folder / 'results').mkdir()
    lines = {name: [] for name in names.values()}
    for number in range(5):
        rows = {
            key: data.inputs[f'img{number}.{key}']
            for key in ('gt_boxes', 'gt_classes', 'gt_difficult')
        }
        classes = [names[label] for label in rows['gt_classes'].tolist()]
        difficult = rows['gt_difficult'] & with_difficult
        content = _annotation(size, classes, rows['gt_boxes'], difficult)
        (folder / 'Annotations' / f'img{number}.xml').write_bytes(content)
        detections = [
            data.inputs[f'img{number}.det_{key}'] for key in ('classes', 'scores', 'boxes')
        ]
        for label, score, (ymin, xmin, ymax, xmax) in zip(
            *(d.tolist() for d in detections), strict=True
        ):
            lines[names[label]].append(
                f'img{number} {score!r} {xmin!r} {ymin!r} {xmax!r} {ymax!r}\n'
            )
    for name, rows in lines.items():
        (folder / 'results' / f'comp4_det_test_{name}.txt').write_text(''.join(rows))
    items = [f"item {{ id: {number} name: '{name}' }}\n" for number, name in names.items()]
    (folder / 'map.pbtxt').write_text(''.join(items))
    return tuple(str(folder / name) for name in ('Annotations', 'results', 'map.pbtxt'))


@goldens.rows('evaluation', names=CASES)
def test_metrics_equal_reference(tmp_path, case_name):
    params = goldens.load('evaluation', case_name).params
    with_difficult = 'groundtruth_difficult' in params['groundtruth_keys']
    truth, results, label_map = _write_goldens(tmp_path, with_difficult=with_difficult)
    config = eval_pb2.EvalConfig(
        recall_lower_bound=params.get('recall_lower_bound', 0),
        recall_upper_bound=params.get('recall_upper_bound', 1),
    )
    # The first set is that of ground truth of this format.
    metrics = () if SETS[case_name].startswith('pascal') else (SETS[case_name],)
    result = evaluate(FileOptions(truth, results, metrics=metrics, label_map=label_map), config)
    assert (result.groundtruth_format, result.detections_format) == ('voc', 'voc')
    expected = {name: float(value) for name, value in params['metrics'].items()}
    # Bounds of recall are stored in 32 bits.
    assert set(result.metrics) == set(expected)
    assert result.metrics == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.fixture
def pair(tmp_path):
    return write_pair(tmp_path)


def write_pair(tmp_path):
    folder = tmp_path / 'Annotations'
    folder.mkdir()
    boxes = [(5, 5, 25, 25)]
    (folder / 'one.xml').write_bytes(_annotation((50, 50), ['the_cat'], boxes, [False]))
    (folder / 'two.xml').write_bytes(_annotation((50, 50), ['dog'], boxes, [False]))
    results = tmp_path / 'results'
    results.mkdir()
    (results / 'comp3_det_val_the_cat.txt').write_text('one 0.9 5 5 25 25\n')
    (results / 'comp3_det_val_dog.txt').write_text('one.jpg 0.5 5 5 25 25\n\n')
    (results / 'notes.txt').write_text('left alone')
    return tmp_path, results


def test_classes_and_images_by_name(pair):
    folder, results = pair
    found = evaluate(FileOptions(str(folder), str(results)))
    assert found.metrics['PascalBoxes_PerformanceByCategory/AP@0.5IOU/the_cat'] == 1
    assert found.metrics['PascalBoxes_PerformanceByCategory/AP@0.5IOU/dog'] == 0
    (folder / 'val.txt').write_text('one  1\n')
    options = FileOptions(str(folder), str(results), image_list=str(folder / 'val.txt'))
    assert evaluate(options).images == 1


def test_detections_with_numbers_need_a_label_map(pair):
    folder, _ = pair
    path = folder / 'results.json'
    entry = {'image_id': 'one', 'category_id': 4, 'bbox': [5, 5, 20, 20], 'score': 0.5}
    path.write_text(json.dumps([entry]))
    with pytest.raises(UserError, match='--label_map'):
        evaluate(FileOptions(str(folder), str(path)))
    label_map = folder / 'map.pbtxt'
    label_map.write_text("item { id: 4 name: 'the_cat' }")
    found = evaluate(FileOptions(str(folder), str(path), label_map=str(label_map)))
    assert found.metrics['PascalBoxes_PerformanceByCategory/AP@0.5IOU/the_cat'] == 1
    label_map.write_text("item { id: 4 name: 'cow' }")
    with pytest.raises(UserError, match='none of the classes'):
        evaluate(FileOptions(str(folder), str(path), label_map=str(label_map)))


def test_coco_metrics_of_voc_files(pair):
    found = evaluate(FileOptions(*map(str, pair), metrics=('coco_detection_metrics',)))
    assert found.metrics['DetectionBoxes_Precision/mAP'] == pytest.approx(0.5)


@rows.parametrize(
    ('line', 'message'),
    [
        ('one 0.9 5 5 25', 'line: expected image score xmin'),
        ('one high 5 5 25 25', 'score: expected a finite number'),
        ('one nan 5 5 25 25', 'score: expected a finite number'),
        ('one 0.9 5 5 x 25', 'xmax: expected a finite number'),
        ('one 0.9 5 25 25 5', 'ymax: expected at least ymin, 25'),
        ('three 0.9 5 5 25 25', "image: expected an image of .*'three'"),
    ],
)
def test_wrong_detections(tmp_path, line, message):
    folder, results = write_pair(tmp_path)
    (results / 'comp3_det_val_dog.txt').write_text(f'one 0.5 5 5 25 25\n{line}\n')
    with pytest.raises(UserError, match=rf'comp3_det_val_dog.txt, line 2: {message}'):
        evaluate(FileOptions(str(folder), str(results)))


def test_unknown_class_of_a_file(pair):
    folder, results = pair
    (results / 'comp3_det_val_cow.txt').write_text('')
    with pytest.raises(UserError, match=r"comp3_det_val_cow.txt: .*dog, the_cat.*'cow'"):
        evaluate(FileOptions(str(folder), str(results)))


@rows.parametrize(
    ('change', 'message'),
    [
        (('<xmax>25.0', '<xmax>2'), 'two.xml, object 0: xmax: expected at least xmin, 5'),
        (('<xmax>25.0', '<xmax>inf'), 'two.xml, object 0: xmax: expected a finite number'),
        (('<name>dog', '<name>'), 'two.xml, object 0: name'),
        (('bndbox', 'points'), 'two.xml, object 0: bndbox'),
        (('<annotation>', '<!DOCTYPE a [<!ENTITY b "c">]><annotation>'), 'DOCTYPE'),
        (('annotation', 'other'), 'expected <annotation>'),
    ],
)
def test_wrong_ground_truth(tmp_path, change, message):
    folder, results = write_pair(tmp_path)
    path = folder / 'Annotations' / 'two.xml'
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(UserError, match=message):
        evaluate(FileOptions(str(folder), str(results)))


def test_real_files(tmp_path, shared):
    bccd = shared / 'data' / 'bccd' / 'BCCD'
    results = tmp_path / 'results'
    results.mkdir()
    lines = {}
    listed = (bccd / 'ImageSets' / 'Main' / 'val.txt').read_text().split()
    for stem in listed:
        for item in etree.parse(str(bccd / 'Annotations' / f'{stem}.xml')).iterfind('object'):
            box = [item.findtext(f'bndbox/{side}') for side in ('xmin', 'ymin', 'xmax', 'ymax')]
            lines.setdefault(item.findtext('name'), []).append(f'{stem} 0.5 {" ".join(box)}\n')
    for name, found in lines.items():
        (results / f'comp4_det_val_{name}.txt').write_text(''.join(found))
    listing = bccd / 'ImageSets' / 'Main' / 'val.txt'
    found = evaluate(FileOptions(str(bccd), str(results), image_list=str(listing)))
    assert found.images == len(listed)
    assert found.metrics['PascalBoxes_Precision/mAP@0.5IOU'] > 0.99
    shutil.rmtree(results)
    results.mkdir()
    with pytest.raises(UserError, match='comp4_det_test_CLASS'):
        evaluate(FileOptions(str(bccd), str(results)))
