"""What the validation says of single-shot detectors; needs no files."""

import glob
import os

import pytest

from object_detection.config import reader
from object_detection.meta_architectures.ssd import rules, warnings
from tests import rows
from tests.meta_architectures.ssd.configs import tiny
from tests.unread import unread

MULTISCALE = 'anchor_generator { multiscale_anchor_generator { min_level: 3 max_level: 5 %s } }'


@rows.parametrize(
    ('changes', 'found'),
    [
        ('', None),
        (MULTISCALE % 'aspect_ratios: 1', None),
        (MULTISCALE % '', 'anchor_generator.multiscale_anchor_generator.aspect_ratios is empty'),
        (
            'anchor_generator { grid_anchor_generator { scales: 1 aspect_ratios: 1 } }',
            'anchor_generator.grid_anchor_generator: expected anchors for the 3 feature maps',
        ),
        (
            'feature_extractor { num_layers: 4 }',
            'anchor_generator.ssd_anchor_generator: expected anchors for the 4 feature maps',
        ),
        (
            "feature_extractor { type: 'ssd_resnet50_v1_fpn_keras' }",
            'anchor_generator.ssd_anchor_generator: expected anchors for the 5 feature maps',
        ),
        (
            'box_coder { square_box_coder {} }',
            'box_predictor.convolutional_box_predictor.box_code_size: expected 3',
        ),
        (
            'detect_background: true add_background_class: false',
            'detect_background: expected false with add_background_class: false',
        ),
        (
            'normalize_loss_per_image: true normalize_loss_by_num_matches: false',
            'normalize_loss_per_image: expected false with normalize_loss_by_num_matches: false',
        ),
        ('feature_extractor { freeze_affine: true } freeze_batchnorm: true', None),
        (
            'feature_extractor { freeze_affine: true }',
            'feature_extractor.freeze_affine: expected model.ssd.freeze_batchnorm: true',
        ),
        (
            'post_processing { calibration_config { class_id_sigmoid_calibrations { '
            'class_id_sigmoid_parameters_map { key: 4 value {} } } } }',
            'post_processing.calibration_config.class_id_sigmoid_calibrations.'
            'class_id_sigmoid_parameters_map: expected columns of the scores, from 0 to 3',
        ),
    ],
)
def test_problems(changes, found):
    problems = list(rules.check(tiny(changes).ssd))
    assert len(problems) == (found is not None), problems
    assert not problems or problems[0].startswith(f'model.ssd.{found}')


@rows.parametrize(
    ('changes', 'path'),
    [
        ('', None),
        ('implicit_example_weight: 0.5', 'implicit_example_weight'),
        ('implicit_example_weight: 0.5 use_confidences_as_targets: true', None),
        ('loss { min_num_negative_samples: 3 }', 'loss.min_num_negative_samples'),
        (
            'loss { min_num_negative_samples: 3 expected_loss_weights: EXPECTED_SAMPLING }',
            None,
        ),
        (
            'loss { classification_loss { weighted_sigmoid {} } '
            'hard_example_miner { min_negatives_per_image: 3 } }',
            'loss.hard_example_miner.min_negatives_per_image',
        ),
        (
            'post_processing { batch_non_max_suppression { '
            'soft_nms_sigma: 1 iou_threshold: 0.5 } }',
            'post_processing.batch_non_max_suppression.iou_threshold',
        ),
        (
            'box_predictor { convolutional_box_predictor { dropout_keep_probability: 0.5 } }',
            'box_predictor.convolutional_box_predictor.dropout_keep_probability',
        ),
        (
            'box_predictor { convolutional_box_predictor { num_layers_before_predictor: 3 } }',
            'box_predictor.convolutional_box_predictor.num_layers_before_predictor',
        ),
        (
            'box_predictor { convolutional_box_predictor { num_layers_before_predictor: 3 '
            'min_depth: 8 } }',
            None,
        ),
        (
            'box_predictor { convolutional_box_predictor { max_depth: 8 } }',
            'box_predictor.convolutional_box_predictor.max_depth',
        ),
        (
            'box_predictor { convolutional_box_predictor { use_depthwise: true kernel_size: 3 '
            'class_prediction_bias_init: -2 } }',
            'box_predictor.convolutional_box_predictor.class_prediction_bias_init',
        ),
        (
            'box_predictor { convolutional_box_predictor { conv_hyperparams { batch_norm {} } } }',
            'box_predictor.convolutional_box_predictor.conv_hyperparams.batch_norm',
        ),
        (
            'box_predictor { convolutional_box_predictor { kernel_size: 3 use_depthwise: true '
            'conv_hyperparams { batch_norm {} } } }',
            None,
        ),
        (
            'feature_extractor { conv_hyperparams { regularize_depthwise: true } }',
            'feature_extractor.conv_hyperparams.regularize_depthwise',
        ),
        (
            'matcher { argmax_matcher { ignore_thresholds: true matched_threshold: 0.7 } }',
            'matcher.argmax_matcher.matched_threshold',
        ),
        (
            'anchor_generator { ssd_anchor_generator { scales: [.1, .2, .4] min_scale: 0.1 } }',
            'anchor_generator.ssd_anchor_generator.min_scale',
        ),
    ],
)
@pytest.mark.usefixtures('small_backbone')
def test_fields_without_an_effect(changes, path):
    found = unread(tiny(changes))
    assert [field for field, _ in found] == ([f'model.ssd.{path}'] if path else [])
    assert all(reason for _, reason in found)


SHARED = 'box_predictor { weight_shared_convolutional_box_predictor { score_converter: %s } } '
IDENTITY = 'post_processing { score_converter: IDENTITY }'


@rows.parametrize(
    ('changes', 'found'),
    [
        ('', []),
        ('post_processing { score_converter: IDENTITY }', ['score_converter is IDENTITY']),
        (
            'loss { classification_loss { weighted_softmax {} } }',
            ['score_converter is SIGMOID', 'set model.ssd.encode_background_as_zeros: false'],
        ),
        (
            'post_processing { batch_non_max_suppression { change_coordinate_frame: false } }',
            ['change_coordinate_frame is false'],
        ),
        (SHARED % 'SIGMOID', ['is SIGMOID, which makes scores already: set IDENTITY']),
        (SHARED % 'SIGMOID' + IDENTITY, []),
        (SHARED % 'IDENTITY' + IDENTITY, ['score_converter is IDENTITY, but']),
        (
            SHARED % 'SIGMOID' + 'loss { classification_loss { weighted_softmax {} } } '
            'encode_background_as_zeros: false',
            ['box_predictor.score_converter is SIGMOID, but'],
        ),
        (
            'post_processing { batch_non_max_suppression { score_threshold: 5 } }',
            ['score_threshold is 5, which no score exceeds'],
        ),
        # 64 pixels are two cells of 32.
        ('feature_extractor { pad_to_multiple: 32 }', []),
        ('feature_extractor { pad_to_multiple: 48 }', ['spreads anchors over the image without']),
        (
            'image_resizer { keep_aspect_ratio_resizer {} } '
            'feature_extractor { pad_to_multiple: 32 }',
            ['Resize images to multiples of 32'],
        ),
        (
            'image_resizer { keep_aspect_ratio_resizer { pad_height: 64 pad_width: 96 } } '
            'feature_extractor { pad_to_multiple: 32 }',
            [],
        ),
        (
            'feature_extractor { pad_to_multiple: 48 } anchor_generator { ssd_anchor_generator { '
            'height_stride: [16, 32, 64] width_stride: [16, 32, 64] } }',
            [],
        ),
    ],
)
def test_advice(changes, found):
    sentences = list(warnings.find_advice(tiny(changes).ssd))
    assert len(sentences) == len(found)
    assert all(part in sentence for part, sentence in zip(found, sentences, strict=True))


def test_frozen_norms_need_weights_of_others():
    (sentence,) = warnings.find_untrained(tiny('freeze_batchnorm: true').ssd)
    assert 'model.ssd.freeze_batchnorm' in sentence
    assert not list(warnings.find_untrained(tiny().ssd))


def test_published_configs_have_no_problems(shared):
    paths = glob.glob(os.path.join(shared, 'reference', 'configs', 'tf2', 'ssd_*.config'))
    assert len(paths) >= 18
    for path in paths:
        config = reader.read_pipeline(path)
        assert not list(rules.check(config.model.ssd)), path
        assert not list(warnings.find_advice(config.model.ssd)), path
