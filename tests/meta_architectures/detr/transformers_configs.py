"""The config.json of small detection transformers."""

import copy

STAGES = ['stage2', 'stage3', 'stage4']
RESNET_D = {
    'model_type': 'rt_detr_resnet',
    'embedding_size': 8,
    'hidden_sizes': [8, 8, 16, 24],
    'depths': [1, 1, 1, 1],
    'layer_type': 'basic',
    'out_features': STAGES,
}
HGNET_V2 = {
    'model_type': 'hgnet_v2',
    'stem_channels': [3, 8, 8],
    'stage_in_channels': [8, 8, 16, 16],
    'stage_mid_channels': [4, 4, 8, 8],
    'stage_out_channels': [8, 16, 16, 24],
    'stage_num_blocks': [1, 1, 1, 1],
    'stage_numb_of_layers': [1, 2, 1, 1],
    'use_learnable_affine_block': True,
    'out_indices': [2, 3, 4],
}
_HYBRID = {
    'id2label': {'0': 'cat', '1': 'dog', '2': 'cow'},
    'encoder_hidden_dim': 16,
    'encoder_in_channels': [8, 16, 24],
    'decoder_in_channels': [16, 16, 16],
    'd_model': 16,
    'encoder_ffn_dim': 8,
    'decoder_ffn_dim': 8,
    'encoder_attention_heads': 2,
    'decoder_attention_heads': 2,
    'decoder_layers': 2,
    'decoder_n_points': 2,
    'num_queries': 5,
    'num_denoising': 3,
}
CONFIGS = {
    'rt_detr': {'model_type': 'rt_detr', 'backbone_config': RESNET_D, **_HYBRID},
    'rt_detr_v2': {
        'model_type': 'rt_detr_v2',
        'backbone_config': RESNET_D,
        **_HYBRID,
        'decoder_method': 'discrete',
    },
    'd_fine': {
        'model_type': 'd_fine',
        'backbone_config': HGNET_V2,
        **_HYBRID,
        'decoder_n_points': [2, 3, 1],
        'depth_mult': 0.34,
        'lqe_hidden_dim': 4,
        'max_num_bins': 8,
    },
    'rf_detr': {
        'model_type': 'rf_detr',
        'id2label': {'0': 'cat', '1': 'dog', '2': 'cow'},
        'backbone_config': {
            'model_type': 'rf_detr_dinov2',
            'hidden_size': 16,
            'num_hidden_layers': 3,
            'num_attention_heads': 2,
            'image_size': 64,
            'patch_size': 16,
            'num_windows': 2,
            'out_features': ['stage1', 'stage3'],
        },
        'd_model': 16,
        'decoder_ffn_dim': 8,
        'decoder_layers': 2,
        'decoder_self_attention_heads': 2,
        'decoder_cross_attention_heads': 4,
        'decoder_n_points': 2,
        'c2f_num_blocks': 1,
        'num_queries': 5,
        'group_detr': 2,
        'dropout': 0.0,
    },
    'detr': {
        'model_type': 'detr',
        'id2label': {'0': 'N/A', '1': 'cat', '2': 'N/A'},
        'use_timm_backbone': False,
        'backbone_config': {
            **RESNET_D,
            'model_type': 'resnet',
            'hidden_sizes': [16, 16, 16, 24],
            'layer_type': 'bottleneck',
            'out_features': ['stage4'],
        },
        'd_model': 16,
        'encoder_layers': 1,
        'decoder_layers': 2,
        'encoder_ffn_dim': 8,
        'decoder_ffn_dim': 8,
        'encoder_attention_heads': 2,
        'decoder_attention_heads': 2,
        'num_queries': 5,
        'dropout': 0.0,
    },
}


def config(kind: str, **changes) -> dict:
    """Returns a copy of a config with other fields, `backbone_of` of its backbone; None is none."""
    found = copy.deepcopy(CONFIGS[kind])
    for name, value in changes.items():
        if name == 'backbone_of':
            found['backbone_config'] |= value
        elif value is None:
            del found[name]
        else:
            found[name] = value
    return found
