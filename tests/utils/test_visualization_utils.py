import inspect
import io

import numpy as np
import pytest
from PIL import Image

from object_detection.errors import UserError
from object_detection.utils import visualization_utils as viz
from object_detection.visualization import drawing
from tests import rows

BOXES = np.array([[0.25, 0.25, 0.75, 0.75], [0.0, 0.0, 0.2, 0.2], [0.8, 0.8, 1.0, 1.0]])
BOTH = ['cat: 80%', 'dog: 90%']
INDEX = {1: {'id': 1, 'name': 'dog'}, 2: {'id': 2, 'name': 'cat'}}


def black(side=100):
    return np.zeros((side, side, 3), np.uint8)


def draw(image, classes=(1, 2, 1), scores=(0.9, 0.8, 0.5), **options):
    options = {'use_normalized_coordinates': True, 'line_thickness': 2} | options
    scores = None if scores is None else np.array(scores)
    return viz.visualize_boxes_and_labels_on_image_array(
        image, BOXES, np.array(classes), scores, INDEX, **options
    )


def test_the_image_is_changed_and_returned():
    image = black()
    assert draw(image) is image
    # The box covers the rows and columns 25 to 74, with lines of 2 pixels.
    np.testing.assert_array_equal(image[50, 25], drawing.class_color(1))
    np.testing.assert_array_equal(image[50, 74], drawing.class_color(1))
    np.testing.assert_array_equal(image[27:73, 27:73], 0)
    np.testing.assert_array_equal(image[19, 10], drawing.class_color(2))
    # A score of min_score_thresh does not exceed it.
    np.testing.assert_array_equal(image[90, 80], 0)


def test_arguments_are_those_of_the_reference():
    expected = """
    image boxes classes scores category_index instance_masks instance_boundaries keypoints
    keypoint_scores keypoint_edges track_ids use_normalized_coordinates max_boxes_to_draw
    min_score_thresh agnostic_mode line_thickness mask_alpha groundtruth_box_visualization_color
    skip_boxes skip_scores skip_labels skip_track_ids
    """
    names = inspect.signature(viz.visualize_boxes_and_labels_on_image_array).parameters
    assert list(names) == expected.split()


def test_boxes_in_pixels_equal_normalized_ones():
    pixels = viz.visualize_boxes_and_labels_on_image_array(
        black(), BOXES * 100, np.array([1, 2, 1]), np.array([0.9, 0.8, 0.5]), INDEX,
        line_thickness=2,
    )  # fmt: skip
    np.testing.assert_array_equal(pixels, draw(black()))


@rows.parametrize(
    ('options', 'texts'),
    [
        ({}, BOTH),
        ({'skip_scores': True}, ['cat', 'dog']),
        ({'skip_labels': True}, ['80%', '90%']),
        ({'agnostic_mode': True}, ['80%', '90%']),
        ({'skip_labels': True, 'skip_scores': True}, ['', '']),
        ({'track_ids': [7, 8, 9]}, ['cat: 80%: ID 8', 'dog: 90%: ID 7']),
        ({'track_ids': [7, 8, 9], 'skip_track_ids': True}, ['cat: 80%', 'dog: 90%']),
        ({'classes': (3, 2, 1)}, ['cat: 80%', 'N/A: 90%']),
        ({'max_boxes_to_draw': 1}, ['dog: 90%']),
        ({'max_boxes_to_draw': None, 'min_score_thresh': 0.4}, ['dog: 50%', *BOTH]),
        ({'scores': None}, ['', '', '']),
    ],
)  # fmt: skip
def test_labels(monkeypatch, options, texts):
    drawn = []
    monkeypatch.setattr(drawing, 'paint', lambda image, rows, *_: drawn.extend(rows) or image)
    draw(black(), **options)
    assert [each.label for each in drawn] == texts
    if options.get('scores', ...) is None:
        assert {each.color for each in drawn} == {(0, 0, 0)}


def test_masks_keypoints_and_boundaries():
    masks = np.zeros((3, 100, 100), np.uint8)
    masks[0, 40:60, 40:60] = 1
    points = np.full((3, 2, 2), 0.5)
    points[0] = [[0.45, 0.45], [0.55, 0.45]]
    image = draw(
        black(),
        instance_masks=masks,
        keypoints=points,
        keypoint_scores=np.array([[0.9, 0.9], [0.1, 0.1], [0.1, 0.1]]),
        keypoint_edges=[(0, 1)],
        skip_boxes=True,
        skip_labels=True,
        skip_scores=True,
    )
    color = np.array(drawing.class_color(1))
    np.testing.assert_array_equal(image[50, 55], np.rint(0.4 * color))
    np.testing.assert_array_equal(image[50, 45], color)  # On the line between the keypoints.
    np.testing.assert_array_equal(image[:39], 0)
    edged = draw(black(), instance_boundaries=masks, skip_labels=True, skip_scores=True)
    np.testing.assert_array_equal(edged[50, 50], (255, 0, 0))


def test_single_drawing_functions():
    image = black()
    viz.draw_bounding_box_on_image_array(image, 10, 20, 30, 40, 'lime', 1, ['a'], False)
    np.testing.assert_array_equal(image[20, 20], (0, 255, 0))
    viz.draw_bounding_boxes_on_image_array(image, BOXES[:1], color='blue', thickness=2)
    np.testing.assert_array_equal(image[50, 25], (0, 0, 255))
    viz.draw_keypoints_on_image_array(image, np.array([[0.5, 0.5], [0.9, 0.5]]), radius=2)
    np.testing.assert_array_equal(image[[50, 90], 50], [(255, 0, 0)] * 2)
    mask = np.zeros((100, 100), np.uint8)
    mask[60, 60] = 1
    viz.draw_mask_on_image_array(image, mask, color='white', alpha=0.4)
    np.testing.assert_array_equal(image[60, 60:62], [(102,) * 3, (0,) * 3])
    picture = Image.fromarray(black())
    viz.draw_bounding_box_on_image(picture, 0.25, 0.25, 0.75, 0.75, color='blue', thickness=2)
    assert picture.getpixel((25, 50)) == (0, 0, 255)


def test_pictures_are_encoded(tmp_path):
    image = draw(black())
    viz.save_image_array_as_png(image, str(tmp_path / 'a.png'))
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / 'a.png')), image)
    content = viz.encode_image_array_as_png_str(image)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(content))), image)


@rows.parametrize('image', [black().astype(float), black()[..., 0], np.asarray([1]), 'a.png'])
def test_only_images_that_can_be_drawn_on(image):
    with pytest.raises(UserError, match=r'uint8 \[H, W, 3\]'):
        draw(image)


def test_a_read_only_image_is_an_error():
    image = black()
    image.flags.writeable = False
    with pytest.raises(UserError, match='copy'):
        draw(image)


def test_standard_colors_are_names_of_colours():
    assert len(viz.STANDARD_COLORS) > 50
    viz.draw_bounding_box_on_image_array(black(), 0, 0, 1, 1, color=viz.STANDARD_COLORS[-1])
