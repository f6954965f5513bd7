import json
import pathlib
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner
from PIL import Image

from object_detection.cli.convert import command
from object_detection.data import image_files
from object_detection.data.formats.formats import ANNOTATION_FORMATS
from object_detection.dataset_tools import shapes
from tests import rows
from tests.dataset_tools import records


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp('data')
    shapes.write_shapes(folder, num_train=4, num_val=0, image_size=48)
    return folder


def _run(data, output, *others: str):
    annotations = str(data / 'instances_train.json')
    arguments = ['--images', str(data / 'train'), '--annotations', annotations]
    return CliRunner().invoke(command, ['coco', *arguments, '--output', str(output), *others])


def test_converts_by_a_named_runner(data, tmp_path):
    options = ('--runner', 'FnApiRunner', '--direct_num_workers', '1')
    result = _run(data, tmp_path / 'a', '--shards', '2', '--masks', *options)
    assert result.exit_code == 0, result.output
    assert '4 examples in 2 shards of 4 images' in result.output
    examples = records.read_set(tmp_path / 'a', 2)
    assert len(examples) == 4
    assert all(len(records.masks(item)) == len(item['image/object/area']) for item in examples)
    assert (tmp_path / 'a_label_map.pbtxt').exists()
    assert json.loads((tmp_path / 'a.report.json').read_text())['complete']


def test_strict_fails_with_the_reason(data, tmp_path):
    document = json.loads((data / 'instances_train.json').read_text())
    document['annotations'][0]['category_id'] = 99
    path = tmp_path / 'a.json'
    path.write_text(json.dumps(document))
    result = _run(data, tmp_path / 'a', '--annotations', str(path), '--strict')
    assert result.exit_code == 1
    assert 'unknown_category' in result.output
    assert 'category_id is 99' in result.output


@rows.parametrize(
    ('others', 'code', 'match'),
    [
        (('--images', 'absent'), 1, 'absent: there is no image folder.'),
        (('--annotations', 'absent'), 1, 'absent: there is no annotation file.'),
        (('--shards', '0'), 1, 'number of shards'),
        (('--max_pixels', '2303'), 1, 'is 48 pixels high and 48 wide; expected at most 2303'),
        (('--mask',), 2, 'No such option or argument: --mask'),
        (('stray',), 2, 'No such option or argument: stray'),
        (('--runner', 'nonsense'), 1, "'nonsense' cannot be used"),
        (('--runner', 'FnApiRunner', '--zzz=1'), 1, 'no option --zzz'),
    ],
)
def test_errors_in_one_line(data, tmp_path, others, code, match):
    result = _run(data, tmp_path / 'a', *others)
    assert result.exit_code == code
    assert match in result.output
    assert 'Traceback' not in result.output


def test_help_needs_neither_beam_nor_tensorflow():
    program = (
        'import sys; from object_detection.cli.convert import command\n'
        'try: command(["coco", "--help"])\n'
        'except SystemExit: pass\n'
        'sys.exit(bool({"apache_beam", "tensorflow"} & set(sys.modules)))'
    )
    subprocess.run([sys.executable, '-c', program], check=True, stdout=subprocess.DEVNULL)


def test_a_conversion_that_loses_much_says_so_in_red(data, tmp_path):
    document = json.loads((data / 'instances_train.json').read_text())
    for annotation in document['annotations'][:2]:
        annotation['bbox'] = [0, 0, 0, 0]
    path = tmp_path / 'a.json'
    path.write_text(json.dumps(document))
    arguments = ['--images', str(data / 'train'), '--annotations', str(path)]
    result = CliRunner().invoke(
        command, ['coco', *arguments, '--output', str(tmp_path / 'a')], color=True
    )
    assert result.exit_code == 0
    count = len(document['annotations'])
    assert f'\x1b[31m2 of {count} annotations could not be used' in result.stderr
    assert 'could not be used' not in _run(data, tmp_path / 'b').stderr


def test_a_set_without_images_is_named(data, tmp_path):
    empty = tmp_path / 'empty.json'
    empty.write_text(json.dumps({'images': [], 'annotations': [], 'categories': []}))
    result = _run(data, tmp_path / 'a', '--annotations', str(empty))
    assert result.exit_code == 1
    assert f'at least one image. Received one without: {data / "train"}, {empty}' in result.output
    assert [path.name for path in tmp_path.iterdir()] == ['empty.json']


@pytest.mark.parametrize(
    ('others', 'count'), [([], 1), (['--shards', '3'], 3), (['--workers', '2'], 2)]
)
def test_few_images_make_one_file(data, tmp_path, others, count):
    result = _run(data, tmp_path / 'a', *others)
    assert result.exit_code == 0, result.output
    assert len(list(tmp_path.glob('a-*'))) == count


def test_a_limit_of_no_pixels_is_none(data, tmp_path):
    result = _run(data, tmp_path / 'a', '--max_pixels', '0')
    assert result.exit_code == 0, result.output
    assert ' 0 examples' not in result.output


def test_limit_of_pixels_is_that_of_the_reader():
    (option,) = [item for item in command.commands['coco'].params if item.name == 'max_pixels']
    assert option.default == image_files.MAX_PIXELS


def test_auto_says_what_it_runs(data, tmp_path):
    prefix = tmp_path / 'a'
    arguments = ['auto', str(data), '--output', str(prefix), '--shards', '1']
    result = CliRunner().invoke(command, [*arguments, '--dry_run'])
    assert result.exit_code == 0, result.output
    assert 'is in the format COCO' in result.output
    lines = [line for line in result.output.splitlines() if line.startswith('tfod convert coco')]
    assert len(lines) == 1
    assert lines[0].endswith(f'--output {prefix}_train')
    assert not list(tmp_path.iterdir())
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert len(records.read_set(tmp_path / 'a_train', 1)) == 4


@pytest.mark.parametrize(
    ('segmentations', 'expected'),
    [
        ([[[1, 1, 9, 1, 9, 9]], {'size': [10, 20], 'counts': [0, 200]}], True),
        ([[[1, 1, 9, 1, 9, 9]], []], False),
        ([[[]], [[]]], False),
        ([[[1, 1, 9, 9]], [[1, 1, 9, 9]]], False),
    ],
)
def test_auto_converts_masks_of_coco_where_all_objects_have_one(tmp_path, segmentations, expected):
    Image.new('RGB', (20, 10)).save(tmp_path / 'a.jpg')
    known = {'image_id': 1, 'category_id': 1, 'bbox': [1, 1, 8, 8]}
    document = {
        'images': [{'id': 1, 'file_name': 'a.jpg', 'height': 10, 'width': 20}],
        'annotations': [
            {**known, 'id': index, 'segmentation': segmentation}
            for index, segmentation in enumerate(segmentations)
        ],
        'categories': [{'id': 1, 'name': 'dog'}],
    }
    (tmp_path / 'annotations.json').write_text(json.dumps(document))
    result = CliRunner().invoke(command, ['auto', str(tmp_path), '--output', 'x', '--dry_run'])
    assert result.exit_code == 0, result.output
    assert ('--masks' in result.output) == expected


def test_auto_converts_lvis(tmp_path):
    """A file in the form of lvis_v1_val.json, beside the folder of its images."""
    (tmp_path / 'val2017').mkdir()
    Image.new('RGB', (20, 10)).save(tmp_path / 'val2017/000000397133.jpg')
    image = {
        **{'id': 397133, 'height': 10, 'width': 20, 'license': 4},
        'date_captured': '2013-11-14 17:02:52',
        'coco_url': 'http://images.cocodataset.org/val2017/000000397133.jpg',
        'flickr_url': 'http://farm7.staticflickr.com/6116/6255196340_da26cf2c9e_z.jpg',
        'neg_category_ids': [2],
        'not_exhaustive_category_ids': [1],
    }
    annotation = {
        **{'id': 1, 'image_id': 397133, 'category_id': 1, 'bbox': [1, 1, 8, 8], 'area': 32.0},
        'segmentation': [[1, 1, 9, 1, 9, 9]],
    }
    known = {'synset': 'a.n.01', 'synonyms': ['a'], 'def': 'a thing', 'instance_count': 1}
    categories = [
        {'id': 1, 'name': 'aerosol_can', 'frequency': 'c', 'image_count': 1, **known},
        {'id': 2, 'name': 'air_conditioner', 'frequency': 'f', 'image_count': 1, **known},
    ]
    document = {'info': {}, 'licenses': [], 'images': [image]}
    document |= {'annotations': [annotation], 'categories': categories}
    (tmp_path / 'lvis_v1_val.json').write_text(json.dumps(document))
    result = CliRunner().invoke(
        command, ['auto', str(tmp_path), '--output', str(tmp_path / 'out'), '--shards', '1']
    )
    assert result.exit_code == 0, result.output
    assert '--masks' in result.output
    [label_map] = tmp_path.glob('out*_label_map.pbtxt')
    [example] = records.read_set(str(label_map).removesuffix('_label_map.pbtxt'), 1)
    assert len(example['image/object/mask']) == 1
    assert example['image/neg_category_ids'] == [2]
    assert example['image/not_exhaustive_category_ids'] == [1]
    assert 'frequency: COMMON' in label_map.read_text()


@pytest.mark.parametrize(
    ('lines', 'expected'),
    [
        (['0 .1 .1 .9 .1 .9 .9', '0 .1 .1 .9 .1 .9 .9 .1 .9'], True),
        (['0 .1 .1 .9 .1 .9 .9', '0 .5 .5 .2 .2'], False),
        (['0 .1 .1 .9 .1 .9 .9 .1 .9'], False),
    ],
    ids=['polygons', 'a box', 'oriented boxes'],
)
def test_auto_converts_masks_of_yolo_where_all_lines_are_polygons(tmp_path, lines, expected):
    (tmp_path / 'images').mkdir()
    (tmp_path / 'labels').mkdir()
    for index, line in enumerate(lines):
        Image.new('RGB', (20, 10)).save(tmp_path / f'images/{index}.jpg')
        (tmp_path / f'labels/{index}.txt').write_text(line)
    (tmp_path / 'data.yaml').write_text('names: [dog]\ntrain: images\n')
    result = CliRunner().invoke(command, ['auto', str(tmp_path), '--output', 'x', '--dry_run'])
    assert result.exit_code == 0, result.output
    assert ('--masks' in result.output) == expected


def test_auto_of_a_folder_without_data_names_the_formats(tmp_path):
    result = CliRunner().invoke(command, ['auto', str(tmp_path), '--output', 'a'])
    assert result.exit_code == 1
    assert 'no format that is known here: COCO' in result.output


def test_auto_of_records_says_that_they_need_no_conversion(tmp_path):
    (tmp_path / 'pets.record').touch()
    result = CliRunner().invoke(command, ['auto', str(tmp_path), '--output', 'a'])
    assert result.exit_code == 1
    assert 'need no conversion: pets.record' in result.output


def test_auto_converts_the_sets_that_it_can(data, tmp_path):
    folder = tmp_path / 'set'
    (folder / 'annotations').mkdir(parents=True)
    (folder / 'images').symlink_to(data / 'train')
    document = json.loads((data / 'instances_train.json').read_text())
    (folder / 'annotations/instances_train.json').write_text(json.dumps(document))
    for annotation in document['annotations']:
        annotation['bbox'] = [0, 0, 0, 0]
    (folder / 'annotations/instances_test.json').write_text(json.dumps(document))
    prefix = tmp_path / 'a'
    arguments = ['auto', str(folder), '--output', str(prefix), '--shards', '1']
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 1
    assert 'Nothing was published' in result.output
    assert f'Not converted: {prefix}_test.' in result.output
    assert len(records.read_set(tmp_path / 'a_train', 1)) == 4


def test_auto_runs_nothing_if_a_folder_has_several_formats(data, tmp_path):
    (tmp_path / 'set').symlink_to(data)
    (tmp_path / 'names').mkdir()
    (tmp_path / 'names/classes.txt').write_text('a\n')
    (tmp_path / 'names/1.txt').write_text('0 .5 .5 1 1\n')
    (tmp_path / 'names/1.png').write_bytes(b'')
    arguments = ['auto', '--output', str(tmp_path / 'out')]
    # The formats lie in two folders below, so that neither is meant.
    result = CliRunner().invoke(command, [*arguments, str(tmp_path)])
    assert 'several of its folders have: names (yolo), set (coco)' in result.output
    (tmp_path / 'names/a.json').write_text((data / 'instances_train.json').read_text())
    (tmp_path / 'names/images').symlink_to(data / 'train')
    result = CliRunner().invoke(command, [*arguments, str(tmp_path / 'names')])
    assert result.exit_code == 1
    assert 'several formats' in result.output
    assert 'tfod convert coco' in result.output
    assert 'tfod convert yolo' in result.output
    (tmp_path / 'set').unlink()
    (tmp_path / 'names/a.json').unlink()
    result = CliRunner().invoke(command, [*arguments, str(tmp_path), '--dry_run'])
    assert result.output.count('tfod convert yolo') == 1, result.output


def _xml(name: str, label: str) -> str:
    box = '<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>'
    return (
        f'<annotation><filename>{name}</filename>'
        f'<object><name>{label}</name>{box}</object></annotation>'
    )


@pytest.fixture
def split_folders(tmp_path):
    """Returns a function that writes folders train, valid and test, with one image each."""

    def write(write_annotation):
        for name, label in {'train': 'dog', 'valid': 'cat', 'test': 'dog'}.items():
            folder = tmp_path / 'export' / name
            folder.mkdir(parents=True)
            Image.new('RGB', (20, 10)).save(folder / f'{name}.jpg')
            write_annotation(folder, f'{name}.jpg', label)
        return str(tmp_path / 'export')

    return write


def _as_voc(folder, name, label):
    (folder / name.replace('jpg', 'xml')).write_text(_xml(name, label))


def _as_csv(folder, name, label):
    header = 'filename,width,height,class,xmin,ymin,xmax,ymax\n'
    (folder / '_annotations.csv').write_text(f'{header}{name},20,10,{label},1,1,9,9\n')


def _as_createml(folder, name, label):
    place = {'x': 5, 'y': 5, 'width': 8, 'height': 8}
    content = [{'image': name, 'annotations': [{'label': label, 'coordinates': place}]}]
    (folder / '_annotations.createml.json').write_text(json.dumps(content))


def _as_labelme(folder, name, label):
    shape = {'label': label, 'shape_type': 'rectangle', 'points': [[1, 1], [9, 9]]}
    content = {'imagePath': name, 'shapes': [shape]}
    (folder / name.replace('jpg', 'json')).write_text(json.dumps(content))


@pytest.mark.parametrize('write', [_as_voc, _as_csv, _as_createml, _as_labelme])
def test_auto_takes_the_folders_of_splits_and_gives_them_one_label_map(
    split_folders, tmp_path, write
):
    arguments = [split_folders(write), '--output', str(tmp_path / 'a'), '--shards', '1']
    result = CliRunner().invoke(command, ['auto', *arguments, '--dry_run'])
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if line.startswith('tfod convert')]
    label_map = f'--label_map {tmp_path}/a_train_label_map.pbtxt'
    assert [label_map in line for line in lines] == [False, True, True]
    assert [line.rpartition('_')[2] for line in lines] == ['train', 'valid', 'test']


def test_auto_converts_the_folders_of_splits(split_folders, tmp_path):
    arguments = [split_folders(_as_voc), '--output', str(tmp_path / 'a'), '--shards', '1']
    result = CliRunner().invoke(command, ['auto', *arguments])
    assert '1 objects of categories that the label map lacks are left out: 1 x cat' in result.output
    assert f'Not converted: {tmp_path}/a_valid.' in result.output
    for name in ('train', 'test'):
        [features] = records.read_set(tmp_path / f'a_{name}', 1)
        assert features['image/object/class/text'] == [b'dog']


def test_auto_converts_no_set_whose_label_map_was_not_written(split_folders, tmp_path):
    folder = split_folders(_as_csv)
    (tmp_path / 'export/train/_annotations.csv').write_text(
        'filename,class,xmin,ymin,xmax,ymax\ntrain.jpg,dog,9,9,1,1\n'
    )
    arguments = [folder, '--output', str(tmp_path / 'a'), '--shards', '1']
    result = CliRunner().invoke(command, ['auto', *arguments])
    assert result.exit_code == 1
    names = ', '.join(f'{tmp_path}/a_{name}' for name in ('train', 'valid', 'test'))
    assert f'Not converted: {names}.' in result.output


_NOT_THERE = {
    'a.json': (
        '{"images": [{"id": 1, "file_name": "x/b.jpg"}], "annotations": [], "categories": []}',
        'a.json looks like COCO, but its first image, x/b.jpg, is in none of the usual folders',
    ),
    'lvis.json': (
        '{"images": [{"id": 1, "coco_url": "http://x/y/b.jpg"}], "annotations": [], '
        '"categories": []}',
        'lvis.json looks like COCO, but its first image, y/b.jpg, is',
    ),
    'data.yaml': ('kpt_shape: [3]\nnames: [a]\n', 'looks like YOLO, but .*kpt_shape: expected'),
    'b.yaml': ('train: x\nnames: [a]\n', 'none of the folders of train, val and test is there'),
    'a.xml': (
        '<annotations><track><box frame="1"/></track></annotations>',
        'like CVAT, but .*expected the frames of the video as image files',
    ),
    'a.csv': (
        'filename,class,xmin,ymin,xmax,ymax\nb.jpg,cat,1,1,9,9\n',
        'a.csv looks like CSV, but',
    ),
    'captions_val.json': (
        '{"images": [], "annotations": [{"caption": "a cat"}]}',
        'captions_val.json looks like COCO captions, which is not read: it has no boxes',
    ),
    '_annotations.txt': ('a.jpg 1,2,3,4,0\n', 'looks like Keras YOLO v3, which is not read: expo'),
    'other.yaml': ('services: {}\n', 'no format that is known here: COCO'),
}


@rows.parametrize('name', _NOT_THERE)
def test_auto_says_why_what_it_recognizes_cannot_be_read(tmp_path, name):
    content, match = _NOT_THERE[name]
    (tmp_path / 'set').mkdir()
    (tmp_path / 'set' / name).write_text(content)
    for folder in (tmp_path / 'set', tmp_path):
        result = CliRunner().invoke(command, ['auto', str(folder), '--output', 'a'])
        assert result.exit_code == 1
        assert re.search(match, result.output)


def test_documentation_has_a_command_for_each_format():
    text = (pathlib.Path(__file__).parents[2] / 'docs/data.md').read_text()
    documented = set(re.findall(r'^\| [^|]+ \| `tfod convert (\w+) ', text, re.MULTILINE))
    assert documented == {*ANNOTATION_FORMATS}
    for line in re.findall(r'`tfod convert ([a-z_]+ --[^`]+)`', text):
        name, *words = line.split()
        known = {flag for item in command.commands[name].params for flag in item.opts}
        assert {word for word in words if word.startswith('--')} <= known
