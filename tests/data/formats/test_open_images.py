import dataclasses
import io
import json

import numpy as np
import pytest
from PIL import Image

from object_detection.core import tf_example_keys as keys
from object_detection.data import label_map
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import formats, source
from object_detection.data.formats.open_images import OpenImagesSource
from object_detection.dataset_tools import oid_hierarchical_labels_expansion as expansion
from object_detection.errors import UserError

FILES = LocalFiles()
_HEADER = 'ImageID,LabelName,XMin,XMax,YMin,YMax,IsGroupOf'


def _write(folder, image: bytes, boxes: list[str], labels: list[str] | None = None):
    (folder / 'images').mkdir()
    for name in ('a', 'b'):
        (folder / f'images/{name}.png').write_bytes(image)
    (folder / 'boxes.csv').write_text('\n'.join([_HEADER, *boxes]))
    if labels is not None:
        (folder / 'labels.csv').write_text('\n'.join(['ImageID,LabelName,Confidence', *labels]))
    (folder / 'names.csv').write_text('/m/1,Cat\n/m/2,Dog\n/m/3,Dog\n')
    return OpenImagesSource(
        image_dir=str(folder / 'images'),
        boxes_file=str(folder / 'boxes.csv'),
        image_labels_file=str(folder / 'labels.csv') if labels is not None else '',
        class_descriptions_file=str(folder / 'names.csv'),
    )


def _read(data, labels=None):
    opened = data.open(FILES, labels)
    return opened, [source.read(opened.reader, entry, FILES) for entry in data.entries(FILES)]


def test_boxes_and_image_labels(tmp_path, png):
    data = _write(
        tmp_path,
        png(40, 20),
        ['a,/m/1,0.25,0.5,0.5,1,1', 'a,/m/3,0,1,0,1,-1', 'x,/m/1,0,1,0,1,0'],
        ['b,/m/1,1', 'b,/m/2,0', 'b,/m/2,2', 'b,/m/2,yes'],
    )
    opened, (first, second) = _read(data)
    assert opened.labels == {'/m/1': (1, 'Cat'), '/m/2': (2, 'Dog /m/2'), '/m/3': (3, 'Dog /m/3')}
    [problem] = opened.problems
    assert '1 rows of' in str(problem.error)
    assert first.image.boxes.tolist() == [[0.5, 0.25, 1, 0.5], [0, 0, 1, 1]]
    assert first.image.areas.tolist() == [100, 800]
    assert first.image.object_details[keys.GROUP_OF].tolist() == [1, 0]
    assert not first.image.image_details
    details = second.image.image_details
    assert details[keys.IMAGE_CLASS_TEXT].tolist() == ['Cat', 'Dog /m/2']
    assert details[keys.IMAGE_CLASS_LABEL].tolist() == [1, 2]
    assert details[keys.IMAGE_CLASS_CONFIDENCE].tolist() == [1, 0]
    assert [error.reason for _, error in second.problems] == ['bad_confidence', 'bad_box']


_SEGMENTS = 'MaskPath,ImageID,LabelName,BoxID,BoxXMin,BoxXMax,BoxYMin,BoxYMax,PredictedIoU,Clicks'


def _mask_file(path, *boxes, size=(20, 40)):
    pixels = np.zeros(size, np.uint8)
    for top, left, bottom, right in boxes:
        pixels[top:bottom, left:right] = 255
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(pixels).convert('1').save(path)


def _with_masks(folder, image: bytes):
    data = _write(
        folder,
        image,
        ['a,/m/1,0.25,0.5,0.5,1,1', 'a,/m/2,0,1,0,1,0', 'b,/m/1,0,1,0,1,1'],
    )
    rows = [
        'a_m1_0.png,a,/m/1,0,0.250000,0.500000,0.500000,1.000000,0.8,',
        'b_m3_1.png,b,/m/3,1,0,1,0,1,0.8,',
        'b_m3_2.png,b,/m/3,2,0,1,0,1,0.8,',
        '../boxes.csv,b,/m/3,3,0,1,0,1,0.8,',
    ]
    (folder / 'train-annotations-object-segmentation.csv').write_text('\n'.join([_SEGMENTS, *rows]))
    _mask_file(folder / 'masks/a_m1_0.png', (11, 12, 19, 18))
    # Of half the size, in the folder of its first letter.
    _mask_file(folder / 'masks/B/b_m3_1.png', (0, 0, 5, 10), size=(10, 20))
    return dataclasses.replace(
        data,
        segmentations_file=str(folder / 'train-annotations-object-segmentation.csv'),
        masks_dir=str(folder / 'masks'),
    )


def test_segmentations_are_the_objects_with_the_flags_of_their_boxes(tmp_path, png):
    opened, (first, second) = _read(_with_masks(tmp_path, png(40, 20)))
    assert opened.num_images == 2
    assert sum(n for note, n in opened.notes.items() if 'box without a segmentation' in note) == 2
    assert first.image.boxes.tolist() == [[0.5, 0.25, 1, 0.5]]
    assert first.image.object_details[keys.GROUP_OF].tolist() == [1]
    assert first.image.areas.tolist() == [48]
    sums = [
        int(np.asarray(Image.open(io.BytesIO(mask))).sum())
        for result in (first, second)
        for mask in result.image.masks
    ]
    assert sums == [48, 10 * 20]
    assert second.image.object_details[keys.GROUP_OF].tolist() == [0]
    assert [error.reason for _, error in second.problems] == ['bad_mask', 'bad_image']


def test_segmentations_without_boxes_are_found(tmp_path, png):
    data = _with_masks(tmp_path, png(40, 20))
    [found] = formats.detect(str(tmp_path), FILES)['open_images']
    assert found.source.boxes_file == data.boxes_file
    assert found.reason == 'boxes.csv; train-annotations-object-segmentation.csv has masks'
    (tmp_path / 'boxes.csv').unlink()
    [found] = formats.detect(str(tmp_path), FILES)['open_images']
    assert found.name == 'train'
    assert (found.source.boxes_file, found.source.masks_dir) == ('', data.masks_dir)
    assert [len(result.image) for result in _read(found.source)[1]] == [1, 1]
    with pytest.raises(UserError, match='expected --segmentations and --masks_dir'):
        dataclasses.replace(data, masks_dir='').open(FILES, None)


def test_segmentations_of_a_fixture(shared):
    folder = shared / 'data/datumaro_format_fixtures/open_images_dataset/v6'
    data = OpenImagesSource(
        image_dir=str(folder / 'images/train'),
        segmentations_file=str(folder / 'annotations/train-annotations-object-segmentation.csv'),
        masks_dir=str(folder / 'masks/train'),
    )
    _, results = _read(data)
    assert [len(result.image) for result in results] == [0, 1]


def test_label_map_of_mids_or_names(tmp_path, png):
    data = _write(tmp_path, png(40, 20), ['a,/m/1,0,1,0,1,0', 'a,/m/2,0,1,0,1,0'])
    for name, text in (('/m/1', 'Cat'), ('Cat', '')):
        proto = label_map.parse(
            f'item {{ name: "{name}" display_name: "{text}" id: 7 }}'.encode(), ''
        )
        _, (first, _) = _read(data, label_map.classes(proto, ''))
        assert first.image.class_texts == (name,)
        assert first.image.class_labels == [7]
        assert [error.reason for _, error in first.problems] == ['not_in_label_map']


@pytest.mark.parametrize(
    ('row', 'reason'),
    [
        ('a,/m/1,0.5,0.4,0,1,0', 'box_without_area'),
        ('a,/m/1,nan,0.4,0,1,0', 'bad_box'),
        ('a,/m/1,x,0.4,0,1,0', 'bad_box'),
        ('a,/m/1,0,0.4,0,1,2', 'bad_annotation'),
        ('a,,0,0.4,0,1,0', 'unknown_category'),
    ],
)
def test_rows_that_cannot_be_used_are_counted(tmp_path, png, row, reason):
    _, (first, _) = _read(_write(tmp_path, png(40, 20), [row]))
    assert len(first.image) == 0
    assert [(name, error.reason) for name, error in first.problems] == [('line 2', reason)]


@pytest.mark.parametrize(
    ('content', 'match'),
    [
        (b'ImageID,LabelName\n', 'missing: XMin, XMax'),
        (b'', 'Received: nothing'),
        (_HEADER.encode() + b'\na,b\n', 'line 2: expected 7 fields. Received: 2'),
        (_HEADER.encode() + b'\n\xff\n', 'expected text in UTF-8'),
        (_HEADER.encode() + b'\n' + b'a' * 200_000, 'field larger than field limit'),
    ],
)
def test_broken_files(tmp_path, png, content, match):
    data = _write(tmp_path, png(40, 20), [])
    (tmp_path / 'boxes.csv').write_bytes(content)
    with pytest.raises(ValueError, match=match):
        data.open(FILES, None)


def test_real_data_is_detected(shared):
    found = formats.detect(str(shared / 'data/open_images_sample'), FILES)
    [item] = found['open_images']
    opened, results = _read(item.source)
    assert [*opened.labels.values()] == [(1, 'French fries')]
    assert sum(len(result.image) for result in results) == 23
    # The file of boxes was made from files of pixels.
    text = (shared / 'data/open_images_sample/Label/001464cfae2a30b8.txt').read_text()
    expected = np.array(text.split()[2:], float)
    [image] = [item.image for item in results if item.image.source_id == '001464cfae2a30b8']
    sizes = np.array([image.width, image.height] * 2)
    np.testing.assert_allclose(image.boxes[0, [1, 0, 3, 2]] * sizes, expected, atol=1)


def test_splits_of_a_fixture(shared):
    folder = shared / 'data/datumaro_format_fixtures/open_images_dataset/v6'
    found = formats.detect(str(folder), FILES)['open_images']
    assert {item.name for item in found} == {'train', 'test'}
    [test] = [item.source for item in found if item.name == 'test']
    _, [result] = _read(test)
    assert result.image.object_details[keys.DEPICTION].tolist() == [0]
    assert result.image.object_details[keys.GROUP_OF].tolist() == [1]
    assert result.image.image_details[keys.IMAGE_CLASS_LABEL].tolist() == [2, 4]
    hierarchy = expansion.read_hierarchy(str(folder / 'annotations/bbox_labels_600_hierarchy.json'))
    assert hierarchy[0]['/m/1'] == {'/m/0'}


_HIERARCHY = {
    'LabelName': 'root',
    'Subcategory': [
        {'LabelName': 'a', 'Subcategory': [{'LabelName': 'b', 'Subcategory': []}]},
        {'LabelName': 'c', 'Subcategory': [{'LabelName': 'b'}]},
    ],
}


def test_hierarchical_expansion(tmp_path):
    (tmp_path / 'tree.json').write_text(json.dumps(_HIERARCHY))
    (tmp_path / 'in.csv').write_text('ImageID,LabelName,Confidence\n1,b,1\n2,a,1\n3,a,0\n4,x,1\n')
    hierarchy = expansion.read_hierarchy(str(tmp_path / 'tree.json'))
    boxes = [*expansion.expand(str(tmp_path / 'in.csv'), hierarchy, boxes=True)]
    header = ['ImageID', 'LabelName', 'Confidence']
    with_parents = [['1', 'b', '1'], ['1', 'a', '1'], ['1', 'c', '1'], ['2', 'a', '1']]
    assert boxes == [header, *with_parents, ['3', 'a', '0'], ['4', 'x', '1']]
    labels = [*expansion.expand(str(tmp_path / 'in.csv'), hierarchy, boxes=False)]
    negative = [['3', 'a', '0'], ['3', 'b', '0']]
    assert labels == [header, *with_parents, *negative, ['4', 'x', '1']]


@pytest.mark.parametrize('text', ['{', '[]', '{"Subcategory": []}', '[' * 100_000])
def test_broken_hierarchies(tmp_path, text):
    (tmp_path / 'tree.json').write_text(text)
    with pytest.raises(ValueError, match=r'tree\.json'):
        expansion.read_hierarchy(str(tmp_path / 'tree.json'))
