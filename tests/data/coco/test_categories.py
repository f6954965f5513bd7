import pytest

from object_detection.data.annotated_image import ClassLabel
from object_detection.data.coco import annotations as coco_categories
from tests import rows


def _categories(*names: str) -> list[dict]:
    return [{'id': index, 'name': name} for index, name in enumerate(names, start=1)]


def test_names_are_made_unique_for_look_ups():
    categories = _categories(' cat ', 'dog', 'dog', '', 'a\nb', 'it\'s "x"', 'ü', 'dog_3')
    labels = coco_categories.from_categories(categories)
    assert [label.text for label in labels.values()] == [
        *('cat', 'dog', 'dog_3', 'category_4', 'a b', 'it\'s "x"', 'ü', 'dog_3_8')
    ]
    assert list(labels) == [label.label for label in labels.values()] == [1, 2, 3, 4, 5, 6, 7, 8]


def _labels(*categories: tuple) -> dict:
    keys = ('id', 'name', 'supercategory')
    entries = [dict(zip(keys, category, strict=False)) for category in categories]
    return {key: label.label for key, label in coco_categories.from_categories(entries).items()}


@rows.parametrize(
    ('ids', 'labels'),
    [
        ((1, 3, 2), (1, 3, 2)),
        # Label Studio counts from 0; numbers stay next to each other as they were.
        ((0, 1, 2), (1, 2, 3)),
        ((5, 0), (6, 1)),
        ((-2, 4), (1, 7)),
        (('1', '3'), (1, 3)),
        (('0', '3'), (1, 4)),
        (('b', 'a', 7), (1, 2, 3)),
        ((1.5, 2), (1, 2)),
        ((10**12, 1), (1, 2)),
    ],
)
def test_labels_are_ids_or_made_of_them(ids, labels):
    assert _labels(*((key, f'name {key}') for key in ids)) == dict(zip(ids, labels, strict=True))


def test_roboflow_s_name_of_the_data_set_is_no_class():
    categories = [(0, 'chess', 'none'), (1, 'king', 'chess'), (2, 'queen', 'chess')]
    assert _labels(*categories) == {1: 1, 2: 2}
    # A class of its own, as others belong elsewhere.
    assert _labels(*categories, (3, 'clock', 'none')) == {0: 1, 1: 2, 2: 3, 3: 4}
    assert _labels((0, 'chess', 'none')) == {0: 1}
    # A class has the name of the data set.
    categories = [
        {'id': 0, 'name': 'cat', 'supercategory': 'none'},
        {'id': 1, 'name': 'cat', 'supercategory': 'cat'},
    ]
    labels = coco_categories.from_categories(categories)
    assert labels == {1: ClassLabel(1, 'cat')}
    assert coco_categories.texts(categories) == {0: 'cat_0', 1: 'cat'}


def test_ids_must_be_different():
    with pytest.raises(ValueError, match=r'must be different\. Received twice: .*"b"'):
        _labels((1, 'a'), (1, 'b'))


def test_texts_take_any_id_once():
    categories = [{'id': 0, 'name': 'cat'}, {'id': 'x', 'name': 'cat'}]
    assert coco_categories.texts(categories) == {0: 'cat', 'x': 'cat_x'}
    with pytest.raises(ValueError, match='must be different'):
        coco_categories.texts([*categories, {'id': 0, 'name': 'dog'}])
