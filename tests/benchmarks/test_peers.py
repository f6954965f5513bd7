"""The comparison with torchvision: turns, ratios and tables with programs that measure nothing."""

import importlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks' / 'peers'
PEER = 'TORCHVISION_PYTHON'
# Prints what it was called with; the times grow with each call.
FAKE = """
import json, pathlib, sys
calls = pathlib.Path(__file__).with_suffix('.calls')
calls.write_text((calls.read_text() if calls.exists() else '') + 'x')
count = len(calls.read_text())
print('a line of a library')
print(json.dumps({
    'seconds': SECONDS * count, 'mean': 1.0, 'p90': 1.0, 'p95': 1.0, 'p99': 1.0,
    'images_per_second': 1.0, 'peak_memory': 100 * count, 'arguments': sys.argv[1:],
    'threads': 2,
}))
"""


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('torchvision_mask_rcnn')


def test_programs_take_turns_and_rounds_become_medians(peers):
    turns = [peers.Program(name, (), name == 'ours') for name in ('peer', 'ours')]
    order = []

    def measure(program):
        order.append(program.name)
        seconds = [4.0, 1.0, 9.0, 2.0, 5.0, 3.0][len(order) - 1]
        return {'seconds': seconds, 'peak_memory': 10 * seconds, 'version': '1'}

    peer, ours = peers.alternate(turns, 3, measure)
    assert order == ['peer', 'ours'] * 3
    assert (peer['seconds'], ours['seconds']) == (5.0, 2.0)
    assert (peer['peak_memory'], ours['peak_memory']) == (90.0, 30.0)
    assert ours['rounds'] == [1.0, 2.0, 3.0]
    (ratio,) = peers.ratios([peer, ours])
    assert ratio['time'] == pytest.approx(0.4)
    assert ratio['memory'] == pytest.approx(1 / 3)
    assert ratio['rounds'] == pytest.approx([1 / 4, 2 / 9, 3 / 5])


def test_a_comparison_runs_both_sides_and_writes_their_ratios(peers, monkeypatch, tmp_path, capsys):
    for name, seconds in (('training', 1.0), ('torchvision_step', 2.0)):
        (tmp_path / f'{name}.py').write_text(FAKE.replace('SECONDS', str(seconds)))
    monkeypatch.setattr(peers, '_BENCHMARKS', tmp_path)
    monkeypatch.setattr(peers, '_FOLDER', tmp_path)
    path = tmp_path / 'results' / 'out.json'
    words = ['--python', sys.executable, '--work', 'training', '--precision', 'bfloat16']
    peers.main([*words, '--rounds', '1', '--size', '64', '--json', str(path)])
    (comparison,) = json.loads(path.read_text())
    padded, peer, real = comparison['results']
    assert padded['arguments'][-2:] == ['--mask_rois', 'padded']
    assert real['arguments'][-2:] == ['--mask_rois', 'real']
    assert '--height 64 --width 64' in ' '.join(peer['arguments'])
    for result in (padded, peer, real):
        assert ' '.join(result['arguments']).startswith('--precision bfloat16 --steps 5')
    assert [ratio['time'] for ratio in comparison['ratios']] == [0.5, 1.0]
    output = capsys.readouterr().out
    assert '1000 proposals' in output
    assert 'ours, padded mask RoIs / torchvision: time 0.500 (0.500 to 0.500)' in output


def test_a_program_that_fails_is_reported_with_its_errors(peers):
    words = (sys.executable, '-c', 'raise ValueError("no such operator")')
    with pytest.raises(SystemExit, match=r'torchvision: expected a JSON(.|\n)*no such operator'):
        peers.run(peers.Program('torchvision', words, False))
    words = (sys.executable, '-c', 'print("ready")')
    with pytest.raises(SystemExit, match='exit status 0'):
        peers.run(peers.Program('torchvision', words, False))


@pytest.mark.skipif(
    PEER not in os.environ,
    reason=f'{PEER} does not name an interpreter that has torch and torchvision',
)
@pytest.mark.parametrize('work', ['inference', 'training'])
def test_torchvision_does_the_work(work):
    words = ['--work', work, '--height', '64', '--width', '96', '--steps', '2', '--objects', '3']
    words += ['--proposals', '20', '--threads', '1']
    output = subprocess.run(
        [os.environ[PEER], FOLDER / 'torchvision_step.py', *words], capture_output=True, check=True
    ).stdout
    result = json.loads(output.splitlines()[-1])
    assert 0 < result['seconds'] < result['p99'] * 1.001
    assert result['images_per_second'] == pytest.approx(1 / result['mean'])
    if work == 'inference':
        assert (result['box_rois'], result['mask_rois']) == (20, 100)
    else:
        # The objects are among the regions.
        assert 3 <= result['mask_rois'] <= result['box_rois'] <= 23


def test_openvino_runs_on_the_same_arguments_beside_the_export(peers):
    module = importlib.import_module('openvino_mask_rcnn')
    options = module.arguments().parse_args(['--python', 'peer', '--steps', '3'])
    openvino, ours, torchvision = module.programs('bfloat16', options, 'model.xml')
    assert openvino.command[:4] == ('peer', str(module._FILE), '--step', 'model.xml')
    assert openvino.command[4:] == torchvision.command[2:]
    assert {'--export', '--precision', 'bfloat16'} <= set(ours.command)
    assert [program.is_ours for program in (openvino, ours, torchvision)] == [False, True, False]
