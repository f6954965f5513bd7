"""Where programs that XLA has compiled are kept; `test_gradients` shows that they are found."""

import sys

import pytest

from object_detection.errors import ConfigError
from object_detection.system import tensorflow_setup

VARIABLE = 'TF_XLA_FLAGS'


@pytest.fixture(autouse=True)
def _before_tensorflow(monkeypatch):
    monkeypatch.delitem(sys.modules, 'tensorflow')
    monkeypatch.setenv(VARIABLE, '')


def test_the_folder_is_made_and_added_to_what_there_is(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, '--tf_xla_clustering_debug')
    tensorflow_setup.use(str(tmp_path / 'a' / 'b'))
    assert (tmp_path / 'a' / 'b').is_dir()
    flags = tensorflow_setup.os.environ[VARIABLE].split()
    wanted = f'--tf_xla_persistent_cache_directory={tmp_path}/a/b'
    assert flags == ['--tf_xla_clustering_debug', wanted]


def test_a_folder_that_cannot_be_is_an_error(tmp_path, monkeypatch):
    (tmp_path / 'file').write_text('')
    with pytest.raises(ConfigError, match='--compilation_cache: expected a folder'):
        tensorflow_setup.use(str(tmp_path / 'file' / 'below'))
    with pytest.raises(ConfigError, match='without spaces'):
        tensorflow_setup.use(str(tmp_path / 'a b'))
    monkeypatch.setenv(VARIABLE, '--tf_xla_persistent_cache_directory=/elsewhere')
    with pytest.raises(ConfigError, match='which says the same'):
        tensorflow_setup.use(str(tmp_path))


def test_it_is_too_late_once_tensorflow_is_there(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, 'tensorflow', object())
    tensorflow_setup.use(str(tmp_path / 'late'))
    assert 'has no effect' in caplog.text
    assert not (tmp_path / 'late').exists()
