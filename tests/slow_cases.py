"""Which cases of a test the default run takes, where there are more than it has time for."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def parametrize(
    count: int, names: str | Sequence[str], cases: Iterable[Any], **options: Any
) -> pytest.MarkDecorator:
    """Is `pytest.mark.parametrize`, with all but the first cases marked as slow.

    Args:
      count: number of cases that the default run takes.
      names, cases, **options: arguments of `pytest.mark.parametrize`.
    """
    is_single = isinstance(names, str) and ',' not in names
    marked = []
    for index, case in enumerate(cases):
        if not hasattr(case, 'marks'):
            case = pytest.param(case) if is_single else pytest.param(*case)
        if index >= count:
            case = pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
        marked.append(case)
    return pytest.mark.parametrize(names, marked, **options)
