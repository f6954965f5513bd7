import dataclasses
import hashlib
import io
import json
import os
import tarfile

import pytest
from click.testing import CliRunner

from object_detection.cli.weights import command
from object_detection.dataset_tools.downloads import known_files, published_detectors
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
    assert all(name in result.output for name in published_detectors.DETECTORS)
    assert '4d473c1dd8becc155b73f8504c6f6626' in result.output


def test_a_detector_is_unpacked_once(server, tmp_path):
    name = 'ssd_mobilenet_v2_320x320_coco17_tpu-8'
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode='w:gz') as archive:
        for member in ('pipeline.config', 'checkpoint/ckpt-0.index'):
            info = tarfile.TarInfo(f'{name}/{member}')
            info.size = 4
            archive.addfile(info, io.BytesIO(b'some'))
    server.files[f'/{published_detectors.DETECTORS[name].file.path}'] = packed.getvalue()
    for _ in range(2):
        result = run(server, tmp_path, name)
        assert result.exit_code == 0, result.output
        assert f'--weights {tmp_path}/{name}' in result.output
    assert (tmp_path / name / 'pipeline.config').read_bytes() == b'some'
    assert not (tmp_path / f'{name}.tar.gz').exists()
    assert len(server.requests) == 1


def test_a_file_of_torchvision_is_verified_by_its_name(server, tmp_path, monkeypatch):
    name = 'torchvision_maskrcnn_resnet50_fpn'
    detector = published_detectors.DETECTORS[name]
    server.files[f'/{detector.file.path}'] = CONTENT
    result = run(server, tmp_path, name)
    assert result.exit_code == 1
    assert 'expected the checksum bf2d0c1e. Received: ' in str(result.exception)
    assert not (tmp_path / detector.file.name).exists()
    checksum = hashlib.sha256(CONTENT).hexdigest()[:8]
    file = dataclasses.replace(detector.file, checksum=checksum)
    changed = {name: dataclasses.replace(detector, file=file)}
    monkeypatch.setattr(published_detectors, 'DETECTORS', published_detectors.DETECTORS | changed)
    result = run(server, tmp_path, name)
    assert result.exit_code == 0, result.output
    path = tmp_path / 'maskrcnn_resnet50_fpn_coco-bf2d0c1e.pth'
    assert path.read_bytes() == CONTENT
    assert f'--weights {path}' in result.output
    assert f'fine_tune_checkpoint: "{path}" fine_tune_checkpoint_type: "full"' in result.output
    assert f'{name}.config' in result.output


def test_a_detector_of_the_hub_comes_with_its_config(server, tmp_path):
    detector = published_detectors.DETECTORS['rtdetr_r18vd']
    for file in detector.files:
        server.files[f'/{file.path}'] = file.name.encode()
    result = run(server, tmp_path, 'rtdetr_r18vd')
    assert result.exit_code == 0, result.output
    folder = tmp_path / 'rtdetr_r18vd'
    names = ['config.json', 'model.safetensors', 'preprocessor_config.json']
    assert sorted(path.name for path in folder.iterdir() if path.suffix != '.origin') == names
    assert (folder / 'config.json').read_text() == 'config.json'
    use = f'from_transformers {folder}/config.json --weights {folder}/model.safetensors'
    assert use in result.output


def test_the_list_says_what_is_published_of_a_detector():
    result = CliRunner().invoke(command, ['list'])
    assert 'torchvision_maskrcnn_resnet50_fpn, box AP 37.9, mask AP 34.6' in result.output
    assert 'maskrcnn_resnet50_fpn_coco-bf2d0c1e.pth, 170 MiB' in result.output
    rows = json.loads(CliRunner().invoke(command, ['list', '--json']).stdout)['detectors']
    (row,) = [row for row in rows if row['name'] == 'torchvision_maskrcnn_resnet50_fpn']
    assert row['address'] == (
        'https://download.pytorch.org/models/maskrcnn_resnet50_fpn_coco-bf2d0c1e.pth'
    )
    assert row['licence'].startswith('BSD')
