"""Of every format: what has no image, no annotations or no place is counted and named."""

import dataclasses
import io
import json
import re
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from object_detection.data.formats import formats
from object_detection.data.formats.ava import AvaSource
from object_detection.data.formats.coco import CocoSource
from object_detection.data.formats.csv_boxes import CsvSource
from object_detection.data.formats.kitti import KittiSource
from object_detection.data.formats.mask_files import MaskFilesSource
from object_detection.data.formats.open_images import OpenImagesSource
from object_detection.data.formats.panoptic import PanopticSource
from object_detection.data.formats.pets import PetsSource
from object_detection.data.formats.source import Source
from object_detection.data.formats.tools.createml import CreateMlSource
from object_detection.data.formats.tools.cvat import CvatSource
from object_detection.data.formats.tools.label_studio import LabelStudioSource
from object_detection.data.formats.tools.labelme import LabelMeSource
from object_detection.data.formats.tools.via import ViaSource
from object_detection.data.formats.voc import VocSource
from object_detection.data.formats.yolo import YoloSource
from object_detection.dataset_tools.converters import conversion, conversion_report
from object_detection.errors import UserError


@dataclasses.dataclass
class _Case:
    """A data set, and what a summary says of it.

    The image `a` has an object with a place, and one without; `gone` is annotated and missing; `b`
    is there, and has no annotations.

    Attributes:
      make: folder -> the data set.
      files: name -> text or bytes; None for an image.
      missing, not_annotated, without_place: a pattern of the summary.
    """

    make: Callable[[str], Source]
    files: dict[str, str | bytes | None]
    missing: str
    not_annotated: str
    without_place: str


_UNLISTED = '1 image files have names that the annotations do not list'
_EMPTY = 'images that no annotation names, and that are read as images without objects: 1'


def _png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, 'PNG')
    return file.getvalue()


_MASK = np.zeros((10, 10), np.uint8)
_MASK[2:8, 1:9] = 7
_BOX = {'bbox': [1, 2, 8, 6], 'category_id': 1}
_CATEGORIES = [{'id': 1, 'name': 'cat'}]
_IMAGES = [{'id': 1, 'file_name': 'a.png'}, {'id': 2, 'file_name': 'gone.png'}]
_COCO = {
    'images': _IMAGES,
    'annotations': [
        {'id': 1, 'image_id': 1, **_BOX},
        {'id': 2, 'image_id': 1, 'category_id': 1},
        {'id': 3, 'image_id': 2, **_BOX},
        {'id': 4, 'image_id': 3, **_BOX},
    ],
    'categories': _CATEGORIES,
}
_PANOPTIC = {
    'images': [*_IMAGES, {'id': 3, 'file_name': 'b.png'}],
    'annotations': [
        {
            'image_id': number,
            'file_name': f'{number}.png',
            'segments_info': [{'id': 7, 'category_id': 1}, {'id': 8, 'category_id': 1}],
        }
        for number in (1, 2, 4)
    ],
    'categories': _CATEGORIES,
}
_SHAPE = {'label': 'cat', 'shape_type': 'polygon', 'points': [[1, 2], [9, 2], [9, 8]]}
_REGION = {
    'type': 'rectanglelabels',
    'value': {'x': 10, 'y': 20, 'width': 80, 'height': 60, 'rectanglelabels': ['cat']},
}
_NO_REGION = {'type': 'rectanglelabels', 'value': {'rectanglelabels': ['cat']}}
_CENTER = {'label': 'cat', 'coordinates': {'x': 5, 'y': 5, 'width': 8, 'height': 6}}
_REGION_OF_VIA = {
    'shape_attributes': {'name': 'rect', 'x': 1, 'y': 2, 'width': 8, 'height': 6},
    'region_attributes': {'label': 'cat'},
}
_CVAT = (
    '<annotations><image name="a.png"><box label="cat" xtl="1" ytl="2" xbr="9" ybr="8"/>'
    '<polygon label="cat" points=""/></image>'
    '<image name="gone.png"><box label="cat" xtl="1" ytl="2" xbr="9" ybr="8"/></image>'
    '</annotations>'
)
_KITTI = 'Car 0 0 0 1 2 9 8 1 1 1 1 1 1 1\n'


def _labelme(name: str, *shapes: dict) -> str:
    return json.dumps({'imagePath': name, 'shapes': shapes})


def _tasks(**annotations: list) -> str:
    tasks = [
        {'id': i, 'data': {'image': f'/data/{name}.png'}, 'annotations': of_task}
        for i, (name, of_task) in enumerate(annotations.items())
    ]
    return json.dumps(tasks)


def _xml(name: str, *, without_place: bool = False) -> str:
    found = (
        '<object><name>cat</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>8</ymax>'
        '</bndbox></object>'
    )
    found += '<object><name>cat</name></object>' if without_place else ''
    return f'<annotation><filename>{name}</filename>{found}</annotation>'


_CASES = {
    'coco': _Case(
        lambda d: CocoSource(d, f'{d}/x.json'),
        {'a.png': None, 'b.png': None, 'x.json': json.dumps(_COCO)},
        r'1 x unknown_image.*\n.*\b3\b(.|\n)*1 x bad_image.*\n  gone.png: cannot be read',
        _UNLISTED,
        r'1 x bad_box.*\n  a.png, annotation 2: bbox must be four numbers, is None',
    ),
    'ava': _Case(
        lambda d: AvaSource(f'{d}/x.csv', f'{d}/f/{{video}}_{{second:06d}}.png'),
        {
            'f/v_000902.png': None,
            'f/v_000905.png': None,
            'x.csv': 'v,902,.1,.2,.9,.8,1,0\nv,902,.5,.2,.5,.8,1,0\nv,903,.1,.2,.9,.8,1,0\n',
        },
        r'1 x bad_image.*\n  .*v_000903.png: cannot be read',
        _UNLISTED,
        r'1 x box_without_area.*\n  .*v_000902.png, annotation line 2',
    ),
    'createml': _Case(
        lambda d: CreateMlSource(f'{d}/x.json'),
        {
            **dict.fromkeys(('a.png', 'b.png')),
            'x.json': json.dumps(
                [
                    {'image': 'a.png', 'annotations': [_CENTER, {'label': 'cat'}]},
                    {'image': 'gone.png', 'annotations': [_CENTER]},
                ]
            ),
        },
        r'1 x bad_image.*\n  gone.png: cannot be read',
        _UNLISTED,
        r'1 x bad_box.*\n  a.png, annotation 1: it has no coordinates',
    ),
    'csv': _Case(
        lambda d: CsvSource(f'{d}/x.csv'),
        {
            **dict.fromkeys(('a.png', 'b.png')),
            'x.csv': 'filename,xmin,ymin,xmax,ymax,class\na.png,1,2,9,8,cat\n'
            'a.png,,,,,cat\ngone.png,1,2,9,8,cat\n',
        },
        r'1 x bad_image.*\n  gone.png: cannot be read',
        _UNLISTED,
        r'1 x bad_box.*\n  a.png, annotation line 3: xmin must be a finite number',
    ),
    'cvat': _Case(
        lambda d: CvatSource(f'{d}/x.xml'),
        {'a.png': None, 'b.png': None, 'x.xml': _CVAT},
        r'1 x bad_image.*\n  gone.png: cannot be read',
        _UNLISTED,
        r'1 x bad_points.*\n  a.png, annotation 1: points: not pairs: ',
    ),
    'kitti': _Case(
        KittiSource,
        {
            'training/label_2/a.txt': f'{_KITTI}Car 0 0 0 1 2\n',
            'training/label_2/gone.txt': _KITTI,
            **{f'training/image_2/{name}.png': None for name in 'ab'},
        },
        r'1 x bad_image.*\n  gone.png: cannot be read',
        r'1 x bad_annotations.*\n  b.png: cannot be read',
        r'1 x bad_box.*\n  a.png, annotation 2: expected 15 columns, received 6',
    ),
    'label_studio': _Case(
        lambda d: LabelStudioSource(f'{d}/x.json'),
        {
            **dict.fromkeys(('a.png', 'b.png')),
            'x.json': _tasks(
                a=[{'result': [_REGION, _NO_REGION]}], gone=[{'result': [_REGION]}], b=[]
            ),
        },
        r'1 x bad_image.*\n  .*gone.png: cannot be read',
        r'1 x not_annotated.*\n  .*b.png: ',
        r'1 x bad_box.*\n  .*a.png, annotation 1: x must be a finite number',
    ),
    'labelme': _Case(
        LabelMeSource,
        {
            **dict.fromkeys(('a.png', 'b.png')),
            'a.json': _labelme('a.png', _SHAPE, {**_SHAPE, 'points': []}),
            'gone.json': _labelme('gone.png', _SHAPE),
        },
        r'1 x bad_image.*\n  gone.json: cannot be read',
        _UNLISTED,
        r'1 x bad_mask.*\n  a.(png|json), annotation 1: a polygon has less than three corners',
    ),
    'masks': _Case(
        MaskFilesSource,
        {
            **dict.fromkeys(('images/a.png', 'images/b.png')),
            'masks/a/1.png': _png(_MASK),
            'masks/a/2.png': _png(0 * _MASK),
            'masks/gone.png': _png(_MASK),
        },
        r'1 x unknown_file.*\n  masks/gone.png: it is not read',
        r'1 x not_annotated.*\n  images/b.png: there is no mask of it',
        r'1 x bad_mask.*\n  images/a.png, annotation 2.png: ',
    ),
    'open_images': _Case(
        lambda d: OpenImagesSource(d, f'{d}/x.csv'),
        {
            **dict.fromkeys(('a.png', 'b.png')),
            'x.csv': 'ImageID,LabelName,XMin,XMax,YMin,YMax\na,/m/1,.1,.9,.2,.8\n'
            'a,/m/1,,,,\ngone,/m/1,.1,.9,.2,.8\n',
        },
        r'1 x unknown_image.*\n.*1 rows of .* are of 1 images that are not .*: gone',
        _EMPTY,
        r'1 x bad_box.*\n  a.png, annotation line 3: XMin must be a finite number',
    ),
    'panoptic': _Case(
        lambda d: PanopticSource(d, f'{d}/x.json', f'{d}/m'),
        {
            **dict.fromkeys(('a.png', 'b.png')),
            'x.json': json.dumps(_PANOPTIC),
            **{f'm/{i}.png': _png(np.stack([_MASK, *(2 * [0 * _MASK])], -1)) for i in (1, 2)},
        },
        r'1 x unknown_image.*\n  4.png(.|\n)*1 x bad_image.*\n  gone.png: cannot be read',
        r'1 x not_annotated.*\n  b.png: ',
        r'1 x bad_mask.*\n  a.png, annotation 8: ',
    ),
    'pets': _Case(
        PetsSource,
        {
            **{f'images/{name}_1.jpg': None for name in 'ab'},
            'annotations/trainval.txt': 'a_1 1 1 1\ngone_1 1 1 1\n',
            'annotations/xmls/a_1.xml': _xml('a_1.jpg', without_place=True),
            'annotations/xmls/gone_1.xml': _xml('gone_1.jpg'),
        },
        r'1 x bad_image.*\n  gone_1.jpg: cannot be read',
        _UNLISTED,
        r'1 x bad_box.*\n  a_1.jpg, annotation 1: object has no bndbox',
    ),
    'via': _Case(
        lambda d: ViaSource(f'{d}/x.json'),
        {
            **dict.fromkeys(('a.png', 'b.png')),
            'x.json': json.dumps(
                {
                    'a.png9': {'filename': 'a.png', 'regions': [_REGION_OF_VIA, {}]},
                    'gone.png9': {'filename': 'gone.png', 'regions': [_REGION_OF_VIA]},
                }
            ),
        },
        r'1 x bad_image.*\n  gone.png: cannot be read',
        _UNLISTED,
        r'1 x unknown_category.*\n  a.png, annotation 1: it has no class',
    ),
    'voc': _Case(
        lambda d: VocSource(d, annotations_dir='', images_dir=''),
        {
            **dict.fromkeys(('a.png', 'b.png')),
            'a.xml': _xml('a.png', without_place=True),
            'gone.xml': _xml('gone.png'),
        },
        r'1 x bad_image.*\n  gone.xml: cannot be read',
        _UNLISTED,
        r'1 x bad_box.*\n  a.xml, annotation 1: object has no bndbox',
    ),
    'yolo': _Case(
        lambda d: YoloSource(f'{d}/classes.txt'),
        {
            'classes.txt': 'cat\n',
            **dict.fromkeys(('images/a.png', 'images/b.png')),
            'labels/a.txt': '0 .5 .5 .4 .4\n0 .5 .5\n',
            'labels/gone.txt': '0 .5 .5 .4 .4\n',
        },
        r'1 x bad_image.*\n  .*gone.txt: cannot be read',
        _EMPTY,
        r'1 x bad_box.*\n  .*a.png, annotation 2: expected four numbers of a box',
    ),
}


def _summary(made: Source) -> str:
    """Returns what the conversion of a data set says, or the UserError that it raises."""
    try:
        job = conversion._job(made, strict=False)
    except UserError as error:
        return str(error)
    for _, (_, packed) in conversion.entries(made, 1, job.reader):
        job.convert(conversion._unpacked(packed), job.tally)
    report = {'num_shards': 1, **job.facts, **job.tally.report()}
    return conversion_report.summary(report)


def test_every_format_is_in_the_table():
    # Rows of hubs hold their images, see test_hubs.
    assert {*_CASES, 'hf', 'tfds'} == {*formats.ANNOTATION_FORMATS}


@pytest.mark.parametrize('name', _CASES)
def test_nothing_is_left_out_without_a_word(name, tmp_path, png):
    case = _CASES[name]
    for file, content in case.files.items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        content = png(10, 10) if content is None else content
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    made = case.make(str(tmp_path))
    assert type(made) is formats.ANNOTATION_FORMATS[name].source
    summary = _summary(made)
    for pattern in (case.missing, case.not_annotated, case.without_place):
        assert re.search(pattern, summary), (pattern, summary)
    # The object with a place is the only one of the image that is written.
    assert re.search(r'; 1 objects of ', summary), summary
