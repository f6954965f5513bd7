"""The table of a training's runs."""

import subprocess
import sys

from click.testing import CliRunner

from object_detection.cli.runs import command
from object_detection.training.monitoring import history, run_record


def _write_runs(directory):
    folder = directory / 'train'
    folder.mkdir()
    for run, step in (('a', 0), ('b', 100)):
        entry = {'run': run, 'time': 1e9, 'step': step, 'git': {'program': {'commit': 'f' * 40}}}
        history.append(folder / run_record.FILE_NAME, entry)
    times = {'p50': 0.1, 'p90': 0.2, 'p95': 0.3, 'p99': 0.4}
    run_record.write_averages(
        directory,
        'b',
        step=250,
        steps_per_second=9.5,
        images_per_second=76.0,
        waiting_share=0.031,
        latencies={'step': times, 'input': times},
        memory={'host': 2**31, 'GPU:0': 2**33},
        flops_per_second=2.5e12,
        seconds={'all': 4000.0, 'steps': 3600.0, 'saves': 200.0},
    )


def test_a_line_for_each_start(tmp_path):
    _write_runs(tmp_path)
    lines = CliRunner().invoke(command, [str(tmp_path)]).output.splitlines()
    assert len(lines) == 3
    assert lines[1].split()[2:] == ['fffffffff', '0']
    cells = lines[2].split()
    assert cells[2:7] == ['fffffffff', '100', '250', '9.5', '76']
    assert cells[7:] == [
        *['100/200/300/400'] * 2,
        *['3%', 'host', '2.0', 'GPU:0', '8.0', '2.5', '1:06:40', '90%/5%/0%'],
    ]


def test_runs_of_before_there_were_averages(tmp_path):
    (tmp_path / 'train').mkdir()
    history.append(tmp_path / 'train' / run_record.FILE_NAME, {'time': 1e9, 'source': 'abc'})
    assert len(CliRunner().invoke(command, [str(tmp_path)]).output.splitlines()) == 2


def test_a_folder_without_runs(tmp_path):
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert result.exit_code == 1
    assert 'expected the runs of a training. Received: none.' in result.output


def test_no_tensorflow_is_loaded(tmp_path):
    _write_runs(tmp_path)
    code = (
        'import sys; from object_detection.cli.runs import command; '
        f'command([{str(tmp_path)!r}], standalone_mode=False); '
        "sys.exit('tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, '-c', code], check=True, capture_output=True)
