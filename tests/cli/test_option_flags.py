"""Flags from dataclasses."""

import dataclasses

import click
import click.testing
import pytest
from absl import flags

from object_detection.cli import option_flags


def _option(default, help_text, choices=()):
    return dataclasses.field(default=default, metadata={'help': help_text, 'choices': choices})


@dataclasses.dataclass(frozen=True)
class Options:
    count: int | None = _option(None, 'How many.')
    rate: float = _option(0.5, 'How fast.')
    draws: bool = _option(True, 'Draw.')
    kind: str | None = _option(None, 'Which.', ('a', 'b'))
    names: tuple[str, ...] = _option((), 'Who.')
    text: str = _option('', 'What.')


GIVEN = Options(count=3, rate=2.0, draws=False, kind='b', names=('x', 'y'), text='z')


@pytest.fixture
def parse_absl(monkeypatch):
    values = flags.FlagValues()
    for kind in ('string', 'integer', 'float', 'bool', 'enum', 'multi_string'):
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

    @click.command()
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


def test_click_help():
    result, _ = _parse_click('--help')
    lines = [line.split()[0] for line in result.output.splitlines() if line.startswith('  --')]
    assert lines == [
        '--other',
        '--count',
        '--rate',
        '--draws',
        '--kind',
        '--names',
        '--text',
        '--help',
    ]
    assert 'Does it.' in result.output
    assert '[default: 0.5]' in result.output


def test_choices_are_checked(parse_absl):
    with pytest.raises(flags.IllegalFlagValueError, match='kind'):
        parse_absl('--kind=c')
    assert 'kind' in _parse_click('--kind', 'c')[0].output
