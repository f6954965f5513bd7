import io
import json

import pytest

from object_detection.data.coco import json_items
from tests import rows

DOCUMENT = {
    'info': {'n': [1, {}]},
    'empty': [],
    'a "list"': [1.5e-7, -12, 'b\\"]\n\u2028\U0001f600', None, True, [[], [1]], {'x': {'y': []}}],
    'number': 1e300,
}


def _read(content: bytes) -> dict:
    found = {}
    for item in json_items.items(io.BytesIO(content), 'a.json'):
        if item.index == json_items.WHOLE:
            found[item.key] = item.value
        else:
            assert item.index == len(found[item.key])
            found[item.key].append(item.value)
    return found


@rows.parametrize('block', [1, 7, 1 << 20])
@rows.parametrize('encoding', ['utf-8', 'utf-8-sig', 'utf-16'])
def test_entries_come_as_json_reads_them(block, encoding, monkeypatch):
    monkeypatch.setattr(json_items, '_BLOCK', block)
    for options in ({}, {'indent': 2}, {'ensure_ascii': False}):
        content = json.dumps(DOCUMENT, **options).encode(encoding)
        assert _read(content) == DOCUMENT == json.loads(content)


def test_entries_are_read_before_the_rest_of_the_file():
    found = json_items.items(io.BytesIO(b'{"a": [{"b": 1}, 2' + b' ' * (2 << 20) + b'x'), 'a.json')
    assert [next(found) for _ in range(3)] == [('a', -1, []), ('a', 0, {'b': 1}), ('a', 1, 2)]
    with pytest.raises(ValueError, match=r"a.json is not a JSON file: ',' is missing .*2097170\)"):
        next(found)


@rows.parametrize(
    ('content', 'match'),
    [
        (b'', 'Expecting value'),
        (b'{"a": [1,]}', r'Expecting value \(at character 9\)'),
        (b'{"a": 1} 2', 'something follows its object'),
        (b'{"a": 1, "a": 2}', "a new text, is 'a'"),
        (b'{1: 2}', 'a new text, is .1.'),
        (b'{"a": [1', "',' is missing"),
        (b'{"a": ["' + b'b' * 99, 'an entry has more than 64 characters'),
    ],
)
def test_broken_files(content, match, monkeypatch):
    monkeypatch.setattr(json_items, '_MAX_ENTRY', 64)
    monkeypatch.setattr(json_items, '_BLOCK', 4)
    with pytest.raises(ValueError, match=f'a.json is not a JSON file: .*{match}'):
        _read(content)


def test_a_byte_that_is_no_text_is_named_by_its_line(monkeypatch):
    monkeypatch.setattr(json_items, '_BLOCK', 8)
    file = io.BytesIO(b'{"images":\n [1,\n 2, 3,\n "\xe9\xff"]}')
    match = r'^a\.json, line 4: expected text in UTF-8. Received: b.\\xe9'
    with pytest.raises(ValueError, match=match):
        list(json_items.items(file, 'a.json'))
