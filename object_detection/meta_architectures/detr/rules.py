"""What has to hold within a Detr message, found without TensorFlow."""

import math
from collections.abc import Iterator

from object_detection.config import overrides
from object_detection.errors import expectation
from object_detection.models.backbones.table import (
    BACKBONES,
    KERAS,
    KERAS_MULTIPLE,
    is_backbone,
    is_foreign,
)
from object_detection.protos.detr_pb2 import (
    Detr,
    DetrDecoder,
    DetrFeatureExtractor,
    DetrLoss,
    DetrQueries,
)

ROOT = 'model.detr'
# Name of the network of a DINOv2 in the `oneof`; it has maps of one stride.
DINOV2 = 'dinov2'
_ENCODERS = 'encoder { hybrid { ... } }'


def padding_multiple(config: Detr) -> int:
    """Returns the multiple to which the sides of images are padded."""
    return padding_multiple_of(config.feature_extractor)


def padding_multiple_of(extractor: DetrFeatureExtractor) -> int:
    """Returns the multiple to which the sides of images are padded for a backbone."""
    if extractor.WhichOneof('network_oneof') == DINOV2:
        return extractor.dinov2.patch_size * extractor.dinov2.num_windows
    multiple = 2 ** max(extractor.levels, default=0)
    if is_foreign(extractor.backbone):
        return math.lcm(multiple, KERAS_MULTIPLE)
    if extractor.backbone in BACKBONES:
        return math.lcm(multiple, BACKBONES[extractor.backbone].padding_multiple)
    return multiple


def check(config: Detr) -> Iterator[str]:
    """Yields one sentence for each problem that is found without TensorFlow."""
    if config.image_resizer.WhichOneof('image_resizer_oneof') is None:
        yield f'{ROOT}.image_resizer is not set; expected e.g. fixed_shape_resizer.'
    if config.encoder.WhichOneof('encoder_oneof') is None:
        yield f'{ROOT}.encoder is not set; expected e.g. {_ENCODERS}.'
    for sentence in problems_of_parts(config):
        yield f'{ROOT}.{sentence}'


def problems_of_parts(config: Detr) -> Iterator[str]:
    """Yields one sentence for each option that does not fit others, from its path on."""
    yield from _extractor(config.feature_extractor)
    yield from _encoder(config)
    yield from _queries(config)
    yield from _decoder(config)


def _extractor(config: DetrFeatureExtractor) -> Iterator[str]:
    path, network = 'feature_extractor', config.WhichOneof('network_oneof')
    if network and config.backbone:
        yield expectation(f'{path}.backbone', f'none with {network}', repr(config.backbone))
    elif not network and not config.backbone:
        yield f'{path}.backbone is not set; expected e.g. resnet_vd_18 or {KERAS}ConvNeXtTiny.'
    elif not network and not is_backbone(config.backbone):
        problem = overrides.unknown_choice(config.backbone, list(BACKBONES))
        yield f'{path}.backbone: {problem}'
    levels = list(config.levels)
    if network == DINOV2:
        if levels:
            yield expectation(f'{path}.levels', 'none with dinov2', levels)
        if not config.dinov2.blocks:
            yield f'{path}.dinov2.blocks is not set; expected the blocks whose outputs are maps.'
    elif not levels or levels != sorted(set(levels)):
        yield expectation(f'{path}.levels', 'ascending levels, such as 3, 4, 5', levels)


def _encoder(config: Detr) -> Iterator[str]:
    kind = config.encoder.WhichOneof('encoder_oneof')
    if kind is None:
        return
    extractor, encoder = config.feature_extractor, getattr(config.encoder, kind)
    is_dino = extractor.WhichOneof('network_oneof') == DINOV2
    maps = len(extractor.dinov2.blocks if is_dino else extractor.levels)
    path = f'encoder.{kind}'
    if kind != 'hybrid' and encoder.width != config.decoder.width:
        yield expectation('decoder.width', f'{encoder.width}, that of {path}', config.decoder.width)
    if kind != 'projector':
        yield from _width(path, encoder.width, encoder.num_heads)
    if kind == 'hybrid':
        if is_dino:
            yield f'{path}: expected another encoder, as the maps of dinov2 have one stride.'
        attended = list(encoder.attended_maps)
        if attended != sorted(set(attended)) or any(each >= maps for each in attended):
            what = f'ascending numbers from 0 to {maps - 1}'
            yield expectation(f'{path}.attended_maps', what, attended)
    elif maps != 1 and not (is_dino and kind == 'projector'):
        yield expectation('feature_extractor.levels', f'one level with {path}', maps)
    if kind == 'hybrid' and int(encoder.width * encoder.expansion) < 2:
        yield expectation(f'{path}.expansion', 'at least 2 channels', encoder.expansion)
    if kind == 'projector' and int(encoder.width * encoder.expansion) < 1:
        yield expectation(f'{path}.expansion', 'at least one channel', encoder.expansion)


def _width(path: str, width: int, num_heads: int) -> Iterator[str]:
    if width % 4 or width % num_heads:
        yield expectation(f'{path}.width', f'a multiple of 4 and of num_heads, {num_heads}', width)


def _queries(config: Detr) -> Iterator[str]:
    queries = config.queries
    is_plain = queries.boxes == DetrQueries.NONE
    if is_plain == config.decoder.HasField('deformable_attention'):
        what = 'NONE without decoder.deformable_attention, and only then'
        yield expectation('queries.boxes', what, DetrQueries.Boxes.Name(queries.boxes))
    kind = config.encoder.WhichOneof('encoder_oneof')
    if is_plain and kind not in (None, 'transformer'):
        yield expectation('encoder', 'transformer, as queries.boxes is NONE', kind)
    is_learned = queries.boxes == DetrQueries.SELECTED_AND_LEARNED
    if queries.groups > 1 and not is_learned:
        what = '1 unless queries.boxes is SELECTED_AND_LEARNED'
        yield expectation('queries.groups', what, queries.groups)
    if is_learned and not queries.learned_contents:
        what = 'true, as queries.boxes is SELECTED_AND_LEARNED'
        yield expectation('queries.learned_contents', what, 'false')
    if config.loss.classification == DetrLoss.SOFTMAX and not is_plain:
        yield expectation('loss.classification', 'a loss without background', 'SOFTMAX')


def _decoder(config: Detr) -> Iterator[str]:
    decoder: DetrDecoder = config.decoder
    yield from _width('decoder', decoder.width, decoder.num_heads)
    if decoder.HasField('deformable_attention'):
        yield from _attention(config)
    if decoder.HasField('fine_distributions'):
        path, bins = 'decoder.fine_distributions', decoder.fine_distributions.bins
        if config.queries.boxes != DetrQueries.SELECTED:
            yield f'{path}: expected none unless queries.boxes is SELECTED.'
        if bins % 2:
            yield expectation(f'{path}.bins', 'an even number', bins)
        top = decoder.fine_distributions.quality_top
        if top > bins + 1:
            yield expectation(
                f'{path}.quality_top', f'at most {bins + 1}, the values of an edge', top
            )


def _attention(config: Detr) -> Iterator[str]:
    decoder, path = config.decoder, 'decoder.deformable_attention'
    attention = decoder.deformable_attention
    heads = attention.num_heads or decoder.num_heads
    if decoder.width % heads:
        what = f'a divisor of the width {decoder.width}'
        yield expectation(f'{path}.num_heads', what, heads)
    if len(attention.points) not in (1, attention.num_maps):
        what = f'one number, or one for each of {attention.num_maps} maps'
        yield expectation(f'{path}.points', what, list(attention.points))
    is_hybrid = config.encoder.WhichOneof('encoder_oneof') == 'hybrid'
    least = len(config.feature_extractor.levels) if is_hybrid else 1
    if attention.num_maps < least or (not is_hybrid and attention.num_maps > 1):
        what = f'{"at least " * is_hybrid}{least}, the maps of the encoder'
        yield expectation(f'{path}.num_maps', what, attention.num_maps)
