"""What a conversion does not convert is counted and named in its report."""

import json

import pytest

from object_detection.data import annotated_image
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import source
from object_detection.data.formats.ava import AvaSource
from object_detection.data.formats.coco import CocoSource
from object_detection.data.formats.csv_boxes import CsvSource
from object_detection.data.formats.cvat import CvatSource
from object_detection.data.formats.label_studio import LabelStudioSource
from object_detection.data.formats.labelme import LabelMeSource
from object_detection.data.formats.pets import PetsSource
from object_detection.data.formats.source import ImageEntry, Source
from object_detection.data.formats.voc import VocSource
from object_detection.dataset_tools.converters import conversion_report

FILES = LocalFiles()
_BOX = '<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>8</ymax></bndbox>'
_VOC = (
    f'<annotation><filename>a.png</filename><object><name>cat</name>{_BOX}'
    f'<part><name>head</name>{_BOX}</part></object></annotation>'
)
_CVAT = (
    '<annotations><image id="0" name="a.png" width="10" height="10"><tag label="night"/>'
    '<box label="cat" xtl="1" ytl="2" xbr="9" ybr="8"><attribute name="age">3</attribute></box>'
    '<tag label="rain"><attribute name="heavy">true</attribute></tag></image></annotations>'
)
_SHAPE = {'label': 'cat', 'shape_type': 'rectangle', 'points': [[1, 2], [9, 8]]}
_LABELME = {
    'imagePath': 'a.png',
    'flags': {'night': True, 'rain': False},
    'shapes': [{**_SHAPE, 'flags': {'sick': True}}],
}
_REGION = {'x': 10, 'y': 20, 'width': 80, 'height': 60}
_RESULTS = [
    {'id': 'r', 'type': 'rectanglelabels', 'value': {**_REGION, 'rectanglelabels': ['cat']}},
    {'id': 'r', 'type': 'rectangle', 'value': _REGION},
    {'id': 'r', 'type': 'textarea', 'value': {**_REGION, 'text': ['ABC']}},
    {'id': 'c', 'type': 'choices', 'value': {'choices': ['night']}},
    {'type': 'relation', 'from_id': 'r', 'to_id': 'r'},
]
_STUDIO = [{'id': 1, 'data': {'image': '/data/a.png'}, 'annotations': [{'result': _RESULTS}]}]


def _coco(names: list[str]) -> str:
    box = {'id': 7, 'category_id': 1, 'bbox': [1, 2, 8, 6]}
    return json.dumps(
        {
            'images': [{'id': i, 'file_name': name} for i, name in enumerate(names)],
            'annotations': [{**box, 'image_id': i} for i in range(len(names))],
            'categories': [{'id': 1, 'name': 'cat'}],
        }
    )


def _entries(made: Source) -> tuple[source.DataSet, list[ImageEntry]]:
    data = made.open(FILES, None)
    return data, [*source.entries_of(made, FILES, data.reader)]


@pytest.mark.parametrize(
    ('make', 'content', 'expected'),
    [
        (lambda d: CvatSource(f'{d}/f'), _CVAT, {'tag': 2, 'attribute': 2}),
        (lambda d: LabelMeSource(str(d)), json.dumps(_LABELME), {'flag': 2}),
        (
            lambda d: LabelStudioSource(f'{d}/f'),
            json.dumps(_STUDIO),
            {'textarea': 1, 'choices': 1, 'relation': 1},
        ),
        (lambda d: VocSource(str(d), annotations_dir='', images_dir=''), _VOC, {'part': 1}),
    ],
    ids=['cvat', 'labelme', 'label_studio', 'voc'],
)
def test_annotations_that_are_no_objects_are_named(tmp_path, png, make, content, expected):
    for name in ('f', 'a.json', 'a.xml'):
        (tmp_path / name).write_text(content)
    (tmp_path / 'a.png').write_bytes(png(10, 10))
    data, [entry] = _entries(make(tmp_path))
    result = source.read(data.reader, entry, FILES)
    assert len(result.image) == 1
    found = {
        name.removeprefix(annotated_image.NOT_CONVERTED): count
        for name, count in result.notes.items()
        if name.startswith(annotated_image.NOT_CONVERTED)
    }
    assert found == expected
    [line] = conversion_report._sentences(result.notes)
    assert line.startswith(f'{sum(expected.values())} annotations of kinds')
    assert all(f'{count} x {name}' in line for name, count in expected.items())


def test_names_of_other_letters_have_each_their_file_or_are_reported(tmp_path, png):
    names = ['A.JPG', 'A.jpg', 'b.JPG', 'b.jpg', 'c.jpg', 'c.png']
    for i, name in enumerate(('A.JPG', 'A.jpg', 'b.jpg', 'c.jpg', 'c.png'), start=10):
        (tmp_path / name).write_bytes(png(i, i))
    (tmp_path / 'a.json').write_text(_coco(names))
    rows = ''.join(f'{name},1,2,9,8,cat\n' for name in names)
    (tmp_path / 'a.csv').write_text(f'filename,xmin,ymin,xmax,ymax,class\n{rows}')
    for made in (
        CocoSource(str(tmp_path), f'{tmp_path}/a.json'),
        CsvSource(f'{tmp_path}/a.csv', str(tmp_path)),
    ):
        data, entries = _entries(made)
        sides = {
            entry.image['file_name']: source.read(data.reader, entry, FILES).image.width
            for entry in entries
            if not entry.problem
        }
        assert sides == {'A.JPG': 10, 'A.jpg': 11, 'b.JPG': 12, 'c.jpg': 13, 'c.png': 14}
        [problem] = [entry.problem for entry in entries if entry.problem]
        assert problem == ('duplicate_image', 'its file is that of another image, b.JPG')


def test_repeated_ids_of_coco_annotations_are_noted(tmp_path):
    (tmp_path / 'a.json').write_text(_coco(['a.png', 'b.png', 'c.png']))
    data = CocoSource(str(tmp_path), f'{tmp_path}/a.json').open(FILES, None)
    assert data.notes == {coco_annotations.REPEATED_IDS: 2}
    [line] = conversion_report._sentences(data.notes)
    assert line.endswith('all the same: 2')


@pytest.mark.parametrize('examples', [False, True])
def test_frames_that_ava_does_not_name_are_counted(tmp_path, png, examples):
    (tmp_path / 'frames/v').mkdir(parents=True)
    for second in (902, 904, 905):
        (tmp_path / f'frames/v/v_{second:06d}.jpg').write_bytes(png(10, 10))
    (tmp_path / 'a.csv').write_text('v,0902,.1,.2,.5,.6,12,0\nv,0904,.1,.2,.5,.6,12,0\n')
    frames = f'{tmp_path}/frames/{{video}}/{{video}}_{{second:06d}}.jpg'
    made = AvaSource(f'{tmp_path}/a.csv', frames, examples=examples)
    assert made.open(FILES, None).unlisted == 1


def test_images_that_pets_does_not_list_are_counted(tmp_path):
    for name in ('images/x_1.jpg', 'images/x_2.jpg', 'images/x_3.jpg'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / 'annotations').mkdir()
    (tmp_path / 'annotations/trainval.txt').write_text('x_1 1 1 1\nx_2 1 1 1\n')
    for split in ('', 'train', 'val'):
        assert PetsSource(str(tmp_path), split).open(FILES, None).unlisted == 1
