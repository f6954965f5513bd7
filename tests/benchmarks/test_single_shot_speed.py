"""The speed of single-shot detectors: their weights, and peers; times are not tested."""

import importlib
import json
import pathlib
import sys

import pytest
from click.testing import CliRunner

from object_detection.benchmarking import rows, work
from object_detection.config.reader import read_pipeline

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'
CONFIG = 'ssd_mobilenet_v2_fpnlite_shapes'


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.syspath_prepend(FOLDER / 'peers')
    monkeypatch.setattr(rows, '_MATRIX_SIDE', 32)
    return importlib.import_module


@pytest.mark.slow
def test_single_shot_detectors_are_measured_with_weights_like_trained_ones(load, tmp_path):
    measure = load('measure')
    path = str(tmp_path / 'weights.npz')
    work.write_weights(read_pipeline(measure.find_config(CONFIG)), path)
    job = measure.Job(CONFIG, size=64, steps=2, roof=True, profile=True, weights=path)
    result = load('inference').measure_inference(job)
    assert result['agreement']['agrees'], result['agreement']
    assert result['raw_agreement']['agrees'], result['raw_agreement']
    assert set(result['raw_agreement']['differences']) == {
        'box_encodings',
        'class_predictions_with_background',
    }
    assert result['counts'] == {'detections': 50}
    assert result['share_of_roof'] > 0
    assert result['share_of_postprocessing'] < 1
    assert {'backbone', 'fpn', 'box_predictor', 'postprocess'} <= {
        row['part'] for row in result['parts']
    }
    assert 'of roof' in measure.table([result])[0]


@pytest.mark.slow
def test_training_of_a_single_shot_detector_is_measured(load):
    command = load('measure').command(
        'training', load('training').measure_training, ('padded', 'real')
    )
    arguments = ['--config', CONFIG, '--size', '64', '--steps', '2', '--here']
    ran = CliRunner().invoke(command, arguments, catch_exceptions=False)
    result = json.loads(ran.output)
    assert result['agreement']['agrees'], result['agreement']
    assert result['counts'] == {'ground-truth objects': 20}


def test_peers_are_compared_in_time_and_operations(load, monkeypatch, tmp_path, capsys):
    peers = load('torchvision_detectors')
    fake = (
        'import json, sys\n'
        "ours = '--config' in sys.argv\n"
        "print(json.dumps({'seconds': 1.0 + ours, 'gigaflop': 8.0 - 2 * ours}))\n"
    )
    for name in ('inference', 'torchvision_detector_step'):
        (tmp_path / f'{name}.py').write_text(fake)
    monkeypatch.setattr(peers, '_BENCHMARKS', tmp_path)
    monkeypatch.setattr(peers, '_FOLDER', tmp_path)
    path = tmp_path / 'results' / 'out.json'
    arguments = ['--python', sys.executable, '--rounds', '1', '--json', str(path)]
    configs = ['torchvision_maskrcnn_resnet50_fpn', 'ssdlite_mobilenet_v3_large_320x320_coco']
    peers.main([*arguments, '--configs', *configs])
    found = json.loads(path.read_text())
    rows = [(each['ours']['name'], each['precision'], each['size']) for each in found]
    sizes = dict(zip(configs, (640, 320), strict=True))
    precisions = ('float32', 'bfloat16')
    assert rows == [(name, each, sizes[name]) for each in precisions for name in configs]
    assert found[0]['time'] == 2.0
    assert found[0]['peer']['name'] == 'maskrcnn_resnet50_fpn'
    assert 'operations 0.750 of it' in capsys.readouterr().out


def test_each_sample_of_torchvision_is_compared_with_its_model(load):
    peers = load('torchvision_detectors')
    options = peers.arguments().parse_args(['--python', 'python'])
    names = sorted(path.stem for path in peers._SAMPLES.glob('torchvision_*.config'))
    assert options.configs == names
    for pair in peers.SAMPLES:
        peer, ours = peers.programs(pair, 'bfloat16', options)
        assert f'torchvision_{peer.name}' == ours.name
        assert peer.command[-2:] == ('--score_threshold', '0')
        # The setting names a field of the sample.
        setting = ours.command[-1]
        path = str(peers._SAMPLES / f'{pair.config}.config')
        assert read_pipeline(path, settings=[setting]) != read_pipeline(path)
    sizes = {'ssd300_vgg16': 300, 'ssdlite320_mobilenet_v3_large': 320, 'fcos_resnet50_fpn': 640}
    sizes['fasterrcnn_mobilenet_v3_large_320_fpn'] = 320
    assert {name: peers._size(name) for name in sizes} == sizes
