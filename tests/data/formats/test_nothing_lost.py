"""What lies in the folders of a data set is converted, or is a problem: in all formats."""

import json
import pathlib

import numpy as np
import pytest
from PIL import Image

from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import records, source
from object_detection.data.formats.coco import CocoSource
from object_detection.data.formats.csv_boxes import CsvSource
from object_detection.data.formats.kitti import KittiSource
from object_detection.data.formats.mask_files import MaskFilesSource
from object_detection.data.formats.open_images import OpenImagesSource
from object_detection.data.formats.panoptic import PanopticSource
from object_detection.data.formats.tools.label_studio import LabelStudioSource
from object_detection.data.formats.tools.labelme import LabelMeSource
from object_detection.data.formats.voc import VocSource
from object_detection.data.formats.yolo import YoloSource
from object_detection.errors import UnusableError

FILES = LocalFiles()
_LINE = '0 .5 .5 .4 .4\n'
_KITTI = 'Car 0 0 0 1 2 9 8 1 1 1 1 1 1 1\n'


def _xml(name: str) -> str:
    return (
        f'<annotation><filename>{name}</filename><object><name>cat</name><bndbox><xmin>1</xmin>'
        '<ymin>2</ymin><xmax>9</xmax><ymax>8</ymax></bndbox></object></annotation>'
    )


@pytest.fixture
def write(tmp_path, png):
    """Writes files: text, or None for an image of the folder's own colours."""

    def make(**contents: str | None) -> pathlib.Path:
        for name, content in contents.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(10, 10) if content is None else content.encode())
        return tmp_path

    return make


def _converted(made: source.Source) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Returns the number of objects of each image, by name, and the (reason, file) of problems."""
    data = made.open(FILES, None)
    objects, problems = {}, [(item.error.reason, item.file_name) for item in data.problems]
    entries = [*source.entries_of(made, FILES)]
    assert data.num_images == len(entries)
    for entry in entries:
        name = entry.image['file_name']
        try:
            read = source.read(data.reader, entry, FILES)
        except UnusableError as error:
            problems.append((error.reason, name))
            continue
        objects[name] = len(read.image)
        problems += [(error.reason, name) for _, error in read.problems]
    return objects, problems


def test_yolo_reads_images_of_all_suffixes_and_counts_those_that_are_missing(write):
    names = ('a.jfif', 'b.MPO', 'c.tif', 'd.JPG')
    images = {f'train/images/{name}': None for name in names}
    labels = {f'train/labels/{stem}.txt': _LINE for stem in ('a', 'b', 'c', 'gone')}
    write(**images, **labels)
    folder = write(
        **{
            'train/images/c.tif': 'no TIFF',
            'train/labels/d.TXT': _LINE,
            'train/labels/classes.txt': 'cat\n',
            'data.yaml': 'train: train/images\nval: train/images\nnames: [cat]\n',
        },
    )
    objects, problems = _converted(YoloSource(f'{folder}/data.yaml', split='train'))
    assert objects == {'a.jfif': 1, 'b.MPO': 1, 'd.JPG': 1}
    assert problems == [('bad_image', 'c.tif'), ('bad_image', f'{folder}/train/labels/gone.txt')]
    # Both sets are the same folder.
    objects, problems = _converted(YoloSource(f'{folder}/data.yaml'))
    assert len(objects) == 3
    assert [reason for reason, _ in problems].count('duplicate_image') == 5


@pytest.mark.parametrize('labels', ['labels/', 'images/', 'images/in/'])
def test_yolo_s_text_files_of_images_are_not_taken_for_those_of_missing_ones(write, labels):
    folder = write(
        **{'classes.txt': 'cat\n', 'notes.txt': 'seen by me\n'},
        **{'images/a.jpg': None, 'images/in/a.jpg': None, f'{labels}a.txt': _LINE},
    )
    objects, problems = _converted(YoloSource(f'{folder}/classes.txt'))
    assert sorted(objects.values()) == [0, 1]
    assert not problems


def test_voc_reads_xml_files_in_folders_and_of_capital_letters(write):
    folder = write(
        **{f'Annotations/{name}': _xml(f'{name[-5]}.jpg') for name in ('b.xml', 'c.XML')},
        **{f'Annotations/{name}/a.xml': _xml('a.jpg') for name in ('s1', 's2')},
        **{f'JPEGImages/{name}.jpg': None for name in ('b', 'c', 's1/a', 's2/a')},
        **{'ImageSets/Main/train.txt': 'c\ns1/a\n'},
    )
    objects, problems = _converted(VocSource(str(folder)))
    assert objects == {'b.xml': 1, 'c.XML': 1, 's1/a.xml': 1, 's2/a.xml': 1}
    assert not problems
    data = VocSource(str(folder), split='train')
    reader = data.open(FILES, None).reader
    ids = [source.read(reader, entry, FILES).image.source_id for entry in data.entries(FILES)]
    assert ids == ['c.jpg', 's1/a.jpg']


def test_voc_files_that_name_the_image_of_another_file_are_problems(write):
    folder = write(
        **{'Annotations/a.xml': _xml('a.jpg'), 'JPEGImages/a.jpg': None},
        # Renamed, with the earlier name in it: of an image that is there, and of one that is not.
        **{'Annotations/b.xml': _xml('a.jpg'), 'JPEGImages/b.jpg': None},
        **{'Annotations/c.xml': _xml('old.jpg'), 'JPEGImages/c.jpg': None},
        # The image of this file is that of another one.
        **{'Annotations/d.xml': _xml('a.jpg')},
    )
    objects, problems = _converted(VocSource(str(folder)))
    assert objects == {'a.xml': 1, 'c.xml': 1}
    assert problems == [('duplicate_image', 'b.xml'), ('duplicate_image', 'd.xml')]


def test_kitti_counts_label_files_without_images(write):
    folder = write(
        **{f'training/label_2/{stem}.txt': _KITTI for stem in ('000000', '000001')},
        **{'training/image_2/000000.png': None, 'training/image_2/000002.TIF': None},
        **{'training/label_2/000003.TXT': _KITTI, 'training/image_2/000003.png': None},
    )
    objects, problems = _converted(KittiSource(str(folder)))
    assert objects == {'000000.png': 1, '000003.png': 1}
    assert problems == [('bad_annotations', '000002.TIF'), ('bad_image', '000001.png')]


def test_open_images_counts_images_of_equal_ids(write):
    folder = write(
        **dict.fromkeys(('a/x.jpg', 'b/x.jpg', 'b/y.PNG')),
        **{'boxes.csv': 'ImageID,LabelName,XMin,XMax,YMin,YMax\nx,/m/1,0.1,0.5,0.1,0.5\n'},
    )
    objects, problems = _converted(OpenImagesSource(str(folder), f'{folder}/boxes.csv'))
    assert objects == {'a/x.jpg': 1, 'b/y.PNG': 0}
    assert problems == [('duplicate_image', 'b/x.jpg')]


def test_masks_without_images_and_images_without_masks_are_problems(write):
    mask = np.zeros((10, 10), np.uint8)
    mask[2:8, 1:9] = 1
    folder = write(
        **{f'images/{name}': None for name in ('a.png', 'b.jpg', 'c.tif')},
        **{'masks/gone.png': None, 'masks/b.jpg': None, 'other/d.png': None},
    )
    Image.fromarray(mask).save(folder / 'masks/a.png')
    data = MaskFilesSource(str(folder))
    objects, problems = _converted(data)
    assert objects == {'images/a.png': 1}
    assert problems == [
        *(('unknown_file', 'masks/b.jpg'), ('unknown_file', 'masks/gone.png')),
        *(('not_annotated', 'images/b.jpg'), ('not_annotated', 'images/c.tif')),
    ]
    objects, _ = _converted(MaskFilesSource(str(folder), keep_not_annotated=True))
    assert objects == {'images/a.png': 1, 'images/b.jpg': 0, 'images/c.tif': 0}


def _region(**value) -> dict:
    box = {'x': 10, 'y': 20, 'width': 80, 'height': 60, **value}
    return {'type': 'rectangle', 'value': box}


def test_label_studio_s_unfinished_tasks_and_regions_without_label_are_problems(write):
    cat = _region(rectanglelabels=['cat'])
    annotations = {
        'done.jpg': [{'result': [cat]}],
        'open.jpg': [],
        'skipped.jpg': [{'result': [cat], 'was_cancelled': True}],
        'empty.jpg': [{'result': []}],
        'second.jpg': [{'result': []}, {'result': [cat]}],
        'truth.jpg': [{'result': [cat]}, {'result': [], 'ground_truth': True}],
        'bare.jpg': [{'result': [_region(), {**_region(), 'id': 'r'}, {**cat, 'id': 'r'}]}],
    }
    tasks = [
        {'id': min(i, 3), 'data': {'image': f'/data/{name}'}, 'annotations': of_task}
        for i, (name, of_task) in enumerate(annotations.items())
    ]
    folder = write(**dict.fromkeys(annotations), **{'a.json': json.dumps(tasks)})
    data = LabelStudioSource(f'{folder}/a.json')
    # Numbers of tasks that repeat are no ids.
    objects, problems = _converted(data)
    assert objects == {
        f'/data/{name}.jpg': number
        for name, number in (('done', 1), ('empty', 0), ('second', 1), ('truth', 0), ('bare', 1))
    }
    assert problems == [
        *(('not_annotated', '/data/open.jpg'), ('not_annotated', '/data/skipped.jpg')),
        ('unknown_category', '/data/bare.jpg'),
    ]
    objects, _ = _converted(LabelStudioSource(f'{folder}/a.json', keep_not_annotated=True))
    assert objects['/data/open.jpg'] == objects['/data/skipped.jpg'] == 0


def test_panoptic_images_without_segments_are_problems(write):
    document = {
        'images': [{'id': i, 'file_name': f'{i}.jpg'} for i in (1, 2)],
        'annotations': [{'image_id': 1, 'file_name': '1.png', 'segments_info': []}],
        'categories': [{'id': 1, 'name': 'cat'}],
    }
    folder = write(**{f'{i}.jpg': None for i in (1, 2, 3)}, **{'a.json': json.dumps(document)})
    Image.new('RGB', (10, 10)).save(folder / '1.png')
    data = PanopticSource(str(folder), f'{folder}/a.json', str(folder))
    assert _converted(data) == ({'1.jpg': 0}, [('not_annotated', '2.jpg')])
    keep = PanopticSource(str(folder), f'{folder}/a.json', str(folder), keep_not_annotated=True)
    assert _converted(keep) == ({'1.jpg': 0, '2.jpg': 0}, [])


def test_images_that_the_annotations_do_not_name_are_counted(write):
    boxes = [{'id': 1, 'image_id': 1, 'category_id': 1, 'bbox': [1, 2, 8, 6]}]
    document = {'images': [{'id': 1, 'file_name': 's/a.jpg'}], 'annotations': boxes}
    document['categories'] = [{'id': 1, 'name': 'cat'}]
    shapes = [{'label': 'cat', 'shape_type': 'rectangle', 'points': [[1, 2], [9, 8]]}]
    folder = write(
        **{f'images/{name}': None for name in ('s/a.JPG', 'b.jpg', 's/c.tif')},
        **{
            'coco.json': json.dumps(document),
            'a.csv': 'filename,xmin,ymin,xmax,ymax,class\ns/a.jpg,1,2,9,8,cat\n',
            'json/a.JSON': json.dumps({'imagePath': 's/a.jpg', 'shapes': shapes}),
            'xml/a.xml': _xml('s/a.jpg'),
        },
    )
    for made in (
        CocoSource(f'{folder}/images', f'{folder}/coco.json'),
        CsvSource(f'{folder}/a.csv', f'{folder}/images'),
        LabelMeSource(f'{folder}/json', image_dir=f'{folder}/images'),
        VocSource(str(folder), annotations_dir='xml', images_dir='images'),
    ):
        assert made.open(FILES, None).unlisted == ['b.jpg', 's/c.tif'], made
        assert [*_converted(made)[0].values()] == [1]


def test_images_that_no_annotation_names_are_named_when_they_are_read(write, caplog):
    names = [f'train/{name}.png' for name in 'abcdef']
    folder = write(
        **dict.fromkeys(names),
        **{'train/c.txt': _LINE, 'data.yaml': 'train: train\nnames: [cat]\n'},
    )
    loaded = records.load(YoloSource(f'{folder}/data.yaml'), f'{folder}/data.yaml', '')
    for index in range(len(names)):
        loaded.example(index)
    assert 'read as images without objects: 5, such as a.png, b.png, d.png.' in caplog.text


def test_direct_readers_leave_out_duplicates_and_say_so(write, caplog):
    folder = write(
        **{'train/a.png': None, 'train/a.txt': f'{_LINE}0 .1 .2 .9 .2 .9 .8\n0 .5\n'},
        **{'data.yaml': 'train: train\nval: train\nnames: [cat]\n'},
    )
    loaded = records.load(YoloSource(f'{folder}/data.yaml'), f'{folder}/data.yaml', '')
    assert len(loaded) == 1
    assert (
        '1 images, annotations or files are left out: a.png: another image has its id, a.png'
        in caplog.text
    )
    caplog.clear()
    for _ in range(2):
        loaded.example(0)
    named, total = caplog.messages
    assert 'annotation 3 of image a.png is left out: expected four numbers of a box' in named
    assert 'all images: 1 annotations are left out: 1 x bad_box; 1 annotations or' in total
    assert 'not converted: 1 x polygon, of which the box is (--masks).' in total
