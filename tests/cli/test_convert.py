import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from object_detection.cli.convert import command
from object_detection.data import image_files
from object_detection.dataset_tools import shapes
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


@pytest.mark.parametrize(
    ('others', 'code', 'match'),
    [
        (('--images', 'absent'), 1, 'There is no image folder absent'),
        (('--annotations', 'absent'), 1, 'There is no annotation file absent'),
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
        'sys.exit(bool({"apache_beam", "tensorflow", "numpy"} & set(sys.modules)))'
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


def test_a_limit_of_no_pixels_is_none(data, tmp_path):
    result = _run(data, tmp_path / 'a', '--max_pixels', '0')
    assert result.exit_code == 0, result.output
    assert ' 0 examples' not in result.output


def test_limit_of_pixels_is_that_of_the_reader():
    (option,) = [item for item in command.commands['coco'].params if item.name == 'max_pixels']
    assert option.default == image_files.MAX_PIXELS
