"""What can be said of the container file without building it."""

import pathlib
import re
import shlex
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']


def instructions() -> list[tuple[str, list[str]]]:
    """Returns the instructions with their words; continued lines are joined."""
    text = (ROOT / 'Containerfile').read_text().replace('\\\n', ' ')
    lines = [line for line in text.splitlines() if line and not line.startswith('#')]
    return [(line.split()[0], shlex.split(line)[1:]) for line in lines]


def copied() -> list[str]:
    return [name for word, words in instructions() if word == 'COPY' for name in words[:-1]]


def test_copies_files_that_exist_and_are_not_ignored():
    ignore = (ROOT / '.dockerignore').read_text().splitlines()
    assert '*' in ignore
    for name in copied():
        assert (ROOT / name).exists()
        assert f'!{name}' in ignore


def test_copies_what_the_build_needs():
    assert {'pyproject.toml', 'setup.py', 'object_detection', PROJECT['readme']} <= set(copied())


def test_installs_the_extra_for_gpus_after_its_requirement():
    installed = [words for _, words in instructions() if words[:2] == ['pip', 'install']]
    first, second = [words[3] for words in installed]
    assert [first] == PROJECT['optional-dependencies']['gpu']
    assert second == '/source[gpu]'


def test_the_python_is_one_that_the_package_supports():
    (image,) = [words[0] for word, words in instructions() if word == 'FROM']
    version = re.fullmatch(r'docker\.io/library/python:(3\.\d+)-slim', image)[1]
    low, high = re.fullmatch(r'>=3\.(\d+),<3\.(\d+)', PROJECT['requires-python']).groups()
    assert int(low) <= int(version.split('.')[1]) < int(high)


def test_runs_a_command_of_the_package_as_another_user_than_root():
    found = dict(instructions())
    assert found['USER'] not in (['root'], ['0'])
    assert ''.join(found['ENTRYPOINT']).strip('[]') in PROJECT['scripts']
