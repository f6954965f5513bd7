import errno
import importlib
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from object_detection import registry
from object_detection.cli import main as cli
from object_detection.errors import ConfigError, UserError, raise_if_any
from tests import rows

HEAVY = ('tensorflow', 'apache_beam', 'numpy', 'google.protobuf')


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, '-m', 'object_detection.cli.main', *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )


def _seconds_of_children() -> float:
    """Of processors, that other programs of the machine make no longer."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_help_is_quick_and_lists_every_command():
    before = _seconds_of_children()
    result = run('--help')
    assert _seconds_of_children() - before < 1.0
    assert result.returncode == 0
    for name, line in cli.COMMANDS.items():
        assert f'  {name} ' in result.stdout
        assert line in result.stdout


def test_help_names_the_order_of_commands_also_of_the_package_as_a_program():
    command = [sys.executable, '-m', 'object_detection', '--help']
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    text = ' '.join(result.stdout.split())
    assert 'Usage: python -m object_detection' in text
    assert text.index('`tfod convert`') < text.index('`tfod config new`') < text.index('tfod train')


@rows.parametrize('group', ['checkpoint', 'config', 'context', 'convert', 'data', 'weights'])
def test_lines_about_the_commands_of_a_group_are_whole(group):
    text = _help(group)
    assert 'Commands:' in text
    assert '...' not in text.partition('Commands:')[2]


def _help(command: str) -> str:
    return CliRunner().invoke(cli.main, [*command.split(), '--help']).output


@rows.parametrize(
    'command',
    [
        'train',
        'eval',
        'export',
        'summary',
        'checkpoint convert',
        'config check',
        'config show',
        'data show',
        'predict',
    ],
)
def test_the_config_has_two_names_in_every_command(command):
    assert '--config, --pipeline_config_path FILE' in _help(command)


@rows.parametrize('command', ['train', 'launch', 'convert coco', 'data convert', 'context add'])
def test_the_number_of_processes_has_one_name_in_every_command(command):
    assert '--num_workers' in _help(command)


@rows.parametrize(
    ('command', 'kind'),
    [
        ('convert coco', 'PREFIX'),
        ('data convert', 'FOLDER'),
        ('data split', 'FOLDER'),
        ('config new', 'FILE'),
        ('export', 'FOLDER'),
        ('predict', 'FOLDER'),
    ],
)
def test_help_says_whether_the_output_is_a_folder(command, kind):
    assert f'--output {kind}' in _help(command)


def test_help_says_where_masks_are_the_default():
    assert '[default: no_masks]' in _help('convert coco')
    assert '[default: masks]' in _help('data convert')


def test_help_imports_nothing_heavy():
    code = f"""
import sys
import tempfile
from collections.abc import Iterator
from object_detection.cli.main import main
main(['--help'], standalone_mode=False)
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""
    result = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=True
    )
    assert result.stderr.strip() == '[]'


def test_unknown_commands_are_reported_in_a_line():
    result = run('trian')
    assert result.returncode == 2
    assert "No such command 'trian'; did you mean 'train'?" in result.stderr
    assert "No such command 'quux'" in run('quux').stderr


def test_errors_of_users_are_one_message_without_traceback():
    result = run('config', 'check', 'no/such.config')
    assert result.returncode == 1
    assert result.stderr.strip() == 'Error: no/such.config: there is no such file.'


@rows.parametrize(
    ('arguments', 'where'),
    [
        (['config', 'check', 'a', '--set', 'x=\udcff'], '--set'),
        (['train', '--model_dir=\udcff'], '--model_dir'),
        (['config', 'check', '\udcff.config'], 'argument 3'),
    ],
)
def test_arguments_that_are_not_text_are_reported_in_a_line(arguments, where):
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 2
    assert f'Error: {where}: expected text in UTF-8. Received: b' in result.output
    with pytest.raises(UserError, match=f'^{where}: expected text in UTF-8'):
        cli.check_text(arguments)


@pytest.mark.parametrize(
    ('arguments', 'environment'), [(['--debug'], {}), ([], {'TFOD_DEBUG': '1'})]
)
def test_tracebacks_on_request(arguments, environment):
    result = run(*arguments, 'config', 'check', 'no/such.config', **environment)
    assert result.returncode == 1
    assert 'Traceback' in result.stderr


def group_of(error: Exception) -> click.Group:
    @click.command()
    def command():
        raise error

    class Group(cli.LazyGroup):
        def get_command(self, context, name):
            return command

    return Group('tfod', params=[click.Option(['--debug'], is_flag=True)])


def test_defects_are_a_block_with_the_traceback_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    result = CliRunner().invoke(group_of(ValueError('not ours\nat all')), ['x'])
    (file,) = tmp_path.iterdir()
    lines = result.stderr.splitlines()
    assert result.exit_code == 1
    assert lines[:3] == [
        'Error: this is most likely a defect of this program.',
        '  ValueError: not ours',
        '  at all',
    ]
    assert lines[3].startswith(f'  raised in command, {__file__}, line ')
    assert lines[4] == f'  The traceback is in {file}; `tfod --debug COMMAND` prints it.'
    assert 'Traceback (most recent call last)' in file.read_text()
    with pytest.raises(ValueError, match='not ours'):
        CliRunner().invoke(
            group_of(ValueError('not ours')), ['--debug', 'x'], catch_exceptions=False
        )


def test_several_problems_are_a_list():
    with pytest.raises(ConfigError) as caught:
        raise_if_any(['a: wrong.', 'b: wrong,\ntoo.'])
    result = CliRunner().invoke(group_of(caught.value), ['x'])
    assert result.stderr.splitlines() == [
        'Error: 2 problems:',
        '  1. a: wrong.',
        '  2. b: wrong,',
        '     too.',
    ]
    with pytest.raises(ConfigError) as caught:
        raise_if_any(['a: wrong.'])
    assert CliRunner().invoke(group_of(caught.value), ['x']).stderr == 'Error: a: wrong.\n'


def leaves(command: click.Command) -> Iterator[click.Command]:
    inner = getattr(command, 'commands', None)
    if inner is None:
        yield command
    for each in (inner or {}).values():
        yield from leaves(each)


@rows.parametrize('name', list(cli.COMMANDS))
def test_every_command_can_be_quiet(name):
    group = cli.LazyGroup('tfod')
    for _ in range(2):
        found = list(leaves(group.get_command(None, name)))
    assert found
    for command in found:
        names = [param.name for param in command.params]
        assert names.count('quiet') == names.count('plugin') == 1, command.name


@pytest.fixture
def no_plugins(monkeypatch):
    monkeypatch.setenv(registry.PLUGINS_VARIABLE, '')  # what a command writes there is undone
    monkeypatch.delenv(registry.PLUGINS_VARIABLE)


@pytest.mark.parametrize(
    'arguments',
    [('convert', '--plugin', 'no_such', '--help'), ('config', 'check', '--plugin=no_such')],
)
def test_plugins_are_imported_before_a_command(no_plugins, arguments):
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith('Error: --plugin no_such: expected the name of a Python module')


def test_an_option_of_the_launched_program_is_no_plugin_of_the_launcher(no_plugins):
    command = [
        'launch',
        '--num_processes',
        '1',
        sys.executable,
        '-c',
        'pass',
        '--plugin',
        'no_such',
    ]
    assert CliRunner().invoke(cli.main, command).exit_code == 0
    command = ['launch', '--plugin', 'no_such', '--num_processes', '1', 'train']
    assert 'Error: --plugin no_such' in CliRunner().invoke(cli.main, command).stderr


# Servers have no result, `launch` passes on the output of its command, and the other two write JSON
# to a file.
_WITHOUT_JSON = ('serve', 'data_service', 'launch', 'benchmark', 'data check')


@rows.parametrize('name', list(cli.COMMANDS))
def test_every_command_with_a_result_prints_it_as_json(name):
    command = cli.LazyGroup('tfod').get_command(None, name)
    found = [leaf for leaf in leaves(command) if leaf.name != name] or [command]
    for leaf in found:
        words = name if leaf is command else f'{name} {leaf.name}'
        flags = [param for param in leaf.params if '--json' in param.opts]
        assert bool(flags and flags[0].is_flag) == (words not in _WITHOUT_JSON), words


def test_missing_files_are_reported_in_a_line():
    def fails():
        with open('no/such/file') as file:
            return file.read()

    try:
        fails()
    except OSError as error:
        result = CliRunner().invoke(group_of(error), ['x'])
    assert result.exit_code == 1
    assert 'no/such/file' in result.output


def test_a_full_disk_is_reported_in_a_line():
    result = CliRunner().invoke(group_of(OSError(errno.ENOSPC, 'No space left')), ['x'])
    assert result.exit_code == 1
    assert result.output == 'Error: [Errno 28] No space left\n'


def test_whose_error_it_is_depends_on_its_class():
    from object_detection.config.reader import parse_pipeline

    with pytest.raises(ConfigError) as ours:
        parse_pipeline('x: 1', 'p')
    with pytest.raises(ValueError, match='invalid literal') as theirs:
        int('x')
    assert cli.is_users_error(ours.value)
    assert not cli.is_users_error(theirs.value)
    assert not cli.is_users_error(OSError('a message alone'))


@rows.parametrize('name', cli.COMMANDS)
def test_every_command_of_the_table_exists(name):
    command = importlib.import_module(f'object_detection.cli.{name}').command
    assert isinstance(command, click.Command)


def test_a_reader_that_stops_is_no_defect(monkeypatch):
    @click.command()
    def command():
        raise BrokenPipeError(errno.EPIPE, 'Broken pipe')

    monkeypatch.setattr(importlib.import_module('object_detection.cli.status'), 'command', command)
    result = CliRunner().invoke(cli.main, ['status'])
    assert result.exit_code == 1
    assert 'defect' not in result.output
