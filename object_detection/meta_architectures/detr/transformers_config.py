"""The message Detr of a config.json of transformers (5.24); loads no TensorFlow.

Such a file has the fields that differ from the defaults of its class, which are repeated here. A
field that changes what is computed is translated, or refused with an error that says why.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from google.protobuf.message import Message

from object_detection.config import ranges
from object_detection.errors import ConfigError, raise_if_any
from object_detection.meta_architectures.detr import rules, transformers_networks
from object_detection.meta_architectures.detr.transformers_fields import Fields, shown
from object_detection.protos.detr_pb2 import (
    DeformableAttention,
    Detr,
    DetrLoss,
    DetrQueries,
    HybridEncoder,
)

RT_DETR, RT_DETR_V2, D_FINE = 'rt_detr', 'rt_detr_v2', 'd_fine'
RF_DETR, DETR = 'rf_detr', 'detr'
_MOST_CLASSES = 10_000
_MOST_NAME = 1000
_UNIT = 1.0 / 255.0
# What images are normalised by where a file says no other numbers.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_TRAINING_ALONE = 'training drops results of layers alone, which `dropout` says'
_OF_BACKBONE_CONFIG = 'the network is that of backbone_config'
_NETWORKS = ('rt_detr_resnet', 'resnet', 'hgnet_v2')
# The stem and the first stage of DETR's network do not train.
_FROZEN_STAGES = 2
# Of detectors with a hybrid encoder; the number of `encoder_in_channels` alone matters.
_HYBRID_UNUSED = (
    'disable_custom_kernels eos_coefficient feat_strides head_dim layer_scale with_box_refine'
)
_RF_DETR_UNUSED = (
    'dice_loss_coefficient disable_custom_kernels eos_coefficient intermediate_size '
    'mask_class_loss_coefficient mask_dice_loss_coefficient mask_downsample_ratio '
    'mask_loss_coefficient mask_point_sample_ratio segmentation_head_activation_function'
)
_DETR_UNUSED = (
    'classifier_dropout dice_loss_coefficient mask_loss_coefficient max_position_embeddings'
)


class Translated(NamedTuple):
    """What a config.json says.

    Attributes:
      kind: its `model_type`.
      detr: the message, without an image resizer.
      labels: names of the classes.
      unknown: paths of fields that its class does not have, which were not read.
    """

    kind: str
    detr: Detr
    labels: list[str]
    unknown: list[str]


def translate(values: Mapping[str, Any]) -> Translated:
    """Translates a config.json.

    Args:
      values: its object.

    Raises:
      ConfigError: if a field is of another kind than expected, or asks for what is not built.
    """
    kind = Fields(values).choice('model_type', '', _KINDS)
    build, without_effect = _KINDS[kind]
    fields, detr = Fields(values, '', without_effect), Detr()
    names = _labels(fields)
    detr.num_classes = len(names)
    unknown = build(fields, detr, kind)
    raise_if_any(ranges.find(detr, path=rules.ROOT).errors)
    raise_if_any(f'{rules.ROOT}.{each}' for each in rules.problems_of_parts(detr))
    _leave_out_defaults(detr)
    return Translated(kind, detr, names, [*fields.unknown(), *unknown])


def _leave_out_defaults(message: Message) -> None:
    """Clears the fields that have the values of the schema anyway."""
    for field, value in message.ListFields():
        if field.is_repeated:
            continue
        if isinstance(value, Message):
            _leave_out_defaults(value)
        elif value == field.default_value:
            message.ClearField(field.name)


def _labels(fields: Fields) -> list[str]:
    """Returns the names of the classes, in their order."""
    count = None
    if 'num_labels' in fields:
        count = fields.integer('num_labels', 0)
    labels = fields.take('id2label')
    if labels is None:
        # transformers has two if nothing is said.
        return [f'LABEL_{i}' for i in range(count or 2)]
    if not isinstance(labels, Mapping) or not 1 <= len(labels) <= _MOST_CLASSES:
        raise fields.error('id2label', f'an object of 1 to {_MOST_CLASSES} names')
    if count not in (None, len(labels)):
        raise fields.error('num_labels', f'{len(labels)}, the number of id2label')
    by_number = {str(number): name for number, name in labels.items()}
    wanted = [str(i) for i in range(len(labels))]
    if missing := [number for number in wanted if number not in by_number]:
        raise ConfigError.expected(
            'id2label', f'names for the numbers 0 to {len(labels) - 1}', f'none for {missing[0]}'
        )
    for number in wanted:
        name = by_number[number]
        if not isinstance(name, str) or len(name) > _MOST_NAME:
            raise ConfigError.expected(
                f'id2label.{number}', f'a name of at most {_MOST_NAME} letters', shown(name)
            )
    return [by_number[number] for number in wanted]


def _hybrid(fields: Fields, detr: Detr, kind: str) -> list[str]:
    """RT-DETR, RT-DETR v2 and D-FINE."""
    network = 'hgnet_v2' if kind == D_FINE else 'rt_detr_resnet'
    default = {'model_type': network, 'out_indices': [2, 3, 4]}
    values = _backbone_config(fields, default)
    unknown = transformers_networks.with_levels(values, _NETWORKS, detr)
    detr.feature_extractor.freeze_norms = fields.flag('freeze_backbone_batch_norms', True)
    detr.feature_extractor.preprocess.scale = _UNIT
    detr.layer_norm_epsilon = fields.number('layer_norm_eps', 1e-5)
    detr.batch_norm_epsilon = fields.number('batch_norm_eps', 1e-5)
    _hybrid_encoder(fields, detr.encoder.hybrid, len(detr.feature_extractor.levels))
    if kind == D_FINE:
        detr.encoder.hybrid.block = HybridEncoder.ELAN
        detr.encoder.hybrid.depth_multiplier = fields.number('depth_mult', 1)
    _hybrid_queries(fields, detr.queries)
    _refining_decoder(fields, detr, kind)
    _hybrid_loss(fields, detr.loss, kind)
    return unknown


def _backbone_config(fields: Fields, default: Mapping | None = None) -> Any:
    """Returns the object of the network, of which a file may say nothing elsewhere."""
    for name in ('backbone', 'backbone_kwargs'):
        fields.none(name, _OF_BACKBONE_CONFIG)
    fields.only('use_timm_backbone', False, _OF_BACKBONE_CONFIG)
    return fields.take('backbone_config', default)


def _hybrid_encoder(fields: Fields, encoder: HybridEncoder, maps: int) -> None:
    why = 'dropout of attention and of hidden layers is not built'
    for name in ('dropout', 'attention_dropout', 'activation_dropout'):
        # The encoder there drops shares of attention by `dropout`, too.
        fields.only(name, 0, why)
    fields.none('eval_size', 'the encoder would see no positions outside of training')
    encoder.width = fields.integer('encoder_hidden_dim', 256)
    for name, default in (('encoder_in_channels', (512, 1024, 2048)), ('decoder_in_channels', ())):
        channels = fields.integers(name, default or [256] * 3)
        if len(channels) != maps:
            raise fields.error(name, f'{maps} numbers, as the backbone has so many maps')
        if not default and set(channels) != {encoder.width}:
            raise fields.error(name, f'{encoder.width} alone, that of encoder_hidden_dim')
    encoder.attended_maps.extend(fields.integers('encode_proj_layers', (2,), least=0))
    encoder.num_layers = fields.integer('encoder_layers', 1, least=0)
    encoder.num_heads = fields.integer('encoder_attention_heads', 8, alias='num_attention_heads')
    encoder.hidden = fields.integer('encoder_ffn_dim', 1024)
    encoder.attention_activation = fields.activation('encoder_activation_function', 'gelu')
    encoder.activation = fields.activation('activation_function', 'silu')
    encoder.positional_temperature = fields.number('positional_encoding_temperature', 10000)
    encoder.normalize_before = fields.flag('normalize_before', False)
    encoder.expansion = fields.number('hidden_expansion', 1)


def _hybrid_queries(fields: Fields, queries: DetrQueries) -> None:
    fields.none('anchor_image_size', 'boxes of cells are made for each size of images')
    queries.count = fields.integer('num_queries', 300)
    queries.learned_contents = fields.flag('learn_initial_query', False)
    queries.denoising = fields.integer('num_denoising', 100, least=0)
    queries.label_noise = fields.number('label_noise_ratio', 0.5)
    queries.box_noise = fields.number('box_noise_scale', 1)


def _refining_decoder(fields: Fields, detr: Detr, kind: str) -> None:
    decoder, maps = detr.decoder, fields.integer('num_feature_levels', 3)
    decoder.width = fields.integer('d_model', 256, alias='hidden_size')
    decoder.num_layers = fields.integer('decoder_layers', 6)
    decoder.num_heads = fields.integer('decoder_attention_heads', 8)
    decoder.hidden = fields.integer('decoder_ffn_dim', 1024)
    decoder.activation = fields.activation('decoder_activation_function', 'relu')
    attention = decoder.deformable_attention
    attention.num_maps = maps
    if isinstance(fields.take('decoder_n_points'), list) and kind == D_FINE:
        attention.points.extend(fields.integers('decoder_n_points', ()))
        if len(attention.points) != maps:
            raise fields.error('decoder_n_points', f'{maps} numbers, as num_feature_levels')
    else:
        attention.points.append(fields.integer('decoder_n_points', 4))
    attention.stores_point_scales = kind != RT_DETR
    if kind != RT_DETR:
        methods = {
            'default': DeformableAttention.BILINEAR,
            'discrete': DeformableAttention.DISCRETE,
        }
        attention.method = methods[fields.choice('decoder_method', 'default', methods)]
        attention.offset_scale = fields.number('decoder_offset_scale', 0.5)
    if kind == RT_DETR_V2:
        fields.only('decoder_n_levels', maps, 'num_feature_levels is the number of maps')
        if maps != 3 and 'decoder_n_levels' not in fields:
            raise fields.error('decoder_n_levels', f'{maps}, that of num_feature_levels')
    if kind == D_FINE:
        _fine(fields, detr)


def _fine(fields: Fields, detr: Detr) -> None:
    decoder, maps = detr.decoder, len(detr.feature_extractor.levels)
    decoder.deformable_attention.has_projections = False
    fields.only('num_feature_levels', maps, 'more maps than the backbone has are not built')
    last = decoder.num_layers - 1
    if fields.take('eval_idx', -1) not in (-1, last) or isinstance(fields.take('eval_idx'), bool):
        raise fields.error('eval_idx', f'-1 or {last}; wider layers after it are not built')
    fine = decoder.fine_distributions
    fine.bins = fields.integer('max_num_bins', 32)
    fine.scale = fields.number('reg_scale', 4)
    fine.up = fields.number('up', 0.5)
    fine.quality_top = fields.integer('top_prob_values', 4)
    fine.quality_hidden = fields.integer('lqe_hidden_dim', 64)
    fine.quality_layers = fields.integer('lqe_layers', 2)


def _hybrid_loss(fields: Fields, loss: DetrLoss, kind: str) -> None:
    fields.only('use_focal_loss', True, 'selected queries are not matched by a softmax')
    loss.classification = DetrLoss.VARIFOCAL
    loss.alpha = fields.number('focal_loss_alpha', 0.75)
    loss.gamma = fields.number('focal_loss_gamma', 2)
    loss.class_weight = fields.number('weight_loss_vfl', 1)
    loss.l1_weight = fields.number('weight_loss_bbox', 5)
    loss.giou_weight = fields.number('weight_loss_giou', 2)
    loss.auxiliary = fields.flag('auxiliary_loss', True)
    loss.class_cost = fields.number('matcher_class_cost', 2)
    loss.l1_cost = fields.number('matcher_bbox_cost', 5)
    loss.giou_cost = fields.number('matcher_giou_cost', 2)
    loss.cost_alpha = fields.number('matcher_alpha', 0.25)
    loss.cost_gamma = fields.number('matcher_gamma', 2)
    if kind == D_FINE:
        loss.fine_grained_weight = fields.number('weight_loss_fgl', 0.15)
        loss.distillation_weight = fields.number('weight_loss_ddf', 1.5)
        loss.pairs_layers = False


def _rf_detr(fields: Fields, detr: Detr, kind: str) -> list[str]:
    unknown = transformers_networks.dinov2(_backbone_config(fields), detr)
    _normalize(detr)
    fields.only('attention_bias', True, 'attention without offsets is not built')
    fields.only('layer_norm_eps', 1e-5, 'the norms of the projector have that of the decoder')
    fields.only('num_feature_levels', 1, 'the projector has one map')
    for name in ('attention_dropout', 'activation_dropout'):
        fields.only(name, 0, _TRAINING_ALONE)
    width = fields.integer('d_model', 256)
    projector = detr.encoder.projector
    projector.width = width
    projector.num_blocks = fields.integer('c2f_num_blocks', 3, least=0)
    projector.expansion = fields.number('hidden_expansion', 0.5)
    projector.activation = fields.activation('activation_function', 'silu')
    detr.queries.boxes = DetrQueries.SELECTED_AND_LEARNED
    detr.queries.learned_contents = True
    detr.queries.count = fields.integer('num_queries', 300)
    detr.queries.groups = fields.integer('group_detr', 13)
    decoder = detr.decoder
    decoder.width = width
    decoder.share_heads = True
    decoder.num_layers = fields.integer('decoder_layers', 3)
    decoder.num_heads = fields.integer('decoder_self_attention_heads', 8)
    decoder.hidden = fields.integer('decoder_ffn_dim', 2048)
    decoder.activation = fields.activation('decoder_activation_function', 'relu')
    decoder.dropout = fields.number('dropout', 0.1)
    decoder.deformable_attention.num_maps = 1
    decoder.deformable_attention.points.append(fields.integer('decoder_n_points', 4))
    decoder.deformable_attention.num_heads = fields.integer('decoder_cross_attention_heads', 16)
    fields.only('head_dim', width // decoder.num_heads, 'heads divide d_model')
    _weights(fields, detr.loss, costs=(2, 5, 2))
    detr.loss.classification = DetrLoss.IOU_AWARE
    detr.loss.class_weight = fields.number('class_loss_coefficient', 1)
    detr.loss.alpha = fields.number('focal_alpha', 0.25)
    fields.only('auxiliary_loss', True, 'the selection of queries has losses without it, too')
    return unknown


def _normalize(detr: Detr) -> None:
    preprocess = detr.feature_extractor.preprocess
    preprocess.scale = _UNIT
    preprocess.mean.extend(MEAN)
    preprocess.std.extend(STD)


def _weights(fields: Fields, loss: DetrLoss, costs: tuple[int, int, int]) -> None:
    names = ('class_cost', 'bbox_cost', 'giou_cost')
    loss.class_cost, loss.l1_cost, loss.giou_cost = map(fields.number, names, costs)
    loss.l1_weight = fields.number('bbox_loss_coefficient', 5)
    loss.giou_weight = fields.number('giou_loss_coefficient', 2)


def _detr(fields: Fields, detr: Detr, kind: str) -> list[str]:
    unknown = _detr_backbone(fields, detr)
    _normalize(detr)
    fields.only('num_channels', 3, 'images have red, green and blue')
    fields.only('scale_embedding', False, 'no version of the model has it')
    layers = ('encoder_layerdrop', 'decoder_layerdrop')
    for name in ('attention_dropout', 'activation_dropout', *layers):
        fields.only(name, 0, _TRAINING_ALONE)
    width = fields.integer('d_model', 256, alias='hidden_size')
    activation = fields.activation('activation_function', 'relu')
    dropout = fields.number('dropout', 0.1)
    encoder = detr.encoder.transformer
    encoder.width, encoder.activation, encoder.dropout = width, activation, dropout
    encoder.num_layers = fields.integer('encoder_layers', 6, least=0, alias='num_hidden_layers')
    encoder.num_heads = fields.integer('encoder_attention_heads', 8, alias='num_attention_heads')
    encoder.hidden = fields.integer('encoder_ffn_dim', 2048)
    kinds = ('sine', 'learned')
    position = fields.choice('position_embedding_type', kinds[0], kinds)
    encoder.learned_positions = position == kinds[1]
    detr.queries.boxes = DetrQueries.NONE
    detr.queries.count = fields.integer('num_queries', 100)
    decoder = detr.decoder
    decoder.width, decoder.activation, decoder.dropout = width, activation, dropout
    decoder.share_heads = True
    decoder.num_layers = fields.integer('decoder_layers', 6)
    decoder.num_heads = fields.integer('decoder_attention_heads', 8)
    decoder.hidden = fields.integer('decoder_ffn_dim', 2048)
    _weights(fields, detr.loss, costs=(1, 5, 2))
    detr.loss.classification = DetrLoss.SOFTMAX
    detr.loss.background_weight = fields.number('eos_coefficient', 0.1)
    detr.loss.auxiliary = fields.flag('auxiliary_loss', False)
    return unknown


def _detr_backbone(fields: Fields, detr: Detr) -> list[str]:
    """Sets the backbone of DETR, which files of earlier versions name after one of timm."""
    fields.only('dilation', False, 'convolutions that are dilated (DC5) are not built')
    values = fields.take('backbone_config')
    # transformers 5 takes a network of timm where a file says nothing.
    if fields.flag('use_timm_backbone', values is None) and values is None:
        fields.none('backbone_kwargs', 'they change the network')
        values = {'model_type': 'timm_backbone', 'backbone': fields.take('backbone', 'resnet50')}
    elif values is None:
        values = {'model_type': 'resnet', 'out_features': ['stage4']}
    else:
        fields.none('backbone', _OF_BACKBONE_CONFIG)
    kinds = ('resnet', 'rt_detr_resnet', 'timm_backbone')
    detr.feature_extractor.frozen_stages = _FROZEN_STAGES
    return transformers_networks.with_levels(values, kinds, detr, last_alone=True)


# `model_type` -> the function, and names of fields that change nothing that is computed.
_KINDS: dict[str, tuple[Callable[[Fields, Detr, str], list[str]], str]] = {
    RT_DETR: (_hybrid, _HYBRID_UNUSED),
    RT_DETR_V2: (_hybrid, _HYBRID_UNUSED),
    D_FINE: (_hybrid, _HYBRID_UNUSED),
    RF_DETR: (_rf_detr, _RF_DETR_UNUSED),
    DETR: (_detr, _DETR_UNUSED),
}
