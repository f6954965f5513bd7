import copy
import errno
import json
import os
import re

import pytest
from click.testing import CliRunner

from object_detection.cli import main
from object_detection.cli.predict import command, find_images, find_sources
from object_detection.prediction import files, predict_records, predictor
from object_detection.prediction.views import Augmentation, Tiling
from object_detection.system import console
from tests import rows
from tests.validation import pipelines


class _Options(dict):
    """The options of a predictor."""

    advised_threshold, score_threshold = None, 0.37


@pytest.fixture(autouse=True)
def _no_model(monkeypatch):
    monkeypatch.setattr(predictor, 'Predictor', _Options)


def test_files_and_folders_become_a_list_of_images(tmp_path):
    folder = tmp_path / 'photos'
    folder.mkdir()
    for name in ('b.JPG', 'a.png', 'notes.txt'):
        (folder / name).write_bytes(b'')
    single = tmp_path / 'c.jpeg'
    single.write_bytes(b'')
    found = find_images((str(single), str(folder)))
    assert [path.name for path in found] == ['c.jpeg', 'a.png', 'b.JPG']


def test_missing_input_and_empty_folder_are_named(tmp_path):
    with pytest.raises(ValueError, match=r'--input .*nowhere: no such file or folder'):
        find_images((str(tmp_path / 'nowhere'),))
    with pytest.raises(ValueError, match='holds no image'):
        find_images((str(tmp_path),))


def test_patterns_are_expanded_and_files_that_cannot_be_read_are_not_passed_over(tmp_path):
    for name in ('a.webp', 'b.heic', 'c.jpg', 'd.txt'):
        (tmp_path / name).write_bytes(b'')
    (tmp_path / 'e.jpg').mkdir()
    assert [path.name for path in find_images((str(tmp_path / '*.jpg'),))] == ['c.jpg']
    found = find_images((str(tmp_path),))
    assert [path.name for path in found] == ['a.webp', 'b.heic', 'c.jpg', 'e.jpg']
    found = find_images((str(tmp_path),), readable=True)
    assert [path.name for path in found] == ['a.webp', 'c.jpg', 'e.jpg']
    (tmp_path / 'scans').mkdir()
    (tmp_path / 'scans' / 'b.heic').write_bytes(b'')
    with pytest.raises(ValueError, match=r'holds no image .* cannot be read: \.heic'):
        find_images((str(tmp_path / 'scans'),))
    with pytest.raises(ValueError, match='no such file or folder'):
        find_images((str(tmp_path / '*.bmp'),))


def test_inputs_without_any_image_are_an_error(tmp_path, monkeypatch):
    config = tmp_path / 'my.config'
    config.write_text('model {}')
    summary = files.PredictionSummary(0, 0, 0, [f'{config}: cannot be decoded.'], None)
    monkeypatch.setattr(files, 'predict_files', lambda *_, **options: summary)
    arguments = ['--model', 'm', '--input', str(config), '--output', 'out']
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 1
    assert 'none of the inputs is an image' in result.output


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def fails(*_, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, 'predict_files', fails)
    image = tmp_path / 'a.png'
    image.touch()
    arguments = ['--model', 'm', '--input', str(image), '--output', str(tmp_path)]
    error = CliRunner().invoke(command, arguments).exception
    assert isinstance(error, ValueError)
    assert f'could not be written to {tmp_path}: No space left on device' in str(error)


@rows.parametrize(
    ('arguments', 'message'),
    [
        ([], 'Expected either --model, or --config'),
        (['--model', 'm', '--config', 'c'], 'Received: both'),
        (['--config', 'c'], '--checkpoint_dir is missing'),
        (['--model', 'm', '--input', 'a.png', '--limit', '-1'], "Invalid value for '--limit'"),
        (['--config', 'c', '--checkpoint_dir', 'd', '--label_map', 'l'], '--label_map is about'),
        (['--config', 'c', '--checkpoint_dir', 'd', '--min_score', '0.5'], '--min_score is about'),
        (['--config', 'c', '--checkpoint_dir', 'd', '--bf16'], '--bf16 is about'),
        (['--config', 'c', '--checkpoint_dir', 'd', '--tile', '64'], '--tile is about'),
        (['--model', 'm'], "Missing option '--input'"),
    ],
)
def test_a_model_and_a_config_exclude_each_other(arguments, message):
    result = CliRunner().invoke(command, [*arguments, '--output', 'out'])
    assert result.exit_code == 2
    assert message in ' '.join(result.output.split())


@rows.parametrize(('precision', 'told'), [('tf32', 'in out, computed in tf32'), (None, 'in out')])
def test_the_precision_of_the_model_is_reported(precision, told, tmp_path, monkeypatch):
    image = tmp_path / 'a.png'
    image.write_bytes(b'')
    summary = files.PredictionSummary(1, 2, 0, [], precision)
    monkeypatch.setattr(files, 'predict_files', lambda *_, **options: summary)
    arguments = ['--model', 'm', '--input', str(image), '--output', 'out']
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert result.output.endswith(f'1 images, 2 detections (0 with a score >= 0.5) {told}\n')


def test_json_has_the_numbers(tmp_path, monkeypatch):
    image = tmp_path / 'a.png'
    image.write_bytes(b'')
    summary = files.PredictionSummary(1, 2, 0, ['b.png: is no image.'], 'tf32')
    monkeypatch.setattr(files, 'predict_files', lambda *_, **options: summary)
    arguments = ['--model', 'm', '--input', str(image), '--output', 'out', '--json']
    result = CliRunner().invoke(command, arguments)
    assert json.loads(result.stdout) == {'output': 'out', **summary._asdict()}
    assert 'left out: b.png' in result.stderr


def test_records_are_predicted_quietly_and_as_json(tmp_path, monkeypatch):
    found = {'out/a': (3, 4), 'out/b': (0, 0)}
    monkeypatch.setattr(predict_records, 'predict_records', lambda *_, **options: found)
    config = pipelines.write_files(tmp_path)
    arguments = ['--config', str(config), '--checkpoint_dir', 'd', '--output', 'out']
    result = CliRunner().invoke(command, [*arguments, '--json'])
    assert result.exit_code == 0, result.output
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {'output': folder, 'images': images, 'detections': detections}
        for folder, (images, detections) in found.items()
    ]
    quiet = copy.deepcopy(command)
    main.add_common_options(quiet)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, 'be_quiet', lambda: None)
        result = CliRunner().invoke(quiet, [*arguments, '--quiet'])
    assert result.output == '3 images, 4 detections in out/a\n0 images, 0 detections in out/b\n'


def test_options_become_a_predictor_and_outputs(tmp_path, monkeypatch):
    image = tmp_path / 'a.png'
    image.write_bytes(b'')
    calls = []

    def predict_files(*arguments, **options):
        calls.append(arguments)
        return files.PredictionSummary(1, 0, 0, [], None)

    monkeypatch.setattr(files, 'predict_files', predict_files)
    arguments = ['--model', 'm', '--input', str(image), '--input', 'camera:1', '--output', 'out']
    arguments += ['--score_threshold', '0.3', '--classes', 'cat, 7', '--bf16', '--batch_size', '4']
    arguments += ['--tile', '640', '--tile_overlap', '0.3', '--tta', 'flip,0.8']
    arguments += ['--output_format', 'csv,yolo', '--output_format', 'voc', '--limit', '5']
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    ((predictor, sources, output, options),) = calls
    assert predictor == {
        'path': 'm',
        'label_map': None,
        'classes': ['cat', '7'],
        'precision': 'bfloat16',
        'batch_size': 4,
        'tiling': Tiling(640, 0.3),
        'augmentation': Augmentation(True, (0.8,)),
    }
    assert (sources, output) == ([str(image), 'camera:1'], 'out')
    assert (options.formats, options.score_threshold) == (['csv', 'yolo', 'voc'], 0.3)
    assert (options.max_boxes, options.limit) == (100, 5)


@rows.parametrize(
    ('arguments', 'expected'),
    [
        ([], (0.5, True)),
        (['--score_threshold', '0.5'], (0.5, False)),
        (['--score_threshold', 'best'], (0.37, False)),
    ],
)
def test_the_threshold_of_the_evaluation_is_offered(arguments, expected, tmp_path, monkeypatch):
    image = tmp_path / 'a.png'
    image.touch()
    calls = []

    def predict_files(*found, **options):
        calls.append(found)
        return files.PredictionSummary(1, 0, 0, [], None)

    monkeypatch.setattr(files, 'predict_files', predict_files)
    monkeypatch.setattr(_Options, 'advised_threshold', 0.37)
    given = ['--model', 'm', '--input', str(image), '--output', 'out', *arguments]
    result = CliRunner().invoke(command, given)
    assert result.exit_code == 0, result.output
    ((made, _, _, options),) = calls
    is_advised = '--score_threshold best is 0.37' in result.output
    assert (options.score_threshold, is_advised) == expected
    assert ('score_threshold' in made) == ('best' in arguments)
    result = CliRunner().invoke(command, [*given, '--score_threshold', 'most'])
    assert "'most' is not a valid float" in result.output


@rows.parametrize(
    ('arguments', 'message'),
    [
        (['--output_format', 'pdf'], "expected some of pictures, .*Received: 'pdf'"),
        (['--tta', 'turn'], "Received: 'turn'"),
        (['--tta', 'flip', '--tta_merge', 'mean'], 'tta_merge: expected one of wbf, nms'),
        (['--tile', '3'], 'tile: expected a size of at least'),
        (['--tile_overlap', '0.3'], '--tile_overlap is for --tile'),
        (['--tta_merge', 'nms'], '--tta_merge is for --tta'),
    ],
)
def test_wrong_options_are_named(arguments, message, tmp_path):
    image = tmp_path / 'a.png'
    image.touch()
    arguments = ['--model', 'm', '--input', str(image), '--output', 'out', *arguments]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code
    assert re.search(message, ' '.join(f'{result.output} {result.exception}'.split()))


def test_videos_and_cameras_are_sources(tmp_path):
    for name in ('b.mp4', 'a.png', 'c.txt'):
        (tmp_path / name).touch()
    found = find_sources(('camera:0', str(tmp_path), 'rtsp://host/1'))
    assert found == ['camera:0', str(tmp_path / 'a.png'), str(tmp_path / 'b.mp4'), 'rtsp://host/1']
    assert [path.name for path in find_images((str(tmp_path),))] == ['a.png']


def test_inputs_that_are_named_twice_are_read_once(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ('a.png', 'b.png'):
        (tmp_path / name).touch()
    inputs = (str(tmp_path), 'camera:0', 'a.png', 'camera:0', './b.png')
    assert find_sources(inputs) == [str(tmp_path / 'a.png'), str(tmp_path / 'b.png'), 'camera:0']
    assert capsys.readouterr().err == '3 inputs are named more than once, and are read once\n'
    assert find_sources(('a.png', 'b.png')) == ['a.png', 'b.png']
    assert capsys.readouterr().err == ''
