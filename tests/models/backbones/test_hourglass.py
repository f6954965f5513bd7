"""Stacked hourglass networks."""

import re

import pytest
import tensorflow as tf

from object_detection.meta_architectures.center_net.variable_names import CENTER_NET_NAMES
from object_detection.models.backbones import hourglass


@pytest.fixture(scope='module')
def small():
    """A network of two stacks."""
    variant = hourglass.Variant(4, (8, 8, 12), (2, 2, 1), stacks=2)
    return hourglass.trunk(variant, batch_norm_trainable=True, name='backbone')


def test_each_stack_has_a_map_of_stride_4(small):
    maps = small(tf.zeros([1, 32, 48, 3]))
    assert [tuple(each.shape) for each in maps] == [(1, 8, 12, 8)] * 2


def test_sizes_of_the_variants():
    assert hourglass.pad_multiple(hourglass.VARIANTS[10]) == 8
    assert hourglass.pad_multiple(hourglass.VARIANTS[104]) == 128
    assert hourglass.VARIANTS[104].channels == (256, 256, 384, 384, 384, 512)
    assert hourglass.VARIANTS[52].channels == (128, 128, 192, 192, 192, 256)


def test_layers_are_found_by_the_paths_of_checkpoints(small):
    layers = [f'backbone/{each.name}' for each in small.layers if each.weights]
    paths = CENTER_NET_NAMES.reference_paths(layers)
    assert set(paths) == set(layers)
    root = 'model/_feature_extractor/_network/'
    assert {path.removeprefix(root).split('/')[0] for path in paths.values()} == {
        'downsample_input',
        'hourglass_network',
        'output_conv',
        'intermediate_conv1',
        'intermediate_conv2',
        'intermediate_residual',
    }
    assert f'{root}hourglass_network/1/inner_block/0/decoder_block/1/skip/conv/' in paths.values()
    # The smallest scale has one block; no encoder at the same size projects its input.
    assert not any(re.search('encoder_block1/./skip', path) for path in paths.values())
