"""The set-up before TensorFlow is imported.

Most of it in processes of their own: a module is imported once, and file descriptors and the C
library are those of a process. `test_gradients` shows that compiled programs are found again.
"""

import os
import subprocess
import sys

import pytest

from object_detection.errors import ConfigError
from object_detection.system import tensorflow_setup
from tests import rows

VARIABLE = 'TF_XLA_FLAGS'
_CALL = 'from object_detection.system import tensorflow_setup; tensorflow_setup.import_tensorflow()'
# Faults of 6 blocks of 50 MB, one after the other, behind a first one.
_PROGRAM = """
import resource
from object_detection.system import tensorflow_setup
tensorflow_setup.keep_freed_memory()
bytearray(50 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(6):
    bytearray(b'1') * (50 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_PAGES = (50 << 20) // os.sysconf('SC_PAGE_SIZE')


@pytest.fixture
def before_tensorflow(monkeypatch):
    monkeypatch.delitem(sys.modules, 'tensorflow', raising=False)
    monkeypatch.setenv(VARIABLE, '')


def test_the_folder_is_made_and_added_to_what_there_is(before_tensorflow, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, '--tf_xla_clustering_debug')
    tensorflow_setup.use_compilation_cache(str(tmp_path / 'a' / 'b'))
    assert (tmp_path / 'a' / 'b').is_dir()
    flags = tensorflow_setup.os.environ[VARIABLE].split()
    wanted = f'--tf_xla_persistent_cache_directory={tmp_path}/a/b'
    assert flags == ['--tf_xla_clustering_debug', wanted]


def test_a_folder_that_cannot_be_is_an_error(before_tensorflow, tmp_path, monkeypatch):
    (tmp_path / 'file').write_text('')
    with pytest.raises(ConfigError, match='--compilation_cache: expected a folder'):
        tensorflow_setup.use_compilation_cache(str(tmp_path / 'file' / 'below'))
    with pytest.raises(ConfigError, match='without spaces'):
        tensorflow_setup.use_compilation_cache(str(tmp_path / 'a b'))
    monkeypatch.setenv(VARIABLE, '--tf_xla_persistent_cache_directory=/elsewhere')
    with pytest.raises(ConfigError, match='which says the same'):
        tensorflow_setup.use_compilation_cache(str(tmp_path))


def test_it_is_too_late_once_tensorflow_is_there(before_tensorflow, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, 'tensorflow', object())
    tensorflow_setup.use_compilation_cache(str(tmp_path / 'late'))
    assert 'has no effect' in caplog.text
    assert not (tmp_path / 'late').exists()


def test_weights_are_not_said_to_be_constant_in_a_process_that_has_tensorflow(monkeypatch):
    name = 'TF_ONEDNN_ASSUME_FROZEN_WEIGHTS'
    monkeypatch.setenv(name, '0')
    monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, 'tensorflow', object())
    tensorflow_setup.assume_constant_weights()
    assert name not in os.environ
    monkeypatch.delitem(sys.modules, 'tensorflow')
    tensorflow_setup.assume_constant_weights()
    assert os.environ[name] == '1'


def _run(program: str, folder, **environment: str) -> subprocess.CompletedProcess:
    path = os.pathsep.join([str(folder), *sys.path])
    return subprocess.run(
        [sys.executable, '-c', program],
        env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3', 'PYTHONPATH': path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def noisy(tmp_path):
    """A folder with a `tensorflow` that writes past Python, as the real one's C++ code does."""
    (tmp_path / 'tensorflow.py').write_text(
        'import contextlib, os\n'
        'with contextlib.suppress(OSError): os.write(2, b"oneDNN is on\\n")\n'
        'if "BROKEN" in os.environ: raise ImportError("no such library")\n'
    )
    return tmp_path


def test_what_the_import_writes_is_hidden(noisy):
    done = _run(f'{_CALL}; import os; os.write(2, b"after")', noisy)
    assert (done.returncode, done.stderr) == (0, 'after')


def test_a_failing_import_shows_it(noisy):
    done = _run(_CALL, noisy, BROKEN='1')
    assert done.returncode == 1
    assert done.stderr.startswith('oneDNN is on\n')
    assert 'no such library' in done.stderr


def test_messages_are_shown_on_request(noisy):
    assert _run(_CALL, noisy, TF_CPP_MIN_LOG_LEVEL='0').stderr == 'oneDNN is on\n'


def test_matplotlib_is_absent_during_the_import_alone(noisy):
    (noisy / 'tensorflow.py').write_text(
        'try:\n    import matplotlib\nexcept ImportError:\n    matplotlib = None\n'
    )
    program = (
        'import tensorflow, matplotlib\nfrom object_detection.benchmarking import picture\n'
        'from matplotlib.figure import Figure\nprint(tensorflow.matplotlib is None)'
    )
    quick = _CALL.replace('()', '(keras_pictures=False)')
    assert _run(f'{quick}\n{program}', noisy).stdout == 'True\n'
    assert _run(f'{_CALL}\n{program}', noisy).stdout == 'False\n'


def test_works_without_stderr(noisy):
    for start in ('import os; os.close(2)', 'import sys; sys.stderr = None'):
        assert _run(f'{start}; {_CALL}', noisy).returncode == 0


def test_checking_a_config_imports_no_tensorflow(noisy):
    program = (
        'import sys\nfrom object_detection.cli.main import main\n'
        'main(["config", "check", "absent.config"], standalone_mode=False)'
    )
    done = _run(program, noisy)
    assert 'absent.config: there is no such file.' in done.stderr
    assert 'oneDNN' not in done.stderr


def test_the_commands_are_quiet(tmp_path):
    arguments = ['predict', '--quiet', '--model', str(tmp_path), '--output', str(tmp_path / 'out')]
    image = tmp_path / 'a.png'
    image.write_bytes(b'')
    program = (
        f'from object_detection.cli.main import main\nmain({[*arguments, "--input", str(image)]!r})'
    )
    done = _run(program, tmp_path / 'nothing')
    assert done.returncode == 1
    assert done.stderr.startswith('Error: ')
    assert len(done.stderr.splitlines()) == 1


def _faults(**environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(('MALLOC_', 'GLIBC_', 'LD_'))}
    command = [sys.executable, '-c', _PROGRAM]
    return int(subprocess.check_output(command, env=kept | environment, text=True))


def test_freed_memory_is_used_again():
    assert _faults() < 2 * _PAGES


@rows.parametrize(('name', 'value'), [('MALLOC_ARENA_MAX', '2'), ('LD_PRELOAD', '')])
def test_who_sets_something_keeps_it(name, value):
    assert _faults(**{name: value}) > 4 * _PAGES
