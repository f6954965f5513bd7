import re
import xml.etree.ElementTree

import pytest

from object_detection.visualization.line_chart import line_chart


def _lines(chart):
    """The lines' points, read from well-formed SVG."""
    svg = xml.etree.ElementTree.fromstring(re.match('<svg.*</svg>', chart)[0])
    return [
        [tuple(map(float, point.split(','))) for point in line.get('points').split()]
        for line in svg.iter('polyline')
    ]


def _labels(chart):
    return re.findall('<text[^>]*>([^<]*)</text>', chart)


def test_values_are_drawn_in_proportion():
    (line,) = _lines(line_chart({'loss': [(0, 0.0), (50, 10.0), (100, 5.0)]}, x_label='step'))
    (x0, y0), (x1, y1), (x2, y2) = line
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert (y0 - y2) * 2 == pytest.approx(y0 - y1, abs=0.2)


def test_ticks_are_round_numbers():
    labels = _labels(line_chart({'loss': [(0, 0.0), (8000, 1.7)]}, x_label='step'))
    steps = [f'{number},000' if number else '0' for number in range(9)]
    assert labels == ['0', '0.5', '1', '1.5', *steps, 'step']


def test_wide_ranges_are_logarithmic():
    chart = line_chart({'loss': [(1, 0.01), (2, 0.1), (3, 1.0)]}, x_label='step')
    ((_, y0), (_, y1), (_, y2)) = _lines(chart)[0]
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert {'0.01', '0.1', '1'} <= set(_labels(chart))


def test_gaps_at_values_that_are_not_finite():
    nan, infinity = float('nan'), float('inf')
    chart = line_chart(
        {'loss': [(1, 1.0), (2, nan), (3, infinity), (4, 2.0), (5, 2.0)]}, x_label='step'
    )
    assert [len(set(line)) for line in _lines(chart)] == [1, 2]


def test_long_series_are_averaged():
    (line,) = _lines(line_chart({'loss': [(i, i % 2) for i in range(9000)]}, x_label='step'))
    assert len(line) == 300
    assert len({y for _, y in line}) == 1


@pytest.mark.parametrize('points', [[(5, 0.3)], [(5, 0.0)], [(1, 2.0), (2, 2.0)], [(1, -1.0)]])
def test_few_or_equal_values(points):
    (line,) = _lines(line_chart({'loss': points}, x_label='step'))
    assert all(0 < y < 320 for _, y in line)


def test_no_values():
    assert 'No values' in line_chart({}, x_label='step')
    assert 'No values' in line_chart({'loss': [(1, float('nan'))]}, x_label='step')


def test_names_are_escaped():
    assert '<b>' not in line_chart({'<b>': [(1, 1.0)]}, x_label='step')
