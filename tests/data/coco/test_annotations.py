import io
import json

import pytest

from object_detection.data.coco import annotations as coco_annotations
from tests import rows

CATEGORIES = [{'id': 1, 'name': 'person'}, {'id': 2, 'name': 'car'}]
IMAGES = [{'id': key, 'file_name': f'{key}.jpg'} for key in ('a', 'b', 'c')]


def _annotation(key: int, image_id: str, category_id: int = 1, **others) -> dict:
    return {'id': key, 'image_id': image_id, 'category_id': category_id} | others


def _read(content: bytes, path: str) -> tuple[dict[str, list[dict]], list]:
    lists, problems = {'images': [], 'annotations': [], 'categories': []}, []
    for name, entry in coco_annotations.stream(io.BytesIO(content), path, problems):
        lists[name].append(entry)
    return lists, problems


def test_annotations_may_be_absent():
    document = {'images': IMAGES, 'categories': CATEGORIES}
    found = _read(json.dumps(document).encode(), 'test.json')
    assert found == (document | {'annotations': []}, [])


@rows.parametrize(
    ('text', 'match'),
    [
        ('{"images": [', r'is not a JSON file: .*\(at character 12\)'),
        ('\xff', ', line 1: expected text in UTF-8'),
        ('{"images": ' + '[' * 100_000, 'is not a JSON file'),
        ('[]', 'expected an object .* Received: list'),
        ('{"categories": []}', '`images`: expected a list. Received: nothing'),
        ('{"images": {}, "categories": []}', '`images`: expected a list. Received: dict'),
        ('{"images": [{"id": 1}], "categories": []}', r'images\[0\] .* missing: file_name'),
        ('{"images": [3], "categories": []}', r'images\[0\] must have `id`, `file_name`'),
        ('{"images": [], "annotations": [{"id": 1}], "categories": []}', 'missing: image_id'),
    ],
)
def test_broken_files(text, match):
    with pytest.raises(ValueError, match=f'broken.json.*{match}'):
        _read(text.encode('latin-1'), 'broken.json')


def test_bad_entries_are_left_out_and_reported():
    images = [*IMAGES, {'id': [1], 'file_name': 'x.jpg'}, {'id': 7, 'file_name': ''}, 3]
    annotations = [_annotation(1, 'a'), _annotation(2, None), {'id': 3}]
    document = {'images': images, 'annotations': annotations, 'categories': CATEGORIES}
    lists, problems = _read(json.dumps(document).encode(), 'a.json')
    assert (lists['images'], lists['annotations']) == (IMAGES, annotations[:1])
    told = [(item.file_name, item.image_id, item.annotation_id) for item in problems]
    assert told == [
        *(('x.jpg', [1], None), ('', 7, None), (None, None, None)),
        *((None, None, 2), (None, None, 3)),
    ]
    texts = [str(item.error) for item in problems]
    assert texts[0] == 'images[3].id must be a number or text. Received: [1]'
    assert texts[1] == 'images[4].file_name must be text. Received: ""'
    assert texts[3] == 'annotations[1].image_id must be a number or text. Received: null'
    assert 'missing: image_id' in texts[4]
