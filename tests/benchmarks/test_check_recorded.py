"""The comparison with recorded detectors of other systems."""

import importlib
import json
import pathlib

import numpy as np
import pytest

from tests.conftest import SHARED

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks' / 'peers'
NAME = 'torchvision_fasterrcnn_resnet50_fpn'


@pytest.fixture
def check_recorded(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('check_recorded')


@pytest.fixture
def folder(tmp_path):
    """Of one detector, of which only some pixels are recorded, and one that no sample describes."""
    (tmp_path / 'recipe.py').touch()
    about = {'tensors': {'images': {'shape': [1, 40, 40, 3]}}}
    for name in (NAME, 'torchvision_other'):
        (tmp_path / f'{name}.json').write_text(json.dumps(about))
        np.savez(tmp_path / f'{name}.npz', **{'images#idx': [0], 'images#val': [7]})
    return tmp_path


def test_what_cannot_be_compared_fails(check_recorded, folder, capsys):
    words = ['--root', str(folder), '--recipe', str(folder / 'recipe.py')]
    assert check_recorded.main(words) == 1
    assert capsys.readouterr().out.splitlines() == [
        f'FAIL {NAME}: images is stored as pixels of other images than those known here',
        'FAIL torchvision_other: no sample config',
    ]


def test_lines_by_hand(check_recorded):
    results = check_recorded.Results()
    results.add('a', np.array([1.0, 2]), np.array([1.0, 2.5]), 2.0, 0.5)
    assert results.line('x') == 'ok x: 1/1 within tolerance, worst 0.5 of it'
    check_recorded.compare_rows(results, 'b', np.array([[1.0], [2]]), np.array([[2.0], [4]]), 1)
    assert results.line('x').startswith('FAIL x: 1/2 within tolerance, worst inf of it; b inf')
    pairs = check_recorded.compare_rows(
        results, 'b', np.array([[1.0], [5]]), np.array([[5.0], [1.5]]), 1
    )
    assert (pairs.tolist(), results.worst['b']) == ([1, 0], 0.5)


def test_images_are_those_of_the_recordings(check_recorded):
    root = SHARED / 'goldens' / 'peers'
    names = sorted(path.stem for path in root.glob('*.json'))
    if not names:
        pytest.skip('needs ../shared/goldens/peers, recorded detectors of other systems')
    for name in names:
        # Raises an error where a recorded pixel is another one.
        assert check_recorded.Recorded(root, name).pictures().dtype == np.uint8


def test_detections_of_one_score_have_no_order(check_recorded):
    first, second = [0, 0, 0.4, 0.1, 5, 0.9], [0.1, 0, 0.5, 0.1, 5, 0.9]
    other_class, worse, last = [*second[:4], 6, 0.9], [*second[:5], 0.8], [0.5, 0.5, 1, 1, 5, 0.1]
    theirs = np.array([first, last])
    # Either of two that overlap by 0.3 / 0.5, and any with the lowest score.
    for others, count in (([first, last], 2), ([second, [0, 0.5, 1, 1, 5, 0.1]], 0)):
        assert len(check_recorded.without_ties(theirs, np.array(others))) == count
    for others in ([other_class, last], [worse, last]):
        np.testing.assert_array_equal(check_recorded.without_ties(theirs, np.array(others)), theirs)
