import json

import pytest

from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import coco


def test_reads_a_file(tmp_path):
    path = tmp_path / 'a.json'
    entry = {'id': 1, 'image_id': 2, 'segmentation': [[1, 2]]}
    path.write_text(json.dumps({'images': [], 'annotations': [entry], 'categories': []}))
    (annotation,) = coco.read_annotation_file(str(path), LocalFiles()).annotations
    assert annotation == entry | {'segmentation': '[[1, 2]]'}
    (annotation,) = coco.read_annotation_file(
        str(path), LocalFiles(), segmentations=False
    ).annotations
    assert annotation == {'id': 1, 'image_id': 2}


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match='There is no annotation file'):
        coco.read_annotation_file(str(tmp_path / 'absent.json'), LocalFiles())


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
