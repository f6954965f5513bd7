import numpy as np

from object_detection.visualization import drawing
from tests import rows

GREY = 100


def _example(**fields):
    """An object of class 2 in rows 20 to 60 and columns 30 to 110 of an image of 80 x 120."""
    return {
        'image': np.full((80, 120, 3), GREY, np.float32),
        'groundtruth_boxes': np.array([[0.25, 0.25, 0.75, 0.9]], np.float32),
        'groundtruth_classes': np.array([[0.0, 1.0, 0.0]], np.float32),
        **fields,
    }


def _changed(picture):
    return (picture != GREY).any(axis=-1)


def test_class_ids_and_one_hot_classes_give_the_same_picture():
    one_hot = drawing.draw(_example(), {2: 'cat'})
    assert (one_hot == drawing.class_color(2)).all(axis=-1).any()
    ids = drawing.draw(_example(groundtruth_classes=np.array([2])), {2: 'cat'})
    np.testing.assert_array_equal(ids, one_hot)


@rows.parametrize('scale', [1.0, 0.5, 2.0])
def test_masks_of_both_forms_are_drawn_at_the_same_place(scale):
    crops = np.zeros((1, 28, 28), np.uint8)
    crops[:, :, :14] = 255
    masks = np.zeros((1, 80, 120), np.uint8)
    masks[:, 20:60, 30:69] = 1
    pictures = [
        drawing.draw(_example(**{f'groundtruth_instance_{name}': value}), {2: ''}, scale=scale)
        for name, value in (('mask_crops', crops), ('masks', masks))
    ]
    for picture in pictures:
        changed = _changed(picture)
        assert changed.shape == (80 * scale, 120 * scale)
        size = round(scale * 10)
        # Inside of the mask, and inside of the box beside the mask.
        assert changed[3 * size : 5 * size, 4 * size : 6 * size].all()
        assert not changed[3 * size : 5 * size, 8 * size : 10 * size].any()


def test_visible_keypoints_are_dots_and_others_are_left_out():
    keypoints = np.array([[[0.5, 0.5], [0.5, 0.75], [np.nan, np.nan]]], np.float32)
    visible = np.array([[True, False, False]])
    picture = drawing.draw(
        _example(groundtruth_keypoints=keypoints, groundtruth_keypoint_visibilities=visible),
        {2: ''},
        line_thickness=2,
    )
    changed = _changed(picture)[25:55, 35:100]
    rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
    # A dot around row 40 and column 60.
    assert (rows.min() + 25, rows.max() + 25) == (37, 42)
    assert (columns.min() + 35, columns.max() + 35) == (57, 62)


@rows.parametrize(('channels', 'drawn'), [(1, 1), (2, 1), (3, 3), (5, 3)])
def test_values_are_clipped_and_further_channels_left_out(channels, drawn):
    image = np.full((4, 4, channels), -3.0)
    image[0, 0] = [400.0, 7.4, 90.0, 0.0, 0.0][:channels]
    empty = {
        'groundtruth_boxes': np.zeros((0, 4), np.float32),
        'groundtruth_classes': np.zeros((0, 3), np.float32),
        'groundtruth_instance_masks': np.zeros((0, 4, 4), np.uint8),
    }
    picture = drawing.draw({'image': image, **empty})
    expected = [255, 7, 90] if drawn == 3 else [255, 255, 255]
    np.testing.assert_array_equal(picture[0, 0], expected)
    assert not picture[1:].any()


def test_an_image_of_a_pixel_stays_one():
    example = _example(image=np.zeros((1, 1, 3), np.uint8))
    assert drawing.draw(example, scale=0.1).shape == (1, 1, 3)
