"""The parts of the speed benchmarks on a small config; times themselves are not tested."""

import importlib
import json
import pathlib
import sys

import click
import pytest
from click.testing import CliRunner

from object_detection.benchmarking import rows
from object_detection.training.monitoring import model_summary

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'
CONFIG = 'mask_rcnn_resnet18_fpn_shapes'


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(rows, '_MATRIX_SIDE', 32)
    return importlib.import_module


def test_configs_are_found_by_name_and_path(load, tmp_path):
    find = load('measure').find_config
    assert find(CONFIG).endswith(f'samples/configs/{CONFIG}.config')
    path = tmp_path / 'own.config'
    path.touch()
    assert find(str(path)) == str(path)
    with pytest.raises(click.UsageError, match=f'{CONFIG}.*Received: nothing'):
        find('nothing')


@pytest.mark.slow
@pytest.mark.parametrize('name', ['inference', 'training'])
def test_measures_a_config(load, name):
    """And what is timed does what the plain execution does."""
    module = load(name)
    command = load('measure').command(
        name, getattr(module, f'measure_{name}'), ('padded', 'real')[name == 'training' :]
    )
    arguments = ['--config', CONFIG, '--size', '64', '--steps', '2', '--here', '--profile']
    ran = CliRunner().invoke(command, arguments, catch_exceptions=False)
    result = json.loads(ran.output)
    assert result['image_size'] == '64 x 64'
    assert 0 < result['fastest'] <= result['seconds'] < result['first']
    assert result['fastest'] <= result['p50'] <= result['p90'] <= result['p99']
    assert result['share'] == pytest.approx(result['rate'] / result['matmul_rate'])
    assert result['rate'] == pytest.approx(result['gigaflop'] / result['seconds'])
    assert result['not_counted'] == []
    assert result['agreement']['agrees'], result['agreement']
    parts = {row['part']: row for row in result['parts']}
    assert {'backbone', 'fpn', 'mask_head', 'proposals'} <= set(parts)
    assert sum(row['gigaflop'] for row in parts.values()) == pytest.approx(result['gigaflop'])
    if name == 'inference':
        assert result['raw_agreement']['agrees'], result['raw_agreement']
    if name == 'training':
        # Not padded: some of the RoIs of the 20 objects.
        assert 1 <= result['mask_rois'] <= 64
        assert 'mask_head gradient' in parts


def test_program_prints_what_was_done_and_writes_it(load, tmp_path, monkeypatch):
    measure = load('measure')
    jobs = []

    def run_alone(job):
        jobs.append(job)
        agreement = {'agrees': job.precision == 'float32', 'score_difference': 0.25}
        return result_of(load, job=job) | {'counts': {'proposals': 1000}, 'agreement': agreement}

    monkeypatch.setattr(measure, '_run_alone', run_alone)
    monkeypatch.setattr(sys, 'argv', ['x.py'])
    command = measure.command('training step', None, ('padded', 'real'))
    path = tmp_path / 'results' / 'out.json'
    ran = CliRunner().invoke(command, ['--json', str(path)])
    assert ran.exit_code == 0
    assert [job.mask_rois for job in jobs] == ['padded', 'real']
    assert {job.work for job in jobs} == {'torchvision'}
    for text in ('1000', 'score_threshold=0', 'sampling_ratio=2', 'agrees with the plain'):
        assert text in ran.output
    assert 'pad_mask_rois=false' not in ran.output  # Not of all rows.
    written = json.loads(path.read_text())
    assert [row['seconds'] for row in written] == [0.4, 0.4]
    ran = CliRunner().invoke(command, ['--precision', 'bfloat16', '--json', '--jit_compile'])
    assert ran.exit_code == 1  # It differs from the plain execution.
    assert json.loads(ran.output.splitlines()[0])['precision'] == 'bfloat16'
    assert [(job.mask_rois, job.jit_compile) for job in jobs[2:]] == [('padded', True)]


@pytest.mark.slow
def test_measures_an_export_beside_the_model_and_its_convolutions(load):
    command = load('measure').command('inference', load('inference').measure_inference)
    arguments = ['--config', CONFIG, '--steps', '2', '--here', '--export', '--roof']
    ran = CliRunner().invoke(command, arguments, catch_exceptions=False)
    result = json.loads(ran.output)
    assert result['agreement']['agrees'], result['agreement']
    assert set(result['turns']) == {
        'whole',
        'in_process',
        'prediction',
        'convolutions',
        'convolutions_3x3',
    }
    assert 0 < result['gigaflop_3x3'] < result['gigaflop']
    assert result['share_of_3x3'] > 0


def test_shares_are_medians_over_the_rounds(load):
    turns = {
        'whole': [4.0, 5.0, 6.0],
        'in_process': [5.0, 5.0, 5.0],
        'prediction': [4.0, 4.5, 4.0],
        'convolutions': [3.0, 4.0, 3.0],
        'convolutions_3x3': [2.0, 2.0, 2.0],
    }
    result = {'turns': turns, 'gigaflop': 30.0, 'gigaflop_3x3': 20.0}
    assert load('inference')._shares(result) == {
        'export_by_model': pytest.approx(1.0),
        'share_of_roof': pytest.approx(0.75),
        'share_of_postprocessing': pytest.approx(0.2),
        # 30 / 5 GFLOP/s by 20 / 2.
        'share_of_3x3': pytest.approx(0.6),
    }


def test_an_export_is_not_measured_on_images_of_another_size(load):
    command = load('measure').command('inference', None)
    ran = CliRunner().invoke(command, ['--export', '--size', '64'])
    assert ran.exit_code == 2
    assert '--export: not with --size' in ran.output


def result_of(load, **options):
    job = load('measure').Job('name', **options) if 'job' not in options else options['job']
    return load('measure').result(
        job=job,
        image_size=(4, 6),
        imports=1.0,
        imports_memory=50.0,
        first=2.0,
        seconds=[0.5, 0.2, 0.4],
        matmul_rate=100.0,
        flops=model_summary.FlopCount({'layer': int(20e9)}, ['product']),
    )


def test_table_has_a_line_for_each_result(load):
    measure = load('measure')
    result = result_of(load, batch_size=2)
    assert (result['seconds'], result['fastest']) == (0.4, 0.2)
    assert result['images_per_second'] == pytest.approx(2 / (1.1 / 3))
    assert result['p90'] == pytest.approx(0.48)
    lines = measure.table([result, result | {'precision': 'bfloat16'}])
    assert lines[0].split()[:2] == ['precision', 'time']
    assert lines[1].split()[-3:] == ['50.0', '100.0', '0.500']
    assert lines[2].split()[0] == 'bfloat16'
    assert lines[3].endswith('product')
