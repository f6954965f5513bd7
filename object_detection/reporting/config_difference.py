"""How the config of a training differs from another one."""

import collections
import contextlib
import difflib
import functools
import html
import importlib.resources
import os
import re

from object_detection.config import reader, show
from object_detection.errors import ConfigError
from object_detection.visualization.report import note

_COMMENT = re.compile(r'(^|\s)#[^"]*$')
# A sample that shares fewer lines is no base of a config.
_LEAST_COMMON_SHARE = 0.5


def difference(base: str, config: str, name: str | os.PathLike) -> str:
    """Returns a part of a page with the lines that two configs do not share.

    Both are compared as they are printed in one form, without comments; a text that is not valid,
    such as one of another version, is compared as it is.

    Args:
      base: text of the config that `config` is compared with.
      config: text of a config.
      name: name of the base.
    """
    compared = difflib.unified_diff(_lines(base), _lines(config), lineterm='', n=3)
    shown = list(compared)[2:]
    if not shown:
        return note(f'None from {name}.')
    return note(f'From {name}.') + f'<pre>{"<br>".join(map(_difference_line, shown))}</pre>'


def closest_sample(config: str) -> tuple[str, str] | None:
    """Returns name and text of the sample config that shares the most lines with a config.

    None if the config is not valid, or if no sample has a model of its family and at least half
    of its lines in common.
    """
    try:
        family = reader.parse_pipeline(config, 'config').model.WhichOneof('model')
    except ConfigError:
        return None
    lines, found, fewest = _lines(config), None, None
    for name, (text, other) in _samples().items():
        if other != family:
            continue
        compared = _lines(text)
        common = sum((collections.Counter(lines) & collections.Counter(compared)).values())
        number = len(lines) + len(compared) - 2 * common
        is_closer = fewest is None or number < fewest
        if is_closer and common >= _LEAST_COMMON_SHARE * max(len(lines), len(compared)):
            found, fewest = (name, text), number
    return found


@functools.cache
def _samples() -> dict[str, tuple[str, str | None]]:
    """Returns name -> text and family of the model, of the sample configs of the package."""
    folder = importlib.resources.files('object_detection') / 'samples' / 'configs'
    samples = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith('.config'):
            text = file.read_text(encoding='utf-8')
            family = reader.parse_pipeline(text, file.name).model.WhichOneof('model')
            samples[file.name] = text, family
    return samples


def _lines(config: str) -> list[str]:
    with contextlib.suppress(ConfigError):
        config = show.to_text(reader.parse_pipeline(config, 'config'))
    lines = (_COMMENT.sub('', line).rstrip() for line in config.splitlines())
    return [line for line in lines if line and not line.lstrip().startswith('#')]


def _difference_line(line: str) -> str:
    kind = {'+': 'added', '-': 'removed'}.get(line[:1], '')
    return f'<span class="{kind}">{html.escape(line)}</span>'
