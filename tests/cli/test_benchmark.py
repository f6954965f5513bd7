"""`tfod benchmark`: its options and what it writes; times are not tested."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from object_detection.benchmarking import jobs
from object_detection.cli import benchmark
from object_detection.cli.main import main
from object_detection.errors import UserError
from tests import rows
from tests.benchmarking.test_report import row

SAMPLE = 'ssd_mobilenet_v2_fpnlite_shapes'


@pytest.fixture
def run(monkeypatch):
    """Runs the command; measurements are made up, and their jobs collected in `run.jobs`."""
    done = []

    def run_alone(job):
        done.append(job)
        if job.task == jobs.EXPORT:
            return {'image_size': [128, 160], 'precision': job.precision or 'float32'}
        if job.batch_size == 64:
            raise jobs.JobError('the process was killed by SIGKILL.')
        return row(job.precision or 'float32') | {'batch_size': job.batch_size}

    def invoke(*words):
        return CliRunner().invoke(main, ['benchmark', *words])

    monkeypatch.setattr(benchmark.jobs, 'run_alone', run_alone)
    invoke.jobs = done
    return invoke


def test_each_precision_and_batch_size_of_a_sample_is_a_job(run, tmp_path):
    path = tmp_path / 'b.json'
    words = ['--batch_size', '1', '--batch_size', '4', '--json', str(path), '--synthetic']
    words += ['--precision', 'float32', '--precision', 'bfloat16', '--output', str(tmp_path)]
    ran = run(SAMPLE, *words, '--set', 'model.ssd.num_classes=7', '--threads', '1')
    assert ran.exit_code == 0, ran.output
    tasks = [(job.task, job.precision, job.batch_size) for job in run.jobs]
    assert tasks == [
        *(('export', 'float32', 1), ('inference', None, 1), ('inference', None, 4)),
        *(('export', 'bfloat16', 1), ('inference', None, 1), ('inference', None, 4)),
    ]
    assert run.jobs[0].settings == ('model.ssd.num_classes=7',)
    assert {job.threads for job in run.jobs} == {1}
    assert {job.image_size for job in run.jobs if job.task == 'inference'} == {(128, 160)}
    assert run.jobs[1].source == run.jobs[0].output
    document = json.loads(path.read_text())
    assert document['source'] == SAMPLE
    assert [each['batch_size'] for each in document['rows']] == [1, 4, 1, 4]
    assert document['machine']['cores'] >= 1
    assert (tmp_path / 'benchmark.png').is_file()


def test_training_steps_are_measured_of_the_config_itself(run):
    ran = run(SAMPLE, '--mode', 'training', '--strategy', 'mirrored')
    assert ran.exit_code == 0, ran.output
    (job,) = run.jobs
    assert (job.task, job.is_config, job.strategy) == ('training', True, 'mirrored')
    assert 'Training step of' in ran.output


def test_a_measurement_that_fails_leaves_the_others(run):
    ran = run(SAMPLE, '--batch_size', '64', '--batch_size', '1')
    assert ran.exit_code == 1
    assert [job.batch_size for job in run.jobs] == [1, 64, 1]
    assert 'batch 64: the process was killed by SIGKILL.' in ran.output
    assert 'float32      1' in ran.output


@pytest.mark.parametrize('kind', [UserError, RuntimeError])
def test_an_export_that_fails_leaves_what_was_measured_before(run, monkeypatch, kind):
    alone = benchmark.jobs.run_alone

    def run_alone(job):
        if job.task == jobs.EXPORT and job.precision == 'bfloat16':
            raise kind('Traceback\nit broke')
        return alone(job)

    monkeypatch.setattr(benchmark.jobs, 'run_alone', run_alone)
    ran = run(SAMPLE, '--precision', 'float32', '--precision', 'bfloat16')
    assert ran.exit_code == 1
    assert 'float32      1' in ran.output
    assert 'it broke' in ran.output


def test_folders_that_cannot_be_written_are_found_before_measuring(run, tmp_path):
    (tmp_path / 'file').touch()
    for words in (['--json', f'{tmp_path}/file/b.json'], ['--output', f'{tmp_path}/file']):
        ran = run(SAMPLE, *words)
        assert ran.exit_code == 1
        assert f'{words[0]}: cannot write to {tmp_path}/file' in ran.output
    assert '--json: expected a file' in run(SAMPLE, '--json', str(tmp_path)).output
    assert run.jobs == []


def test_models_take_images_or_random_ones_and_say_so(run, tmp_path):
    (tmp_path / 'photo.png').touch()
    ran = run(str(tmp_path))
    assert 'random images are used' in ran.output
    ran = run(str(tmp_path), '--images', str(tmp_path))
    assert 'random images are used' not in ran.output
    first, second = run.jobs
    assert (first.source, first.images) == (str(tmp_path), ())
    assert second.images == (str(tmp_path / 'photo.png'),)
    assert '1 photo' in ran.output


@rows.parametrize(
    ('words', 'message'),
    [
        (['nothing'], 'CONFIG|MODEL: expected a config, a model or the name of a sample'),
        ([SAMPLE, '--set', 'model.ssd.num_clases=7'], 'num_clases'),
        ([SAMPLE, '--threads', '5000'], '--threads: expected at most'),
        ([SAMPLE, '--batch_size', '0'], "'--batch_size': 0 is not in the range"),
        ([SAMPLE, '--images', '.'], '--images .: the folder holds no image'),
        ([SAMPLE, '--images', '.', '--synthetic'], '--synthetic: not with --images'),
        (['.', '--set', 'a=1'], '--set: expected a CONFIG'),
        (['.', '--mode', 'training'], '--mode training: expected a CONFIG'),
    ],
)
def test_mistakes_are_reported_before_anything_is_measured(
    run, words, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    ran = run(*words)
    assert ran.exit_code != 0
    assert message in ran.output
    assert run.jobs == []


def test_help_and_checks_load_neither_tensorflow_nor_matplotlib():
    code = (
        'import sys, object_detection.cli.benchmark; '
        "sys.exit(bool({'tensorflow', 'matplotlib'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, '-c', code], check=True)
