"""Hooks of mkdocs: pages that are made for the site and not kept in docs/.

The README is the first page; other files of the repository's root and the lab notes of
the benchmarks are pages as well; the reference of the config fields comes from the .proto files.
"""

import pathlib
import re

import config_reference
import textproto
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The pages of the site that are files outside of docs/.
PAGES = {
    'README.md': 'index.md',
    'CONTRIBUTING.md': 'CONTRIBUTING.md',
    'CHANGELOG.md': 'CHANGELOG.md',
    'benchmarks/NOTES.md': 'NOTES.md',
}
LINK = re.compile(r'(\]\()([^)#:]+)((?:#[^)]*)?\))')
SCHEMA = re.compile(rf'{config_reference.PROTOS}/(\w+)\.proto')


textproto.register()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/."""
    for path, page in PAGES.items():
        # The notes of benchmarks are not in every copy of the repository.
        if not (ROOT / path).exists():
            continue
        text = linked((ROOT / path).read_text(), path)
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, 'LICENSE.txt', abs_src_path=str(ROOT / 'LICENSE')))
    for name, text in config_reference.pages(ROOT).items():
        files.append(File.generated(config, f'reference/{name}', content=text))
    return files


def on_page_markdown(markdown: str, *, page, **_) -> str:
    """Repairs the links of pages in docs/ to files outside of it."""
    path = page.file.src_uri
    return markdown if page.file.generated_by else linked(markdown, f'docs/{path}')


def linked(markdown: str, path: str) -> str:
    """Returns a file of the repository with links as the site needs them.

    Args:
      markdown: the text of the file.
      path: the file, relative to the root of the repository.
    """
    folder = (ROOT / path).parent
    page = pathlib.PurePosixPath(PAGES.get(path) or path.removeprefix('docs/'))

    def replaced(match: re.Match) -> str:
        target = (folder / match[2]).resolve()
        if not target.is_relative_to(ROOT):
            return match[0]
        place = SCHEMA.sub(r'reference/\1.md', target.relative_to(ROOT).as_posix())
        place = PAGES.get(place) or place.removeprefix('docs/').replace('LICENSE', 'LICENSE.txt')
        return match[1] + '../' * (len(page.parts) - 1) + place + match[3]

    return LINK.sub(replaced, markdown)
