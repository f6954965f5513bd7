import concurrent.futures
import io
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import object_detection
from object_detection.errors import UserError
from object_detection.prediction import loading
from object_detection.prediction.prediction import Prediction
from object_detection.prediction.predictor import Predictor, class_ids
from object_detection.resizers.value_range import ValueRange
from object_detection.runtime import class_names, images
from object_detection.visualization import drawing
from tests import rows


def picture(height=40, width=60, **colours):
    """A dark image with a bright rectangle of each colour: name=(top, left, bottom, right)."""
    image = np.zeros((height, width, 3), np.uint8)
    for channel, name in enumerate(('red', 'green', 'blue')):
        if name in colours:
            top, left, bottom, right = colours[name][:4]
            image[top:bottom, left:right, channel] = colours[name][4]
    return image


TWO = picture(red=(4, 6, 14, 26, 204), blue=(20, 30, 36, 50, 255))


def test_boxes_are_in_pixels_with_names_scores_and_keypoints(predictor):
    found = predictor(TWO)
    np.testing.assert_allclose(found.boxes, [[20, 30, 36, 50], [4, 6, 14, 26]], rtol=1e-6)
    assert found.class_names == ['blue', 'red']
    assert found.classes.tolist() == [3, 1]
    np.testing.assert_allclose(found.scores, [1.0, 0.8], rtol=1e-6)
    np.testing.assert_allclose(found.keypoints[1], [[4, 6], [14, 26]], rtol=1e-6)
    assert (len(found), found.path) == (2, None)
    assert predictor.class_names == {1: 'red', 2: 'green', 3: 'blue'}


def test_a_prediction_is_a_sequence_of_its_objects(predictor):
    found = predictor(TWO)
    assert [each.class_names for each in found] == [['blue'], ['red']]
    np.testing.assert_array_equal(found[1].boxes, found.boxes[1:])
    np.testing.assert_array_equal(found[-1].masks, found.masks[1:])
    assert found[:1].class_names == ['blue']
    with pytest.raises(IndexError):
        found[2]


def test_objects_are_filtered_by_class_and_score(predictor):
    found = predictor(TWO)
    assert found.filter(classes='red').class_names == ['red']
    assert found.filter(classes=[3, 'red']).class_names == ['blue', 'red']
    assert found.filter(classes=['red'], min_score=0.9).class_names == []
    assert found.filter(min_score=0.9).class_names == ['blue']
    with pytest.raises(UserError, match=r"1 red, 2 green, 3 blue\)\. Received: 'cat'"):
        found.filter(classes='cat')


def test_a_notebook_shows_the_picture_of_a_prediction(predictor):
    found = predictor(TWO)
    shown = Image.open(io.BytesIO(found._repr_png_()))
    np.testing.assert_array_equal(np.asarray(shown), np.asarray(found.draw()))


def test_an_unknown_option_is_an_error_of_the_class_that_is_called(tmp_path):
    with pytest.raises(TypeError, match=r"Predictor\.__init__\(\) .* 'conf'"):
        object_detection.Predictor(tmp_path, conf=0.3)


def test_masks_are_crops_that_are_pasted_on_demand(predictor):
    found = predictor(TWO)
    assert found.masks.shape == (2, 4, 4)
    full = found.full_masks()
    assert (full.shape, full.dtype) == ((2, 40, 60), bool)
    # The centres of the first and last pixels lie on the image's edges, so a pixel may be missing.
    inside = TWO[..., 2] > 0
    assert not full[0][~inside].any()
    assert full[0][21:35, 31:49].all()
    np.testing.assert_array_equal(found.full_mask(1), full[1])


def test_every_kind_of_image_gives_the_same(predictor, tmp_path):
    path = tmp_path / 'a.png'
    Image.fromarray(TWO).save(path)
    alpha = np.concatenate([TWO, np.full((40, 60, 1), 9, np.uint8)], -1)
    given = [path, str(path), path.read_bytes(), Image.fromarray(TWO), TWO, alpha]
    found = predictor(given)
    for each in found:
        np.testing.assert_array_equal(each.image, TWO)
        np.testing.assert_array_equal(each.boxes, found[0].boxes)
    assert [each.path for each in found] == [str(path)] * 2 + [None] * 4
    grey = np.full((8, 9), 200, np.uint8)
    assert (
        predictor(grey).classes.tolist() == predictor(grey[..., None]).classes.tolist() == [1, 2, 3]
    )
    assert isinstance(predictor(TWO), Prediction)


def given(values):
    """The same values by every way in."""
    file = io.BytesIO()
    image = Image.fromarray(values)
    image.save(file, 'PNG')
    return [values, values[..., np.newaxis], image, Image.open(file), file.getvalue()]


@rows.parametrize('highest', [255, 4095, 65535])
def test_of_16_bits_the_upper_8_are_seen_by_every_way_in(highest):
    values = np.linspace(0, highest, 48, dtype=np.uint16).reshape(6, 8)
    whole = Image.fromarray(values.astype(np.int32))
    assert whole.mode == 'I'
    for image in [*given(values), whole]:
        seen = images.read(image)
        assert (seen.dtype, seen.shape) == (np.uint8, (6, 8, 3))
        np.testing.assert_array_equal(seen[..., 1], values >> 8)


def test_values_of_a_range_are_the_same_by_every_way_in(tmp_path):
    values = np.linspace(0, 4095, 48, dtype=np.uint16).reshape(6, 8)
    path = tmp_path / 'a.png'
    Image.fromarray(values).save(path)
    floats = values.astype(np.float32)
    others = [path, floats, floats.astype(np.float64), Image.fromarray(floats)]
    for image in [*given(values), *others]:
        seen = images.read(image, value_range=ValueRange(0, 4095))
        assert seen.dtype == np.float32
        np.testing.assert_array_equal(seen, np.repeat(floats[..., np.newaxis], 3, -1))
    eight = images.read(TWO, value_range=ValueRange(0, 4095))
    np.testing.assert_array_equal(eight, TWO)
    path.write_bytes(tf.io.encode_png(np.full((6, 8, 3), 4000, np.uint16)).numpy())
    assert images.read(path, value_range=ValueRange(0, 4095)).min() == 4000
    with (
        Image.open(path) as opened,
        pytest.raises(UserError, match='PIL reads the upper 8 of 16 bits of its colours'),
    ):
        images.read(opened, value_range=ValueRange(0, 4095))
    with pytest.raises(UserError, match=r'of finite numbers .* Received: float32 \[6, 8\]'):
        images.read(np.full((6, 8), np.nan, np.float32), value_range=ValueRange())


def test_a_stream_goes_on_after_images_that_cannot_be_read(predictor, tmp_path):
    image, bad = np.zeros((32, 32, 3), np.uint8), tmp_path / 'bad.jpg'
    bad.write_bytes(b'no image')
    errors = []
    stream = predictor.stream([bad, image, bad, image], on_error=lambda *each: errors.append(each))
    assert len(list(stream)) == 2
    assert [path for path, _ in errors] == [bad, bad]
    assert 'bad.jpg' in str(errors[0][1])
    with pytest.raises(UserError, match=r'bad\.jpg'):
        next(predictor.stream([bad, image]))


def test_photos_are_upright(predictor):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    file = io.BytesIO()
    Image.fromarray(TWO).save(file, 'PNG', exif=exif)
    with Image.open(file) as opened:
        for found in predictor([file.getvalue(), opened]):
            assert found.image.shape == (60, 40, 3)
            np.testing.assert_array_equal(found.image, np.rot90(TWO, -1))


@rows.parametrize(
    ('image', 'message'),
    [
        (np.zeros((4, 4, 3), np.float32), r'expected an array uint8 .* Received: float32 \[4, 4'),
        (np.zeros((4, 4), np.int32), r'others need a model with image_resizer.value_range'),
        (Image.new('F', (4, 4)), r'Received: float32 \[4, 4'),
        (Image.new('I', (4, 4), -1), r'Received: int32 \[4, 4'),
        (np.zeros((2, 4, 4, 3), np.uint8), 'a batch is a list of images'),
        (np.zeros((0, 4, 3), np.uint8), 'is 0 pixels high and 4 wide; expected 1 to'),
        (b'no image', 'the bytes of an image: cannot be decoded'),
        ('nowhere.png', 'nowhere.png: cannot be opened'),
        (3, 'Received: int'),
    ],
)
def test_other_values_are_refused(predictor, image, message):
    with pytest.raises(UserError, match=message):
        predictor(image)


def test_large_images_are_refused_before_they_are_decoded():
    file = io.BytesIO()
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(file, 'PNG')
    # Only the header is there: a decoder would fail with another message.
    for image in (file.getvalue()[:60], np.zeros((20, 30, 3), np.uint8), Image.new('L', (30, 20))):
        with pytest.raises(UserError, match=r'20 pixels high and 30 wide; expected .* 599 pixels'):
            images.read(image, max_pixels=599)


def test_images_of_several_sizes_keep_their_order(predictor):
    sizes = [(40, 60), (30, 30), (40, 60), (50, 20), (30, 30), (40, 60)]
    given = [
        picture(height, width, green=(i, 2 * i, i + 10, 2 * i + 8, 255))
        for i, (height, width) in enumerate(sizes)
    ]
    for found in (predictor.predict_batch(given), list(predictor.stream(iter(given)))):
        for i, each in enumerate(found):
            np.testing.assert_allclose(each.boxes, [[i, 2 * i, i + 10, 2 * i + 8]], atol=1e-4)
            np.testing.assert_array_equal(each.image, given[i])
    assert predictor.predict_batch([]) == predictor([]) == []


def test_a_batch_is_never_larger_than_asked_for(colour_finder, monkeypatch):
    small = Predictor(colour_finder, batch_size=2)
    sizes, run = [], small.detector.run
    monkeypatch.setattr(small.detector, 'run', lambda batch: sizes.append(len(batch)) or run(batch))
    assert len(small.predict_batch([TWO] * 5)) == 5
    assert sizes == [2, 2, 1]


def test_scores_and_classes_are_chosen(predictor, colour_finder):
    assert predictor(TWO, score_threshold=0.9).class_names == ['blue']
    assert len(predictor(TWO, score_threshold=1.0)) == 1
    for classes in (['red'], [1], ['1']):
        assert Predictor(colour_finder, classes=classes)(TWO).class_names == ['red']
    with pytest.raises(UserError, match=r"1 red, 2 green, 3 blue.*Received: 'cat'"):
        Predictor(colour_finder, classes=['cat'])
    with pytest.raises(UserError, match=r'from 0 to 1. Received: 50'):
        predictor(TWO, score_threshold=50)


def test_the_best_threshold_is_that_of_the_model(colour_finder, monkeypatch):
    with pytest.raises(UserError, match="'best' needs a model that was evaluated"):
        Predictor(colour_finder, score_threshold='best')
    load = loading.load

    def load_evaluated(*arguments, **options):
        detector = load(*arguments, **options)
        detector.advised_threshold = 0.9
        return detector

    monkeypatch.setattr(loading, 'load', load_evaluated)
    best = Predictor(colour_finder, score_threshold='best')
    assert best.score_threshold == best.advised_threshold == 0.9
    assert best(TWO).class_names == ['blue']
    assert len(Predictor(colour_finder)(TWO)) == 2
    with pytest.raises(UserError, match="Received: 'better'"):
        Predictor(colour_finder, score_threshold='better')


def test_ids_of_models_without_names_are_taken():
    assert class_ids(['7', 2], classes_of()) == [7, 2]
    with pytest.raises(UserError, match='which has no names'):
        class_ids(['cat'], classes_of())
    with pytest.raises(UserError, match="Received: '9'"):
        class_ids([9], classes_of('cat'))


def classes_of(*names):
    items = ''.join(f"item {{ id: {i} name: '{name}' }}" for i, name in enumerate(names, 1))
    return class_names.parse(items or None)


def test_classes_may_be_given_by_any_of_their_names():
    labels = class_names.parse("item { id: 3 name: '/m/a' display_name: 'Mouse' }")
    assert class_ids(['Mouse', '/m/a', 3], labels) == [3, 3, 3]


def test_threads_share_a_predictor(predictor):
    given = [picture(red=(i, i, i + 5, i + 9, 255)) for i in range(24)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(predictor, given))
    for i, each in enumerate(found):
        np.testing.assert_allclose(each.boxes, [[i, i, i + 5, i + 9]], atol=1e-4)


def test_a_prediction_becomes_coco_results(predictor):
    blue, red = predictor(TWO).to_coco(image_id=7)
    assert (blue['image_id'], blue['category_id'], red['category_id']) == (7, 3, 1)
    np.testing.assert_allclose(blue['bbox'], [30, 20, 20, 16], rtol=1e-6)
    np.testing.assert_allclose(red['keypoints'], [6, 4, 1, 26, 14, 1], rtol=1e-6)
    assert blue['segmentation']['size'] == [40, 60]


def test_a_prediction_becomes_detections_of_supervision(predictor):
    supervision = pytest.importorskip('supervision')
    found = predictor(TWO).to_supervision()
    assert isinstance(found, supervision.Detections)
    np.testing.assert_allclose(found.xyxy, [[30, 20, 50, 36], [6, 4, 26, 14]], rtol=1e-6)
    assert found.data['class_name'].tolist() == ['blue', 'red']
    assert (found.mask.shape, found.class_id.tolist()) == ((2, 40, 60), [3, 1])
    assert len(predictor(np.zeros((9, 9, 3), np.uint8)).to_supervision()) == 0


def test_supervision_that_is_absent_is_named(predictor, monkeypatch):
    monkeypatch.setitem(sys.modules, 'supervision', None)
    with pytest.raises(UserError, match=r"pip install 'supervision>="):
        predictor(TWO).to_supervision()


def test_a_picture_shows_the_boxes(predictor):
    found = predictor(TWO)
    drawn = found.draw()
    assert drawn.size == (480, 320)  # small images are enlarged
    plain = found.annotated()
    assert plain.shape == TWO.shape
    assert (plain[20:36, 30:50] != TWO[20:36, 30:50]).any()
    np.testing.assert_array_equal(found.annotated(min_score=1.1), TWO)
    np.testing.assert_array_equal(TWO, found.image)


def test_the_class_is_imported_without_tensorflow():
    code = 'import sys, object_detection; assert "tensorflow" not in sys.modules'
    subprocess.run([sys.executable, '-c', code], check=True, timeout=60)
    assert object_detection.Predictor is Predictor
    with pytest.raises(AttributeError, match='no attribute'):
        _ = object_detection.nothing


def test_pictures_have_the_lines_of_the_label_map(colour_finder, tmp_path):
    path = tmp_path / 'lines.pbtxt'
    points = "keypoints { id: 0 label: 'a' } keypoints { id: 1 label: 'b' }"
    path.write_text(f"item {{ id: 1 name: 'red' {points} skeleton {{ start: 0 end: 1 }} }}")
    image = np.zeros((600, 600, 3), np.uint8)
    image[100:200, 300:500, 0] = 255
    plain, lined = Predictor(colour_finder), Predictor(colour_finder, label_map=path)
    assert plain.keypoint_edges == ()
    assert lined.keypoint_edges == ((0, 1),)
    pictures = [np.asarray(each(image).draw()) for each in (plain, lined)]
    # The middle of the line between the corners of the box.
    assert (pictures[0][150, 400] != drawing.class_color(1)).any()
    np.testing.assert_array_equal(pictures[1][150, 400], drawing.class_color(1))
