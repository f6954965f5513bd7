"""Tables of docs/models.md and docs/migrating.md are what their generators write today."""

import importlib
import pathlib

import pytest

from tests import rows

FOLDER = pathlib.Path(__file__).resolve().parents[1] / 'docs' / 'generator'
AGAIN = 'run: python docs/generator/backbone_table.py'


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('backbone_table')


def test_every_backbone_has_a_line(table):
    assert list(table.rows(table.PAGE.read_text())) == table.names(), AGAIN


@rows.parametrize('name', ['mobilenet_v2', 'keras:MobileNetV2'])
def test_a_line_is_up_to_date(table, name):
    assert table.rows(table.PAGE.read_text())[name] == table.line(name), AGAIN


@rows.parametrize('name', ['detectors', 'extractors'])
def test_a_table_of_a_registry_is_up_to_date(monkeypatch, name):
    monkeypatch.syspath_prepend(FOLDER)
    tables = importlib.import_module('registry_tables')
    path, text = tables.written(name)
    assert path.read_text() == text, 'run: python docs/generator/registry_tables.py'
