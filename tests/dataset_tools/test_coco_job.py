import json

import pytest

from object_detection.dataset_tools import coco_job


def test_reads_a_file(tmp_path):
    path = tmp_path / 'a.json'
    entry = {'id': 1, 'image_id': 2, 'segmentation': [[1, 2]]}
    path.write_text(json.dumps({'images': [], 'annotations': [entry], 'categories': []}))
    (annotation,) = coco_job.read_annotation_file(str(path)).annotations
    assert annotation == entry | {'segmentation': '[[1, 2]]'}
    (annotation,) = coco_job.read_annotation_file(str(path), segmentations=False).annotations
    assert annotation == {'id': 1, 'image_id': 2}


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match='There is no annotation file'):
        coco_job.read_annotation_file(str(tmp_path / 'absent.json'))
