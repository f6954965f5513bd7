import importlib.resources
import logging

import pytest

from object_detection.config import reader, report
from object_detection.config.overrides import apply_setting
from object_detection.meta_architectures import tracing
from object_detection.meta_architectures.faster_rcnn.faster_rcnn import FasterRcnn
from object_detection.validation import train_config as train_config_rules
from object_detection.validation.validate import validate
from tests import rows
from tests.validation.pipelines import sound_pipeline

EXTRACTOR = 'model.faster_rcnn.feature_extractor'
RATE = 'train_config.optimizer.momentum_optimizer.learning_rate'
LARS = 'train_config.optimizer.lars_optimizer={learning_rate {constant_learning_rate {}}}'
LARS_DECAY = 'train_config.optimizer.lars_optimizer.weight_decay'
ADAMW = LARS.replace('lars', 'adamw')
SGDW = LARS.replace('lars', 'momentum').replace('}}', "}} weight_decay: 1 exclude_pattern: 'a'")
ADAMW_DECAY = LARS_DECAY.replace('lars', 'adamw')
RPN_L2 = 'model.faster_rcnn.first_stage_box_predictor_conv_hyperparams.regularizer.l2_regularizer'
AVERAGES = 'train_config.optimizer.use_moving_average'
COSINE = f'{RATE}.cosine_decay_learning_rate'
WITHOUT_PYRAMID = "type: 'faster_rcnn_resnet50_keras' first_stage_features_stride: 16"
GRID = '{grid_anchor_generator {scales: 1 aspect_ratios: 1}}'


_checked = {}


@pytest.fixture(autouse=True)
def _few_layers(small_backbone, monkeypatch):
    """Builds no variables: no warning here is about layers."""
    monkeypatch.setattr(FasterRcnn, 'build_variables', lambda detector: None)
    monkeypatch.setattr(tracing, '_checked', _checked)


@pytest.fixture
def warnings(tmp_path, caplog):
    """Returns what is said of the sound config with some settings."""

    def validated(*settings: str, for_what=('train', 'eval'), resumes=False) -> list[str]:
        pipeline = sound_pipeline(tmp_path)
        for setting in settings:
            apply_setting(pipeline, setting)
        caplog.clear()
        with report.job(), caplog.at_level(logging.WARNING, 'object_detection'):
            validate(pipeline, for_what=for_what, resumes=resumes)
        return caplog.messages

    return validated


@rows.parametrize(
    ('schedule', 'num_steps', 'told'),
    [
        # Up to 1 % of the highest rate is as good as none.
        ('cosine_decay_learning_rate {total_steps: 106 warmup_steps: 10}', 100, None),
        ('cosine_decay_learning_rate {total_steps: 100 warmup_steps: 99}', 100, None),
        (
            'cosine_decay_learning_rate {total_steps: 190 warmup_steps: 10 learning_rate_base: 4}',
            100,
            'COSINE.total_steps is 190, but train_config.num_steps is 100: the training ends while '
            'the learning rate is still 50% of its highest, 4.',
        ),
        (
            'cosine_decay_learning_rate {warmup_steps: 10 hold_base_rate_steps: 100}',
            100,
            'COSINE.total_steps is 4000000 (the default), but train_config.num_steps is 100: the '
            'training ends while the learning rate is still 100% of its highest, 0.002.',
        ),
        (
            'cosine_decay_learning_rate {total_steps: 20000}',
            10000,
            'COSINE.warmup_steps is 10000 (the default), but train_config.num_steps is 10000: the '
            'training ends within the warm-up.',
        ),
        ('manual_step_learning_rate {schedule {step: 50} schedule {step: 99}}', 100, None),
        (
            'manual_step_learning_rate {schedule {step: 5} schedule {step: 100} '
            'schedule {step: 200}}',
            100,
            'MANUAL.schedule[1].step is 100, but train_config.num_steps is 100: it is never '
            'reached.',
        ),
        (
            'manual_step_learning_rate {schedule {step: 100} warmup: true}',
            100,
            'MANUAL.schedule[0].step is 100, but train_config.num_steps is 100: the training ends '
            'within the warm-up.',
        ),
        ('exponential_decay_learning_rate {decay_steps: 99 decay_factor: 0.5}', 100, None),
        (
            'exponential_decay_learning_rate {decay_steps: 100 decay_factor: 0.5}',
            100,
            'EXPONENTIAL.decay_steps is 100, decay_factor is 0.5, min_learning_rate is 0 (the '
            'default), and train_config.num_steps is 100: the learning rate never falls; it is '
            '0.002 at first and 0.002 in the last step.',
        ),
        (
            'exponential_decay_learning_rate {decay_steps: 100 decay_factor: 0.5 staircase: false}',
            100,
            None,
        ),
        (
            'exponential_decay_learning_rate {decay_steps: 50 min_learning_rate: 0.01}',
            100,
            'EXPONENTIAL.decay_steps is 50, decay_factor is 0.95 (the default), min_learning_rate '
            'is 0.01, and train_config.num_steps is 100: the learning rate never falls; it is '
            '0.01 at first and 0.01 in the last step.',
        ),
        (
            'exponential_decay_learning_rate {decay_steps: 5 burnin_steps: 100}',
            100,
            'EXPONENTIAL.burnin_steps is 100, but train_config.num_steps is 100: the training ends '
            'within the burn-in.',
        ),
        ('constant_learning_rate {}', 100, None),
    ],
)
def test_schedules_that_do_not_fit_the_length_of_the_training(warnings, schedule, num_steps, told):
    messages = warnings(f'{RATE}={{{schedule}}}', f'train_config.num_steps={num_steps}')
    paths = {
        'COSINE': COSINE,
        'MANUAL': f'{RATE}.manual_step_learning_rate',
        'EXPONENTIAL': f'{RATE}.exponential_decay_learning_rate',
    }
    for short, path in paths.items():
        told = told and told.replace(short, path)
    assert messages == ([told] if told else [])


def test_the_samples_have_schedules_of_the_right_length():
    paths = list((importlib.resources.files('object_detection') / 'samples/configs').iterdir())
    configs = [reader.read_pipeline(path) for path in paths if path.name.endswith('.config')]
    assert len(configs) >= 3
    for config in configs:
        assert list(train_config_rules.schedule_warnings(config.train_config)) == []


def test_fields_that_others_make_idle(warnings):
    nms = 'model.faster_rcnn.second_stage_post_processing.batch_non_max_suppression'
    (message,) = warnings(f'{nms}.change_coordinate_frame=false')
    assert message.startswith(f'no effect: {nms}.change_coordinate_frame (detections of')
    miner = 'model.faster_rcnn.hard_example_miner'
    default = 'model.faster_rcnn.second_stage_batch_size=64'
    (message,) = warnings(default, f'{miner}={{min_negatives_per_image: 3}}')
    assert message.startswith(f'no effect: {miner}.min_negatives_per_image (it widens')
    both = '{min_negatives_per_image: 3 max_negatives_per_positive: 2}'
    assert warnings(default, f'{miner}={both}') == []


@rows.parametrize(
    ('settings', 'told'),
    [
        (['train_input_reader.skip_crowd=true', 'train_input_reader.filter_empty_images=1'], None),
        (
            ['eval_input_reader[0].skip_crowd=true', 'eval_input_reader[0].filter_empty_images=1'],
            'no effect: eval_input_reader[0].filter_empty_images, eval_input_reader[0].skip_crowd '
            '(evaluation sees all images',
        ),
        (
            ['eval_input_reader[0].num_epochs=2', 'train_input_reader.num_epochs=0'],
            'no effect: eval_input_reader[0].num_epochs (an evaluation reads each image once',
        ),
        (['eval_input_reader[0].num_epochs=1'], None),
        (
            [
                'train_input_reader.skip_crowd=true',
                'model.faster_rcnn.first_stage_crowd_ioa_threshold=0.5',
            ],
            'no effect: model.faster_rcnn.first_stage_crowd_ioa_threshold (train_input_reader.',
        ),
        (
            [
                'train_input_reader.record_cache={}',
                'train_input_reader.data_service=grpc://host:5050',
            ],
            'no effect: train_input_reader.record_cache (the data_service reads the files)',
        ),
        (['train_input_reader.record_cache={}'], None),
        (
            [f'{AVERAGES}=false', 'train_config.optimizer.moving_average_decay=0.9'],
            f'no effect: train_config.optimizer.moving_average_decay ({AVERAGES} is false)',
        ),
        (
            [
                f'{RATE}={{exponential_decay_learning_rate {{burnin_learning_rate: 1}}}}',
                f'{RATE}.exponential_decay_learning_rate.decay_steps=9',
            ],
            f'no effect: {RATE}.exponential_decay_learning_rate.burnin_learning_rate (burnin_steps',
        ),
        (
            [
                f'{COSINE}={{warmup_learning_rate: 0 warmup_steps: 0}}',
                f'{COSINE}.total_steps=100',
                'train_config.num_steps=100',
            ],
            f'no effect: {COSINE}.warmup_learning_rate (there is no warm-up)',
        ),
        (
            [
                f'{COSINE}={{warmup_learning_rate: 0 total_steps: 10}}',
                'train_config.optimizer.learning_rate_unit=EPOCHS',
            ],
            f'no effect: {COSINE}.warmup_learning_rate (there is no warm-up)',
        ),
        (['train_config.weight_decay={weight: 1e-4}'], None),
        (
            ["train_config.weight_decay={weight: 0 exclude_pattern: 'bias'}"],
            'no effect: train_config.weight_decay.exclude_pattern (train_config.weight_decay.weig',
        ),
        (
            ['train_config.weight_decay={weight: 1e-4}', f'{RPN_L2}={{weight: 0.0}}'],
            None,
        ),
        (
            ['train_config.weight_decay={weight: 1e-4}', f'{RPN_L2}={{}}'],
            f'no effect: {RPN_L2} (train_config.weight_decay takes its place)',
        ),
        (
            [
                'train_config.weight_decay={weight: 1e-4}',
                'train_config.add_regularization_loss=false',
            ],
            'no effect: train_config.weight_decay (train_config.add_regularization_loss is false)',
        ),
        (
            ['train_config.weight_decay={weight: 1e-4}', f'{LARS}', f'{LARS_DECAY}=0'],
            None,
        ),
        (
            ['train_config.weight_decay={weight: 1e-4}', f'{LARS}'],
            'train_config.weight_decay and train_config.optimizer.lars_optimizer.weight_decay both',
        ),
        (
            [f'{AVERAGES}=false', 'train_config.optimizer.moving_average_ramp=100'],
            f'no effect: train_config.optimizer.moving_average_ramp ({AVERAGES} is false)',
        ),
        ([ADAMW], None),
        ([ADAMW, f'{RPN_L2}={{weight: 0.0}}'], None),
        (
            [ADAMW, f'{RPN_L2}={{weight: 0.1}}'],
            f'{RPN_L2} and train_config.optimizer.adamw_optimizer.weight_decay both act: the weigh',
        ),
        ([ADAMW, f'{ADAMW_DECAY}=0', f'{RPN_L2}={{weight: 0.1}}'], None),
        (
            [ADAMW, f'{RPN_L2}={{weight: 0.1}}', 'train_config.add_regularization_loss=false'],
            None,
        ),
        # It takes the place of all penalties, and of itself there is none.
        (
            [ADAMW, f'{RPN_L2}={{weight: 0.1}}', 'train_config.weight_decay={weight: 0}'],
            f'no effect: {RPN_L2} (train_config.weight_decay takes its place)',
        ),
        (
            ["train_config.optimizer.momentum_optimizer.exclude_pattern='bias'"],
            'no effect: train_config.optimizer.momentum_optimizer.exclude_pattern (train_config.',
        ),
        ([SGDW], None),
        ([ADAMW.replace('}}', '} warmup {steps: 9}}')], None),
    ],
)
def test_crowds_and_penalties_that_others_make_idle(warnings, settings, told):
    messages = warnings(*settings)
    assert len(messages) == (told is not None)
    assert not messages or messages[0].startswith(told)


MODEL = 'model.faster_rcnn'
HEAD = f'{MODEL}.second_stage_box_predictor.mask_rcnn_box_predictor'
NMS = f'{MODEL}.second_stage_post_processing.batch_non_max_suppression'
RPN = f'{MODEL}.first_stage_box_predictor_conv_hyperparams'
CONTEXT = f'{MODEL}.context_config'
TWO_STAGES = (
    f'{MODEL}.number_of_stages=2',
    f'{MODEL}.masks_from_crops=false',
    f'{HEAD}.predict_instance_masks=false',
)


@rows.parametrize(
    ('settings', 'fields', 'reason'),
    [
        ([f'{RPN}.activation=SWISH'], [f'{RPN}.activation'], 'first_stage_activation says'),
        ([f'{RPN}.activation=RELU'], [f'{RPN}.activation'], 'first_stage_activation says'),
        (
            [
                f'{CONTEXT}.use_long_term_attention=false',
                f'{CONTEXT}.use_self_attention=true',
                f'{CONTEXT}.num_attention_heads=2',
                f'{CONTEXT}.context_feature_length=5',
            ],
            [f'{CONTEXT}.context_feature_length', f'{CONTEXT}.num_attention_heads'],
            'use_long_term_attention is false',
        ),
        (
            [f'{CONTEXT}.self_attention_in_sequence=true'],
            [f'{CONTEXT}.self_attention_in_sequence'],
            'there is one attention',
        ),
        (
            [f'{HEAD}.fc_hyperparams.activation=RELU_6', f'{HEAD}.fc_hyperparams.force_use_bias=1'],
            [f'{HEAD}.fc_hyperparams.activation', f'{HEAD}.fc_hyperparams.force_use_bias'],
            'always have a bias, and no activation',
        ),
        (
            [
                f'{MODEL}.use_static_balanced_label_sampler=true',
                f'{MODEL}.use_static_shapes_for_eval=true',
            ],
            [
                f'{MODEL}.use_static_balanced_label_sampler',
                f'{MODEL}.use_static_shapes_for_eval',
            ],
            'without use_static_shapes: true',
        ),
        (
            [f'{HEAD}.dropout_keep_probability=0.8'],
            [f'{HEAD}.dropout_keep_probability'],
            'use_dropout is false',
        ),
        (
            [f'{MODEL}.hard_example_miner={{}}', f'{MODEL}.second_stage_balance_fraction=0.5'],
            [f'{MODEL}.second_stage_batch_size', f'{MODEL}.second_stage_balance_fraction'],
            'hard_example_miner chooses among all proposals',
        ),
        (
            [f'{NMS}.use_hard_nms=true', f'{NMS}.soft_nms_sigma=0.5'],
            [f'{NMS}.soft_nms_sigma'],
            'use_hard_nms suppresses outright',
        ),
        (
            [f'{NMS}.soft_nms_sigma=0.5', f'{NMS}.iou_threshold=0.5'],
            [f'{NMS}.iou_threshold'],
            'soft_nms_sigma lets scores decay',
        ),
        (
            [f'{NMS}.use_class_agnostic_nms=true', f'{NMS}.max_detections_per_class=20'],
            [f'{NMS}.max_detections_per_class'],
            'use_class_agnostic_nms has max_total_detections as its only limit',
        ),
        (
            [f'{NMS}.use_combined_nms=true'],
            [f'{NMS}.use_combined_nms'],
            'one exact algorithm does it all, and drops boxes outside of the image',
        ),
        (
            [f'{MODEL}.use_combined_nms_in_first_stage=true'],
            [f'{MODEL}.use_combined_nms_in_first_stage'],
            'one exact algorithm does all non-maximum suppression',
        ),
        (
            [
                *TWO_STAGES,
                f'{MODEL}.second_stage_mask_prediction_loss_weight=2',
                f'{HEAD}.mask_height=28',
                f'{HEAD}.mask_width=15',
            ],
            [
                f'{MODEL}.second_stage_mask_prediction_loss_weight',
                f'{HEAD}.conv_hyperparams',
                f'{HEAD}.mask_height',
            ],
            'masks are predicted by stage 3',
        ),
        (
            [
                f'{MODEL}.keypoint_roi_align={{}}',
                f'{MODEL}.max_num_keypoint_rois=3',
                f'{HEAD}.keypoint_head.num_keypoints=3',
            ],
            [
                f'{MODEL}.max_num_keypoint_rois',
                f'{MODEL}.keypoint_roi_align',
                f'{HEAD}.keypoint_head',
            ],
            'predict_keypoints is false',
        ),
        (
            [
                f'{HEAD}.box_head={{num_fcs: 1}}',
                f'{HEAD}.fc_hyperparams.activation=SWISH',
                f'{EXTRACTOR}.box_head_depth=64',
            ],
            [f'{EXTRACTOR}.box_head_depth'],
            'box_head says the layers over the crops',
        ),
        (
            [
                f'{MODEL}.number_of_stages=1',
                f'{MODEL}.max_num_mask_rois=1',
                f'{HEAD}.dropout_keep_probability=0.8',
                f'{MODEL}.hard_example_miner={{min_negatives_per_image: 3}}',
                f'{NMS}.change_coordinate_frame=false',
            ],
            [
                f'{MODEL}.{name}'
                for name in (
                    'initial_crop_size',
                    'maxpool_kernel_size',
                    'maxpool_stride',
                    'second_stage_box_predictor',
                    'second_stage_batch_size',
                    'second_stage_post_processing',
                    'hard_example_miner',
                    'max_num_mask_rois',
                    'masks_from_crops',
                )
            ],
            'number_of_stages: 1 ends with the proposals',
        ),
    ],
)
def test_fields_of_a_model_that_others_make_idle(warnings, settings, fields, reason):
    (message,) = warnings(*settings, for_what='export')
    reported = message.removeprefix('no effect: ').partition(' (')[0].split(', ')
    assert sorted(reported) == sorted(fields)
    assert reason in message


@rows.parametrize(
    'settings',
    [
        [f'{RPN}.activation=RELU_6', f'{HEAD}.fc_hyperparams.activation=NONE'],
        [f'{HEAD}.fc_hyperparams.activation=RELU'],
        [f'{RPN}.activation=RELU', f'{MODEL}.first_stage_activation=RELU'],
        [
            f'{MODEL}.{name}=true'
            for name in (
                'use_static_shapes',
                'use_static_balanced_label_sampler',
                'use_static_shapes_for_eval',
            )
        ],
        [f'{HEAD}.dropout_keep_probability=1'],
        [f'{HEAD}.dropout_keep_probability=0.8', f'{HEAD}.use_dropout=true'],
        [f'{NMS}.soft_nms_sigma=0.5'],
        [f'{NMS}.use_hard_nms=true'],
        [f'{NMS}.use_class_agnostic_nms=true', f'{NMS}.max_detections_per_class=100'],
        [f'{NMS}.use_hard_nms=true', f'{NMS}.iou_threshold=0.5'],
        [*TWO_STAGES, f'{HEAD}.box_head={{num_convs: 1}}', f'{HEAD}.conv_hyperparams={{}}'],
        [f'{MODEL}.hard_example_miner={{}}', f'{MODEL}.second_stage_batch_size=64'],
    ],
)
def test_fields_of_a_model_that_have_an_effect_or_equal_the_default(warnings, settings):
    settings = [*settings, f'{MODEL}.first_stage_max_proposals=64']
    assert warnings(*settings, for_what='export') == []


def test_masks_of_a_second_stage_are_warned_of(warnings):
    """The reference runs such configs, and leaves the mask head out."""
    (message,) = warnings(f'{MODEL}.number_of_stages=2', for_what='export')
    for field in (f'{MODEL}.masks_from_crops', f'{HEAD}.predict_instance_masks'):
        assert field in message
    assert 'masks are predicted by stage 3, and number_of_stages is 2' in message


def test_masks_of_the_box_classifiers_vector_get_advice(warnings):
    without = f'{MODEL}.masks_from_crops=false'
    (message,) = warnings(without, for_what='train')
    assert message.startswith(f'{MODEL}.masks_from_crops is false: masks are predicted from')
    assert warnings(without, for_what='export') == []
    assert warnings(without, for_what='train', resumes=True) == []
    assert warnings(without, f'{MODEL}.mask_roi_align={{}}', for_what='train') == []


@rows.parametrize(
    ('converter', 'loss', 'told'),
    [
        ('IDENTITY', '{}', 'score_converter is IDENTITY, but LOSS.weighted_softmax trains'),
        ('SOFTMAX', '{weighted_sigmoid {}}', 'is SOFTMAX, but LOSS.weighted_sigmoid trains'),
        ('SIGMOID', '{weighted_sigmoid {}}', None),
    ],
)
def test_scores_that_the_loss_does_not_train_get_advice(warnings, converter, loss, told):
    post = f'{MODEL}.second_stage_post_processing'
    loss_path = f'{MODEL}.second_stage_classification_loss'
    settings = (f'{post}.score_converter={converter}', f'{loss_path}={loss}')
    messages = warnings(*settings, for_what='train')
    assert len(messages) == (told is not None)
    assert all(told.replace('LOSS', loss_path) in message for message in messages)


@rows.parametrize(('kind', 'count'), [('classification', 1), ('detection', 0), ('full', 0)])
def test_weights_of_a_classifier_keep_no_mask_head(warnings, tmp_path, kind, count):
    (tmp_path / 'ckpt.index').touch()
    started = (
        f'train_config.fine_tune_checkpoint={tmp_path / "ckpt"}',
        f'train_config.fine_tune_checkpoint_type={kind}',
    )
    messages = warnings(f'{MODEL}.masks_from_crops=false', *started, for_what='train')
    assert sum('masks_from_crops is false' in message for message in messages) == count


def test_averages_that_are_kept_but_shall_not_be_evaluated(warnings):
    keeps = 'train_config.optimizer.use_moving_average=true'
    (message,) = warnings(keeps, 'eval_config.use_moving_averages=false')
    assert message.startswith('no effect: eval_config.use_moving_averages (averages are evaluated')
    assert warnings(keeps) == []
    assert warnings(keeps, 'eval_config.use_moving_averages=true') == []
    assert warnings('eval_config.use_moving_averages=false') == []


FROZEN = f'{EXTRACTOR}.frozen_stages=2'


@rows.parametrize(
    ('settings', 'told'),
    [
        ([FROZEN], 'frozen_stages is 2, but there is no train_config.fine_tune_checkpoint: '),
        ([f'{EXTRACTOR}.batch_norm_trainable=false'], 'keep a mean of 0 and a variance of 1'),
    ],
)
def test_layers_that_keep_random_weights(warnings, tmp_path, settings, told):
    synthetic = 'train_input_reader.synthetic_input_reader={num_examples: 4}'
    assert not warnings(*settings, resumes=True)
    assert not warnings(*settings, for_what=('eval', 'export'))
    assert not warnings(*settings, synthetic)
    file = tmp_path / 'ckpt.index'
    file.touch()
    started = f'train_config.fine_tune_checkpoint={tmp_path / "ckpt"}'
    kind = 'train_config.fine_tune_checkpoint_type=classification'
    assert not warnings(*settings, started, kind)
    (message,) = warnings(*settings)
    assert told in message


def test_pasting_masks_that_are_not_evaluated(warnings):
    method = 'eval_config.mask_paste_method=ACCURATE'
    masks = 'eval_config.metrics_set=coco_mask_metrics'
    assert not warnings(method, masks, for_what='eval')
    boxes = 'eval_config.metrics_set=coco_detection_metrics'
    (message,) = warnings(method, boxes, for_what='eval')
    assert message.startswith('no effect: eval_config.mask_paste_method (')


def test_limits_of_detections_that_no_metric_has(warnings):
    limit = 'eval_config.max_detections=500'
    assert not warnings(limit, for_what='eval')
    pascal = 'eval_config.metrics_set=pascal_voc_detection_metrics'
    (message,) = warnings(limit, pascal, for_what='eval')
    assert message.startswith('no effect: eval_config.max_detections (')


def test_bounds_of_recall_without_their_metrics(warnings):
    bound = 'eval_config.recall_lower_bound=0.5'
    sets = 'eval_config.metrics_set=precision_at_recall_detection_metrics'
    assert not warnings(bound, sets, for_what='eval')
    (message,) = warnings(bound, for_what='eval')
    assert message.startswith('no effect: eval_config.recall_lower_bound (')


@rows.parametrize(
    ('setting', 'heeds'),
    [
        ('skip_predictions_for_unlabeled_class=true', 'precision_at_recall_detection_metrics'),
        ('export_path=a.json', 'coco_detection_metrics'),
    ],
)
def test_options_of_metrics_that_are_not_evaluated(warnings, setting, heeds):
    labels = 'eval_input_reader[0].load_image_labels=true'
    setting, sets = f'eval_config.{setting}', 'eval_config.metrics_set='
    assert not warnings(setting, labels, sets + heeds, for_what='eval')
    # Boxes of COCO are evaluated if nothing else is.
    assert not warnings(setting, labels, sets, for_what='eval')
    (message,) = warnings(setting, labels, sets + 'oid_V2_detection_metrics', for_what='eval')
    assert message.startswith(
        f'no effect: {setting.partition("=")[0]} (eval_config.metrics_set has'
    )


def test_steps_after_the_end_of_the_schedule(warnings):
    schedule = f'{RATE}={{cosine_decay_learning_rate {{total_steps: 100 warmup_steps: 10}}}}'
    assert warnings(schedule, 'train_config.num_steps=100') == []
    settings = (schedule, 'train_config.num_steps=130')
    assert warnings(*settings, for_what='eval') == []
    (message,) = warnings(*settings)
    assert message.startswith(f'train_config.num_steps is 130, but {COSINE}.total_steps is 100')
    assert message.endswith('0 for the last 30 steps.')
    assert warnings(*settings) == [message]  # Another job.


def test_the_stride_of_a_pyramid(warnings):
    (message,) = warnings(f'{EXTRACTOR}.first_stage_features_stride=8')
    assert message.startswith(f'no effect: {EXTRACTOR}.first_stage_features_stride (a feature pyr')
    anchors = f'model.faster_rcnn.first_stage_anchor_generator={GRID}'
    one_map = (f'{EXTRACTOR}={{{WITHOUT_PYRAMID}}}', f'{MODEL}.masks_from_crops=false')
    assert warnings(*one_map, anchors) == []


def test_steps_that_change_training_images_alone(warnings):
    steps = '{rgb_to_gray {}},{random_horizontal_flip {}},{adjust_gamma {gamma: 2}}'
    options = 'train_config.data_augmentation_options'
    assert warnings(*(f'{options}[{i}]={step}' for i, step in enumerate(steps.split(',')))) == [
        f'{options}[{i}].{step} changes all training images, but not those of evaluation and of '
        'exported models.'
        for i, step in ((0, 'rgb_to_gray'), (2, 'adjust_gamma'))
    ]
    at_times = '{rgb_to_gray {} probability: 0.5},{one_of {steps {rgb_to_gray {}}}}'
    assert not warnings(*(f'{options}[{i}]={step}' for i, step in enumerate(at_times.split(','))))


def test_steps_of_colours_after_others_that_change_their_range(warnings):
    same_range = 'normalize_image {original_maxval: 200 target_maxval: 255}'
    steps = [same_range, 'random_adjust_hue {}', 'normalize_image {original_maxval: 255}']
    steps += ['random_pad_image {}', 'one_of {steps {random_distort_color {}}}']
    options = 'train_config.data_augmentation_options'
    messages = warnings(*(f'{options}[{i}]={{{step}}}' for i, step in enumerate(steps)))
    assert [message for message in messages if 'changes all' not in message] == [
        f'{options}[4].one_of.steps[0].random_distort_color is made for colours of 0..255, which '
        f'they are not after {options}[2].normalize_image; put it before that.'
    ]


def test_keypoints_are_decoded_for_nothing(warnings):
    settings = ('train_input_reader.num_keypoints=2', 'eval_input_reader[0].num_keypoints=2')
    (message,) = warnings(*settings)
    assert message == (
        'no effect: train_input_reader.num_keypoints, eval_input_reader[0].num_keypoints '
        '(keypoints are decoded, but not used by Faster R-CNN).'
    )


def test_how_to_fine_tune_without_a_checkpoint(warnings):
    field = 'train_config.fine_tune_checkpoint_type'
    (message,) = warnings(f"{field}='full'")
    assert message == f'no effect: {field} (there is no train_config.fine_tune_checkpoint).'
    assert warnings(f"{field}='full'", for_what='eval') == []


def test_crops_of_features_that_rfcn_does_not_make(warnings):
    model = 'model.faster_rcnn'
    (message,) = warnings(
        f'{model}.number_of_stages=2',
        f'{model}.masks_from_crops=false',
        f'{EXTRACTOR}={{{WITHOUT_PYRAMID}}}',
        f'{model}.first_stage_anchor_generator={GRID}',
        f'{model}.second_stage_box_predictor={{rfcn_box_predictor {{}}}}',
        for_what=('export',),
    )
    names = ('initial_crop_size', 'maxpool_kernel_size', 'maxpool_stride')
    fields = ', '.join(f'{model}.{name}' for name in names)
    assert message.startswith(f'no effect: {fields} (R-FCN crops score maps')


def test_classes_that_the_label_map_lacks_are_reported(warnings):
    (message,) = warnings('model.faster_rcnn.num_classes=5', for_what='train')
    assert message.startswith('model.faster_rcnn.num_classes is 5, but train_input_reader.label_')
    assert message.endswith('has ids up to 2: no object trains the classes above 2.')


def test_a_step_that_stops_only_after_the_training(warnings):
    path = 'train_config.data_augmentation_options[0]'
    step = f'{path}={{random_horizontal_flip {{}} stop_after_step: 100}}'
    assert warnings(step, 'train_config.num_steps=101') == []
    for num_steps in (100, 99):
        assert warnings(step, f'train_config.num_steps={num_steps}') == [
            f'{path}.stop_after_step is 100, but train_config.num_steps is {num_steps}: '
            'random_horizontal_flip never stops.'
        ]


def test_settings_of_pictures_that_are_not_made(warnings):
    name, color = 'keep_image_id_for_visualization_export', 'groundtruth_box_visualization_color'
    settings = f'eval_config.{name}=true', f'eval_config.{color}=red'
    enabled = (
        'eval_config.visualization_export_dir=a',
        'eval_config.visualize_groundtruth_boxes=true',
    )
    assert warnings(*settings, *enabled, for_what='eval') == []
    assert warnings(*settings, for_what='eval') == [
        f'no effect: eval_config.{name} (there is no eval_config.visualization_export_dir).',
        f'no effect: eval_config.{color} (eval_config.visualize_groundtruth_boxes is false).',
    ]


@rows.parametrize(
    ('setting', 'reason', 'with_effect'),
    [
        ('train_input_reader.name=a', 'only results of evaluations have names', None),
        (
            'eval_input_reader[0].shuffle_buffer_size=9',
            'the reader does not shuffle',
            'eval_input_reader[0].shuffle=true',
        ),
        (
            'train_input_reader.load_track_id=true',
            'this Faster R-CNN does not use what it loads',
            None,
        ),
        (
            'train_config.precision_exempt_patterns=bias',
            'train_config.precision is FLOAT32',
            'train_config.precision=MIXED_BFLOAT16',
        ),
        (
            'eval_config.visualization_export_dir=a eval_config.num_visualizations=0',
            'eval_config.num_visualizations is 0',
            'eval_config.num_visualizations=1',
        ),
        (
            'eval_config.all_metrics_per_category=true',
            'eval_config.include_metrics_per_category is false',
            'eval_config.include_metrics_per_category=true',
        ),
        (
            'eval_config.image_classes_field_map_empty_to_ones=false',
            'no eval_input_reader has load_image_labels',
            'eval_input_reader[0].load_image_labels=true',
        ),
    ],
)
def test_settings_that_others_leave_without_effect(setting, reason, with_effect, warnings):
    path = setting.partition('=')[0]
    assert warnings(*setting.split()) == [f'no effect: {path} ({reason}).']
    assert with_effect is None or warnings(*setting.split(), with_effect) == []


def test_shuffling_is_on_in_training_and_off_in_evaluation(warnings):
    size = 'train_input_reader.shuffle_buffer_size'
    assert warnings(f'{size}=9') == []
    assert warnings(f'{size}=9', 'train_input_reader.shuffle=false') == [
        f'no effect: {size} (the reader does not shuffle).'
    ]


def test_the_kind_of_masks_that_are_not_loaded(warnings):
    settings = (
        'train_input_reader.load_instance_masks=false',
        'train_input_reader.mask_type=PNG_MASKS',
        'model.faster_rcnn.number_of_stages=2',
        'model.faster_rcnn.masks_from_crops=false',
    )
    assert 'no effect: train_input_reader.mask_type (load_instance_masks is false).' in warnings(
        *settings, for_what='train'
    )
