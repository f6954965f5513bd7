"""Conversions on a distributed engine: a Dask cluster of several processes on this machine."""

import json
import os
import pathlib
import signal
import threading
import time

import numpy as np
import pytest
from PIL import Image

from object_detection.data.formats.coco import CocoSource
from object_detection.dataset_tools.converters import sharded_writer
from object_detection.dataset_tools.converters.conversion import convert

distributed = pytest.importorskip(
    'distributed', reason='the Dask runner needs `pip install "apache-beam[dask]"`'
)

RUNNER = 'apache_beam.runners.dask.dask_runner.DaskRunner'
NUM_IMAGES, NUM_SHARDS = 64, 8


@pytest.fixture
def source(tmp_path_factory) -> CocoSource:
    """Images of noise, which take some milliseconds each; one of them is corrupt."""
    folder = tmp_path_factory.mktemp('data')
    rng = np.random.default_rng(0)
    images, annotations = [], []
    for key in range(1, NUM_IMAGES + 1):
        name = f'{key}.jpg'
        Image.fromarray(rng.integers(0, 255, (480, 640, 3), np.uint8)).save(folder / name)
        images.append({'id': key, 'file_name': name, 'height': 480, 'width': 640})
        annotation = {'id': key, 'image_id': key, 'category_id': 1, 'bbox': [4, 6, 100, 120]}
        annotations.append(annotation | {'area': 12_000, 'iscrowd': 0})
    (folder / '5.jpg').write_bytes((folder / '5.jpg').read_bytes()[:1000])
    document = {'images': images, 'annotations': annotations}
    document |= {'categories': [{'id': 1, 'name': 'cat'}]}
    (folder / 'a.json').write_text(json.dumps(document))
    return CocoSource(str(folder), str(folder / 'a.json'))


@pytest.fixture
def cluster():
    """Two worker processes, which are started again if they end."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster


def _contents(folder: pathlib.Path) -> dict[str, bytes]:
    """All files but the report, which names the job."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if not path.name.endswith('.report.json')
    }


def _convert(source: CocoSource, folder: pathlib.Path, cluster) -> dict:
    address = f'--dask_client_address={cluster.scheduler_address}'
    options = [address, f'--dask_npartitions={NUM_SHARDS}']
    try:
        return convert(source, str(folder / 'a'), NUM_SHARDS, runner=RUNNER, beam_options=options)
    finally:
        # Beam leaves it connected.
        distributed.default_client().close()


@pytest.mark.slow
def test_a_killed_worker_costs_no_record(source, cluster, tmp_path, tmp_path_factory):
    local = tmp_path_factory.mktemp('local')
    convert(source, str(local / 'a'), NUM_SHARDS)
    (pid, _), killed = _pids(cluster), []

    def kill() -> None:
        # While a worker writes a shard, its temporary file exists.
        while not sharded_writer.temporary_files(str(tmp_path / 'a')):
            time.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    report = _convert(source, tmp_path, cluster)
    thread.join()
    assert killed == [pid]
    assert pid not in _pids(cluster)
    assert report['examples'] == NUM_IMAGES - 1
    assert _contents(tmp_path) == _contents(local)


def _pids(cluster) -> list[int]:
    """The processes of the workers."""
    with distributed.Client(cluster) as client:
        return list(client.run(os.getpid).values())
