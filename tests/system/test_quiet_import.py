"""In processes of their own: a module is imported once, and file descriptors are the process's."""

import os
import subprocess
import sys

import pytest

_CALL = 'from object_detection.system import quiet_import; quiet_import.import_tensorflow()'


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


def test_what_the_import_writes_is_kept_back(noisy):
    done = _run(f'{_CALL}; import os; os.write(2, b"after")', noisy)
    assert (done.returncode, done.stderr) == (0, 'after')


def test_a_failing_import_shows_it(noisy):
    done = _run(_CALL, noisy, BROKEN='1')
    assert done.returncode == 1
    assert done.stderr.startswith('oneDNN is on\n')
    assert 'no such library' in done.stderr


def test_whoever_asks_for_messages_gets_them(noisy):
    assert _run(_CALL, noisy, TF_CPP_MIN_LOG_LEVEL='0').stderr == 'oneDNN is on\n'


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
    arguments = ['predict', '--model', str(tmp_path), '--output', str(tmp_path / 'out')]
    image = tmp_path / 'a.png'
    image.write_bytes(b'')
    program = (
        f'from object_detection.cli.main import main\nmain({[*arguments, "--input", str(image)]!r})'
    )
    done = _run(program, tmp_path / 'nothing')
    assert done.returncode == 1
    assert done.stderr.startswith('Error: ')
    assert len(done.stderr.splitlines()) == 1
