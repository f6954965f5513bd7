"""Lists of CPU cores."""

import os

import pytest

from object_detection.system import cpu_cores


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    monkeypatch.setattr(os, 'sysconf', lambda name: 8)


@pytest.mark.parametrize(
    ('text', 'cores'), [('', ()), ('3', (3,)), ('0-2, 7', (0, 1, 2, 7)), ('5,4-5', (4, 5))]
)
def test_cores(text, cores):
    assert cpu_cores.parse(text) == cores


@pytest.mark.parametrize('text', ['a', '1,,2', '-1', '0-', '8', '3-2', '0-8'])
def test_mistakes(text):
    with pytest.raises(ValueError, match='expected CPU cores') as caught:
        cpu_cores.parse(text)
    assert repr(text) in str(caught.value)
