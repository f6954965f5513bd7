"""Documents name files, and names in them, that exist."""

import pathlib
import re

from tests import rows

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = (ROOT, ROOT / 'object_detection', ROOT / 'tests')
DOCUMENTS = [
    *sorted((ROOT / 'docs').glob('*.md')),
    *sorted((ROOT / 'docs' / 'howto').glob('*.md')),
    ROOT / 'README.md',
    ROOT / 'CONTRIBUTING.md',
    ROOT / 'benchmarks' / 'NOTES.md',
]
# A path within backticks, relative to one of FOLDERS.
FILE = re.compile(r'`([\w./-]+/[\w-]+\.(?:py|proto))`')
FOLDER = re.compile(r'`([a-z_]+/(?:[a-z_]+/)*)`')
# The path of a file of the package, and a name in it.
NAME = re.compile(r'`([\w/]+\.py)` `([\w.]+)`')
# The same, as 'a name in a file'.
NAME_IN = re.compile(r'`([\w.]+)`\s+in\s+`([\w/]+\.py)`')
LINK = re.compile(r'\]\((?!http)([\w./-]+\.\w+)')
GUIDES_TO_THE_CODE = ('architecture.md', 'CONTRIBUTING.md')


def name_of(path):
    return path.name


@rows.parametrize('document', DOCUMENTS)
def test_paths_in_documents_exist(document):
    text = document.read_text()
    paths = set(FILE.findall(text))
    if document.name in GUIDES_TO_THE_CODE:
        paths |= set(FOLDER.findall(text))
    missing = {path for path in paths if not any((folder / path).exists() for folder in FOLDERS)}
    missing |= {link for link in LINK.findall(text) if not (document.parent / link).exists()}
    assert not missing


def test_names_after_paths_are_defined_there():
    text = (ROOT / 'docs' / 'architecture.md').read_text()
    found = NAME.findall(text) + [(path, name) for name, path in NAME_IN.findall(text)]
    assert len(found) >= 20
    missing = []
    for path, name in found:
        text = (ROOT / 'object_detection' / path).read_text()
        for part in name.split('.'):
            if not re.search(rf'^\s*(?:def|class) {part}\b|^{part}\b.* = ', text, re.MULTILINE):
                missing.append(f'{path}: {name}')
    assert not missing


def test_no_text_installs_this_package_by_name():
    # No package index has it, so whoever registers the name would run code on users' machines.
    sources = (path for path in (ROOT / 'object_detection').rglob('*.py'))
    texts = {path: path.read_text() for path in (*DOCUMENTS, ROOT / 'Containerfile', *sources)}
    by_name = re.compile(r'pip install[^\n]*object-detection-toolkit')
    assert not [path.name for path, text in texts.items() if by_name.search(text)]
