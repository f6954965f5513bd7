"""Reads golden numbers of the reference system from ../shared/goldens/components."""

import dataclasses
import functools
import json
import pathlib
from typing import Any

import numpy as np
import pytest

COMPONENTS = pathlib.Path(__file__).resolve().parents[2] / 'shared' / 'goldens' / 'components'


@dataclasses.dataclass(frozen=True)
class Case:
    """One recorded call of the reference.

    Attributes:
      config: text proto of the component's message, or ''.
      params: keyword parameters of the call.
      inputs, outputs: name -> array; list entries are 'name.0', 'name.1', ...
      raises: name of the exception that the reference raised, or ''.
    """

    config: str
    params: dict[str, Any]
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    raises: str


def parametrize(file: str, *, prefix: str | tuple[str, ...] = ''):
    """`pytest.mark.parametrize` over the names of `file`'s cases that start with `prefix`."""
    if not COMPONENTS.is_dir():
        absent = pytest.mark.skip(reason='needs ../shared/goldens')
        return pytest.mark.parametrize('case_name', [pytest.param('absent', marks=absent)])
    names = [name for name in _index()[f'{file}.npz']['cases'] if name.startswith(prefix)]
    assert names, f'no golden case of {file} starts with {prefix!r}'
    return pytest.mark.parametrize('case_name', names)


def load(file: str, name: str) -> Case:
    """Reads one case; skips the test where the folder is absent."""
    if not COMPONENTS.is_dir():
        pytest.skip('needs ../shared/goldens')
    facts = _index()[f'{file}.npz']['cases'][name]
    arrays = _arrays(file)

    def part(kind: str) -> dict[str, np.ndarray]:
        start = f'{name}/{kind}/'
        return {key[len(start) :]: value for key, value in arrays.items() if key.startswith(start)}

    return Case(
        config=facts.get('config') or '',
        params=facts.get('params') or {},
        inputs=part('in'),
        outputs=part('out'),
        raises=facts.get('raises') or '',
    )


@functools.cache
def _index() -> dict[str, Any]:
    return json.loads((COMPONENTS / 'index.json').read_text())['files']


@functools.cache
def _arrays(file: str) -> dict[str, np.ndarray]:
    with np.load(COMPONENTS / f'{file}.npz') as archive:
        return {name: archive[name] for name in archive.files}
