"""Tables of parts by name, with rows of other packages and of plug-in modules."""

import importlib.metadata
import json
import logging
import os
import random
import subprocess
import sys

import pytest

from object_detection import registry
from object_detection.builders.callback_builder import CALLBACKS
from object_detection.builders.evaluator_builder import METRIC_SETS
from object_detection.builders.losses_builder import LOSSES
from object_detection.builders.optimizer_builder import LEARNING_RATES, OPTIMIZERS
from object_detection.builders.preprocessor_builder import AUGMENTATIONS
from object_detection.config.families import FAMILIES, ModelFamily
from object_detection.data.formats.formats import ANNOTATION_FORMATS
from object_detection.errors import UserError
from object_detection.export.formats.formats import EXPORT_FORMATS
from object_detection.models.backbones.table import BACKBONES
from object_detection.models.necks.table import NECKS
from object_detection.registry import Registry, UnknownNameError

ROWS = {'one': 1, 'list': 'collections:OrderedDict'}


@pytest.fixture
def table():
    return Registry('toy part', ROWS)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a distribution with entry points into a scratch folder that Python searches.

    Once `importlib_metadata` is imported, entry points of the standard library are of its class.
    """
    pytest.importorskip('importlib_metadata')

    def install(name, entries, **modules):
        info = tmp_path / f'{name}-1.0.dist-info'
        info.mkdir()
        (info / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n')
        lines = [f'{key} = {place}' for key, place in entries.items()]
        (info / 'entry_points.txt').write_text('\n'.join(['[object_detection.toy_part]', *lines]))
        for module, text in modules.items():
            (tmp_path / f'{module}.py').write_text(text)
            monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, '_loading', set())
    # Set first, so that what a test writes there is undone.
    monkeypatch.setenv(registry.PLUGINS_VARIABLE, '')
    return install


def test_rows_are_imported_when_they_are_asked_for(table):
    assert list(table) == table.names() == ['one', 'list']
    from collections import OrderedDict

    assert table['list'] is OrderedDict
    assert (table['one'], len(table), 'list' in table, 'two' in table) == (1, 2, True, False)


def test_an_unknown_name_lists_the_names_and_the_nearest(table):
    with pytest.raises(
        UserError, match=r"^toy part: expected one of one, list\. Received: 'lst'\."
    ) as e:
        table['lst']
    assert str(e.value).endswith("Did you mean 'list'?")
    assert table.get('lst') is None
    assert isinstance(e.value, UnknownNameError)


def test_registering_by_call_and_by_decorator(table):
    assert table.register('two', 2) == 2

    @table.register('three')
    class Three:
        pass

    assert (table['two'], table['three']) == (2, Three)
    assert table.register('three', Three) is Three  # a module that is imported twice


@pytest.mark.parametrize(('name', 'owner'), [('one', 'a part of this'), ('two', 'the row 2')])
def test_a_taken_name_is_refused(table, name, owner):
    table.register('two', 2)
    with pytest.raises(UserError, match=f"toy part '{name}': .*Received: the name of {owner}"):
        table.register(name, 3)


def test_installed_packages_add_rows_by_entry_points(table, package):
    package('acme', {'acme': 'acme_parts:PART', 'broken': 'acme_parts:NONE'}, acme_parts='PART = 7')
    assert table.names() == ['one', 'list', 'acme', 'broken']
    assert 'acme_parts' not in sys.modules
    assert table['acme'] == 7
    with pytest.raises(UserError, match="toy part 'broken' of acme: acme_parts:NONE cannot be imp"):
        table['broken']
    with pytest.raises(UserError, match=r'Plug-ins that were read: acme\.'):
        table['unknown']


def test_a_broken_package_breaks_no_walk_over_all_rows(package, caplog):
    table = Registry('toy part', {'list': ROWS['list']}, int)
    places = {'acme': 'acme_parts:PART', 'text': 'acme_parts:TEXT', 'worse': 'worse_parts:PART'}
    package('acme', places, acme_parts='PART = 7\nTEXT = "7"', worse_parts='1 / 0')
    with pytest.raises(UserError, match=r"toy part 'text': expected a int\. Received: '7', which"):
        table['text']
    with pytest.raises(UserError, match=r"'worse' of acme: .* imported: ZeroDivisionError: divis"):
        table['worse']
    with caplog.at_level(logging.WARNING):
        assert dict(table.items()).keys() == {'list', 'acme'}
    assert list(table.values())[1:] == [7]
    assert table.names() == ['list', 'acme', 'text', 'worse']
    table.register('absent', 'no_such:PART')
    with pytest.raises(UserError, match="'absent' of a plug-in: no_such:PART cannot be imported"):
        table['absent']
    assert [text.partition(':')[0] for text in caplog.messages[:2]] == [
        "toy part 'text'",
        "toy part 'worse' of acme",
    ]


def test_a_row_without_its_dependency_names_the_plugin_and_the_missing_module(table, package):
    package('acme', {'acme': 'acme_parts:PART'}, acme_parts='import no_such_engine', my_parts='')
    missing = "acme_parts:PART cannot be imported: No module named 'no_such_engine'"
    with pytest.raises(UserError, match=f"^toy part 'acme' of acme: {missing}"):
        table['acme']
    registry.add_plugins(['my_parts'])
    table.register('mine', 'acme_parts:PART')
    with pytest.raises(UserError, match=f"^toy part 'mine' of --plugin my_parts: {missing}"):
        table['mine']


def test_the_rows_of_this_package_exist():
    tables = (LOSSES, AUGMENTATIONS, CALLBACKS, METRIC_SETS, ANNOTATION_FORMATS, EXPORT_FORMATS)
    for table in (*tables, BACKBONES, NECKS, OPTIMIZERS, LEARNING_RATES):
        assert all(table[name] is not None for name in table.built_in), table.kind
    assert all(isinstance(FAMILIES[name], ModelFamily) for name in FAMILIES.built_in)


def test_an_installed_package_replaces_no_name(table, package, caplog):
    package('acme', {'one': 'acme_parts:PART', 'acme': 'acme_parts:PART'}, acme_parts='PART = 7')
    package('bolt', {'acme': 'bolt_parts:PART'}, bolt_parts='PART = 8')
    with caplog.at_level(logging.WARNING):
        assert table['one'] == 1
        assert table['acme'] in (7, 8)
        assert len(table) == 3
    assert len(caplog.messages) == 2
    assert 'the name belongs to this package' in caplog.text


def test_a_plugin_module_registers_its_rows(table, package, monkeypatch):
    monkeypatch.setattr(registry, 'TABLE', table, raising=False)
    text = 'from object_detection import registry\nregistry.TABLE.register("more", 9)\n'
    package('none', {}, toy_plugin=text)
    registry.add_plugins(['toy_plugin'])
    assert (table['more'], registry.plugins()) == (9, ['toy_plugin'])
    # The processes that this one starts find it, too.
    assert os.environ[registry.PLUGINS_VARIABLE] == 'toy_plugin'


@pytest.mark.parametrize(
    ('module', 'message'),
    [
        (
            'no_such',
            r"No module named 'no_such'\. Install its package, or add its folder to PYTHON",
        ),
        ('fails', r"NameError: name 'missing' is not defined\.$"),
        ('takes', r"toy part 'one': expected a name that is not taken.*package\.$"),
    ],
)
def test_a_plugin_that_cannot_be_imported_is_named(table, package, monkeypatch, module, message):
    monkeypatch.setattr(registry, 'TABLE', table, raising=False)
    taken = 'from object_detection import registry\nregistry.TABLE.register("one", 9)\n'
    package('none', {}, fails='missing', takes=taken)
    with pytest.raises(UserError, match=rf'^--plugin {module}: .*{message}'):
        registry.add_plugins([module])


def test_a_registry_imports_no_tensorflow():
    code = (
        'import sys, json; import object_detection.registry; print(json.dumps(list(sys.modules)))'
    )
    out = subprocess.run([sys.executable, '-c', code], capture_output=True, check=True, text=True)
    assert not {'tensorflow', 'google.protobuf'} & set(json.loads(out.stdout))


def test_loading_draws_nothing_from_the_generator_of_seeds(tmp_path, monkeypatch):
    (tmp_path / 'drawing_rows.py').write_text('import random\nROW = random.random()\n')
    monkeypatch.syspath_prepend(tmp_path)
    random.seed(5)
    expected = random.random()
    random.seed(5)
    assert registry.load('drawing_rows:ROW') == expected
    assert random.random() == expected
