"""Formats the metrics of an evaluation as a few lines of a log."""

import textwrap
from collections.abc import Mapping

from object_detection.validation import eval_config as eval_config_rules

_WIDTH = 100
_UNDEFINED = '-'


def lines(metrics: Mapping[str, float]) -> list[str]:
    """Returns a paragraph for each group of metrics, such as 'DetectionBoxes_Precision'.

    Args:
      metrics: name -> value; the group is the name up to the first '/'.

    Returns:
      Lines with the group's name and 'name value' of each of its metrics. An undefined value (-1,
      if no object has that size or class) is shown as '-', and a last line explains it.
    """
    groups: dict[str, list[str]] = {}
    is_complete = True
    for name, value in metrics.items():
        group, _, rest = name.partition('/')
        is_defined = eval_config_rules.is_defined(name, value)
        is_complete = is_complete and is_defined
        number = f'{value:.4f}' if is_defined else _UNDEFINED
        # No line is broken at these spaces.
        groups.setdefault(group, []).append(f'{rest} {number}'.replace(' ', '\xa0'))
    found = [line for group, entries in groups.items() for line in _paragraph(group, entries)]
    if not is_complete:
        found.append(f'{_UNDEFINED}: not defined, as the data have no such object')
    return found


def _paragraph(group: str, entries: list[str]) -> list[str]:
    wrapped = textwrap.wrap(
        f'{group}: ' + '  '.join(entries),
        _WIDTH,
        subsequent_indent='    ',
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace('\xa0', ' ') for line in wrapped]
