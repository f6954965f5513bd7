"""The benchmark of serving: its clients and its rows; times are not tested."""

import importlib
import io
import pathlib
import threading

import numpy as np
import pytest
from google.protobuf import text_format
from PIL import Image

from tests.tiny_models import tiny_pipeline

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'


@pytest.fixture
def serving(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('serving')


def test_clients_share_the_requests_and_run_at_once(serving):
    sent, all_there = [], threading.Barrier(3, timeout=20)

    def send(index):
        if index < 3:
            all_there.wait()  # Passes only with three requests at the same time.
        sent.append(index)

    latencies = serving.run_clients(send, 3, 10)
    assert sorted(sent) == list(range(10))
    assert len(latencies) == 10


def test_the_error_of_a_request_is_raised(serving):
    def send(index):
        if index == 4:
            raise OSError('broken')

    with pytest.raises(OSError, match='broken'):
        serving.run_clients(send, 2, 1000)


def test_photos_without_files_are_random(serving, tmp_path):
    photos = serving.read_photos('')
    assert len({bytes(photo) for photo in photos}) == 8
    assert Image.open(io.BytesIO(photos[0])).size == (640, 480)
    (tmp_path / 'a.jpg').write_bytes(photos[1])
    assert serving.read_photos(str(tmp_path / '*.jpg')) == [photos[1]]


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['random', 'real'])
def test_an_export_is_served(serving, tmp_path, kind):
    if kind == 'real' and not serving.glob.glob(serving._PHOTOS):
        pytest.skip('needs the photographs of ../shared/data/coco_permissive')
    config = tmp_path / 'tiny.config'
    config.write_text(text_format.MessageToString(tiny_pipeline()))
    job = {'config': str(config), 'settings': [], 'precision': 'float32'}
    serving._export(job | {'output': str(tmp_path / 'exported')})
    images = serving._PHOTOS if kind == 'real' else ''
    row = serving.serve(serving.Point(str(tmp_path / 'exported'), 2, 3, 4, images))
    assert row['requests'] == 4
    assert row['p50'] <= row['p99'] < row['first']
    assert row['precision'] == 'float32'
    assert np.isfinite(row['images_per_second'])
    assert row['images_per_second'] > 0
