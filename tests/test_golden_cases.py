"""No golden case of the reference's components is forgotten."""

import ast
import importlib
import pathlib
import re
from fnmatch import fnmatchcase

import pytest

from tests import golden_lists, goldens, rows

TESTS = pathlib.Path(__file__).parent


@pytest.fixture(scope='module', autouse=True)
def _cases():
    if not goldens.COMPONENTS.is_dir():
        pytest.skip('needs ../shared/goldens')


@pytest.fixture(scope='module')
def claimed() -> set[tuple[str, str]]:
    """File and name of the cases that some test claims, as `tests/goldens.py` says."""
    found = set()
    for path in sorted(TESTS.rglob('test_*.py')):
        source = path.read_text()
        if path != pathlib.Path(__file__) and re.search(r'\bgoldens\.\w+\(', source):
            importlib.import_module('.'.join(path.relative_to(TESTS.parent).with_suffix('').parts))
            found |= set(written_out(source))
    return found | {(file, name) for file, names in goldens.claimed.items() for name in names}


def written_out(source: str):
    """The literal arguments of `goldens.load` in a module's tests, but where it is for inputs."""
    for function in ast.parse(source).body:
        if isinstance(function, ast.FunctionDef) and function.name.startswith('test_'):
            nodes = list(ast.walk(function))
            if not {getattr(node, 'attr', '') for node in nodes} & {'outputs', 'params', 'raises'}:
                continue
            for_inputs = [n.value for n in nodes if getattr(n, 'attr', '') == 'inputs']
            for node in nodes:
                is_load = isinstance(node, ast.Call) and ast.unparse(node.func) == 'goldens.load'
                if is_load and node not in for_inputs:
                    arguments = [getattr(argument, 'value', None) for argument in node.args]
                    if all(isinstance(argument, str) for argument in arguments):
                        yield tuple(arguments)


def listed(lists: golden_lists.Lists) -> set[tuple[str, str]]:
    """File and name of the cases that the lists' entries stand for."""
    return {
        (file, name)
        for file, entries in lists.items()
        for pattern in entries
        for name in goldens.cases(file)
        if fnmatchcase(name, pattern)
    }


def test_every_case_is_used_or_listed(claimed):
    cases = {(file, name) for file in goldens.files() for name in goldens.cases(file)}
    forgotten = cases - claimed - listed(golden_lists.NOT_BUILT)
    assert not forgotten, (
        'No test claims these golden cases; give the reason in tests/golden_lists.py: '
        f'{sorted(forgotten)}'
    )
    assert claimed <= cases


def test_what_is_not_built_is_not_used(claimed):
    built = claimed & listed(golden_lists.NOT_BUILT)
    assert not built, f'delete these in tests/golden_lists.py, NOT_BUILT: {sorted(built)}'


def test_what_is_not_matched_is_used(claimed):
    skipped = listed(golden_lists.NOT_MATCHED) - claimed
    assert not skipped, f'no test asserts what is so instead: {sorted(skipped)}'


@rows.parametrize('lists', ['NOT_MATCHED', 'NOT_BUILT'])
def test_every_entry_of_the_lists_is_a_case(claimed, lists):
    for file, entries in getattr(golden_lists, lists).items():
        for pattern in entries:
            assert any(fnmatchcase(name, pattern) for name in goldens.cases(file)), pattern


def test_every_entry_of_the_outputs_is_a_case(claimed):
    for file, entries in golden_lists.NOT_COMPARED.items():
        outputs = {name for case in goldens.cases(file).values() for name in case['outputs']}
        for pattern in entries:
            assert any(fnmatchcase(name, pattern) for name in outputs), pattern
