import html
import json
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from object_detection.visualization.charts import COLORS, line_chart
from tests import rows

SVG = '{http://www.w3.org/2000/svg}'


def _svg(chart):
    return xml.etree.ElementTree.fromstring(re.search('<svg.*</svg>', chart, re.DOTALL)[0])


def _group(chart, name):
    found = (group for group in _svg(chart).iter(f'{SVG}g') if group.get('id') == name)
    return next(found, None)


def _parts(chart, line=0):
    """The unbroken parts of a line, each a list of points, read from well-formed SVG."""
    path = _group(chart, f'line-{line}').find(f'{SVG}path')
    parts = (path.get('d') if path is not None else '').split('M')[1:]
    return [
        [tuple(map(float, point.split())) for point in part.replace('\n', ' ').split('L')]
        for part in parts
    ]


def _labels(chart):
    return [text.text for text in _svg(chart).iter(f'{SVG}text')]


def _marks(chart, line=0):
    """Where values that are not finite are marked."""
    group = _group(chart, f'lost-{line}')
    return [] if group is None else [float(mark.get('x')) for mark in group.iter(f'{SVG}use')]


def _data(chart):
    return json.loads(html.unescape(re.search('data-plot="(.*?)"', chart)[1]))


def test_the_axis_begins_at_the_left_edge():
    left, right, low, high = _data(line_chart({'a': [(0, 1.0), (100, 2.0)]}, x_label='x'))['frame']
    assert left < 0.06
    assert right > 0.97
    assert (low, high) == pytest.approx((-1, 101))


def test_values_at_the_pointer_are_those_drawn():
    chart = line_chart({'a': [(1, 0.123456), (2, float('nan'))], 'b': []}, x_label='x')
    assert _data(chart)['lines'] == [[[1, 0.1235]], []]


def test_series_of_a_group_have_one_color_and_other_dashes():
    series = {name: [(1, 0.5), (2, 0.75)] for name in ('run a', 'run b box', 'run b mask')}
    chart = line_chart(series, x_label='x', groups={'run a': 0, 'run b box': 1, 'run b mask': 1})
    first, second = COLORS[:2]
    styles = re.findall('border-top: 3px (.*?)"', chart)
    assert styles == [f'solid {first}', f'solid {second}', f'dashed {second}']


def test_values_are_drawn_in_proportion():
    (line,) = _parts(line_chart({'loss': [(0, 0.0), (50, 10.0), (100, 5.0)]}, x_label='step'))
    (x0, y0), (x1, y1), (x2, y2) = line
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert (y0 - y2) * 2 == pytest.approx(y0 - y1, abs=0.2)


def test_ticks_are_round_numbers():
    labels = _labels(line_chart({'loss': [(0, 0.0), (8000, 1.7)]}, x_label='step'))
    steps = [f'{number},000' if number else '0' for number in range(9)]
    assert labels == [*steps, 'step', '0', '0.5', '1', '1.5']


def test_wide_ranges_are_logarithmic():
    chart = line_chart({'loss': [(1, 0.01), (2, 0.1), (3, 1.0)]}, x_label='step')
    ((_, y0), (_, y1), (_, y2)) = _parts(chart)[0]
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert {'0.01', '0.1', '1'} <= set(_labels(chart))


def test_values_that_are_not_finite_are_gaps_with_marks():
    nan, infinity = float('nan'), float('inf')
    points = [(1, 1.0), (2, 2.0), (3, nan), (4, infinity), (5, 2.0), (6, 2.0), (7, -infinity)]
    chart = line_chart({'loss': points}, x_label='step')
    first, second = _parts(chart)
    assert len(first) == len(second) == 2
    unit = first[1][0] - first[0][0]
    places = [(x - first[0][0]) / unit + 1 for x in _marks(chart)]
    assert places == pytest.approx([3, 4, 7], abs=0.01)
    assert 'not a finite number' in chart
    whole = line_chart({'loss': points[:2]}, x_label='step')
    assert _marks(whole) == []
    assert 'finite' not in whole


@rows.parametrize('value', [1e308, -1e308, 5e-324, 1.7e38])
def test_extreme_values_are_drawn_or_marked(value):
    chart = line_chart({'loss': [(1, 1.0), (2, value), (3, 2.0)]}, x_label='step')
    num_points = sum(len(part) for part in _parts(chart))
    assert num_points + len(_marks(chart)) + chart.count('not a finite') >= 3
    assert len(_marks(chart)) == (abs(value) > 1e100)


def test_long_series_are_averaged():
    (line,) = _parts(line_chart({'loss': [(i, i % 2) for i in range(9000)]}, x_label='step'))
    assert {y for _, y in line} == {line[0][1]}
    # Straight lines are drawn from end to end.
    assert len(line) <= 300


def test_one_lost_value_leaves_its_stretch():
    points = [(i, float(i)) for i in range(3000)]
    points[1500] = (1500, float('nan'))
    chart = line_chart({'loss': points}, x_label='step')
    assert len(_parts(chart)) == 1
    assert len(_marks(chart)) == 1


@rows.parametrize('points', [[(5, 0.3)], [(5, 0.0)], [(1, 2.0), (2, 2.0)], [(1, -1.0)]])
def test_few_or_equal_values(points):
    chart = line_chart({'loss': points}, x_label='step')
    if len(points) > 1:
        assert len(_parts(chart)[0]) == 2
        return
    # A line of one point would not show: it is a dot.
    dots = [float(use.get('y')) for use in _svg(chart).iter(f'{SVG}use')]
    assert dots


def test_no_values():
    assert 'No values' in line_chart({}, x_label='step')
    assert 'No finite values' in line_chart({'loss': [(1, float('nan'))]}, x_label='step')


def test_names_are_escaped():
    chart = line_chart({'<b>': [(1, 1.0)]}, x_label='$<b>$')
    assert '<b>' not in chart
    assert '$&lt;b&gt;$' in chart


def test_the_same_values_are_the_same_text():
    points = {'loss': [(1, 1.0), (2, float('nan')), (3, 2.0)]}
    assert line_chart(points, x_label='step') == line_chart(points, x_label='step')


def test_matplotlib_is_imported_to_draw_only():
    program = (
        'import sys, object_detection.visualization.report\n'
        "print([m for m in ('matplotlib', 'tensorflow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert done.stdout.strip() == '[]', done.stderr
