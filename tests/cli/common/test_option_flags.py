"""Flags from dataclasses."""

import dataclasses
import json
import pathlib
from typing import NamedTuple

import click
import click.testing
import numpy as np
import pytest
from absl import flags

from object_detection.cli.common import option_flags
from object_detection.config.job_options import RUN, WORKERS, option


@dataclasses.dataclass(frozen=True)
class Options:
    count: int | None = option(None, 'How many.', section=WORKERS, aliases=('number',))
    rate: float = option(0.5, 'How fast.', section=RUN)
    draws: bool = option(True, 'Draw.', section=RUN)
    kind: str | None = option(None, 'Which.', ('a', 'b'), section=RUN)
    names: tuple[str, ...] = option((), 'Who.', section=RUN)
    text: str = option('', 'What.', section=RUN, is_hidden=True)


GIVEN = Options(count=3, rate=2.0, draws=False, kind='b', names=('x', 'y'), text='z')


@pytest.fixture
def parse_absl(monkeypatch):
    values = flags.FlagValues()
    for kind in ('string', 'integer', 'float', 'bool', 'enum', 'multi_string', 'alias'):
        define = getattr(flags, f'DEFINE_{kind}')
        monkeypatch.setattr(
            flags, f'DEFINE_{kind}', lambda *args, d=define: d(*args, flag_values=values)
        )
    option_flags.define_absl(Options, Options)

    def parse(*arguments):
        values(['program', *arguments])
        return option_flags.from_absl(Options, values)

    return parse


def _parse_click(*arguments):
    seen = []

    @click.command(cls=option_flags.SectionedCommand)
    @option_flags.click_options(Options)
    @click.option('--other', default='o')
    def command(other, options):
        """Does it."""
        seen.append((other, options))

    result = click.testing.CliRunner().invoke(command, arguments)
    return result, seen


def test_absl(parse_absl):
    assert parse_absl() == Options()
    arguments = ['--count=3', '--rate=2', '--nodraws', '--kind=b', '--names=x', '--names=y']
    assert parse_absl(*arguments, '--text=z') == GIVEN


def test_click():
    assert _parse_click()[1] == [('o', Options())]
    arguments = '--count 3 --rate 2 --nodraws --kind b --names x --names y --text z --other p'
    assert _parse_click(*arguments.split())[1] == [('p', GIVEN)]


def test_click_help_lists_sections():
    result, _ = _parse_click('--help')
    words = [line.split()[0] for line in result.output.splitlines() if line.strip()]
    listed = [word for word in words if word.startswith('--') or word.endswith(':')]
    assert listed == [
        'Usage:',
        'Options:',
        '--other',
        '--help',
        'Run:',
        '--rate',
        '--draws',
        '--kind',
        '--names',
        'Workers:',
        '--count,',
    ]
    assert 'Does it.' in result.output


def test_click_help_shows_the_defaults_of_numbers_and_booleans():
    output = _parse_click('--help')[0].output
    assert '[default: 0.5]' in output
    assert '[default: draws]' in output


def test_aliases(parse_absl):
    assert _parse_click('--number', '4')[1][0][1].count == 4
    assert parse_absl('--number=4').count == 4


def test_choices_are_checked(parse_absl):
    with pytest.raises(flags.IllegalFlagValueError, match='kind'):
        parse_absl('--kind=c')
    assert 'kind' in _parse_click('--kind', 'c')[0].output


def test_json_of_what_is_no_json():
    class Pair(NamedTuple):
        left: object
        right: object

    @option_flags.json_option
    @click.command()
    def command():
        click.echo('a note')
        option_flags.show_result(
            {1: Pair(np.float32(0.5), float('inf')), 'x': np.arange(2), 'p': pathlib.Path('a/b')},
            ['text'],
        )

    result = click.testing.CliRunner().invoke(command, ['--json'])
    assert json.loads(result.stdout) == {
        '1': {'left': 0.5, 'right': None},
        'x': [0, 1],
        'p': 'a/b',
    }
    assert result.stderr == 'a note\n'
    assert click.testing.CliRunner().invoke(command).stdout == 'a note\ntext\n'
