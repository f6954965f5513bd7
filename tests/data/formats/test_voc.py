import dataclasses
import io
import pathlib
import shutil

import numpy as np
import pytest
from PIL import Image

from object_detection.data import label_map, tf_examples
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import formats, source
from object_detection.data.formats.voc import VocSource
from tests import goldens
from tests.dataset_tools import records

FILES = LocalFiles()
_OBJECT = (
    '<object><name>{name}</name><pose>Left</pose><difficult>{difficult}</difficult><bndbox>'
    '<xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax>'
    '</bndbox></object>'
)


def _xml(*objects: str, name='a.png', size='<width>40</width><height>30</height>') -> str:
    return (
        f'<annotation><filename>{name}</filename><size>{size}</size>{"".join(objects)}</annotation>'
    )


def _object(*box: float | str, name='cat', difficult='0') -> str:
    return _OBJECT.format(name=name, difficult=difficult, box=box)


def _write(folder: pathlib.Path, image: bytes, **files: str) -> VocSource:
    """Writes XML files, by their stems, and an image for each."""
    for name in ('Annotations', 'JPEGImages', 'ImageSets/Main'):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for stem, content in files.items():
        (folder / f'Annotations/{stem}.xml').write_text(content)
        (folder / f'JPEGImages/{stem}.png').write_bytes(image)
    return VocSource(data_dir=str(folder))


def _read(data: VocSource, labels=None) -> list[source.ReadResult]:
    opened = data.open(FILES, labels)
    return [source.read(opened.reader, entry, FILES) for entry in data.entries(FILES)]


@goldens.parametrize('tf_examples', prefix=('pascal_',))
def test_reference_examples(case_name):
    case = goldens.load('tf_examples', case_name)
    proto = label_map.parse(case.params['label_map'].encode(), 'map')
    data = VocSource(
        str(goldens.COMPONENTS / 'examples/VOC'),
        year='VOC2012',
        ignore_difficult=case.params['ignore_difficult_instances'],
    )
    ours = {}
    for index, result in enumerate(_read(data, label_map.classes(proto, 'map'))):
        features = records.parse(tf_examples.to_example(result.image))
        ours |= {f'ex{index}/{key}': value for key, value in records.as_golden(features)}
    new = {key for key in ours if key.endswith(('/object/area', '/object/is_crowd'))}
    assert ours.keys() - new == set(case.outputs)
    for key, expected in case.outputs.items():
        records.assert_equal_to_golden(key, ours[key], expected)


def test_boxes_that_cannot_be_used_are_counted(tmp_path, png):
    data = _write(
        tmp_path,
        png(40, 30),
        a=_xml(
            _object(4, 6, 14, 18),
            _object(5, 5, 5, 9),
            _object(9, 9, 5, 12),
            _object('nan', 1, 5, 9),
            _object('x', 1, 5, 9),
            _object(50, 1, 60, 9),
            _object(30, 20, 44, 40),
            '<object><name>cat</name></object>',
            '<object/>',
        ),
    )
    [result] = _read(data)
    assert result.image.boxes.tolist() == [[0.2, 0.1, 0.6, 0.35], [20 / 30, 0.75, 1, 1]]
    assert result.image.areas.tolist() == [120, 14 * 20]
    assert result.num_clipped == 1
    assert [(number, error.reason) for number, error in result.problems] == [
        (1, 'box_without_area'),
        (2, 'box_without_area'),
        (3, 'bad_box'),
        (4, 'bad_box'),
        (5, 'box_outside_image'),
        (7, 'bad_box'),
        (8, 'unknown_category'),
    ]


def test_classes_are_numbered_alike_for_every_set(tmp_path, png):
    data = _write(
        tmp_path,
        png(40, 30),
        a=_xml(_object(1, 1, 9, 9, name='dog')),
        b=_xml(_object(1, 1, 9, 9, name='cat'), name='b.png'),
    )
    (tmp_path / 'ImageSets/Main/train.txt').write_text('a  1\n\n')
    (tmp_path / 'ImageSets/Main/val.txt').write_text('b -1\n')
    (tmp_path / 'ImageSets/Main/dog_val.txt').write_text('b\n')
    found = VocSource.detect(str(tmp_path), FILES)
    assert [item.name for item in found] == ['train', 'val']
    for item, name, number in zip(found, ('dog', 'cat'), (2, 1), strict=True):
        [result] = _read(item.source)
        assert result.image.class_texts == (name,)
        assert result.image.class_labels == [number]
    assert len(_read(data)) == 2
    with pytest.raises(FileNotFoundError, match='Sets in its folder: dog_val, train, val'):
        VocSource(str(tmp_path), split='test').open(FILES, None)


def test_names_of_lists_may_have_underscores(tmp_path, png):
    _write(tmp_path, png(40, 30), a=_xml(_object(1, 1, 9, 9)))
    for name, line in {'my_train': 'a', 'val_2024': 'a', 'cat_old': 'a -1'}.items():
        (tmp_path / f'ImageSets/Main/{name}.txt').write_text(f'{line}\n')
    found = VocSource.detect(str(tmp_path), FILES)
    assert [item.name for item in found] == ['my_train', 'val_2024']


def test_years_are_merged(tmp_path, png):
    _write(tmp_path / 'VOC2007', png(40, 30), a=_xml())
    _write(tmp_path / 'VOC2012', png(40, 30), b=_xml(_object(1, 1, 9, 9), name='b.png'))
    [found] = VocSource.detect(str(tmp_path), FILES)
    assert found.source.year == 'merged'
    assert [len(result.image) for result in _read(found.source)] == [0, 1]
    with pytest.raises(FileNotFoundError, match='There is no folder'):
        VocSource(str(tmp_path)).open(FILES, None)


@pytest.mark.parametrize(
    'name', ['a.png', 'sub/a.png', r'C:\pictures\a.png', '/home/me/a.png', '../../a.png', 'a', '']
)
def test_images_are_found_by_their_name_or_that_of_the_annotations(tmp_path, png, name):
    [result] = _read(_write(tmp_path, png(40, 30), a=_xml(name=name)))
    assert result.image.format == 'png'


def test_files_outside_of_the_folder_are_never_read(tmp_path, png):
    data = _write(tmp_path / 'in', png(40, 30), a=_xml(name='../../b.png'))
    (tmp_path / 'b.png').write_bytes(png(40, 30))
    (tmp_path / 'in/JPEGImages/a.png').unlink()
    with pytest.raises(ValueError, match='cannot be read'):
        _read(data)
    (tmp_path / 'in/ImageSets/Main/all.txt').write_text('../../b')
    with pytest.raises(ValueError, match='leads out of the folder'):
        VocSource(str(tmp_path / 'in'), split='all').open(FILES, None)


_BOMB = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;">]><annotation>&y;</annotation>'
_LEAK = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><annotation>&x;</annotation>'


@pytest.mark.parametrize(
    ('content', 'match'),
    [
        (_BOMB, 'DOCTYPE'),
        (_LEAK, 'DOCTYPE'),
        ('<annotation>', 'is not an XML file'),
        ('', 'is not an XML file'),
        (_xml(size='<width>41</width><height>30</height>'), 'the annotation file says 30 and 41'),
        (_xml(size='<width>4e</width><height>30</height>'), 'must be a whole number'),
        ('<annotation>' + ' ' * (9 << 20) + '</annotation>', 'more than 8388608 bytes'),
    ],
)
def test_bad_files_are_left_out(tmp_path, png, content, match):
    data = _write(tmp_path, png(40, 30), a=content)
    opened = data.open(FILES, None)
    [entry] = data.entries(FILES)
    with pytest.raises(ValueError, match=match):
        source.read(opened.reader, entry, FILES)


def test_unstated_sizes_are_those_of_the_image(tmp_path, png):
    size = '<width>40.0</width><height>0</height>'
    [result] = _read(_write(tmp_path, png(40, 30), a=_xml(size=size)))
    assert (result.image.height, result.image.width) == (30, 40)


def test_real_data_is_detected(shared):
    found = formats.detect(str(shared / 'data/bccd/BCCD'), FILES)
    assert [item.name for item in found['voc']] == ['test', 'train', 'val']
    [train] = [item.source for item in found['voc'] if item.name == 'train']
    opened = train.open(FILES, None)
    assert opened.num_images == 205
    assert [*opened.labels] == ['Platelets', 'RBC', 'WBC']
    [fridge] = formats.detect(str(shared / 'data/od_fridge_sample'), FILES)['voc']
    assert sum(len(result.image) for result in _read(fridge.source)) == 12
    assert [*formats.detect(str(shared / 'data/coco_permissive'), FILES)] == ['coco']


def test_no_format_is_found_in_other_folders(tmp_path):
    (tmp_path / 'a.xml').write_text('<svg/>')
    (tmp_path / 'a.json').write_text('{"images": 5}')
    assert formats.detect(str(tmp_path), FILES) == {}
    shutil.rmtree(tmp_path)
    assert formats.detect(str(tmp_path), FILES) == {}


# Of an image 40 wide and 30 high: two objects, the border of the first, and one of no object.
_NUMBERS = np.zeros((30, 40), np.uint8)
_NUMBERS[4:10, 4:12] = 255
_NUMBERS[5:9, 5:11] = 1
_NUMBERS[20:25, 20:30] = 2
_NUMBERS[28:, 38:] = 9


def _masks(folder: pathlib.Path, image: bytes, *, colors: bool = False) -> VocSource:
    two = _xml(_object(4, 4, 12, 10), _object(20, 20, 30, 25, name='dog'), _object(0, 0, 4, 4))
    data = _write(folder, image, a=two, b=_xml(_object(0, 0, 9, 9), name='b.png'))
    picture = Image.fromarray(_NUMBERS)
    # Bits of a number, from the lowest on, are the highest of red, green, blue, red, ...
    palette = {1: (128, 0, 0), 2: (0, 128, 0), 9: (192, 0, 0), 255: (224, 224, 192)}
    picture.putpalette([byte for i in range(256) for byte in palette.get(i, (0, 0, 0))])
    (folder / 'SegmentationObject').mkdir()
    picture.convert('RGB' if colors else 'P').save(folder / 'SegmentationObject/a.png')
    return dataclasses.replace(data, masks=True)


@pytest.mark.parametrize('colors', [False, True])
def test_masks_of_segmentation_object(tmp_path, png, colors):
    data = _masks(tmp_path, png(40, 30), colors=colors)
    opened = data.open(FILES, None)
    assert opened.num_images == 1
    assert [*opened.notes.items()] == [
        ('not_converted: image without a file in SegmentationObject (--masks)', 1)
    ]
    [result] = _read(data)
    assert result.image.class_texts == ('cat', 'dog')
    np.testing.assert_allclose(result.image.boxes[0], [4 / 30, 0.1, 10 / 30, 0.3])
    masks = [np.asarray(Image.open(io.BytesIO(mask))) for mask in result.image.masks]
    assert [int(mask.sum()) for mask in masks] == [24, 50] == result.image.areas.tolist()
    assert masks[1][20:25, 20:30].all()
    assert [error.reason for _, error in result.problems] == ['bad_mask']
    assert result.notes == {'not_converted: number in SegmentationObject of no object': 1}


def test_lists_of_images_with_masks(tmp_path, png):
    data = _masks(tmp_path, png(40, 30))
    (tmp_path / 'ImageSets/Main/train.txt').write_text('a\nb\n')
    [found] = VocSource.detect(str(tmp_path), FILES)
    assert not found.source.masks
    assert found.reason.endswith('--masks reads SegmentationObject')
    train = dataclasses.replace(data, split='train')
    reasons = [entry.problem[:1] for entry in train.entries(FILES)]
    assert reasons == [(), ('not_annotated',)]
    (tmp_path / 'ImageSets/Segmentation').mkdir()
    (tmp_path / 'ImageSets/Segmentation/train.txt').write_text('a\n')
    assert [entry.image['id'] for entry in train.entries(FILES)] == ['a']
    (tmp_path / 'Annotations/b.xml').unlink()
    [found] = VocSource.detect(str(tmp_path), FILES)
    assert found.source.masks
