"""Create ML, VGG Image Annotator, and the folders in which Roboflow exports a data set."""

import json

import numpy as np
import pytest

from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import formats, known, source
from object_detection.data.formats.tools.createml import CreateMlSource
from object_detection.data.formats.tools.via import ViaSource
from object_detection.errors import UserError

FILES = LocalFiles()
# Of an image 40 wide and 20 high.
_BOX = [0.1, 0.1, 0.3, 0.3]  # ymin, xmin, ymax, xmax


def _read(data) -> list[source.ReadResult]:
    opened = data.open(FILES, None)
    return [source.read(opened.reader, entry, FILES) for entry in data.entries(FILES)]


def _reasons(result: source.ReadResult) -> list[str]:
    return [error.reason for _, error in result.problems]


_CENTER = {'x': 8, 'y': 4, 'width': 8, 'height': 4}


def _createml(*annotations, name='a.png', **keys) -> dict:
    return {'image': name, 'annotations': [*annotations], **keys}


def test_boxes_of_create_ml_are_centers(tmp_path, png):
    (tmp_path / 'a.png').write_bytes(png(40, 20))
    first = _createml(
        {'label': 'cat', 'coordinates': _CENTER},
        {'label': 'cat', 'coordinates': {**_CENTER, 'width': -8}},
        {'label': 'cat', 'coordinates': {**_CENTER, 'x': 'x'}},
        {'coordinates': _CENTER},
        5,
    )
    old = {'imagefilename': 'a.png', 'annotation': [{'label': 'dog', 'coordinates': _CENTER}]}
    path = tmp_path / '_annotations.createml.json'
    for content, texts in ((first, ('cat',)), (old, ('dog',))):
        path.write_text(json.dumps([content]))
        [found] = formats.detect(str(tmp_path), FILES)['createml']
        assert (found.name, found.reason) == ('', path.name)
        [result] = _read(found.source)
        assert result.image.class_texts == texts
        np.testing.assert_allclose(result.image.boxes, [_BOX])
        if content is first:
            assert _reasons(result) == [
                'box_without_area',
                'bad_box',
                'unknown_category',
                'bad_box',
            ]


@pytest.mark.parametrize('content', ['[]', '{}', '[{"image": "a.png"}]', '[5]', '['])
def test_broken_files_of_create_ml(tmp_path, content):
    (tmp_path / 'a.json').write_text(content)
    with pytest.raises(UserError, match=r'a\.json'):
        CreateMlSource(f'{tmp_path}/a.json').open(FILES, None)


def _region(name, attributes, **shape) -> dict:
    return {'shape_attributes': {'name': name, **shape}, 'region_attributes': attributes}


_CAT = {'class': 'cat', 'hidden': 'yes'}
_POLYGON = {'all_points_x': [4, 12, 12, 4], 'all_points_y': [2, 2, 6, 6]}
_REGIONS = [
    _region('rect', _CAT, x=4, y=2, width=8, height=4),
    _region('polygon', {'class': 'dog'}, **_POLYGON),
    _region('circle', _CAT, cx=20, cy=10, r=4),
    _region('ellipse', _CAT, cx=20, cy=10, rx=8, ry=4, theta=np.pi / 2),
    # A checkbox with two marks.
    _region('rect', {'class': {'cat': True, 'dog': True, 'x': False}}, x=4, y=2, width=8, height=4),
    _region('point', _CAT, cx=1, cy=1),
    _region('polygon', _CAT, all_points_x=[1, 2, 3], all_points_y=[1]),
    _region('rect', {}, x=4, y=2, width=8, height=4),
    5,
]


def _as_project(folder, regions):
    images = {
        'a.png99': {'filename': 'a.png', 'size': 99, 'regions': regions, 'file_attributes': {}},
        'b.png9': {'filename': 'b.png', 'size': 9, 'regions': [], 'file_attributes': {'x': 'y'}},
    }
    project = {'_via_settings': {}, '_via_img_metadata': images, '_via_attributes': {}}
    (folder / 'via_project.json').write_text(json.dumps(project))


def _as_json_of_version_1(folder, regions):
    numbered = {str(i): region for i, region in enumerate(regions)}
    images = {
        'a.png99': {'filename': 'a.png', 'regions': numbered, 'file_attributes': {}},
        'b.png9': {'filename': 'b.png', 'regions': {}, 'file_attributes': {'x': 'y'}},
    }
    (folder / 'via_region_data.json').write_text(json.dumps(images))


def _as_csv(folder, regions):
    header = 'filename,file_size,file_attributes,region_count,region_id,'
    lines = [f'{header}region_shape_attributes,region_attributes']

    def quoted(value) -> str:
        return '"' + json.dumps(value).replace('"', '""') + '"'

    for i, region in enumerate(regions):
        # A region that is no object has no form in a CSV file.
        region = region if isinstance(region, dict) else _region('x', {})
        cells = (quoted(region[f'{key}_attributes']) for key in ('shape', 'region'))
        lines.append(f'a.png,99,"{{}}",{len(regions)},{i},{",".join(cells)}')
    lines.append('b.png,9,"{""x"": ""y""}",0,0,"{}","{}"')
    (folder / 'via_export_csv.csv').write_text('\n'.join(lines))


@pytest.mark.parametrize('write', [_as_project, _as_json_of_version_1, _as_csv])
def test_regions_of_the_vgg_image_annotator(tmp_path, png, write):
    for name in 'ab':
        (tmp_path / f'{name}.png').write_bytes(png(40, 20))
    write(tmp_path, _REGIONS)
    [found] = formats.detect(str(tmp_path), FILES)['via']
    assert found.source.masks
    opened = found.source.open(FILES, None)
    assert list(opened.notes) == ['not_converted: attribute hidden']
    first, second = _read(found.source)
    assert first.image.class_texts == ('cat', 'dog', 'cat', 'cat', 'cat', 'dog')
    np.testing.assert_allclose(first.image.boxes[[0, 1, 4, 5]], [_BOX] * 4)
    np.testing.assert_allclose(
        first.image.boxes[2:4], [[0.3, 0.4, 0.7, 0.6], [0.1, 0.4, 0.9, 0.6]], atol=1e-9
    )
    assert len(first.image.masks) == 6
    assert _reasons(first) == [
        *('unknown_shape', 'bad_points', 'unknown_category', 'unknown_category')
    ]
    assert len(second.image) == 0
    assert second.notes == {'not_converted: attribute x of an image': 1}


def test_the_class_of_regions(tmp_path, png):
    (tmp_path / 'a.png').write_bytes(png(40, 20))
    shape = {'x': 4, 'y': 2, 'width': 8, 'height': 4}

    def read(attributes, **options):
        images = {'a': {'filename': 'a.png', 'regions': [_region('rect', attributes, **shape)]}}
        (tmp_path / 'a.json').write_text(json.dumps(images))
        [result] = _read(ViaSource(f'{tmp_path}/a.json', **options))
        return result.image.class_texts

    assert read({}) == ('object',)
    assert read({}, class_name='balloon') == ('balloon',)
    assert read({'kind': 'cat'}) == ('cat',)
    assert read({'Name': 'cat', 'age': '3'}) == ('cat',)
    assert read({'kind': 'cat', 'age': '3'}, attribute='kind') == ('cat',)
    for attributes, options in (
        ({'kind': 'cat', 'age': '3'}, {}),
        ({'class': 'cat', 'name': 'Tom'}, {}),
        ({'class': 'cat'}, {'attribute': 'kind'}),
    ):
        with pytest.raises(UserError, match='--attribute: expected the one of the attributes'):
            read(attributes, **options)


@pytest.mark.parametrize(
    ('name', 'content'),
    [
        ('a.json', '[]'),
        ('a.json', '{"a": {"filename": "a.png"}}'),
        ('a.csv', 'filename,x\n'),
        (
            'a.csv',
            'filename,file_attributes,region_shape_attributes,region_attributes\na.png,{},[,{}\n',
        ),
    ],
)
def test_broken_files_of_the_vgg_image_annotator(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=name):
        ViaSource(f'{tmp_path}/{name}').open(FILES, None)


def test_every_format_that_is_not_read_is_named_with_the_reason(tmp_path):
    for number, row in enumerate(known._KNOWN):
        folder = tmp_path / str(number)
        (folder / 'data').mkdir(parents=True)
        path = folder / 'data' / row.pattern.replace('*', '1')
        path.write_text(' '.join(row.marks).upper())
        with pytest.raises(UserError) as caught:
            formats.detect(str(folder), FILES)
        text = f'data/{path.name} looks like {row.title}, which is not read: {row.reason}.'
        assert text in str(caught.value)
        path.write_text('')
        assert not all(row.marks) or not formats.detect(str(folder), FILES)


def _roboflow_coco(folder, stem):
    project = {'id': 0, 'name': 'pets-x', 'supercategory': 'none'}
    document = {
        'info': {'year': '2024', 'version': '1'},
        'licenses': [{'id': 1, 'url': '', 'name': 'CC BY 4.0'}],
        'categories': [project, {'id': 1, 'name': 'cat', 'supercategory': 'pets-x'}],
        'images': [{'id': 0, 'license': 1, 'file_name': f'{stem}.jpg', 'height': 20, 'width': 40}],
        'annotations': [
            {
                **{'id': 0, 'image_id': 0, 'category_id': 1, 'bbox': [4, 2, 8, 4], 'area': 32},
                **{'segmentation': [], 'iscrowd': 0},
            }
        ],
    }
    (folder / '_annotations.coco.json').write_text(json.dumps(document))


def _roboflow_voc(folder, stem):
    (folder / f'{stem}.xml').write_text(
        f'<annotation><folder></folder><filename>{stem}.jpg</filename><path>{stem}.jpg</path>'
        '<source><database>roboflow.com</database></source><size><width>40</width><height>20'
        '</height><depth>3</depth></size><segmented>0</segmented><object><name>cat</name><pose>'
        'Unspecified</pose><truncated>0</truncated><difficult>0</difficult><occluded>0</occluded>'
        '<bndbox><xmin>4</xmin><xmax>12</xmax><ymin>2</ymin><ymax>6</ymax></bndbox></object>'
        '</annotation>'
    )


def _roboflow_csv(folder, stem):
    (folder / '_annotations.csv').write_text(
        f'filename,width,height,class,xmin,ymin,xmax,ymax\n{stem}.jpg,40,20,cat,4,2,12,6\n'
    )


def _roboflow_retinanet(folder, stem):
    (folder / '_annotations.csv').write_text(f'{stem}.jpg,4,2,12,6,cat\n')
    (folder / '_classes.csv').write_text('cat,0\n')


def _roboflow_createml(folder, stem):
    content = [_createml({'label': 'cat', 'coordinates': _CENTER}, name=f'{stem}.jpg')]
    (folder / '_annotations.createml.json').write_text(json.dumps(content))


def _roboflow_yolo(folder, stem):
    for name in ('images', 'labels'):
        (folder / name).mkdir()
    (folder / f'{stem}.jpg').rename(folder / f'images/{stem}.jpg')
    (folder / f'labels/{stem}.txt').write_text('0 0.2 0.2 0.2 0.2')
    (folder.parent / 'data.yaml').write_text(
        'train: ../train/images\nval: ../valid/images\ntest: ../test/images\n\nnc: 1\n'
        "names: ['cat']\n\nroboflow:\n  workspace: x\n  project: pets-x\n  version: 1\n"
        '  license: CC BY 4.0\n  url: https://universe.roboflow.com/x/pets-x/dataset/1\n'
    )


def _roboflow_darknet(folder, stem):
    (folder / f'{stem}.txt').write_text('0 0.2 0.2 0.2 0.2')
    (folder / '_darknet.labels').write_text('cat\n')


_ROBOFLOW = {
    name.removeprefix('_roboflow_'): value
    for name, value in list(globals().items())
    if name.startswith('_roboflow_')
}


@pytest.mark.parametrize('kind', _ROBOFLOW)
def test_exports_of_roboflow_are_one_data_set_with_its_splits(tmp_path, png, kind):
    (tmp_path / 'README.dataset.txt').write_text('# pets > x\nhttps://universe.roboflow.com/x\n')
    for split in ('train', 'valid', 'test'):
        (tmp_path / split).mkdir()
        stem = f'{split}_jpg.rf.0123456789abcdef'
        (tmp_path / split / f'{stem}.jpg').write_bytes(png(40, 20))
        _ROBOFLOW[kind](tmp_path / split, stem)
    [sets] = formats.detect(str(tmp_path), FILES).values()
    assert [item.name for item in sets] == ['train', 'val' if kind == 'yolo' else 'valid', 'test']
    for item in sets:
        [result] = _read(item.source)
        assert result.image.class_texts == ('cat',)
        assert result.image.file_name.startswith(item.name)
        np.testing.assert_allclose(result.image.boxes, [_BOX], atol=1e-7)
