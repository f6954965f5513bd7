import dataclasses

import pytest
from google.protobuf import text_format

from object_detection.meta_architectures.ssd.build import build_predictor
from object_detection.models.heads.convolutional import ConvolutionalOptions
from object_detection.models.heads.weight_shared import WeightSharedOptions
from object_detection.protos import box_predictor_pb2
from tests import rows


def build(text: str):
    config = text_format.Parse(text, box_predictor_pb2.BoxPredictor())
    return build_predictor(config, num_outputs=3, num_anchors=[2, 2], batch_norm_trainable=True)


def test_defaults_are_those_of_the_schema():
    options = build('convolutional_box_predictor {}')._options
    assert options.dropout_rate == pytest.approx(0.2)
    assert dataclasses.replace(options, dropout_rate=0.0) == ConvolutionalOptions()
    options = build('weight_shared_convolutional_box_predictor {}')._options
    assert options == WeightSharedOptions()


COMMON = """
    num_layers_before_predictor: 3 kernel_size: 5 box_code_size: 7 use_dropout: true
    dropout_keep_probability: 0.75 class_prediction_bias_init: -4.5 use_depthwise: true
    box_encodings_clip_range { min: -10 max: 9 } conv_hyperparams { activation: SWISH }"""
COMMON_OPTIONS = {
    'num_layers': 3,
    'kernel_size': 5,
    'code_size': 7,
    'dropout_rate': 0.25,
    'class_bias': -4.5,
    'use_depthwise': True,
    'clip_range': (-10, 9),
}


def test_every_field_is_read():
    predictor = build(f'convolutional_box_predictor {{ {COMMON} min_depth: 2 max_depth: 4 }}')
    assert predictor._options == ConvolutionalOptions(min_depth=2, max_depth=4, **COMMON_OPTIONS)
    assert predictor._hyperparams.activation == 'swish'
    predictor = build(f"""weight_shared_convolutional_box_predictor {{ {COMMON}
        depth: 6 share_prediction_tower: true score_converter: SIGMOID
        apply_conv_hyperparams_to_heads: true apply_conv_hyperparams_pointwise: true }}""")
    assert predictor._options == WeightSharedOptions(
        depth=6,
        share_tower=True,
        sigmoid_in_inference=True,
        hyperparams_of_heads=True,
        hyperparams_pointwise=True,
        **COMMON_OPTIONS,
    )


def test_dropout_can_be_switched_off():
    predictor = build('convolutional_box_predictor { use_dropout: false }')
    assert predictor._options.dropout_rate == 0


@pytest.mark.parametrize('kind', ['mask_rcnn_box_predictor', 'rfcn_box_predictor'])
def test_heads_of_two_stage_detectors_are_refused_by_name(kind):
    with pytest.raises(ValueError, match=rf'weight_shared_conv.* Received: {kind}'):
        build(f'{kind} {{}}')


@rows.parametrize(
    ('text', 'message'),
    [
        ('convolutional_box_predictor { use_depthwise: true }', 'kernel_size: expected above 1'),
        (
            'weight_shared_convolutional_box_predictor { use_depthwise: true kernel_size: 1 }',
            'kernel_size: expected above 1',
        ),
        (
            'weight_shared_convolutional_box_predictor { num_layers_before_predictor: 2 }',
            'WeightSharedConvolutionalBoxPredictor: depth: expected',
        ),
        ('convolutional_box_predictor { box_code_size: 0 }', 'BoxPredictor: box_code_size'),
        ('convolutional_box_predictor { dropout_keep_probability: 0 }', 'dropout_keep_prob'),
        ('convolutional_box_predictor { num_layers_before_predictor: -1 }', 'num_layers_before'),
        ('convolutional_box_predictor { max_depth: -1 }', 'max_depth'),
        (
            'convolutional_box_predictor { box_encodings_clip_range { min: 1 max: -1 } }',
            'box_encodings_clip_range',
        ),
    ],
)
def test_errors_name_message_and_field(text, message):
    with pytest.raises(ValueError, match=message):
        build(text)
