import json
import tracemalloc

import numpy as np
import pytest

from object_detection.serving import json_bodies
from object_detection.serving.limits import RequestError
from tests import rows

SPACED = '[ [\n[ 1 , 2 , 3 ] , [ 4,5,6 ] ],[[7,8,9],[10,11,12]] ]'


def read(text: str, max_images: int = 2):
    return json_bodies.read(text.encode(), 400, max_images, lambda rows: rows.astype(np.float32))


@rows.parametrize(
    'text',
    [
        '{"instances": [' + SPACED + ']}',
        '{"inputs": [[[[0.5,-2e3,3]]],[[[1,2,3]]]], "signature_name": "a, [[[b"}',
        '{"instances": [{"a": [[[1,2,3]]]} , [[[1]]] ]}',
        '{"instances": [[1,2], "a", null, {"b64": "NaN"}]}',
        # More than is read at a time.
        '[' + ','.join(['[[1,2,3],[4,5,6]]'] * 10_000) + ']',
        '[[' + ','.join(['[1,2,3]'] * 30_000) + ']]',
    ],
)
def test_values_are_those_of_json(text):
    def as_lists(value):
        if isinstance(value, dict):
            return {key: as_lists(each) for key, each in value.items()}
        if isinstance(value, np.ndarray):
            return value.tolist()
        return list(map(as_lists, value)) if isinstance(value, list) else value

    assert as_lists(read(text)) == json.loads(text)


@rows.parametrize(
    ('text', 'message'),
    [
        ('[[[1[,2,3]]]', 'char 4'),
        ('[[[1 2,3]]]', "Expecting ',' delimiter"),
        ('[[[1,2,3]] [[4,5,6]]]', "Expecting ',' delimiter"),
        ('[[[01,2,3]]]', "Expecting ',' delimiter"),
        ('[[[+1,2,3]]]', 'JSON Parse error'),
        ('[[[1,2,3]],[4]]', 'lists of several depths'),
        ('[[[1,2,3]],[[4,5]]]', 'lists of several lengths'),
        ('[[[1,2,3],[4,5]]]', 'lists of several lengths'),
        ('[[[1,2,true]]]', 'pixels of numbers'),
        ('[[[1,2,3', 'a list has no end'),
        ('[[[1,2,3]],NaN]', 'JSON Parse error'),
        ('[[[[1,2,3]]],NaN]', 'NaN and Infinity'),
        ('[' * 60, 'JSON Parse error'),
        ('\xff', 'JSON Parse error'),
    ],
)
def test_other_text_is_refused(text, message):
    with pytest.raises(RequestError, match=message) as caught:
        json_bodies.read(text.encode('latin-1'), 400, 2, lambda rows: rows)
    assert caught.value.status == 400


@rows.parametrize('value', ['{}', '[]', '"aaaa"', 'true', '1', '[[[1,2,3]]]'])
@rows.parametrize('has_numbers', [True, False])
def test_more_values_than_images_need_are_refused_before_they_are_made(value, has_numbers):
    with pytest.raises(RequestError, match='expected at most 4 images') as caught:
        read_within_memory(value, has_numbers)
    assert caught.value.status == 413


def test_reading_pixels_takes_no_object_for_each(monkeypatch):
    monkeypatch.setattr(json_bodies, '_PIECE', 4096)
    read_within_memory('[[1,2,3]]', has_numbers=True)


def read_within_memory(value: str, has_numbers: bool) -> None:
    body = f'[{",".join([value] * 20_000)}]'.encode()

    def as_pixels(rows: np.ndarray) -> np.ndarray:
        return rows.astype(np.uint8)

    tracemalloc.start()
    try:
        json_bodies.read(body, 400, 4, as_pixels if has_numbers else None)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < json_bodies.BYTES_PER_BYTE * len(body)


def test_a_row_that_is_too_long_is_refused():
    text = '[[' + ','.join(['[1,2,3]'] * 140_000) + ']]'
    with pytest.raises(RequestError, match='within 1048576 characters') as caught:
        read(text)
    assert caught.value.status == 413
