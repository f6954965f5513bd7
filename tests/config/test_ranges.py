import logging
import math

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from object_detection.config import ranges, walk
from object_detection.errors import ConfigError
from object_detection.protos import options_pb2
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from tests import rows
from tests.schema import is_unread, schema_fields


def parse(text: str) -> TrainEvalPipelineConfig:
    return text_format.Parse(text, TrainEvalPipelineConfig())


def test_what_would_not_happen_is_an_error_that_names_the_path():
    pipeline = parse("""
        model { ssd { num_classes: 1 mask_head_config {} } }
        train_config {
          data_augmentation_options { random_horizontal_flip {} }
          data_augmentation_options { scale_boxes_to_pixel_coordinates {} }
        }""")
    with pytest.raises(ConfigError) as caught:
        ranges.check(pipeline)
    first, second = str(caught.value).splitlines()
    assert first.startswith('model.ssd.mask_head_config is not supported: ')
    path = 'train_config.data_augmentation_options[1].scale_boxes_to_pixel_coordinates'
    assert second.startswith(f'{path} is not')


def test_what_is_not_lost_is_a_warning_given_once(caplog):
    pipeline = parse("""
        train_config { sync_replicas: true replicas_to_aggregate: 8 summarize_gradients: true }""")
    with caplog.at_level(logging.WARNING, 'object_detection'):
        ranges.check(pipeline)
        ranges.check(pipeline)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert 'train_config.sync_replicas, train_config.replicas_to_aggregate' in lines[0]
    assert 'train_config.summarize_gradients' in lines[1]


@rows.parametrize(
    'text',
    [
        '',
        'train_config { sync_replicas: false }',
        'eval_config { recall_upper_bound: 1.0 use_moving_averages: false }',
        'model { faster_rcnn { num_classes: 1 inplace_batchnorm_update: false } }',
        'model { faster_rcnn { num_classes: 1 resize_masks: false } }',
    ],
)
def test_values_without_a_request_pass_silently(text):
    findings = ranges.find(parse(text))
    assert findings == ([], {})


def test_only_the_requested_parts_are_checked():
    pipeline = parse(
        'model { ssd { num_classes: 1 mask_head_config {} } } '
        'eval_config { ignore_groundtruth: true }'
    )
    assert len(ranges.find(pipeline).errors) == 2
    (error,) = ranges.find(pipeline, {'eval_config'}).errors
    assert error.startswith('eval_config.ignore_groundtruth')


def test_repeated_values_are_named_by_their_index():
    loss = "equalization_loss { exclude_prefixes: ['a', 'b'] }"
    pipeline = parse(f'model {{ ssd {{ loss {{ {loss} }} }} }}')
    (paths,) = ranges.find(pipeline).warnings.values()
    field = 'model.ssd.loss.equalization_loss.exclude_prefixes'
    assert paths == [f'{field}[0]', f'{field}[1]']


def places() -> dict[str, list[FieldDescriptor]]:
    """The name of each message of a config -> the fields that lead to it from the root."""
    root = TrainEvalPipelineConfig.DESCRIPTOR
    found, waiting = {root.full_name: []}, [root]
    for message in waiting:
        for field in message.fields:
            inner = field.message_type
            if inner is None or inner.full_name in found or walk.is_map(field) or is_unread(field):
                continue
            found[inner.full_name] = [*found[message.full_name], field]
            waiting.append(inner)
    return found


def config_with(
    field: FieldDescriptor, value: float | None, way: list[FieldDescriptor]
) -> tuple[TrainEvalPipelineConfig, str]:
    """A config with one number, or none, in the message that the fields lead to, and its path."""
    config, names = TrainEvalPipelineConfig(), []
    message = config
    for each in way:
        message = getattr(message, each.name)
        message = message.add() if each.is_repeated else message
        message.SetInParent()
        names.append(f'{each.name}[0]' if each.is_repeated else each.name)
    names.append(f'{field.name}[0]' if field.is_repeated else field.name)
    if field.is_repeated:
        getattr(message, field.name).append(value)
    elif value is not None:
        setattr(message, field.name, value)
    return config, '.'.join(names)


def values(field: FieldDescriptor, bounds: options_pb2.Range) -> tuple[list[float], list[float]]:
    """Values out of a range, next to its bounds, and values at its bounds."""
    is_float = field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE)
    step, kind = (0.25, float) if is_float else (1, int)
    outside, inside = ([math.nan, math.inf, -math.inf] if is_float else []), []
    for name, away in (('min', -step), ('max', step), ('above', 0), ('below', 0)):
        if bounds.HasField(name):
            value = kind(getattr(bounds, name))
            outside.append(value + away)
            if away:
                inside.append(value)
    inside += [kind(bounds.above) + step / 8] if bounds.HasField('above') else []
    inside += [kind(bounds.below) - step / 8] if bounds.HasField('below') else []
    return outside, inside or [kind(0)]


def test_each_bound_of_each_range():
    ways, count = places(), 0
    for field in filter(lambda each: ranges.options(each).range, schema_fields(skip=is_unread)):
        bounds, way = ranges.options(field).range, ways[field.containing_type.full_name]
        outside, inside = values(field, bounds)
        for value in outside:
            config, path = config_with(field, value, way)
            found = [e for e in ranges.find(config).errors if e.startswith(f'{path}: ')]
            assert len(found) == 1, (path, value)
            words = ranges.expected(bounds)
            if not math.isfinite(value) and bounds.ListFields():
                words = f'a finite number, {words}'
            assert found[0].startswith(f'{path}: expected {words}'), found
            assert found[0].endswith(f' Received: {value:g}.'), found
        for value in inside:
            config, path = config_with(field, value, way)
            assert not [e for e in ranges.find(config).errors if e.startswith(path)], (path, value)
        if not field.is_repeated:
            config, path = config_with(field, None, way)
            missing = [e for e in ranges.find(config).errors if e.startswith(path)]
            assert len(missing) == bounds.needed, path
            assert all(e.endswith('(not set).') for e in missing)
        count += 1
    assert count > 100


def test_ranges_are_of_numbers_and_have_a_default_inside():
    for field in filter(lambda each: ranges.options(each).range, schema_fields()):
        bounds = ranges.options(field).range
        assert field.cpp_type not in (field.CPPTYPE_BOOL, field.CPPTYPE_STRING), field.full_name
        assert (field.message_type, field.enum_type) == (None, None), field.full_name
        # Without a default in the schema, not to set a field is a choice of its own.
        if not field.is_repeated and field.has_default_value:
            assert ranges.is_in(field.default_value, bounds) != bounds.needed, field.full_name


@rows.parametrize(
    ('bounds', 'expected'),
    [
        ({}, 'a finite number'),
        ({'min': 1}, 'at least 1'),
        ({'above': 0}, 'above 0'),
        ({'max': 2.5}, 'at most 2.5'),
        ({'below': 2}, 'below 2'),
        ({'min': 0, 'max': 1}, '0 to 1'),
        ({'above': 0, 'max': 1}, 'above 0, up to 1'),
        ({'min': 0, 'below': 45}, '0 to below 45'),
        ({'above': 0, 'below': 1}, 'above 0 and below 1'),
    ],
)
def test_ranges_in_words(bounds, expected):
    assert ranges.expected(options_pb2.Range(**bounds)) == expected


def test_what_a_default_leaves_open_must_be_set():
    (error,) = ranges.find(parse('model { ssd {} }')).errors
    assert error == 'model.ssd.num_classes: expected at least 1. Received: 0 (not set).'
    assert ranges.find(parse('model { ssd { num_classes: 1 } }')).errors == []


def test_a_note_follows_the_range():
    pipeline = parse('model { faster_rcnn { num_classes: 1 roi_align { sampling_ratio: 0 } } }')
    (error,) = ranges.find(pipeline).errors
    assert 'sampling_ratio: expected at least 1; adaptive sampling' in error
    assert error.endswith('is not built. Received: 0.')
