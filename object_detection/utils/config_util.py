"""Pipeline configs as dictionaries of their parts, under the names of the reference.

`object_detection.config` reads, changes and writes configs. It does not import TensorFlow.
"""

import os
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from object_detection.config import families, overrides, reader, show
from object_detection.errors import ConfigError
from object_detection.protos import image_resizer_pb2, model_pb2, optimizer_pb2
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.utils import missing

# Key of the dictionary -> field of the pipeline.
_PARTS = {
    'model': 'model',
    'train_config': 'train_config',
    'train_input_config': 'train_input_reader',
    'eval_config': 'eval_config',
    'eval_input_configs': 'eval_input_reader',
    'graph_rewriter_config': 'graph_rewriter',
}
# Names that `merge_external_params_with_configs` takes -> paths of the fields; `%` is the model's
# family, `$` the optimizer.
_PARAMETERS = {
    'batch_size': 'train_config.batch_size',
    'train_steps': 'train_config.num_steps',
    'use_bfloat16': 'train_config.use_bfloat16',
    'num_classes': 'model.%.num_classes',
    'momentum_optimizer_value': 'train_config.optimizer.$.momentum_optimizer_value',
    'train_input_path': 'train_input_reader.tf_record_input_reader.input_path',
    'eval_input_path': 'eval_input_reader[0].tf_record_input_reader.input_path',
    'train_shuffle': 'train_input_reader.shuffle',
    'eval_shuffle': 'eval_input_reader[0].shuffle',
    'eval_num_epochs': 'eval_input_reader[0].num_epochs',
    'sample_1_of_n_eval_examples': 'eval_input_reader[0].sample_1_of_n_examples',
    'eval_with_moving_averages': 'eval_config.use_moving_averages',
    'retain_original_images_in_eval': 'eval_config.retain_original_images',
}
_ALL_INPUTS = {'label_map_path': 'label_map_path', 'mask_type': 'mask_type'}

_ONE_FILE = 'a config is one file, which get_configs_from_pipeline_file reads'
_BY_OVERRIDES = 'change the fields of the pipeline, or call merge_external_params_with_configs'
__getattr__ = missing(
    __name__,
    {
        'update_input_reader_config': _BY_OVERRIDES,
        'remove_unnecessary_ema': 'evaluation and export choose between weights and averages',
        'get_configs_from_multiple_files': _ONE_FILE,
        'get_graph_rewriter_config_from_file': _ONE_FILE,
        'clear_fine_tune_checkpoint': 'clear the field and call save_pipeline_config',
    },
)


def get_configs_from_pipeline_file(
    pipeline_config_path: str | os.PathLike,
    config_override: TrainEvalPipelineConfig | str | None = None,
) -> dict[str, Any]:
    """Reads a pipeline config as a dictionary of its parts.

    Args:
      pipeline_config_path: a text proto.
      config_override: a text proto, or a message, that is merged over it.

    Returns:
      As `create_configs_from_pipeline_proto`.

    Raises:
      ConfigError: if a text is not valid; the message names the file, line and column.
    """
    is_text = isinstance(config_override, str)
    pipeline = reader.read_pipeline(
        os.fspath(pipeline_config_path), overrides_text=config_override if is_text else ''
    )
    if config_override is not None and not is_text:
        pipeline.MergeFrom(config_override)
    return create_configs_from_pipeline_proto(pipeline)


def create_configs_from_pipeline_proto(pipeline_config: TrainEvalPipelineConfig) -> dict[str, Any]:
    """Returns the parts of a pipeline, which are not copies: a change of one changes the pipeline.

    Returns:
      'model', 'train_config', 'train_input_config', 'eval_config', 'eval_input_configs' (a list),
      'eval_input_config' (its first element, if there is one), and 'graph_rewriter_config' if the
      pipeline has one.
    """
    configs = {key: getattr(pipeline_config, field) for key, field in _PARTS.items()}
    if configs['eval_input_configs']:
        configs['eval_input_config'] = configs['eval_input_configs'][0]
    if not pipeline_config.HasField('graph_rewriter'):
        del configs['graph_rewriter_config']
    return configs


def create_pipeline_proto_from_configs(configs: Mapping[str, Any]) -> TrainEvalPipelineConfig:
    """Puts the parts of `create_configs_from_pipeline_proto` together again.

    Where 'eval_input_configs' is absent, 'eval_input_config' is the only evaluation input.

    Raises:
      ConfigError: if there is an unknown key.
    """
    unknown = configs.keys() - {*_PARTS, 'eval_input_config'}
    if unknown:
        raise ConfigError(f'configs: expected the keys {[*_PARTS]}. Received: {sorted(unknown)}.')
    pipeline = TrainEvalPipelineConfig()
    for key, field in _PARTS.items():
        if key == 'eval_input_configs':
            single = [configs['eval_input_config']] if 'eval_input_config' in configs else []
            pipeline.eval_input_reader.extend(configs.get(key, single))
        elif key in configs:
            getattr(pipeline, field).CopyFrom(configs[key])
    return pipeline


def save_pipeline_config(
    pipeline_config: TrainEvalPipelineConfig, directory: str | os.PathLike
) -> None:
    """Writes `pipeline.config` in a folder, which is created if it does not exist."""
    show.write_pipeline(pipeline_config, os.path.join(directory, 'pipeline.config'))


def get_number_of_classes(model_config: model_pb2.DetectionModel) -> int:
    """Returns `num_classes` of the model.

    Raises:
      ConfigError: if no model is set.
    """
    return _family(model_config).num_classes


def get_image_resizer_config(
    model_config: model_pb2.DetectionModel,
) -> image_resizer_pb2.ImageResizer:
    """Returns the image resizer of the model.

    Raises:
      ConfigError: if no model is set.
    """
    return _family(model_config).image_resizer


def get_max_num_context_features(model_config: model_pb2.DetectionModel) -> int | None:
    """Returns the number of context features of an image; None if the model has no context."""
    size = families.needs(model_config).example_options.get('context_size')
    return size and size[0]


def get_context_feature_length(model_config: model_pb2.DetectionModel) -> int | None:
    """Returns the length of a context feature; None if the model has no context."""
    size = families.needs(model_config).example_options.get('context_size')
    return size and size[1]


def get_spatial_image_size(image_resizer_config: image_resizer_pb2.ImageResizer) -> list[int]:
    """Returns the [height, width] of resized images in pixels; [-1, -1] where it varies.

    Raises:
      ConfigError: if no resizer is set.
    """
    name, resizer = _option(image_resizer_config, 'image_resizer_oneof')
    if name == 'fixed_shape_resizer':
        return [resizer.height, resizer.width]
    if name == 'keep_aspect_ratio_resizer' and resizer.pad_to_max_dimension:
        return [resizer.max_dimension] * 2
    return [-1, -1]


def get_optimizer_type(train_config: TrainConfig) -> str | None:
    """Returns the name of the optimizer; None if none is set."""
    return train_config.optimizer.WhichOneof('optimizer')


def get_learning_rate_type(optimizer_config: Message) -> str | None:
    """Returns the name of the schedule of an optimizer, such as `momentum_optimizer`."""
    if isinstance(optimizer_config, optimizer_pb2.Optimizer):
        _, optimizer_config = _option(optimizer_config, 'optimizer')
    return optimizer_config.learning_rate.WhichOneof('learning_rate')


def merge_external_params_with_configs(
    configs: dict[str, Any], hparams: Any = None, kwargs_dict: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Changes single fields of the parts of a pipeline.

    Args:
      configs: as `create_configs_from_pipeline_proto` returns it; not changed.
      hparams: an object whose `values()` returns a mapping like `kwargs_dict`, or None.
      kwargs_dict: name -> value; None leaves a field as it is. A name is one of the reference's
        ('batch_size', 'train_steps', 'num_classes', 'label_map_path', 'train_input_path', ...) or
        the path of a field in `configs` ('train_config.batch_size', 'model.ssd.num_classes').

    Returns:
      The changed parts.

    Raises:
      ConfigError: if there is no such field, or a value does not fit it.
    """
    values = {**(hparams.values() if hparams is not None else {}), **(kwargs_dict or {})}
    pipeline = create_pipeline_proto_from_configs(configs)
    for name, value in values.items():
        if value is None:
            continue
        if name == 'learning_rate':
            _set_learning_rate(pipeline.train_config, value)
            continue
        text = ','.join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        for path in _paths(pipeline, name):
            overrides.apply_setting(pipeline, f'{path}={text}')
    return create_configs_from_pipeline_proto(pipeline)


def _set_learning_rate(train_config: TrainConfig, value: float) -> None:
    """Sets the rate a schedule begins with; manual steps and the warm-up keep their proportions."""
    _, optimizer = _option(train_config.optimizer, 'optimizer')
    kind, schedule = _option(optimizer.learning_rate, 'learning_rate')
    first = schedule.DESCRIPTOR.fields[0].name
    factor = float(value) / getattr(schedule, first)
    setattr(schedule, first, float(value))
    if kind == 'manual_step_learning_rate':
        for step in schedule.schedule:
            step.learning_rate *= factor
    elif kind == 'cosine_decay_learning_rate':
        schedule.warmup_learning_rate *= factor
    if optimizer.learning_rate.HasField('warmup'):
        optimizer.learning_rate.warmup.learning_rate *= factor


def _paths(pipeline: TrainEvalPipelineConfig, name: str) -> list[str]:
    """Returns the paths of the fields in the pipeline that a parameter sets."""
    if name in _ALL_INPUTS:
        evaluations = [f'eval_input_reader[{i}]' for i in range(len(pipeline.eval_input_reader))]
        return [f'{part}.{_ALL_INPUTS[name]}' for part in ('train_input_reader', *evaluations)]
    if name in _PARAMETERS:
        family = pipeline.model.WhichOneof('model') or ''
        optimizer = get_optimizer_type(pipeline.train_config) or ''
        return [_PARAMETERS[name].replace('%', family).replace('$', optimizer)]
    part, dot, rest = name.partition('.')
    part = 'eval_input_reader[0]' if part == 'eval_input_config' else _PARTS.get(part, part)
    if not dot:
        names = sorted({'learning_rate', *_PARAMETERS, *_ALL_INPUTS})
        raise ConfigError.expected(
            name, f'one of {names}, or a path such as train_config.batch_size', repr(name)
        )
    return [f'{part}.{rest}']


def _family(model_config: model_pb2.DetectionModel) -> Message:
    return _option(model_config, 'model')[1]


def _option(message: Message, oneof: str) -> tuple[str, Message]:
    name = message.WhichOneof(oneof)
    if name is None:
        raise ConfigError(f'{message.DESCRIPTOR.name}: expected `{oneof}`. Received: none.')
    return name, getattr(message, name)
