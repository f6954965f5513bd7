"""The message Detr of a config.json of transformers."""

import contextlib
import json

import numpy as np
import pytest

from object_detection.config import overrides
from object_detection.errors import ConfigError
from object_detection.meta_architectures.detr import transformers_config
from object_detection.meta_architectures.detr.transformers_config import translate
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from tests import rows
from tests.conftest import SHARED
from tests.meta_architectures.detr.transformers_configs import CONFIGS, STAGES, config

KINDS = tuple(CONFIGS)


def value_of(message, path):
    for name in path.split('.'):
        message = getattr(message, name)
    return message if isinstance(message, str | int | float) else list(message)


# Kind, field of the file and its value, field here and its value, which is no default of ours.
TRANSLATED = [
    ('rt_detr', {'num_queries': 7}, 'queries.count', 7),
    ('rt_detr', {'num_denoising': 9}, 'queries.denoising', 9),
    ('rt_detr', {'label_noise_ratio': 0.25}, 'queries.label_noise', 0.25),
    ('rt_detr', {'box_noise_scale': 0.5}, 'queries.box_noise', 0.5),
    ('rt_detr', {'learn_initial_query': True}, 'queries.learned_contents', True),
    ('rt_detr', {'layer_norm_eps': 0.5}, 'layer_norm_epsilon', 0.5),
    ('rt_detr', {'batch_norm_eps': 0.5}, 'batch_norm_epsilon', 0.5),
    ('rt_detr', {'freeze_backbone_batch_norms': False}, 'feature_extractor.freeze_norms', False),
    ('rt_detr', {'encoder_ffn_dim': 12}, 'encoder.hybrid.hidden', 12),
    ('rt_detr', {'encoder_layers': 0}, 'encoder.hybrid.num_layers', 0),
    ('rt_detr', {'encoder_attention_heads': 4}, 'encoder.hybrid.num_heads', 4),
    ('rt_detr', {'encode_proj_layers': [1, 2]}, 'encoder.hybrid.attended_maps', [1, 2]),
    ('rt_detr', {'positional_encoding_temperature': 9}, 'encoder.hybrid.positional_temperature', 9),
    (
        'rt_detr',
        {'encoder_activation_function': 'relu'},
        'encoder.hybrid.attention_activation',
        'relu',
    ),
    ('rt_detr', {'activation_function': 'gelu'}, 'encoder.hybrid.activation', 'gelu'),
    ('rt_detr', {'normalize_before': True}, 'encoder.hybrid.normalize_before', True),
    ('rt_detr', {'hidden_expansion': 0.5}, 'encoder.hybrid.expansion', 0.5),
    ('rt_detr', {'d_model': 24}, 'decoder.width', 24),
    ('rt_detr', {'decoder_layers': 3}, 'decoder.num_layers', 3),
    ('rt_detr', {'decoder_ffn_dim': 12}, 'decoder.hidden', 12),
    ('rt_detr', {'decoder_attention_heads': 4}, 'decoder.num_heads', 4),
    ('rt_detr', {'decoder_activation_function': 'swish'}, 'decoder.activation', 'silu'),
    ('rt_detr', {'decoder_n_points': 3}, 'decoder.deformable_attention.points', [3]),
    ('rt_detr', {'num_feature_levels': 4}, 'decoder.deformable_attention.num_maps', 4),
    ('rt_detr', {'focal_loss_alpha': 0.5}, 'loss.alpha', 0.5),
    ('rt_detr', {'focal_loss_gamma': 1}, 'loss.gamma', 1),
    ('rt_detr', {'weight_loss_vfl': 3}, 'loss.class_weight', 3),
    ('rt_detr', {'weight_loss_bbox': 3}, 'loss.l1_weight', 3),
    ('rt_detr', {'weight_loss_giou': 3}, 'loss.giou_weight', 3),
    ('rt_detr', {'auxiliary_loss': False}, 'loss.auxiliary', False),
    ('rt_detr', {'matcher_class_cost': 3}, 'loss.class_cost', 3),
    ('rt_detr', {'matcher_bbox_cost': 3}, 'loss.l1_cost', 3),
    ('rt_detr', {'matcher_giou_cost': 3}, 'loss.giou_cost', 3),
    ('rt_detr', {'matcher_alpha': 0.5}, 'loss.cost_alpha', 0.5),
    ('rt_detr', {'matcher_gamma': 3}, 'loss.cost_gamma', 3),
    ('rt_detr_v2', {}, 'decoder.deformable_attention.method', 1),
    ('rt_detr_v2', {'decoder_offset_scale': 2}, 'decoder.deformable_attention.offset_scale', 2),
    ('d_fine', {}, 'decoder.deformable_attention.points', [2, 3, 1]),
    ('d_fine', {}, 'decoder.deformable_attention.has_projections', False),
    ('d_fine', {'depth_mult': 0.5}, 'encoder.hybrid.depth_multiplier', 0.5),
    ('d_fine', {'reg_scale': 8}, 'decoder.fine_distributions.scale', 8),
    ('d_fine', {'up': 0.25}, 'decoder.fine_distributions.up', 0.25),
    ('d_fine', {'max_num_bins': 16}, 'decoder.fine_distributions.bins', 16),
    ('d_fine', {'top_prob_values': 2}, 'decoder.fine_distributions.quality_top', 2),
    ('d_fine', {'lqe_hidden_dim': 8}, 'decoder.fine_distributions.quality_hidden', 8),
    ('d_fine', {'lqe_layers': 3}, 'decoder.fine_distributions.quality_layers', 3),
    ('d_fine', {'weight_loss_fgl': 3}, 'loss.fine_grained_weight', 3),
    ('d_fine', {'weight_loss_ddf': 3}, 'loss.distillation_weight', 3),
    ('d_fine', {}, 'loss.pairs_layers', False),
    ('rf_detr', {'dropout': 0.25}, 'decoder.dropout', 0.25),
    ('rf_detr', {'group_detr': 3}, 'queries.groups', 3),
    ('rf_detr', {'c2f_num_blocks': 2}, 'encoder.projector.num_blocks', 2),
    ('rf_detr', {'hidden_expansion': 0.25}, 'encoder.projector.expansion', 0.25),
    ('rf_detr', {'decoder_self_attention_heads': 4}, 'decoder.num_heads', 4),
    ('rf_detr', {'decoder_cross_attention_heads': 8}, 'decoder.deformable_attention.num_heads', 8),
    ('rf_detr', {'focal_alpha': 0.5}, 'loss.alpha', 0.5),
    ('rf_detr', {'class_loss_coefficient': 3}, 'loss.class_weight', 3),
    ('rf_detr', {'bbox_loss_coefficient': 3}, 'loss.l1_weight', 3),
    ('rf_detr', {'class_cost': 3}, 'loss.class_cost', 3),
    ('rf_detr', {}, 'feature_extractor.dinov2.blocks', [1, 3]),
    ('rf_detr', {}, 'feature_extractor.dinov2.window_blocks', [0, 2]),
    ('detr', {}, 'num_classes', 3),
    ('detr', {'position_embedding_type': 'learned'}, 'encoder.transformer.learned_positions', True),
    ('detr', {'encoder_layers': 3}, 'encoder.transformer.num_layers', 3),
    ('detr', {'encoder_layers': None, 'num_hidden_layers': 3}, 'encoder.transformer.num_layers', 3),
    ('detr', {'dropout': 0.25}, 'encoder.transformer.dropout', 0.25),
    ('detr', {'dropout': 0.25}, 'decoder.dropout', 0.25),
    ('detr', {'activation_function': 'gelu'}, 'encoder.transformer.activation', 'gelu'),
    ('detr', {'eos_coefficient': 0.5}, 'loss.background_weight', 0.5),
    ('detr', {'giou_cost': 3}, 'loss.giou_cost', 3),
    ('detr', {}, 'feature_extractor.levels', [5]),
]


@rows.parametrize(('kind', 'changes', 'path', 'expected'), TRANSLATED)
def test_a_field_is_translated(kind, changes, path, expected):
    found = translate(config(kind, **changes))
    assert value_of(found.detr, path) == expected
    assert not found.unknown


# Of the backbone.
@rows.parametrize(
    ('kind', 'changes', 'path', 'expected'),
    [
        ('rt_detr', {'embedding_size': 8}, 'resnet.embedding_size', 8),
        ('rt_detr', {'depths': [1, 2, 1, 1]}, 'resnet.depths', [1, 2, 1, 1]),
        ('rt_detr', {'layer_type': 'basic'}, 'resnet.is_bottleneck', False),
        ('rt_detr', {'hidden_act': 'silu'}, 'resnet.activation', 'silu'),
        ('rt_detr', {'downsample_in_first_stage': True}, 'resnet.downsample_in_first_stage', True),
        ('rt_detr', {'downsample_in_first_stage': True}, 'levels', [4, 5, 6]),
        ('rt_detr', {'downsample_in_bottleneck': True}, 'resnet.downsample_in_bottleneck', True),
        ('rt_detr', {'out_features': None, 'out_indices': [-3, -2, -1]}, 'levels', [3, 4, 5]),
        ('detr', {}, 'resnet.is_vd', False),
        ('d_fine', {'stage_kernel_size': [3, 3, 3, 7]}, 'hgnet_v2.stage_kernel_size', [3, 3, 3, 7]),
        ('d_fine', {'stage_downsample': [True] * 4}, 'levels', [4, 5, 6]),
        ('d_fine', {}, 'hgnet_v2.use_learnable_affine_block', True),
        ('rf_detr', {'use_swiglu_ffn': True}, 'dinov2.use_swiglu_ffn', True),
        ('rf_detr', {'patch_size': [8, 8]}, 'dinov2.patch_size', 8),
        ('rf_detr', {'drop_path_rate': 0.25}, 'dinov2.drop_path_rate', 0.25),
        ('rf_detr', {'qkv_bias': False}, 'dinov2.qkv_bias', False),
        ('rf_detr', {'mlp_ratio': 2}, 'dinov2.mlp_ratio', 2),
        ('rf_detr', {'window_block_indexes': [1]}, 'dinov2.window_blocks', [1]),
    ],
)
def test_a_field_of_the_backbone_is_translated(kind, changes, path, expected):
    found = translate(config(kind, backbone_of=changes))
    assert value_of(found.detr.feature_extractor, path) == expected


REFUSED = [
    ('rt_detr', {'attention_dropout': 0.1}, 'attention_dropout: expected 0; dropout of attention'),
    ('rt_detr', {'dropout': 0.1}, 'dropout: expected 0'),
    ('rt_detr', {'activation_dropout': 0.1}, 'activation_dropout: expected 0'),
    ('rt_detr', {'eval_size': [640, 640]}, 'eval_size: expected none'),
    ('rt_detr', {'anchor_image_size': [640, 640]}, 'anchor_image_size: expected none'),
    ('rt_detr', {'use_focal_loss': False}, 'use_focal_loss: expected true'),
    ('rt_detr', {'decoder_in_channels': [16, 16, 8]}, 'decoder_in_channels: expected 16 alone'),
    ('rt_detr', {'decoder_in_channels': [16, 16]}, 'decoder_in_channels: expected 3 numbers'),
    ('rt_detr', {'encoder_in_channels': [8, 16]}, 'encoder_in_channels: expected 3 numbers'),
    ('rt_detr', {'num_feature_levels': 2}, 'deformable_attention.num_maps: expected at least 3'),
    ('rt_detr', {'encode_proj_layers': [3]}, 'attended_maps: expected ascending'),
    ('rt_detr', {'use_timm_backbone': True}, 'use_timm_backbone: expected false'),
    ('rt_detr', {'backbone': 'resnet50'}, 'backbone: expected none'),
    ('rt_detr', {'activation_function': 'mish'}, 'activation_function: expected one of relu'),
    ('rt_detr', {'d_model': 10}, 'decoder.width: expected a multiple'),
    ('rt_detr', {'hidden_size': 20}, 'hidden_size: expected 16, as d_model. Received: 20'),
    ('rt_detr_v2', {'decoder_method': 'nearest'}, 'decoder_method: expected one of default'),
    ('rt_detr_v2', {'decoder_n_levels': 4}, 'decoder_n_levels: expected 3'),
    ('rt_detr_v2', {'num_feature_levels': 4}, 'decoder_n_levels: expected 4'),
    ('d_fine', {'eval_idx': 0}, 'eval_idx: expected -1 or 1'),
    ('d_fine', {'num_feature_levels': 4}, 'num_feature_levels: expected 3|decoder_n_points'),
    ('d_fine', {'decoder_n_points': [4, 4]}, 'decoder_n_points: expected 3 numbers'),
    ('d_fine', {'max_num_bins': 9}, 'bins: expected an even number'),
    ('rf_detr', {'num_feature_levels': 2}, 'num_feature_levels: expected 1'),
    ('rf_detr', {'attention_bias': False}, 'attention_bias: expected true'),
    ('rf_detr', {'layer_norm_eps': 1e-6}, 'layer_norm_eps: expected 1e-05'),
    ('rf_detr', {'attention_dropout': 0.1}, 'attention_dropout: expected 0'),
    ('rf_detr', {'auxiliary_loss': False}, 'auxiliary_loss: expected true'),
    ('detr', {'dilation': True}, 'dilation: expected false'),
    ('detr', {'decoder_layerdrop': 0.1}, 'decoder_layerdrop: expected 0'),
    ('detr', {'num_channels': 1}, 'num_channels: expected 3'),
    ('detr', {'position_embedding_type': 'none'}, 'position_embedding_type: expected one of'),
    ('detr', {'backbone_config': None, 'use_timm_backbone': True, 'backbone': 'vgg'},
     r'backbone_config\.backbone: expected one of resnet18'),
    ('rt_detr', {'model_type': 'conditional_detr'}, 'model_type: expected one of rt_detr'),
    ('rt_detr', {'model_type': ['rt_detr']}, 'model_type: expected one of'),
    ('rt_detr', {'num_queries': True}, 'num_queries: expected a whole number'),
    ('rt_detr', {'num_queries': '300'}, 'num_queries: expected a whole number'),
    ('rt_detr', {'num_queries': 0}, 'num_queries: expected a whole number from 1'),
    ('rt_detr', {'num_queries': 10**30}, 'num_queries: expected a whole number'),
    ('rt_detr', {'num_queries': float('nan')}, 'num_queries: expected a whole number'),
    ('rt_detr', {'layer_norm_eps': float('inf')}, 'layer_norm_eps: expected a number'),
    ('rt_detr', {'layer_norm_eps': 0}, 'layer_norm_epsilon: expected'),
    ('rt_detr', {'label_noise_ratio': 2}, 'label_noise: expected'),
    ('rt_detr', {'normalize_before': 1}, 'normalize_before: expected true or false'),
    ('rt_detr', {'encode_proj_layers': 2}, 'encode_proj_layers: expected a list'),
    ('rt_detr', {'encode_proj_layers': '2'}, 'encode_proj_layers: expected a list'),
    ('rt_detr', {'id2label': ['cat']}, 'id2label: expected an object'),
    ('rt_detr', {'id2label': {}}, 'id2label: expected an object of 1'),
    ('rt_detr', {'id2label': {'1': 'cat'}}, 'id2label: expected names for the numbers 0 to 0'),
    ('rt_detr', {'id2label': {'0': 7}}, r'id2label\.0: expected a name'),
    ('rt_detr', {'num_labels': 4}, 'num_labels: expected 3'),
    ('rt_detr', {'backbone_config': 'resnet'}, 'backbone_config: expected an object of JSON'),
    ('rt_detr', {'backbone_of': {'model_type': 'swin'}}, r'backbone_config\.model_type: expected'),
    ('rt_detr', {'backbone_of': {'num_channels': 4}}, r'backbone_config\.num_channels: expected 3'),
    ('rt_detr', {'backbone_of': {'layer_type': 'wide'}}, r'layer_type: expected one of'),
    ('rt_detr', {'backbone_of': {'hidden_sizes': [8]}}, r'hidden_sizes: expected one for each'),
    ('rt_detr', {'backbone_of': {'out_features': ['stage9']}}, 'out_features: expected a list of'),
    ('rt_detr', {'backbone_of': {'out_features': ['stem', 'stage1', 'stage2']}},
     'out_features: expected maps, each the last one of its stride'),
    ('rt_detr', {'backbone_of': {'out_features': STAGES[::-1]}},
     'out_features: expected maps in rising order'),
    ('rt_detr', {'backbone_of': {'out_indices': [1, 2, 3]}}, 'the same maps as out_indices'),
    ('d_fine', {'backbone_of': {'stage_num_blocks': [1]}}, 'stage_num_blocks: expected 4 values'),
    ('d_fine', {'backbone_of': {'stem_strides': [2, 1]}}, 'stem_strides: expected five'),
    ('d_fine', {'backbone_of': {'stage_light_block': [1] * 4}}, 'stage_light_block: expected a'),
    ('rf_detr', {'backbone_of': {'hidden_dropout_prob': 0.1}}, 'hidden_dropout_prob: expected 0'),
    ('rf_detr', {'backbone_of': {'patch_size': [8, 16]}}, 'patch_size: expected one number'),
    ('rf_detr', {'backbone_of': {'out_features': ['stem']}}, 'the stem is not built'),
    ('rf_detr', {'backbone_of': {'num_attention_heads': 3}}, 'num_attention_heads: expected a div'),
]  # fmt: skip


@rows.parametrize(('kind', 'changes', 'message'), REFUSED)
def test_what_is_not_built_is_refused(kind, changes, message):
    with pytest.raises(ConfigError, match=message):
        translate(config(kind, **changes))


@rows.parametrize('values', [None, 3, [], 'rt_detr', {3: 4}, {}])
def test_what_is_no_config_is_refused(values):
    with pytest.raises(ConfigError, match='expected'):
        translate(values)


def test_fields_without_effect_are_left_and_unknown_ones_listed():
    changes = {'architectures': ['X'], 'eos_coefficient': 3, 'layer_scale': 2, 'two_stage': True}
    found = translate(config('rt_detr', **changes, backbone_of={'id2label': {}, 'groups': 2}))
    assert found.detr == translate(config('rt_detr')).detr
    assert found.unknown == ['two_stage', 'backbone_config.groups']
    assert found.labels == ['cat', 'dog', 'cow']


def test_the_first_published_file_of_detr_names_a_network_of_timm():
    values = config(
        'detr',
        backbone_config=None,
        use_timm_backbone=None,
        backbone='resnet50',
        max_position_embeddings=1024,
        scale_embedding=False,
        num_hidden_layers=1,
        classifier_dropout=0.0,
    )
    found = translate(values)
    assert not found.unknown
    extractor = found.detr.feature_extractor
    assert list(extractor.resnet.depths) == [3, 4, 6, 3]
    assert (extractor.resnet.is_vd, extractor.resnet.is_bottleneck) == (False, True)
    assert list(extractor.levels) == [5]
    values['use_timm_backbone'] = True
    assert translate(values).detr == found.detr
    assert translate(values | {'backbone': None}).detr == found.detr


@rows.parametrize('kind', KINDS)
def test_stem_and_first_stage_of_detr_do_not_train(kind):
    """Whether a file names its network by timm or by its sizes."""
    files = [config(kind)]
    if kind == 'detr':
        files.append(config(kind, backbone_config=None, use_timm_backbone=True))
    for values in files:
        extractor = translate(values).detr.feature_extractor
        assert extractor.frozen_stages == (2 if kind == 'detr' else 0)


def test_without_fields_all_is_as_the_class_has_it():
    """Of each class one number that is no default of ours."""
    for kind, path, expected in (
        ('rt_detr', 'feature_extractor.resnet.depths', [3, 4, 6, 3]),
        ('rt_detr_v2', 'decoder.deformable_attention.stores_point_scales', True),
        ('d_fine', 'feature_extractor.hgnet_v2.stage_numb_of_layers', [6, 6, 6, 6]),
        ('rf_detr', 'feature_extractor.dinov2.blocks', [2, 5, 8, 11]),
        ('detr', 'encoder.transformer.width', 256),
    ):
        found = translate({'model_type': kind})
        assert value_of(found.detr, path) == expected
        assert found.labels == ['LABEL_0', 'LABEL_1']


def recordings():
    return sorted((SHARED / 'goldens' / 'peers').glob('transformers_*.json'))


def test_recorded_configs_say_the_same_whole_and_short():
    """A file as published has only what differs from the defaults of its class."""
    if not recordings():
        pytest.skip('needs ../shared/goldens/peers, recorded detectors of transformers')
    for path in recordings():
        about = json.loads(path.read_text())
        whole = translate(about['full_config'])
        assert whole.detr == translate(about['config']).detr
        assert not whole.unknown
        assert whole.detr.num_classes == len(about['full_config']['id2label'])


def test_random_values_are_translated_or_refused():
    """Nothing but a ConfigError, whatever a file says."""
    random = np.random.default_rng(3)
    values = [None, True, -1, 0, 1e9, 10**400, 'x', '', [], [1, 'a'], {}, {'0': None}, [[1]], 0.5]
    for kind in KINDS:
        names = [*CONFIGS[kind], *transformers_config._HYBRID_UNUSED.split()]
        inner = list(CONFIGS[kind]['backbone_config'])
        for _ in range(150):
            changes = config(kind)
            target, keys = (
                (changes, names) if random.random() < 0.6 else (changes['backbone_config'], inner)
            )
            target[keys[random.integers(len(keys))]] = values[random.integers(len(values))]
            with contextlib.suppress(ConfigError):
                translate(changes)


def test_a_translated_message_is_valid_text():
    for kind in KINDS:
        pipeline = TrainEvalPipelineConfig()
        pipeline.model.detr.CopyFrom(translate(config(kind)).detr)
        overrides.apply_setting(pipeline, 'model.detr.queries.count=9')
        assert pipeline.model.detr.queries.count == 9
