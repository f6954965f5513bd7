"""Flags of exporter_main_v2 and of `tfod export`."""

import pathlib
import subprocess
import sys

from tests import rows

ROOT = pathlib.Path(__file__).resolve().parents[1]
REQUIRED = [
    '--pipeline_config_path=no.config',
    '--trained_checkpoint_dir=a',
    '--output_directory=b',
]


def run(*arguments: str, script: bool = False) -> subprocess.CompletedProcess:
    program = (
        [str(ROOT / 'object_detection' / 'exporter_main_v2.py')]
        if script
        else ['-m', 'object_detection.exporter_main_v2']
    )
    return subprocess.run(
        [sys.executable, *program, *arguments], capture_output=True, text=True, check=False
    )


@rows.parametrize('script', [False, True])
def test_runs_as_a_module_and_as_a_file(script):
    finished = run(*REQUIRED, script=script)
    assert finished.returncode == 1
    assert finished.stderr.startswith('Error: --pipeline_config_path no.config')
    assert 'Traceback' not in finished.stderr


@rows.parametrize(
    ('flag', 'message'),
    [
        ('--use_side_inputs', 'expected one entry for each side input'),
        ('--side_input_names=context', 'expected with --use_side_inputs only'),
        ('--input_type=video', 'input_type'),
    ],
)
def test_what_is_not_supported_is_reported(flag, message):
    finished = run(*REQUIRED, flag)
    assert finished.returncode == 1
    assert message in finished.stdout + finished.stderr


def test_the_log_is_of_this_package_unless_all_is_requested():
    code = """
import logging, sys
from object_detection import exporter_main_v2
logging.basicConfig(level=logging.INFO, format='%(message)s', stream=sys.stdout)
exporter_main_v2._hide_others(int(sys.argv[1]))
logging.getLogger('tensorflow').info('internal')
logging.getLogger('absl').warning('grave')
logging.getLogger('object_detection.export.exporter').info('ours')
"""
    for verbosity, expected in (('0', ['grave', 'ours']), ('1', ['internal', 'grave', 'ours'])):
        finished = subprocess.run(
            [sys.executable, '-c', code, verbosity], capture_output=True, text=True, check=True
        )
        assert finished.stdout.split() == expected
