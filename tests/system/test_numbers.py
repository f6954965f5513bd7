from object_detection.system.numbers import significant
from tests import rows


@rows.parametrize(
    ('value', 'text'),
    [
        (0.012345, '0.0123'),
        (12.345, '12.3'),
        (999.4, '999'),
        (999.6, '1,000'),
        (3350.0, '3,350'),
        (-1234567.8, '-1,234,568'),
        (1e-7, '1e-07'),
        (0, '0'),
        (float('nan'), 'nan'),
    ],
)
def test_numbers_are_written_in_full_from_a_thousand_on(value, text):
    assert significant(value) == text


def test_digits_and_signs():
    assert significant(12345.6, 4) == '12,346'
    assert significant(1234.6, 4, '+') == '+1,235'
    assert significant(12345.6, 4, '+') == '+12,346'
