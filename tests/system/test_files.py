import pathlib

import pytest

from object_detection.errors import ConfigError
from object_detection.system import files


def test_a_file_is_replaced_whole_and_its_folder_is_made(tmp_path):
    path = tmp_path / 'new' / 'text.txt'
    files.write_text(path, 'grün')
    files.write_text(str(path), 'blau')
    assert path.read_text(encoding='utf-8') == 'blau'
    assert [entry.name for entry in path.parent.iterdir()] == ['text.txt']


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / 'text.txt'
    files.write_text(path, 'old')

    def fail(*_):
        raise OSError(28, 'disk full')

    monkeypatch.setattr('os.replace', fail)
    with pytest.raises(OSError, match=r'disk full: .*text\.txt'):
        files.write_text(path, 'new')
    assert path.read_text() == 'old'
    assert [entry.name for entry in tmp_path.iterdir()] == ['text.txt']


def test_only_folders_of_this_machine_are_local():
    assert files.check_is_local(pathlib.Path('/models/a'), 'model_dir') == '/models/a'
    with pytest.raises(ConfigError, match=r'^model_dir: expected a folder .* Received: gs://b/m'):
        files.check_is_local('gs://b/m', 'model_dir')
