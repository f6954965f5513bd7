"""The files of predictions are read by the converters of annotations."""

import csv
import io
import json
import shutil

import numpy as np
import pytest
from lxml import etree
from PIL import Image

from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import source
from object_detection.data.formats.csv_boxes import CsvSource
from object_detection.data.formats.tools.cvat import CvatSource
from object_detection.data.formats.tools.label_studio import LabelStudioSource
from object_detection.data.formats.tools.labelme import LabelMeSource
from object_detection.data.formats.voc import VocSource
from object_detection.data.formats.yolo import YoloSource
from object_detection.prediction import tool_writers, writers
from object_detection.prediction.files import OutputOptions, predict_files
from object_detection.prediction.output import Item, Output
from object_detection.prediction.prediction import Prediction
from object_detection.prediction.predictor import Predictor
from tests.prediction.test_predictor import TWO, picture

FILES = LocalFiles()
# All that need no tracks.
FORMATS = tuple(name for name in writers.WRITERS if name != writers.MOT)
# Of TWO, 40 pixels high and 60 wide: ymin, xmin, ymax, xmax.
BOXES = {'blue': [20, 30, 36, 50], 'red': [4, 6, 14, 26]}


@pytest.fixture(scope='module')
def written(predictor, tmp_path_factory):
    """The files of a picture with two objects and one with a faint object, in all formats."""
    folder = tmp_path_factory.mktemp('written')
    (folder / 'in').mkdir()
    Image.fromarray(TWO).save(folder / 'in' / 'a.png')
    Image.fromarray(picture(green=(1, 2, 30, 40, 140))).save(folder / 'in' / 'b.png')
    paths = sorted((folder / 'in').iterdir())
    options = OutputOptions(formats=FORMATS, score_threshold=0.6)
    summary = predict_files(predictor, paths, folder / 'out', options)
    assert (summary.images, summary.detections, summary.drawn) == (2, 3, 2)
    return folder


def objects(data) -> dict[str, dict[str, np.ndarray]]:
    """Image -> class -> box in pixels, as a converter reads a data set."""
    opened = data.open(FILES, None)
    found = {}
    for entry in data.entries(FILES):
        result = source.read(opened.reader, entry, FILES)
        assert not result.problems
        scale = [result.image.height, result.image.width] * 2
        found[result.image.file_name.rsplit('/')[-1]] = {
            name: box * scale
            for name, box in zip(result.image.class_texts, result.image.boxes, strict=True)
        }
    return found


def check(found):
    assert found.keys() == {'a.png', 'b.png'}
    assert found['b.png'] == {}
    for name, box in BOXES.items():
        np.testing.assert_allclose(found['a.png'].pop(name), box, atol=0.01)
    assert not found['a.png']


def test_a_table_is_read_again(written):
    data = CsvSource(str(written / 'out' / 'detections.csv'), image_dir=str(written / 'in'))
    check(objects(data))
    with open(written / 'out' / 'detections.csv', newline='') as file:
        rows = list(csv.DictReader(file))
    assert [row['class'] for row in rows] == ['blue', 'red', '']
    assert [row['score'] for row in rows] == ['1.000000', '0.800000', '']
    assert [row['class_id'] for row in rows] == ['3', '1', '']


def test_labels_of_yolo_are_read_again(written):
    for path in (written / 'in').iterdir():
        shutil.copy(path, written / 'out' / 'yolo')
    check(objects(YoloSource(str(written / 'out' / 'yolo' / 'classes.txt'))))
    assert (written / 'out' / 'yolo' / 'classes.txt').read_text() == 'red\ngreen\nblue\n'


def test_files_of_voc_are_read_again(written, tmp_path):
    shutil.copytree(written / 'out' / 'voc', tmp_path / 'Annotations')
    shutil.copytree(written / 'in', tmp_path / 'JPEGImages')
    check(objects(VocSource(str(tmp_path))))


def test_files_of_labelme_are_read_again(written):
    content = json.loads((written / 'out' / 'labelme' / 'a.json').read_text())
    assert content['imagePath'] == '../../in/a.png'
    # An object is its mask and its two keypoints, which are corners of its box.
    kinds = ['polygon', 'point', 'point']
    assert [shape['shape_type'] for shape in content['shapes']] == 2 * kinds
    assert [shape['group_id'] for shape in content['shapes']] == [0, 0, 0, 1, 1, 1]
    assert [shape['label'] for shape in content['shapes'][:3]] == ['blue', '0', '1']
    masks = content['shapes'][::3]
    assert [shape['description'] for shape in masks] == ['score 1.0000', 'score 0.8000']
    # The masks are polygons along the edges of pixels.
    for shape, corner, box in zip(masks, content['shapes'][2::3], BOXES.values(), strict=True):
        points = np.array(shape['points'])
        ymin, xmin, ymax, xmax = box
        np.testing.assert_allclose(corner['points'], [[xmax, ymax]], atol=0.01)
        np.testing.assert_allclose(points.min(0), [xmin, ymin], atol=1)
        np.testing.assert_allclose(points.max(0), [xmax, ymax], atol=1)
    data = LabelMeSource(str(written / 'out' / 'labelme'), image_dir=str(written / 'in'))
    [first, _] = data.entries(FILES)
    result = source.read(data.open(FILES, None).reader, first, FILES)
    assert not result.problems
    assert result.notes == {'not_converted: point': 4}


@pytest.mark.parametrize('masks', [False, True])
def test_tasks_of_label_studio_are_read_again(written, masks):
    path = written / 'out' / 'label_studio' / 'tasks.json'
    [first, second] = json.loads(path.read_text())
    assert first['data']['image'] == f'/data/local-files/?d={str(written / "in" / "a.png")[1:]}'
    [prediction] = first['predictions']
    assert prediction['score'] == pytest.approx(0.8)
    assert second['predictions'][0]['result'] == []
    sure = {'predictions': True, 'masks': masks}
    data = LabelStudioSource(str(path), image_dir=str(written / 'in'), **sure)
    check(objects(data))
    # Without the option they are no annotations.
    with pytest.raises(ValueError, match='its task has no annotation'):
        objects(LabelStudioSource(str(path), image_dir=str(written / 'in')))
    interface = etree.parse(written / 'out' / 'label_studio' / 'interface.xml').getroot()
    assert {control.tag: [each.get('value') for each in control] for control in interface} == {
        'Image': [],
        'RectangleLabels': ['red', 'green', 'blue'],
        'BrushLabels': ['blue', 'red'],
        'KeyPointLabels': ['0', '1'],
    }


def test_annotations_of_cvat_are_read_again(written):
    path = written / 'out' / 'cvat' / 'annotations.xml'
    data = CvatSource(str(path), image_dir=str(written / 'in'), masks=True)
    check(objects(data))
    root = etree.parse(path).getroot()
    assert [(image.get('id'), image.get('name')) for image in root.iterfind('image')] == [
        ('0', 'a.png'),
        ('1', 'b.png'),
    ]
    kinds = [
        (item.tag, item.get('label'), item.get('group_id')) for item in root.iterfind('image/*')
    ]
    assert kinds == [
        (kind, *each) for each in (('blue', '1'), ('red', '2')) for kind in ('mask', 'points')
    ]
    assert [*data.open(FILES, None).labels] == ['red', 'green', 'blue']


def test_rectangles_of_labelme_are_read_again(written, colour_finder, tmp_path, monkeypatch):
    boxes_only = Predictor(colour_finder)
    run_batch = boxes_only.detector.run_batch

    def detect(images):
        found = run_batch(images)
        return {key: value for key, value in found.items() if 'masks' not in key}

    monkeypatch.setattr(boxes_only.detector, 'run_batch', detect)
    paths = sorted((written / 'in').iterdir())
    options = OutputOptions(formats=('labelme',), score_threshold=0.6)
    predict_files(boxes_only, paths, tmp_path, options)
    check(objects(LabelMeSource(str(tmp_path / 'labelme'), image_dir=str(written / 'in'))))


def test_an_object_of_several_parts_is_one_object_again(tmp_path):
    Image.fromarray(TWO).save(tmp_path / 'a.png')
    # The object of the first row has the group 0.
    masks = np.zeros((2, 10, 20), np.float32)
    masks[:, :4, :8] = masks[:, :, 16:] = 1
    boxes = np.array([[2, 4, 12, 24], [22, 24, 32, 44]], np.float32)
    prediction = Prediction(
        boxes,
        np.array([0.9, 0.8]),
        np.array([1, 1]),
        TWO.shape[:2],
        masks,
        image=TWO,
        path=str(tmp_path / 'a.png'),
    )
    output = Output(tmp_path, {1: 'cat'}, 0.5, 10, frames=False)
    with tool_writers.labelme(output) as write:
        write(Item(prediction, 1, 'a'), prediction)
    shutil.copy(tmp_path / 'a.png', tmp_path / 'labelme')
    data = LabelMeSource(data_dir=str(tmp_path / 'labelme'), masks=True)
    [entry] = data.entries(FILES)
    result = source.read(data.open(FILES, None).reader, entry, FILES)
    np.testing.assert_allclose(result.image.boxes * [40, 60, 40, 60], boxes)
    found = [np.asarray(Image.open(io.BytesIO(mask))) > 0 for mask in result.image.masks]
    np.testing.assert_array_equal(found, prediction.full_masks())


def test_coco_results_have_every_object(written):
    results = json.loads((written / 'out' / 'detections.json').read_text())
    assert [(each['image_id'], each['category_id']) for each in results] == [(1, 3), (1, 1), (2, 2)]
    images = json.loads((written / 'out' / 'images.json').read_text())
    assert images[0]['picture'] == 'a.png'
    assert images[0]['files'] == ['yolo/a.txt', 'labelme/a.json', 'voc/a.xml']


def test_files_of_an_earlier_run_are_deleted(predictor, tmp_path):
    (tmp_path / 'in').mkdir()
    for name in ('a.png', 'b.png'):
        Image.fromarray(TWO).save(tmp_path / 'in' / name)
    paths, options = sorted((tmp_path / 'in').iterdir()), OutputOptions(formats=('yolo', 'voc'))
    predict_files(predictor, paths, tmp_path / 'out', options)
    listed = json.loads((tmp_path / 'out' / 'images.json').read_text())
    (tmp_path / 'other.txt').write_text('')
    listed.append({'files': ['../other.txt', 'yolo/../../other.txt', 'images.json', 5]})
    (tmp_path / 'out' / 'images.json').write_text(json.dumps(listed))
    predict_files(predictor, paths[1:], tmp_path / 'out', options)
    names = {str(p.relative_to(tmp_path / 'out')) for p in (tmp_path / 'out').rglob('*.*')}
    assert names == {'images.json', 'yolo/b.txt', 'yolo/classes.txt', 'voc/b.xml'}
    assert (tmp_path / 'other.txt').exists()


def test_classes_without_names_are_numbers(predictor, tmp_path, monkeypatch):
    monkeypatch.setattr(predictor, 'class_names', {})
    Image.fromarray(TWO).save(tmp_path / 'a.png')
    options = OutputOptions(formats=('yolo', 'csv', 'voc'))
    predict_files(predictor, [tmp_path / 'a.png'], tmp_path / 'out', options)
    assert (tmp_path / 'out' / 'yolo' / 'classes.txt').read_text() == '3\n1\n'
    lines = (tmp_path / 'out' / 'yolo' / 'a.txt').read_text().splitlines()
    assert [line.split()[0] for line in lines] == ['0', '1']
    assert '<name>3</name>' in (tmp_path / 'out' / 'voc' / 'a.xml').read_text()


def test_names_with_characters_that_files_cannot_hold_are_written(predictor, tmp_path, monkeypatch):
    monkeypatch.setattr(predictor, 'class_names', {1: 'a\x01<b\n', 3: 'c,"d"'})
    path = tmp_path / 'x\x02\udcff.png'
    Image.fromarray(TWO).save(path)
    predict_files(predictor, [path], tmp_path / 'out', OutputOptions(formats=FORMATS))
    [file] = (tmp_path / 'out' / 'voc').iterdir()
    assert '<name>a?&lt;b' in file.read_text()
    with open(tmp_path / 'out' / 'detections.csv', newline='', errors='surrogateescape') as file:
        assert [row['class'] for row in csv.DictReader(file)] == ['c,"d"', 'a\x01<b\n']
    assert (tmp_path / 'out' / 'yolo' / 'classes.txt').read_text() == 'a\x01<b\nc,"d"\n'
