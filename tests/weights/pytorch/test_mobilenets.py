"""MobileNet v3 of torchvision: names of a classifier, of Faster R-CNN and of SSDLite."""

import re

import pytest

from object_detection.weights.pytorch import mobilenet_names

NORM = ('weight', 'bias', 'running_mean', 'running_var')


def of_unit(scope):
    return [f'{scope}.0.weight', *(f'{scope}.1.{name}' for name in NORM)]


def of_classifier():
    """Of a convolution, a block of two units, one of four with squeeze, and a last one."""
    names = [*of_unit('features.0'), *of_unit('features.16')]
    names += [*of_unit('features.1.block.0'), *of_unit('features.1.block.1')]
    for part in (0, 1, 3):
        names += of_unit(f'features.13.block.{part}')
    squeeze = 'features.13.block.2'
    return names + [f'{squeeze}.{fc}.{name}' for fc in ('fc1', 'fc2') for name in NORM[:2]]


def of_body(name):
    return name.replace('features.', 'backbone.body.')


def of_ssd(name):
    name = name.replace('features.13.block.0.', 'features.0.13.')
    name = name.replace('features.13.block.', 'features.1.0.')
    name = name.replace('features.16.', 'features.1.3.')
    return 'backbone.' + re.sub(r'^features\.(0\.[01]\.\w+$|1\.block)', r'features.0.\1', name)


@pytest.mark.parametrize('rename', [str, of_body, of_ssd])
def test_names_are_ours(rename):
    names = {rename(name): name for name in of_classifier()}
    assert len(names) == len(of_classifier())
    found = mobilenet_names.translate([*names, rename('features.0.1.num_batches_tracked')])
    ours = {key: names[name] for key, name in found.items()}
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
