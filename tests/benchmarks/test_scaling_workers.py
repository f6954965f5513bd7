"""What several workers cost is told; the program itself runs as `--quick`."""

import importlib
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'


@pytest.fixture
def scaling_workers(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('scaling_workers')


def test_overheads(scaling_workers):
    results = [{'count': count, 'cpu_seconds': seconds} for count, seconds in ((1, 2.0), (3, 2.5))]
    one, three = scaling_workers.with_overhead(results)
    assert (one['overhead'], one['per_worker']) == (0.0, 0.0)
    assert three['overhead'] == pytest.approx(25.0)
    assert three['per_worker'] == pytest.approx(0.25)
