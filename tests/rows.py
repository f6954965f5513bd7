"""Rows of a table as one test: pytest spends more time on a case than many of them take."""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def check_rows(rows: Iterable[Any], check: Callable[[Any], None]) -> None:
    """Checks all rows, and fails with those that failed.

    Args:
      rows: what to check.
      check: called with each row; raises if the row fails.
    """
    failures, count = [], 0
    for index, row in enumerate(rows):
        count += 1
        try:
            check(row)
        except (Exception, pytest.fail.Exception):
            failures.append(f'row {index}, {row!r}:\n{traceback.format_exc()}')
    assert count, 'expected at least one row'
    if failures:
        pytest.fail(f'{len(failures)} of {count} rows:\n' + '\n'.join(failures), pytrace=False)


def parametrize(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Callable], Callable]:
    """Returns a decorator like `pytest.mark.parametrize`, of which all rows are one test.

    The rows share the fixtures of the test. Rows that take a second or more are better cases.

    Args:
      names: names of arguments, or of the only one.
      rows: a value of each argument, or of the only one.
    """
    rows, is_single = list(rows), isinstance(names, str)
    names = [names] if is_single else list(names)

    def decorate(test: Callable) -> Callable:
        @functools.wraps(test)
        def check_all(**fixtures: Any) -> None:
            def check(row: Any) -> None:
                values = [row] if is_single else row
                test(**fixtures, **dict(zip(names, values, strict=True)))

            check_rows(rows, check)

        signature = inspect.signature(test)
        left = [each for name, each in signature.parameters.items() if name not in names]
        check_all.__signature__ = signature.replace(parameters=left)
        return check_all

    return decorate
