import hashlib
import itertools
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from object_detection.cli import data
from object_detection.config.reader import read_pipeline
from object_detection.dataset_tools.downloads import known_files
from tests import rows, slow_cases
from tests.dataset_tools import miniature_coco, records
from tests.dataset_tools.downloads import file_server

CONTENT = os.urandom(400_000)


@pytest.fixture
def server(monkeypatch):
    file_server.without_proxies(monkeypatch)
    with file_server.serving() as server:
        yield server


def run(*arguments: str):
    return CliRunner().invoke(data.command, arguments)


def test_the_command_line_knows_all_splits():
    assert list(known_files.COCO2017) == data._SPLITS
    assert set(data._RECORDS) <= set(data._SPLITS)


def test_from_the_server_to_the_records_that_the_sample_reads(server, tmp_path, monkeypatch):
    miniature_coco.put(server, tmp_path / 'source', monkeypatch)
    monkeypatch.setattr(
        data, '_RECORDS', {'train2017': ('coco_train', 2), 'val2017': ('coco_val', 1)}
    )
    folder, target = str(tmp_path / 'coco'), tmp_path / 'coco' / 'records'
    result = run('download', 'coco2017', '--output', folder, '--base_url', server.url)
    assert result.exit_code == 0, result.output
    assert f'tfod data convert coco2017 --data {folder} --output {target}' in result.output
    result = run('convert', 'coco2017', '--data', folder, '--output', str(target))
    assert result.exit_code == 0, result.output
    assert len(records.read_set(target / 'coco_train', 2)) == 3
    examples = records.read_set(target / 'coco_val', 1)
    assert len(examples) == 2
    assert records.masks(examples[0])
    for reader in readers_of_the_sample(str(target)):
        assert os.path.exists(reader.label_map_path)
        (pattern,) = reader.tf_record_input_reader.input_path
        assert list(target.glob(os.path.basename(pattern)))


def readers_of_the_sample(folder: str):
    """The readers of the sample config with the folder set as docs/coco.md says."""
    config = 'object_detection/samples/configs/mask_rcnn_resnet50_fpn_1024x1024_coco.config'
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(root, 'docs', 'coco.md')) as file:
        words = file.read().replace("'", '').split()
    settings = [after for word, after in itertools.pairwise(words) if word == '--set']
    settings = [text.replace('coco2017/records', folder) for text in settings if '_reader' in text]
    pipeline = read_pipeline(os.path.join(root, config), settings=dict.fromkeys(settings))
    return [pipeline.train_input_reader, *pipeline.eval_input_reader]


# A shell lets the programs that it starts in the background ignore SIGINT.
PROGRAM = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from object_detection.cli import data
from object_detection.dataset_tools.downloads import known_files
from object_detection.dataset_tools.downloads.download import RemoteFile
known_files.COCO2017['val2017'] = (RemoteFile('zips/val2017.zip', 400_000, sys.argv.pop(1)),)
data.command(sys.argv[1:])
"""


@slow_cases.parametrize(1, 'number', [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_download_resumes(server, tmp_path, number):
    server.files['/zips/val2017.zip'] = CONTENT
    server.plan = ['slow', '']
    arguments = [sys.executable, '-c', PROGRAM, hashlib.sha256(CONTENT).hexdigest(), 'download']
    arguments += ['coco2017', '--output', str(tmp_path), '--split', 'val2017']
    arguments += ['--base_url', server.url]
    part = tmp_path / 'val2017.zip.part'
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (part.exists() and part.stat().st_size):
        time.sleep(0.01)
    process.send_signal(number)
    _, error = process.communicate(timeout=20)
    assert process.returncode == (130 if number == signal.SIGINT else -number), error
    kept = part.stat().st_size
    assert 0 < kept < len(CONTENT)
    if number == signal.SIGINT:
        assert error.strip().endswith('the same command continues from there.')
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    # The bytes are right, but they are no archive: it is unpacking that complains.
    assert 'val2017.zip: damaged' in result.stderr
    assert server.requests[-1]['Range'] == f'bytes={kept}-'
    assert (tmp_path / 'val2017.zip').read_bytes() == CONTENT


def test_a_folder_that_is_no_coco_is_reported_in_a_line(tmp_path):
    result = run('convert', 'coco2017', '--data', str(tmp_path), '--output', str(tmp_path / 'out'))
    assert result.exit_code == 1
    assert 'there is no image folder' in result.output
    assert 'Traceback' not in result.output


@rows.parametrize('name', ['data', 'weights'])
def test_help_imports_nothing_heavy(name):
    program = (
        f'import sys; from object_detection.cli.{name} import command\n'
        'try: command(["download", "--help"])\n'
        'except SystemExit: pass\n'
        'heavy = {"apache_beam", "tensorflow", "numpy", "requests"}\n'
        'sys.exit(bool(heavy & set(sys.modules)))'
    )
    subprocess.run([sys.executable, '-c', program], check=True, stdout=subprocess.DEVNULL)


@rows.parametrize('flag', ['--augmentation', '--all_steps'])
def test_images_of_evaluations_are_not_augmented(flag, tmp_path):
    result = run('show', '--config', 'any', '--output', str(tmp_path), '--eval', flag)
    assert result.exit_code == 2
    assert '--eval: images of evaluations are not augmented' in result.output
