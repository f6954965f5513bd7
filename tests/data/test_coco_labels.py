import pytest

from object_detection.data import coco_labels


def _categories(*names: str) -> list[dict]:
    return [{'id': index, 'name': name} for index, name in enumerate(names, start=1)]


def test_names_are_made_fit_to_look_up():
    categories = _categories(' cat ', 'dog', 'dog', '', 'a\nb', 'it\'s "x"', 'ü', 'dog_3')
    labels = coco_labels.from_categories(categories)
    assert [label.text for label in labels.values()] == [
        *('cat', 'dog', 'dog_3', 'category_4', 'a b', 'it\'s "x"', 'ü', 'dog_3_8')
    ]
    assert list(labels) == [label.label for label in labels.values()] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize('ids', [(0, 1), (-1, 1), (1, 1), ('a', 1), (None, 1)])
def test_ids_that_cannot_be_labels(ids):
    with pytest.raises(ValueError, match='different integers >= 1'):
        coco_labels.from_categories([{'id': key, 'name': str(key)} for key in ids])


def test_texts_take_any_id_once():
    categories = [{'id': 0, 'name': 'cat'}, {'id': 'x', 'name': 'cat'}]
    assert coco_labels.texts(categories) == {0: 'cat', 'x': 'cat_x'}
    with pytest.raises(ValueError, match='different integers'):
        coco_labels.texts([*categories, {'id': 0, 'name': 'dog'}])
