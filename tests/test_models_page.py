"""docs/models.md lists the backbones of today, with what its generator counts."""

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
