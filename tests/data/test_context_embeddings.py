from object_detection.data import context_embeddings
from tests import rows


@rows.parametrize(
    ('date', 'expected'),
    [
        ('2020-03-01 10:20:30', '2020-03-01 10:20:30'),
        ('2020-03-01T10:20:30', '2020-03-01 10:20:30'),
        ('2020-03-01 10:20:30.75', '2020-03-01 10:20:30'),
        ('2020-03-01T10:20', '2020-03-01 10:20:00'),
        ('2020-3-1 1:2:3', '2020-03-01 01:02:03'),
        ('2020-03-01T10:20:30+02:00', '2020-03-01 08:20:30'),
        ('2020-03-01T10:20:30Z', '2020-03-01 10:20:30'),
    ],
)
def test_dates_of_any_iso_form(date, expected):
    assert context_embeddings.normal_date(date) == expected
    time = context_embeddings.time_of(date)
    assert time.strftime('%Y-%m-%d %H:%M:%S %z') == f'{expected} +0000'


@rows.parametrize('date', ['', '2020-03-01', '11/03/2020 10:20', '0001-01-01T00:00+05:00'])
def test_texts_that_are_no_times(date):
    assert context_embeddings.time_of(date) is None
    assert context_embeddings.normal_date(date) == date
