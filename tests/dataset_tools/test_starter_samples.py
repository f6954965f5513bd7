"""The sample config of a file of torchvision or detectron2 is found by its names."""

import json
import pathlib

import numpy as np
import pytest

import object_detection
from object_detection.config.reader import read_pipeline
from object_detection.dataset_tools import starter, starter_samples, starter_weights
from object_detection.dataset_tools.downloads.published_detectors import DETECTORS
from object_detection.errors import CheckpointError, ConfigError
from tests import rows
from tests.conftest import SHARED
from tests.dataset_tools.test_starter import DATA
from tests.meta_architectures.detr import transformers_configs
from tests.weights.pytorch import writers

KINDS = {
    'torchvision_fasterrcnn_resnet50_fpn': ['roi_heads.box_predictor.cls_score.weight'],
    'torchvision_fasterrcnn_resnet50_fpn_v2': [
        'roi_heads.box_predictor.cls_score.weight',
        'roi_heads.box_head.0.0.weight',
    ],
    'torchvision_maskrcnn_resnet50_fpn_v2': [
        'roi_heads.mask_predictor.mask_fcn_logits.weight',
        'roi_heads.box_head.0.0.weight',
    ],
    'torchvision_maskrcnn_resnet50_fpn': [
        'roi_heads.box_predictor.cls_score.weight',
        'roi_heads.mask_predictor.mask_fcn_logits.weight',
    ],
    'torchvision_keypointrcnn_resnet50_fpn': [
        'roi_heads.box_predictor.cls_score.weight',
        'roi_heads.keypoint_predictor.kps_score_lowres.weight',
    ],
}


def resnet(depth=50):
    """Names of a ResNet of torchvision, as far as they tell its depth."""
    last = {50: 5, 101: 22, 152: 35, 34: 5}[depth]
    names = ['conv1.weight', 'layer1.0.conv1.weight', f'layer3.{last}.conv1.weight']
    names += ['layer1.0.conv3.weight'] if depth >= 50 else []
    return [f'backbone.body.{name}' for name in names]


def write(path, names):
    return writers.write_zip(path, writers.tensors(dict.fromkeys(names, np.zeros(1, np.float32))))


def file_of(folder, sample, depth=50):
    return write(folder / 'model.pth', resnet(depth) + KINDS[sample])


@rows.parametrize('sample', KINDS)
def test_a_file_gets_the_sample_of_its_layers(tmp_path, sample):
    pipeline = starter_samples.find(file_of(tmp_path, sample))
    predictor = pipeline.model.faster_rcnn.second_stage_box_predictor.mask_rcnn_box_predictor
    assert predictor.predict_keypoints == ('keypoint' in sample)
    assert predictor.predict_instance_masks == ('mask' in sample)
    assert predictor.box_head.num_convs == (4 if 'v2' in sample else 0)


def test_names_of_whole_detectors_are_those_of_their_samples():
    folder = SHARED / 'goldens' / 'peers'
    if not folder.is_dir():
        pytest.skip('needs ../shared/goldens/peers, the recorded detectors')
    count = 0
    for path in folder.glob('torchvision_*.json'):
        if path.stem in DETECTORS:
            names = [row[0] for row in json.loads(path.read_text())['variables']]
            file = DETECTORS[path.stem].file.name
            assert starter_samples._sample(file, names) == path.stem
            count += 1
    assert count >= 3


def test_every_sample_of_a_published_file_can_be_found():
    samples = {row.sample for row in DETECTORS.values() if row.sample}
    assert {kind.sample for kind in starter_samples._KINDS} == samples


def file_of_kind(folder, kind):
    """A file with the marks of a kind, named as a published one."""
    files = {row.sample: row.file.name for row in DETECTORS.values()}
    return write(folder / files[kind.sample], kind.marks)


@rows.parametrize('kind', starter_samples._KINDS)
def test_each_kind_begins_a_config_of_its_sample(tmp_path, kind):
    """Also of two that differ in the sizes of images alone, by the name of the published file."""
    path = file_of_kind(tmp_path, kind)
    pipeline = starter_samples.find(path)
    folder = pathlib.Path(object_detection.__file__).parent / 'samples' / 'configs'
    assert pipeline == read_pipeline(str(folder / f'{kind.sample}.config'))
    made = make(path, task='boxes')
    assert made.model.num_classes == 3
    assert made.pipeline.model.WhichOneof('model') == pipeline.model.WhichOneof('model')


SETTINGS = {name: row for name, row in DETECTORS.items() if row.setting}


@rows.parametrize('name', SETTINGS)
def test_a_file_of_detectron2_may_have_more_layers(tmp_path, name):
    """Its config differs from the sample in what is named for the published file."""
    row = SETTINGS[name]
    (kind,) = (each for each in starter_samples._KINDS if each.sample == row.sample)
    body = 'backbone.bottom_up'
    names = [*kind.marks, f'{body}.res2.0.conv3.weight', f'{body}.res4.22.conv1.weight']
    arrays = dict.fromkeys(names, np.zeros(1, np.float32))
    path = writers.write_pickle(tmp_path / 'model_final.pkl', {'model': arrays})
    folder = pathlib.Path(object_detection.__file__).parent / 'samples' / 'configs'
    expected = read_pipeline(str(folder / f'{row.sample}.config'), settings=[row.setting])
    assert starter_samples.find(path) == expected
    assert 'resnet101' in str(expected.model)


def test_the_depth_is_that_of_the_file(tmp_path):
    for depth in (50, 101, 152):
        path = file_of(tmp_path, 'torchvision_maskrcnn_resnet50_fpn', depth)
        extractor = starter_samples.find(path).model.faster_rcnn.feature_extractor
        assert extractor.type == f'faster_rcnn_resnet{depth}_fpn_keras'
    path = file_of(tmp_path, 'torchvision_maskrcnn_resnet50_fpn', 34)
    with pytest.raises(ConfigError, match=r'model\.pth: expected a ResNet of .* 6 small blocks'):
        starter_samples.find(path)


def test_names_of_no_known_detector_are_listed(tmp_path):
    path = write(tmp_path / 'a.pth', ['encoder.weight'])
    with pytest.raises(ConfigError, match=r'torchvision_maskrcnn.*Received: encoder\.weight'):
        starter_weights.find(path)


def test_other_files_are_none_and_hostile_ones_are_refused(tmp_path):
    (tmp_path / 'a.h5').write_bytes(bytes(20))
    (tmp_path / 'b.pth').write_bytes(bytes(20))
    assert starter_samples.find(str(tmp_path / 'a.h5')) is None
    assert starter_samples.find(str(tmp_path / 'b.pth')) is None
    assert starter_samples.find(str(tmp_path / 'none.pth')) is None
    (tmp_path / 'c.pkl').write_bytes(b'\x80\x02cos\nsystem\n.')
    with pytest.raises(CheckpointError, match=r'os\.system, which was neither imported nor run'):
        starter_weights.find(str(tmp_path / 'c.pkl'))


def make(path, **options):
    found = starter_weights.find(path)
    options = {'device': 'cpu', 'task': '', 'weights': found} | options
    return starter.make(DATA, None, **options)


def test_a_config_has_the_model_of_the_file_and_the_classes_of_the_data(tmp_path):
    path = file_of(tmp_path, 'torchvision_maskrcnn_resnet50_fpn')
    made = make(path)
    assert made.model.num_classes == 3
    assert made.model.number_of_stages == 3
    config = made.pipeline.train_config
    assert (config.fine_tune_checkpoint, config.fine_tune_checkpoint_type) == (path, 'full')
    assert (
        'which start from random weights' in dict(made.reasons)['train_config.fine_tune_checkpoint']
    )
    # Images of 400 x 600 become 800 x 1200, padded to multiples of 32.
    resizer = made.model.image_resizer.keep_aspect_ratio_resizer
    assert (resizer.pad_height, resizer.pad_width) == (800, 1216)
    assert make(path, task='boxes').model.number_of_stages == 2


def test_keypoints_are_left_out(tmp_path):
    made = make(file_of(tmp_path, 'torchvision_keypointrcnn_resnet50_fpn'), task='boxes')
    predictor = made.model.second_stage_box_predictor.mask_rcnn_box_predictor
    assert not predictor.predict_keypoints
    assert not predictor.HasField('keypoint_head')
    assert not made.model.HasField('keypoint_roi_align')
    reason = dict(made.reasons)['model.faster_rcnn.second_stage_box_predictor']
    assert reason.startswith('boxes alone')


def test_a_file_of_transformers_has_the_model_of_the_config_beside_it(tmp_path):
    path = write(tmp_path / 'pytorch_model.pth', ('model.encoder_input_proj.0.0.weight',))
    with pytest.raises(ConfigError, match=r'or of transformers with its config\.json'):
        starter_samples.find(path)
    (tmp_path / 'config.json').write_text(json.dumps(transformers_configs.config('rt_detr')))
    assert starter_samples.find(path).model.detr.num_classes == 3
    made = make(path, task='boxes')
    assert made.pipeline.model.detr.decoder.num_layers == 2
    assert made.pipeline.train_config.fine_tune_checkpoint_type == 'full'
