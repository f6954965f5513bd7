"""Builds the detection transformer that a Detr proto describes."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from object_detection.builders import image_resizer_builder, resnet_options_builder
from object_detection.config import reading
from object_detection.config.oneof import build_oneof
from object_detection.errors import Problems, expected, raise_if_any, within
from object_detection.meta_architectures.detr import encoders, loss_names, losses, rules
from object_detection.meta_architectures.detr.decoder import (
    Decoder,
    DecoderOptions,
    FineDecoder,
    FixedDecoder,
    PlainDecoder,
    RefiningDecoder,
)
from object_detection.meta_architectures.detr.detr import DetectionOptions, Detr, Network
from object_detection.meta_architectures.detr.fine_distributions import FineOptions
from object_detection.meta_architectures.detr.hybrid_encoder import HybridEncoder, HybridOptions
from object_detection.meta_architectures.detr.queries import (
    LearnedQueries,
    QueryOptions,
    SelectedQueries,
)
from object_detection.models.backbones import dinov2, hgnet_v2, resnet_d, table
from object_detection.models.deformable_attention import DeformableOptions
from object_detection.models.feature_extractor import (
    ExtractorOptions,
    FeatureExtractor,
    check_levels,
    check_used,
)
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import Preprocess
from object_detection.protos import detr_pb2
from object_detection.targets.assigners import HungarianAssigner, focal_values

_Loss = detr_pb2.DetrLoss
_Queries = detr_pb2.DetrQueries
# What published detectors have in place of the values of a backbone.
_UNIT = Preprocess(scale=1.0 / 255.0)


def build_detector(config: detr_pb2.Detr, is_training: bool) -> Detr:
    """Builds a detection transformer, with random weights.

    Args:
      config: the model's message.
      is_training: False freezes all batch norms.

    Raises:
      ValueError: if an option is not supported, or does not fit another.
    """
    problems = Problems()
    with problems:
        raise_if_any(rules.problems_of_parts(reading.plain(config)))
    with problems:
        resizer = image_resizer_builder.build(config.image_resizer)
    problems.raise_if_any()
    trains_norms = is_training and not config.freeze_batchnorm
    extractor = build_extractor(config.feature_extractor, trains_norms)
    is_softmax = config.loss.classification == _Loss.SOFTMAX
    convert = _without_background if is_softmax else tf.sigmoid
    kind = LearnedQueries if config.queries.boxes == _Queries.NONE else SelectedQueries
    return Detr(
        num_classes=config.num_classes,
        resizer=resizer,
        network=Network(
            extractor,
            _build_encoder(config, extractor, trains_norms),
            kind(_query_options(config)),
            _build_decoder(config, config.num_classes + is_softmax),
        ),
        losses=_build_losses(config, convert),
        loss_names=tuple(loss_names.names(reading.plain(config))),
        detections=DetectionOptions(convert, config.max_detections, is_softmax),
        sees_padding=config.encoder.WhichOneof('encoder_oneof') == 'hybrid',
    )


def _without_background(logits: tf.Tensor) -> tf.Tensor:
    """Logits with a last column of background -> scores of the classes."""
    return tf.nn.softmax(logits)[..., :-1]


def build_extractor(config: detr_pb2.DetrFeatureExtractor, trains_norms: bool) -> FeatureExtractor:
    """Builds the backbone.

    Args:
      config: message of the backbone.
      trains_norms: whether batch norms train, unless the message freezes them.

    Raises:
      ValueError: if there is no such backbone, or it has no such maps.
    """
    settings = {'freeze_affine': config.freeze_norms}
    if config.HasField('preprocess'):
        settings['preprocess'] = resnet_options_builder.preprocess(config.preprocess)
    options = ExtractorOptions(
        batch_norm_trainable=trains_norms and not config.freeze_norms,
        backbone=config.backbone or None,
        resnet=settings,
    )
    with within('model.detr.feature_extractor'):
        if config.WhichOneof('network_oneof') is None:
            return _named_extractor(config, options)
        return build_oneof(
            config,
            'network_oneof',
            {
                name: functools.partial(_sized_extractor, config, *network, options)
                for name, network in _NETWORKS.items()
            },
        )


def _named_extractor(
    config: detr_pb2.DetrFeatureExtractor, options: ExtractorOptions
) -> FeatureExtractor:
    row, levels = table.find(config.backbone), list(config.levels)
    check_levels('levels', levels, row)
    check_used(
        {'frozen_stages': config.frozen_stages} if config.frozen_stages else {},
        row.uses,
        f'the backbone {config.backbone}',
        {'frozen_stages': 0},
    )
    return FeatureExtractor(
        backbone=row.trunk(levels, _without_penalty(options.for_backbone(row))),
        strides=[row.stride(level) for level in levels],
        pad_to_multiple=rules.padding_multiple_of(config),
        normalize=options.normalization(row),
    )


def _without_penalty(options: table.BackboneOptions) -> table.BackboneOptions:
    """Leaves the decay of weights to the optimizer, as the papers do."""
    hyperparams = dataclasses.replace(options.hyperparams, regularizer=None)
    return dataclasses.replace(options, hyperparams=hyperparams)


def _sized_extractor(
    config: detr_pb2.DetrFeatureExtractor,
    build: Callable,
    default_hyperparams: Callable[[], LayerHyperparams],
    options: ExtractorOptions,
    sizes: Any,
) -> FeatureExtractor:
    """Builds a backbone of the sizes that a message has, by an entry of `_NETWORKS`."""
    hyperparams = options.frozen(default_hyperparams())
    backbone, strides = build(
        config,
        sizes,
        table.BackboneOptions(
            hyperparams=hyperparams,
            batch_norm_trainable=options.batch_norm_trainable,
            settings={'frozen_stages': config.frozen_stages} if config.frozen_stages else {},
        ),
    )
    return FeatureExtractor(
        backbone=backbone,
        strides=strides,
        pad_to_multiple=rules.padding_multiple_of(config),
        normalize=options.resnet.get('preprocess') or _UNIT,
    )


def _resnet(config, sizes, options) -> tuple[keras.Model, list[int]]:
    spec = resnet_d.ResNetSpec(
        embedding_size=sizes.embedding_size,
        hidden_sizes=tuple(sizes.hidden_sizes),
        depths=tuple(sizes.depths),
        is_bottleneck=sizes.is_bottleneck,
        is_deep_stem=sizes.is_vd,
        average_pool_shortcut=sizes.is_vd,
        downsample_in_first_stage=sizes.downsample_in_first_stage,
        downsample_in_bottleneck=sizes.downsample_in_bottleneck,
        activation=sizes.activation,
    )
    return _maps_of(resnet_d, spec, len(spec.depths), config, options)


def _hgnet_v2(config, sizes, options) -> tuple[keras.Model, list[int]]:
    lists = {
        field.name: tuple(getattr(sizes, field.name))
        for field in detr_pb2.HgNetV2Sizes.DESCRIPTOR.fields
        if field.is_repeated
    }
    spec = hgnet_v2.HgNetV2Spec(
        **lists,
        use_learnable_affine_block=sizes.use_learnable_affine_block,
        activation=sizes.activation,
    )
    return _maps_of(hgnet_v2, spec, len(spec.stage_num_blocks), config, options)


def _maps_of(module, spec, stages: int, config, options) -> tuple[keras.Model, list[int]]:
    """Returns a network with the maps of the levels of a config, and their strides."""
    last = {spec.stride(index): index for index in range(stages + 1)}
    strides = [2**level for level in config.levels]
    if not set(strides) <= last.keys():
        raise expected('levels', f'maps of the strides {sorted(last)}', list(config.levels))
    return module.network(spec, [last[stride] for stride in strides], options), strides


def _dinov2(config, sizes, options) -> tuple[keras.Model, list[int]]:
    plain = (
        'hidden_size num_hidden_layers num_attention_heads mlp_ratio patch_size image_size '
        'num_windows num_register_tokens layerscale_value use_swiglu_ffn layer_norm_eps qkv_bias '
        'apply_layernorm drop_path_rate'
    )
    spec = dinov2.Dinov2Spec(
        **{name: getattr(sizes, name) for name in plain.split()},
        window_block_indexes=tuple(sizes.window_blocks),
        hidden_act=sizes.activation,
    )
    blocks = list(sizes.blocks)
    return dinov2.network(spec, blocks, options), [spec.patch_size] * len(blocks)


# Option of the `oneof` -> builds the network and its strides, and makes its hyperparameters.
_NETWORKS = {
    'resnet': (_resnet, resnet_d.default_hyperparams),
    'hgnet_v2': (_hgnet_v2, hgnet_v2.default_hyperparams),
    'dinov2': (_dinov2, dinov2.default_hyperparams),
}


_OF_ATTENTION = (
    *('num_layers', 'num_heads', 'hidden', 'attention_activation', 'positional_temperature'),
    *('normalize_before', 'dropout'),
)


def _build_encoder(
    config: detr_pb2.Detr, extractor: FeatureExtractor, trains_norms: bool
) -> keras.layers.Layer:
    epsilon = config.layer_norm_epsilon

    def hybrid(message: detr_pb2.HybridEncoder) -> HybridEncoder:
        if not message.attended_maps:
            reading.unused(message, _OF_ATTENTION, 'attended_maps is empty')
        options = HybridOptions(
            width=message.width,
            attended_maps=list(message.attended_maps),
            num_layers=message.num_layers,
            num_heads=message.num_heads,
            hidden=message.hidden,
            attention_activation=message.attention_activation,
            activation=message.activation,
            positional_temperature=message.positional_temperature,
            normalize_before=message.normalize_before,
            expansion=message.expansion,
            is_elan=message.block == detr_pb2.HybridEncoder.ELAN,
            depth_multiplier=message.depth_multiplier,
            dropout=message.dropout,
            layer_norm_epsilon=epsilon,
            batch_norm_epsilon=config.batch_norm_epsilon,
            frozen=not trains_norms,
            decoder_width=config.decoder.width,
            num_values=config.decoder.deformable_attention.num_maps,
        )
        return HybridEncoder(options, extractor.num_levels)

    def transformer(message: detr_pb2.TransformerEncoder) -> encoders.TransformerEncoder:
        names = 'width num_layers num_heads hidden activation dropout learned_positions'
        options = {name: getattr(message, name) for name in names.split()}
        return encoders.TransformerEncoder(encoders.TransformerOptions(**options, epsilon=epsilon))

    def projector(message: detr_pb2.MultiScaleProjector) -> encoders.Projector:
        options = {
            name: getattr(message, name)
            for name in ('width', 'num_blocks', 'expansion', 'activation')
        }
        return encoders.Projector(encoders.ProjectorOptions(**options, epsilon=epsilon))

    kinds = {'hybrid': hybrid, 'transformer': transformer, 'projector': projector}
    return build_oneof(config.encoder, 'encoder_oneof', kinds)


def _query_options(config: detr_pb2.Detr) -> QueryOptions:
    message = config.queries
    is_selected = message.boxes == _Queries.SELECTED
    names = ('learned_contents', 'denoising', 'label_noise', 'box_noise')
    if not is_selected:
        reading.unused(message, names[1:], 'noisy queries need boxes that are SELECTED')
    if message.boxes == _Queries.NONE:
        reading.unused(message, names[:1], 'queries without boxes begin with zeros')
    return QueryOptions(
        width=config.decoder.width,
        num_classes=config.num_classes,
        count=message.count,
        groups=message.groups,
        learned_contents=message.learned_contents,
        learned_boxes=message.boxes == _Queries.SELECTED_AND_LEARNED,
        denoising=message.denoising if is_selected else 0,
        label_noise=message.label_noise,
        box_noise=message.box_noise,
        epsilon=config.layer_norm_epsilon,
    )


def _build_decoder(config: detr_pb2.Detr, num_columns: int) -> Decoder:
    message, fine = config.decoder, None
    names = 'width num_layers num_heads hidden activation dropout share_heads'
    if message.HasField('fine_distributions'):
        fine = _fine_options(message.fine_distributions)
    options = DecoderOptions(
        **{name: getattr(message, name) for name in names.split()},
        num_columns=num_columns,
        deformable=_deformable_options(message),
        epsilon=config.layer_norm_epsilon,
        distributions=fine,
    )
    if fine is not None:
        return FineDecoder(options)
    kinds = {_Queries.SELECTED: RefiningDecoder, _Queries.SELECTED_AND_LEARNED: FixedDecoder}
    return kinds.get(config.queries.boxes, PlainDecoder)(options)


def _fine_options(message: detr_pb2.FineDistributions) -> FineOptions:
    names = ('bins', 'scale', 'up', 'quality_top', 'quality_hidden', 'quality_layers')
    return FineOptions(**{name: getattr(message, name) for name in names})


def _deformable_options(decoder: detr_pb2.DetrDecoder) -> DeformableOptions | None:
    if not decoder.HasField('deformable_attention'):
        return None
    message = decoder.deformable_attention
    points = list(message.points)
    return DeformableOptions(
        width=decoder.width,
        num_heads=message.num_heads if message.HasField('num_heads') else decoder.num_heads,
        points=points * message.num_maps if len(points) == 1 else points,
        offset_scale=message.offset_scale,
        is_discrete=message.method == detr_pb2.DeformableAttention.DISCRETE,
        has_projections=message.has_projections,
        stores_scales=message.stores_point_scales,
    )


def _build_losses(
    config: detr_pb2.Detr, convert: Callable[[tf.Tensor], tf.Tensor]
) -> losses.SetLosses:
    message, fine, value = config.loss, None, lambda scores: scores
    if not message.auxiliary:
        reading.unused(
            message, ('unites_matches',), 'auxiliary is false, so that one set is matched'
        )
    kinds = {
        _Loss.VARIFOCAL: lambda: losses.Varifocal(message.alpha, message.gamma),
        _Loss.IOU_AWARE: lambda: losses.IouAware(message.alpha, message.gamma),
        _Loss.FOCAL: lambda: losses.Focal(message.alpha, message.gamma),
        _Loss.SOFTMAX: lambda: losses.Softmax(message.background_weight),
    }
    if message.classification != _Loss.SOFTMAX:
        value = functools.partial(focal_values, alpha=message.cost_alpha, gamma=message.cost_gamma)
    weights = losses.Weights(message.class_weight, message.l1_weight, message.giou_weight)
    if config.decoder.HasField('fine_distributions'):
        fine = _fine_options(config.decoder.fine_distributions)
        weights = dataclasses.replace(
            weights,
            fine_grained=message.fine_grained_weight,
            distillation=message.distillation_weight,
        )
    return losses.SetLosses(
        assigner=HungarianAssigner(
            message.class_cost, message.l1_cost, message.giou_cost, class_value=value
        ),
        classification=kinds[message.classification](),
        weights=weights,
        score_converter=convert,
        auxiliary=message.auxiliary,
        fine_options=fine,
        pairs_layers=message.pairs_layers if fine is not None else True,
        unites_matches=message.auxiliary and message.unites_matches,
    )
