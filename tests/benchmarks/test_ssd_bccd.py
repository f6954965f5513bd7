"""The conversion of PASCAL VOC annotations that the benchmark on blood cells makes."""

import importlib
import pathlib

import pytest
from PIL import Image

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'
OBJECT = """<object><name>{}</name><bndbox>
  <xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>"""


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('ssd_bccd')


def test_boxes_count_from_zero_and_empty_ones_are_left_out(benchmark, tmp_path):
    lists = tmp_path / 'ImageSets' / 'Main'
    for folder in (lists, tmp_path / 'JPEGImages', tmp_path / 'Annotations'):
        folder.mkdir(parents=True)
    (lists / 'val.txt').write_text('second\n')
    Image.new('RGB', (20, 10)).save(tmp_path / 'JPEGImages' / 'second.jpg')
    rows = (('RBC', 1, 2, 11, 8), ('RBC', 5, 5, 5, 5), ('WBC', 3, 1, 4, 10))
    text = ''.join(OBJECT.format(*row) for row in rows)
    (tmp_path / 'Annotations' / 'second.xml').write_text(f'<annotation>{text}</annotation>')
    content = benchmark.read_voc(tmp_path, 'val')
    (image,) = content['images']
    assert (image['file_name'], image['width'], image['height']) == ('second.jpg', 20, 10)
    first, last = content['annotations']
    assert first['bbox'] == [0, 1, 10, 6]
    names = {row['id']: row['name'] for row in content['categories']}
    assert [names[row['category_id']] for row in (first, last)] == ['RBC', 'WBC']
    assert first['image_id'] == last['image_id'] == image['id']
