import dataclasses
import hashlib
import io
import json
import os
import tarfile

import pytest
from click.testing import CliRunner

from object_detection.cli.weights import command
from object_detection.dataset_tools.downloads import known_files
from tests.dataset_tools.downloads import file_server

CONTENT = b'\x89HDF' + bytes(1000)


@pytest.fixture
def server(monkeypatch):
    file_server.without_proxies(monkeypatch)
    table = dict(known_files.WEIGHTS)
    with file_server.serving() as server:
        for name in ('resnet50', 'resnet101', 'mobilenet', 'mobilenet_v3_small'):
            file = table[name].file
            server.files[f'/{file.path}'] = CONTENT
            checksum = file.checksum and hashlib.md5(CONTENT).hexdigest()
            file = dataclasses.replace(file, checksum=checksum)
            table[name] = dataclasses.replace(table[name], file=file)
        monkeypatch.setattr(known_files, 'WEIGHTS', table)
        yield server


def run(server, tmp_path, *names: str):
    options = ['--output', str(tmp_path), '--base_url', server.url]
    return CliRunner().invoke(command, ['download', *names, *options])


def test_prints_the_path_and_the_line_of_the_config(server, tmp_path):
    result = run(server, tmp_path, 'resnet50', 'resnet101')
    assert result.exit_code == 0, result.output
    for depth in (50, 101):
        name = f'resnet{depth}_weights_tf_dim_ordering_tf_kernels_notop.h5'
        path = os.path.join(tmp_path, name)
        assert (tmp_path / name).read_bytes() == CONTENT
        assert f'fine_tune_checkpoint: "{path}" fine_tune_checkpoint_type: "classification"' in (
            result.output
        )
        assert f'faster_rcnn_resnet{depth}_fpn_keras' in result.output


def test_the_paths_as_json(server, tmp_path):
    result = run(server, tmp_path, 'resnet50', '--json')
    assert json.loads(result.stdout) == {
        'resnet50': str(tmp_path / 'resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5')
    }


def test_says_where_no_checksum_is_published_and_which_backbone_it_is(server, tmp_path):
    result = run(server, tmp_path, 'mobilenet')
    assert 'no checksum is published' in result.output
    result = run(server, tmp_path, 'keras:MobileNetV3Small')
    assert "for backbone: 'keras:MobileNetV3Small':" in result.output


def test_an_unknown_name_is_reported_before_anything_is_downloaded(server, tmp_path):
    result = run(server, tmp_path, 'resnet50', 'resnet7')
    assert result.exit_code == 2
    assert 'Received: resnet7' in result.output
    assert not server.requests


def test_the_list_names_all_and_who_has_them():
    result = CliRunner().invoke(command, ['list'])
    assert result.exit_code == 0
    assert all(name in result.output for name in known_files.WEIGHTS)
    assert all(name in result.output for name in known_files.ZOO)
    assert '4d473c1dd8becc155b73f8504c6f6626' in result.output


def test_a_detector_is_unpacked_once(server, tmp_path):
    name = 'ssd_mobilenet_v2_320x320_coco17_tpu-8'
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode='w:gz') as archive:
        for member in ('pipeline.config', 'checkpoint/ckpt-0.index'):
            info = tarfile.TarInfo(f'{name}/{member}')
            info.size = 4
            archive.addfile(info, io.BytesIO(b'some'))
    server.files[f'/{known_files.ZOO[name].path}'] = packed.getvalue()
    for _ in range(2):
        result = run(server, tmp_path, name)
        assert result.exit_code == 0, result.output
        assert f'--weights {tmp_path}/{name}' in result.output
    assert (tmp_path / name / 'pipeline.config').read_bytes() == b'some'
    assert not (tmp_path / f'{name}.tar.gz').exists()
    assert len(server.requests) == 1
