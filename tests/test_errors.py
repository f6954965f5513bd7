"""Tests of the errors that a user can cause."""

import inspect

import pytest
import tensorflow as tf

from object_detection import errors
from tests import rows

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if kind.__module__ == errors.__name__ and issubclass(kind, Exception)
]


@rows.parametrize('kind', KINDS)
def test_every_kind_is_a_user_error_and_a_value_error(kind):
    assert issubclass(kind, errors.UserError)
    assert issubclass(kind, ValueError)


@rows.parametrize('kind', [errors.UserError, errors.ConfigError, errors.DataError])
def test_converted_code_keeps_the_class(kind):
    def fails(number):
        if number > 0:
            raise kind('expected 0')
        return number

    with pytest.raises(kind, match='expected 0'):
        tf.function(lambda: fails(1))()
    with pytest.raises(kind, match='expected 0'):
        tf.data.Dataset.range(1).map(lambda number: fails(1))


def test_lists_are_shortened_to_their_first_items():
    assert errors.format_list('abc') == 'a, b, c'
    assert errors.format_list('abcdefg') == 'a, b, c, d, e, and 2 more'
    assert errors.format_list(range(4), 2, '; ') == '0; 1; and 2 more'
    assert errors.format_list([]) == ''


def test_errors_of_parts_are_collected():
    problems = errors.Problems()
    problems.raise_if_any()
    only = errors.missing('labels')
    with problems:
        raise only
    with pytest.raises(errors.MissingFileError) as raised:
        problems.raise_if_any()
    assert raised.value is only
    with problems, errors.within('model'):
        errors.raise_if_any(['a: no.', 'b: no.'])
    for _ in range(2):
        with problems:
            raise ValueError('c: no.')
    with pytest.raises(errors.ConfigError) as raised:
        problems.raise_if_any()
    assert raised.value.problems == [str(only), 'model: a: no.', 'model: b: no.', 'c: no.']


def test_defects_are_not_collected():
    problems = errors.Problems()
    with pytest.raises(KeyError), problems, errors.within('model'):
        raise KeyError('name')
