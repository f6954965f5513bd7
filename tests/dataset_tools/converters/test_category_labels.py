import pytest
from google.protobuf import text_format

from object_detection.data import label_map
from object_detection.data.coco import annotations as coco_categories
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.dataset_tools.converters import conversion
from object_detection.protos import string_int_label_map_pb2
from tests import rows


def _categories(*names: str) -> list[dict]:
    return [{'id': index, 'name': name} for index, name in enumerate(names, start=1)]


def _label_map(text: str) -> string_int_label_map_pb2.StringIntLabelMap:
    return text_format.Parse(text, string_int_label_map_pb2.StringIntLabelMap())


def test_label_map_text_reads_back(tmp_path):
    labels = coco_categories.from_categories(_categories('a', 'it\'s "x"', 'ü'))
    label_map = conversion.label_map_of(labels)
    text = conversion.to_text(label_map)
    assert 'ü' in text
    path = tmp_path / 'map.pbtxt'
    path.write_text(text)
    assert conversion.read_label_map(str(path)) == label_map
    assert [(item.id, item.name) for item in label_map.item] == [
        *((1, 'a'), (2, 'it\'s "x"'), (3, 'ü'))
    ]


def test_keypoints_join_the_label_map_by_their_positions_in_records():
    categories = [
        {'id': 4, 'name': 'cat', 'keypoints': ['nose', 'tail']},
        {'id': 9, 'name': 'x'},
        {'id': 11, 'name': 'dog', 'keypoints': ['ear', 'nose']},
    ]
    labels = coco_categories.from_categories(categories)
    label_map = conversion.label_map_of(labels)
    layout = coco_keypoints.keypoint_layout(categories)
    assert layout.names == ('nose', 'tail', 'ear')
    conversion.add_keypoints(label_map, labels, layout)
    assert label_map == _label_map(
        'item { id: 4 name: "cat" keypoints { id: 0 label: "nose" } '
        'keypoints { id: 1 label: "tail" } } item { id: 9 name: "x" } '
        'item { id: 11 name: "dog" keypoints { id: 2 label: "ear" } '
        'keypoints { id: 0 label: "nose" } }'
    )


def test_label_map_numbers_categories_by_name():
    proto = _label_map(
        'item { id: 3 name: "cat" } item { id: 1 name: "/m/dog" display_name: "dog" }'
    )
    labels = coco_categories.labels_of(
        _categories('dog', 'cow', 'cat'), label_map.classes(proto, 'map')
    )
    assert labels == {1: (1, '/m/dog'), 3: (3, 'cat')}


@rows.parametrize(
    ('text', 'match'),
    [
        ('item { nam: "a" }', 'is not a label map'),
        ('item { id: 1 }', 'needs a name'),
        ('item { name: "a" }', 'expected ids above 0'),
        ('item { id: 1 name: "a" } item { id: 1 name: "b" }', 'must be distinct'),
    ],
)
def test_broken_label_map(tmp_path, text, match):
    path = tmp_path / 'map.pbtxt'
    path.write_text(text)
    with pytest.raises(ValueError, match=match):
        conversion.read_label_map(str(path))


def test_a_label_map_means_here_what_it_means_in_training(tmp_path):
    proto = _label_map(
        'item { id: 0 name: "background" } item { id: 2 display_name: "cat" } '
        'item { id: 5 name: "dog" }'
    )
    path = tmp_path / 'map.bin'
    path.write_bytes(proto.SerializeToString())
    read = conversion.read_label_map(str(path))
    classes = label_map.classes(read, 'map')
    labels = coco_categories.labels_of(_categories('cat', 'dog', 'background', ''), classes)
    assert labels == {1: (2, 'cat'), 2: (5, 'dog')}
    known = label_map.load(path).text_to_id
    assert all(known[label.text] == label.label for label in labels.values())


def test_missing_label_map(tmp_path):
    with pytest.raises(FileNotFoundError, match='There is no label map'):
        conversion.read_label_map(str(tmp_path / 'absent'))


def test_skeletons_join_positions_in_records():
    categories = [
        {'id': 4, 'name': 'cat', 'keypoints': ['nose', 'tail'], 'skeleton': [[1, 2]]},
        {'id': 11, 'name': 'dog', 'keypoints': ['ear', 'nose'], 'skeleton': [[2, 1], [1, 3]]},
        {'id': 12, 'name': 'x', 'keypoints': ['ear'], 'skeleton': [[1], 'ab', None, [0, 1]]},
    ]
    labels = coco_categories.from_categories(categories)
    label_map = conversion.label_map_of(labels)
    layout = coco_keypoints.keypoint_layout(categories)
    conversion.add_keypoints(label_map, labels, layout)
    lines = [[(edge.start, edge.end) for edge in item.skeleton] for item in label_map.item]
    # What is no line between two of a category's own keypoints is left out.
    assert lines == [[(0, 1)], [(0, 2)], []]


def test_persons_without_names_of_keypoints_have_those_of_coco():
    categories = [{'id': 1, 'name': 'person'}, {'id': 2, 'name': 'ball'}]
    labels = coco_categories.from_categories(categories)
    label_map = conversion.label_map_of(labels)
    layout = coco_keypoints.keypoint_layout(categories)
    conversion.add_keypoints(label_map, labels, layout)
    person, ball = label_map.item
    assert [point.label for point in person.keypoints] == list(coco_keypoints.PERSON_KEYPOINTS)
    assert not ball.keypoints
