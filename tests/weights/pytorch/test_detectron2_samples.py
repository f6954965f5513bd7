"""The sample configs of detectron2's detectors, by the names and shapes of its files."""

import pathlib

import numpy as np
import pytest

import object_detection
from object_detection.builders import model_builder
from object_detection.config.reader import read_pipeline
from object_detection.dataset_tools.downloads.published_detectors import DETECTORS
from object_detection.weights import restore, sources
from object_detection.weights.pytorch import detectors
from tests.weights.pytorch.test_recorded import RecordedArrays

SAMPLES = pathlib.Path(object_detection.__file__).parent / 'samples/configs'
_NORM = ('weight', 'bias', 'running_mean', 'running_var')
_BLOCKS = {50: {2: 3, 3: 4, 4: 6, 5: 3}, 101: {2: 3, 3: 4, 4: 23, 5: 3}}


def _layer(name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    """A layer with a bias, whose outputs are the first axis but in transposed convolutions."""
    return {f'{name}.weight': shape, f'{name}.bias': shape[:1]}


def _with_norm(name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    return {f'{name}.weight': shape} | {f'{name}.norm.{each}': shape[:1] for each in _NORM}


def _backbone(depth: int = 50, levels: range = range(2, 6)) -> dict[str, tuple[int, ...]]:
    shapes = _with_norm('backbone.bottom_up.stem.conv1', 64, 3, 7, 7)
    inputs = 64
    for stage, blocks in _BLOCKS[depth].items():
        width, outputs = 16 * 2**stage, 64 * 2**stage
        for block in range(blocks):
            name = f'backbone.bottom_up.res{stage}.{block}'
            if not block:
                shapes |= _with_norm(f'{name}.shortcut', outputs, inputs, 1, 1)
            shapes |= _with_norm(f'{name}.conv1', width, inputs, 1, 1)
            shapes |= _with_norm(f'{name}.conv2', width, width, 3, 3)
            shapes |= _with_norm(f'{name}.conv3', outputs, width, 1, 1)
            inputs = outputs
        if stage in levels:
            shapes |= _layer(f'backbone.fpn_lateral{stage}', 256, outputs, 1, 1)
            shapes |= _layer(f'backbone.fpn_output{stage}', 256, 256, 3, 3)
    return shapes


def _proposals() -> dict[str, tuple[int, ...]]:
    head = 'proposal_generator.rpn_head'
    return {
        **_layer(f'{head}.conv', 256, 256, 3, 3),
        **_layer(f'{head}.objectness_logits', 3, 256, 1, 1),
        **_layer(f'{head}.anchor_deltas', 12, 256, 1, 1),
    }


def _boxes(classes: int, codes: int, stage: str = '') -> dict[str, tuple[int, ...]]:
    head, predictor = f'roi_heads.box_head.{stage}', f'roi_heads.box_predictor.{stage}'
    return {
        **_layer(f'{head}fc1', 1024, 256 * 7 * 7),
        **_layer(f'{head}fc2', 1024, 1024),
        **_layer(f'{predictor}cls_score', classes + 1, 1024),
        **_layer(f'{predictor}bbox_pred', codes, 1024),
    }


def _masks() -> dict[str, tuple[int, ...]]:
    head = 'roi_heads.mask_head'
    shapes = {}
    for number in range(1, 5):
        shapes |= _layer(f'{head}.mask_fcn{number}', 256, 256, 3, 3)
    return shapes | {
        **_layer(f'{head}.deconv', 256, 256, 2, 2),
        **_layer(f'{head}.predictor', 80, 256, 1, 1),
    }


def _keypoints() -> dict[str, tuple[int, ...]]:
    head = 'roi_heads.keypoint_head'
    shapes = {}
    for number in range(1, 9):
        shapes |= _layer(f'{head}.conv_fcn{number}', 512, 512 if number > 1 else 256, 3, 3)
    deconv = {f'{head}.score_lowres.weight': (512, 17, 4, 4), f'{head}.score_lowres.bias': (17,)}
    return shapes | deconv


def _single_shot() -> dict[str, tuple[int, ...]]:
    """Without layers of regions: nine anchors a cell, and the coarse levels of the last map."""
    shapes = {
        **_layer('backbone.top_block.p6', 256, 2048, 3, 3),
        **_layer('backbone.top_block.p7', 256, 256, 3, 3),
        **_layer('head.cls_score', 9 * 80, 256, 3, 3),
        **_layer('head.bbox_pred', 9 * 4, 256, 3, 3),
    }
    for number in (0, 2, 4, 6):
        shapes |= _layer(f'head.cls_subnet.{number}', 256, 256, 3, 3)
        shapes |= _layer(f'head.bbox_subnet.{number}', 256, 256, 3, 3)
    return shapes


_HEADS = {
    'faster_rcnn': _boxes(80, 4 * 80),
    'mask_rcnn': _boxes(80, 4 * 80) | _masks(),
    'keypoint_rcnn': _boxes(1, 4) | _keypoints(),
    'cascade_mask_rcnn': (
        _boxes(80, 4, '0.') | _boxes(80, 4, '1.') | _boxes(80, 4, '2.') | _masks()
    ),
    'retinanet': _single_shot(),
}
# Of the detectors with a ResNet-50; two of detectron2's with a ResNet-101, one of each family.
_CASES = [*((kind, 50) for kind in _HEADS), ('mask_rcnn', 101), ('retinanet', 101)]


def model_of(kind: str):
    return read_pipeline(str(SAMPLES / f'detectron2_{kind}_R_50_FPN.config')).model


def names_of(kind: str, depth: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of a file."""
    if kind == 'retinanet':
        return _backbone(depth, range(3, 6)) | _HEADS[kind]
    return _backbone(depth) | _proposals() | _HEADS[kind]


@pytest.mark.slow  # detectors of full size
@pytest.mark.parametrize(('kind', 'depth'), _CASES)
def test_files_fit(kind, depth, monkeypatch):
    rows = [(name, shape, 'float32') for name, shape in names_of(kind, depth).items()]
    monkeypatch.setattr(
        sources, 'open_source', lambda path: detectors.recognize(RecordedArrays(path, rows))
    )
    row = DETECTORS[f'detectron2_{kind}_R_{depth}_FPN_3x']
    pipeline = read_pipeline(
        str(SAMPLES / f'{row.sample}.config'), settings=[row.setting] if row.setting else []
    )
    detector = model_builder.build(pipeline.model, is_training=False)
    detector.build_variables()
    report = restore.restore(detector, 'model_final.pkl', 'full')
    assert (report.missing, report.mismatched, report.unused) == ([], [], [])
    assert len(report.restored) == len(detector.named_variables())


def test_numbers_of_the_cascade():
    model = model_of('cascade_mask_rcnn').faster_rcnn
    assert model.second_stage_fg_iou_threshold == 0.5
    thresholds = [stage.iou_threshold for stage in model.cascade_stages]
    np.testing.assert_allclose(thresholds, [0.6, 0.7])
    coders = [stage.box_coder.faster_rcnn_box_coder for stage in model.cascade_stages]
    coders = [model.second_stage_box_coder.faster_rcnn_box_coder, *coders]
    scales = [(c.y_scale, c.x_scale, c.height_scale, c.width_scale) for c in coders]
    assert scales == [(10, 10, 5, 5), (20, 20, 10, 10), (30, 30, 15, 15)]
    np.testing.assert_allclose([c.max_log_size for c in coders], np.log(1000 / 16), rtol=1e-6)
    assert model.second_stage_box_predictor.mask_rcnn_box_predictor.share_box_across_classes
