"""The site of the documents lists every page, and its reference says what the .proto files say.

`make docs` builds the site, and every warning ends that build.
"""

import importlib
import pathlib
import re
import shutil

import pytest

from tests import rows

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / 'docs'
SCHEMA = """
syntax = "proto2";
package object_detection.protos;
import "object_detection/protos/options.proto";

// A config. It holds
// everything.
message TrainEvalPipelineConfig {
  // The part <first> | of two_parts.
  optional Part part = 1;
  optional int32 steps = 1000 [default = 7];  // How many.
  map<string, Part> named = 3;
  repeated string names = 4;
  oneof choice {
    // Used by `a_b`.
    bool yes = 5;
    float ratio = 6 [deprecated = true, (range) = {above: 0 max: 1}, (ignored) = "it is a_b"];
  }
  reserved 8;
}

message Part {
  // Nested.
  enum Kind {
    // None of them.
    NONE = 0;
    SOME = 3;
  }
  optional Kind kind = 1 [default = SOME];
  optional Part inner = 2;
  message Empty {}
  optional Empty empty = 3;
}
"""


@pytest.fixture(scope='module')
def site():
    for name in ('mkdocs', 'grpc_tools'):
        pytest.importorskip(name, reason='needs the extra [docs]')
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS / 'generator')
        yield importlib.import_module('site_pages')


@pytest.fixture(scope='module')
def reference(site):
    return importlib.import_module('config_reference')


def test_nav_lists_every_page_and_nothing_else(site):
    nav = (ROOT / 'mkdocs.yml').read_text().split('\nnav:\n')[1]
    listed = re.findall(r'([\w/]+\.md)$', nav, re.MULTILINE)
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob('*.md')}
    pages = {page for page in pages if not page.startswith('generator/')}
    protos = (ROOT / 'object_detection' / 'protos').glob('*.proto')
    stems = {path.stem for path in protos} - {'options'} | {'index'}
    pages |= {f'reference/{stem}.md' for stem in stems}
    assert sorted(listed) == sorted(pages | set(site.PAGES.values()))


@rows.parametrize(
    ('path', 'text', 'expected'),
    [
        ('README.md', '[a](docs/data.md#b) [c](LICENSE)', '[a](data.md#b) [c](LICENSE.txt)'),
        (
            'docs/data.md',
            '[a](../README.md) ![b](images/c.png)',
            '[a](index.md) ![b](images/c.png)',
        ),
        ('docs/data.md', '[a](../object_detection/protos/ssd.proto)', '[a](reference/ssd.md)'),
        ('docs/howto/loss.md', '[a](../data.md) [b](#c)', '[a](../data.md) [b](#c)'),
        ('docs/howto/loss.md', '[a](../../CHANGELOG.md)', '[a](../CHANGELOG.md)'),
        ('docs/data.md', '[a](https://b.c/d.md)', '[a](https://b.c/d.md)'),
    ],
)
def test_links_lead_to_pages_of_the_site(site, path, text, expected):
    assert site.linked(text, path) == expected


@pytest.fixture(scope='module')
def page(reference, tmp_path_factory):
    root = tmp_path_factory.mktemp('schema')
    folder = root / reference.PROTOS
    folder.mkdir(parents=True)
    (folder / 'small.proto').write_text(SCHEMA)
    shutil.copy(ROOT / reference.OPTIONS, folder)
    pages = reference.pages(root)
    assert sorted(pages) == ['index.md', 'small.md']
    return pages['small.md']


@rows.parametrize(
    'line',
    [
        'A config. It holds everything.',
        '| `part` | [Part](small.md#Part) | absent | 1 | The part &lt;first> \\| of two\\_parts. |',
        '| `steps` | int32 | `7` | 1000 | How many. |',
        '| `named` | map from string to [Part](small.md#Part) | empty | 3 |  |',
        '| `names` | repeated string | empty | 4 |  |',
        '| `yes` | bool | `false` | 5 | Used by `a_b`. (One of `choice`.) |',
        '| `ratio` | float, above 0, up to 1 | `0` | 6 | *Deprecated.*  No effect: it is a\\_b. '
        '(One of `choice`.) |',
        '| `kind` | [Part.Kind](small.md#Part.Kind) | `SOME` | 1 |  |',
        '| `NONE` | 0 | None of them. |',
        '| `SOME` | 3 |  |',
        'In a `pipeline.config`: `part.kind`',
        '## Part.Empty { #Part.Empty }',
        'It has no fields.',
    ],
)
def test_reference_of_a_schema(page, line):
    assert line in page.splitlines()


def test_text_protos_are_coloured(site):
    from pygments import lexers, token

    tokens = lexers.get_lexer_by_name('textproto').get_tokens('a { b: "c" d: [E, 1] } # f')
    kinds = {value: str(kind) for kind, value in tokens}
    assert [kinds[value] for value in ('a', 'b', '"c"', 'E', '1', '# f')] == [
        str(kind)
        for kind in (
            token.Name.Tag,
            token.Name.Attribute,
            token.String,
            token.Keyword.Constant,
            token.Number,
            token.Comment.Single,
        )
    ]


def test_a_file_that_is_no_schema_is_an_error(reference, tmp_path):
    folder = tmp_path / reference.PROTOS
    folder.mkdir(parents=True)
    (folder / 'small.proto').write_text('message {')
    with pytest.raises(ValueError, match='protoc refuses'):
        reference.pages(tmp_path)
