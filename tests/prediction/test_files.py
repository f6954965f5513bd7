import json
import pathlib
import re

import numpy as np
import pytest
from PIL import Image

from object_detection import Predictor
from object_detection.core.fields import DetectionFields
from object_detection.data.tiff.tiff_files import LargeImage
from object_detection.errors import UserError
from object_detection.prediction import files, prediction, predictor, sources
from object_detection.prediction.files import OutputOptions
from object_detection.prediction.views import Tiling
from object_detection.resizers.value_range import ValueRange
from object_detection.runtime import class_names, images
from object_detection.runtime.images import read_image
from object_detection.runtime.runtime import Runtime
from object_detection.scoring import evaluation

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')


class OneObject(Runtime):
    """In place of a detector: finds an object of class 7 in every image."""

    precision = 'mixed_bfloat16'
    value_range = None
    source = 'model'

    def __init__(self, directory, *, checkpoint, config, label_map, precision):
        self.labels = class_names.parse("item { id: 7 name: 'cat' }")
        if label_map is not None:
            self.labels = class_names.parse(class_names.read_file(str(label_map)))

    def fingerprint(self):
        return self.source

    def run_batch(self, images):
        count, height, width = images.shape[:3]
        box = np.array([1, 2, 9, 12], np.float32) / [height, width, height, width]
        return {
            DetectionFields.BOXES: np.tile(box, (count, 1, 1)),
            DetectionFields.SCORES: np.full((count, 1), 0.9, np.float32),
            DetectionFields.CLASSES: np.full((count, 1), 7, np.float32),
            DetectionFields.NUM_DETECTIONS: np.ones(count, np.float32),
        }


@pytest.fixture
def one_object(monkeypatch):
    monkeypatch.setattr(predictor.loading, 'load', OneObject)


def predict_files(model, paths, output, *, label_map_path=None, progress=None, **options):
    """Runs a model one image at a time, as the command does by default."""
    report = {} if progress is None else {'progress': progress}
    return files.predict_files(
        Predictor(model, label_map=label_map_path, batch_size=1),
        paths,
        output,
        OutputOptions(**options),
        **report,
    )


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
    paths = [write_image(tmp_path / name, 40 * i) for i, name in enumerate(names)]
    predict_files('model', paths, tmp_path / 'out')
    pictures = [picture for _, picture in listed(tmp_path / 'out')]
    assert pictures == ['a.png', 'a_3.png', 'a_4.png', 'A_5.png', 'a_2.png']
    for i, picture in enumerate(pictures):
        corner = read_image(tmp_path / 'out' / picture)[0][-1, -1]
        np.testing.assert_allclose(corner, 40 * i, atol=2)
    assert len(list((tmp_path / 'out').iterdir())) == len(paths) + 2


@pytest.mark.parametrize('format_', ['coco', 'csv'])
def test_what_is_written_can_be_scored(one_object, tmp_path, format_):
    names = ('one/a.jpg', 'two/a.jpg', 'one/7.png')
    paths = [write_image(tmp_path / name) for name in names]
    predict_files('model', paths, tmp_path / 'out', formats=(format_,))
    # The ids are not those of the command, and of two images the folder tells which is which.
    images = [
        {'id': n, 'file_name': name, 'height': 16, 'width': 600} for n, name in enumerate(names)
    ]
    objects = [{'image_id': n, 'category_id': 7, 'bbox': [2, 1, 10, 8]} for n in range(3)]
    truth = {'images': images, 'annotations': objects, 'categories': [{'id': 7, 'name': 'cat'}]}
    (tmp_path / 'truth.json').write_text(json.dumps(truth))
    label_map = tmp_path / 'map.pbtxt'
    label_map.write_text("item { id: 7 name: 'cat' }")
    result = evaluation.evaluate(
        evaluation.FileOptions(
            str(tmp_path / 'truth.json'), str(tmp_path / 'out'), label_map=str(label_map)
        )
    )
    assert (result.detections_format, result.num_detections) == (format_, 3)
    assert result.metrics['DetectionBoxes_Precision/mAP'] == pytest.approx(1)


def test_a_second_run_into_the_same_folder_is_refused(one_object, tmp_path):
    path = write_image(tmp_path / 'in' / 'a.png')
    output = tmp_path / 'out'

    def start_another(done, total):
        with pytest.raises(UserError, match='out: another command is writing into this folder'):
            predict_files('model', [path], output)

    predict_files('model', [path], output, progress=start_another)
    assert listed(output) == [(1, 'a.png')]
    assert {each.name for each in output.iterdir()} == {'a.png', 'detections.json', 'images.json'}
    predict_files('model', [path], output)


def test_ids_are_the_numbers_of_the_names_and_never_collide(one_object, tmp_path):
    names = ('b.png', '1.png', '01.jpg', '000012.png', 'c.png', '3.png')
    paths = [write_image(tmp_path / 'in' / name) for name in names]
    broken = tmp_path / 'in' / 'broken.png'
    broken.write_bytes(b'')
    summary = predict_files('model', [broken, *paths], tmp_path / 'out')
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


@pytest.mark.parametrize(('has_label_map', 'expected'), [(True, '7 90%'), (False, 'cat 90%')])
def test_names_are_those_of_the_label_map_or_else_of_the_model(
    has_label_map, expected, one_object, tmp_path, monkeypatch
):
    path = write_image(tmp_path / 'in' / 'a.png')
    (tmp_path / 'labels.pbtxt').write_text("item { id: 1 name: 'cat' }")
    drawn = []
    draw = prediction.drawing._draw_label
    monkeypatch.setattr(
        prediction.drawing,
        '_draw_label',
        lambda canvas, instance, *rest: (
            drawn.append(instance.label),
            draw(canvas, instance, *rest),
        ),
    )
    label_map = tmp_path / 'labels.pbtxt' if has_label_map else None
    predict_files('model', [path], tmp_path / 'out', label_map_path=label_map, score_threshold=0.5)
    # A class that the label map lacks is drawn as a number.
    assert drawn == [expected]


def test_predict_writes_pictures_and_coco_results(colour_finder, tmp_path):
    rng = np.random.default_rng(1)
    paths = [tmp_path / name for name in ('000012.png', 'cat.jpg')]
    for file in paths:
        Image.fromarray(rng.integers(0, 255, (48, 80, 3), np.uint8)).save(file)
    broken = tmp_path / 'broken.jpg'
    broken.write_bytes(b'no image')
    output = tmp_path / 'out'
    summary = predict_files(colour_finder, [*paths, broken], output, score_threshold=0.0)
    assert summary.images == 2
    assert summary.precision is None  # That model does not say it.
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
    paths = [write_image(tmp_path / 'in' / name) for name in ('a.png', 'b.png')]
    (tmp_path / 'in' / 'c.png').write_bytes(b'')
    told = []
    predict_files(
        'model',
        [*paths, tmp_path / 'in' / 'c.png'],
        tmp_path / 'out',
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_what_cannot_be_opened_is_left_out_and_named_without_internals(one_object, tmp_path):
    good = write_image(tmp_path / 'in' / 'good.png')
    link, folder, broken = (tmp_path / 'in' / name for name in ('link.jpg', 'x.jpg', 'broken.png'))
    link.symlink_to(tmp_path / 'gone.jpg')
    folder.mkdir()
    broken.write_bytes(good.read_bytes()[:60])
    summary = predict_files('model', [link, folder, broken, good], tmp_path / 'out')
    assert summary.images == 1
    assert [problem.split(':')[0] for problem in summary.problems] == [
        str(link),
        str(folder),
        str(broken),
    ]
    for problem in summary.problems:
        assert not re.search(r'\{\{|\[Op|_io\.|object at', problem), problem


def test_an_error_leaves_what_was_found_before_it(one_object, tmp_path, monkeypatch):
    paths = [write_image(tmp_path / 'in' / f'{i}.png') for i in range(3)]
    detect = OneObject.run_batch

    def fail_at_the_last(self, images):
        if list((tmp_path / 'out').glob('1.png')):
            raise RuntimeError('no memory')
        return detect(self, images)

    monkeypatch.setattr(OneObject, 'run_batch', fail_at_the_last)
    with pytest.raises(RuntimeError, match='no memory'):
        predict_files('model', paths, tmp_path / 'out')
    assert not (tmp_path / 'out' / 'detections.json').exists()
    for name in ('detections.json.partial', 'images.json.partial'):
        assert len(json.loads((tmp_path / 'out' / name).read_text())) == 2


def test_each_image_is_in_the_file_before_the_next_is_read(one_object, tmp_path, monkeypatch):
    paths = [write_image(tmp_path / 'in' / f'{i}.png') for i in range(2)]
    seen = []
    read = sources.read

    def look(path, *options, **named):
        text = (tmp_path / 'out' / 'detections.json.partial').read_text()
        seen.append(len(json.loads(text + ']')))
        return read(path, *options, **named)

    monkeypatch.setattr(sources, 'read', look)
    predict_files('model', paths, tmp_path / 'out')
    assert seen == [0, 1]


def test_pictures_that_images_json_no_longer_lists_are_deleted(one_object, tmp_path):
    paths = [write_image(tmp_path / 'in' / name) for name in ('a.png', 'b.png')]
    output = tmp_path / 'out'
    predict_files('model', paths, output)
    (output / 'mine.png').write_bytes(b'')
    (tmp_path / 'other.png').write_bytes(b'')
    listed_now = json.loads((output / 'images.json').read_text())
    (output / 'images.json').write_text(json.dumps([*listed_now, {'picture': '../other.png'}, 3]))
    predict_files('model', paths[1:], output)
    assert sorted(path.name for path in output.glob('*.png')) == ['b.png', 'mine.png']
    assert (tmp_path / 'other.png').exists()


def test_a_photo_is_predicted_upright(one_object, tmp_path):
    path = tmp_path / 'in' / 'turned.jpg'
    path.parent.mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new('RGB', (600, 16)).save(path, exif=exif)
    assert read_image(path)[0].shape == (600, 16, 3)
    predict_files('model', [path], tmp_path / 'out')
    assert read_image(tmp_path / 'out' / 'turned.png')[0].shape == (600, 16, 3)


def two_pages(folder: pathlib.Path) -> tuple[pathlib.Path, list[np.ndarray]]:
    """A TIFF file of two pages with an object each, at 16 bits."""
    pytest.importorskip('rasterio', reason='needs the extra tiff: rasterio')
    pages = [np.zeros(size, np.uint8) for size in ((200, 300, 3), (120, 90, 3))]
    pages[0][60:140, 60:150, 0] = 200
    pages[1][20:50, 30:60, 2] = 250
    first, second = map(Image.fromarray, pages)
    folder.mkdir()
    first.save(folder / 'scan.tif', save_all=True, append_images=[second], compression='tiff_lzw')
    return folder / 'scan.tif', pages


def test_every_page_of_a_tiff_file_is_looked_at(colour_finder, tmp_path):
    path, _ = two_pages(tmp_path / 'in')
    found = predict_files(colour_finder, [path], tmp_path / 'out')
    assert (found.images, found.problems) == (2, [])
    listed = json.loads((tmp_path / 'out' / 'images.json').read_text())
    assert [(each['id'], each['picture'], each.get('page')) for each in listed] == [
        (1, 'scan.png', None),
        (2, 'scan_000001.png', 1),
    ]
    results = json.loads((tmp_path / 'out' / 'detections.json').read_text())
    assert [each['image_id'] for each in results] == [1, 2]
    boxes = [each['bbox'] for each in results]
    np.testing.assert_allclose(boxes, [[60, 60, 90, 80], [30, 20, 30, 30]], rtol=1e-6)
    assert Predictor(colour_finder)(path).size == (200, 300)


def test_values_that_are_not_finite_are_those_of_the_range(tmp_path):
    pytest.importorskip('rasterio', reason='needs the extra tiff: rasterio')
    values = np.array([[np.nan, np.inf], [-np.inf, 3]], np.float32)
    Image.fromarray(values).save(tmp_path / 'a.tif')
    image = images.read(tmp_path / 'a.tif', value_range=ValueRange(1, 9))
    np.testing.assert_array_equal(image[..., 0], [[1, 9], [1, 3]])
    np.testing.assert_array_equal(images.read(image, value_range=ValueRange(1, 9)), image)
    with pytest.raises(UserError, match=r'a\.tif: .*Expected image_resizer.value_range'):
        images.read(tmp_path / 'a.tif')


def test_tiles_of_large_tiff_files_are_read_one_batch_at_a_time(
    colour_finder, tmp_path, monkeypatch
):
    path, pages = two_pages(tmp_path / 'in')
    read, read_part = [], LargeImage.__getitem__

    def record(self, place):
        read.append(read_part(self, place))
        return read[-1]

    monkeypatch.setattr(LargeImage, '__getitem__', record)
    monkeypatch.setattr(images, '_HELD_PIXELS', 10_000)
    monkeypatch.setattr(predictor, '_WHOLE_SIDE', 100)
    tiled = Predictor(colour_finder, tiling=Tiling(100), max_pixels=10_000)
    found = tiled(path)
    expected = Predictor(colour_finder, tiling=Tiling(100))(pages[0])
    assert isinstance(found.image, LargeImage)
    assert {part.shape for part in read} == {(100, 100, 3)}
    np.testing.assert_allclose(found.boxes, expected.boxes, atol=3)
    assert found.boxes.shape == (1, 4)
    options = OutputOptions(formats=('pictures', 'csv', 'labelme'))
    summary = files.predict_files(tiled, [path], tmp_path / 'out', options)
    assert (summary.images, summary.problems) == (2, [])
    monkeypatch.setattr(prediction, '_DRAWN_SIDE', 150)
    np.testing.assert_allclose(found.annotated()[45, 50], expected.annotated()[90, 100], atol=40)
    assert found.annotated().shape == (100, 150, 3)
