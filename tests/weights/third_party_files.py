"""Weights of a ResNet, written as other systems write them."""

import numpy as np
import tensorflow as tf

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_NORM = ('gamma', 'beta', 'moving_mean', 'moving_variance')

# Channels of the stages of `resnet_v1`, for tests that need all its layers and no size.
NARROW = {2: 2, 3: 3, 4: 4, 5: 5}


def layers(depth):
    """Yields 'conv1' and then each unit's layers, the shortcut first, as (stage, block, k)."""
    yield None
    for stage, count in enumerate(BLOCKS[depth], start=2):
        for block in range(1, count + 1):
            yield from ((stage, block, k) for k in range(0 if block == 1 else 1, 4))


def _ours(layer):
    return 'conv1' if layer is None else 'conv{}_block{}_{}'.format(*layer)


def nvidia(layer, _):
    if layer is None:
        base = 'conv2d'
    else:
        stage, block, k = layer
        unit = f'btlnck_block_{stage - 2}_{block - 1}'
        base = f'{unit}/bottleneck_{k}' if k else f'{unit}/shortcut/conv2d'
    norms = {name: f'resnet50/{base}/BatchNorm/{name}' for name in _NORM}
    return f'resnet50/{base}/conv2d/kernel', norms


def tpu(layer, number, scope=''):
    suffix = f'_{number}' if number else ''
    norms = {name: f'{scope}batch_normalization{suffix}/{name}' for name in _NORM}
    return f'{scope}conv2d{suffix}/kernel', norms


def habana(layer, number):
    return tpu(layer, number, 'resnet50/')


def slim(layer, _, scope='resnet_v1_50'):
    base = f'{scope}/conv1'
    if layer is not None:
        stage, block, k = layer
        unit = f'{scope}/block{stage - 1}/unit_{block}/bottleneck_v1'
        base = f'{unit}/conv{k}' if k else f'{unit}/shortcut'
    return f'{base}/weights', {name: f'{base}/BatchNorm/{name}' for name in _NORM}


def slim_detector(layer, _):
    second = layer is not None and layer[0] == 5
    return slim(layer, _, f'{"Second" if second else "First"}StageFeatureExtractor/resnet_v1_50')


def tensorpack(layer, _):
    base = 'conv0'
    if layer is not None:
        stage, block, k = layer
        base = f'group{stage - 2}/block{block - 1}/conv{k or "shortcut"}'
    names = {'moving_mean': 'mean/EMA', 'moving_variance': 'variance/EMA'}
    return f'{base}/W', {name: f'{base}/bn/{names.get(name, name)}' for name in _NORM}


def names(system, depth):
    """Returns our name -> theirs, of all variables."""
    found = {}
    for number, layer in enumerate(layers(depth)):
        kernel, norms = system(layer, number)
        found[f'{_ours(layer)}_conv/kernel'] = kernel
        found |= {f'{_ours(layer)}_bn/{name}': theirs for name, theirs in norms.items()}
    return found


def random_weights(detector):
    """Returns random values of its backbone, 'conv1_conv/kernel' -> array."""
    rng = np.random.default_rng(0)
    weights = {}
    for name, variable in detector.named_variables().items():
        part, _, layer = name.partition('/')
        if part != 'backbone':
            continue
        low, high = (0.5, 1.5) if name.endswith(('gamma', 'variance')) else (-0.5, 0.5)
        weights[layer] = rng.uniform(low, high, variable.shape).astype(np.float32)
    return weights


def write_checkpoint(path, arrays, *, single_file=False):
    """Writes a checkpoint of names, in the format of two files or the older one of one."""
    tensors = [tf.constant(array) for array in arrays.values()]
    if single_file:
        tf.raw_ops.Save(filename=str(path), tensor_names=list(arrays), data=tensors)
    else:
        tf.raw_ops.SaveV2(
            prefix=str(path),
            tensor_names=list(arrays),
            shape_and_slices=[''] * len(arrays),
            tensors=tensors,
        )
    return str(path)


def write_npz(path, arrays):
    np.savez(path, **arrays)
    return str(path)
