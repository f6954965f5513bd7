import pytest

from object_detection.errors import DataError
from object_detection.system import texts
from tests import rows


@rows.parametrize(
    'encoding', ['utf-8', 'utf-8-sig', 'utf-16', 'utf-32', 'utf-16-be-sig', 'utf-32-be-sig']
)
def test_the_mark_says_the_encoding_and_is_no_part_of_the_text(encoding):
    mark = '\ufeff' if encoding.endswith('be-sig') else ''
    content = (mark + '0 ü\n').encode(encoding.removesuffix('-sig') if mark else encoding)
    assert texts.decode(content, 'a.txt') == '0 ü\n'
    assert texts.decode(b'', 'a.txt') == ''


def test_other_encodings_are_errors_that_name_the_line():
    with pytest.raises(DataError, match=r"^a\.txt, line 2: expected text in UTF-8.*b'\\xfcric'"):
        texts.decode('Bern\nZürich\n'.encode('latin-1'), 'a.txt')


def test_invisible_characters_are_named():
    assert texts.visible('a\u200bb\t') == 'a<U+200B ZERO WIDTH SPACE>b<U+0009>'
    found = texts.first_invisible('a: 1\n\tb:\u00a02')
    assert found == 'line 2, column 4 has the invisible character <U+00A0 NO-BREAK SPACE>'
    assert texts.first_invisible('# für ß 猫\n\ta') == ''


def test_columns_of_a_table_are_aligned():
    rows = [['', 'AP', 'AR10'], ['a cat', '0.5', '-']]
    assert texts.aligned(rows, left=1) == ['        AP  AR10', 'a cat  0.5     -']
    assert texts.aligned([['a', ''], ['b', 'cc']], least=3) == ['  a', '  b   cc']
