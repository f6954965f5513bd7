import html
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from object_detection.visualization import report
from object_detection.visualization.charts import COLORS, line_chart
from tests import rows


def data(chart):
    return json.loads(html.unescape(re.search('data-plot="(.*?)"', chart)[1]))


def points(chart, line=0):
    return data(chart)['lines'][line]['points']


def test_values_are_those_given_in_four_digits():
    chart = line_chart({'a': [(1, 0.123456), (2, float('nan'))], 'b': []}, x_label='x')
    assert points(chart) == [[1, 0.1235], [2, None]]
    assert points(chart, 1) == []


def test_series_of_a_group_have_one_color_and_other_dashes():
    series = {name: [(1, 0.5), (2, 0.75)] for name in ('run a', 'run b box', 'run b mask')}
    chart = line_chart(series, x_label='x', groups={'run a': 0, 'run b box': 1, 'run b mask': 1})
    lines = data(chart)['lines']
    assert [line['color'] for line in lines] == [COLORS[0], COLORS[1], COLORS[1]]
    assert lines[0]['dash'] == lines[1]['dash'] == []
    assert lines[2]['dash']


def test_given_colors_are_taken():
    series = {'cat': [(0, 0.5)], 'mean': [(0, 0.75)]}
    lines = data(line_chart(series, x_label='x', colors={'cat': '#123456'}))['lines']
    assert [line['color'] for line in lines] == ['#123456', COLORS[1]]


def test_wide_ranges_are_logarithmic_unless_they_must_not_be():
    series = {'loss': [(1, 0.01), (2, 0.1), (3, 1.0)]}
    assert data(line_chart(series, x_label='step'))['log'] is True
    assert data(line_chart(series, x_label='step', is_linear=True))['log'] is False
    assert data(line_chart(series, x_label='recall', is_share=True))['log'] is False
    assert data(line_chart({'loss': [(1, 0.5), (2, 1.0)]}, x_label='step'))['log'] is False


def test_values_that_are_not_finite_are_gaps_and_named():
    nan, infinity = float('nan'), float('inf')
    given = [(1, 1.0), (2, 2.0), (3, nan), (4, infinity), (5, 2.0), (6, 2.0), (7000, -infinity)]
    chart = line_chart({'loss': given}, x_label='step')
    assert [y for _, y in points(chart)] == [1, 2, None, None, 2, 2, None]
    assert 'loss: not finite at step 3, 4, 7,000<' in chart
    assert 'finite' not in line_chart({'loss': given[:2]}, x_label='step')


@rows.parametrize('value', [1e308, -1e308, 5e-324, 1.7e38])
def test_extreme_values_are_drawn_or_named(value):
    chart = line_chart({'loss': [(1, 1.0), (2, value), (3, 2.0)]}, x_label='step')
    is_lost = abs(value) > 1e100
    assert ('not finite at step 2' in chart) == is_lost
    assert (points(chart)[1][1] is None) == is_lost


def test_long_series_are_averaged():
    drawn = points(line_chart({'loss': [(i, i % 2) for i in range(9000)]}, x_label='step'))
    assert {y for _, y in drawn} == {0.5}
    assert len(drawn) <= 300


def test_one_lost_value_leaves_its_stretch():
    given = [(i, float(i)) for i in range(3000)]
    given[1500] = (1500, float('nan'))
    chart = line_chart({'loss': given}, x_label='step')
    assert None not in [y for _, y in points(chart)]
    assert 'not finite at step 1,500' in chart


def test_no_values():
    assert 'No values' in line_chart({}, x_label='step')
    assert 'No finite values' in line_chart({'loss': [(1, float('nan'))]}, x_label='step')


def test_names_are_escaped():
    chart = line_chart({'<b>': [(1, 1.0)]}, x_label='$<b>$')
    assert '<b>' not in chart
    assert '$&lt;b&gt;$' in chart


@pytest.fixture
def drawn(tmp_path, open_page):
    """A page of charts in a browser."""
    series = {
        'odd': {'loss': [(5, 0.3)], 'zero': [(5, 0.0), (9, float('nan')), (11, 1.0)]},
        'equal': {'loss': [(1, 2.0), (2, 2.0)]},
        'negative': {'loss': [(1, -1.0)]},
        'logarithmic': {'loss': [(step, 10.0**-step) for step in range(5)]},
    }
    charts = [line_chart(each, x_label='step') for each in series.values()]
    shares = np.linspace(0, 1, 11)
    curve = {'cat': np.stack([shares, 1 - shares], axis=1)}
    charts.append(line_chart(curve, x_label='recall', is_share=True, mark=0.3))
    path = tmp_path / 'page.html'
    path.write_text(report.page('charts', {}, [report.section('', each) for each in charts]))
    return open_page(path)


def test_charts_are_drawn_and_zoomed_in_a_browser(drawn):
    plots = drawn.locator('.plot')
    assert plots.locator('canvas').count() == plots.count() == 5
    curve = plots.nth(4)
    curve.scroll_into_view_if_needed()
    area = curve.locator('.u-over')
    box = area.bounding_box()
    shown = curve.locator('.u-legend .u-value')
    middle = box['y'] + box['height'] / 2

    def values_at(share):
        drawn.mouse.move(box['x'] + share * box['width'], middle)
        return shown.all_inner_texts()

    assert values_at(0.8) == ['0.8', '0.2']
    values_at(0.25)
    drawn.mouse.down()
    values_at(0.55)
    drawn.mouse.up()
    # The area from 0.25 to 0.55 now fills the width.
    assert values_at(0.5) == ['0.4', '0.6']
    area.dblclick()
    assert values_at(0.8) == ['0.8', '0.2']
    curve.locator('.u-series th').nth(1).click()
    assert 'u-off' in curve.locator('.u-series').nth(1).get_attribute('class')


def test_matplotlib_is_imported_to_draw_only():
    program = (
        'import sys, object_detection.visualization.report\n'
        "print([m for m in ('matplotlib', 'tensorflow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert done.stdout.strip() == '[]', done.stderr
