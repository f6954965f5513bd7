"""Builds the heads of a single-shot detector that a BoxPredictor proto describes."""

from collections.abc import Callable, Sequence
from typing import Any

from object_detection.builders import hyperparams_builder
from object_detection.config.oneof import build_oneof
from object_detection.errors import UserError
from object_detection.models.heads.convolutional import (
    ConvolutionalBoxPredictor,
    ConvolutionalOptions,
)
from object_detection.models.heads.weight_shared import (
    WeightSharedConvolutionalBoxPredictor,
    WeightSharedOptions,
)
from object_detection.protos import box_predictor_pb2

BoxPredictor = ConvolutionalBoxPredictor | WeightSharedConvolutionalBoxPredictor

_SIGMOID = box_predictor_pb2.WeightSharedConvolutionalBoxPredictor.SIGMOID


def build(
    config: box_predictor_pb2.BoxPredictor,
    *,
    num_outputs: int,
    num_anchors: Sequence[int],
    batch_norm_trainable: bool,
) -> BoxPredictor:
    """Builds the heads.

    Args:
      config: message with `convolutional_box_predictor` or
        `weight_shared_convolutional_box_predictor` set.
      num_outputs: number of logits of an anchor: K, or K + 1 with a background column.
      num_anchors: number of anchors of a cell, one entry per level.
      batch_norm_trainable: False freezes the norms.

    Raises:
      ValueError: if another predictor is set, or for numbers that are out of range or do not fit
        each other.
    """

    def with_arguments(build_one: Callable[..., BoxPredictor]) -> Callable[[Any], BoxPredictor]:
        def build_predictor(option: Any) -> BoxPredictor:
            hyperparams = hyperparams_builder.build(option.conv_hyperparams)
            try:
                return build_one(
                    option,
                    num_outputs=num_outputs,
                    num_anchors=num_anchors,
                    hyperparams=hyperparams,
                    batch_norm_trainable=batch_norm_trainable,
                )
            except ValueError as error:
                raise UserError(f'{option.DESCRIPTOR.full_name}: {error}') from error

        return build_predictor

    builders = {name: with_arguments(build_one) for name, build_one in BUILDERS.items()}
    return build_oneof(config, 'box_predictor_oneof', builders)


def _convolutional(
    config: box_predictor_pb2.ConvolutionalBoxPredictor, **arguments: Any
) -> ConvolutionalBoxPredictor:
    options = ConvolutionalOptions(
        min_depth=config.min_depth, max_depth=config.max_depth, **_common_options(config)
    )
    return ConvolutionalBoxPredictor(options=options, **arguments)


def _weight_shared(
    config: box_predictor_pb2.WeightSharedConvolutionalBoxPredictor, **arguments: Any
) -> WeightSharedConvolutionalBoxPredictor:
    options = WeightSharedOptions(
        depth=config.depth,
        share_tower=config.share_prediction_tower,
        hyperparams_of_heads=config.apply_conv_hyperparams_to_heads,
        hyperparams_pointwise=config.apply_conv_hyperparams_pointwise,
        sigmoid_in_inference=config.score_converter == _SIGMOID,
        **_common_options(config),
    )
    return WeightSharedConvolutionalBoxPredictor(options=options, **arguments)


def _common_options(config: Any) -> dict[str, Any]:
    clip_range = None
    if config.HasField('box_encodings_clip_range'):
        limits = config.box_encodings_clip_range
        clip_range = (limits.min, limits.max)
    return {
        'code_size': config.box_code_size,
        'kernel_size': config.kernel_size,
        'num_layers': config.num_layers_before_predictor,
        'class_bias': config.class_prediction_bias_init,
        'dropout_rate': 1.0 - config.dropout_keep_probability if config.use_dropout else 0.0,
        'use_depthwise': config.use_depthwise,
        'clip_range': clip_range,
    }


BUILDERS: dict[str, Callable[..., BoxPredictor]] = {
    'convolutional_box_predictor': _convolutional,
    'weight_shared_convolutional_box_predictor': _weight_shared,
}
