import dataclasses

import numpy as np
import pytest

from object_detection.data import annotated_image, tf_examples
from object_detection.data.annotated_image import AnnotatedImage
from tests import rows
from tests.dataset_tools import records


def _image(count: int, **others) -> AnnotatedImage:
    fields = {
        'encoded': b'file',
        'format': 'png',
        'height': 30,
        'width': 40,
        'file_name': 'a.png',
        'source_id': '5',
        'boxes': np.tile([[0.1, 0.2, 0.5, 0.6]], (count, 1)),
        'class_texts': ('cat',) * count,
        'class_labels': np.full(count, 3),
        'is_crowd': np.ones(count, bool),
        'areas': np.full(count, 12.5),
    }
    return AnnotatedImage(**fields | others)


@rows.parametrize(
    ('name', 'value'),
    [
        ('class_texts', ('cat',)),
        ('areas', np.zeros(3)),
        ('masks', (b'',)),
        ('keypoints', np.zeros((1, 4, 2))),
        ('densepose', ()),
    ],
)
def test_every_field_has_one_entry_a_box(name, value):
    with pytest.raises(ValueError, match=f'expected 2 entries of `{name}`.*{len(value)}'):
        dataclasses.replace(_image(2), **{name: value})


def test_what_an_image_does_not_have_is_not_written():
    features = records.parse(tf_examples.to_example(_image(2)))
    assert len(features) == 15
    assert not [key for key in features if 'mask' in key or 'keypoint' in key or 'dense' in key]
    assert features['image/object/class/label'] == [3, 3]
    assert features['image/object/is_crowd'] == [1, 1]


def test_keypoints_and_densepose_go_object_by_object():
    image = _image(
        2,
        keypoint_names=('nose', 'tail'),
        keypoints=np.arange(8).reshape(2, 2, 2) / 10,
        keypoint_visibilities=np.array([[2, 1], [0, 2]]),
        num_keypoints=np.array([2, 1]),
        densepose=(np.zeros((0, 5)), np.array([[3, 0.1, 0.2, 0.3, 0.4]])),
    )
    features = records.parse(tf_examples.to_example(image))
    np.testing.assert_allclose(features['image/object/keypoint/y'], [0, 0.2, 0.4, 0.6], rtol=1e-6)
    np.testing.assert_allclose(features['image/object/keypoint/x'], [0.1, 0.3, 0.5, 0.7], rtol=1e-6)
    assert features['image/object/keypoint/visibility'] == [2, 1, 0, 2]
    assert features['image/object/keypoint/text'] == [b'nose', b'tail'] * 2
    assert features['image/object/densepose/num'] == [0, 1]
    assert features['image/object/densepose/part_index'] == [3]


# Of images 40 wide and 20 high: [ymin, xmin, ymax, xmax] in pixels, and what is counted.
_COUNTED = {
    'relative': ([0.1, 0.2, 0.6, 0.9], 'boxes_in_first_pixel'),
    'the whole pixel': ([0, 0, 1, 1], None),
    'a thin box elsewhere': ([0, 30, 0.5, 40], None),
    'left': ([5, 0, 10, 10], 'boxes_clipped_left_or_above'),
    'below': ([5, 5, 20, 10], 'boxes_clipped_at_end_of_short_side'),
    'right': ([5, 30, 10, 40], 'boxes_clipped_right_or_below'),
    'below and right': ([5, 30, 20, 40], 'boxes_clipped_right_or_below'),
}


@rows.parametrize('name', _COUNTED)
def test_boxes_of_another_convention_are_counted(name):
    box, kind = _COUNTED[name]
    box, is_clipped = np.array([box]) / [20, 40, 20, 40], np.array([name[0] in 'lbr'])
    is_clipped &= name != 'relative'
    found = annotated_image.notes_of_boxes(box, is_clipped, 20, 40)
    assert found == ({kind: 1} if kind else {})
    # The shorter side of an upright image is its width; a square has none.
    upright = annotated_image.notes_of_boxes(box[:, [1, 0, 3, 2]], is_clipped, 40, 20)
    assert upright == found
    assert 'boxes_clipped_at_end_of_short_side' not in annotated_image.notes_of_boxes(
        box, is_clipped, 20, 20
    )


def test_no_boxes_count_as_nothing():
    nothing = annotated_image.notes_of_boxes(np.zeros((0, 4)), np.zeros(0, bool), 20, 40)
    assert nothing == {}
