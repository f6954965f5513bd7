"""Builds the suppression and the score converter that a PostProcessing proto describes."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from object_detection.config import reading
from object_detection.config.oneof import build_oneof
from object_detection.core.post_processing import (
    NmsParams,
    Suppressed,
    batch_multiclass_non_max_suppression,
)
from object_detection.core.score_conversion import (
    PerClass,
    PiecewiseLinear,
    PlattScaling,
    ScoreConverter,
    ScoreFunction,
)
from object_detection.errors import Problems, expected, within
from object_detection.protos import calibration_pb2, post_processing_pb2

CONVERTERS: dict[int, ScoreFunction] = {
    post_processing_pb2.PostProcessing.IDENTITY: tf.identity,
    post_processing_pb2.PostProcessing.SIGMOID: tf.sigmoid,
    post_processing_pb2.PostProcessing.SOFTMAX: tf.nn.softmax,
}

# Functions of scores. Temperature scaling applies to logits, so it is not listed here.
CALIBRATIONS: dict[str, Callable[..., ScoreFunction]] = {
    'function_approximation': lambda config: _piecewise_linear(config.x_y_pairs),
    'class_id_function_approximations': lambda config: _per_class(
        config.class_id_xy_pairs_map, _piecewise_linear
    ),
    'sigmoid_calibration': lambda config: _platt_scaling(config.sigmoid_parameters),
    'class_id_sigmoid_calibrations': lambda config: _per_class(
        config.class_id_sigmoid_parameters_map, _platt_scaling
    ),
}

_ONE_TOTAL = 'use_class_agnostic_nms has max_total_detections as its only limit'
_DECAYS = 'soft_nms_sigma lets scores decay; no box is suppressed by its overlap'


def build(
    config: post_processing_pb2.PostProcessing, *, static: bool | None = None, **fixed: Any
) -> tuple[Callable[..., Suppressed], ScoreConverter]:
    """Builds both steps from raw predictions to detections.

    `use_partitioned_nms` names an algorithm of the reference; here one exact algorithm supports
    every combination of options.

    Args:
      config: the message.
      static: whether to use only operations that XLA compiles; None takes `use_static_shapes`.
      fixed: fields of `NmsParams` that the message does not decide, and their values.

    Returns:
      `nms(boxes, scores, ...) -> Suppressed`, which takes the arguments of
      `batch_multiclass_non_max_suppression` except `params` and `static`; and the score converter.

    Raises:
      ValueError: if a number is out of range.
    """
    nms_config = config.batch_non_max_suppression
    if static is None:
        static = nms_config.use_static_shapes
    problems = Problems()
    with problems:
        params = build_nms_params(nms_config, **fixed)
    with problems:
        converter = build_score_converter(config)
    problems.raise_if_any()
    nms = functools.partial(batch_multiclass_non_max_suppression, params=params, static=static)
    return nms, converter


def build_nms_params(config: post_processing_pb2.BatchNonMaxSuppression, **fixed: Any) -> NmsParams:
    """Builds the parameters of the suppression; `fixed` ones take the place of fields.

    Raises:
      ValueError: if a number is out of range.
    """
    name = config.DESCRIPTOR.full_name
    _note_unused(config)
    fields = {field.name for field in dataclasses.fields(NmsParams)} - fixed.keys()
    with within(name):
        return NmsParams(**{field: getattr(config, field) for field in fields}, **fixed)


def _note_unused(config: post_processing_pb2.BatchNonMaxSuppression) -> None:
    if config.use_class_agnostic_nms:
        name, reason = 'max_detections_per_class', _ONE_TOTAL
        default = config.DESCRIPTOR.fields_by_name[name].default_value
        reading.unused(config, name, reason, harmless=[default, config.max_total_detections])
    if config.use_hard_nms:
        reading.unused(config, 'soft_nms_sigma', 'use_hard_nms suppresses outright')
    elif config.soft_nms_sigma > 0:
        reading.unused(config, 'iou_threshold', _DECAYS)


def build_score_converter(config: post_processing_pb2.PostProcessing) -> ScoreConverter:
    """Builds the function from logits to scores.

    Raises:
      ValueError: if a number is out of range.
    """
    scale = config.logit_scale
    calibrate = None
    if config.HasField('calibration_config'):
        calibration = config.calibration_config
        if calibration.WhichOneof('calibrator') == 'temperature_scaling_calibration':
            scale *= _temperature(calibration.temperature_scaling_calibration)
        else:
            calibrate = build_oneof(calibration, 'calibrator', CALIBRATIONS)
    if scale == 0.0:
        raise expected(
            f'{config.DESCRIPTOR.full_name}.logit_scale', 'other than 0', config.logit_scale
        )
    return ScoreConverter(CONVERTERS[config.score_converter], scale, calibrate)


def _temperature(config: calibration_pb2.TemperatureScalingCalibration) -> float:
    if config.scaler <= 0:
        raise expected(f'{config.DESCRIPTOR.full_name}.scaler', 'more than 0', config.scaler)
    return config.scaler


def _piecewise_linear(config: calibration_pb2.XYPairs) -> PiecewiseLinear:
    with within(config.DESCRIPTOR.full_name):
        return PiecewiseLinear([(pair.x, pair.y) for pair in config.x_y_pair])


def _platt_scaling(config: calibration_pb2.SigmoidParameters) -> PlattScaling:
    return PlattScaling(config.a, config.b)


def _per_class(configs, build_one: Callable[..., ScoreFunction]) -> PerClass:
    """Builds each message of a proto map, class id -> message, with `build_one`."""
    return PerClass({class_id: build_one(config) for class_id, config in configs.items()})
