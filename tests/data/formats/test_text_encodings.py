"""Files of text with a byte order mark, as editors of Windows write them, in all formats."""

import pathlib

import pytest

from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import source
from object_detection.data.formats.csv_boxes import CsvSource
from object_detection.data.formats.kitti import KittiSource
from object_detection.data.formats.pets import PetsSource
from object_detection.data.formats.voc import VocSource
from object_detection.data.formats.yolo import YoloSource

FILES = LocalFiles()
_XML = (
    '<annotation><filename>{0}.png</filename><object><name>cat</name><bndbox><xmin>1</xmin>'
    '<ymin>2</ymin><xmax>9</xmax><ymax>8</ymax></bndbox></object></annotation>'
)
_KITTI = 'Car 0 0 0 1 2 9 8 1 1 1 1 1 1 1\n'
# Format -> source in a folder, text files, images.
_SETS = {
    'ultralytics': (
        lambda folder: YoloSource(f'{folder}/data.yaml'),
        {'data.yaml': 'train: train\nnames: [cat]\n', 'train/a.txt': '0 .5 .5 .4 .4\n'},
        'train/a.png',
    ),
    'darknet': (
        lambda folder: YoloSource(f'{folder}/obj.data'),
        {
            'obj.data': 'train = train.txt\nnames = obj.names\n',
            'train.txt': 'a.png\n',
            'obj.names': 'cat\n',
            'a.txt': '0 .5 .5 .4 .4\n',
        },
        'a.png',
    ),
    'voc': (
        lambda folder: VocSource(str(folder), split='train'),
        {'ImageSets/Main/train.txt': 'a\n', 'Annotations/a.xml': _XML.format('a')},
        'JPEGImages/a.png',
    ),
    'kitti': (
        lambda folder: KittiSource(str(folder)),
        {'training/label_2/000000.txt': _KITTI},
        'training/image_2/000000.png',
    ),
    'pets': (
        lambda folder: PetsSource(str(folder)),
        {'annotations/trainval.txt': 'cat_1 1\n', 'annotations/xmls/cat_1.xml': _XML.format('a')},
        'images/cat_1.jpg',
    ),
    'csv': (
        lambda folder: CsvSource(f'{folder}/a.csv'),
        {'a.csv': 'filename,xmin,ymin,xmax,ymax,class\na.png,1,2,9,8,cat\n'},
        'a.png',
    ),
}


@pytest.mark.parametrize('name', _SETS)
@pytest.mark.parametrize('encoding', ['utf-8-sig', 'utf-16'])
def test_a_byte_order_mark_costs_nothing(tmp_path, png, name, encoding):
    make, written, image = _SETS[name]
    (tmp_path / image).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / image).write_bytes(png(10, 10))
    for path, text in written.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(text.encode(encoding))
    made = make(tmp_path)
    data = made.open(FILES, None)
    [entry] = made.entries(FILES)
    read = source.read(data.reader, entry, FILES)
    assert not read.problems
    assert len(read.image) == 1


def test_text_of_another_encoding_is_an_error_and_no_other_name(tmp_path, png):
    pathlib.Path(tmp_path / 'classes.txt').write_bytes('Tür\n'.encode('latin-1'))
    (tmp_path / 'a.png').write_bytes(png(10, 10))
    (tmp_path / 'a.txt').write_text('0 .5 .5 .4 .4')
    with pytest.raises(ValueError, match=r'classes\.txt, line 1: expected text in UTF-8.*\\xfcr'):
        YoloSource(f'{tmp_path}/classes.txt').open(FILES, None)


def test_an_invisible_character_is_named(tmp_path, png):
    (tmp_path / 'classes.txt').write_text('cat\n')
    (tmp_path / 'a.png').write_bytes(png(10, 10))
    (tmp_path / 'a.txt').write_text('\u200b0 .5 .5 .4 .4')
    made = YoloSource(f'{tmp_path}/classes.txt')
    [entry] = made.entries(FILES)
    [(_, error)] = source.read(made.open(FILES, None).reader, entry, FILES).problems
    assert str(error) == 'the class is <U+200B ZERO WIDTH SPACE>0'
