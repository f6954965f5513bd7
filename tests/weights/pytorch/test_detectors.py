"""Detectors of torchvision and detectron2: each variable gets the value that is meant for it."""

import logging
import re

import numpy as np
import pytest
import tensorflow as tf

from object_detection.errors import CheckpointError
from object_detection.models.backbones import resnet_v1
from object_detection.weights import restore, sources
from object_detection.weights.pytorch import names as system_names
from tests import slow_cases
from tests.training.fake_detectors import ExtractorDetector
from tests.weights import third_party_files
from tests.weights.pytorch import models, writers

NORM = {'weight': 'gamma', 'bias': 'beta', 'running_mean': 'moving_mean'}
NORM['running_var'] = 'moving_variance'
# Ratios of width to height: theirs are 2, 1, 1/2; those of `models` are 1, 2, 1/2.
ANCHORS = [1, 0, 2]


@pytest.fixture(scope='module', autouse=True)
def narrow_stages():
    """All layers of a ResNet, with few channels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resnet_v1, '_STAGE_FILTERS', third_party_files.NARROW)
        yield


@pytest.fixture(scope='module')
def detectors(narrow_stages):
    """The small detectors by name."""
    return {name: models.build(name) for name in ('maskrcnn', 'keypointrcnn', 'retinanet')}


def of_backbone(detector, scope, rename):
    """Our name -> theirs, of all variables of a ResNet; `rename` takes our layer's name."""
    names = [name for name in detector.named_variables() if name.startswith('backbone/')]
    return of_layers(names, scope, rename)


def of_layers(names, scope, rename):
    """Our name -> theirs; see `of_backbone`."""
    found = {}
    for ours in names:
        layer, variable = ours.split('/')[-2:]
        conv, norm = rename(layer.removesuffix('_conv').removesuffix('_bn'))
        suffix = next((k for k, v in NORM.items() if v == variable), 'weight')
        found[ours] = f'{scope}{conv if layer.endswith("_conv") else norm}.{suffix}'
    return found


def torchvision_layer(layer):
    if layer == 'conv1':
        return 'conv1', 'bn1'
    stage, block, k = layer.removeprefix('conv').replace('block', '').split('_')
    unit = f'layer{int(stage) - 1}.{int(block) - 1}'
    if k == '0':
        return f'{unit}.downsample.0', f'{unit}.downsample.1'
    return f'{unit}.conv{k}', f'{unit}.bn{k}'


def detectron2_layer(layer):
    if layer == 'conv1':
        return 'stem.conv1', 'stem.conv1.norm'
    stage, block, k = layer.removeprefix('conv').replace('block', '').split('_')
    unit = f'res{stage}.{int(block) - 1}.{f"conv{k}" if k != "0" else "shortcut"}'
    return unit, f'{unit}.norm'


# Our layer -> theirs, of the small detectors: torchvision's now, at first, and detectron2's.
PYRAMID = {
    f'fpn/{kind}_{level}': (
        f'backbone.fpn.{theirs}_blocks.{level - 2}.0',
        f'backbone.fpn.{theirs}_blocks.{level - 2}',
        f'backbone.fpn_{lateral}{level}',
    )
    for kind, theirs, lateral in (
        ('projection', 'inner', 'lateral'),
        ('smoothing', 'layer', 'output'),
    )
    for level in range(2, 6)
}
RPN = {
    'rpn/conv': ('rpn.head.conv.0.0', 'rpn.head.conv', 'proposal_generator.rpn_head.conv'),
    **{
        f'rpn/{ours}_{level}': (*[f'rpn.head.{theirs}'] * 2, f'proposal_generator.rpn_head.{other}')
        for ours, theirs, other in (
            ('objectness', 'cls_logits', 'objectness_logits'),
            ('box_codes', 'bbox_pred', 'anchor_deltas'),
        )
        for level in range(5)
    },
}
BOX = {
    'box_classifier/dense_1': (*['roi_heads.box_head.fc6'] * 2, 'roi_heads.box_head.fc1'),
    'box_classifier/dense_2': (*['roi_heads.box_head.fc7'] * 2, 'roi_heads.box_head.fc2'),
    'box_head/classes': ('roi_heads.box_predictor.cls_score',) * 3,
    'box_head/box_codes': ('roi_heads.box_predictor.bbox_pred',) * 3,
}
MASKS = {
    **{
        f'mask_head/conv_{i}': (
            f'roi_heads.mask_head.{i - 1}.0',
            *[f'roi_heads.mask_head.mask_fcn{i}'] * 2,
        )
        for i in range(1, 5)
    },
    'mask_head/deconv': (
        *['roi_heads.mask_predictor.conv5_mask'] * 2,
        'roi_heads.mask_head.deconv',
    ),
    'mask_head/masks': (
        *['roi_heads.mask_predictor.mask_fcn_logits'] * 2,
        'roi_heads.mask_head.predictor',
    ),
}
KEYPOINTS = {
    **{
        f'keypoint_head/conv_{i}': (
            *[f'roi_heads.keypoint_head.{2 * i - 2}'] * 2,
            f'roi_heads.keypoint_head.conv_fcn{i}',
        )
        for i in range(1, 9)
    },
    'keypoint_head/keypoints': (
        *['roi_heads.keypoint_predictor.kps_score_lowres'] * 2,
        'roi_heads.keypoint_head.score_lowres',
    ),
}
_C, _R = 'head.classification_head', 'head.regression_head'
RETINANET = {
    **{
        f'fpn/{kind}_{level}': (
            f'backbone.fpn.{theirs}_blocks.{level - 3}.0',
            f'backbone.fpn.{theirs}_blocks.{level - 3}',
            f'backbone.fpn_{lateral}{level}',
        )
        for kind, theirs, lateral in (
            ('projection', 'inner', 'lateral'),
            ('smoothing', 'layer', 'output'),
        )
        for level in range(3, 6)
    },
    **{
        f'fpn/coarse_{level}': (
            *[f'backbone.fpn.extra_blocks.p{level}'] * 2,
            f'backbone.top_block.p{level}',
        )
        for level in (6, 7)
    },
    **{
        f'box_predictor/{kind}_tower_{i}': (
            f'{scope}.conv.{i}.0',
            f'{scope}.conv.{2 * i}',
            f'head.{other}_subnet.{2 * i}',
        )
        for kind, scope, other in (('class', _C, 'cls'), ('box', _R, 'bbox'))
        for i in range(4)
    },
    'box_predictor/classes': (*[f'{_C}.cls_logits'] * 2, 'head.cls_score'),
    'box_predictor/box_codes': (*[f'{_R}.bbox_reg'] * 2, 'head.bbox_pred'),
}
LAYERS = {
    'maskrcnn': PYRAMID | RPN | BOX | MASKS,
    'keypointrcnn': PYRAMID | RPN | BOX | KEYPOINTS,
    'retinanet': RETINANET,
}
FORMS = ('torchvision', 'torchvision at first', 'detectron2')


def names_of(name, form, detector):
    """Our name -> theirs, of all variables."""
    index = FORMS.index(form)
    names = (
        of_backbone(detector, 'backbone.bottom_up.', detectron2_layer)
        if form == 'detectron2'
        else of_backbone(detector, 'backbone.body.', torchvision_layer)
    )
    for ours, theirs in LAYERS[name].items():
        names[f'{ours}/kernel'] = f'{theirs[index]}.weight'
        names[f'{ours}/bias'] = f'{theirs[index]}.bias'
    return names


CODES = [1, 0, 3, 2]  # theirs are x, y, width, height


def outputs_there(name, form, detector):
    """For each output here of a layer, its number there (-1: a zero), and how many there are."""
    count = detector.num_classes
    background = int(form != 'detectron2')
    if name.startswith('rpn/objectness'):
        return ANCHORS, 3
    if name.startswith('rpn/box_codes'):
        return [4 * a + c for a in ANCHORS for c in CODES], 12
    if name == 'box_head/classes':
        return list(range(count + 1)) if background else [count, *range(count)], count + 1
    if name == 'box_head/box_codes':
        total = 4 * (count + background)
        return [4 * (k + background) + c for k in range(count) for c in CODES], total
    if name == 'mask_head/masks':
        return [k + background for k in range(count)], count + background
    # Sizes are the innermost order here and in torchvision, the outermost one in detectron2.
    anchors = [3 * a + s if background else 3 * s + a for a in ANCHORS for s in range(3)]
    if name == 'box_predictor/box_codes':
        return [4 * a + c for a in anchors for c in CODES], 36
    if name == 'box_predictor/classes':
        total = count + background
        first = [] if background else [-1]
        return [k for a in anchors for k in [*first, *range(a * total, (a + 1) * total)]], 9 * total
    return None


def expected_value(name, there, form, detector):
    """The value of our variable by their array, in plain steps."""
    layer = name.rpartition('/')[0]
    if found := outputs_there(layer, form, detector):
        padded = np.concatenate([there, np.zeros_like(there[:1])])
        there = padded[[found[1] if k < 0 else k for k in found[0]]]
    if name == 'box_classifier/dense_1/kernel':
        outputs, inputs = there.shape
        here = np.zeros((inputs, outputs), np.float32)
        for y in range(2):
            for x in range(2):
                for channel in range(8):
                    here[(2 * y + x) * 8 + channel] = there[:, channel * 4 + 2 * y + x]
        return here
    if there.ndim == 4:
        return there.transpose(2, 3, 1, 0)
    return there.T


def random_arrays(detector, names, form):
    """Their name -> array of a file that fits a detector."""
    rng, arrays = np.random.default_rng(0), {}
    for name, theirs in names.items():
        variable = detector.named_variables()[name]
        shape = tuple(variable.shape)
        shape = {4: (3, 2, 0, 1), 2: (1, 0)}.get(len(shape), range(len(shape)))
        shape = [variable.shape[axis] for axis in shape]
        if found := outputs_there(name.rpartition('/')[0], form, detector):
            shape[0] = found[1]
        low, high = (0.5, 1.5) if name.endswith(('gamma', 'variance')) else (-0.5, 0.5)
        arrays[theirs] = rng.uniform(low, high, shape).astype(np.float32)
    return arrays


def file_of(detectors, name, form):
    """Names and arrays of a file that fits a small detector."""
    names = names_of(name, form, detectors[name])
    return names, random_arrays(detectors[name], names, form)


def write(folder, form, arrays):
    """Writes a file as a system publishes its detectors; returns its path."""
    if form == 'detectron2':
        tree = {'model': arrays, '__author__': 'somebody'}
        return writers.write_pickle(folder / 'model_final.pkl', tree)
    if form == 'torchvision at first':
        return writers.write_stream(folder / 'a.pth', writers.tensors(arrays))
    counters = {'backbone.body.bn1.num_batches_tracked': np.asarray(7)}
    return writers.write_zip(folder / 'a.pth', writers.tensors(arrays | counters))


CASES = [(name, form) for form in FORMS for name in ('maskrcnn', 'retinanet', 'keypointrcnn')]


@slow_cases.parametrize(6, ('name', 'form'), CASES)
def test_each_variable_gets_its_value(tmp_path, detectors, name, form):
    detector = detectors[name]
    names, arrays = file_of(detectors, name, form)
    assert names.keys() == detector.named_variables().keys()
    report = restore.restore(detector, write(tmp_path, form, arrays), 'full')
    assert (report.missing, report.unused, report.mismatched) == ([], [], [])
    assert len(report.restored) == len(names)
    # The first convolution and norm may be converted to our images, and norms to our epsilon.
    converted = ('backbone/conv1_conv/kernel', 'backbone/conv1_bn/moving')
    converted += ('gamma',) if form == 'torchvision at first' else ()
    for ours, theirs in names.items():
        if ours.startswith(converted) or ours.endswith(converted):
            continue
        value = detector.named_variables()[ours].numpy()
        expected = expected_value(ours, arrays[theirs], form, detector)
        np.testing.assert_array_equal(value, expected, err_msg=ours)


def test_norms_without_an_epsilon_give_the_same_with_ours(tmp_path, detectors):
    detector, form = detectors['maskrcnn'], FORMS[1]
    _, arrays = file_of(detectors, 'maskrcnn', form)
    norms = {'conv3_block1_1_bn': 'backbone.body.layer2.0.bn1', 'conv1_bn': 'backbone.body.bn1'}
    for theirs in norms.values():
        arrays[f'{theirs}.running_var'][:3] = [1e-6, 1e-5, 1.0]
    restore.restore(detector, write(tmp_path, form, arrays), 'classification')
    for ours, theirs in norms.items():
        norm = {k: arrays[f'{theirs}.{k}'] for k in NORM}
        x = np.random.default_rng(1).normal(size=(5, len(norm['bias']))).astype(np.float32)
        expected = (x - norm['running_mean']) / np.sqrt(norm['running_var']) * norm['weight']
        actual = detector.parts()['backbone'].get_layer(ours)(x[:, np.newaxis, np.newaxis])
        expected += norm['bias']
        np.testing.assert_allclose(actual[:, 0, 0], expected, rtol=1e-5, atol=1e-4)


def test_two_logits_of_objectness_have_the_same_probability(tmp_path, detectors):
    options = 'faster_rcnn { first_stage_objectness_type: SOFTMAX_2 }'
    detector = models.build('fasterrcnn', options)
    _, arrays = file_of(detectors, 'maskrcnn', 'torchvision')
    path = write(tmp_path, 'torchvision', arrays)
    report = restore.restore(detector, path, 'full')
    assert all(name.startswith('roi_heads.mask') for name in report.unused)
    assert len(report.unused) == 12
    variables = detector.named_variables()
    for suffix, theirs in (('kernel', 'weight'), ('bias', 'bias')):
        value = variables[f'rpn/objectness_3/{suffix}'].numpy()
        there = arrays[f'rpn.head.cls_logits.{theirs}'][ANCHORS]
        np.testing.assert_array_equal(value[..., 0::2], np.zeros_like(value[..., 0::2]))
        np.testing.assert_array_equal(np.moveaxis(value[..., 1::2], -1, 0).ravel(), there.ravel())


def test_heads_of_other_classes_keep_their_initial_values(tmp_path, detectors, caplog):
    names, arrays = file_of(detectors, 'maskrcnn', 'torchvision')
    path = write(tmp_path, 'torchvision', arrays)
    detector = models.build('maskrcnn', 'faster_rcnn { num_classes: 2 }')
    with caplog.at_level(logging.INFO, 'object_detection'):
        report = restore.restore(detector, path, 'full')
    heads = ('box_head/box_codes', 'box_head/classes', 'mask_head/masks')
    assert report.mismatched == [f'{head}/{v}' for head in heads for v in ('bias', 'kernel')]
    assert 'num_classes is 2, and 3 there; initialised: box_head, mask_head/masks' in caplog.text
    assert 'not used of it: roi_heads.box_predictor.bbox_pred, roi_heads.box_predictor.cls_' in (
        caplog.text
    )
    assert len(report.restored) == len(names) - 6


@pytest.mark.parametrize('form', ['torchvision', 'detectron2'])
def test_a_single_stage_detector_of_other_classes_is_recognised(tmp_path, detectors, form):
    """Also where the numbers of outputs agree: 3 classes there, 2 and background here."""
    _, arrays = file_of(detectors, 'retinanet', form)
    detector = models.build('retinanet', 'ssd { num_classes: 2 }')
    report = restore.restore(detector, write(tmp_path, form, arrays), 'full')
    assert report.mismatched == ['box_predictor/classes/bias', 'box_predictor/classes/kernel']


def test_without_a_background_class_that_of_torchvision_is_left_out(tmp_path, detectors):
    _, arrays = file_of(detectors, 'retinanet', 'torchvision')
    detector = models.build('retinanet', 'ssd { add_background_class: false }')
    restore.restore(detector, write(tmp_path, 'torchvision', arrays), 'full')
    bias = detector.named_variables()['box_predictor/classes/bias'].numpy()
    there = arrays['head.classification_head.cls_logits.bias'].reshape(3, 3, 4)[ANCHORS]
    np.testing.assert_array_equal(bias, there[..., 1:].ravel())


def test_anchors_of_whole_pixels_are_ordered_by_the_ratios_they_stand_for(tmp_path, detectors):
    _, arrays = file_of(detectors, 'retinanet', 'torchvision')
    whole = 'multiscale_anchor_generator { truncate_sizes: true round_boxes: true }'
    detector = models.build('retinanet', f'ssd {{ anchor_generator {{ {whole} }} }}')
    restore.restore(detector, write(tmp_path, 'torchvision', arrays), 'full')
    bias = detector.named_variables()['box_predictor/classes/bias'].numpy()
    there = arrays['head.classification_head.cls_logits.bias'].reshape(3, 3, 4)[ANCHORS]
    np.testing.assert_array_equal(bias, there.ravel())


def test_anchors_of_other_ratios_are_warned_of(tmp_path, detectors, caplog):
    _, arrays = file_of(detectors, 'maskrcnn', 'torchvision')
    path = write(tmp_path, 'torchvision', arrays)
    detector = models.build(
        'maskrcnn', text=('aspect_ratios: [1.0, 2.0, 0.5]', 'aspect_ratios: [1.0, 3.0, 0.5]')
    )
    with caplog.at_level(logging.WARNING, 'object_detection'):
        restore.restore(detector, path, 'full')
    assert 'aspect ratios (width / height) [0.5, 1.0, 2.0], here [0.5, 1.0, 3.0]' in caplog.text


def test_towers_of_fcos_are_rows_of_convolutions_norms_and_activations():
    expected = {
        'box_predictor/classes': f'{_C}.cls_logits',
        'box_predictor/box_codes': f'{_R}.bbox_reg',
        'box_predictor/centerness': f'{_R}.bbox_ctrness',
        'fpn/coarse_6': 'backbone.fpn.extra_blocks.p6',
    }
    for kind, scope in (('class', _C), ('box', _R)):
        for i in range(4):
            expected[f'box_predictor/{kind}_tower_{i}'] = f'{scope}.conv.{3 * i}'
            expected[f'box_predictor/{kind}_tower_{i}_bn'] = f'{scope}.conv.{3 * i + 1}'
    keys = [f'{theirs}.weight' for theirs in expected.values()]
    # The first system one of whose beginnings a name has is taken.
    system = next(
        each for each in system_names.SYSTEMS if any(key.startswith(each.begins) for key in keys)
    )
    assert system is system_names.TORCHVISION_FCOS
    found = system_names.match(system, list(expected), keys)
    assert {ours: theirs for ours, theirs, _ in found} == expected


@pytest.mark.parametrize('rename', [torchvision_layer, detectron2_layer])
def test_names_of_bottlenecks_are_ours(rename):
    ours = third_party_files.names(third_party_files.slim, 50)
    system = system_names.TORCHVISION if rename is torchvision_layer else system_names.DETECTRON2
    expected = of_layers(ours, '', rename)
    assert system.backbone.translate(expected.values()) == expected


@pytest.mark.slow  # 6 seconds for a ResNet-50
@pytest.mark.parametrize(
    ('rename', 'title'),
    [(torchvision_layer, 'torchvision'), (detectron2_layer, 'detectron2')],
)
def test_a_backbone_of_bottlenecks_is_restored(tmp_path, rename, title):
    detector = ExtractorDetector('faster_rcnn_resnet50_fpn_keras')
    names = of_backbone(detector, '', rename)
    arrays = random_arrays(detector, names, title)
    arrays['fc.weight'] = np.ones((10, 2), np.float32)
    header, data = writers.header_of(arrays)
    path = writers.write_safetensors(tmp_path / 'resnet50.safetensors', header, data)
    with sources.open_source(path) as source:
        assert source.description == f'{title} ResNet {path}'
        assert source.types == ('classification',)
    report = restore.restore(detector, path, 'classification')
    assert (len(report.restored), report.unused) == (53 * 5, ['fc.weight'])
    for ours, theirs in names.items():
        if not ours.startswith(('backbone/conv1_conv', 'backbone/conv1_bn/moving')):
            expected = expected_value(ours, arrays[theirs], title, detector)
            np.testing.assert_array_equal(detector.value(ours[9:]), expected, err_msg=ours)


def first_norm(image, kernel, norm):
    """What the norm after the first convolution gives, the padding of whose input is left out."""
    x = tf.nn.conv2d(image, kernel, 2, 'VALID')
    gamma, beta, mean, variance = norm
    return gamma * (x - mean) / np.sqrt(variance + 1e-5) + beta


def test_images_of_detectron2_are_converted(tmp_path, detectors, caplog):
    _, arrays = file_of(detectors, 'maskrcnn', 'detectron2')
    mean, std = np.array([100.0, 110.0, 120.0]), np.array([50.0, 55.0, 60.0])  # blue first
    stored = {'pixel_mean': mean.reshape(3, 1, 1), 'pixel_std': std.reshape(3, 1, 1)}
    path = write(tmp_path, 'detectron2', arrays | stored)
    detector = detectors['maskrcnn']
    with caplog.at_level(logging.INFO, 'object_detection'):
        report = restore.restore(detector, path, 'classification')
    assert 'sees BGR images of the mean [120.0, 110.0, 100.0]' in caplog.text
    assert not {'pixel_mean', 'pixel_std'} & set(report.unused)
    image = np.random.default_rng(0).uniform(0, 255, [1, 32, 32, 3]).astype(np.float32)
    variables = detector.named_variables()
    order = ('gamma', 'beta', 'moving_mean', 'moving_variance')
    actual = first_norm(
        detector.normalize(tf.constant(image)),
        variables['backbone/conv1_conv/kernel'],
        [variables[f'backbone/conv1_bn/{k}'].numpy() for k in order],
    )
    stem = 'backbone.bottom_up.stem.conv1'
    expected = first_norm(
        ((image[..., ::-1] - mean) / std).astype(np.float32),
        arrays[f'{stem}.weight'].transpose(2, 3, 1, 0),
        [arrays[f'{stem}.norm.{k}'] for k in NORM],
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ('key', 'number', 'what'),
    [
        ('pixel_std', 0.0, 'positive, finite'),
        ('pixel_std', np.inf, 'positive, finite'),
        ('pixel_mean', np.nan, 'finite'),
    ],
)
def test_images_that_cannot_be_normalised_are_refused(tmp_path, key, number, what):
    arrays = {'backbone.bottom_up.stem.conv1.weight': np.zeros((2, 3, 7, 7), np.float32)}
    arrays |= {'pixel_mean': np.ones((3, 1, 1)), 'pixel_std': np.ones((3, 1, 1))}
    arrays[key][1] = number
    path = write(tmp_path, 'detectron2', arrays)
    message = f'{path}: {key}: expected 3 {what} numbers. Received: [1.0, {number}, 1.0].'
    with pytest.raises(CheckpointError, match=re.escape(message)):
        sources.open_source(path)


def test_a_network_in_the_names_of_both_systems_is_the_same(tmp_path, detectors):
    detector, form = detectors['maskrcnn'], 'torchvision'
    names, arrays = file_of(detectors, 'maskrcnn', form)
    restore.restore(detector, write(tmp_path, form, arrays), 'full')
    expected = {name: v.numpy() for name, v in detector.named_variables().items()}
    # BGR images; background last, or left out.
    changes = {
        'backbone/conv1_conv': lambda array: array[:, ::-1],
        'box_head/classes': lambda array: np.roll(array, -1, axis=0),
        'box_head/box_codes': lambda array: array[4:],
        'mask_head/masks': lambda array: array[1:],
    }
    others = names_of('maskrcnn', 'detectron2', detector)
    renamed = {
        'pixel_mean': np.array([103.53, 116.28, 123.675], np.float32).reshape(3, 1, 1),
        'pixel_std': np.array([57.375, 57.12, 58.395], np.float32).reshape(3, 1, 1),
    }
    for ours, theirs in names.items():
        change = changes.get(ours.rpartition('/')[0], np.asarray)
        renamed[others[ours]] = np.ascontiguousarray(change(arrays[theirs]))
    for variable in detector.named_variables().values():
        variable.assign(tf.zeros_like(variable))
    report = restore.restore(detector, write(tmp_path, 'detectron2', renamed), 'full')
    assert (report.missing, report.unused, report.mismatched) == ([], [], [])
    for name, variable in detector.named_variables().items():
        # The first layers are converted from the rounded means and deviations of the file.
        limit = 1e-4 if name.startswith('backbone/conv1_') else 0.0
        np.testing.assert_allclose(variable, expected[name], rtol=limit, atol=limit, err_msg=name)


@pytest.mark.slow
def test_stages_of_a_cascade_are_those_of_detectron2(tmp_path, detectors):
    cascade = """
    faster_rcnn {
      cascade_stages { iou_threshold: 0.6 }
      second_stage_box_predictor { mask_rcnn_box_predictor { share_box_across_classes: true } }
    }
    """
    detector = models.build('fasterrcnn', cascade)
    _, arrays = file_of(detectors, 'maskrcnn', 'detectron2')
    rng = np.random.default_rng(2)
    stages = {k: v for k, v in arrays.items() if k.startswith('roi_heads.box')}
    arrays = {k: v for k, v in arrays.items() if not k.startswith('roi_heads')}
    for name, array in stages.items():
        shape = (4, *array.shape[1:]) if 'bbox_pred' in name else array.shape
        for stage in range(2):
            *scope, layer, variable = name.split('.')
            key = '.'.join([*scope, str(stage), layer, variable])
            arrays[key] = rng.normal(size=shape).astype(np.float32)
    report = restore.restore(detector, write(tmp_path, 'detectron2', arrays), 'full')
    assert (report.missing, report.unused, report.mismatched) == ([], [], [])
    variables = detector.named_variables()
    for ours, stage in (('', 0), ('_2', 1)):
        scope = f'roi_heads.box_predictor.{stage}'
        codes = arrays[f'{scope}.bbox_pred.weight'][CODES].T
        np.testing.assert_array_equal(variables[f'box_head{ours}/box_codes/kernel'], codes)
        classes = arrays[f'{scope}.cls_score.bias'][[3, 0, 1, 2]]
        np.testing.assert_array_equal(variables[f'box_head{ours}/classes/bias'], classes)
        dense = expected_value(
            'box_classifier/dense_1/kernel',
            arrays[f'roi_heads.box_head.{stage}.fc1.weight'],
            'detectron2',
            detector,
        )
        np.testing.assert_array_equal(variables[f'box_classifier{ours}/dense_1/kernel'], dense)


def test_a_deeper_network_is_named_where_all_is_restored(tmp_path, detectors):
    _, arrays = file_of(detectors, 'maskrcnn', 'detectron2')
    arrays['backbone.bottom_up.res4.2.conv1.weight'] = np.ones((4, 4, 3, 3), np.float32)
    path = write(tmp_path, 'detectron2', arrays)
    field = r'model\.faster_rcnn\.feature_extractor\.type'
    message = f'{field}, ResNet-18 .* Received: a ResNet of 2, 2, 3, 2 basic blocks'
    with pytest.raises(CheckpointError, match=message):
        restore.restore_exactly(detectors['maskrcnn'], path, averages=False)


def test_other_names_are_listed_in_the_error(tmp_path):
    tree = writers.tensors({'encoder.weight': np.ones((2, 2), np.float32)})
    path = writers.write_zip(tmp_path / 'a.pth', tree)
    with pytest.raises(CheckpointError, match=r'Received: encoder\.weight') as error:
        sources.open_source(path)
    assert f'{path}: expected the names of one of these: torchvision detector' in str(error.value)
    listing = sources.list_file(path)
    assert [(v.name, v.shape, v.dtype) for v in listing.variables] == [
        ('encoder.weight', (2, 2), 'float32')
    ]


def test_arrays_of_absurd_shapes_do_not_fit(tmp_path, detectors):
    _, arrays = file_of(detectors, 'maskrcnn', 'torchvision')
    arrays |= {
        'rpn.head.bbox_pred.weight': np.ones((7, 8, 1, 1), np.float32),
        'roi_heads.box_head.fc6.weight': np.ones((6, 33), np.float32),
        'roi_heads.box_predictor.cls_score.bias': np.ones((), np.float32),
    }
    path = write(tmp_path, 'torchvision', arrays)
    with pytest.raises(CheckpointError, match=r'of another shape: .*\[33, 6\]'):
        restore.restore(detectors['maskrcnn'], path, 'full')
