import dataclasses
import io
import json

import numpy as np
import pytest
from PIL import Image

from object_detection.data.coco import masks as coco_masks
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import formats, source
from object_detection.data.formats.mask_files import MaskFilesSource
from object_detection.data.formats.panoptic import PanopticSource

FILES = LocalFiles()


def _png(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(values).save(file, 'PNG')
    return file.getvalue()


def _rectangle(top, left, bottom, right, value=255, shape=(20, 40)) -> np.ndarray:
    mask = np.zeros(shape, np.uint8)
    mask[top:bottom, left:right] = value
    return mask


def _read(data) -> list[source.ReadResult]:
    opened = data.open(FILES, None)
    return [source.read(opened.reader, entry, FILES) for entry in data.entries(FILES)]


def _write(folder, **files: bytes) -> MaskFilesSource:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return MaskFilesSource(data_dir=str(folder), class_name='cell')


_FIRST, _SECOND = _rectangle(2, 4, 6, 12), _rectangle(10, 0, 20, 40)
_BOXES = [[0.1, 0.1, 0.3, 0.3], [0.5, 0, 1, 1]]


@pytest.mark.parametrize(
    'masks',
    [
        {'x/masks/1.png': _png(_FIRST), 'x/masks/2.png': _png(_SECOND)},
        {'x/masks/im/1.png': _png(_FIRST), 'x/masks/im/2.png': _png(_SECOND)},
        {'x/masks/im.png': _png(_FIRST // 255 * 3 + _SECOND // 255 * 7)},
        {'x/masks/im_mask.png': _png(_FIRST // 255 + _SECOND.astype(np.uint16) // 255 * 300)},
        {'x/masks/im.png': _png(np.stack([_FIRST // 9, _SECOND // 5, _FIRST * 0], -1))},
    ],
    ids=['a file each', 'a folder each', 'values', '16-bit values', 'colours'],
)
def test_layouts(tmp_path, png, masks):
    data = _write(tmp_path, **{'x/images/im.png': png(40, 20)}, **masks)
    [result] = _read(data)
    assert not result.problems
    assert result.image.boxes.tolist() == _BOXES
    assert result.image.areas.tolist() == [32, 400]
    assert result.image.class_texts == ('cell', 'cell')
    for ours, expected in zip(result.image.masks, (_FIRST, _SECOND), strict=True):
        np.testing.assert_array_equal(Image.open(io.BytesIO(ours)), expected // 255)
    [found] = formats.detect(str(tmp_path), FILES)['masks']
    assert found.source.images_dir == 'images'


def test_images_of_one_folder_keep_their_masks(tmp_path, png):
    data = _write(
        tmp_path,
        **{'train/images/a.png': png(40, 20), 'train/images/b.png': png(40, 20)},
        **{'train/masks/a.png': _png(_FIRST // 255)},
    )
    data = dataclasses.replace(data, keep_not_annotated=True)
    assert [len(result.image) for result in _read(data)] == [1, 0]


def test_ids_tell_images_of_several_folders_apart(tmp_path, png):
    names = ['c1/images/image', 'c2/images/image', 'c3/images/c3', 'u/c4/images/c4']
    names += ['v/c4/images/c4', 'images/d']
    data = _write(tmp_path, **{f'{name}.png': png(40, 20) for name in names})
    ids = [entry.image['id'] for entry in data.entries(FILES)]
    assert ids == ['c1/image', 'c2/image', 'c3', 'd', 'u/c4/c4', 'v/c4/c4']


def test_masks_that_cannot_be_used_are_counted(tmp_path, png):
    bad = {'size': _png(_FIRST[1:]), 'empty': _png(_FIRST * 0), 'broken': b'x'}
    masks = {f'x/masks/{name}.png': content for name, content in bad.items()}
    data = _write(tmp_path, **{'x/images/im.png': png(40, 20)}, **masks)
    [result] = _read(data)
    assert {name: error.reason for name, error in result.problems} == {
        'size.png': 'bad_mask',
        'empty.png': 'bad_mask',
        'broken.png': 'bad_image',
    }


def test_nuclei(shared):
    folder = shared / 'data/dsb2018_nuclei'
    [found] = formats.detect(str(folder), FILES)['masks']
    opened = found.source.open(FILES, None)
    entries = [*found.source.entries(FILES)]
    assert opened.num_images == len(entries) == 166
    assert sum(len(entry.annotations) for entry in entries) == 7581
    document = json.loads((folder / 'instances_rle.json').read_text())
    entry = min(entries, key=lambda item: len(item.annotations))
    image = source.read(opened.reader, entry, FILES).image
    [number] = [each['id'] for each in document['images'] if image.file_name in each['file_name']]
    segments = [each for each in document['annotations'] if each['image_id'] == number]
    expected = [
        coco_masks.decode(each['segmentation'], image.height, image.width) for each in segments
    ]
    ours = [np.asarray(Image.open(io.BytesIO(mask)), np.uint8) for mask in image.masks]
    assert sorted(mask.tobytes() for mask in ours) == sorted(mask.tobytes() for mask in expected)


def _panoptic(folder, png: bytes, segments: list, colors=(40, 20)) -> PanopticSource:
    (folder / 'panoptic').mkdir()
    (folder / 'a.png').write_bytes(png)
    pixels = np.zeros((*colors[::-1], 3), np.uint8)
    pixels[2:6, 4:12] = (5, 1, 0)
    pixels[10:, :] = (0, 0, 1)
    (folder / 'panoptic/a.png').write_bytes(_png(pixels))
    categories = [
        {'id': 3, 'name': 'cat', 'isthing': 1},
        {'id': 4, 'name': 'sky', 'isthing': 0},
    ]
    document = {
        'images': [{'id': 1, 'file_name': 'a.png', 'width': 40, 'height': 20}],
        'annotations': [{'image_id': 1, 'file_name': 'a.png', 'segments_info': segments}],
        'categories': categories,
    }
    (folder / 'panoptic.json').write_text(json.dumps(document))
    return PanopticSource(image_dir=str(folder), annotations_file=str(folder / 'panoptic.json'))


def test_panoptic_segments(tmp_path, png):
    segments = [
        {'id': 261, 'category_id': 3, 'iscrowd': 1},
        {'id': 65536, 'category_id': 4},
        {'id': 9, 'category_id': 3},
        {'id': 261, 'category_id': [3]},
        {'id': 1 << 30, 'category_id': 3},
        5,
    ]
    data = _panoptic(tmp_path, png(40, 20), segments)
    [result] = _read(data)
    assert result.image.boxes.tolist() == _BOXES[:1]
    assert result.image.class_labels == [3]
    assert result.image.is_crowd == [True]
    assert [error.reason for _, error in result.problems] == [
        *('not_wanted', 'bad_mask', 'unknown_category', 'bad_mask', 'bad_annotation')
    ]
    with_stuff = PanopticSource(data.image_dir, annotations_file=data.annotations_file, stuff=True)
    [result] = _read(with_stuff)
    assert result.image.boxes.tolist() == _BOXES
    [found] = formats.detect(str(tmp_path), FILES)['panoptic']
    assert not found.source.stuff


@pytest.mark.parametrize(
    ('document', 'match'),
    [
        ('{', 'is not a JSON file'),
        ('[' * 100_000, 'is not a JSON file'),
        ('{"images": []}', '`annotations`: expected a list'),
        ('{"images": [], "annotations": [], "categories": []}', 'expected `isthing` 1'),
        (
            '{"images": [], "annotations": [{"image_id": 1, "file_name": "a"}], "categories": []}',
            'missing: segments_info',
        ),
    ],
)
def test_broken_panoptic_files(tmp_path, png, document, match):
    data = _panoptic(tmp_path, png(40, 20), [])
    (tmp_path / 'panoptic.json').write_text(document)
    with pytest.raises(ValueError, match=match):
        data.open(FILES, None)


def test_real_panoptic_data(shared):
    folder = shared / 'data/coco_permissive'
    data = PanopticSource(
        image_dir=str(folder / 'images'),
        annotations_file=str(folder / 'annotations/panoptic_val.json'),
    )
    opened = data.open(FILES, None)
    document = json.loads((folder / 'annotations/panoptic_val.json').read_text())
    things = {item['id'] for item in document['categories'] if item['isthing']}
    entry = next(data.entries(FILES))
    image = source.read(opened.reader, entry, FILES).image
    segments = [item for item in entry.annotations if item['category_id'] in things]
    assert image.areas.tolist() == [item['area'] for item in segments]
    x, y, width, height = segments[0]['bbox']
    expected = np.array([y, x, y + height, x + width])
    box = image.boxes[0] * [image.height, image.width, image.height, image.width]
    np.testing.assert_allclose(box, expected, atol=1e-9)
