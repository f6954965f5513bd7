import importlib.resources

import pytest
from google.protobuf import text_format

from object_detection.errors import ConfigError
from object_detection.protos import pipeline_pb2, train_pb2
from object_detection.utils import config_util
from tests import rows

CONFIG = (
    importlib.resources.files('object_detection')
    / 'samples'
    / 'configs'
    / 'mask_rcnn_resnet18_fpn_shapes.config'
)


@pytest.fixture
def configs():
    return config_util.get_configs_from_pipeline_file(str(CONFIG))


def test_a_config_is_edited_as_the_notebooks_do(configs, tmp_path):
    configs['model'].faster_rcnn.num_classes = 9
    configs['train_config'].fine_tune_checkpoint = 'ckpt-0'
    configs['eval_input_config'].label_map_path = 'labels.pbtxt'
    pipeline = config_util.create_pipeline_proto_from_configs(configs)
    config_util.save_pipeline_config(pipeline, str(tmp_path / 'new'))
    again = config_util.get_configs_from_pipeline_file(str(tmp_path / 'new' / 'pipeline.config'))
    assert again == configs
    assert config_util.get_number_of_classes(again['model']) == 9
    assert again['train_config'].fine_tune_checkpoint == 'ckpt-0'
    assert [each.label_map_path for each in again['eval_input_configs']] == ['labels.pbtxt']
    assert 'graph_rewriter_config' not in again


@rows.parametrize('as_text', [True, False])
def test_an_override_is_merged(as_text):
    override = pipeline_pb2.TrainEvalPipelineConfig()
    override.train_config.batch_size = 77
    override.graph_rewriter.quantization.delay = 3
    given = str(override) if as_text else override
    configs = config_util.get_configs_from_pipeline_file(str(CONFIG), config_override=given)
    assert configs['train_config'].batch_size == 77
    assert configs['graph_rewriter_config'].quantization.delay == 3


def test_a_single_evaluation_input_is_enough(configs):
    del configs['eval_input_configs']
    pipeline = config_util.create_pipeline_proto_from_configs(configs)
    assert list(pipeline.eval_input_reader) == [configs['eval_input_config']]
    with pytest.raises(ConfigError, match='eval_inputs'):
        config_util.create_pipeline_proto_from_configs({'eval_inputs': []})


def test_parameters_are_merged_by_name_and_by_path(configs):
    merged = config_util.merge_external_params_with_configs(
        configs,
        kwargs_dict={
            'batch_size': 3,
            'train_steps': 20,
            'num_classes': 7,
            'label_map_path': 'some map.pbtxt',
            'train_input_path': ['a.record', 'b.record'],
            'momentum_optimizer_value': 0.5,
            'sample_1_of_n_eval_examples': None,
            'eval_config.num_examples': 5,
            'eval_input_config.shuffle': True,
        },
    )
    assert merged['train_config'].batch_size == 3
    assert merged['train_config'].num_steps == 20
    assert merged['model'].faster_rcnn.num_classes == 7
    assert merged['train_config'].optimizer.momentum_optimizer.momentum_optimizer_value == 0.5
    inputs = [merged['train_input_config'], *merged['eval_input_configs']]
    assert {each.label_map_path for each in inputs} == {'some map.pbtxt'}
    paths = merged['train_input_config'].tf_record_input_reader.input_path
    assert list(paths) == ['a.record', 'b.record']
    assert merged['eval_config'].num_examples == 5
    assert merged['eval_input_config'].shuffle
    assert configs['train_config'].batch_size != 3
    with pytest.raises(ConfigError, match='batch_sizes'):
        config_util.merge_external_params_with_configs(configs, kwargs_dict={'batch_sizes': 3})


@pytest.mark.parametrize(
    ('schedule', 'changed'),
    [
        (
            'constant_learning_rate { learning_rate: 0.1 }',
            'constant_learning_rate { learning_rate: 0.2 }',
        ),
        (
            'exponential_decay_learning_rate { initial_learning_rate: 0.1 decay_steps: 5 }',
            'exponential_decay_learning_rate { initial_learning_rate: 0.2 decay_steps: 5 }',
        ),
        (
            """manual_step_learning_rate { initial_learning_rate: 0.1
                 schedule { step: 9 learning_rate: 0.05 } }""",
            """manual_step_learning_rate { initial_learning_rate: 0.2
                 schedule { step: 9 learning_rate: 0.1 } }""",
        ),
        (
            'cosine_decay_learning_rate { learning_rate_base: 0.1 warmup_learning_rate: 0.05 }',
            'cosine_decay_learning_rate { learning_rate_base: 0.2 warmup_learning_rate: 0.1 }',
        ),
        (
            """polynomial_learning_rate { learning_rate_base: 0.1 total_steps: 9 }
                 warmup { learning_rate: 0.05 steps: 3 }""",
            """polynomial_learning_rate { learning_rate_base: 0.2 total_steps: 9 }
                 warmup { learning_rate: 0.1 steps: 3 }""",
        ),
    ],
)
def test_the_learning_rate_of_each_schedule_is_merged(configs, schedule, changed):
    optimizer = 'optimizer { momentum_optimizer { learning_rate { %s } } }'
    before = text_format.Parse(optimizer % schedule, train_pb2.TrainConfig())
    merged = config_util.merge_external_params_with_configs(
        {**configs, 'train_config': before}, kwargs_dict={'learning_rate': 0.2}
    )
    expected = text_format.Parse(optimizer % changed, train_pb2.TrainConfig())
    assert merged['train_config'] == expected


def test_facts_of_a_config(configs):
    assert config_util.get_optimizer_type(configs['train_config']) == 'momentum_optimizer'
    optimizer = configs['train_config'].optimizer
    schedule = optimizer.momentum_optimizer.learning_rate.WhichOneof('learning_rate')
    assert config_util.get_learning_rate_type(optimizer) == schedule
    assert config_util.get_learning_rate_type(optimizer.momentum_optimizer) == schedule
    resizer = config_util.get_image_resizer_config(configs['model'])
    resizer.keep_aspect_ratio_resizer.max_dimension = 640
    resizer.keep_aspect_ratio_resizer.pad_to_max_dimension = True
    assert config_util.get_spatial_image_size(resizer) == [640, 640]
    resizer.keep_aspect_ratio_resizer.pad_to_max_dimension = False
    assert config_util.get_spatial_image_size(resizer) == [-1, -1]
    resizer.fixed_shape_resizer.height, resizer.fixed_shape_resizer.width = 32, 48
    assert config_util.get_spatial_image_size(resizer) == [32, 48]


def test_names_that_do_not_exist_name_their_replacement():
    with pytest.raises(AttributeError, match='merge_external_params_with_configs'):
        config_util.update_input_reader_config  # noqa: B018
    with pytest.raises(ConfigError, match='expected `model`'):
        config_util.get_number_of_classes(pipeline_pb2.TrainEvalPipelineConfig().model)
