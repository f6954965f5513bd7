"""Metrics of files of tracks."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from object_detection.cli import eval as eval_command
from object_detection.dataset_tools import shapes
from object_detection.errors import UserError
from object_detection.scoring import tracks


def lines(*rows) -> str:
    """Rows of (frame, id, x); boxes are 10 pixels wide and high."""
    return ''.join(f'{frame},{number},{x},0,10,10,1,-1,-1,-1\n' for frame, number, x in rows)


@pytest.fixture
def files(tmp_path):
    """One object in four frames, which is found in three, with a switch after the second."""
    pytest.importorskip('trackers', reason='needs the extra track: trackers')
    truth, found = tmp_path / 'truth.txt', tmp_path / 'found.txt'
    truth.write_text(lines(*((frame, 4000000000, 0) for frame in range(1, 5))))
    found.write_text(lines((1, 7, 0), (2, 7, 0), (3, 9, 0)))
    return found, truth


def test_numbers_by_hand(files):
    found, truth = map(str, files)
    result = tracks.evaluate(found, truth)
    assert (result.objects, result.detections) == (4, 3)
    metrics = result.metrics
    assert metrics['MOTA'] == pytest.approx(1 - (1 + 0 + 1) / 4)  # missed, false, switches
    assert metrics['MOTP'] == pytest.approx(1)
    assert (metrics['missed'], metrics['false'], metrics['id switches']) == (1, 0, 1)
    # The better one of both tracks is the object's: 2 right, 1 false, 2 missed.
    assert metrics['IDF1'] == pytest.approx(2 * 2 / (2 * 2 + 1 + 2))
    # Of the pairs of a track and the object: 2 of 4 boxes of either in two boxes, 1 of 4 in one.
    assert metrics['AssA'] == pytest.approx((2 * 2 / 4 + 1 / 4) / 3)
    assert metrics['DetA'] == pytest.approx(3 / 4)
    assert metrics['HOTA'] == pytest.approx((metrics['AssA'] * metrics['DetA']) ** 0.5)


def test_folders_of_both_layouts_and_the_command(files, tmp_path):
    found, truth = files
    (tmp_path / 'found').mkdir()
    for name in ('a', 'b'):
        (tmp_path / f'truth/{name}/gt').mkdir(parents=True)
        (tmp_path / f'truth/{name}/gt/gt.txt').write_text(truth.read_text())
    ignored = lines((5, 3, 50)).replace('10,10,1', '10,10,0')
    (tmp_path / 'truth/b/gt/gt.txt').write_text(truth.read_text() + ignored)
    (tmp_path / 'found/a.txt').write_text(found.read_text())
    (tmp_path / 'found/b.txt').write_text(truth.read_text())
    paths = ['--detections', tmp_path / 'found', '--groundtruth', tmp_path / 'truth']
    output = tmp_path / 'metrics.json'
    arguments = [*map(str, [*paths, '--output', output]), '--detections_format', 'mot']
    result = CliRunner().invoke(eval_command.command, arguments)
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line.split()[1:] for line in result.output.splitlines()[-3:]}
    assert rows.keys() == {'a', 'b', 'all'}
    assert rows['b'] == [*['1.000'] * 8, '0', '0', '0']
    assert json.loads(output.read_text())['MOTA'] == pytest.approx(1 - 2 / 8)
    result = CliRunner().invoke(eval_command.command, [*arguments, '--per_category'])
    assert '--per_category: not for --detections_format mot' in result.output


@pytest.mark.parametrize(
    'line', ['1,2,3', '1,2,x,0,5,5,1', '0,2,0,0,5,5,1', '1,2,0,0,-5,5,1', '1,2,0,nan,5,5,1']
)
def test_wrong_lines_are_named(files, line):
    found, truth = files
    found.write_text(lines((1, 7, 0)) + line + '\n')
    with pytest.raises(UserError, match=r'found.txt, line 2: expected frame,id,x'):
        tracks.evaluate(str(found), str(truth))


def test_absent_files_are_named(files, tmp_path):
    found, truth = files
    with pytest.raises(UserError, match=r'--detections .*gone: no such file'):
        tracks.evaluate(str(tmp_path / 'gone'), str(truth))
    (tmp_path / 'empty').mkdir()
    with pytest.raises(UserError, match='expected two files, or two folders'):
        tracks.evaluate(str(tmp_path / 'empty'), str(truth))
    with pytest.raises(UserError, match=r'expected NAME.txt or NAME/gt/gt.txt'):
        tracks.evaluate(str(tmp_path / 'empty'), str(tmp_path / 'empty'))
    with pytest.raises(UserError, match=r'expected a file of each sequence. Received: no found'):
        tracks.evaluate(str(tmp_path / 'empty'), str(tmp_path))
    assert found.exists()


def test_generated_videos_have_the_tracks_that_are_seen(tmp_path):
    options = {'num_train': 0, 'num_val': 0, 'image_size': 64, 'num_videos': 1, 'num_frames': 12}
    shapes.write_shapes(tmp_path, **options)
    videos = tmp_path / 'videos'
    assert len(list((videos / '000001').glob('*.jpg'))) == 12
    rows = tracks._read(videos / '000001.txt')
    assert rows[:, 0].min() == 1
    assert rows[:, 0].max() == 12
    # No object is twice in a frame, and boxes lie within the image.
    assert len({(frame, number) for frame, number, *_ in rows.tolist()}) == len(rows)
    assert (rows[:, 2:4] + rows[:, 4:6]).max() <= 64
    # Objects move by at most three pixels along each side, except for what covers them.
    for number in set(rows[:, 1]):
        own = rows[rows[:, 1] == number]
        assert median_step(own) <= 4


def median_step(rows: np.ndarray) -> float:
    return float(np.median(np.abs(np.diff(rows[:, 2:4], axis=0)), axis=0).max(initial=0))
