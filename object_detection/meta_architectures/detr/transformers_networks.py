"""Backbones of configs of transformers, as messages of ours; loads no TensorFlow."""

from collections.abc import Callable, Sequence
from typing import Any

from object_detection.errors import ConfigError
from object_detection.meta_architectures.detr.transformers_fields import Fields
from object_detection.models import map_strides
from object_detection.protos.detr_pb2 import Detr, DetrFeatureExtractor

# Without and with bottlenecks: the channels of the stages.
_BASIC, _BOTTLENECK = (64, 128, 256, 512), (256, 512, 1024, 2048)
# Networks of timm -> channels and depths of the stages.
_TIMM = {
    'resnet18': (_BASIC, (2, 2, 2, 2)),
    'resnet34': (_BASIC, (3, 4, 6, 3)),
    'resnet50': (_BOTTLENECK, (3, 4, 6, 3)),
    'resnet101': (_BOTTLENECK, (3, 4, 23, 3)),
    'resnet152': (_BOTTLENECK, (3, 8, 36, 3)),
}
_RGB = 3


def resnet(fields: Fields, extractor: DetrFeatureExtractor) -> list[int]:
    """Sets a ResNet of the kinds `rt_detr_resnet` and `resnet`; returns the strides of its maps."""
    sizes = extractor.resnet
    sizes.is_vd = fields.take('model_type') == 'rt_detr_resnet'
    sizes.embedding_size = fields.integer('embedding_size', 64, least=2)
    sizes.hidden_sizes.extend(fields.integers('hidden_sizes', _BOTTLENECK))
    sizes.depths.extend(fields.integers('depths', (3, 4, 6, 3)))
    kinds = ('bottleneck', 'basic')
    sizes.is_bottleneck = fields.choice('layer_type', kinds[0], kinds) == kinds[0]
    sizes.downsample_in_first_stage = fields.flag('downsample_in_first_stage', False)
    sizes.downsample_in_bottleneck = fields.flag('downsample_in_bottleneck', False)
    sizes.activation = fields.activation('hidden_act', 'relu')
    if len(sizes.hidden_sizes) != len(sizes.depths) or not sizes.depths:
        raise fields.error('hidden_sizes', f'one for each of depths, {list(sizes.depths)}')
    return map_strides.resnet(len(sizes.depths), sizes.downsample_in_first_stage)


def timm(fields: Fields, extractor: DetrFeatureExtractor) -> list[int]:
    """Sets a ResNet of timm; returns the strides of its maps."""
    name = fields.choice('backbone', 'resnet50', _TIMM)
    hidden_sizes, depths = _TIMM[name]
    why = 'networks of timm are those of the model card, whose weights are in the file'
    fields.only('features_only', True, why)
    fields.only('freeze_batch_norm_2d', False, 'the norms of DETR are frozen anyway')
    fields.only('output_stride', 32, 'convolutions that are dilated (DC5) are not built')
    sizes = extractor.resnet
    sizes.is_vd, sizes.is_bottleneck = False, hidden_sizes == _BOTTLENECK
    sizes.hidden_sizes.extend(hidden_sizes)
    sizes.depths.extend(depths)
    return map_strides.resnet(len(depths), downsample_in_first_stage=False)


def hgnet_v2(fields: Fields, extractor: DetrFeatureExtractor) -> list[int]:
    """Sets an HGNetV2; returns the strides of its maps."""
    sizes = extractor.hgnet_v2
    stem_strides = fields.integers('stem_strides', (2, 1, 1, 2, 1))
    channels = fields.integers('stem_channels', (_RGB, 32, 48))
    if len(stem_strides) != 5:
        raise fields.error('stem_strides', 'five numbers')
    if len(channels) != 3 or channels[0] != _RGB:
        raise fields.error('stem_channels', f'three numbers, of which the first one is {_RGB}')
    sizes.stem_strides.extend(stem_strides)
    sizes.stem_channels.extend(channels)
    stages = len(fields.integers('depths', (3, 4, 6, 3)))
    for name, default in _STAGES.items():
        read = fields.flags if isinstance(default[0], bool) else fields.integers
        values = read(name, default)
        if len(values) != stages:
            raise fields.error(name, f'{stages} values, one a stage as in depths')
        getattr(sizes, name).extend(values)
    sizes.use_learnable_affine_block = fields.flag('use_learnable_affine_block', False)
    sizes.activation = fields.activation('hidden_act', 'relu')
    return map_strides.hgnet_v2(
        stem_strides, sizes.stage_downsample, sizes.stage_downsample_strides
    )


_STAGES: dict[str, Sequence] = {
    'stage_in_channels': (48, 128, 512, 1024),
    'stage_mid_channels': (48, 96, 192, 384),
    'stage_out_channels': (128, 512, 1024, 2048),
    'stage_num_blocks': (1, 1, 3, 1),
    'stage_downsample': (False, True, True, True),
    'stage_downsample_strides': (2, 2, 2, 2),
    'stage_light_block': (False, False, True, True),
    'stage_kernel_size': (3, 3, 5, 5),
    'stage_numb_of_layers': (6, 6, 6, 6),
}
# What a backbone would classify, or replace in the training of itself.
_OF_CLASSIFIERS = 'id2label num_labels use_mask_token'
# Kind -> the function, and names of fields that the network of a detector does not read.
_NETWORKS: dict[str, tuple[Callable[[Fields, DetrFeatureExtractor], list[int]], str]] = {
    'rt_detr_resnet': (resnet, ''),
    'resnet': (resnet, ''),
    'hgnet_v2': (hgnet_v2, 'embedding_size hidden_sizes'),
    'timm_backbone': (timm, 'out_indices'),
}


def with_levels(
    values: Any, kinds: Sequence[str], detr: Detr, *, last_alone: bool = False
) -> list[str]:
    """Sets the backbone of a detector that takes maps of several strides, and their levels.

    Args:
      values: the object `backbone_config`.
      kinds: the values of its `model_type` that the detector may have.
      detr: its message.
      last_alone: whether only the last map is taken.

    Returns:
      The paths of fields that nothing has read.

    Raises:
      ConfigError: if a field is of another kind than expected, or asks for what is not built.
    """
    path, extractor = 'backbone_config', detr.feature_extractor
    kind = Fields(values, path).choice('model_type', '', kinds)
    build, without_effect = _NETWORKS[kind]
    fields = Fields(values, path, f'{_OF_CLASSIFIERS} {without_effect}')
    fields.only('num_channels', _RGB, 'images have red, green and blue')
    found = build(fields, extractor)
    # All of timm are taken, of which DETR takes the last one.
    indices = [len(found) - 1]
    if kind != 'timm_backbone':
        indices = outputs(fields, len(found) - 1)
    for index in indices[-1:] if last_alone else indices:
        stride = found[index]
        is_last = found[index + 1 :].count(stride) == 0
        if not is_last or stride & (stride - 1) or not 2 <= stride <= 64:
            raise fields.error(
                'out_features' if 'out_features' in fields else 'out_indices',
                f'maps, each the last one of its stride, of the strides {found}',
            )
        extractor.levels.append(stride.bit_length() - 1)
    return fields.unknown()


def outputs(fields: Fields, count: int) -> list[int]:
    """Returns which maps a backbone returns: 0 is its stem, i the i-th of its `count` stages."""
    names = ['stem', *(f'stage{i}' for i in range(1, count + 1))]
    features, indices = fields.take('out_features'), fields.take('out_indices')
    found = [count]
    if indices is not None:
        is_list = isinstance(indices, Sequence) and not isinstance(indices, str)
        places = range(-len(names), len(names))
        if not is_list or not all(type(each) is int and each in places for each in indices):
            raise fields.error('out_indices', f'a list of numbers from 0 to {count}')
        found = [each % len(names) for each in indices]
    if features is not None:
        if not isinstance(features, list) or not all(each in names for each in features):
            raise fields.error('out_features', f'a list of some of stem, stage1 ... stage{count}')
        of_names = [names.index(each) for each in features]
        if indices is not None and of_names != found:
            raise fields.error('out_features', f'the same maps as out_indices, {found}')
        found = of_names
    if not found or found != sorted(set(found)):
        name = 'out_indices' if features is None else 'out_features'
        raise fields.error(name, 'maps in rising order')
    return found


# What RF-DETR takes where there is no `backbone_config`.
_DEFAULT_DINOV2 = {
    'model_type': 'rf_detr_dinov2',
    'num_attention_heads': 6,
    'out_features': ['stage2', 'stage5', 'stage8', 'stage11'],
    'hidden_size': 384,
    'image_size': 518,
}


def dinov2(values: Any, detr: Detr) -> list[str]:
    """Sets the DINOv2 of RF-DETR; as `with_levels`."""
    values = _DEFAULT_DINOV2 if values is None else values
    fields = Fields(values, 'backbone_config', _OF_CLASSIFIERS)
    fields.choice('model_type', '', ('rf_detr_dinov2',))
    fields.only('num_channels', _RGB, 'images have red, green and blue')
    for name in ('hidden_dropout_prob', 'attention_probs_dropout_prob'):
        fields.only(name, 0, 'dropout in the backbone is not built')
    fields.only('reshape_hidden_states', True, 'the projector needs maps')
    fields.only('num_register_tokens', 0, 'transformers has none in this network')
    sizes = detr.feature_extractor.dinov2
    sizes.hidden_size = fields.integer('hidden_size', 768)
    sizes.num_hidden_layers = fields.integer('num_hidden_layers', 12)
    sizes.num_attention_heads = fields.integer('num_attention_heads', 12)
    sizes.mlp_ratio = fields.number('mlp_ratio', 4)
    sizes.patch_size = _square(fields, 'patch_size', 14)
    sizes.image_size = _square(fields, 'image_size', 224)
    sizes.num_windows = fields.integer('num_windows', 4)
    sizes.layerscale_value = fields.number('layerscale_value', 1)
    sizes.use_swiglu_ffn = fields.flag('use_swiglu_ffn', False)
    sizes.layer_norm_eps = fields.number('layer_norm_eps', 1e-6)
    sizes.qkv_bias = fields.flag('qkv_bias', True)
    sizes.apply_layernorm = fields.flag('apply_layernorm', True)
    sizes.drop_path_rate = fields.number('drop_path_rate', 0)
    sizes.activation = fields.activation('hidden_act', 'gelu')
    if sizes.hidden_size % sizes.num_attention_heads:
        raise fields.error('num_attention_heads', f'a divisor of hidden_size, {sizes.hidden_size}')
    blocks = outputs(fields, sizes.num_hidden_layers)
    if not blocks[0]:
        raise ConfigError(f'{fields.where("out_features")}: the stem is not built as a map.')
    sizes.blocks.extend(blocks)
    others = [i for i in range(blocks[-1] + 1) if i not in blocks]
    windows = sorted(set(fields.integers('window_block_indexes', others, least=0)))
    sizes.window_blocks.extend(i for i in windows if i < sizes.num_hidden_layers)
    return fields.unknown()


def _square(fields: Fields, name: str, default: int) -> int:
    """Returns the side of a square, which may be given as two equal numbers."""
    value = fields.take(name, default)
    if isinstance(value, list | tuple):
        sides = fields.integers(name, ())
        if len(sides) != 2 or sides[0] != sides[1]:
            raise fields.error(name, 'one number, or two that are equal')
        return sides[0]
    return fields.integer(name, default)
