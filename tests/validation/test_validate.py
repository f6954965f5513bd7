import pathlib

import pytest

from object_detection.builders import model_builder
from object_detection.config import job_options
from object_detection.config.overrides import apply_setting
from object_detection.config.reader import read_pipeline
from object_detection.errors import ConfigError
from object_detection.meta_architectures import tracing
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training import resolve_config
from object_detection.validation.validate import PURPOSES, validate
from tests import rows
from tests.validation.pipelines import sound_pipeline, write_files

MODEL = 'model.faster_rcnn'
MINER = f'{MODEL}.hard_example_miner'
NMS = f'{MODEL}.second_stage_post_processing.batch_non_max_suppression'
ANCHORS = f'{MODEL}.first_stage_anchor_generator'
PREDICTOR = f'{MODEL}.second_stage_box_predictor.mask_rcnn_box_predictor'
AUGMENTATION = 'train_config.data_augmentation_options[0]'
# For what no layer of a backbone decides.
without_layers = pytest.mark.usefixtures('small_backbone')
RATE = 'train_config.optimizer.momentum_optimizer.learning_rate'
MULTIPLIER = 'train_config.optimizer.learning_rate_multiplier[0]'


def in_epochs(manual_steps: str) -> str:
    """A setting: a schedule in epochs."""
    rate = f'{{manual_step_learning_rate {{{manual_steps}}}}}'
    optimizer = f'momentum_optimizer {{learning_rate {rate}}}'
    return f'train_config.optimizer={{learning_rate_unit: EPOCHS {optimizer}}}'


def problems(pipeline: TrainEvalPipelineConfig, for_what=PURPOSES) -> list[str]:
    try:
        validate(pipeline, for_what=for_what)
    except ConfigError as error:
        return [line.strip() for line in str(error).splitlines()[1:]]
    return []


def test_only_the_mistakes_of_a_config_are_reported(tmp_path, caplog):
    pipeline = sound_pipeline(tmp_path)
    apply_setting(pipeline, 'eval_config.max_evals=1')
    apply_setting(pipeline, f'{MODEL}.num_classes=0')
    assert len(problems(pipeline)) == 1
    assert not caplog.messages
    apply_setting(pipeline, f'{MODEL}.num_classes=4')
    problems(pipeline)
    assert any('eval_config.max_evals' in message for message in caplog.messages)


# Independent mistakes that the builders find: setting, and how its sentence begins.
RESIZER = 'keep_aspect_ratio_resizer {min_dimension: 9 max_dimension: 5}'
MISTAKES_OF_PARTS = {
    f'{MODEL}.image_resizer={{{RESIZER}}}': f'{MODEL}.image_resizer: ',
    f'{MODEL}.second_stage_post_processing.logit_scale=0': f'{MODEL}.second_stage_post_processing.',
    f'{MODEL}.second_stage_localization_loss={{weighted_iou {{}}}}': (
        f'{MODEL}.second_stage_localization_loss.'
    ),
    'train_config.optimizer.momentum_optimizer={learning_rate {cosine_decay_learning_rate '
    '{total_steps: 1 warmup_steps: 2}}}': 'train_config.optimizer: cosine decay: ',
}


@rows.parametrize(
    ('setting', 'begin'),
    [
        (
            f'{MODEL}.feature_extractor.preprocess={{mean: [1, 2]}}',
            f"{MODEL}.feature_extractor 'faster_rcnn_resnet18_fpn_keras': preprocess.mean: ",
        ),
        (f'{MODEL}.first_stage_matcher={{hungarian_matcher {{}}}}', f'{MODEL}.first_stage_matcher'),
    ],
)
def test_mistakes_of_parts_are_reported_together(tmp_path, setting, begin):
    pipeline = sound_pipeline(tmp_path)
    mistakes = {setting: begin, **MISTAKES_OF_PARTS}
    for each in mistakes:
        apply_setting(pipeline, each)
    found = problems(pipeline, 'train')
    assert len(found) == len(mistakes) == 5
    for start in mistakes.values():
        assert sum(problem.startswith(start) for problem in found) == 1


@without_layers
@pytest.mark.parametrize('reads_all', [False, True])
def test_what_ranges_rules_and_builders_find_is_listed_together(tmp_path, reads_all):
    pipeline = sound_pipeline(tmp_path)
    initializer = f'{MODEL}.first_stage_box_predictor_conv_hyperparams.initializer'
    by_others = {
        f"{MODEL}.feature_extractor.type='resnet'": f'{MODEL}.feature_extractor.type: ',
        'train_config.num_steps=0': 'train_config.num_steps: ',
        f'{MODEL}.first_stage_nms_iou_threshold=1.5': f'{MODEL}.first_stage_nms_iou_threshold: ',
        f'{MODEL}.num_classes=0': f'{MODEL}.num_classes: expected at least 1',
        f"{initializer}={{keras_initializer_by_name: 'gloriot'}}": f'{initializer}.keras_',
    }
    mistakes = {**by_others, **MISTAKES_OF_PARTS}
    for each in mistakes:
        apply_setting(pipeline, each)
    prepared = []
    with pytest.raises(ConfigError, match=r'^The config has 10 problems:\n  p\.config:1:1: ') as e:
        validate(
            pipeline,
            for_what=PURPOSES,
            reads_all=reads_all,
            prepare=lambda: prepared.append(1),
            known=['p.config:1:1: unknown name.'],
        )
    for start in mistakes.values():
        assert str(e.value).count(f'\n  {start}') == 1
    assert not prepared


def test_a_check_lists_no_consequences(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    apply_setting(pipeline, f'{MODEL}.feature_extractor={{}}')
    pipeline.train_config.optimizer.Clear()
    with pytest.raises(ConfigError, match=r'^The config has 2 problems:'):
        validate(pipeline, for_what='train', reads_all=True)


@without_layers
def test_a_check_builds_the_model_once(tmp_path, monkeypatch):
    built, traced, build = [], [], model_builder.build
    monkeypatch.setattr(model_builder, 'build', lambda view: built.append(build(view)) or built[0])
    monkeypatch.setattr(tracing, 'trace', lambda detector, mask_size: traced.append(detector))
    monkeypatch.setattr(tracing, '_checked', {})
    validate(sound_pipeline(tmp_path), for_what=PURPOSES, reads_all=True)
    assert len(built) == 1
    assert traced == built


def test_an_evaluation_by_swapped_ids_is_an_error(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    path = tmp_path / 'swapped.pbtxt'
    path.write_text('item { id: 2 name: "a" } item { id: 1 name: "b" }')
    pipeline.eval_input_reader[0].label_map_path = str(path)
    (problem,) = problems(pipeline)
    assert "id 1 is 'a' there and 'b' here" in problem


def test_a_sound_config_passes(tmp_path):
    assert problems(sound_pipeline(tmp_path)) == []


@rows.parametrize(
    ('setting', 'purpose', 'field', 'message'),
    [
        (f'{MODEL}.number_of_stages=4', 'export', f'{MODEL}.number_of_stages', '1 to 3'),
        (f'{MODEL}.num_classes=0', 'export', f'{MODEL}.num_classes', 'at least 1'),
        (
            f'{PREDICTOR}.predict_instance_masks=false',
            'export',
            f'{PREDICTOR}.predict_instance_masks',
            'is false, but model.faster_rcnn.number_of_stages is 3',
        ),
        (
            f'{MODEL}.second_stage_balance_fraction=0.12',
            'train',
            MODEL,
            'second_stage_balance_fraction of at least 1, the most positive proposals',
        ),
        (f'{MODEL}.second_stage_batch_size=21', 'export', f'{MODEL}.second_stage_batch_size', '20'),
        (f'{MINER}={{iou_threshold: 2}}', 'export', f'{MINER}.iou_threshold', '0 to 1'),
        (
            f'{MODEL}.second_stage_classification_loss={{weighted_dice_classification_loss {{}}}}',
            'export',
            f'{MODEL}.second_stage_classification_loss.weighted_dice_classification_loss is a',
            'expected one of: bootstrapped_sigmoid, ',
        ),
        (f'{MODEL}.initial_crop_size=0', 'export', f'{MODEL}.initial_crop_size', 'at least 1'),
        (f'{MODEL}.maxpool_kernel_size=15', 'export', f'{MODEL}.maxpool_kernel_size', '14'),
        (f'{MODEL}.first_stage_nms_iou_threshold=7', 'export', f'{MODEL}.first_', '0 to 1'),
        (f'{MODEL}.first_stage_crowd_ioa_threshold=2', 'train', f'{MODEL}.first_', '0 to 1'),
        (f'{MODEL}.first_stage_min_box_size=-1', 'train', f'{MODEL}.first_', 'at least 0'),
        (
            f'{MODEL}.first_stage_matcher={{hungarian_matcher {{}}}}',
            'train',
            f'{MODEL}.first_stage_matcher: ',
            'expected argmax_matcher',
        ),
        (f'{NMS}.max_detections_per_class=101', 'export', f'{NMS}.max_detections', '100'),
        (f'{PREDICTOR}.mask_height=0', 'export', f'{PREDICTOR}.mask_height', 'at least 1'),
        (
            f'{PREDICTOR}.mask_head_deconv=true',
            'export',
            f'{PREDICTOR}.mask_head_deconv',
            'mask_height and mask_width of 28, twice the size',
        ),
        (
            f'{PREDICTOR}.box_head={{num_convs: 1 conv_depth: 0}}',
            'export',
            f'{PREDICTOR}.box_head',
            'conv_depth: expected at least 1',
        ),
        (
            f'{MODEL}.mask_target_binarize_threshold=1.5',
            'export',
            f'{MODEL}.mask_target_binarize_threshold',
            '0 to 1',
        ),
        (
            f'{MODEL}.second_stage_fg_iou_threshold=0.4',
            'export',
            MODEL,
            'second_stage_fg_iou_threshold <= 1. Received: 0, 0.5 and 0.4',
        ),
        (
            f'{MODEL}.second_stage_box_coder={{keypoint_box_coder {{num_keypoints: 1}}}}',
            'export',
            MODEL,
            'Received: keypoint_box_coder',
        ),
        (
            f'{MODEL}.second_stage_localization_loss={{weighted_iou {{}}}}',
            'export',
            MODEL,
            'weighted_iou compares boxes',
        ),
        (
            f'{MODEL}.second_stage_fg_iou_threshold=0',
            'export',
            f'{MODEL}.second_stage_fg_iou_threshold: expected above 0',
            'Received: 0.',
        ),
        (f'{MODEL}.image_resizer={{}}', 'export', f'{MODEL}.image_resizer', 'is not set'),
        (f'{MODEL}.feature_extractor.type=', 'export', f'{MODEL}.feature_ext', 'is not set'),
        (f'{MODEL}.feature_extractor.type=resnet50', 'export', f'{MODEL}.feature_ext', 'resnet18'),
        (
            f'{MODEL}.feature_extractor.type=faster_rcnn_resnet18_keras',
            'export',
            f"{MODEL}.feature_extractor.type: Received: 'faster_rcnn_resnet18_keras'; "
            "did you mean 'faster_rcnn_resnet18_fpn_keras'? Expected one of ",
            'faster_rcnn_resnet34_fpn_keras',
        ),
        (
            f'{MODEL}.feature_extractor.type=faster_rcnn_pnas',
            'export',
            f"{MODEL}.feature_extractor.type: Received: 'faster_rcnn_pnas', a feature extractor "
            'of the reference implementation that is not built here. Expected one of ',
            'faster_rcnn_resnet34_fpn_keras',
        ),
        (
            f'{MODEL}.feature_extractor.type=ssd_mobilenet_v2_keras',
            'export',
            f'{MODEL}.feature_extractor.type: expected one of',
            "Received: 'ssd_mobilenet_v2_keras'.",
        ),
        (
            f'{MODEL}.feature_extractor.first_stage_features_stride=4',
            'export',
            f'{MODEL}.feature_extractor',
            'first_stage_features_stride: expected 8 or 16',
        ),
        (
            f'{MODEL}.feature_extractor.pad_to_multiple=7',
            'export',
            f'{MODEL}.feature_extractor',
            'pad_to_multiple: expected a multiple of 32',
        ),
        (f'{PREDICTOR}.box_code_size=5', 'export', f'{PREDICTOR}.box_code_size', '4 numbers'),
        ('train_config.num_steps=0', 'train', 'train_config.num_steps', '--num_train_steps'),
        (
            'train_config.data_augmentation_options[0]={random_horizontal_flip {probability: 2}}',
            'train',
            'train_config.data_augmentation_options[0]',
            'random_horizontal_flip.probability: expected 0 to 1',
        ),
        (
            'train_input_reader.frame_index=2',
            'train',
            'train_input_reader.frame_index',
            'expected input_type: TF_SEQUENCE_EXAMPLE',
        ),
        (
            'eval_config.super_categories[letter]=a,bb',
            'eval',
            'eval_config',
            "super category 'letter': expected some of ['a', 'b']",
        ),
        (f'{ANCHORS}={{}}', 'export', ANCHORS, 'is not set'),
        (
            f'{ANCHORS}.multiscale_anchor_generator.aspect_ratios=',
            'export',
            ANCHORS,
            'aspect_ratios',
        ),
        (
            f'{ANCHORS}.multiscale_anchor_generator.max_level=6',
            'export',
            f'{ANCHORS}.multiscale_anchor_generator',
            'levels 4 to 5',
        ),
        (
            f'{ANCHORS}.multiscale_anchor_generator.normalize_coordinates=true',
            'export',
            f'{ANCHORS}.multiscale_anchor_generator.normalize_coordinates',
            'false',
        ),
        (
            f'{ANCHORS}={{grid_anchor_generator {{scales: 1 aspect_ratios: 1}}}}',
            'export',
            f'{ANCHORS}.grid_anchor_generator',
            'use multiscale_anchor_generator',
        ),
        ('train_config.batch_size=0', 'train', 'train_config.batch_size', 'at least 1'),
        (
            'train_config.gradient_clipping_by_norm=nan',
            'train',
            'train_config.gradient_clipping_by_norm',
            'expected a finite number, at least 0; 0 clips nothing. Received: nan.',
        ),
        (
            'train_config.data_augmentation_options[0]={}',
            'train',
            'train_config.data_augmentation_options[0]',
            'is empty',
        ),
        ('train_config.optimizer={}', 'train', 'train_config.optimizer', 'is not set'),
        (f'{RATE}={{}}', 'train', RATE, 'is not set'),
        (
            'train_config.optimizer={momentum_optimizer {learning_rate {constant_learning_rate {}}}'
            ' moving_average_decay: 2}',
            'train',
            'train_config.optimizer',
            'moving_average_decay: expected 0 to 1. Received: 2.',
        ),
        (
            'eval_config.use_moving_averages=true',
            'eval',
            'eval_config.use_moving_averages',
            'expected train_config.optimizer.use_moving_average: true',
        ),
        (
            'train_config.freeze_variables=backbone,conv(1',
            'train',
            'train_config.freeze_variables[1]',
            "expected a regular expression. Received: 'conv(1' (missing ), unterminated",
        ),
        (
            'train_config.update_trainable_variables=[',
            'train',
            'train_config.update_trainable_variables[0]',
            'expected a regular expression',
        ),
        (
            'train_config.bias_grad_multiplier=-1',
            'train',
            'train_config.bias_grad_multiplier',
            'expected at least 0; 0 is no factor. Received: -1.',
        ),
        ('train_config.weight_decay={}', 'train', 'train_config.weight_decay.weight', 'is not set'),
        (
            'train_config.weight_decay={weight: -1}',
            'train',
            'train_config.weight_decay.weight',
            'at least 0. Received: -1.',
        ),
        (
            "train_config.weight_decay={weight: 1 exclude_pattern: '['}",
            'train',
            'train_config.weight_decay.exclude_pattern',
            'expected a regular expression',
        ),
        (
            'train_config.gradient_accumulation_steps=0',
            'train',
            'train_config.gradient_accumulation_steps',
            'at least 1. Received: 0.',
        ),
        (
            'train_config.gradient_accumulation_steps=5',
            'train',
            'train_config.gradient_accumulation_steps',
            'expected a number that divides train_config.batch_size',
        ),
        (
            'train_config.auto_scale_lr.reference_batch_size=0',
            'train',
            'train_config.auto_scale_lr.reference_batch_size',
            'at least 1. Received: 0.',
        ),
        (
            'train_config.optimizer={lars_optimizer {trust_coefficient: 0 learning_rate '
            '{constant_learning_rate {}}}}',
            'train',
            'train_config.optimizer.lars_optimizer.trust_coefficient',
            'above 0',
        ),
        (
            'train_config.optimizer={adamw_optimizer {weight_decay: -1 learning_rate '
            '{constant_learning_rate {}}}}',
            'train',
            'train_config.optimizer.adamw_optimizer.weight_decay',
            'expected at least 0. Received: -1.',
        ),
        (
            "train_config.optimizer={lion_optimizer {exclude_pattern: '(' learning_rate "
            '{constant_learning_rate {}}}}',
            'train',
            'train_config.optimizer',
            'exclude_pattern: expected a regular expression',
        ),
        (
            'train_config.optimizer.layer_decay=1.5',
            'train',
            'train_config.optimizer.layer_decay',
            'expected above 0, up to 1. Received: 1.5.',
        ),
        (
            'train_config.optimizer.reduce_on_plateau={factor: 1}',
            'train',
            'train_config.optimizer.reduce_on_plateau.factor',
            'expected above 0 and below 1. Received: 1.',
        ),
        (
            f'{RATE}={{polynomial_learning_rate {{}}}}',
            'train',
            f'{RATE}.polynomial_learning_rate.total_steps',
            'expected at least 1. Received: 0 (not set).',
        ),
        (
            f'{RATE}={{constant_learning_rate {{}} warmup {{epochs: 1}}}}',
            'train',
            f'{RATE}.warmup.epochs',
            'learning_rate_unit: EPOCHS with it. Received: STEPS.',
        ),
        (
            f'{RATE}={{cosine_decay_learning_rate {{warmup_epochs: 1}}}}',
            'train',
            f'{RATE}.cosine_decay_learning_rate.warmup_epochs',
            'learning_rate_unit: EPOCHS with it. Received: STEPS.',
        ),
        (
            in_epochs('schedule {step: 1 epoch: 1.5} schedule {step: 2}'),
            'train',
            f'{RATE}.manual_step_learning_rate.schedule[0].step, epoch',
            'expected one of them. Received: both.',
        ),
        (
            in_epochs('schedule {epoch: -1} schedule {step: 2}'),
            'train',
            f'{RATE}.manual_step_learning_rate.schedule[0].epoch',
            'expected at least 0. Received: -1.',
        ),
        (f'{MULTIPLIER}={{multiplier: 1}}', 'train', f'{MULTIPLIER}.variables', 'is not set'),
        (f"{MULTIPLIER}={{variables: 'a'}}", 'train', f'{MULTIPLIER}.multiplier', 'is not set'),
        (
            f"{MULTIPLIER}={{variables: 'a(' multiplier: 1}}",
            'train',
            f'{MULTIPLIER}.variables',
            'expected a regular expression',
        ),
        (
            f"{MULTIPLIER}={{variables: 'a' multiplier: 0}}",
            'train',
            f'{MULTIPLIER}.multiplier',
            'above 0; train_config.freeze_variables trains none of them. Received: 0.',
        ),
        (
            f"{MULTIPLIER}={{variables: 'a' multiplier: -2}}",
            'train',
            f'{MULTIPLIER}.multiplier',
            'trains none of them. Received: -2.',
        ),
        (
            "train_config.class_weight[0]={name: 'aa' weight: 2}",
            'train',
            'train_config.class_weight[0].name',
            "such as a, b. Received: 'aa', did you mean 'a'?",
        ),
        (
            f'{RATE}={{cosine_decay_learning_rate {{total_steps: 5}}}}',
            'train',
            'train_config.optimizer',
            'total_steps',
        ),
        (
            'train_config.fine_tune_checkpoint=a/ckpt-1',
            'train',
            'train_config.fine_tune_checkpoint',
            'there is none',
        ),
        (
            'train_input_reader.load_instance_masks=false',
            'train',
            'train_input_reader.load_instance_masks',
            'set it to true',
        ),
        (
            'train_input_reader.tf_record_input_reader.input_path[0]=no/such-*',
            'train',
            'train_input_reader.tf_record_input_reader.input_path[0]',
            'no file matches',
        ),
        (
            'train_input_reader.label_map_path=no/such',
            'train',
            'train_input_reader.label_map_path',
            'there is no file',
        ),
        (f'{MODEL}.num_classes=1', 'train', f'{MODEL}.num_classes', 'ids up to 2'),
        ('eval_config.metrics_set=coco', 'eval', 'eval_config.metrics_set', 'Received: coco'),
        (
            'eval_config.metrics_set=coco_detection_metric',
            'eval',
            'eval_config.metrics_set',
            'Did you mean coco_detection_metrics?',
        ),
        ('eval_config.batch_size=0', 'eval', 'eval_config.batch_size', 'at least 1'),
        (
            'eval_input_reader[0].load_instance_masks=false',
            'eval',
            'eval_input_reader[0].load_instance_masks',
            'set it to true',
        ),
        (
            'eval_input_reader[0].label_map_path=',
            'eval',
            'eval_input_reader[0].label_map_path',
            'is not set',
        ),
        ('eval_input_reader=', 'eval', 'eval_input_reader', 'is not set'),
        (
            'train_input_reader.label_map_path=PATH_TO_BE_CONFIGURED/map.pbtxt',
            'train',
            'train_input_reader.label_map_path',
            'expected a path of yours',
        ),
    ],
)
@without_layers
def test_one_mistake_gives_one_line(tmp_path, setting, purpose, field, message):
    pipeline = sound_pipeline(tmp_path)
    apply_setting(pipeline, setting)
    found = problems(pipeline, purpose)
    assert len(found) == 1, found
    assert found[0].startswith(field)
    assert message in found[0]


@rows.parametrize('number', ['nan', 'inf', '-1'])
def test_a_number_of_epochs_that_is_none(tmp_path, number):
    pipeline = sound_pipeline(tmp_path)
    pipeline.train_config.num_steps = 0
    pipeline.train_config.num_epochs = float(number)
    (found,) = problems(pipeline, 'train')
    assert found.startswith('train_config.num_epochs: expected ')
    assert found.endswith(f'above 0. Received: {number}.')


@rows.parametrize(
    ('field', 'purpose'),
    [
        ('train_input_reader.tf_record_input_reader.input_path[0]', 'train'),
        ('train_input_reader.label_map_path', 'train'),
        ('train_input_reader.record_cache.directory', 'train'),
        ('train_config.fine_tune_checkpoint', 'train'),
        ('eval_input_reader[0].label_map_path', 'eval'),
        ('eval_config.best_checkpoint.metric', 'eval'),
    ],
)
def test_a_nul_byte_is_reported_with_its_field(tmp_path, field, purpose):
    pipeline = sound_pipeline(tmp_path)
    apply_setting(pipeline, f'{field}=a\0b')
    (found,) = problems(pipeline, purpose)
    assert found == f"{field}: expected text without NUL bytes. Received: 'a\\x00b'."


def test_a_folder_in_place_of_records_is_reported(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    field = 'train_input_reader.tf_record_input_reader.input_path[0]'
    apply_setting(pipeline, f'{field}={tmp_path}')
    (found,) = problems(pipeline, 'train')
    assert found == f'{field}: expected files of records. Received: {str(tmp_path)!r}, a folder.'


def test_a_set_of_records_with_a_gap_is_reported(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    for shard in (0, 2):
        (tmp_path / f'a-{shard:05d}-of-00003').touch()
    pattern = f'{tmp_path}/a-?????-of-?????'
    pipeline.train_input_reader.tf_record_input_reader.input_path[:] = [pattern]
    (found,) = problems(pipeline, 'train')
    assert found.startswith('train_input_reader.tf_record_input_reader.input_path[0]: expected all')
    assert 'a-00001-of-00003' in found


def test_a_set_of_records_that_is_being_replaced_is_reported(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    (tmp_path / 'a-00000-of-00001').touch()
    (tmp_path / 'a.publishing').touch()
    pipeline.eval_input_reader[0].tf_record_input_reader.input_path[:] = [f'{tmp_path}/a-*']
    (found,) = problems(pipeline, 'eval')
    assert found.startswith('eval_input_reader[0].tf_record_input_reader.input_path[0]: expected')
    assert 'a.publishing exists' in found


def test_a_job_reports_names_files_and_types_at_once(tmp_path):
    path = write_files(tmp_path)
    path.write_text(
        path.read_text().replace('resnet18_fpn', 'resnet17_fpn') + 'data_parts { a: 1 }'
    )
    (tmp_path / 'label_map.pbtxt').unlink()
    with pytest.raises(ConfigError) as caught:
        resolve_config.read(str(path), job_options.TrainOptions(), for_what='train and eval')
    assert 'TrainEvalPipelineConfig has no field `data_parts`' in str(caught.value)
    assert 'train_input_reader.label_map_path: there is no file' in str(caught.value)
    assert f'{MODEL}.feature_extractor.type: expected one of' in str(caught.value)


GRID = 'base_sizes: 32 aspect_ratios: -1 height_stride: 16 width_stride: 16'
# One of them is wrong.
GRIDS = f'anchor_grid {{{GRID}}} anchor_grid {{{GRID.replace("-1", "1")}}} '
FC = f'{PREDICTOR}.fc_hyperparams'
RPN = f'{MODEL}.first_stage_box_predictor_conv_hyperparams'
EXTRACTOR = f'{MODEL}.feature_extractor.conv_hyperparams'


@rows.parametrize(
    ('setting', 'field', 'message'),
    [
        (f'{FC}.batch_norm.epsilon=-1', f'{FC}.batch_norm.epsilon', 'above 0'),
        (f'{RPN}.batch_norm.decay=2', f'{RPN}.batch_norm.decay', '0 to 1'),
        (f'{RPN}.sync_batch_norm.decay=nan', f'{RPN}.sync_batch_norm.decay', '0 to 1'),
        (
            f'{EXTRACTOR}.initializer={{truncated_normal_initializer {{stddev: -1}}}}',
            f'{EXTRACTOR}.initializer.truncated_normal_initializer.stddev',
            'at least 0. Received: -1',
        ),
        (
            f'{RPN}.initializer={{random_normal_initializer {{stddev: -1}}}}',
            f'{RPN}.initializer.random_normal_initializer.stddev',
            'at least 0',
        ),
        (
            f'{PREDICTOR}.conv_hyperparams.regularizer={{l2_regularizer {{weight: -1}}}}',
            f'{PREDICTOR}.conv_hyperparams.regularizer.l2_regularizer.weight',
            'at least 0',
        ),
        (
            f'{RPN}.initializer={{keras_initializer_by_name: "glorot"}}',
            f'{RPN}.initializer.keras_initializer_by_name',
            "Received: 'glorot'",
        ),
        (
            f'{FC}.group_norm={{}}',
            f'{FC}.group_norm',
            'group_norm.groups: expected a divisor of ',
        ),
        (f'{RPN}.group_norm={{groups: 24}}', f'{RPN}.group_norm', 'a divisor of 512'),
        (
            f'{PREDICTOR}.conv_hyperparams.group_norm={{groups: 24}}',
            f'{PREDICTOR}.conv_hyperparams.group_norm',
            'a divisor of 256',
        ),
        (
            f'{ANCHORS}.multiscale_anchor_generator.aspect_ratios=-1',
            f'{ANCHORS}.multiscale_anchor_generator.aspect_ratios[0]',
            'expected above 0. Received: -1.',
        ),
        (
            f'{ANCHORS}={{flexible_grid_anchor_generator {{{GRIDS}normalize_coordinates: false}}}}',
            f'{ANCHORS}.flexible_grid_anchor_generator.anchor_grid[0].aspect_ratios[0]',
            'expected above 0. Received: -1.',
        ),
    ],
)
@without_layers
def test_layers_and_anchors_that_cannot_be_built(tmp_path, setting, field, message):
    pipeline = sound_pipeline(tmp_path)
    apply_setting(pipeline, setting)
    (line,) = problems(pipeline, 'export')
    assert line.startswith(f'{field}: ')
    assert message in line
    assert 'protos' not in line


@without_layers
def test_a_group_norm_that_fits_passes(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    apply_setting(pipeline, f'{PREDICTOR}.conv_hyperparams.group_norm={{}}')
    assert problems(pipeline, 'export') == []


@rows.parametrize('permutation', ['', 'keypoint_flip_permutation: [1, 0]'])
@without_layers
def test_a_flip_of_keypoints_needs_their_permutation(tmp_path, permutation):
    pipeline = sound_pipeline(tmp_path)
    apply_setting(pipeline, f'{AUGMENTATION}={{random_horizontal_flip {{{permutation}}}}}')
    assert problems(pipeline, 'train') == []
    pipeline.train_input_reader.num_keypoints = 3
    (found,) = problems(pipeline, 'train')
    field = f'{AUGMENTATION}.random_horizontal_flip.keypoint_flip_permutation'
    assert found.startswith(f'{field}: expected one entry for each of the 3 keypoints')


@without_layers
def test_points_of_surfaces_are_not_mirrored(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    pipeline.train_input_reader.load_dense_pose = True
    apply_setting(pipeline, f'{AUGMENTATION}={{random_horizontal_flip {{}}}}')
    (found,) = problems(pipeline, 'train')
    assert 'random_horizontal_flip: expected none with train_input_reader.load_dense' in found
    apply_setting(pipeline, f'{AUGMENTATION}={{random_rotation90 {{}}}}')
    assert problems(pipeline, 'train') == []


@without_layers
def test_turned_keypoints_keep_their_positions_unless_a_permutation_is_given(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    pipeline.train_input_reader.num_keypoints = 3
    apply_setting(pipeline, f'{AUGMENTATION}={{random_rotation90 {{}}}}')
    assert problems(pipeline, 'train') == []
    turn = 'random_rotation90 {keypoint_rot_permutation: [1, 0]}'
    apply_setting(pipeline, f'{AUGMENTATION}={{{turn}}}')
    (found,) = problems(pipeline, 'train')
    assert 'random_rotation90.keypoint_rot_permutation: expected one entry for each of' in found
    apply_setting(pipeline, f'{AUGMENTATION}={{random_vertical_flip {{}}}}')
    (found,) = problems(pipeline, 'train')
    assert 'random_vertical_flip.keypoint_flip_permutation: expected one entry' in found


@rows.parametrize(
    ('settings', 'field', 'message'),
    [
        (
            ['train_config.use_multiclass_scores=true'],
            'train_config.use_multiclass_scores: ',
            'train_input_reader.load_multiclass_scores: true',
        ),
        (
            [
                'train_config.use_multiclass_scores=true',
                'train_input_reader.load_multiclass_scores=true',
                'train_config.merge_multiple_label_boxes=true',
            ],
            'train_config.use_multiclass_scores, train_config.merge_multiple_label_boxes: ',
            'expected one of them',
        ),
        (
            [f'{AUGMENTATION}={{convert_class_logits_to_softmax {{}}}}'],
            f'{AUGMENTATION}.convert_class_logits_to_softmax: ',
            'train_input_reader.load_multiclass_scores: true',
        ),
        (
            [f'{AUGMENTATION}={{remap_labels {{original_labels: 1 new_label: 3}}}}'],
            'model.faster_rcnn.num_classes is 2, but train_input_reader.label_map_path',
            'has ids up to 3 (after train_config.data_augmentation_options)',
        ),
        (
            [f'{AUGMENTATION}={{normalize_image {{}}}}'],
            f'{AUGMENTATION}: normalize_image.original_maxval: ',
            'more than original_minval',
        ),
        (
            [f'{AUGMENTATION}={{scale_boxes_to_pixel_coordinates {{}}}}'],
            f'{AUGMENTATION}.scale_boxes_to_pixel_coordinates is not supported',
            'boxes stay normalized',
        ),
    ],
)
@without_layers
def test_steps_and_labels_that_do_not_fit(tmp_path, settings, field, message):
    pipeline = sound_pipeline(tmp_path)
    for setting in settings:
        apply_setting(pipeline, setting)
    (found,) = problems(pipeline, 'train')
    assert found.startswith(field)
    assert message in found


@rows.parametrize(
    'step',
    [
        'remap_labels {original_labels: [1, 2] new_label: 1}',
        'drop_label_probabilistically {label: 2}',
    ],
)
@without_layers
def test_ids_that_no_object_keeps_need_no_class(tmp_path, step):
    pipeline = sound_pipeline(tmp_path)
    pipeline.model.faster_rcnn.num_classes = 1
    (found,) = problems(pipeline, 'train')
    assert 'has ids up to 2' in found
    apply_setting(pipeline, f'{AUGMENTATION}={{{step}}}')
    assert problems(pipeline, 'train') == []
    (found,) = problems(pipeline, 'eval')
    assert found.startswith('model.faster_rcnn.num_classes is 1, but eval_input_reader[0].label_')


@without_layers
def test_mask_metrics_need_a_mask_model(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    pipeline.model.faster_rcnn.number_of_stages = 2
    predictor = pipeline.model.faster_rcnn.second_stage_box_predictor
    predictor.mask_rcnn_box_predictor.predict_instance_masks = False
    (found,) = problems(pipeline, 'eval')
    assert found.startswith('eval_config.metrics_set has coco_mask_metrics')


@without_layers
def test_a_keypoint_head_needs_keypoints(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    apply_setting(pipeline, f'{PREDICTOR}.predict_keypoints=true')
    of_data, found = problems(pipeline)
    assert of_data.startswith('train_input_reader.num_keypoints is 0, but the model trains on')
    assert found.startswith(f'{PREDICTOR}.keypoint_head')
    assert 'num_keypoints: expected at least 1. Received: 0' in found
    apply_setting(pipeline, 'train_input_reader.num_keypoints=2')
    apply_setting(pipeline, f'{PREDICTOR}.keypoint_head.num_keypoints=2')
    assert problems(pipeline) == []
    labels = tmp_path / 'keypoints.pbtxt'
    labels.write_text('item { id: 1 name: "a" keypoints { id: 2 label: "tip" } }')
    apply_setting(pipeline, f'{PREDICTOR}.keypoint_head.label_map_path={labels}')
    (found,) = problems(pipeline)
    assert found.startswith(f'{PREDICTOR}.keypoint_head')
    assert found.endswith(f'expected more than 2, as {labels}. Received: 2.')


@without_layers
def test_static_shapes_need_images_of_one_size(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    apply_setting(pipeline, f'{MODEL}.use_static_shapes=true')
    assert problems(pipeline) == []
    apply_setting(pipeline, f'{MODEL}.image_resizer={{keep_aspect_ratio_resizer {{}}}}')
    (found,) = problems(pipeline, 'export')
    assert found.startswith(f'{MODEL}.use_static_shapes')
    for padding in ('pad_to_max_dimension: true', 'pad_height: 64 pad_width: 96'):
        resizer = f'{{keep_aspect_ratio_resizer {{{padding}}}}}'
        apply_setting(pipeline, f'{MODEL}.image_resizer={resizer}')
        assert problems(pipeline, 'export') == []


def test_all_problems_are_listed_in_one_error(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    pipeline.train_config.batch_size = 0
    pipeline.model.faster_rcnn.num_classes = 0
    pipeline.eval_input_reader[0].label_map_path = 'no/such'
    with pytest.raises(ConfigError, match=r'^The config has 3 problems:') as caught:
        validate(pipeline, for_what=PURPOSES)
    for field in (f'{MODEL}.num_classes', 'train_config.batch', 'eval_input_reader[0].label'):
        assert f'\n  {field}' in str(caught.value)


def test_errors_of_an_empty_config_name_what_it_lacks():
    found = problems(TrainEvalPipelineConfig())
    for start in ('model', 'train_config', 'train_input_reader', 'eval_input_reader'):
        assert any(line.startswith(f'{start} is not set') for line in found)


@without_layers
def test_only_the_parts_of_the_purpose_are_checked(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    pipeline.train_config.batch_size = 0
    pipeline.train_input_reader.label_map_path = 'PATH_TO_BE_CONFIGURED'
    assert problems(pipeline, 'eval') == []
    assert len(problems(pipeline, 'train')) == 2


def test_every_reference_config_gets_sentences_and_no_crash(shared, monkeypatch):
    # Building the models is for test_zoo.py.
    monkeypatch.setattr(tracing, 'check', lambda *arguments, **options: None)
    for path in sorted((shared / 'reference' / 'configs').rglob('*.config')):
        found = problems(read_pipeline(str(path)))
        assert any('PATH_TO_BE_CONFIGURED' in line for line in found), path.name
        assert all(line.endswith('.') for line in found), path.name


def test_an_unknown_purpose_is_rejected(tmp_path):
    with pytest.raises(ValueError, match='for_what'):
        validate(sound_pipeline(tmp_path), for_what='fun')


FLEXIBLE = f'{ANCHORS}.flexible_grid_anchor_generator'
MULTISCALE = f'{ANCHORS}.multiscale_anchor_generator'
CALIBRATION = f'{MODEL}.second_stage_post_processing.calibration_config'
PLATT = f'{CALIBRATION}.class_id_sigmoid_calibrations.class_id_sigmoid_parameters_map'
# Features of crops: 14 on a pyramid; elsewhere 7 after the pooling, and half of them.
UPSAMPLES = [f'{PREDICTOR}.convolve_then_upsample_masks=true']
MASKS_OF_28 = [f'{PREDICTOR}.mask_height=28', f'{PREDICTOR}.mask_width=28']
ONE_MAP = [
    f'{MODEL}.masks_from_crops=false',
    f'{MODEL}.feature_extractor={{type: "faster_rcnn_resnet50_keras"}}',
    f'{ANCHORS}={{grid_anchor_generator {{scales: 1 aspect_ratios: 1}}}}',
]
# Of TensorFlow 1: its stage over crops has no padding.
CROPS_OF_17 = [
    *ONE_MAP,
    f'{MODEL}.feature_extractor.type=faster_rcnn_inception_resnet_v2',
    f'{MODEL}.initial_crop_size=17',
    f'{MODEL}.maxpool_kernel_size=1',
    f'{MODEL}.maxpool_stride=1',
    f'{PREDICTOR}.mask_head_deconv=true',
]


def flexible(*sizes: str) -> str:
    grids = [
        f'anchor_grid {{base_sizes: [{size}] aspect_ratios: [{"1" if size else ""}] '
        'height_stride: 16 width_stride: 16}'
        for size in sizes
    ]
    generator = f'flexible_grid_anchor_generator {{{" ".join(grids)} normalize_coordinates: false}}'
    return f'{ANCHORS}={{{generator}}}'


@rows.parametrize(
    ('settings', 'message'),
    [
        (
            [f'{ANCHORS}={{ssd_anchor_generator {{}}}}'],
            f'{ANCHORS}.ssd_anchor_generator makes anchors relative to the image, but Faster R-CNN '
            'needs them in pixels; use multiscale_anchor_generator, flexible_grid_anchor_generator',
        ),
        (
            [
                *ONE_MAP,
                f'{MULTISCALE}={{aspect_ratios: 1 normalize_coordinates: false}}',
            ],
            f'{MULTISCALE}: anchors are made for levels 3 to 7, but {MODEL}.feature_extractor has '
            'one feature map, of level 4 (stride 16); set min_level to 4 and max_level to 4.',
        ),
        (
            [
                *ONE_MAP,
                f'{MULTISCALE}={{aspect_ratios: 1 normalize_coordinates: false min_level: 4 '
                'max_level: 4}',
            ],
            None,
        ),
        ([*ONE_MAP, flexible('32')], None),
        (
            [*ONE_MAP, f'{PREDICTOR}.box_head={{}}'],
            f'{PREDICTOR}.box_head: expected a feature extractor with a pyramid',
        ),
        (
            [f'{PREDICTOR}.mask_head_deconv=true', *MASKS_OF_28],
            None,
        ),
        (
            [*ONE_MAP, flexible('32', '64')],
            f'{FLEXIBLE}.anchor_grid: expected one for each feature map; {MODEL}.feature_extractor '
            'has one feature map, of level 4 (stride 16). Received: 2.',
        ),
        (
            [flexible('32')],
            f'{FLEXIBLE}.anchor_grid: expected one for each feature map; {MODEL}.feature_extractor '
            'has a pyramid of levels 4 to 5. Received: 1.',
        ),
        (
            [*ONE_MAP, flexible('')],
            f'{FLEXIBLE}.anchor_grid[0].base_sizes is empty; without any there are no anchors.',
        ),
        (
            [f'{MODEL}.number_of_stages=1', f'{MODEL}.return_raw_detections_during_predict=true'],
            f'{MODEL}.return_raw_detections_during_predict is true, but {MODEL}.number_of_stages: '
            '1 has no box classifier',
        ),
        (
            [f'{MODEL}.number_of_stages=1', f'{MODEL}.output_final_box_rpn_features=true'],
            f'{MODEL}.output_final_box_rpn_features is true, but',
        ),
        ([f'{PREDICTOR}.dropout_keep_probability=1'], None),
        (
            [f'{PREDICTOR}.dropout_keep_probability=0'],
            f'{PREDICTOR}.dropout_keep_probability: expected above 0, up to 1. Received: 0.',
        ),
        (
            [f'{PREDICTOR}.dropout_keep_probability=1.5'],
            f'{PREDICTOR}.dropout_keep_probability: expected above 0, up to 1. Received: 1.5.',
        ),
        (
            [*UPSAMPLES],
            f'{PREDICTOR}.convolve_then_upsample_masks: expected mask_height and mask_width to be '
            'multiples of 14, the size of the features that they are enlarged from. Received: 15 '
            'and 15.',
        ),
        ([*UPSAMPLES, f'{PREDICTOR}.mask_height=28', f'{PREDICTOR}.mask_width=14'], None),
        ([*UPSAMPLES, f'{MODEL}.masks_from_crops=false'], None),
        (
            [
                *UPSAMPLES,
                f'{MODEL}.masks_from_crops=false',
                f'{PREDICTOR}.box_head={{num_convs: 1 num_fcs: 0}}',
            ],
            f'{PREDICTOR}.convolve_then_upsample_masks: expected mask_height and mask_width to be '
            'multiples of 7, the',
        ),
        (
            [
                f'{PREDICTOR}.mask_head_deconv=true',
                *MASKS_OF_28,
                f'{MODEL}.masks_from_crops=false',
            ],
            f'{PREDICTOR}.mask_head_deconv: expected a mask_height and mask_width of 2, twice',
        ),
        (
            [*ONE_MAP, f'{MODEL}.masks_from_crops=true'],
            f'{MODEL}.masks_from_crops: expected a feature extractor with a pyramid, as one',
        ),
        (
            [*ONE_MAP, *UPSAMPLES],
            f'{PREDICTOR}.convolve_then_upsample_masks: expected mask_height and mask_width to be '
            'multiples of 4, the',
        ),
        (
            [*ONE_MAP, f'{MODEL}.feature_extractor.type=faster_rcnn_resnet50', *UPSAMPLES],
            f'{PREDICTOR}.convolve_then_upsample_masks: expected mask_height and mask_width to be '
            'multiples of 7, the',
        ),
        (
            [
                *ONE_MAP,
                f'{MODEL}.feature_extractor.first_stage_features_stride=8',
                f'{MULTISCALE}={{aspect_ratios: 1 normalize_coordinates: false min_level: 4 '
                'max_level: 4}',
            ],
            f'{MULTISCALE}: anchors are made for levels 4 to 4, but {MODEL}.feature_extractor has '
            'one feature map, of level 3 (stride 8); set min_level to 3 and max_level to 3.',
        ),
        (
            [*ONE_MAP, *UPSAMPLES, f'{PREDICTOR}.mask_height=8', f'{PREDICTOR}.mask_width=4'],
            None,
        ),
        ([*CROPS_OF_17, *(f'{PREDICTOR}.mask_{side}=16' for side in ('height', 'width'))], None),
        (
            [*CROPS_OF_17, *(f'{PREDICTOR}.mask_{side}=18' for side in ('height', 'width'))],
            f'{PREDICTOR}.mask_head_deconv: expected a mask_height and mask_width of 16, twice',
        ),
        (
            [f'{PLATT}[2]={{}}'],
            None,
        ),
        (
            [f'{PLATT}[3]={{}}'],
            f'{PLATT}: expected class ids from 0, the background, to 2 ({MODEL}.num_classes). '
            'Received: 3.',
        ),
        (
            [
                f'{CALIBRATION}.class_id_function_approximations.class_id_xy_pairs_map[90]='
                '{x_y_pair {x: 0 y: 0}}'
            ],
            f'{CALIBRATION}.class_id_function_approximations.class_id_xy_pairs_map: expected',
        ),
    ],
)
@pytest.mark.usefixtures('short_inception_resnet_v2')
@without_layers
def test_what_the_builders_of_a_model_would_refuse(tmp_path, settings, message):
    pipeline = sound_pipeline(tmp_path)
    for setting in settings:
        apply_setting(pipeline, setting)
    found = problems(pipeline, 'export')
    if message is None:
        assert found == []
    else:
        (line,) = found
        assert line.startswith(message)


RFCN = f'{MODEL}.second_stage_box_predictor.rfcn_box_predictor'
RFCN_SETTINGS = [
    f'{MODEL}.number_of_stages=2',
    f'{MODEL}.feature_extractor={{type: "faster_rcnn_resnet50_keras"}}',
    f'{ANCHORS}={{grid_anchor_generator {{scales: 1 aspect_ratios: 1}}}}',
    f'{MODEL}.second_stage_box_predictor={{rfcn_box_predictor {{}}}}',
]


@rows.parametrize(
    ('setting', 'message'),
    [
        (f'{MODEL}.initial_crop_size=0', None),
        (f'{MODEL}.number_of_stages=3', f'{MODEL}.number_of_stages is 3, but {RFCN} predicts no'),
        (
            f'{MODEL}.output_final_box_features=true',
            f'{MODEL}.output_final_box_features is true, but {RFCN} makes no features',
        ),
        (f'{RFCN}.box_code_size=5', f'{RFCN}.box_code_size: Faster R-CNN codes a box with 4'),
        (f'{RFCN}.depth=0', f'{RFCN}.depth: expected at least 1. Received: 0.'),
        (f'{RFCN}.num_spatial_bins_width=0', f'{RFCN}.num_spatial_bins_width: expected at least 1'),
        (
            f'{RFCN}.crop_height=10',
            f'{RFCN}.crop_height: expected a multiple of num_spatial_bins_height, 3. Received: 10.',
        ),
    ],
)
@without_layers
def test_rfcn(tmp_path, setting, message):
    pipeline = sound_pipeline(tmp_path)
    for text in [*RFCN_SETTINGS, setting]:
        apply_setting(pipeline, text)
    found = problems(pipeline, 'export')
    if message is None:
        assert found == []
    else:
        (line,) = found
        assert line.startswith(message)


def test_rfcn_takes_no_pyramid(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    for text in (RFCN_SETTINGS[0], RFCN_SETTINGS[3]):
        apply_setting(pipeline, text)
    (line,) = problems(pipeline, 'export')
    assert line.startswith(f'{RFCN} needs a feature extractor of one feature map, but {MODEL}.')


@without_layers
def test_an_unknown_colour(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    apply_setting(pipeline, 'eval_config.groundtruth_box_visualization_color=reddish')
    (problem,) = problems(pipeline)
    assert problem.startswith('eval_config.groundtruth_box_visualization_color: expected a colour')
    apply_setting(pipeline, 'eval_config.groundtruth_box_visualization_color=Chartreuse')
    assert problems(pipeline) == []


@without_layers
def test_names_of_keypoints_tell_their_flip(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    reader = pipeline.train_input_reader
    reader.num_keypoints = 3
    names = enumerate(('nose', 'left_eye', 'right_eye'))
    points = ' '.join(f'keypoints {{ id: {place} label: "{name}" }}' for place, name in names)
    path = tmp_path / 'persons.pbtxt'
    text = pathlib.Path(reader.label_map_path).read_text()
    path.write_text(text + f'item {{ id: 9 name: "person" {points} }}')
    reader.label_map_path = str(path)
    pipeline.model.faster_rcnn.num_classes = 9
    apply_setting(pipeline, f'{AUGMENTATION}={{random_horizontal_flip {{}}}}')
    assert problems(pipeline, 'train') == []
    # Names do not tell what takes which place upside down.
    apply_setting(pipeline, f'{AUGMENTATION}={{random_vertical_flip {{}}}}')
    (found,) = problems(pipeline, 'train')
    assert 'random_vertical_flip.keypoint_flip_permutation: expected one entry' in found


@without_layers
def test_lines_between_keypoints_that_there_are_not(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    pipeline.eval_input_reader[0].num_keypoints = 3
    apply_setting(pipeline, 'eval_config.keypoint_edge[0]={start: 0 end: 2}')
    assert problems(pipeline, 'eval') == []
    apply_setting(pipeline, 'eval_config.keypoint_edge[0]={start: 0 end: 3}')
    (found,) = problems(pipeline, 'eval')
    assert found.startswith('eval_config.keypoint_edge[')
    assert found.endswith('num_keypoints - 1, 2. Received: 0 and 3.')
