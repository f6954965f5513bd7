"""Every command names the option of a path that is absent, or of another kind than it takes."""

import json

import pytest
from click.testing import CliRunner

from object_detection.cli.main import main
from object_detection.errors import UserError
from object_detection.system import file_errors
from tests import rows

CONFIG = '--config'
# Command -> (path option or '' of an argument, further arguments).
COMMANDS = {
    'eval': ('--detections', '--groundtruth truth.json'),
    'eval --run_once': (CONFIG, '--checkpoint_dir photos'),
    'eval --detections found.json': ('--groundtruth', ''),
    'eval --detections found.json --groundtruth truth.json': ('--image_list', ''),
    'eval --detections found.json --groundtruth boxes.csv': ('--image_labels', ''),
    'eval --detections found.json --groundtruth boxes.csv --output a': ('--class_descriptions', ''),
    'data split': ('--annotations', '--output out'),
    'data split --output out': ('--records', ''),
    'data check': ('', ''),
    'data show': (CONFIG, '--output out'),
    'data anchors': (CONFIG, ''),
    'convert coco': ('--annotations', '--images photos --output out'),
    'convert coco --annotations truth.json': ('--label_map', '--images photos --output out'),
    'convert csv': ('--annotations', '--images photos --output out'),
    'convert cvat': ('--annotations', '--images photos --output out'),
    'convert label_studio': ('--annotations', '--images photos --output out'),
    'convert panoptic': ('--annotations', '--images photos --output out'),
    'convert open_images': ('--boxes', '--images photos --output out'),
    'convert auto': ('', '--output out'),
    'config check': ('', ''),
    'summary': (CONFIG, ''),
    'train': (CONFIG, '--model_dir out'),
    'report': ('', ''),
    'status': ('', ''),
    'runs': ('', ''),
    'checkpoint inspect': ('', ''),
    'checkpoint convert photos': (CONFIG, '--output out'),
    'export': (CONFIG, '--checkpoint_dir photos --output out'),
    'predict': ('--model', '--input photos --output out'),
    'predict --checkpoint_dir photos': (CONFIG, '--output out'),
    'serve': ('', ''),
    'benchmark': ('', ''),
    'context camera-traps --image_directory photos': (
        '--input_annotations_file',
        '--output_tfrecord_prefix out',
    ),
}
# Of these, a folder may hold what they take.
TAKE_FOLDERS = {'--detections', '--groundtruth', '--records', '--data', '--model', ''}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'folder').mkdir()
    (tmp_path / 'photos').mkdir()
    (tmp_path / 'photos' / 'one.png').write_bytes(b'')
    (tmp_path / 'file').write_bytes(b'')
    document = {'images': [], 'annotations': [], 'categories': [{'id': 1, 'name': 'cat'}]}
    (tmp_path / 'truth.json').write_text(json.dumps(document))
    (tmp_path / 'found.json').write_text('[]')
    (tmp_path / 'boxes.csv').write_text('ImageID,LabelName,XMin,XMax,YMin,YMax\n')
    return tmp_path


def _error(*arguments):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (1, 2), (arguments, result.output)
    assert 'defect' not in result.output, (arguments, result.output)
    return result.output


@rows.parametrize('command', COMMANDS)
def test_absent_files_and_folders_in_place_of_files(folder, command):
    option, others = COMMANDS[command]
    for path in ('nowhere/file', 'folder', 'truth.json/file'):
        if path == 'folder' and option in TAKE_FOLDERS:
            continue
        text = _error(*command.split(), *filter(None, [option]), path, *others.split())
        if option != '--records':
            assert option in text
        assert path in text
        assert 'Errno' not in text


def test_folders_that_cannot_be_written(folder):
    options = '--detections found.json --groundtruth truth.json --output file/metrics.json'
    text = _error('eval', *options.split())
    assert 'Error: --output file/metrics.json: file: there is a file' in text


def test_files_of_another_kind(folder):
    (folder / 'text').write_text('no label map')
    detections = ['--detections', 'found.json', '--groundtruth', 'truth.json']
    text = _error('eval', *detections, '--label_map', 'text')
    assert 'Error: --label_map text is not a label map' in text
    text = _error('eval', *detections, '--label_map', 'none')
    assert 'Error: --label_map none cannot be read' in text


@rows.parametrize('option', ['--calibration', '--verify'])
def test_images_of_exports(folder, option):
    options = '--config a --checkpoint_dir b --output c --format tflite'
    text = _error('export', *options.split(), option, 'none')
    assert f'Error: {option} none: no such file' in text


@rows.parametrize(
    ('error', 'arguments', 'text'),
    [
        (
            FileNotFoundError(2, 'No such file or directory', 'a'),
            '--x=a --y b',
            '--x a: there is no',
        ),
        (IsADirectoryError(21, 'Is a directory', 'b'), '--x a --y b', '--y b: expected a file.'),
        (PermissionError(13, 'Permission denied', 'o/p'), '--x o', '--x o: o/p: there is no perm'),
        (OSError(28, 'No space left on device', 'c/d'), '--x a', 'c/d: no space left on device.'),
        (FileNotFoundError(2, 'There is no list', 'a'), '--x a', '--x a: there is no list.'),
        (FileNotFoundError('There is no set'), '--x a', 'There is no set'),
        (UserError('--y: there is none'), '--z --y a', '--y: there is none'),
        (UserError('a.json is no JSON'), '--x a.json', '--x a.json is no JSON'),
        (UserError('Label map a cannot be read.'), '--x a', '--x a cannot be read.'),
        (UserError('4 images are missing'), '--x 4', '4 images are missing'),
        (OSError(NotADirectoryError(20, 'Not a directory', 'b/c')), '--x b/c', '--x b/c: expected'),
    ],
)
def test_messages(error, arguments, text):
    assert file_errors.describe(error, arguments.split()).startswith(text)
