"""Small data sets of every annotation format, which fuzz_files.py mutates."""

import base64
import io
import json
import pathlib

import numpy as np
from PIL import Image

_WIDTH, _HEIGHT = 24, 20
_COLUMNS = 'ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside'  # noqa: E501
_VOC = """<annotation><filename>{}.jpg</filename><size><width>24</width><height>20</height>
<depth>3</depth></size><object><name>cat</name><pose>Frontal</pose><truncated>1</truncated>
<difficult>0</difficult><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>12</xmax><ymax>15</ymax></bndbox>
</object></annotation>"""
_CVAT = """<annotations><version>1.1</version><meta><task><labels><label><name>dog</name></label>
<label><name>cat</name></label></labels></task></meta>
{}</annotations>"""
_CVAT_IMAGE = """<image id="{0}" name="{0}.jpg" width="24" height="20">
<box label="cat" occluded="1" xtl="4" ytl="2" xbr="12" ybr="6" rotation="30"/>
<polygon label="dog" points="4,2;12,2;12,6;4,6"/>
<mask label="cat" rle="0,32" left="4" top="2" width="8" height="4"/>
<ellipse label="cat" cx="12" cy="10" rx="8" ry="4"/></image>
"""
# One run of opaque words, as long as four channels of an image.
_BITS = f'{4 * _WIDTH * _HEIGHT:032b}{7:05b}{2:04b}{3:04b}{7:04b}{15:04b}'
_BITS += f'111{4 * _WIDTH * _HEIGHT - 1:016b}{255:08b}'
_RLE = [int(_BITS[i : i + 8].ljust(8, '0'), 2) for i in range(0, len(_BITS), 8)]
_KITTI = 'Car 0.25 2 -1.5 4 6 14 18 1.5 1.6 3.7 -2.5 1.25 20.5 0.25\n'


def make() -> dict[str, dict[str, bytes]]:
    """Returns name of a format -> path in a folder -> content of the file."""
    made = {
        'ava': _ava(),
        'createml': _with_images({'train.json': json.dumps([_centers(n) for n in range(3)])}),
        'csv': _with_images({'train_labels.csv': _csv()}),
        'cvat': _cvat(),
        'kitti': _each('training/image_2/{}.png', image('PNG'), 'training/label_2/{}.txt', _KITTI),
        'label_studio': _with_images({'export.json': json.dumps([_task(n) for n in range(3)])}),
        'labelme': _with_images({f'{n}.json': json.dumps(_labelme(n)) for n in range(3)}),
        'masks': _masks(),
        'open_images': _open_images(),
        'pets': _pets(),
        'via': _with_images({'via.json': json.dumps({f'{n}.jpg9': _via(n) for n in range(3)})}),
        'voc': _each('JPEGImages/{}.jpg', image('JPEG'), 'Annotations/{}.xml', _VOC),
        'yolo': _yolo(),
        **_coco(),
    }
    return {
        name: {k: v if isinstance(v, bytes) else v.encode() for k, v in files.items()}
        for name, files in made.items()
    }


def write(folder: pathlib.Path) -> None:
    """Writes each data set into a folder of its name."""
    for name, files in make().items():
        for path, content in files.items():
            target = folder / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def image(kind: str, pixels: np.ndarray | None = None) -> bytes:
    """Encodes pixels, by default random ones."""
    file = io.BytesIO()
    if pixels is None:
        shape = (_HEIGHT, _WIDTH, 3)
        pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def _mask(value: int = 1) -> np.ndarray:
    mask = np.zeros((_HEIGHT, _WIDTH), np.uint8)
    mask[2:6, 4:12] = value
    return mask


def _with_images(files: dict, folder: str = '') -> dict:
    return {**{f'{folder}{n}.jpg': image('JPEG') for n in range(3)}, **files}


def _each(image_path: str, content: bytes, path: str, text: str) -> dict:
    """Makes three images, each with a file of annotations."""
    images = {image_path.format(f'{n:06d}'): content for n in range(3)}
    return {**images, **{path.format(f'{n:06d}'): text.format(f'{n:06d}') for n in range(3)}}


def _ava() -> dict:
    lines = [f'v,{second:04d},0.1,0.2,0.5,0.6,{12 + second % 2},0' for second in range(902, 905)]
    frames = {f'frames/v_{second:06d}.jpg': image('JPEG') for second in range(902, 905)}
    return {**frames, 'ava_train.csv': '\n'.join(lines) + '\n'}


def _centers(number: int) -> dict:
    place = {'x': 8, 'y': 4, 'width': 8, 'height': 4}
    return {'image': f'{number}.jpg', 'annotations': [{'label': 'cat', 'coordinates': place}]}


def _via(number: int) -> dict:
    shapes = [
        {'name': 'rect', 'x': 4, 'y': 2, 'width': 8, 'height': 4},
        {'name': 'ellipse', 'cx': 12, 'cy': 10, 'rx': 8, 'ry': 4, 'theta': 0.5},
        {'name': 'polygon', 'all_points_x': [4, 12, 12], 'all_points_y': [2, 2, 6]},
    ]
    attributes = {'label': 'cat'}
    regions = [{'shape_attributes': each, 'region_attributes': attributes} for each in shapes]
    return {'filename': f'{number}.jpg', 'size': 9, 'regions': regions, 'file_attributes': {}}


def _csv() -> str:
    rows = [f'{n}.jpg,24,20,cat,4,2,12,6\n' for n in range(3)]
    return 'filename,width,height,class,xmin,ymin,xmax,ymax\n' + ''.join(rows)


def _cvat() -> dict:
    text = _CVAT.format(''.join(_CVAT_IMAGE.format(n) for n in range(3)))
    return _with_images({'annotations.xml': text}, 'images/')


def _task(number: int) -> dict:
    def region(kind: str, **value: object) -> dict:
        size = {'original_width': _WIDTH, 'original_height': _HEIGHT}
        return {'type': kind, **size, 'value': {**value, kind: ['cat']}}

    regions = [
        region('rectanglelabels', x=10, y=10, width=20, height=20, rotation=10),
        region('polygonlabels', points=[[10, 10], [30, 10], [30, 30]]),
        region('ellipselabels', x=50, y=50, radiusX=20, radiusY=20),
        region('brushlabels', format='rle', rle=_RLE),
    ]
    data = {'image': f'/data/upload/1/0123abcd-{number}.jpg'}
    return {'id': number, 'data': data, 'annotations': [{'result': regions}]}


def _labelme(number: int) -> dict:
    mask = base64.b64encode(image('PNG', _mask(255)[2:6, 4:12])).decode()
    shapes = [
        {'label': 'cat', 'shape_type': 'rectangle', 'points': [[12, 6], [4, 2]]},
        {'label': 'dog', 'shape_type': 'polygon', 'points': [[4, 2], [12, 2], [12, 6]]},
        {'label': 'cat', 'shape_type': 'circle', 'points': [[10, 10], [14, 10]]},
        {'label': 'cat', 'shape_type': 'mask', 'points': [[4, 2], [12, 6]], 'mask': mask},
    ]
    size = {'imageHeight': _HEIGHT, 'imageWidth': _WIDTH}
    return {'imagePath': f'{number}.jpg', **size, 'shapes': shapes}


def _masks() -> dict:
    files = {f'{n}/images/{n}.png': image('PNG') for n in range(3)}
    return files | {f'{n}/masks/a.png': image('PNG', _mask(255)) for n in range(3)}


def _open_images() -> dict:
    rows = [f'{n},xclick,/m/01,1,0.1,0.5,0.2,0.6,0,0,0,0,0' for n in range(3)]
    files = {
        'train-annotations-bbox.csv': '\n'.join([_COLUMNS, *rows]) + '\n',
        'class-descriptions-boxable.csv': '/m/01,cat\n',
    }
    return _with_images(files, 'images/')


def _pets() -> dict:
    files: dict = {}
    for number in range(3):
        stem = f'Bengal_{number}'
        files[f'images/{stem}.jpg'] = image('JPEG')
        files[f'annotations/xmls/{stem}.xml'] = _VOC.format(stem)
        files[f'annotations/trimaps/{stem}.png'] = image('PNG', _mask() + 1)
    lines = ''.join(f'Bengal_{number} 1 1 1\n' for number in range(3))
    return {**files, 'annotations/trainval.txt': f'#Image CLASS-ID\n{lines}'}


def _yolo() -> dict:
    text = '0 0.5 0.5 0.2 0.4\n1 0.2 0.3 0.1 0.1\n1 0.1 0.1 0.5 0.1 0.5 0.5\n'
    files = _each('images/train/{}.jpg', image('JPEG'), 'labels/train/{}.txt', text)
    return {**files, 'data.yaml': 'train: images/train\nnc: 2\nnames: [cat, dog]\n'}


def _coco() -> dict[str, dict]:
    """Makes the data set with a box each, and the one with a panoptic image each."""
    size = {'height': _HEIGHT, 'width': _WIDTH}
    images = [{'id': n, 'file_name': f'{n}.jpg', **size} for n in range(3)]
    counts = {'size': [_HEIGHT, _WIDTH], 'counts': [100, 40, 340]}
    objects = [
        {
            **{'id': n, 'image_id': n, 'category_id': 1, 'bbox': [1, 2, 10, 12], 'area': 60},
            'segmentation': counts if n == 2 else [[1, 2, 11, 2, 11, 14]],
            **{'iscrowd': n // 2, 'keypoints': [3, 3, 2, 5, 6, 1], 'num_keypoints': 2},
        }
        for n in range(3)
    ]
    category = {'id': 1, 'name': 'cat', 'keypoints': ['nose', 'tail'], 'skeleton': [[1, 2]]}
    boxes = {'images': images, 'categories': [category], 'annotations': objects}
    colors = np.zeros((_HEIGHT, _WIDTH, 3), np.uint8)
    colors[2:6, 4:12], colors[10:] = (5, 1, 0), (0, 0, 1)
    segments = [
        {'id': 261, 'category_id': 1, 'iscrowd': 0},
        {'id': 65536, 'category_id': 2, 'iscrowd': 0},
    ]
    panoptic = {
        'images': images,
        'categories': [
            {'id': 1, 'name': 'cat', 'isthing': 1},
            {'id': 2, 'name': 'sky', 'isthing': 0},
        ],
        'annotations': [
            {'image_id': n, 'file_name': f'{n}.png', 'segments_info': segments} for n in range(3)
        ],
    }
    segment_files = {f'panoptic_train/{n}.png': image('PNG', colors) for n in range(3)}
    return {
        'coco': _with_images({'annotations.json': json.dumps(boxes)}, 'images/'),
        'panoptic': _with_images(
            {'panoptic_train.json': json.dumps(panoptic), **segment_files}, 'train/'
        ),
    }
