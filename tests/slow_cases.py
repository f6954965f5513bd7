"""Which cases of a test the default run takes, where there are more than it has time for."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def parametrize(
    count: int, names: str | Sequence[str], cases: Iterable[Any], **options: Any
) -> pytest.MarkDecorator:
    """Returns `pytest.mark.parametrize` in which all cases after the first few are marked slow.

    Args:
      count: number of cases that the default run takes, besides those that are marked slow.
      names, cases, **options: arguments of `pytest.mark.parametrize`.
    """
    is_single = isinstance(names, str) and ',' not in names
    marked, taken = [], 0
    for case in cases:
        if not hasattr(case, 'marks'):
            case = pytest.param(case) if is_single else pytest.param(*case)
        is_slow = any(mark.name == 'slow' for mark in case.marks)
        if not is_slow and taken == count:
            case = pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
        elif not is_slow:
            taken += 1
        marked.append(case)
    assert taken == count < len(marked), 'expected more cases than the default run takes'
    return pytest.mark.parametrize(names, marked, **options)
