"""The benchmarks of evaluation, conversion and input on little data; times are not tested."""

import argparse
import importlib
import pathlib

import pytest

from tests import rows
from tests.data import examples

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


@rows.parametrize('kind', ['bbox', 'segm', 'keypoints'])
def test_all_evaluations_find_the_same(load, tmp_path, kind):
    evaluation = load('evaluation')
    evaluation.write(tmp_path, kind, 6)
    ours = evaluation.measure_toolkit(tmp_path, kind)
    assert len(ours['metrics']) == (10 if kind == 'keypoints' else 12)
    assert 0.1 < ours['metrics'][0] < 0.9
    for measure in (evaluation.measure_pycocotools, evaluation.measure_faster_coco_eval):
        assert ours['metrics'] == pytest.approx(measure(tmp_path, kind)['metrics'], abs=1e-12)


@rows.parametrize('kind', ['bbox', 'segm'])
@rows.parametrize('case', ['crowds', 'equal overlaps', 'more than 100'])
def test_odd_inputs_give_the_numbers_of_pycocotools(load, case, kind):
    row = load('evaluation_agreement').compare(case, kind, seeds=1)
    assert row['toolkit'] == 'equal'


@pytest.mark.slow
def test_converts_generated_data(load, tmp_path):
    num_bytes = load('generated_coco').write(tmp_path, 4, num_different=2)
    assert 100e3 < num_bytes / 4 < 250e3
    conversion = load('conversion')
    result = conversion.convert(tmp_path, 4, num_shards=1, workers=1)
    assert result['output_megabytes'] > num_bytes / 1e6
    assert result['images_per_second'] == pytest.approx(4 / result['seconds'])
    assert not list(tmp_path.glob('out-*'))


@pytest.mark.slow
def test_adds_context_to_a_generated_camera(load, tmp_path):
    program = load('context_memory')
    program.generate(tmp_path, 6, num_shards=2)
    arguments = argparse.Namespace(elements=4, output_type='tf_example', workers=1)
    result = program.add(tmp_path, 6, arguments)
    assert result['banks'] == 2
    # A context has 4 and 2 embeddings of 2057 numbers.
    assert result['output_megabytes'] > result['input_megabytes'] + (4 * 4 + 2 * 2) * 2057 * 4 / 1e6


@pytest.mark.slow
def test_measures_the_input_and_its_parts(load, tmp_path):
    program = load('input_pipeline')
    pattern, label_map = program.write_records(tmp_path, 2)
    arguments = argparse.Namespace(
        input=pattern, label_map=label_map, batch_sizes=[1], images=2, warm_up=2
    )
    result = program.measure_input(arguments)
    assert result['on_two_cores'] == pytest.approx(2000 / result['cpu_ms_per_image'])
    assert result['of_system'] < result['cpu_ms_per_image']
    parts = program.measure_parts(arguments)
    assert len(parts) == 7
    assert all(value > 0 for value in parts.values())


def test_tables_align(load):
    table = load('own_process').table
    columns = (('name', 'name', '{}'), ('value', 'x', '{:.1f}'))
    rows = [{'name': 'ours', 'value': 10.04}, {'name': 'b', 'value': 2}]
    assert table(columns, rows) == ['name     x', 'ours  10.0', '   b   2.0']


def test_measures_augmentation(load, tmp_path):
    program = load('augmentation')
    for i in range(2):
        (tmp_path / f'{i}.jpg').write_bytes(examples.png(examples.noise(40, 60, i), 'JPEG'))
    arguments = argparse.Namespace(
        images=f'{tmp_path}/*.jpg', configs=None, only=['vertical_flip'], rounds=1, count=2
    )
    decoded, resized, flip = program.measure_rows(arguments, side=32)
    assert resized['of_resized'] == 1
    assert flip['steps'] == '`random_vertical_flip`'
    assert decoded['resize'] == flip['resize'] == 32
    assert flip['cpu_ms_more'] == pytest.approx(
        flip['cpu_ms_per_image'] - resized['cpu_ms_per_image']
    )
    assert flip['images_per_second'] == pytest.approx(1e3 / flip['cpu_ms_per_image'])
