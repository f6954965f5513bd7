"""`tfod eval` of files: the table, JSON, and which options conflict."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from object_detection.cli.main import main
from object_detection.training import jobs
from object_detection.training.evaluation.results import EvaluationResult
from tests import rows
from tests.reporting import model_dirs
from tests.validation import pipelines

DOCUMENT = {
    'images': [{'id': 7, 'file_name': 'seven.jpg', 'height': 40, 'width': 60}],
    'annotations': [{'id': 1, 'image_id': 7, 'category_id': 3, 'bbox': [4, 4, 10, 20]}],
    'categories': [{'id': 3, 'name': 'cat'}, {'id': 5, 'name': 'dog'}],
}
HIT = {'image_id': 7, 'category_id': 3, 'bbox': [4, 4, 10, 20], 'score': 0.5}


@pytest.fixture
def files(tmp_path):
    paths = tmp_path / 'found.json', tmp_path / 'truth.json'
    for path, content in zip(paths, ([HIT], DOCUMENT), strict=True):
        path.write_text(json.dumps(content))
    return ['--detections', str(paths[0]), '--groundtruth', str(paths[1])]


def _run(*arguments):
    return CliRunner().invoke(main, ['eval', *map(str, arguments)])


def test_table(files):
    text = _run(*files, '--per_category').stdout
    line = ' Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 1.000'
    assert line in text.splitlines()
    assert ' Average Recall     (AR) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = -' in text
    rows = [text_line.split() for text_line in text.splitlines()]
    assert ['DetectionBoxes', 'AP', 'AP50', 'AP75'] in [row[:4] for row in rows]
    assert ['dog', '-', '-', '-'] in [row[:4] for row in rows]
    assert '1 images, 1 objects, 1 detections' in text
    assert 'dog' not in _run(*files).stdout


def test_more_detections_are_in_the_names_of_the_table(files):
    text = _run(*files, '--per_category', '--max_detections', 500).stdout
    assert 'IoU=0.50:0.95 | area=   all | maxDets=500 ] = 1.000' in text
    assert 'maxDets=100' not in text
    heads = next(line.split() for line in text.splitlines() if line.split()[1:2] == ['AP'])
    sizes = ['APs', 'APm', 'APl', 'AR1', 'AR10', 'AR500', 'ARs', 'ARm', 'ARl']
    assert heads[1:] == ['AP', 'AP50', 'AP75', *sizes]
    assert '--max_detections' in _run(*files, '--max_detections', 0).stderr
    assert "NAME=SIGMA, such as nose=0.026. Received: 'nose'" in (
        _run(*files, '--oks_sigmas', 'tail=0.1,nose').stderr
    )


def test_table_of_pascal(files):
    text = _run(*files, '--metrics', 'pascal_voc_detection_metrics', '--per_category').stdout
    assert 'PascalBoxes\n Precision/mAP@0.5IOU = 1.000' in text
    assert ['cat', '1.000'] in [line.split() for line in text.splitlines()]


def test_json_and_output(files, tmp_path):
    sets = 'coco_detection_metrics,pascal_voc_detection_metrics'
    result = _run(*files, '--json', '--output', tmp_path / 'metrics.json', '--metrics', sets)
    printed = json.loads(result.stdout)
    assert printed['metric_sets'] == sets.split(',')
    assert printed['images'] == printed['num_detections'] == 1
    written = json.loads((tmp_path / 'metrics.json').read_text())
    assert printed['metrics'] == written
    assert written['DetectionBoxes_Precision/mAP'] == pytest.approx(1)
    assert written['PascalBoxes_PerformanceByCategory/AP@0.5IOU/dog'] is None


def test_errors_are_one_line_and_status_1(files, tmp_path):
    (tmp_path / 'found.json').write_text(json.dumps([HIT | {'image_id': 8}]))
    result = _run(*files)
    assert result.exit_code == 1
    assert 'found.json, entry 0 (image_id 8): image_id: expected an image of' in result.stderr


@rows.parametrize(
    ('arguments', 'message'),
    [
        ([], 'Expected --config with --checkpoint_dir, or --detections with --groundtruth'),
        (['--detections', 'a'], "Missing option '--groundtruth'"),
        (['--groundtruth', 'a'], "Missing option '--detections'"),
        (['--config', 'a'], "Missing option '--checkpoint_dir'"),
        (['--checkpoint_dir', 'a'], "Missing option '--config'"),
        (
            ['--detections', 'a', '--groundtruth', 'b', '--config', 'c'],
            '--config conflicts with --detections',
        ),
        (
            ['--detections', 'a', '--groundtruth', 'b', '--run_once'],
            '--run_once conflicts with --detections',
        ),
        (
            ['--config', 'a', '--checkpoint_dir', 'b', '--metrics', 'c'],
            '--metrics conflicts with --config',
        ),
        (
            ['--config', 'a', '--checkpoint_dir', 'b', '--per_category'],
            '--per_category conflicts with --config',
        ),
    ],
)
def test_conflicts(arguments, message):
    result = _run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize('command', ['eval --run_once', 'export --output out'])
def test_an_absent_checkpoint_folder_is_named_before_tensorflow_is_loaded(tmp_path, command):
    config = pipelines.write_files(tmp_path)
    arguments = [*command.split(), '--config', str(config), '--checkpoint_dir', 'absent/ckpt-3']
    program = (
        'import sys\nfrom object_detection.cli.main import main\n'
        f'try: main({arguments!r})\n'
        "finally: assert 'tensorflow' not in sys.modules"
    )
    result = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert result.returncode == 1
    assert (
        'Error: --checkpoint_dir absent/ckpt-3: expected a folder of checkpoints' in result.stderr
    )
    assert 'AssertionError' not in result.stderr


def test_tensorflow_is_not_loaded(files):
    program = (
        'import sys; from object_detection.cli.main import main;'
        f'main(["eval", *{files!r}], standalone_mode=False);'
        'print(sorted({"tensorflow", "keras", "rich"} & {*sys.modules}))'
    )
    ran = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == '[]'


def test_the_report_of_the_model_dir_has_each_evaluation(tmp_path, monkeypatch, caplog):
    model_dirs.write_history(tmp_path)

    def evaluate(config, checkpoint_dir, output_dir, options, *, on_result, **_):
        assert output_dir == str(tmp_path)
        model_dirs.write_evaluation(tmp_path)
        on_result(EvaluationResult(8, {'AP': 0.5}))
        return 0

    monkeypatch.setattr(jobs, 'run_evaluation', evaluate)
    with caplog.at_level('INFO'):
        result = _run('--config', 'a.config', '--checkpoint_dir', tmp_path, '--run_once')
    assert result.exit_code == 0, result.output
    text = (tmp_path / 'report.html').read_text()
    assert 'No evaluation has been finished yet' not in text
    assert 'AP, mean over IoU .50 to .95' in text
    assert f'{tmp_path}/report.html shows the results' in caplog.text
