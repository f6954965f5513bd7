"""`tfod context`, and the scripts of the same jobs."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from click.testing import CliRunner

from object_detection.cli import main as cli
from object_detection.cli.context import command
from object_detection.core import tf_example_keys as keys
from tests import rows
from tests.dataset_tools.context_rcnn import examples

SCRIPTS = 'object_detection/dataset_tools/context_rcnn'


@pytest.fixture
def inputs(tmp_path) -> str:
    large = examples.tf_examples.bytes_feature([examples.image_file(8, 2000)])
    records = [examples.example(1, encoded=large), examples.example(2)]
    return examples.write(tmp_path / 'in.record', records)


def _add(inputs, output, *others: str):
    arguments = ['--input_tfrecord', inputs, '--output_tfrecord', str(output), *others]
    return CliRunner().invoke(command, ['add', *arguments])


def test_prints_json(inputs, tmp_path):
    files = ['--input_tfrecord', inputs, '--output_tfrecord', str(tmp_path / 'a')]
    result = CliRunner().invoke(cli.main, ['context', 'add', *files, '--json', '--quiet'])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report['records'], report['images_reduced']) == (2, 1)
    assert report['complete']


def test_prints_a_line(inputs, tmp_path):
    result = _add(inputs, tmp_path / 'a', '--reduce_image_size', 'False', '--num_shards', '2')
    assert result.exit_code == 0, result.output
    assert '2 records in 2 shards; images 2, groups 1, banks 1, context features 2' in result.output
    assert 'images reduced 0' in result.output


def test_camera_traps(tmp_path):
    (tmp_path / '1.jpg').write_bytes(examples.image_file())
    image = {'id': 1, 'file_name': '1.jpg', 'location': 5, 'seq_num_frames': 'two'}
    annotation = {'id': 1, 'image_id': 1, 'category_id': 4, 'bbox': None}
    document = {'images': [image], 'annotations': [annotation]}
    document['categories'] = [{'id': 4, 'name': 'zebra'}]
    (tmp_path / 'a.json').write_text(json.dumps(document))
    words = ['--image_directory', str(tmp_path), '--output_tfrecord_prefix', str(tmp_path / 'a')]
    result = CliRunner().invoke(
        command,
        ['camera-traps', *words, '--input_annotations_file', f'{tmp_path}/a.json', '--json'],
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)['examples'] == 1
    (found,) = examples.read_set(tmp_path / 'a')
    assert found.text(keys.LOCATION) == '5'
    assert found.text(keys.IMAGE_CLASS_TEXT) == 'zebra'
    assert keys.SEQUENCE_NUM_FRAMES not in found
    words[1] = str(tmp_path / 'absent')
    result = CliRunner().invoke(
        command, ['camera-traps', *words, '--input_annotations_file', f'{tmp_path}/a.json']
    )
    assert result.exit_code == 1
    assert ': there is no image folder.' in result.output


def test_takes_another_runner_with_its_options(inputs, tmp_path):
    options = ('--runner', 'FnApiRunner', '--direct_num_workers', '1')
    result = _add(inputs, tmp_path / 'a', *options)
    assert result.exit_code == 0, result.output
    assert len(examples.read_set(tmp_path / 'a')) == 2


@rows.parametrize(
    ('others', 'code', 'match'),
    [
        (('--num_shards', 'many'), 2, "'--num_shards': 'many' is not a valid integer"),
        (('--context_features_score_threshold', 'x'), 2, "'x' is not a valid float"),
        (('--time_horizon', 'decade'), 2, "'--time_horizon': 'decade' is not one of"),
        (('--output_type=tfrecord',), 2, "'--output_type': 'tfrecord' is not one of"),
        (('--num_shards', '-1'), 1, '--num_shards: expected a number from 0'),
        (('--reduce_image_size=maybe',), 1, '--reduce_image_size: expected true or false'),
        (('--num_shard', '1'), 2, 'No such option or argument: --num_shard 1'),
        (('--sequence_key', 'image/camera'), 1, 'Nothing was published: --sequence_key: expected'),
    ],
)
def test_errors_in_one_line(inputs, tmp_path, others, code, match):
    arguments = ['context', 'add', '--input_tfrecord', inputs, '--output_tfrecord']
    result = CliRunner().invoke(cli.main, [*arguments, str(tmp_path / 'a'), *others])
    assert result.exit_code == code, result.output
    assert match in result.output
    assert 'Traceback' not in result.output
    assert not list(tmp_path.glob('a-*'))


@rows.parametrize('name', list(command.commands))
def test_what_must_be_given_is_named(name):
    result = CliRunner().invoke(cli.main, ['context', name])
    assert result.exit_code == 1
    assert result.output.startswith('Error: --')
    assert 'expected a value' in result.output


def test_help_needs_neither_beam_nor_tensorflow():
    program = (
        'import sys; from object_detection.cli.context import command\n'
        'try: command(["add", "--help"])\n'
        'except SystemExit: pass\n'
        'sys.exit(bool({"apache_beam", "tensorflow"} & set(sys.modules)))'
    )
    subprocess.run([sys.executable, '-c', program], check=True, stdout=subprocess.DEVNULL)


def _run_script(*command_line: str) -> subprocess.CompletedProcess:
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, 'PYTHONPATH': str(root)}
    program = [sys.executable, *command_line]
    return subprocess.run(
        program, capture_output=True, text=True, check=False, cwd=root, env=environment
    )


@pytest.mark.parametrize('form', ['file', 'module'])
def test_scripts_have_the_flags_of_the_reference(inputs, tmp_path, form):
    name = f'{SCRIPTS}/add_context_to_examples.py'
    start = [name] if form == 'file' else ['-m', name.removesuffix('.py').replace('/', '.')]
    options = [f'--input_tfrecord={inputs}', f'--output_tfrecord={tmp_path}/a', '--num_shards=1']
    result = _run_script(*start, *options, '--reduce_image_size', 'False', '--time_horizon=month')
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith('2 records in 1 shards')
    assert [*examples.read_set(tmp_path / 'a')[0].integers(keys.CONTEXT_INDICES)] == [0]


@rows.parametrize(
    ('name', 'flag', 'match'),
    [
        (
            'create_cococameratraps_tfexample_main',
            '--num_images_per_shard=x',
            'num_images_per_shard',
        ),
        ('generate_detection_data', '--confidence_threshold=high', 'confidence_threshold'),
        ('generate_embedding_data', '--embedding_type=boxes', 'embedding_type'),
    ],
)
def test_scripts_name_the_flag_of_a_wrong_value(name, flag, match):
    result = _run_script('-m', f'{SCRIPTS.replace("/", ".")}.{name}', flag)
    assert result.returncode == 1
    assert match in result.stderr
    assert 'Traceback' not in result.stderr


def test_help_of_scripts_lists_their_flags():
    result = _run_script('-X', 'importtime', f'{SCRIPTS}/generate_detection_data.py', '--help')
    imported = {line.rpartition('|')[2].strip() for line in result.stderr.splitlines()}
    assert 'absl' in imported
    assert not imported & {'tensorflow', 'apache_beam'}
    assert '--detection_input_tfrecord' in result.stdout
    assert '--batch_size' in result.stdout
