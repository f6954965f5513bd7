import json

import pytest

from object_detection.data.coco import annotations as coco_annotations
from tests import rows

CATEGORIES = [{'id': 1, 'name': 'person'}, {'id': 2, 'name': 'car'}]
IMAGES = [{'id': key, 'file_name': f'{key}.jpg'} for key in ('a', 'b', 'c')]


def _annotation(key: int, image_id: str, category_id: int = 1, **others) -> dict:
    return {'id': key, 'image_id': image_id, 'category_id': category_id} | others


FILE = coco_annotations.CocoFile(
    IMAGES, [_annotation(1, 'b'), _annotation(2, 'a', 2), _annotation(3, 'b', 2)], CATEGORIES
)


def _grouped(**options) -> list[tuple[int, str, list[int]]]:
    return [
        (index, image['id'], [annotation['id'] for annotation in annotations])
        for index, image, annotations in coco_annotations.group_by_image(FILE, **options)
    ]


def test_groups_keep_the_order_of_the_file():
    assert _grouped() == [(0, 'a', [2]), (1, 'b', [1, 3]), (2, 'c', [])]


def test_filters_by_category():
    assert _grouped(only_objects_of='person') == [(0, 'a', []), (1, 'b', [1]), (2, 'c', [])]
    assert _grouped(only_images_with='person') == [(0, 'b', [1, 3])]
    with pytest.raises(ValueError, match=r"'person', 'car'.*Received: 'dog'"):
        _grouped(only_images_with='dog')


def test_first_image_of_an_id_counts():
    file = FILE._replace(images=[*IMAGES[:2], {'id': 'a', 'file_name': 'other.jpg'}])
    grouped = list(coco_annotations.group_by_image(file))
    assert [image.image['file_name'] for image in grouped] == ['a.jpg', 'b.jpg']


def test_take_over_sets_named_entries():
    file = coco_annotations.CocoFile([], [_annotation(1, 'a', area=1), _annotation(2, 'a')], [])
    other = coco_annotations.CocoFile([], [_annotation(1, 'a', area=5, keypoints=[3])], [])
    coco_annotations.take_over(file, other, ['keypoints', 'num_keypoints'])
    assert file.annotations == [_annotation(1, 'a', area=1, keypoints=[3]), _annotation(2, 'a')]


def test_annotations_may_be_absent():
    content = json.dumps({'images': IMAGES, 'categories': CATEGORIES})
    assert coco_annotations.parse(content, 'test.json') == coco_annotations.CocoFile(
        IMAGES, [], CATEGORIES
    )


def test_segmentations_are_text_or_left_out():
    segmentation = {'size': [3, 4], 'counts': 'a"b'}
    document = FILE._asdict() | {'annotations': [_annotation(1, 'a', segmentation=segmentation)]}
    content = json.dumps(document).encode()
    (annotation,) = coco_annotations.parse(content, 'a.json').annotations
    assert json.loads(annotation['segmentation']) == segmentation
    (annotation,) = coco_annotations.parse(content, 'a.json', segmentations=False).annotations
    assert annotation == _annotation(1, 'a')


@rows.parametrize(
    ('text', 'match'),
    [
        ('{"images": [', r'is not a JSON file: .*line 1 column 13'),
        ('\xff', 'is not a JSON file'),
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
        coco_annotations.parse(text.encode('latin-1'), 'broken.json')


def test_bad_entries_are_left_out_and_reported():
    images = [*IMAGES, {'id': [1], 'file_name': 'x.jpg'}, {'id': 7, 'file_name': ''}, 3]
    annotations = [_annotation(1, 'a'), _annotation(2, None), {'id': 3}]
    document = {'images': images, 'annotations': annotations, 'categories': CATEGORIES}
    file = coco_annotations.parse(json.dumps(document), 'a.json')
    assert (file.images, file.annotations) == (IMAGES, annotations[:1])
    told = [(item.file_name, item.image_id, item.annotation_id) for item in file.problems]
    assert told == [
        *(('x.jpg', [1], None), ('', 7, None), (None, None, None)),
        *((None, None, 2), (None, None, 3)),
    ]
    texts = [str(item.error) for item in file.problems]
    assert texts[0] == 'images[3].id must be a number or text. Received: [1]'
    assert texts[1] == 'images[4].file_name must be text. Received: ""'
    assert texts[3] == 'annotations[1].image_id must be a number or text. Received: null'
    assert 'missing: image_id' in texts[4]
