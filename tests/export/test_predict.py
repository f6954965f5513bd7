import json
import pathlib

import numpy as np
import pytest
from PIL import Image

from object_detection.evaluation.detections import ImageDetections
from object_detection.export import exporter, predict
from object_detection.export.inference import read_image
from object_detection.export.predict import predict_files
from object_detection.training import checkpoints
from tests import tiny_models as tiny


class OneObject:
    """In place of an exported model: finds an object of class 7 in every image."""

    precision = 'mixed_bfloat16'

    def __init__(self, directory):
        self.directory = directory

    def detect(self, image, encoded=None):
        box = np.array([[1.0, 2, 9, 12]])
        return ImageDetections(box, np.array([0.9]), np.array([7]), None, *image.shape[:2])


@pytest.fixture
def one_object(monkeypatch):
    monkeypatch.setattr(predict, 'SavedDetector', OneObject)


def write_image(path: pathlib.Path, value: int = 0) -> pathlib.Path:
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(np.full((16, 600, 3), value, np.uint8)).save(path)
    return path


def listed(output: pathlib.Path) -> list[tuple[int, str]]:
    """Ids and pictures of images.json, which must agree with detections.json."""
    images = json.loads((output / 'images.json').read_text())
    results = json.loads((output / 'detections.json').read_text())
    assert [result['image_id'] for result in results] == [image['id'] for image in images]
    return [(image['id'], image['picture']) for image in images]


def test_images_of_one_name_get_pictures_of_their_own(one_object, tmp_path):
    names = ('one/a.jpg', 'one/a.png', 'two/a.png', 'two/A.bmp', 'two/a_2.png')
    files = [write_image(tmp_path / name, 40 * i) for i, name in enumerate(names)]
    predict_files('model', files, tmp_path / 'out')
    pictures = [picture for _, picture in listed(tmp_path / 'out')]
    assert pictures == ['a.png', 'a_3.png', 'a_4.png', 'A_5.png', 'a_2.png']
    for i, picture in enumerate(pictures):
        corner = read_image(tmp_path / 'out' / picture)[0][-1, -1]
        np.testing.assert_allclose(corner, 40 * i, atol=2)
    assert len(list((tmp_path / 'out').iterdir())) == len(files) + 2


def test_ids_are_the_numbers_of_the_names_and_never_collide(one_object, tmp_path):
    names = ('b.png', '1.png', '01.jpg', '000012.png', 'c.png', '3.png')
    files = [write_image(tmp_path / 'in' / name) for name in names]
    broken = tmp_path / 'in' / 'broken.png'
    broken.write_bytes(b'')
    summary = predict_files('model', [broken, *files], tmp_path / 'out')
    assert [image_id for image_id, _ in listed(tmp_path / 'out')] == [4, 1, 5, 12, 6, 3]
    assert (summary.images, len(summary.problems)) == (6, 1)


@pytest.mark.parametrize('is_link', [False, True])
def test_the_folder_of_an_image_is_refused_as_output(one_object, tmp_path, is_link):
    path = write_image(tmp_path / 'in' / 'a.png')
    output = tmp_path / 'in'
    if is_link:
        output = tmp_path / 'link'
        output.symlink_to(tmp_path / 'in')
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r'another than that of the images.*Received: .*a\.png'):
        predict_files('model', [path], output)
    assert path.read_bytes() == before
    assert [item.name for item in (tmp_path / 'in').iterdir()] == ['a.png']


def test_a_link_to_an_image_in_the_output_folder_is_refused(one_object, tmp_path):
    path = write_image(tmp_path / 'out' / 'a.png')
    link = tmp_path / 'a.png'
    link.symlink_to(path)
    with pytest.raises(ValueError, match='another than that of the images'):
        predict_files('model', [link], tmp_path / 'out')


def test_a_picture_that_cannot_be_written_leaves_the_earlier_one(one_object, tmp_path, monkeypatch):
    path = write_image(tmp_path / 'in' / 'a.png')
    predict_files('model', [path], tmp_path / 'out')
    before = (tmp_path / 'out' / 'a.png').read_bytes()

    def save(image, file, format=None):
        pathlib.Path(file).write_bytes(b'half')
        raise OSError('disk')

    monkeypatch.setattr(Image.Image, 'save', save)
    with pytest.raises(OSError, match='disk'):
        predict_files('model', [path], tmp_path / 'out')
    assert (tmp_path / 'out' / 'a.png').read_bytes() == before


def test_classes_that_the_label_map_lacks_are_drawn_as_numbers(one_object, tmp_path, monkeypatch):
    path = write_image(tmp_path / 'in' / 'a.png')
    (tmp_path / 'labels.pbtxt').write_text("item { id: 1 name: 'cat' }")
    drawn = []
    draw = predict.drawing._draw_label
    monkeypatch.setattr(
        predict.drawing,
        '_draw_label',
        lambda canvas, instance, *rest: (
            drawn.append(instance.label),
            draw(canvas, instance, *rest),
        ),
    )
    predict_files(
        'model', [path], tmp_path / 'out', label_map_path=tmp_path / 'labels.pbtxt', min_score=0.5
    )
    assert drawn == ['7 90%']


def test_predict_writes_pictures_and_coco_results(tmp_path):
    detector = tiny.tiny_detector()
    tiny.shrink_last_layers(detector)
    checkpoints.save_model(str(tmp_path / 'trained'), detector.named_variables(), 7)
    exporter.export(tiny.tiny_pipeline(), str(tmp_path / 'trained'), tmp_path / 'exported')
    rng = np.random.default_rng(1)
    files = [tmp_path / name for name in ('000012.png', 'cat.jpg')]
    for file in files:
        Image.fromarray(rng.integers(0, 255, (48, 80, 3), np.uint8)).save(file)
    broken = tmp_path / 'broken.jpg'
    broken.write_bytes(b'no image')
    output = tmp_path / 'out'
    summary = predict_files(tmp_path / 'exported', [*files, broken], output, min_score=0.0)
    assert summary.images == 2
    assert summary.precision == 'float32'
    assert len(summary.problems) == 1
    assert 'broken.jpg' in summary.problems[0]
    results = json.loads((output / 'detections.json').read_text())
    assert len(results) == summary.detections > 0
    assert {result['image_id'] for result in results} == {12, 1}
    for result in results:
        x, y, width, height = result['bbox']
        assert 0 <= x <= x + width <= 80 + 1e-3
        assert 0 <= y <= y + height <= 48 + 1e-3
        assert result['segmentation']['size'] == [48, 80]
    for name in ('000012.png', 'cat.png'):
        assert read_image(output / name)[0].shape == (288, 480, 3)


def test_progress_counts_images_that_are_left_out_too(one_object, tmp_path):
    files = [write_image(tmp_path / 'in' / name) for name in ('a.png', 'b.png')]
    (tmp_path / 'in' / 'c.png').write_bytes(b'')
    told = []
    predict_files(
        'model',
        [*files, tmp_path / 'in' / 'c.png'],
        tmp_path / 'out',
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
