"""Every key of the zoo's CenterNet checkpoints is found, and every variable of ours."""

import json

import pytest
from google.protobuf import text_format

from object_detection.meta_architectures.center_net import build
from object_detection.meta_architectures.center_net.heads import PredictionHeads
from object_detection.meta_architectures.center_net.variable_names import CENTER_NET_NAMES
from object_detection.protos import pipeline_pb2
from object_detection.weights import reference
from tests import slow_cases

QUICK = ('centernet_resnet50_v2_512x512_kpts_coco17_tpu-8',)
SLOW = (
    'centernet_hourglass104_1024x1024_coco17_tpu-32',
    'centernet_hourglass104_1024x1024_kpts_coco17_tpu-32',
    'centernet_hourglass104_512x512_coco17_tpu-8',
    'centernet_hourglass104_512x512_kpts_coco17_tpu-32',
    'centernet_resnet101_v1_fpn_512x512_coco17_tpu-8',
    'centernet_resnet50_v1_fpn_512x512_kpts_coco17_tpu-8',
)
POSE_LABELS = 'label_map.txt'


def build_variables(config: str, folder):
    """Builds the networks of a config and returns their variables; nothing is computed."""
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    text_format.Parse(config, pipeline)
    model = pipeline.model.center_net
    if model.keypoint_estimation_task:
        (folder / POSE_LABELS).write_text(pose_label_map(model.keypoint_estimation_task[0]))
        model.keypoint_label_map_path = str(folder / POSE_LABELS)
    extractor = build.build_extractor(model.feature_extractor, is_training=True)
    tasks = build.build_tasks(model)
    heads = PredictionHeads(
        {name: head for task in tasks.values() for name, head in task.heads.items()},
        num_stacks=extractor.num_stacks,
        use_depthwise=model.use_depthwise,
    )
    (features,) = extractor.empty_features(128)
    heads([features] * extractor.num_stacks)
    parts = extractor.parts() | {'heads': heads}
    for task in tasks.values():
        parts |= task.layers
    return {
        f'{part}/{variable.path.removeprefix(layer.name + "/")}': variable
        for part, layer in parts.items()
        for variable in layer.weights
    }


def pose_label_map(task) -> str:
    """A label map with the class of a task and its keypoints."""
    keypoints = ''.join(
        f"keypoints {{ id: {i} label: '{name}' }} "
        for i, name in enumerate(sorted(task.keypoint_label_to_std))
    )
    return f"item {{ id: 1 name: '{task.keypoint_class_name}' {keypoints} }}"


@pytest.mark.parametrize(
    'config', [*QUICK, *(pytest.param(config, marks=pytest.mark.slow) for config in SLOW)]
)
def test_zoo_keys(shared, config, tmp_path):
    zoo = json.loads((shared / f'goldens/zoo_keys/{config}.json').read_text())
    shapes = {key: shape for key, shape, _ in zoo['keys']}
    text = (shared / f'reference/configs/tf2/{config}.config').read_text()
    variables = build_variables(text, tmp_path)

    keys = reference.match(variables, shapes, CENTER_NET_NAMES)

    assert keys.keys() == variables.keys()
    for name, variable in variables.items():
        assert list(variable.shape) == shapes[keys[name]], name
    idle = set(shapes) - set(keys.values())
    if '_v2_' in config or 'resnet101' in config:
        # The norm at the end of the backbone, which the reference does not use either. The config
        # named resnet101_v1_fpn really is of resnet_v2_101, as its checkpoint.
        (layer,) = {key.rpartition('/.ATTRIBUTES')[0].rpartition('/')[0] for key in idle}
        assert layer.startswith('model/_feature_extractor/_base_model/')
    else:
        assert not idle
    trainable_keys = {keys[name] for name, variable in variables.items() if variable.trainable}
    assert trainable_keys == {zoo['keys'][i][0] for i in zoo['trainable_order']} - idle


def test_every_config_of_the_zoo_is_listed(shared):
    found = {path.stem for path in (shared / 'goldens' / 'zoo_keys').glob('centernet_*.json')}
    assert found == {*QUICK, *SLOW}


@slow_cases.parametrize(
    1,
    'model',
    [
        'centernet_mobilenet_v2_fpn_masks_densepose',
        'centernet_mobilenet_v2_keypoint_depth',
        'centernet_resnet18_v1_fpn_tracking',
        pytest.param('centernet_resnet50_v1_fpn_512x512_kpts', marks=pytest.mark.slow),
        pytest.param('centernet_hourglass104_512x512', marks=pytest.mark.slow),
    ],
)
def test_each_type_takes_the_keys_that_the_reference_takes(shared, model, tmp_path):
    """A backbone is that of a classifier there, whose keys begin differently."""
    golden = json.loads((shared / f'goldens/models/{model}.json').read_text())
    config = golden['config'].replace('@GOLDENS@', str(shared / 'goldens'))
    variables = build_variables(config, tmp_path)
    scopes = CENTER_NET_NAMES.checkpoint_scopes(variables)
    for checkpoint_type in ('classification', 'detection'):
        theirs = golden['restore_from_objects'][checkpoint_type]
        if 'raises' in theirs:
            assert theirs['raises'] == 'NotImplementedError'
            assert 'hourglass' in CENTER_NET_NAMES.refusal(checkpoint_type, variables)
            continue
        assert CENTER_NET_NAMES.refusal(checkpoint_type, variables) == ''
        found = reference.match(variables, theirs['keys'], CENTER_NET_NAMES)
        wanted = {name for name in variables if name.startswith(scopes[checkpoint_type])}
        assert found.keys() == wanted, checkpoint_type
        idle = {key.rpartition('/.ATTR')[0] for key in set(theirs['keys']) - set(found.values())}
        if model == 'centernet_resnet18_v1_fpn_tracking':
            # The norm at the end of the backbone.
            assert {key.rpartition('-')[2].partition('/')[0] for key in idle} == {'45'}
        elif (
            checkpoint_type == 'classification' and model == 'centernet_mobilenet_v2_keypoint_depth'
        ):
            # The reference calls the layers above the backbone a part of the classifier, too.
            assert not any('layer_with_weights-0/' in key for key in idle)
        else:
            assert not idle, checkpoint_type
