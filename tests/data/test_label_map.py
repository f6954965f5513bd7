import importlib.resources

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.data import label_map
from object_detection.protos import string_int_label_map_pb2
from tests import goldens

DATA = importlib.resources.files('object_detection') / 'data'


@pytest.fixture
def load(tmp_path):
    def load_content(content):
        path = tmp_path / 'label_map.pbtxt'
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return label_map.load(path)

    return load_content


def test_names_ids_and_display_names(load):
    labels = load("item { name: 'b' id: 5 display_name: 'B' } item { name: 'a' id: 2 }")
    assert labels.categories == [{'id': 5, 'name': 'B'}, {'id': 2, 'name': 'a'}]
    assert labels.name_to_id == {'b': 5, 'a': 2}
    assert labels.text_to_id == {'b': 5, 'B': 5, 'a': 2}


def test_classes_that_share_a_displayed_name_are_told_apart_by_their_names(load):
    """Open Images has two classes "Mouse"; as a text of a record, it would mean either."""
    labels = load(
        "item { name: '/m/a' id: 1 display_name: 'Mouse' } item { name: 'Mole' id: 2 }"
        "item { name: '/m/b' id: 3 display_name: 'Mouse' }"
        "item { name: '/m/c' id: 4 display_name: 'Mole' }"
        "item { name: 'Rat' id: 5 display_name: 'Rodent' } item { id: 6 display_name: 'Vole' }"
    )
    names = ['Mouse (/m/a)', 'Mole', 'Mouse (/m/b)', 'Mole (/m/c)', 'Rodent', 'Vole']
    assert labels.names == dict(enumerate(names, 1))
    # What is displayed is a text of its class too.
    texts = {'/m/a': 1, '/m/b': 3, '/m/c': 4, 'Rat': 5}
    assert labels.text_to_id == texts | {name: number for number, name in labels.names.items()}


def test_an_item_that_repeats_another_one_is_named(load):
    with pytest.raises(ValueError, match="Received: 'a' = 3 and 'a' = 1"):
        load("item { name: 'a' id: 1 } item { name: 'b' id: 2 } item { name: 'a' id: 3 }")
    with pytest.raises(ValueError, match="Received: 'c' = 2 and 'b' = 2"):
        load("item { name: 'a' id: 1 } item { name: 'b' id: 2 } item { name: 'c' id: 2 }")


def test_background_may_have_id_zero_and_is_no_category(load):
    labels = load("item { name: 'background' id: 0 } item { name: 'a' id: 1 }")
    assert labels.categories == [{'id': 1, 'name': 'a'}]
    assert labels.name_to_id == {'background': 0, 'a': 1}


def test_binary_label_maps_are_read(load):
    proto = text_format.Parse(
        "item { name: 'a' id: 1 }", string_int_label_map_pb2.StringIntLabelMap()
    )
    assert load(proto.SerializeToString()).name_to_id == {'a': 1}


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ("item { name: 'bg' id: 0 }", "'bg' = 0"),
        ("item { name: 'a' id: -1 }", "'a' = -1"),
        ("item { name: 'a' id: 1 } item { name: 'b' id: 1 }", 'must be distinct'),
        ("item { name: 'a' id: 1 } item { name: 'a' id: 2 }", 'must be distinct'),
        ('item { id: 1 }', 'needs a name'),
        ('', 'at least one `item`'),
        ('not a label map', 'is not a label map'),
    ],
)
def test_unusable_label_maps_are_errors(load, text, message):
    with pytest.raises(ValueError, match=message):
        load(text)


def test_a_missing_file_is_an_error():
    with pytest.raises(ValueError, match=r'nowhere\.pbtxt cannot be read'):
        label_map.load('nowhere.pbtxt')


# The reference takes the first (last) of two items with the same id (name), and items without any
# name; these are errors here.
STRICTER = {'duplicate_id', 'duplicate_name', 'no_name'}


@goldens.rows('label_maps')
def test_matches_the_reference(load, case_name):
    params = goldens.load('label_maps', case_name).params
    expected = params.get('dict', params.get('get_label_map_dict'))
    if case_name in STRICTER or 'raises' in expected:
        with pytest.raises(ValueError, match='abel map'):
            load(params['text'])
        return
    labels = load(params['text'])
    assert labels.name_to_id == expected
    categories = params.get('categories5', params.get('categories_max10'))
    assert labels.categories == categories
    if 'keypoint_label_map' in params:
        assert label_map.keypoint_ids(labels, '') == params['keypoint_label_map']
        above, below = map(np.array, params['hierarchy_no_identity'])
        for related, table in ((labels.ancestors, above), (labels.descendants, below)):
            ids = [set(1 + np.flatnonzero(row)) for row in table]
            assert ids == [related.get(number, set()) for number in range(1, 1 + len(ids))]


def test_frequency_and_instance_count_are_kept(load):
    labels = load("item { name: 'a' id: 1 frequency: FREQUENT instance_count: 7 }")
    assert labels.categories == [{'id': 1, 'name': 'a', 'frequency': 'f', 'instance_count': 7}]


def test_classes_above_are_found_over_several_steps(load):
    labels = load(
        "item { name: 'poodle' id: 1 ancestor_ids: 2 } item { name: 'dog' id: 2 ancestor_ids: 3 }"
        "item { name: 'animal' id: 3 descendant_ids: 2 }"
    )
    assert labels.ancestors == {1: {2, 3}, 2: {3}}
    assert labels.descendants == {3: {2}}
    label_map.check_hierarchy(labels, 'map')


@pytest.mark.parametrize(
    ('text', 'received'),
    [("item { name: 'a' id: 1 }", 'none'), ("item { name: 'a' id: 1 ancestor_ids: 9 }", '9')],
)
def test_a_hierarchy_needs_ids_of_items(load, text, received):
    with pytest.raises(ValueError, match=rf'expected ids of items in the hierarchy.*{received}'):
        label_map.check_hierarchy(load(text), 'map')


@pytest.mark.parametrize(
    ('keypoints', 'received'),
    [
        ('', 'none'),
        ("keypoints { id: -1 label: 'nose' }", 'nose'),
        ("keypoints { id: 0 label: 'nose' } keypoints { id: 0 label: 'ear' }", 'ear'),
    ],
)
def test_keypoints_need_one_position_for_each_name(load, keypoints, received):
    labels = load(f"item {{ name: 'a' id: 1 {keypoints} }}")
    with pytest.raises(ValueError, match=f'map: expected.*{received}'):
        label_map.keypoint_ids(labels, 'map')


def test_the_same_keypoint_of_two_classes_is_refused(load):
    text = "item {{ name: '{0}' id: {1} keypoints {{ id: {2} label: 'nose' }} }}"
    same = load(text.format('a', 1, 0) + text.format('b', 2, 0))
    assert label_map.keypoint_ids(same, 'map') == {'nose': 0}
    other = load(text.format('a', 1, 0) + text.format('b', 2, 1))
    with pytest.raises(ValueError, match="'nose' = 1"):
        label_map.keypoint_ids(other, 'map')


def test_label_map_of_another_file_system():
    tf.io.gfile.GFile('ram://maps.pbtxt', 'w').write('item { id: 1 name: "cat" }')
    assert label_map.load('ram://maps.pbtxt').name_to_id == {'cat': 1}
    with pytest.raises(ValueError, match=r'Label map ram://absent.pbtxt cannot be read'):
        label_map.load('ram://absent.pbtxt')


def keypoints(*names: str, first: int = 0) -> str:
    return ''.join(
        f"keypoints {{ id: {place} label: '{name}' }} " for place, name in enumerate(names, first)
    )


def test_lines_between_keypoints(load):
    person = keypoints('nose', 'left_eye', 'right_eye', 'tail')
    labels = load(f"item {{ name: 'a' id: 1 {person} }}")
    # Those of COCO's persons, where both ends are there.
    assert label_map.keypoint_edges(labels) == ((1, 2), (0, 1), (0, 2))
    own = 'skeleton { start: 0 end: 3 } skeleton { start: 1 end: 0 }'
    other = f"item {{ name: 'b' id: 2 {keypoints('left_eye', 'nose', first=4)} }}"
    labels = load(f"item {{ name: 'a' id: 1 {person} {own} }} {other}")
    assert label_map.keypoint_edges(labels) == ((0, 3), (1, 0), (5, 4))
    assert label_map.keypoint_edges(load("item { name: 'a' id: 1 }")) == ()


@pytest.mark.parametrize(
    ('names', 'expected'),
    [
        (('nose', 'left_eye', 'right_eye'), (0, 2, 1)),
        (('Left Knee', 'tail', 'right knee'), (2, 1, 0)),
        (('top-left', 'top-right', 'bottom-right', 'bottom-left'), (1, 0, 3, 2)),
        # No names that tell, one without its counterpart, and two sides of different things.
        (('p0', 'p1'), None),
        (('nose', 'left_eye'), None),
        (('left_eye', 'right_ear'), None),
        (('upright', 'leftover'), None),
    ],
)
def test_keypoints_that_take_each_others_place_in_the_mirror(load, names, expected):
    labels = load(f"item {{ name: 'a' id: 1 {keypoints(*names)} }}")
    assert label_map.mirrored_keypoints(labels, len(names)) == expected
    # All positions of a record need a name.
    assert label_map.mirrored_keypoints(labels, len(names) + 1) is None


def test_classes_that_share_keypoints_are_mirrored(load):
    cat = "item { name: 'cat' id: 1 " + keypoints('nose', 'left_ear', 'right_ear') + '}'
    dog = "item { name: 'dog' id: 2 " + keypoints('right_ear', 'tail', first=2) + '}'
    assert label_map.mirrored_keypoints(load(cat + dog), 4) == (0, 2, 1, 3)


def test_classes_have_sides_of_their_own():
    labels = label_map.load(str(DATA / 'face_person_with_keypoints_label_map.pbtxt'))
    sides = (1, 0, 2, 3, 5, 4), (6, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15, 18, 17, 20, 19, 22, 21)
    assert label_map.mirrored_keypoints(labels, 23) == (*sides[0], *sides[1])


@pytest.mark.parametrize(
    ('others', 'expected'),
    [
        ([(2, 1, 0, 3)], (2, 1, 0, 3)),
        # Names tell of keypoints of which nothing is said.
        ([(0, None, None, 3)], (0, 2, 1, 3)),
        # No permutation, and two classes that contradict each other.
        ([(1, None, None, 3)], None),
        # A cycle is no mirror.
        ([(1, 2, 0, 3)], None),
        ([(0, 2, 1, 3), (3, 2, 1, 0)], None),
    ],
)
def test_label_maps_say_what_takes_a_keypoint_s_place_in_the_mirror(load, others, expected):
    names = ('nose', 'left_eye', 'right_eye', 'tail')
    items = []
    for number, of_class in enumerate(others, start=1):
        points = ''.join(
            f"keypoints {{ id: {place} label: '{names[place]}' "
            + ('}' if other is None else f'mirrored: {other} }}')
            for place, other in enumerate(of_class)
        )
        items.append(f"item {{ name: 'class {number}' id: {number} {points} }}")
    assert label_map.mirrored_keypoints(load(''.join(items)), 4) == expected


def test_a_byte_order_mark_is_no_part_of_a_label_map(tmp_path):
    path = tmp_path / 'l.pbtxt'
    path.write_bytes("\ufeffitem {\n id: 1\n name: 'cat'\n}\n".encode())
    assert label_map.load(str(path)).name_to_id == {'cat': 1}
    path.write_text("item {\u200b id: 1 name: 'cat' }")
    with pytest.raises(ValueError, match=r'<U\+200B ZERO WIDTH SPACE>'):
        label_map.load(str(path))


def test_a_path_of_windows_is_explained():
    with pytest.raises(ValueError, match=r'data\\l\.pbtxt .*this system has / between folders'):
        label_map.load('data\\l.pbtxt')
