import json

import pytest

from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import coco


def _write(path, images, annotations):
    categories = [{'id': 1, 'name': 'person'}, {'id': 2, 'name': 'car'}]
    document = {'annotations': annotations, 'categories': categories, 'images': images}
    path.write_text(json.dumps(document))
    return str(path)


def _image(key):
    return {'id': key, 'file_name': f'{key}.jpg'}


def _annotation(key, image_id, category_id=1, **others):
    return {'id': key, 'image_id': image_id, 'category_id': category_id} | others


def _grouped(path, **options):
    source = coco.CocoSource('', path, **options)
    return [(entry.image['id'], entry.annotations) for entry in source.entries(LocalFiles())]


def test_annotations_are_grouped_in_the_order_of_the_images(tmp_path):
    one, two, three = _annotation(1, 'b'), _annotation(2, 'a', 2), _annotation(3, 'b', 2)
    images = [*map(_image, 'abc'), {'id': 'a', 'file_name': 'other.jpg'}]
    path = _write(tmp_path / 'a.json', images, [one, two, three])
    assert _grouped(path) == [('a', [two]), ('b', [one, three]), ('c', [])]
    of_persons = _grouped(path, only_objects_of='person')
    assert of_persons == [('a', []), ('b', [one]), ('c', [])]
    assert _grouped(path, only_images_with='person') == [('b', [one, three])]
    with pytest.raises(ValueError, match=r"'person', 'car'.*Received: 'dog'"):
        _grouped(path, only_images_with='dog')


def test_ids_are_numbers_or_texts(tmp_path):
    ids = [1, '1', 2.0, 2**62, -0.5]
    annotations = [_annotation(i, key) for i, key in enumerate([2, 1.0, '1', 2**62, -0.5, 2.5])]
    path = _write(tmp_path / 'a.json', [{'id': key, 'file_name': 'a'} for key in ids], annotations)
    found = [(key, [each['id'] for each in of_image]) for key, of_image in _grouped(path)]
    assert found == [(1, [1]), ('1', [2]), (2.0, [0]), (2**62, [3]), (-0.5, [4])]
    source = coco.CocoSource(str(tmp_path), path)
    [problem] = source.open(LocalFiles(), None).problems
    assert (str(problem.error), problem.annotation_id) == ('there is no image 2.5', 5)


def test_segmentations_are_read_or_left_out(tmp_path):
    segmentation = {'size': [3, 4], 'counts': 'a"b'}
    known = _annotation(1, 'a')
    path = _write(tmp_path / 'a.json', [_image('a')], [known | {'segmentation': segmentation}])
    assert _grouped(path) == [('a', [known])]
    assert _grouped(path, masks=True) == [('a', [known | {'segmentation': segmentation}])]


def test_keypoints_of_another_file_are_those_of_the_same_id(tmp_path):
    annotations = [_annotation(1, 'a', area=1), _annotation(2, 'a')]
    path = _write(tmp_path / 'a.json', [_image('a')], annotations)
    taken = {'keypoints': [3], 'num_keypoints': 1}
    others = [_annotation(1, 'a', area=5, **taken), _annotation(7, 'a', **taken)]
    options = {'keypoints_file': _write(tmp_path / 'k.json', [_image('a')], others)}
    assert _grouped(path, **options) == [('a', [annotations[0] | taken, annotations[1]])]
    notes = coco.CocoSource(str(tmp_path), path, **options).open(LocalFiles(), None).notes
    assert notes == {'not_converted: keypoints of annotations that are only in k.json': 1}


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match='There is no annotation file'):
        _grouped(str(tmp_path / 'absent.json'))


def test_detects_the_files_of_splits(tmp_path, caplog):
    person = {'id': 1, 'name': 'person', 'keypoints': ['nose']}
    document = {'images': [{'file_name': 'a.jpg'}], 'annotations': [], 'categories': [person]}
    names = ('instances_train', 'person_keypoints_train', 'stuff_train', 'person_keypoints_val')
    (tmp_path / 'annotations').mkdir()
    for name in names:
        (tmp_path / 'annotations' / f'{name}2017.json').write_text(json.dumps(document))
    for split in ('train2017', 'val2017'):
        (tmp_path / split).mkdir()
        (tmp_path / split / 'a.jpg').touch()
    train, val = coco.CocoSource.detect(str(tmp_path), LocalFiles())
    assert caplog.messages == []
    assert train.reason == 'annotations/instances_train2017.json'
    assert not train.source.keypoints
    # Without a file of all classes, that of persons is read, with their keypoints.
    assert val.reason == 'annotations/person_keypoints_val2017.json'
    assert val.source.keypoints
    assert (train.name, val.name) == ('train2017', 'val2017')
    assert val.source.image_dir == str(tmp_path / 'val2017')
    document['categories'] = [person | {'keypoints': []}]
    (tmp_path / val.reason).write_text(json.dumps(document))
    assert not coco.CocoSource.detect(str(tmp_path), LocalFiles())[1].source.keypoints
    # A part that was not downloaded is named.
    (tmp_path / 'train2017/a.jpg').unlink()
    [val] = coco.CocoSource.detect(str(tmp_path), LocalFiles())
    [message] = caplog.messages
    assert 'instances_train2017.json looks like COCO, but its first image, a.jpg, is in' in message
