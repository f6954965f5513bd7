"""What a conversion does not convert is counted and named in its report."""

import json

import numpy as np
import pytest
from PIL import Image

from object_detection.core import tf_example_keys as keys
from object_detection.data import annotated_image, annotation_notes, label_map
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import records, source
from object_detection.data.formats.ava import AvaSource
from object_detection.data.formats.camera_traps import CameraTrapsSource
from object_detection.data.formats.coco import CocoSource
from object_detection.data.formats.csv_boxes import CsvSource
from object_detection.data.formats.kitti import KittiSource
from object_detection.data.formats.open_images import OpenImagesSource
from object_detection.data.formats.panoptic import PanopticSource
from object_detection.data.formats.pets import PetsSource
from object_detection.data.formats.source import ImageEntry, Source
from object_detection.data.formats.tools.cvat import CvatSource
from object_detection.data.formats.tools.label_studio import LabelStudioSource
from object_detection.data.formats.tools.labelme import LabelMeSource
from object_detection.data.formats.voc import VocSource
from object_detection.data.formats.yolo import YoloSource
from object_detection.errors import UnusableError

FILES = LocalFiles()
_BOX = '<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>8</ymax></bndbox>'
_VOC = (
    f'<annotation><filename>a.png</filename><object><name>cat</name>{_BOX}<occluded>0</occluded>'
    f'<part><name>head</name>{_BOX}</part><points>1</points></object></annotation>'
)
_KITTI = 'Car 0 0 0 1 2 9 8 1 1 1 1 1 1 1'
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
        (
            lambda d: VocSource(str(d), annotations_dir='', images_dir=''),
            _VOC,
            {'part': 1, 'points': 1},
        ),
        (lambda d: KittiSource(str(d)), f'{_KITTI} 0.9\n', {'column 16': 1}),
        (
            lambda d: YoloSource(f'{d}/y/classes.txt'),
            '0 .1 .2 .9 .2 .9 .8\n',
            {'polygon, of which the box is (--masks)': 1},
        ),
    ],
    ids=['cvat', 'labelme', 'label_studio', 'voc', 'kitti', 'yolo'],
)
def test_annotations_that_are_no_objects_are_named(tmp_path, png, make, content, expected):
    for name in ('f', 'a.json', 'a.xml', 'y/a.txt', 'training/label_2/a.txt'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / 'y/classes.txt').write_text('cat\n')
    for folder in ('', 'y', 'training/image_2'):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / 'a.png').write_bytes(png(10, 10))
    data, [entry] = _entries(make(tmp_path))
    result = source.read(data.reader, entry, FILES)
    assert len(result.image) == 1
    found = {
        name.removeprefix(annotated_image.NOT_CONVERTED): count
        for name, count in result.notes.items()
        if name.startswith(annotated_image.NOT_CONVERTED)
    }
    assert found == expected
    [line] = annotation_notes.sentences(result.notes)
    assert line.startswith(f'{sum(expected.values())} annotations or values that records')
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
    assert data.notes == {annotation_notes.REPEATED_IDS: 2}
    [line] = annotation_notes.sentences(data.notes)
    assert line.endswith('all the same: 2')


@pytest.mark.parametrize('examples', [False, True])
def test_frames_that_ava_does_not_name_are_counted(tmp_path, png, examples):
    (tmp_path / 'frames/v').mkdir(parents=True)
    for second in (902, 904, 905):
        (tmp_path / f'frames/v/v_{second:06d}.jpg').write_bytes(png(10, 10))
    (tmp_path / 'a.csv').write_text('v,0902,.1,.2,.5,.6,12,0\nv,0904,.1,.2,.5,.6,12,0\n')
    frames = f'{tmp_path}/frames/{{video}}/{{video}}_{{second:06d}}.jpg'
    made = AvaSource(f'{tmp_path}/a.csv', frames, examples=examples)
    assert made.open(FILES, None).unlisted == ['v/v_000905.jpg']


def test_images_that_pets_does_not_list_are_counted(tmp_path):
    for name in ('images/x_1.jpg', 'images/x_2.jpg', 'images/x_3.jpg'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / 'annotations').mkdir()
    (tmp_path / 'annotations/trainval.txt').write_text('x_1 1 1 1\nx_2 1 1 1\n')
    for split in ('', 'train', 'val'):
        assert PetsSource(str(tmp_path), split).open(FILES, None).unlisted == ['x_3.jpg']


@pytest.mark.parametrize(
    ('short', 'count'),
    [([], 0), ([[1, 1, 5, 5]], 1), ([[], [[1, 1], [5, 5]], [3, 3]], 3)],
)
def test_parts_of_masks_of_few_corners_are_counted(tmp_path, png, caplog, short, count):
    document = json.loads(_coco(['a.png']))
    segmentation = [*short, [2, 2, 8, 2, 8, 8]]
    for i, parts in enumerate((segmentation, [[2, 2, 8, 2, 8, 8]], [[1, 1, 5, 5]])):
        annotation = {**document['annotations'][0], 'id': i, 'segmentation': parts}
        document['annotations'][i:] = [annotation]
    (tmp_path / 'a.json').write_text(json.dumps(document))
    (tmp_path / 'a.png').write_bytes(png(10, 10))
    made = CocoSource(str(tmp_path), f'{tmp_path}/a.json', masks=True)
    data, [entry] = _entries(made)
    result = source.read(data.reader, entry, FILES)
    # What has no other part cannot be used, which is counted as a problem.
    assert [error.reason for _, error in result.problems] == ['bad_mask']
    name = 'part of a mask with less than three corners'
    assert _not_converted(result.notes) == ({name: count} if count else {})
    said = f'not converted: {count} x {name}'
    found = annotation_notes.sentences(result.notes)
    assert [line.endswith(said) for line in found] == [True] * bool(count)
    records.load_coco(str(tmp_path), f'{tmp_path}/a.json', masks=True).example(0)
    assert (said in caplog.text) == bool(count)


def _not_converted(said: dict[str, int]) -> dict[str, int]:
    return {key.removeprefix(annotated_image.NOT_CONVERTED): n for key, n in said.items()}


def test_what_annotations_of_coco_hold_besides_is_counted(tmp_path):
    further = {
        'segmentation': [[1, 2, 9, 2, 9, 8]],
        'keypoints': [5, 5, 2],
        'num_keypoints': 1,
        'dp_I': [1],
        'dp_x': [9],
        'attributes': {'occluded': True, 'rotation': 0.0},
        'caption': 'a cat',
    }
    nothing = {'segmentation': [], 'keypoints': [0, 0, 0], 'attributes': {'occluded': False}}
    box = {'image_id': 1, 'category_id': 1, 'bbox': [1, 2, 8, 6]}
    document = {
        'images': [{'id': i, 'file_name': f'{i % 2}.png'} for i in (1, 2, 3)],
        'annotations': [{'id': 1, **box, **further}, {'id': 2, **box, **nothing}],
        'categories': [
            {'id': 1, 'name': 'cat', 'keypoints': ['nose']},
            {'id': 2, 'name': 'dog'},
        ],
    }
    (tmp_path / 'a.json').write_text(json.dumps(document))
    (tmp_path / 'k.json').write_text(
        json.dumps({**document, 'annotations': [{'id': i, **box, **further} for i in (1, 5)]})
    )

    def said(**options) -> dict[str, int]:
        made = CocoSource(str(tmp_path), f'{tmp_path}/a.json', **options)
        return _not_converted(made.open(FILES, None).notes)

    usual = {'attributes': 1, 'caption': 1, annotation_notes.REPEATED_FILES: 1}
    masks = {'segmentation (--masks)': 1}
    points = {'keypoints (--keypoints)': 1}
    dense = {'DensePose points (--densepose_annotations)': 1}
    assert said() == usual | masks | points | dense
    assert said(masks=True, keypoints=True) == usual | dense
    only = 'keypoints of annotations that are only in k.json'
    found = said(keypoints_file=f'{tmp_path}/k.json', densepose_file=f'{tmp_path}/a.json')
    assert found == usual | masks | {only: 1}
    found = said(only_objects_of='dog', only_images_with='cat', masks=True, keypoints=True)
    assert found == usual | dense | {
        'object of another category (--only_objects_of)': 2,
        'image without an object of --only_images_with': 2,
    }


def test_columns_that_are_not_read_are_counted(tmp_path, png):
    (tmp_path / 'a.png').write_bytes(png(10, 10))
    rows = 'a,/m/1,.1,.9,.2,.8,1,me\na,/m/1,.1,.9,.2,.8,0,\n'
    header = 'ImageID,LabelName,XMin,XMax,YMin,YMax,IsGroupOf,Source'
    (tmp_path / 'o.csv').write_text(f'{header}\n{rows}')
    (tmp_path / 'l.csv').write_text('ImageID,LabelName,Confidence,Source\na,/m/1,1,you\n')
    made = OpenImagesSource(str(tmp_path), f'{tmp_path}/o.csv', f'{tmp_path}/l.csv')
    assert _not_converted(made.open(FILES, None).notes) == {'column Source': 2}
    header = 'filename,score,xmin,ymin,xmax,ymax,class'
    (tmp_path / 'a.csv').write_text(f'{header}\na.png,.5,1,2,9,8,cat\na.png,,1,2,9,8,cat\n')
    made = CsvSource(f'{tmp_path}/a.csv', str(tmp_path))
    assert _not_converted(made.open(FILES, None).notes) == {'column score': 1}


def test_panoptic_segments_that_are_no_objects_are_counted(tmp_path, png):
    pixels = np.zeros((10, 10, 3), np.uint8)
    pixels[:3], pixels[3:6], pixels[6:] = (7, 0, 0), (8, 0, 0), (9, 0, 0)
    Image.fromarray(pixels).save(tmp_path / 'm.png')
    (tmp_path / 'a.jpg').write_bytes(png(10, 10))
    segments = [{'id': 7, 'category_id': 1}, {'id': 8, 'category_id': 2}]
    document = {
        'images': [{'id': 1, 'file_name': 'a.jpg'}],
        'annotations': [{'image_id': 1, 'file_name': 'm.png', 'segments_info': segments}],
        'categories': [{'id': 1, 'name': 'cat'}, {'id': 2, 'name': 'sky', 'isthing': 0}],
    }
    (tmp_path / 'a.json').write_text(json.dumps(document))
    data, [entry] = _entries(PanopticSource(str(tmp_path), f'{tmp_path}/a.json', str(tmp_path)))
    result = source.read(data.reader, entry, FILES)
    assert [(error.reason, str(error)) for _, error in result.problems] == [
        ('not_wanted', 'sky (stuff)')
    ]
    assert _not_converted(result.notes) == {
        'segment of the PNG file that segments_info does not list': 1
    }


def test_classes_of_camera_traps_without_boxes_are_the_image_s_or_problems(tmp_path, png):
    (tmp_path / 'a.png').write_bytes(png(10, 10))
    annotations = [{'category_id': i, 'sequence_level_annotation': i == 1} for i in (0, 1, 2, 9)]
    document = {
        'images': [{'id': 1, 'file_name': 'a.png'}],
        'annotations': [{'id': i, 'image_id': 1, **each} for i, each in enumerate(annotations)],
        'categories': [{'id': i, 'name': name} for i, name in enumerate(('empty', 'cat', 'dog'))],
    }
    (tmp_path / 'a.json').write_text(json.dumps(document))
    (tmp_path / 'map.pbtxt').write_text('item { id: 1 name: "cat" }')
    made = CameraTrapsSource(str(tmp_path), f'{tmp_path}/a.json')
    data = made.open(FILES, label_map.load(str(tmp_path / 'map.pbtxt')))
    assert _not_converted(data.notes) == {'sequence_level_annotation': 1}
    [entry] = source.entries_of(made, FILES, data.reader)
    result = source.read(data.reader, entry, FILES)
    assert result.image.image_details[keys.IMAGE_CLASS_TEXT].tolist() == ['cat']
    assert [(key, error.reason) for key, error in result.problems] == [
        *((2, 'not_in_label_map'), (3, 'unknown_category'))
    ]


def test_readers_of_annotation_files_log_what_they_leave_out(caplog):
    log = annotation_notes.LeftOutLog('set', 14)
    bad = [(1, UnusableError('bad_box', 'none')), (2, UnusableError('not_wanted', 'difficult'))]
    said = {f'{annotated_image.NOT_CONVERTED}part': 2, annotated_image.FIRST_PIXEL: 1}
    for index in [*range(13), *range(13)]:
        log.add(index, index, bad, said if index > 11 else {})
    assert caplog.messages[9] == 'set: annotation 1 of image 9 is left out: none.'
    few = 'set, the first 11 read of 14 images: 11 annotations are left out: 11 x bad_box.'
    assert caplog.messages[10:] == [few]
    log.add(13, 13, [], {})
    [total] = caplog.messages[11:]
    assert total.startswith('set, all images: 13 annotations are left out: 13 x bad_box; 2 ')
    assert total.endswith('are not converted: 2 x part.')
