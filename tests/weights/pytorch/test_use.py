"""A detector of torchvision in the places that take a checkpoint."""

import logging

import numpy as np
import pytest
from click.testing import CliRunner

import object_detection
from object_detection.cli.checkpoint import command
from object_detection.config import show
from object_detection.errors import CheckpointError, UserError
from object_detection.export import exporter
from object_detection.models.backbones import resnet_v1
from object_detection.weights import restore
from tests.weights import third_party_files
from tests.weights.pytorch import models, writers
from tests.weights.pytorch.test_detectors import names_of, random_arrays


@pytest.fixture(scope='module', autouse=True)
def narrow_stages():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resnet_v1, '_STAGE_FILTERS', third_party_files.NARROW)
        yield


@pytest.fixture(scope='module')
def folder(tmp_path_factory, narrow_stages):
    """A folder with `a.pth` of a small Mask R-CNN and its optimizer, and `a.config`."""
    folder = tmp_path_factory.mktemp('torch')
    pipeline = models.pipeline_of('maskrcnn')
    show.write_pipeline(pipeline, str(folder / 'a.config'))
    detector = models.build('maskrcnn')
    arrays = random_arrays(detector, names_of('maskrcnn', 'torchvision', detector), 'torchvision')
    tree = {'model': writers.tensors(arrays), 'epoch': 3}
    writers.write_zip(folder / 'a.pth', tree)
    return folder


def test_all_its_variables_are_those_of_the_file(folder, caplog):
    with caplog.at_level(logging.INFO, 'object_detection'):
        detector = exporter.load_detector(models.pipeline_of('fasterrcnn'), str(folder / 'a.pth'))
    assert f"restored from torchvision detector {folder}/a.pth, its 'model'" in caplog.text
    assert 'not used of it: roi_heads.mask_head.0.0.bias' in caplog.text
    other = models.build('fasterrcnn')
    restore.restore(other, str(folder / 'a.pth'), 'full')
    for name, variable in other.named_variables().items():
        np.testing.assert_array_equal(detector.named_variables()[name], variable, err_msg=name)


@pytest.mark.slow  # its graph is traced
def test_it_is_loaded_with_a_config(folder):
    runtime = object_detection.load(folder / 'a.pth', config=folder / 'a.config')
    (found,) = runtime.run([np.full((96, 128, 3), 127, np.uint8)])
    assert len(found.boxes) == len(found.masks) > 0
    assert np.isfinite(found.scores).all()


def test_a_config_of_other_classes_is_refused(folder, tmp_path):
    other = models.pipeline_of('fasterrcnn', 'faster_rcnn { num_classes: 2 }')
    show.write_pipeline(other, str(tmp_path / 'other.config'))
    with pytest.raises(CheckpointError, match='of another model than the config describes'):
        object_detection.load(folder / 'a.pth', config=tmp_path / 'other.config')


def test_without_a_config_it_is_asked_for(folder):
    with pytest.raises(UserError, match='name another with `config`'):
        object_detection.load(folder / 'a.pth')


def test_commands_list_and_convert_it(folder, tmp_path):
    result = CliRunner().invoke(command, ['inspect', str(folder / 'a.pth')])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert f"torchvision detector {folder}/a.pth, its 'model'" in lines
    assert 'fine_tune_checkpoint_type: classification, detection, full' in lines
    assert any(
        line.split()[:4] == ['rpn.head.cls_logits.weight', '[3,', '8,', '1,'] for line in lines
    )
    arguments = [
        'convert',
        str(folder / 'a.pth'),
        '--pipeline_config_path',
        str(folder / 'a.config'),
    ]
    result = CliRunner().invoke(command, [*arguments, '--output', str(tmp_path / 'out')])
    assert result.exit_code == 0, result.output
    assert "as 'full'" in result.output
    assert (tmp_path / 'out' / 'ckpt-0.index').exists()
    assert 'freshly' not in result.output
