"""MobileNet v3 of torchvision: names of a classifier, of Faster R-CNN and of SSDLite."""

import re

import pytest

from object_detection.weights.pytorch import mobilenet_names, names

NORM = ('weight', 'bias', 'running_mean', 'running_var')


def of_unit(scope):
    return [f'{scope}.0.weight', *(f'{scope}.1.{name}' for name in NORM)]


def of_classifier():
    """Of a convolution, a block of two units, one of four with squeeze, and a last one."""
    found = [*of_unit('features.0'), *of_unit('features.16')]
    found += [*of_unit('features.1.block.0'), *of_unit('features.1.block.1')]
    for part in (0, 1, 3):
        found += of_unit(f'features.13.block.{part}')
    squeeze = 'features.13.block.2'
    return found + [f'{squeeze}.{fc}.{name}' for fc in ('fc1', 'fc2') for name in NORM[:2]]


def of_body(name):
    return name.replace('features.', 'backbone.body.')


def of_ssd(name):
    name = name.replace('features.13.block.0.', 'features.0.13.')
    name = name.replace('features.13.block.', 'features.1.0.')
    name = name.replace('features.16.', 'features.1.3.')
    return 'backbone.' + re.sub(r'^features\.(0\.[01]\.\w+$|1\.block)', r'features.0.\1', name)


@pytest.mark.parametrize('rename', [str, of_body, of_ssd])
def test_names_are_ours(rename):
    known = {rename(name): name for name in of_classifier()}
    assert len(known) == len(of_classifier())
    found = mobilenet_names.translate([*known, rename('features.0.1.num_batches_tracked')])
    ours = {key: known[name] for key, name in found.items()}
    assert sorted(ours.values()) == sorted(of_classifier())
    expected = {
        'first_conv/kernel': 'features.0.0.weight',
        'first_conv_bn/moving_variance': 'features.0.1.running_var',
        'expanded_conv_0_depthwise/depthwise_kernel': 'features.1.block.0.0.weight',
        'expanded_conv_0_project_bn/beta': 'features.1.block.1.1.bias',
        'expanded_conv_12_expand/kernel': 'features.13.block.0.0.weight',
        'expanded_conv_12_depthwise_bn/gamma': 'features.13.block.1.1.weight',
        'expanded_conv_12_squeeze/kernel': 'features.13.block.2.fc1.weight',
        'expanded_conv_12_excite/bias': 'features.13.block.2.fc2.bias',
        'expanded_conv_12_project/kernel': 'features.13.block.3.0.weight',
        'last_conv_bn/moving_mean': 'features.16.1.running_mean',
    }
    assert {key: ours[key] for key in expected} == expected


def test_other_networks_are_not_taken():
    assert mobilenet_names.translate(['features.0.0.weight', 'features.1.0.block.0.0.weight']) == {}


def test_layers_of_ssdlite_are_ours():
    heads = 'head.classification_head.module_list.1', 'head.regression_head.module_list.1'
    expected = {
        'fpn/map_3_projection': 'backbone.extra.1.0.0',
        'fpn/map_3_projection_bn': 'backbone.extra.1.0.1',
        'fpn/map_2_depthwise': 'backbone.extra.0.1.0',
        'fpn/map_2_conv_bn': 'backbone.extra.0.2.1',
        'fpn/map_2_projection': 'backbone.extra.0.0.0',
        'box_predictor/classes_1_depthwise': f'{heads[0]}.0.0',
        'box_predictor/classes_1_depthwise_bn': f'{heads[0]}.0.1',
        'box_predictor/classes_1': f'{heads[0]}.1',
        'box_predictor/box_codes_1_depthwise_bn': f'{heads[1]}.0.1',
        'box_predictor/box_codes_1': f'{heads[1]}.1',
    }
    keys = [f'{layer}.weight' for layer in expected.values()]
    # The least number of a map is that of the first one there.
    ours = [*expected, 'fpn/map_2_depthwise_bn', 'fpn/map_3_depthwise', 'fpn/map_3_conv']
    found = names.match(names.TORCHVISION_SSDLITE, ours, keys)
    assert {layer: theirs for layer, theirs, _ in found} == expected
