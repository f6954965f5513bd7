import importlib.util
import pathlib
import re
import shlex

import pytest
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from object_detection.dataset_tools.converters import beam_runners
from tests import rows


def test_local_runner_is_named():
    assert isinstance(beam_runners.create(''), FnApiRunner)
    options = beam_runners.options(workers=1, runner='', beam_options=())
    assert options.view_as(DirectOptions).direct_running_mode == 'in_memory'


def test_workers_are_processes():
    options = beam_runners.options(workers=3, runner='', beam_options=()).view_as(DirectOptions)
    assert (options.direct_num_workers, options.direct_running_mode) == (3, 'multi_processing')


def test_other_runner_and_its_options():
    assert isinstance(beam_runners.create('FnApiRunner'), FnApiRunner)
    flags = ('--direct_num_workers', '2', '--direct_running_mode=multi_threading')
    options = beam_runners.options(workers=1, runner='x', beam_options=flags)
    assert options.view_as(DirectOptions).direct_num_workers == 2


@rows.parametrize('name', ['nonsense', 'some.module.Runner', 'json.Runner'])
def test_unknown_runner(name):
    with pytest.raises(ValueError, match=f"'{name}' cannot be used"):
        beam_runners.create(name)


@rows.parametrize(
    ('arguments', 'match'),
    [
        ({'workers': 0}, 'at least 1. Received: 0'),
        (
            {'workers': 2, 'runner': 'x'},
            'number of workers: expected none with a runner.*Received: 2',
        ),
        ({'beam_options': ['--direct_num_worker=2']}, 'Did you mean --direct_num_workers?'),
        ({'beam_options': ['--zzzzzz', '2']}, 'no option --zzzzzz'),
        ({'beam_options': ['--direct_num_workers=many']}, 'invalid int value'),
        ({'beam_options': ['stray']}, 'begin with --'),
    ],
)
def test_options_that_would_be_passed_over(arguments, match):
    arguments = {'workers': 1, 'runner': '', 'beam_options': ()} | arguments
    with pytest.raises(ValueError, match=match):
        beam_runners.options(**arguments)


class _OtherOptions(PipelineOptions):
    """As those of the Dask runner: a flag that is not the name of its value."""

    @classmethod
    def _add_argparse_args(cls, parser):
        parser.add_argument('--other_npieces', dest='npieces', type=int, default=None)


def test_flag_is_distinguished_from_the_name_of_its_value():
    options = beam_runners.options(workers=1, runner='x', beam_options=['--other_npieces=8'])
    assert options.view_as(_OtherOptions).npieces == 8
    with pytest.raises(ValueError, match=r'no option --npieces. Did you mean --other_npieces\?'):
        beam_runners.options(workers=1, runner='x', beam_options=['--npieces=8'])


def test_documented_options_of_other_engines_exist():
    text = (pathlib.Path(__file__).parents[3] / 'docs' / 'clusters.md').read_text()
    commands = re.findall(r'^(tfod convert(?:.*\\\n)*.*)$', text, re.MULTILINE)
    runners = []
    for command in commands:
        words = shlex.split(command.replace('\\\n', ' '))
        rest = words[words.index('--runner') + 1 :]
        runner, options = rest[0], rest[1:]
        runners.append(runner.rpartition('.')[2])
        if 'Dask' not in runner or importlib.util.find_spec('dask'):
            beam_runners.create(runner)
            beam_runners.options(workers=1, runner=runner, beam_options=options)
    assert runners == ['DaskRunner', 'DataflowRunner', 'FlinkRunner', 'PortableRunner']
