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
def recordings(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('recordings')


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


def test_lines_by_hand(recordings):
    results = recordings.Results()
    results.add('a', np.array([1.0, 2]), np.array([1.0, 2.5]), 2.0, 0.5)
    assert results.line('x') == 'ok x: 1/1 within tolerance, worst 0.5 of it'
    recordings.compare_rows(results, 'b', np.array([[1.0], [2]]), np.array([[2.0], [4]]), 1)
    assert results.line('x').startswith('FAIL x: 1/2 within tolerance, worst inf of it; b inf')
    pairs = recordings.compare_rows(
        results, 'b', np.array([[1.0], [5]]), np.array([[5.0], [1.5]]), 1
    )
    assert (pairs.tolist(), results.worst['b']) == ([1, 0], 0.5)


def test_images_are_those_of_the_recordings(recordings):
    root = SHARED / 'goldens' / 'peers'
    names = sorted(path.stem for path in root.glob('*.json'))
    if not names:
        pytest.skip('needs ../shared/goldens/peers, recorded detectors of other systems')
    for name in names:
        # Raises an error where a recorded pixel is another one.
        assert recordings.Recorded(root, name).pictures().dtype == np.uint8


def test_detections_of_one_score_have_no_order(recordings):
    first, second = [0, 0, 0.4, 0.1, 5, 0.9], [0.1, 0, 0.5, 0.1, 5, 0.9]
    other_class, worse, last = [*second[:4], 6, 0.9], [*second[:5], 0.8], [0.5, 0.5, 1, 1, 5, 0.1]
    theirs = np.array([first, last])
    # Either of two that overlap by 0.3 / 0.5, and any with the lowest score.
    for others, count in (([first, last], 2), ([second, [0, 0.5, 1, 1, 5, 0.1]], 0)):
        assert len(recordings.without_ties(theirs, np.array(others))) == count
    for others in ([other_class, last], [worse, last]):
        np.testing.assert_array_equal(recordings.without_ties(theirs, np.array(others)), theirs)


def proposals_at_the_cut():
    """Three proposals, the last of which is another one than theirs, with their scores."""
    first, second = [0, 0, 40, 20], [10, 0, 50, 20]
    theirs, ours = np.array([first, second, [0, 30, 20, 60]]), np.array([second, first, [9] * 4])
    return theirs, ours, np.array([0.9, 0.6, 0.2]), np.array([0.6, 0.9, 0.2])


def test_proposals_of_one_score_at_the_cut_may_be_others(recordings):
    theirs, ours, scores, our_scores = proposals_at_the_cut()
    # The logits of 0.2 and 0.20001 differ by 0.00001 / (0.2 * 0.8).
    our_scores[2] += 1e-5
    for tolerance, count in ((6.4e-5, 1), (6e-5, 0)):
        found = recordings.tied_at_the_cut(theirs, ours, (scores, our_scores), 1.0, tolerance)
        assert [each.tolist() for each in found] == [[False, False, bool(count)]] * 2
    results = recordings.Results()
    results.worst, results.proposals, results.left_out = {'a': 0.0}, 6, 1
    assert results.line('x').endswith('of it, 1 of 6 proposals left out: tied at the cut')


def test_a_difference_of_proposals_that_is_no_tie_fails(recordings):
    theirs, ours, scores, our_scores = proposals_at_the_cut()
    worse, better = np.array([0.9, 0.6, 0.3]), np.array([0.2, 0.6, 0.9])
    # The last ones differ in their scores; theirs is not a last one.
    for of_theirs, of_ours in ((worse, our_scores), (scores, our_scores + 0.1), (better, better)):
        lost, added = recordings.tied_at_the_cut(theirs, ours, (of_theirs, of_ours), 1.0, 1e-4)
        assert not lost.any()
        results = recordings.Results()
        recordings.compare_rows(results, 'a', theirs[~lost], ours[~added], 1.0)
        assert results.line('x').startswith('FAIL x: 0/1')


def test_a_proposal_that_both_have_is_compared(recordings):
    theirs, ours, scores, our_scores = proposals_at_the_cut()
    ours[2] = theirs[2] + 0.5
    found = recordings.tied_at_the_cut(theirs, ours, (scores, our_scores), 1.0, 1e-4)
    assert not np.any(found)
