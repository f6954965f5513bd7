"""Pictures of records: what is drawn, and in which brightness."""

import io

import numpy as np
import pytest
from PIL import Image

from object_detection.data import tf_examples
from object_detection.data.record_checks import Expectations
from object_detection.dataset_tools.inspection import check_job, record_pictures
from object_detection.dataset_tools.inspection.label_errors import SPURIOUS, WRONG_CLASS, Suspect
from object_detection.dataset_tools.inspection.summary import Place
from object_detection.resizers.value_range import ValueRange
from object_detection.visualization import drawing
from tests.dataset_tools.inspection.damaged_records import SIZE, example, record

BOXES = [(0.0, 0.0, 1.0, 0.5), (0.0, 0.5, 1.0, 1.0)]
NAMES = {1: 'cat', 2: 'dog'}


@pytest.fixture
def draw(tmp_path, monkeypatch):
    """Draws a record; returns the picture and what was drawn."""

    def draw_one(serialized, text_to_id=None, names=None, value_range=None):
        path = tmp_path / 'a.record'
        path.write_bytes(record(serialized))
        expected = Expectations(text_to_id=text_to_id, value_range=value_range)
        records = check_job.RecordSet('files', [str(path)], expected, names or {})
        drawn = {}

        def draw_instances(image, boxes, classes, **options):
            drawn.update(options, image=image, classes=classes)
            return original(image, boxes, classes, **options)

        original = drawing.draw_instances
        monkeypatch.setattr(drawing, 'draw_instances', draw_instances)
        return record_pictures.draw(records, Place(0, 12)), drawn

    return draw_one


def png(values) -> bytes:
    file = io.BytesIO()
    Image.fromarray(values).save(file, 'PNG')
    return file.getvalue()


@pytest.mark.parametrize('is_png', [True, False])
def test_masks_are_drawn(draw, is_png):
    masks = np.zeros((2, *SIZE), np.uint8)
    masks[0, :, :4], masks[1, 20:] = 1, 1
    if is_png:
        serialized = example(boxes=BOXES, masks=map(png, masks))
    else:
        serialized = example(boxes=BOXES, MASK=tf_examples.float_feature(masks.ravel()))
    picture, drawn = draw(serialized)
    np.testing.assert_array_equal(drawn['masks'], masks)
    assert Image.open(io.BytesIO(picture.jpeg)).size == SIZE[::-1]


def test_damaged_masks_leave_the_boxes(draw):
    picture, drawn = draw(example(boxes=BOXES, masks=[b'no mask'] * 2))
    assert (picture is not None, drawn['masks']) == (True, None)


def test_colours_are_those_of_the_ids(draw):
    """As in pictures of `tfod predict`, `tfod serve` and the report."""
    serialized = example(boxes=BOXES, texts=['dog', 'owl'])
    _, drawn = draw(serialized, {'cat': 1, 'dog': 2}, NAMES)
    assert (drawn['classes'], drawn['names'][2]) == ([2, 'owl'], 'dog')
    _, drawn = draw(example(boxes=BOXES, texts=['dog', 'cat'], labels=[2, 1]))
    assert (drawn['classes'], drawn['names']) == ([2, 1], {2: 'dog', 1: 'cat'})
    _, drawn = draw(example(boxes=BOXES, texts=['dog', 'cat']))
    assert drawn['classes'] == ['dog', 'cat']


@pytest.mark.parametrize(
    ('more', 'name'),
    [({}, 'image 0'), ({'FILENAME': tf_examples.bytes_feature([b'photo.jpg'])}, 'photo.jpg')],
)
def test_pictures_are_named_by_their_files(draw, more, name):
    assert draw(example(boxes=BOXES, **more))[0].name == name


def test_pictures_of_16_bits_are_as_a_model_sees_them(draw):
    serialized = example(boxes=BOXES, encoded=png(np.full(SIZE, 1000, np.uint16)))
    _, drawn = draw(serialized)
    np.testing.assert_array_equal(drawn['image'], np.full((*SIZE, 3), 1000 >> 8))
    _, drawn = draw(serialized, value_range=ValueRange(0, 4000))
    # 63.75, rounded.
    np.testing.assert_array_equal(drawn['image'], np.full((*SIZE, 3), 64))


def test_a_doubted_label_is_drawn_beside_what_the_model_finds(tmp_path):
    """The part around both boxes, enlarged: left in the label's colour, right in the other's."""
    masks = np.zeros((2, *SIZE), np.uint8)
    masks[0, :12, :16] = 1
    boxes = [(0.0, 0.0, 0.5, 0.5), (0.6, 0.6, 0.7, 0.7)]
    grey = png(np.full((*SIZE, 3), 128, np.uint8))
    serialized = example(boxes=boxes, texts=['cat', 'dog'], encoded=grey, masks=map(png, masks))
    path = tmp_path / 'a.record'
    path.write_bytes(record(serialized))
    expected = Expectations(text_to_id={'cat': 1, 'dog': 2})
    records = check_job.RecordSet('files', [str(path)], expected, NAMES)
    found = {'found_class': 2, 'found_box': [0.0, 0.0, 0.5, 0.45], 'found_score': 0.9}
    suspect = Suspect(Place(0, 12), 'a', WRONG_CLASS, 0, 0.8, class_id=1, box=boxes[0], **found)
    picture = record_pictures.draw_suspect(records, suspect)
    assert picture.name == 'image 0'
    pixels = np.asarray(Image.open(io.BytesIO(picture.jpeg))).astype(int)
    half = pixels.shape[1] // 2
    assert half > 400

    def share_of(part, color):
        return (np.abs(part - color).max(axis=-1) < 60).mean()

    cat, dog = (np.array(drawing.class_color(number)) for number in (1, 2))
    left, right = pixels[:, :half], pixels[:, half:]
    assert share_of(left, cat) > 0.01
    assert share_of(right, cat) == 0
    assert share_of(right, dog) > 0.01
    # The mask tints the label; the neighbour has a thin outline, and no name.
    assert share_of(left, 0.55 * 128 + 0.45 * cat) > 0.2
    assert 0 < (np.abs(left[200:, half // 2 :] - 128).max(axis=-1) > 40).mean() < 0.02
    nothing = suspect._replace(kind=SPURIOUS, found_box=None)
    picture = record_pictures.draw_suspect(records, nothing)
    right = np.asarray(Image.open(io.BytesIO(picture.jpeg))).astype(int)[40:, half + 10 :]
    assert np.abs(right - 128).max() < 20
