import pytest
from google.protobuf import text_format

from object_detection.config.overrides import apply_setting
from object_detection.errors import ConfigError
from object_detection.protos import calibration_pb2, train_pb2
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from tests import rows


def pipeline(text: str = '') -> TrainEvalPipelineConfig:
    return text_format.Parse(text, TrainEvalPipelineConfig())


@rows.parametrize(
    ('setting', 'expected'),
    [
        ('train_config.batch_size=4', 'train_config { batch_size: 4 }'),
        ('model.faster_rcnn.num_classes = 3', 'model { faster_rcnn { num_classes: 3 } }'),
        ('train_config.use_bfloat16=true', 'train_config { use_bfloat16: true }'),
        ('train_config.precision=BFLOAT16', 'train_config { precision: MIXED_BFLOAT16 }'),
        (
            'train_config.gradient_clipping_by_norm=1e1',
            'train_config{gradient_clipping_by_norm:10}',
        ),
        ('eval_config.metrics_set=a,b', 'eval_config { metrics_set: "a" metrics_set: "b" }'),
        ('eval_config.metrics_set=[a, "b,c"]', 'eval_config{metrics_set: "a" metrics_set: "b,c"}'),
        ('eval_config.metrics_set=', 'eval_config { }'),
        ('eval_config.metrics_set[0]=a=b', 'eval_config { metrics_set: "a=b" }'),
        ('eval_config.export_path="a b"', 'eval_config { export_path: "a b" }'),
        ('eval_config.export_path=gs://a.b/c', 'eval_config { export_path: "gs://a.b/c" }'),
        ('eval_input_reader[0].shuffle=false', 'eval_input_reader { shuffle: false }'),
        ('eval_input_reader.0.shuffle=false', 'eval_input_reader { shuffle: false }'),
        (
            'eval_config.super_categories[pet]=cat,dog',
            'eval_config { super_categories { key: "pet" value: "cat,dog" } }',
        ),
        (
            'train_config.data_augmentation_options[0]={random_horizontal_flip {}}',
            'train_config { data_augmentation_options { random_horizontal_flip {} } }',
        ),
        (
            'model.faster_rcnn.first_stage_anchor_generator.grid_anchor_generator.scales=1,2.5',
            'model { faster_rcnn { first_stage_anchor_generator { grid_anchor_generator {'
            ' scales: [1, 2.5] } } } }',
        ),
    ],
)
def test_settings_of_an_empty_config(setting, expected):
    config = pipeline()
    apply_setting(config, setting)
    assert config == pipeline(expected)


def test_a_repeated_value_is_replaced_and_an_indexed_one_changed():
    config = pipeline('eval_config { metrics_set: "a" metrics_set: "b" }')
    apply_setting(config, 'eval_config.metrics_set[1]=c')
    assert list(config.eval_config.metrics_set) == ['a', 'c']
    apply_setting(config, 'eval_config.metrics_set=x')
    assert list(config.eval_config.metrics_set) == ['x']


def test_lists_of_messages_grow_at_their_end_and_can_be_cleared():
    config = pipeline('eval_input_reader { name: "a" }')
    apply_setting(config, 'eval_input_reader[1].name=b')
    assert [reader.name for reader in config.eval_input_reader] == ['a', 'b']
    apply_setting(config, 'eval_input_reader=')
    assert not config.eval_input_reader


def test_one_option_of_a_oneof_drops_the_other():
    config = pipeline('model { faster_rcnn { image_resizer { identity_resizer {} } } }')
    resizer = config.model.faster_rcnn.image_resizer
    apply_setting(config, 'model.faster_rcnn.image_resizer.fixed_shape_resizer.height=32')
    assert resizer.WhichOneof('image_resizer_oneof') == 'fixed_shape_resizer'
    apply_setting(config, 'model.faster_rcnn.image_resizer={identity_resizer {}}')
    assert resizer.WhichOneof('image_resizer_oneof') == 'identity_resizer'


def test_maps_of_messages_have_keys_of_their_own_type():
    config = calibration_pb2.CalibrationConfig()
    path = 'class_id_function_approximations.class_id_xy_pairs_map'
    apply_setting(config, f'{path}[3]={{x_y_pair {{ x: 1 y: 2 }}}}')
    entries = config.class_id_function_approximations.class_id_xy_pairs_map
    assert entries[3].x_y_pair[0].y == 2
    with pytest.raises(ConfigError, match=r'expected a whole number. Received: .a.'):
        apply_setting(config, f'{path}[a]={{}}')


@rows.parametrize(
    ('setting', 'message'),
    [
        ('model.faster_rcn.num_classes=3', 'no field `faster_rcn`; did you mean `faster_rcnn`'),
        ('train_config.batch_size', 'expected PATH=VALUE'),
        ('=3', 'the path of a field is missing'),
        ('train_config..batch_size=3', 'not a path of field names'),
        ('train_config.batch_size=many', "expected a whole number. Received: 'many'"),
        ('train_config.batch_size=-1', 'out of the range'),
        ('train_config.batch_size.value=1', '`batch_size` is a plain value and has no field'),
        ('train_config.use_bfloat16=maybe', "expected true or false. Received: 'maybe'"),
        (
            'train_config.precision=FLOAT8',
            'no value `FLOAT8`; its values: FLOAT32, MIXED_BFLOAT16, BFLOAT16, TF32',
        ),
        ('train_config.gradient_clipping_by_norm=x', "expected a number. Received: 'x'"),
        ('eval_input_reader[1].name=a', 'has 0 elements: expected an index from 0 to 0'),
        ('eval_input_reader[x].name=a', 'expected an index .* Received: x'),
        ('eval_input_reader=a', 'is a list of messages'),
        ('eval_config.super_categories=a', 'is a map'),
        ('train_config=4', 'the field is a whole TrainConfig'),
        ('train_config={batch: 4}', 'has no field named "batch"'),
    ],
)
def test_errors_name_the_setting_and_the_remedy(setting, message):
    with pytest.raises(ConfigError, match=message) as caught:
        apply_setting(pipeline(), setting)
    assert str(caught.value).startswith(f'--set {setting}: ')


def test_settings_work_on_any_message():
    config = train_pb2.TrainConfig()
    apply_setting(config, 'batch_size=4')
    assert config.batch_size == 4


def test_a_value_that_is_not_text_is_reported_as_such():
    with pytest.raises(ConfigError, match='expected text in UTF-8') as caught:
        apply_setting(TrainEvalPipelineConfig(), 'train_config.fine_tune_checkpoint=\udcff')
    str(caught.value).encode()
