"""Rows of a table as one test: pytest spends more time on a case than many of them take."""

import contextlib
import functools
import inspect
import itertools
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
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

    The rows share the fixtures of the test, but each has a new `tmp_path`, a `monkeypatch` that is
    undone after it, and an empty `caplog` and `capsys`. Rows that take a second or more are better
    cases.

    Args:
      names: names of arguments, or of the only one.
      rows: a value of each argument, or of the only one.
    """
    rows, is_single = list(rows), isinstance(names, str)
    names = [names] if is_single else list(names)

    def decorate(test: Callable) -> Callable:
        @functools.wraps(test)
        def check_all(**fixtures: Any) -> None:
            numbers = itertools.count()

            def check(row: Any) -> None:
                values = [row] if is_single else row
                with _of_one_row(fixtures, next(numbers)) as own:
                    test(**own, **dict(zip(names, values, strict=True)))

            check_rows(rows, check)

        signature = inspect.signature(test)
        left = [each for name, each in signature.parameters.items() if name not in names]
        check_all.__signature__ = signature.replace(parameters=left)
        return check_all

    return decorate


@contextlib.contextmanager
def _of_one_row(fixtures: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """The fixtures as a row gets them, without what the rows before it did."""
    own = dict(fixtures)
    if 'tmp_path' in own:
        own['tmp_path'] /= f'row{number}'
        own['tmp_path'].mkdir()
    if 'caplog' in own:
        own['caplog'].clear()
    if 'capsys' in own:
        own['capsys'].readouterr()
    with contextlib.ExitStack() as stack:
        if 'monkeypatch' in own:
            own['monkeypatch'] = stack.enter_context(own['monkeypatch'].context())
        yield own
