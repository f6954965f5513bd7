"""Growth is fitted and told; that the axes run."""

import importlib
import json
import pathlib

import pytest
from click.testing import CliRunner

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'


@pytest.fixture
def scaling(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('scaling')


def points(power, factor=1.0):
    return [{'size': n, 'seconds': factor * n**power, 'memory': 0.0} for n in (10, 100, 1000, 3000)]


def test_exponents(scaling):
    assert scaling.exponent(points(2.0), 'seconds', 0.0) == pytest.approx(2.0)
    # What is paid once, or cannot be measured, does not hide it.
    bent = points(1.5, 1e-4)
    bent[0]['seconds'] = 0.03
    assert scaling.exponent(bent, 'seconds', 0.0) == pytest.approx(1.5)
    assert scaling.exponent(points(1.0), 'memory', 30.0) is None


def test_fails_for_what_is_twice_worse_than_linear(scaling, tmp_path, monkeypatch):
    runs = []

    def run_alone(name, quick):
        runs.append(name)
        power = {'pixels': 2.0, 'records_counted': 1.0}.get(name, 3.0 - runs.count(name))
        result = {'axis': name, 'what': '', 'points': points(power), 'memory_exponent': None}
        return result | {'time_exponent': scaling.exponent(points(power), 'seconds', 0.0)}

    monkeypatch.setattr(scaling, '_run_alone', run_alone)
    path = tmp_path / 'out.json'
    names = ['records_counted', 'pixels', 'annotations_json']
    words = [word for name in names for word in ('--axis', name)]
    ran = CliRunner().invoke(scaling.main, [*words, '--json', str(path)])
    assert ran.exit_code == 1
    assert 'Worse than linear: pixels.' in ran.output
    assert runs == ['records_counted', 'pixels', 'pixels', 'annotations_json', 'annotations_json']
    written = json.loads(path.read_text())
    assert [row['time_exponent'] for row in written] == pytest.approx([1, 2, 1])


def test_an_axis_in_a_process_of_its_own(scaling, tmp_path):
    path = tmp_path / 'out.json'
    words = ['--quick', '--axis', 'annotations_json', '--json', str(path)]
    ran = CliRunner().invoke(scaling.main, words, catch_exceptions=False)
    assert ran.exit_code == 0
    (result,) = json.loads(path.read_text())
    assert [point['size'] for point in result['points']] == [100, 1000]
    assert all(point['seconds'] > 0 for point in result['points'])


@pytest.mark.parametrize(
    'name',
    [
        'objects_matched',
        'annotations_evaluated',
        'records_counted',
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ('objects_read', 'pixels', 'batch_training')
        ),
    ],
)
def test_axes_run(scaling, name, tmp_path):
    axis = importlib.import_module('scaling_axes').AXES[name]
    assert list(axis.sizes) == sorted(axis.sizes)
    result = axis.prepare(axis.quick_sizes[-1], tmp_path)()
    assert result is None or name != 'records_counted' or result == axis.quick_sizes[-1]
