"""How the config of a training differs from another one."""

import contextlib
import difflib
import html
import os
import re

from object_detection.config import reader, show
from object_detection.errors import ConfigError
from object_detection.visualization.report import note

_COMMENT = re.compile(r'(^|\s)#[^"]*$')


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


def _lines(config: str) -> list[str]:
    with contextlib.suppress(ConfigError):
        config = show.to_text(reader.parse_pipeline(config, 'config'))
    lines = (_COMMENT.sub('', line).rstrip() for line in config.splitlines())
    return [line for line in lines if line and not line.lstrip().startswith('#')]


def _difference_line(line: str) -> str:
    kind = {'+': 'added', '-': 'removed'}.get(line[:1], '')
    return f'<span class="{kind}">{html.escape(line)}</span>'
