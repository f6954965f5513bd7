"""Names of images in annotations, as other machines wrote them, in all formats."""

import json
import pathlib

import numpy as np
import pytest
from PIL import Image

from object_detection.data import file_access
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import records as coco_records
from object_detection.data.formats import source
from object_detection.data.formats.camera_traps import CameraTrapsSource
from object_detection.data.formats.coco import CocoSource
from object_detection.data.formats.csv_boxes import CsvSource
from object_detection.data.formats.panoptic import PanopticSource
from object_detection.data.formats.tools.createml import CreateMlSource
from object_detection.data.formats.tools.cvat import CvatSource
from object_detection.data.formats.tools.label_studio import LabelStudioSource
from object_detection.data.formats.tools.labelme import LabelMeSource
from object_detection.data.formats.tools.via import ViaSource
from object_detection.data.formats.voc import VocSource
from object_detection.data.formats.yolo import YoloSource
from object_detection.errors import UnusableError

FILES = LocalFiles()
_BOX = '<xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>8</ymax>'


def _coco(folder: pathlib.Path, name: str, **annotation) -> None:
    box = {'id': 1, 'image_id': 1, 'category_id': 1, 'bbox': [1, 2, 8, 6], **annotation}
    document = {'images': [{'id': 1, 'file_name': name}], 'annotations': [box]}
    document['categories'] = [{'id': 1, 'name': 'cat'}]
    (folder / 'a.json').write_text(json.dumps(document))


def _of_coco(folder, name):
    _coco(folder, name)
    return CocoSource(f'{folder}/images', f'{folder}/a.json')


def _of_camera_traps(folder, name):
    _coco(folder, name)
    return CameraTrapsSource(f'{folder}/images', f'{folder}/a.json')


def _of_panoptic(folder, name):
    _coco(folder, name, file_name='m\\a.png', segments_info=[{'id': 5, 'category_id': 1}])
    (folder / 'masks/m').mkdir(parents=True)
    pixels = np.zeros((10, 10, 3), np.uint8)
    pixels[2:8, 1:9, 0] = 5
    Image.fromarray(pixels).save(folder / 'masks/m/a.png')
    return PanopticSource(f'{folder}/images', f'{folder}/a.json', f'{folder}/masks')


def _of_createml(folder, name):
    place = {'x': 5, 'y': 5, 'width': 8, 'height': 6}
    content = [{'image': name, 'annotations': [{'label': 'cat', 'coordinates': place}]}]
    (folder / 'a.json').write_text(json.dumps(content))
    return CreateMlSource(f'{folder}/a.json', f'{folder}/images')


def _of_via(folder, name):
    shape = {'name': 'rect', 'x': 1, 'y': 2, 'width': 8, 'height': 6}
    content = {'x': {'filename': name, 'regions': [{'shape_attributes': shape}]}}
    (folder / 'a.json').write_text(json.dumps(content))
    return ViaSource(f'{folder}/a.json', f'{folder}/images')


def _of_csv(folder, name):
    (folder / 'a.csv').write_text(f'filename,xmin,ymin,xmax,ymax,class\n{name},1,2,9,8,cat\n')
    return CsvSource(f'{folder}/a.csv', f'{folder}/images')


def _of_cvat(folder, name):
    (folder / 'a.xml').write_text(
        f'<annotations><image id="0" name="{name}" width="10" height="10">'
        '<box label="cat" xtl="1" ytl="2" xbr="9" ybr="8"/></image></annotations>'
    )
    return CvatSource(f'{folder}/a.xml')


def _of_label_studio(folder, name):
    value = {'x': 10, 'y': 20, 'width': 80, 'height': 60, 'rectanglelabels': ['cat']}
    results = [{'type': 'rectanglelabels', 'value': value}]
    tasks = [{'id': 1, 'data': {'image': name}, 'annotations': [{'result': results}]}]
    (folder / 'a.json').write_text(json.dumps(tasks))
    return LabelStudioSource(f'{folder}/a.json', f'{folder}/images')


def _of_labelme(folder, name):
    (folder / 'json').mkdir()
    shapes = [{'label': 'cat', 'shape_type': 'rectangle', 'points': [[1, 2], [9, 8]]}]
    document = {'imagePath': name, 'shapes': shapes}
    (folder / 'json/other.json').write_text(json.dumps(document))
    return LabelMeSource(f'{folder}/json', image_dir=f'{folder}/images')


def _of_voc(folder, name):
    (folder / 'Annotations').mkdir()
    (folder / 'Annotations/other.xml').write_text(
        f'<annotation><filename>{name}</filename><object><name>cat</name><bndbox>{_BOX}</bndbox>'
        '</object></annotation>'
    )
    return VocSource(str(folder), images_dir='images')


def _of_darknet(folder, name):
    # Darknet's lists have the folders of the machine of the annotator.
    (folder / 'images/labels').mkdir()
    (folder / 'images/obj.data').write_text('train = list.txt\nnames = obj.names\n')
    (folder / 'images/obj.names').write_text('cat\n')
    (folder / 'images/list.txt').write_text(f'{name}\n')
    for image in (folder / 'images').rglob('*b.*'):
        image.with_suffix('.txt').write_text('0 .5 .5 .8 .6\n')
    return YoloSource(f'{folder}/images/obj.data')


_FORMATS = {
    name.removeprefix('_of_'): value
    for name, value in list(globals().items())
    if name.startswith('_of_')
}
# Name in the annotations -> file in the folder of images.
_NAMES = {
    's\\b.jpg': 's/b.jpg',
    './b.jpg': 'b.jpg',
    'b.jpg': 'b.JPG',
    'b.PNG': 'b.png',
    'my%20b.jpg': 'my b.jpg',
    'x%20y.b.jpg': 'x%20y.b.jpg',
    '/home/me/images/b.jpg': 'b.jpg',
    'C:\\data\\s\\b.jpg': 's/b.jpg',
    '../images/b.jpg': 'b.jpg',
    'train/b.jpg': 'b.jpg',
}
_WITHOUT_SUFFIX = {'b': 'b.JPG', 's/frame_000.b': 's/frame_000.b.png'}


def _read(made: source.Source) -> source.ReadResult:
    data = made.open(FILES, None)
    [entry] = made.entries(FILES)
    return source.read(data.reader, entry, FILES)


@pytest.mark.parametrize('name', _FORMATS)
def test_images_are_found_by_the_names_of_other_machines(tmp_path, png, name):
    pairs = _NAMES | ({} if name in ('label_studio', 'darknet') else _WITHOUT_SUFFIX)
    if name == 'label_studio':
        del pairs['x%20y.b.jpg']  # Names are parts of URLs.
    for number, (written, path) in enumerate(pairs.items()):
        folder = tmp_path / str(number)
        (folder / 'images' / path).parent.mkdir(parents=True)
        (folder / 'images' / path).write_bytes(png(10, 10))
        read = _read(_FORMATS[name](folder, written))
        assert len(read.image) == 1, (written, read.problems)
        np.testing.assert_allclose(read.image.boxes, [[0.2, 0.1, 0.8, 0.9]], atol=1e-6)


@pytest.mark.parametrize('name', ['coco', 'camera_traps', 'csv', 'cvat'])
def test_images_of_equal_names_are_not_taken_for_each_other(tmp_path, png, name):
    """Of two names, a file in another folder than they say may be either."""
    (tmp_path / 'images').mkdir()
    (tmp_path / 'images/b.jpg').write_bytes(png(10, 10))
    made = _FORMATS[name](tmp_path, 'cam1/b.jpg')
    path = next(tmp_path.glob('a.*'))
    text = path.read_text()
    if name in ('coco', 'camera_traps'):
        document = json.loads(text)
        document['images'].append({'id': 2, 'file_name': 'cam2/b.jpg'})
        text = json.dumps(document)
    elif name == 'csv':
        text += 'cam2/b.jpg,1,2,9,8,cat\n'
    else:
        text = text.replace('</annotations>', '<image name="cam2/b.jpg"/></annotations>')
    path.write_text(text)
    data = made.open(FILES, None)
    for entry in made.entries(FILES):
        with pytest.raises(UnusableError, match=r'No such file.*cam[12]/b\.jpg'):
            source.read(data.reader, entry, FILES)


def test_direct_readers_find_them_too(tmp_path, png):
    (tmp_path / 'images').mkdir()
    (tmp_path / 'images/b.JPG').write_bytes(png(10, 10))
    _coco(tmp_path, 'data\\b.jpg')
    records = coco_records.load_coco(f'{tmp_path}/images', f'{tmp_path}/a.json')
    assert not list(records.missing_images())
    assert len(records.example(0)) > 100


def test_errors_say_what_leads_elsewhere(tmp_path):
    (tmp_path / 'images').mkdir()
    (tmp_path / 'b.jpg').write_bytes(b'not read')
    made = _of_labelme(tmp_path, '../../b.jpg')
    with pytest.raises(UnusableError, match=r"imagePath leads out .*images: '\.\./\.\./b\.jpg'"):
        _read(made)
    found = file_access.image_paths('images', 'C:\\b.jpg')
    assert found.note == (
        r"file_name is a path of another machine, and was looked for in images: 'C:\\b.jpg'"
    )
    assert 'images/b.jpg' in found.paths
    assert not [path for path in found.paths if '..' in path]


def test_what_is_an_image():
    assert all(map(file_access.is_image, ('a.JPG', 'a.tiff', 'a.jfif', 'a.b.mpo')))
    assert not any(map(file_access.is_image, ('a', 'jpg', 'a.txt', 'a.jpg.txt')))
