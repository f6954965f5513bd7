import json
import os
import sys

import numpy as np
import pytest

from object_detection.data.formats import records as coco_records
from object_detection.data.formats.source import ImageEntry
from tests.data import examples


def write(path, images, annotations=(), categories=({'id': 1, 'name': 'cat'},)):
    document = {'images': images, 'annotations': annotations, 'categories': categories}
    path.write_text(json.dumps(document, default=list))
    return str(path)


def image(key, **others):
    return {'id': key, 'file_name': f'{key}.jpg', 'height': 20, 'width': 30} | others


def annotation(key, image_id, **others):
    usual = {'id': key, 'image_id': image_id, 'category_id': 1, 'bbox': [1, 2, 3, 4]}
    return usual | others


def test_entries_keep_what_examples_are_made_of(tmp_path):
    path = write(
        tmp_path / 'a.json',
        [image('x', license=3), image(7)],
        [annotation(1, 7, caption='no', area=2), annotation(2, 'x'), annotation(3, 7, iscrowd=1)],
    )
    entries = coco_records.load_coco('', path).entries
    assert len(entries) == 2
    assert entries[0].image == entries.image(0) == image('x')
    of_image = [annotation(1, 7, area=2), annotation(3, 7, iscrowd=1)]
    for entry in of_image:
        del entry['image_id']
    assert entries[1] == (image(7), of_image, ())


def test_memory_is_that_of_the_text():
    annotations = [annotation(i, i // 10, segmentation=[[1, 2, 3, 4, 5, 6]]) for i in range(20000)]
    images = [image(i) for i in range(2000)]
    entries = coco_records.Entries(
        ImageEntry(each, annotations[10 * i : 10 * i + 10]) for i, each in enumerate(images)
    )
    held = sum(
        sys.getsizeof(value)
        for packed in (entries._images, entries._annotations)
        for value in vars(packed).values()
    )
    assert held < 1.2 * len(json.dumps([images, annotations]))


def test_what_belongs_to_no_image_is_reported(tmp_path, caplog):
    path = write(tmp_path / 'a.json', [image(1), image(1)], [annotation(1, 1), annotation(2, 9)])
    assert len(coco_records.load_coco('', path)) == 1
    assert caplog.messages == [
        f'{path}: 2 images, annotations or files are left out: 1.jpg: its id is used before, '
        'annotation 2: there is no image 9.',
    ]


def test_names_of_one_file_and_what_is_not_read_are_reported(tmp_path, caplog):
    (tmp_path / 'a.jpg').write_bytes(b'')
    names = ['a.jpg', 'a.JPG', 'b.jpg', 'b.jpg']
    path = write(
        tmp_path / 'a.json',
        [image(i, file_name=name) for i, name in enumerate(names)],
        [annotation(1, 0, caption='c', segmentation=[[1, 2, 3, 4, 5, 6]]), annotation(2, 1)],
    )
    for _ in range(2):
        records = coco_records.load_coco(str(tmp_path), path)
        assert [*records.image_ids()] == [0, 2, 3]
        assert len(records.objects(0)[0]) == 1
    assert caplog.messages == [
        f'{path}: images whose file another one names too, and that are read all the same: 1.',
        f'{path}: 1 annotations or values that records do not hold, or that no option asks for, '
        'are not converted: 1 x caption.',
        f'{path}: 1 images, annotations or files are left out: a.JPG: its file is that of another '
        'image, a.jpg.',
    ]


def test_a_file_is_read_once_until_it_changes(tmp_path):
    path = write(tmp_path / 'a.json', [image(1)])
    entries = coco_records.load_coco('x', path).entries
    assert coco_records.load_coco('y', path).entries is entries
    write(tmp_path / 'a.json', [image(1), image(2)])
    assert len(coco_records.load_coco('x', path)) == 2


def test_ids_count_without_names_only(tmp_path):
    path = write(tmp_path / 'a.json', [image(1)], categories=[{'id': 0, 'name': ' cat'}])
    records = coco_records.load_coco('', path, by_text=True)
    assert [label.text for label in records.data.labels.values()] == ['cat']
    # As the conversion numbers it.
    assert coco_records.load_coco('', path).data.labels == {0: (1, 'cat')}
    path = write(tmp_path / 'b.json', [image(1)], categories=[{'id': 1, 'name': 'a'}] * 2)
    with pytest.raises(ValueError, match=rf'^{path}: Category ids must be different'):
        coco_records.load_coco('', path)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match=r'absent.json cannot be read: There is no .* file'):
        coco_records.load_coco('', str(tmp_path / 'absent.json'))
    (tmp_path / 'a.json').write_bytes(b'\xff')
    with pytest.raises(ValueError, match=r'a.json, line 1: expected text in UTF-8'):
        coco_records.load_coco('', str(tmp_path / 'a.json'))


def test_usable_images(tmp_path):
    tiny = [5, 5, 1e-9, 5]
    path = write(
        tmp_path / 'a.json',
        [image(i) for i in range(6)],
        [
            annotation(0, 0),
            annotation(1, 1, bbox=tiny),
            annotation(2, 2, iscrowd=1),
            annotation(3, 3, category_id=2),
            annotation(4, 4, bbox=tiny),
            annotation(5, 4),
        ],
        categories=[{'id': 1, 'name': 'cat'}, {'id': 2, 'name': 'dog'}],
    )
    records, rows = coco_records.load_coco('', path), np.arange(6)

    def usable(known=None, skip_crowd=False):
        return np.flatnonzero(records.usable(rows, known=known, skip_crowd=skip_crowd)).tolist()

    assert usable() == [0, 2, 3, 4]
    assert usable(skip_crowd=True) == [0, 3, 4]
    assert usable(known={'dog'}) == [3]
    # An example with masks would hold none of these objects.
    assert (
        not coco_records.load_coco('', path, masks=True)
        .usable(rows, known=None, skip_crowd=0)
        .any()
    )
    assert records.usable(rows[4:], known=None, skip_crowd=False).tolist() == [True, False]


def test_missing_images_in_folders(tmp_path):
    path = write(
        tmp_path / 'a.json', [image(1, file_name='a/1.jpg'), image(2, file_name='b/2.jpg')]
    )
    os.mkdir(tmp_path / 'a')
    (tmp_path / 'a' / '1.jpg').write_bytes(b'')
    missing = list(coco_records.load_coco(str(tmp_path), path).missing_images())
    assert missing == [f'{tmp_path}/b/2.jpg (image 2 of {path}) does not exist']


def test_unusable_annotations_are_reported_once(tmp_path, caplog):
    (tmp_path / '1.jpg').write_bytes(examples.png(examples.noise(20, 30)))
    bad = [annotation(i, 1, category_id=5) for i in range(20)]
    path = write(tmp_path / 'a.json', [image(1)], bad)
    records = coco_records.load_coco(str(tmp_path), path)
    records.example(0)
    records.example(0)
    assert caplog.messages[0] == (f'{path}: annotation 0 of image 1 is left out: category_id is 5.')
    assert len(caplog.messages) == 11
    total = '20 annotations are left out: 20 x unknown_category'
    assert caplog.messages[-1] == f'{path}, all images: {total}.'
