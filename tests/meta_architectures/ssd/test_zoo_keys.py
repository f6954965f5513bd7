"""Every key of the zoo's single-shot checkpoints is found, and every variable of ours."""

import json

import pytest
from google.protobuf import text_format

from object_detection.builders import anchor_generator_builder
from object_detection.meta_architectures.ssd import build
from object_detection.meta_architectures.ssd.variable_names import SSD_NAMES
from object_detection.protos import pipeline_pb2
from object_detection.weights import reference
from tests import slow_cases

QUICK = (
    'ssd_efficientdet_d0_512x512_coco17_tpu-8',
    'ssd_mobilenet_v2_320x320_coco17_tpu-8',
    'ssd_mobilenet_v2_fpnlite_320x320_coco17_tpu-8',
)
SLOW = (
    'ssd_efficientdet_d1_640x640_coco17_tpu-8',
    'ssd_efficientdet_d2_768x768_coco17_tpu-8',
    'ssd_efficientdet_d3_896x896_coco17_tpu-32',
    'ssd_efficientdet_d4_1024x1024_coco17_tpu-32',
    'ssd_efficientdet_d5_1280x1280_coco17_tpu-32',
    'ssd_efficientdet_d6_1408x1408_coco17_tpu-32',
    'ssd_efficientdet_d7_1536x1536_coco17_tpu-32',
    'ssd_mobilenet_v1_fpn_640x640_coco17_tpu-8',
    'ssd_mobilenet_v2_fpnlite_640x640_coco17_tpu-8',
    'ssd_resnet101_v1_fpn_1024x1024_coco17_tpu-8',
    'ssd_resnet101_v1_fpn_640x640_coco17_tpu-8',
    'ssd_resnet152_v1_fpn_1024x1024_coco17_tpu-8',
    'ssd_resnet152_v1_fpn_640x640_coco17_tpu-8',
    'ssd_resnet50_v1_fpn_1024x1024_coco17_tpu-8',
    'ssd_resnet50_v1_fpn_640x640_coco17_tpu-8',
)


def build_variables(config: str):
    """Builds the networks of a config and returns their variables; nothing is computed."""
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    text_format.Parse(config, pipeline)
    model = pipeline.model.ssd
    trains_norms = not model.freeze_batchnorm
    extractor = build.build_extractor(model.feature_extractor, trains_norms)
    predictor = build.build_predictor(
        model.box_predictor,
        num_outputs=model.num_classes + model.add_background_class,
        num_anchors=anchor_generator_builder.build(
            model.anchor_generator
        ).num_anchors_per_location(),
        batch_norm_trainable=trains_norms,
    )
    maps = (extractor.pyramid or extractor.backbone).outputs
    predictor.build([tuple(each.shape) for each in maps])
    return {
        f'{part}/{variable.path.removeprefix(layer.name + "/")}': variable
        for part, layer in (extractor.parts() | {'box_predictor': predictor}).items()
        for variable in layer.weights
    }


@slow_cases.parametrize(
    1, 'config', [*QUICK, *(pytest.param(config, marks=pytest.mark.slow) for config in SLOW)]
)
def test_zoo_keys(shared, config):
    zoo = json.loads((shared / f'goldens/zoo_keys/{config}.json').read_text())
    shapes = {key: shape for key, shape, _ in zoo['keys']}
    text = (shared / f'reference/configs/tf2/{config}.config').read_text()
    variables = build_variables(text)

    keys = reference.match(variables, shapes, SSD_NAMES)

    assert keys.keys() == variables.keys()
    assert set(keys.values()) == shapes.keys()
    assert {keys[name]: list(v.shape) for name, v in variables.items()} == shapes
    trainable_keys = {keys[name] for name, variable in variables.items() if variable.trainable}
    assert trainable_keys == {zoo['keys'][i][0] for i in zoo['trainable_order']}


def test_every_single_shot_config_of_the_zoo_is_listed(shared):
    found = {path.stem for path in (shared / 'goldens' / 'zoo_keys').glob('ssd_*.json')}
    assert found == {*QUICK, *SLOW}


@pytest.mark.parametrize(
    'model',
    [
        'ssd_mobilenet_v1_300x300',
        pytest.param('ssd_efficientdet_d0_512x512', marks=pytest.mark.slow),
        pytest.param('ssd_mobilenet_v1_fpn_640x640', marks=pytest.mark.slow),
        pytest.param('ssd_mobilenet_v2_320x320', marks=pytest.mark.slow),
        pytest.param('ssd_mobilenet_v2_fpnlite_320x320', marks=pytest.mark.slow),
        pytest.param('ssd_resnet50_v1_fpn_640x640', marks=pytest.mark.slow),
    ],
)
def test_each_type_takes_the_keys_that_the_reference_takes(shared, model):
    """A backbone is that of a classifier there, whose keys begin differently."""
    golden = json.loads((shared / f'goldens/models/{model}.json').read_text())
    variables = build_variables(golden['config'])
    scopes = SSD_NAMES.checkpoint_scopes(variables)
    for checkpoint_type in ('classification', 'detection'):
        scope = scopes[checkpoint_type]
        theirs = golden['restore_from_objects'][checkpoint_type]['keys']
        found = reference.match(variables, theirs, SSD_NAMES)
        wanted = {name for name in variables if name.startswith(scope)}
        assert found.keys() == wanted, checkpoint_type
        assert set(found.values()) == set(theirs), checkpoint_type
