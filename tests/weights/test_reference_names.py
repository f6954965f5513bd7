"""Every key of the zoo's two-stage checkpoints is found, and every variable of ours."""

import json

import pytest
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.meta_architectures.faster_rcnn.variable_names import FASTER_RCNN_NAMES
from object_detection.protos import pipeline_pb2
from object_detection.weights import reference
from object_detection.weights.checkpoint_files import VALUE_SUFFIX

# Of the other kind one is restored by tests/test_check_models.py.
QUICK = 'faster_rcnn_resnet50_v1_fpn_640x640_coco17_tpu-8'
SLOW = (
    'faster_rcnn_resnet50_v1_640x640_coco17_tpu-8',
    'faster_rcnn_resnet101_v1_1024x1024_coco17_tpu-8',
    'faster_rcnn_resnet101_v1_640x640_coco17_tpu-8',
    'faster_rcnn_resnet101_v1_800x1333_coco17_gpu-8',
    'faster_rcnn_resnet152_v1_1024x1024_coco17_tpu-8',
    'faster_rcnn_resnet152_v1_640x640_coco17_tpu-8',
    'faster_rcnn_resnet152_v1_800x1333_coco17_gpu-8',
    'faster_rcnn_resnet50_v1_1024x1024_coco17_tpu-8',
    'faster_rcnn_resnet50_v1_800x1333_coco17_gpu-8',
    'mask_rcnn_inception_resnet_v2_1024x1024_coco17_gpu-8',
)


# No config of the zoo has masks and a pyramid, but users' have.
MASKS = """
number_of_stages: 3
second_stage_box_predictor {
  mask_rcnn_box_predictor {
    predict_instance_masks: true
    conv_hyperparams {}
    mask_prediction_num_conv_layers: 3
    mask_prediction_conv_depth: 0
  }
}
"""
MASK_LAYERS = (
    'model/_mask_rcnn_box_predictor/_third_stage_heads/mask_predictions/_mask_predictor_layers'
)
# The automatic depth lies between 1024 and 90.
MASK_SHAPES = {
    '0/kernel': [3, 3, 1024, 256],
    '0/bias': [256],
    '3/kernel': [3, 3, 256, 256],
    '3/bias': [256],
    '6/kernel': [3, 3, 256, 90],
    '6/bias': [90],
}


def build(shared, config: str, settings: str = '') -> DetectionModel:
    """Builds a zoo config; the number of proposals, which takes the time, does not matter here."""
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    text_format.Parse((shared / f'reference/configs/tf2/{config}.config').read_text(), pipeline)
    model = pipeline.model.faster_rcnn
    text_format.Merge(settings, model)
    model.first_stage_max_proposals = 4
    model.second_stage_batch_size = 4
    nms = model.second_stage_post_processing.batch_non_max_suppression
    nms.max_detections_per_class = nms.max_total_detections = 2
    detector = model_builder.build(pipeline.model)
    detector.build_variables()
    return detector


@pytest.mark.parametrize(
    'config', [QUICK, *(pytest.param(config, marks=pytest.mark.slow) for config in SLOW)]
)
def test_zoo_keys(shared, config):
    zoo = json.loads((shared / f'goldens/zoo_keys/{config}.json').read_text())
    shapes = {key: shape for key, shape, _ in zoo['keys']}
    detector = build(shared, config)
    variables = detector.named_variables()

    keys = reference.match(variables, shapes, FASTER_RCNN_NAMES)

    assert keys.keys() == variables.keys()
    assert set(keys.values()) == shapes.keys()
    assert {keys[name]: v.shape.as_list() for name, v in variables.items()} == shapes
    trained = {id(variable.value) for variable in detector.trainable_variables}
    trainable_keys = {keys[name] for name, variable in variables.items() if id(variable) in trained}
    assert trainable_keys == {zoo['keys'][i][0] for i in zoo['trainable_order']}


def test_every_two_stage_config_of_the_zoo_is_listed(shared):
    found = {path.stem for path in (shared / 'goldens' / 'zoo_keys').glob('*_rcnn_*.json')}
    assert found == {QUICK, *SLOW}


def test_rfcn_shares_names_of_layers_with_the_other_head():
    layers = ('reduce_depth', 'reduce_depth_bn', 'box_codes', 'box_codes_bn', 'classes')
    variables = [f'box_head/{layer}/{"beta" if "_bn" in layer else "kernel"}' for layer in layers]
    rfcn = 'model/_rfcn_box_predictor'
    keys = [
        f'{rfcn}/_shared_conv_layers/0/kernel',
        f'{rfcn}/_shared_conv_layers/1/beta',
        f'{rfcn}/_box_encoder_layers/0/kernel',
        f'{rfcn}/_box_encoder_layers/1/beta',
        f'{rfcn}/_class_predictor_layers/0/kernel',
    ]
    keys = [key + VALUE_SUFFIX for key in keys]
    assert reference.match(variables, keys, FASTER_RCNN_NAMES) == dict(
        zip(variables, keys, strict=True)
    )


@pytest.mark.parametrize(('levels', 'num_coarse'), [((3, 4, 5), 2), ((2, 3), 0)])
def test_pyramids_of_other_levels(levels, num_coarse):
    """The reference counts the levels from the coarsest that it projects, and those beyond it."""
    *finer, top = levels
    path = 'model/_feature_extractor_for_proposal_features'
    pyramid = f'{path}/fpn_features_generator'
    expected = {f'fpn/projection_{top}/bias': f'{pyramid}/top_layers/0/bias'}
    for i, level in enumerate(reversed(finer)):
        expected |= {
            f'fpn/projection_{level}/bias': f'{pyramid}/residual_blocks/{i}/0/bias',
            f'fpn/smoothing_{level}/kernel': f'{pyramid}/conv_layers/{i}/0/kernel',
            f'fpn/smoothing_{level}_bn/beta': f'{pyramid}/conv_layers/{i}/1/beta',
        }
    for i in range(num_coarse):
        coarse = f'{path}/coarse_feature_layers/{i}'
        expected[f'fpn/coarse_{top + 1 + i}/kernel'] = f'{coarse}/0/kernel'
        expected[f'fpn/coarse_{top + 1 + i}_bn/beta'] = f'{coarse}/1/beta'
    expected = {name: key + VALUE_SUFFIX for name, key in expected.items()}
    assert reference.match(expected, expected.values(), FASTER_RCNN_NAMES) == expected


@pytest.mark.slow
def test_masks_over_a_pyramid_have_the_keys_of_the_reference(shared):
    """They are predicted from the vector of 1024 numbers that classifies a box."""
    zoo = json.loads((shared / f'goldens/zoo_keys/{QUICK}.json').read_text())
    shapes = {key: shape for key, shape, _ in zoo['keys']}
    shapes |= {f'{MASK_LAYERS}/{k}{VALUE_SUFFIX}': shape for k, shape in MASK_SHAPES.items()}
    variables = build(shared, QUICK, MASKS).named_variables()

    keys = reference.match(variables, shapes, FASTER_RCNN_NAMES)

    assert keys.keys() == variables.keys()
    assert set(keys.values()) == shapes.keys()
    assert {keys[name]: v.shape.as_list() for name, v in variables.items()} == shapes
