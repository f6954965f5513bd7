"""The text of `tfod config check --tpu`."""

import textwrap
from collections.abc import Iterator, Sequence

from object_detection.config.findings import Finding

_WIDTH = 100
_MAX_INSTRUCTIONS = 20
_INDENT = 10


def lines(file: str, findings: Sequence[Finding], cores: int) -> Iterator[str]:
    """Yields the lines of the report about a config."""
    obstacles = sum(finding.is_obstacle for finding in findings)
    others = len(findings) - obstacles
    if obstacles:
        verdict = f'does not fit a TPU of {cores} cores: {_settings(obstacles)} to change'
    else:
        verdict = f'fits a TPU of {cores} cores'
    more = f'{_settings(others)} cost{"s" * (others == 1)} speed or accuracy there'
    yield f'{file}: {verdict}{f"; {more}" if others else ""}.'
    for number, finding in enumerate(findings, start=1):
        yield ''
        kind = 'does not fit' if finding.is_obstacle else 'advice'
        yield f'{number}. {kind}: {finding.path}'
        yield from _entry('found', finding.found)
        yield from _entry('why', finding.reason)
        if finding.write:
            yield from _entry('write', finding.write)


def program_lines(count: int, unfit: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yields the lines about the program of a training step.

    Args:
      count: the number of its instructions.
      unfit: pairs (what it is, the TensorFlow operation that it is part of).
    """
    verdict = 'all shapes are fixed, and the host computes nothing' if not unfit else 'does not fit'
    yield f'\nThe training step of a core is one program of {count:,} instructions: {verdict}.'
    for what, name in list(dict.fromkeys(unfit))[:_MAX_INSTRUCTIONS]:
        yield f'   {what}{f" of {name}" if name else ""}'


def _settings(count: int) -> str:
    return f'{count} setting{"s" * (count != 1)}'


def _entry(name: str, text: str) -> Iterator[str]:
    # A name of a field stays with its value: text wraps at blanks, but not at these.
    kept = text.replace(': ', ':\xa0')
    wrapped = textwrap.wrap(
        kept,
        _WIDTH,
        initial_indent=f'   {name}:'.ljust(_INDENT),
        subsequent_indent=' ' * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return (line.replace('\xa0', ' ') for line in wrapped)
