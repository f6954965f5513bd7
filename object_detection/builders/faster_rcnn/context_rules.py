"""What has to hold within a Context message of Faster R-CNN, found without TensorFlow."""

import math
from collections.abc import Iterator

from object_detection.config import model_rules
from object_detection.config.model_rules import AT_LEAST_ONE
from object_detection.protos import faster_rcnn_pb2
from object_detection.protos.faster_rcnn_pb2 import Context, FasterRcnn

FIELD = 'context_config'
_RANGES = {
    'max_num_context_features': AT_LEAST_ONE,
    'context_feature_length': AT_LEAST_ONE,
    'attention_bottleneck_dimension': AT_LEAST_ONE,
    'num_attention_heads': AT_LEAST_ONE,
    'num_attention_layers': AT_LEAST_ONE,
}
# What only the attention to other images has.
MEMORY_FIELDS = (
    'max_num_context_features',
    'context_feature_length',
    'num_attention_heads',
    'num_attention_layers',
)


def has_memory(config: FasterRcnn) -> bool:
    """Returns whether boxes attend to features of other images, which a batch then needs."""
    return config.HasField(FIELD) and config.context_config.use_long_term_attention


def check(config: FasterRcnn, root: str, *, is_rfcn: bool) -> Iterator[str]:
    """Yields one sentence for each problem of `context_config` of the message at `root`."""
    if not config.HasField(FIELD):
        return
    context, path = config.context_config, f'{root}.{FIELD}'
    if config.number_of_stages == 1:
        yield (
            f'{path}: expected number_of_stages of 2 or 3, as the second stage attends to the '
            'context. Received: 1.'
        )
    if is_rfcn:
        yield f'{path}: expected a mask_rcnn_box_predictor. Received: rfcn_box_predictor.'
    yield from model_rules.ranges(context, _RANGES, path)
    temperature = context.attention_temperature
    if not 0 < temperature < math.inf:
        yield f'{path}.attention_temperature: expected above 0. Received: {temperature:g}.'
    if not (context.use_long_term_attention or context.use_self_attention):
        yield (
            f'{path}: expected use_long_term_attention or use_self_attention, since boxes attend '
            'to nothing else. Received: both false.'
        )
    if context.attention_position == faster_rcnn_pb2.ATTENTION_DEFAULT:
        yield (
            f'{path}.attention_position: expected POST_BOX_CLASSIFIER or POST_RPN. Received: '
            'ATTENTION_DEFAULT, for which the TensorFlow Object Detection API builds no attention; '
            f'remove {FIELD} for a model without.'
        )


def without_effect(context: Context) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields names of fields that other fields leave without an effect, and the reason."""
    if not context.use_long_term_attention:
        yield MEMORY_FIELDS, 'use_long_term_attention is false'
    if not (context.use_self_attention and context.use_long_term_attention):
        yield ('self_attention_in_sequence',), 'there is one attention'
