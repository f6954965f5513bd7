"""The table, the page and the picture of a benchmark."""

import io
import json

import pytest
from PIL import Image

from object_detection.benchmarking import picture, report

PARTS = [
    {'part': 'backbone', 'seconds': 0.4},
    {'part': 'backbone gradient', 'seconds': 0.2},
    {'part': 'detections', 'seconds': 0.1},
    {'part': 'postprocess', 'seconds': 0.2},
    {'part': '(compiled by XLA)', 'seconds': 0.1},
]


def row(precision='float32', **others):
    return {
        'precision': precision,
        'batch_size': 2,
        'steps': 5,
        **{'mean': 0.2, 'p50': 0.19, 'p90': 0.25, 'p99': 0.3, 'images_per_second': 10.0},
        **{'matmul_rate': 100.0, 'peak_memory': 800.0, 'first': 9.0, 'image_size': [64, 96]},
        **{'devices': ['/device:CPU:0'], 'replicas': 1, 'detections': 7.5},
        **others,
    }


@pytest.fixture
def document():
    known = {'gigaflop': 10.0, 'rate': 52.6, 'share_of_matmul': 0.526, 'parts': PARTS}
    known |= {'convolutions': 0.1, 'share_of_convolutions': 0.5, 'not_counted': 1}
    failed = {'precision': 'float32', 'batch_size': 64, 'error': 'the process was killed.'}
    machine = {'cpu': 'A <CPU>', 'cores': 2.0, 'instructions': ['avx2'], 'memory_gb': 8.0}
    return {
        **{'source': 'a.config', 'mode': 'inference', 'machine': machine | {'tensorflow': '2'}},
        **{'weights': 'random', 'images': 'random', 'threads': 0, 'settings': []},
        'rows': [row(**known), row('bfloat16'), failed],
    }


def test_lines_have_each_measurement_and_what_is_known_of_it(document):
    lines = report.lines(document)
    (heading,) = [i for i, line in enumerate(lines) if line.split()[:2] == ['precision', 'batch']]
    assert 'of convolutions' in lines[heading]
    assert 'GPU' not in lines[heading]
    assert lines[heading + 1].split()[:5] == ['float32', '2', '200.0', '190.0', '250.0']
    assert lines[heading + 2].split()[0] == 'bfloat16'
    text = '\n'.join(lines)
    assert '64 x 96' in text
    assert 'float32, batch 2: backbone 40%, post-processing 30%, backbone gradient 20%' in text
    assert 'float32, batch 64: the process was killed.' in text


def test_a_busy_machine_is_noted(document):
    document['rows'][0]['p90'] = document['rows'][1]['p90'] = 0.2
    quiet = '\n'.join(report.lines(document))
    assert 'busy' not in quiet
    assert 'above 1' not in quiet
    document['machine']['load'] = 9.0
    document['rows'][0] |= {'p90': 0.38, 'share_of_matmul': 1.83}
    text = '\n'.join(report.lines(document))
    assert 'a load of 9.0 with 2 cores' in text
    assert '(p90 / p50 above 1.3: float32, batch 2: 2.0)' in text
    assert 'A share above 1 is no speed of the model' in text


def test_colors_of_parts_are_distinct():
    colors = [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in picture._COLORS]
    for i, one in enumerate(colors):
        for other in colors[:i]:
            assert sum(abs(a - b) for a, b in zip(one, other, strict=True)) > 90


def test_the_table_fits_the_page(document, tmp_path, open_page):
    document['rows'][0]['device_memory'] = 12000.0
    report.write_page(document, str(tmp_path))
    hidden = "(t => t.scrollWidth - t.clientWidth)(document.querySelector('.tables'))"
    assert open_page(tmp_path / report.PAGE).evaluate(hidden) <= 0


def test_shares_add_up_and_unknown_parts_are_other(document):
    shares = picture.shares(document['rows'][0])
    assert sum(shares.values()) == pytest.approx(1)
    assert shares['other'] == pytest.approx(0.1)
    assert picture.shares(document['rows'][1]) == {}


def test_page_and_json_are_written(document, tmp_path):
    report.write_page(document, str(tmp_path / 'page'))
    page = (tmp_path / 'page' / report.PAGE).read_text()
    assert 'A &lt;CPU&gt;' in page
    assert 'data:image/png' in page
    drawn = Image.open(io.BytesIO((tmp_path / 'page' / report.PICTURE).read_bytes()))
    pixels = {color for _, color in drawn.convert('RGB').getcolors(drawn.width * drawn.height)}
    assert {(37, 99, 235), (220, 38, 38)} <= pixels  # the backbone and post-processing
    report.write_json(document, str(tmp_path / 'new' / 'b.json'))
    assert json.loads((tmp_path / 'new' / 'b.json').read_text()) == document
    assert sorted(path.name for path in tmp_path.rglob('*.tmp')) == []


def test_all_measurements_may_have_failed(document, tmp_path):
    document['rows'] = document['rows'][2:]
    assert 'killed' in '\n'.join(report.lines(document))
    report.write_page(document, str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [report.PAGE]
