import numpy as np
import pytest

from object_detection.metrics.mask_pasting import paste_mask
from object_detection.visualization import drawing
from tests import rows

GREY = 100
BOXES = np.array([[20.0, 30.0, 60.0, 90.0], [70.0, 10.0, 110.0, 50.0]])


def _image(height=120, width=160):
    return np.full((height, width, 3), GREY, np.uint8)


def _changed(picture, image):
    return (picture != image).any(axis=-1)


def _has_color(picture, class_id):
    return bool((picture == drawing.class_color(class_id)).all(axis=-1).any())


def test_box_is_drawn_in_its_color_around_its_pixels():
    image = _image()
    picture = drawing.draw_instances(image, BOXES[:1], [3], line_thickness=1)
    assert picture.dtype == np.uint8
    assert picture.shape == image.shape
    color = np.array(drawing.class_color(3))
    for row, column in [(59, 31), (59, 89), (40, 30), (40, 89)]:
        np.testing.assert_array_equal(picture[row, column], color)
    assert not _changed(picture, image)[22:58, 32:88].any()
    assert not _changed(picture, image)[60:].any()
    assert (image == GREY).all()


def test_colors_are_rgb_stable_and_distinct():
    assert drawing.class_color(0) == (255, 38, 38)
    assert drawing.class_color('dog') == drawing.class_color('dog')
    assert drawing.class_color(1) == drawing.class_color(np.int64(1))
    colors = np.array([drawing.class_color(i) for i in range(1, 13)], int)
    distances = np.abs(colors[:, None] - colors[None]).sum(-1) + 999 * np.eye(12, dtype=int)
    assert distances.min() > 40


@rows.parametrize('form', ['probabilities', 'pasted', 'bool'])
def test_mask_tints_its_pixels_alone(form):
    image = _image()
    probabilities = np.zeros((28, 28), np.float32)
    probabilities[:, :14] = 1
    pasted = paste_mask(probabilities, BOXES[0], 120, 160)
    mask = {'probabilities': probabilities, 'pasted': pasted, 'bool': pasted > 0}[form]
    picture = drawing.draw_instances(image, BOXES[:1], [1], masks=[mask], line_thickness=1)
    inside = np.zeros((120, 160), bool)
    inside[22:58, 32:88] = True
    np.testing.assert_array_equal(_changed(picture, image) & inside, (pasted > 0) & inside)
    color = np.array(drawing.class_color(1))
    np.testing.assert_array_equal(picture[40, 45], np.rint(GREY * 0.55 + color * 0.45))


def test_low_scores_and_surplus_instances_are_left_out():
    image = _image()
    scores = np.array([0.4, 0.8])
    picture = drawing.draw_instances(image, BOXES, [1, 2], scores=scores)
    assert not _has_color(picture, 1)
    assert _has_color(picture, 2)
    picture = drawing.draw_instances(image, BOXES, [1, 2], scores=scores, min_score=0, max_boxes=1)
    assert not _has_color(picture, 1)
    assert _has_color(picture, 2)


def test_classes_by_number_name_or_not_at_all():
    by_id = drawing.draw_instances(_image(), BOXES, np.array([1, 2]), names={1: 'dog', 2: 'cat'})
    assert _has_color(by_id, 1)
    assert _has_color(by_id, 2)
    by_name = drawing.draw_instances(_image(), BOXES, ['dog', 'cat'])
    assert _has_color(by_name, 'dog')
    without = drawing.draw_instances(_image(), BOXES, None)
    assert _has_color(without, 'object')


def test_labels_do_not_cover_each_other():
    boxes = np.array([[50.0, 20.0, 100.0, 80.0], [52.0, 22.0, 98.0, 78.0]])
    image = _image()
    one = drawing.draw_instances(image, boxes[1:], [1], names={1: 'elephant'}, line_thickness=1)
    # The label above the box is drawn above both, the other one elsewhere.
    two = drawing.draw_instances(image, boxes, [1, 1], names={1: 'elephant'}, line_thickness=1)
    assert _changed(two, image).sum() > 1.7 * _changed(one, image).sum()


@rows.parametrize(
    'box',
    [[-50, -50, 500, 500], [200, 200, 300, 300], [0, 0, 0, 0], [60, 60, 20, 20], [np.nan] * 4],
)
def test_boxes_of_any_kind(box):
    masks = [np.ones((4, 4), np.float32)]
    picture = drawing.draw_instances(_image(), np.array([box], float), [1], masks=masks)
    assert picture.shape == (120, 160, 3)


@rows.parametrize('size', [(1, 1), (4, 300)])
def test_images_smaller_than_a_label(size):
    picture = drawing.draw_instances(_image(*size), [[0, 0, 1, 1]], [1], names={1: 'elephant'})
    assert picture.shape == (*size, 3)


def test_no_instances():
    image = _image()
    empty = np.zeros((0, 4))
    picture = drawing.draw_instances(image, empty, [], scores=np.zeros(0), masks=[])
    np.testing.assert_array_equal(picture, image)


@rows.parametrize('form', ['probabilities', 'pasted'])
def test_scale_enlarges_all(form):
    probabilities = np.ones((8, 8), np.float32)
    pasted = paste_mask(probabilities, BOXES[0], 120, 160)
    masks = [probabilities if form == 'probabilities' else pasted]
    picture = drawing.draw_instances(_image(), BOXES[:1], [1], masks=masks, scale=3)
    assert picture.shape == (360, 480, 3)
    changed = _changed(picture, _image(360, 480))
    assert changed[65:175, 95:265].all()
    assert not changed[185:].any()


def test_grey_image_of_one_channel_is_drawn_as_three_equal_ones():
    picture = drawing.draw_instances(_image()[..., :1], BOXES, [1, 2])
    np.testing.assert_array_equal(picture, drawing.draw_instances(_image(), BOXES, [1, 2]))


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r'\[H, W, 3\]. Received: float32'):
        drawing.draw_instances(_image().astype(np.float32), BOXES, [1, 2])
    with pytest.raises(ValueError, match=r'scores: expected 2 rows, one a box\. Received: 1'):
        drawing.draw_instances(_image(), BOXES, [1, 2], scores=np.ones(1))
    with pytest.raises(ValueError, match='size of the image'):
        drawing.draw_instances(_image(), BOXES, [1, 2], masks=np.ones((2, 28, 28), np.uint8))


def test_side_by_side():
    left, right = _image(width=160), np.zeros((120, 80, 3), np.uint8)
    picture = drawing.side_by_side(left, right)
    bar = picture.shape[0] - 120
    np.testing.assert_array_equal(picture[bar:, :160], left)
    np.testing.assert_array_equal(picture[bar:, -80:], right)
    assert (picture[:bar] < 128).any()
    with pytest.raises(ValueError, match='one height'):
        drawing.side_by_side(left, right[:50])


def test_keypoints_are_dots_of_the_class_and_those_not_finite_are_left_out():
    image, points = _image(), np.full((2, 3, 2), np.nan)
    points[0, 1] = [40.0, 60.0]
    plain = drawing.draw_instances(image, BOXES, [1, 2], names={1: '', 2: ''})
    arguments = {'names': {1: '', 2: ''}, 'keypoints': points}
    picture = drawing.draw_instances(image, BOXES, [1, 2], line_thickness=4, **arguments)
    np.testing.assert_array_equal(picture[40, 60], drawing.class_color(1))
    thin = drawing.draw_instances(image, BOXES, [1, 2], line_thickness=1, **arguments)
    rows, columns = np.nonzero(_changed(thin, plain))
    assert rows.size > 0
    assert max(np.abs(rows - 39.5).max(), np.abs(columns - 59.5).max()) <= 2
    large = drawing.draw_instances(image, BOXES, [1, 2], scale=3, **arguments)
    assert _changed(large, _image(360, 480))[115:125, 175:185].any()
    with pytest.raises(ValueError, match=r'keypoints: expected .* one a box'):
        drawing.draw_instances(image, BOXES, [1, 2], keypoints=points[:1])


def test_an_empty_name_is_not_drawn():
    image = _image()
    picture = drawing.draw_instances(image, BOXES[:1], [1], names={1: ''}, line_thickness=1)
    outline = np.zeros((120, 160), bool)
    outline[20:60, 30:90] = True
    outline[21:59, 31:89] = False
    np.testing.assert_array_equal(_changed(picture, image), outline)


def test_opacity_of_masks():
    masks = [np.ones((28, 28), np.float32)]
    picture = drawing.draw_instances(_image(), BOXES[:1], [1], masks=masks, mask_opacity=0.1)
    expected = np.rint(GREY * 0.9 + np.array(drawing.class_color(1)) * 0.1)
    np.testing.assert_array_equal(picture[40, 60], expected)


def test_row_and_stack():
    pictures = [np.full((20, 40, 3), 7, np.uint8), np.full((10, 20, 3), 9, np.uint8)]
    row = drawing.row(pictures, 40)
    # Gaps of 2 pixels.
    assert row.shape == (24, 86, 3)
    np.testing.assert_array_equal(row[2:22, 2:42], pictures[0])
    np.testing.assert_array_equal(row[7:17, 54:74], pictures[1])
    assert (row == 255).all(axis=-1).sum() == 24 * 86 - 20 * 40 - 10 * 20
    titled = drawing.row(pictures, 40, title='title', captions=['a', 'b'])
    top = titled.shape[0] - row.shape[0]
    assert top > 20
    assert (titled[:12] < 128).any()
    assert (titled[-12:] < 128).any()
    with pytest.raises(ValueError, match='argument'):
        drawing.row(pictures, 40, captions=['a'])
    stacked = drawing.stacked([row, pictures[0]])
    np.testing.assert_array_equal(stacked[:24], row)
    np.testing.assert_array_equal(stacked[24:, :40], pictures[0])
    assert (stacked[24:, 40:] == 255).all()


def test_lines_join_keypoints_that_are_both_finite():
    image, points = _image(), np.full((2, 3, 2), np.nan)
    points[0, 0], points[0, 2] = [30.0, 40.0], [30.0, 80.0]
    options = {'names': {1: '', 2: ''}, 'keypoints': points, 'line_thickness': 1}
    dots = drawing.draw_instances(image, BOXES, [1, 2], **options)
    # The second edge has no end, and the third is of keypoints that there are not.
    lined = drawing.draw_instances(image, BOXES, [1, 2], edges=[(0, 2), (0, 1), (2, 9)], **options)
    rows, columns = np.nonzero(_changed(lined, dots))
    assert set(rows) == {30}
    assert 40 < columns.min() <= 44
    assert 76 <= columns.max() < 80
    np.testing.assert_array_equal(lined[30, 60], drawing.class_color(1))


def test_doubtful_keypoints_are_not_drawn():
    points = np.ones((1, 3, 2))
    visible = drawing.visible_keypoints(points, np.array([[0.0, 0.05, 0.06]]))
    np.testing.assert_array_equal(np.isfinite(visible[0]).all(-1), [False, False, True])
    np.testing.assert_array_equal(drawing.visible_keypoints(points, None), points)
