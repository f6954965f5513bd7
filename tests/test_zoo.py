"""The configs of the TensorFlow Object Detection API, as their users have them.

Each is read from its own file, made small by settings of the command line, trained for a step on
TFRecords, evaluated, exported and run. `pytest -m zoo tests/test_zoo.py` runs those that the
default run leaves out.
"""

import json
import logging
import pathlib
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from object_detection.config.job_options import TrainOptions
from object_detection.config.reader import read_pipeline
from object_detection.export import exporter
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.runtime.saved_detector import SavedModelRuntime
from object_detection.training import jobs
from tests import forks
from tests.conftest import SHARED
from tests.data import examples

CONFIGS = SHARED / 'reference' / 'configs'
TWO_STAGE = (
    'faster_rcnn_resnet50_v1_640x640_coco17_tpu-8',
    'faster_rcnn_resnet50_v1_800x1333_coco17_gpu-8',
    'faster_rcnn_resnet50_v1_1024x1024_coco17_tpu-8',
    'faster_rcnn_resnet101_v1_640x640_coco17_tpu-8',
    'faster_rcnn_resnet101_v1_800x1333_coco17_gpu-8',
    'faster_rcnn_resnet101_v1_1024x1024_coco17_tpu-8',
    'faster_rcnn_resnet152_v1_640x640_coco17_tpu-8',
    'faster_rcnn_resnet152_v1_800x1333_coco17_gpu-8',
    'faster_rcnn_resnet152_v1_1024x1024_coco17_tpu-8',
    'faster_rcnn_resnet50_v1_fpn_640x640_coco17_tpu-8',
    'mask_rcnn_inception_resnet_v2_1024x1024_coco17_gpu-8',
)
SINGLE_SHOT = (
    'ssd_mobilenet_v2_fpnlite_320x320_coco17_tpu-8',
    'ssd_mobilenet_v2_320x320_coco17_tpu-8',
    'ssd_mobilenet_v2_fpnlite_640x640_coco17_tpu-8',
    'ssd_mobilenet_v1_fpn_640x640_coco17_tpu-8',
    'ssd_resnet50_v1_fpn_640x640_coco17_tpu-8',
    'ssd_resnet50_v1_fpn_1024x1024_coco17_tpu-8',
    'ssd_resnet101_v1_fpn_640x640_coco17_tpu-8',
    'ssd_resnet101_v1_fpn_1024x1024_coco17_tpu-8',
    'ssd_resnet152_v1_fpn_640x640_coco17_tpu-8',
    'ssd_resnet152_v1_fpn_1024x1024_coco17_tpu-8',
    'ssd_efficientdet_d0_512x512_coco17_tpu-8',
    'ssd_efficientdet_d1_640x640_coco17_tpu-8',
    'ssd_efficientdet_d2_768x768_coco17_tpu-8',
    'ssd_efficientdet_d3_896x896_coco17_tpu-32',
    'ssd_efficientdet_d4_1024x1024_coco17_tpu-32',
    'ssd_efficientdet_d5_1280x1280_coco17_tpu-32',
    'ssd_efficientdet_d6_1408x1408_coco17_tpu-32',
    'ssd_efficientdet_d7_1536x1536_coco17_tpu-32',
)
DEEPMAC = (
    'center_net_deepmac_512x512_voc_only_tpu-32',
    'center_net_deepmac_1024x1024_voc_only_tpu-128',
    'center_net_deepmac_1024x1024_non_voc_only_tpu-128',
    'center_net_deepmac_1024x1024_coco_tpu-128',
)
CENTER_NET = (
    'centernet_hourglass104_1024x1024_coco17_tpu-32',
    'centernet_hourglass104_1024x1024_kpts_coco17_tpu-32',
    'centernet_hourglass104_512x512_coco17_tpu-8',
    'centernet_hourglass104_512x512_kpts_coco17_tpu-32',
    'centernet_resnet101_v1_fpn_512x512_coco17_tpu-8',
    'centernet_resnet50_v1_fpn_512x512_kpts_coco17_tpu-8',
    'centernet_resnet50_v2_512x512_kpts_coco17_tpu-8',
)
# What `pytest -m slow` tries, too. Two-stage detectors resemble the sample configs, which
# test_samples tries.
SAMPLE = ('ssd_mobilenet_v2_fpnlite_320x320_coco17_tpu-8',)
# Fields that the zoo's configs set, that have no effect, and that one warning names.
TPU_FIELDS = (
    'train_config.replicas_to_aggregate',
    'train_config.startup_delay_steps',
    'train_config.sync_replicas',
    'train_config.unpad_groundtruth_tensors',
)
SINGLE_SHOT_FIELDS = ('model.ssd.inplace_batchnorm_update',)
# Of a predictor without convolutions before the last ones.
PREDICTOR_FIELDS = tuple(
    f'model.ssd.box_predictor.convolutional_box_predictor.conv_hyperparams.{field}'
    for field in ('activation', 'batch_norm')
)
CENTER_NET_FIELDS = ('train_config.unpad_groundtruth_tensors',)
MASK_FIELDS = ('eval_config.eval_instance_masks',)
METRICS = {
    'coco_detection_metrics': 'DetectionBoxes_Precision/mAP',
    'coco_mask_metrics': 'DetectionMasks_Precision/mAP',
    'pascal_voc_detection_metrics': 'PascalBoxes_Precision/mAP@0.5IOU',
    'oid_V2_detection_metrics': 'OpenImagesV2_Precision/mAP@0.5IOU',
    # Earlier names of the same set.
    'open_images_V2_detection_metrics': 'OpenImagesV2_Precision/mAP@0.5IOU',
    'open_images_metrics': 'OpenImagesV2_Precision/mAP@0.5IOU',
}
FEW_PROPOSALS = ('first_stage_max_proposals=32', 'second_stage_batch_size=8')
_NMS_LIMITS = ('max_detections_per_class', 'max_total_detections')
CLASSES = 90
KEYPOINTS = 17
PERSON = 'person'
DETECTIONS = 4
# Length of the context features of the records.
CONTEXT = 5
SIZE = 96
# Of the images of types that take no others.
SIZES = {'embedded_ssd_mobilenet_v1': 256, 'ssd_mobilenet_v2_mnasfpn': 128}


@pytest.fixture(scope='module', autouse=True)
def _configs_of_the_reference():
    if not CONFIGS.is_dir():
        pytest.skip('needs ../shared/reference/configs, the configs of the reference')


@pytest.fixture(scope='module')
def records(tmp_path_factory) -> pathlib.Path:
    """A folder with two annotated images, and a label map."""
    folder = tmp_path_factory.mktemp('records')
    # An anchor of 64 pixels, the smallest of these configs, fits it and the image.
    serialized = [
        examples.example(
            [[0.0, 0.0, 0.75, 0.75]],
            labels=[CLASSES],
            image=examples.png(examples.noise(80, SIZE, seed)),
            source_id=str(seed),
            image__context_features=[0.5] * 3 * CONTEXT,
            image__context_feature_length=[CONTEXT],
            masks=[np.pad(np.ones((60, 72), np.uint8), [(0, 20), (0, 24)])],
            image__object__keypoint__y=np.linspace(0.1, 0.7, KEYPOINTS),
            image__object__keypoint__x=np.linspace(0.7, 0.1, KEYPOINTS),
            image__object__keypoint__visibility=[2] * KEYPOINTS,
        )
        for seed in (1, 2)
    ]
    examples.write_records(folder / 'data.record', serialized)
    write_label_map(folder, [])
    return folder


def write_label_map(folder: pathlib.Path, names: list[str]) -> None:
    """Writes a label map with these names; the last class is that of persons."""
    names = [name for name in names if name != PERSON]
    names = [*names, *(f'class {number}' for number in range(len(names) + 1, CLASSES))]
    items = [f'item {{ id: {number} name: "{name}" }}' for number, name in enumerate(names, 1)]
    # The object of the records is a person with the keypoints of COCO.
    joints = ('eye', 'ear', 'shoulder', 'elbow', 'wrist', 'hip', 'knee', 'ankle')
    points = ['nose', *(f'{side}_{joint}' for joint in joints for side in ('left', 'right'))]
    keypoints = ' '.join(
        f"keypoints {{ id: {i} label: '{each}' }}" for i, each in enumerate(points)
    )
    items.append(f"item {{ id: {CLASSES} name: '/m/01g317' display_name: '{PERSON}' {keypoints} }}")
    (folder / 'label_map.txt').write_text('\n'.join(items))


def small(pipeline: TrainEvalPipelineConfig, records: pathlib.Path) -> list[str]:
    """Settings that fill the paths in and make a config small; what it builds stays the same."""
    kind = pipeline.model.WhichOneof('model')
    model = f'model.{kind}'
    is_two_stage = kind == 'faster_rcnn'
    post_processing = 'second_stage_post_processing' if is_two_stage else 'post_processing'
    nms = f'{model}.{post_processing}.batch_non_max_suppression'
    limits = [f'{nms}.{field}={DETECTIONS}' for field in _NMS_LIMITS]
    if kind == 'center_net':
        limits = [
            f'{model}.object_center_params.max_box_predictions={DETECTIONS}',
        ]
        if pipeline.model.center_net.keypoint_estimation_task:
            limits.append(f'{model}.keypoint_label_map_path={records}/label_map.txt')
    message = getattr(pipeline.model, kind)
    resizer = message.image_resizer.WhichOneof('image_resizer_oneof')
    sides = {
        'fixed_shape_resizer': ('height', 'width'),
        'keep_aspect_ratio_resizer': ('min_dimension', 'max_dimension'),
    }[resizer]
    size = SIZES.get(getattr(message.feature_extractor, 'type', ''), SIZE)
    readers = {
        'train_input_reader': pipeline.train_input_reader,
        'eval_input_reader[0]': pipeline.eval_input_reader[0],
    }
    has_context = is_two_stage and message.HasField('context_config')
    return [
        *(f'{model}.image_resizer.{resizer}.{side}={size}' for side in sides),
        f'{model}.num_classes={CLASSES}',  # that of the label map here; some have fewer
        *(f'{model}.{field}' for field in (FEW_PROPOSALS if is_two_stage else ())),
        *limits,
        *(f'{reader}.label_map_path={records}/label_map.txt' for reader in readers),
        *(
            f'{reader}.tf_record_input_reader.input_path={records}/data.record'
            for reader in readers
        ),
        *(
            f'{path}.mask_type=PNG_MASKS'
            for path, reader in readers.items()
            if reader.load_instance_masks
        ),
        *(f'{reader}.input_type=TF_EXAMPLE' for reader in readers),
        *([f'{model}.context_config.context_feature_length={CONTEXT}'] if has_context else ()),
        'train_config.batch_size=1',
        'train_config.num_steps=1',
        'train_config.fine_tune_checkpoint=',
        'train_config.fine_tune_checkpoint_type=',
        'train_config.from_detection_checkpoint=false',
    ]


def run(config: str, settings: tuple[str, ...], folder: pathlib.Path) -> dict[str, Any]:
    """Does the whole job; returns losses, metrics, shapes of the detections, and warnings."""
    # Nothing runs often enough here to be worth optimizing.
    tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': True})
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())
    logging.getLogger('object_detection').addHandler(handler)
    options = TrainOptions(
        num_train_steps=1, eval_every_n_steps=1, log_every_n=1, seed=0, set=settings
    )
    model_dir = str(folder / 'model')
    assert jobs.run_training(config, model_dir, options) == 0
    pipeline = read_pipeline(config, settings=settings)
    # Models with a context read it from examples.
    has_context = pipeline.model.faster_rcnn.HasField('context_config')
    input_type = 'tf_example' if has_context else 'image_tensor'
    exporter.export(pipeline, model_dir, folder / 'exported', input_type=input_type)
    detections = SavedModelRuntime(folder / 'exported')(examples.noise(50, 70))
    lines = (folder / 'model' / 'train' / 'history.jsonl').read_text().splitlines()
    return {
        'losses': json.loads(lines[-1])['losses'],
        'metrics': json.loads((folder / 'model' / 'eval' / 'metrics.json').read_text()),
        'shapes': {key: tuple(value.shape) for key, value in detections.items()},
        'warnings': warnings,
    }


def run_apart(*arguments: Any) -> dict[str, Any]:
    """`run` in a process of its own, with which the memory of a model goes."""
    # The largest take two minutes alone.
    return forks.call(run, *arguments, time_limit=900)


def check(result: dict[str, Any], pipeline: TrainEvalPipelineConfig) -> None:
    """Checks what `run` returns for a config."""
    assert np.isfinite(list(result['losses'].values())).all()
    wanted = pipeline.eval_config.metrics_set or ['coco_detection_metrics']
    assert {name for name in result['metrics'] if name in METRICS.values()} == {
        METRICS[name] for name in wanted
    }
    assert result['shapes']['detection_boxes'] == (DETECTIONS, 4)
    if pipeline.model.HasField('center_net'):
        if pipeline.model.center_net.HasField('deepmac_mask_estimation'):
            check_masks_of_all_classes(result, pipeline)
        else:
            check_center_net(result, bool(pipeline.model.center_net.keypoint_estimation_task))
    elif pipeline.model.HasField('ssd'):
        check_single_shot(result, pipeline.model.ssd.add_background_class)
    else:
        check_two_stage(result, pipeline)


def check_two_stage(result: dict[str, Any], pipeline: TrainEvalPipelineConfig) -> None:
    """Checks what is specific to a two-stage detector."""
    losses, shapes = result['losses'], result['shapes']
    predictor = pipeline.model.faster_rcnn.second_stage_box_predictor.mask_rcnn_box_predictor
    has_masks = predictor.predict_instance_masks
    mask_shape = (DETECTIONS, predictor.mask_height, predictor.mask_width)
    assert losses['Loss/BoxClassifierLoss/localization_loss'] > 0
    assert (losses.get('Loss/BoxClassifierLoss/mask_loss', 0) > 0) == has_masks
    assert shapes['detection_multiclass_scores'] == (DETECTIONS, CLASSES + 1)
    assert shapes.get('detection_masks') == (mask_shape if has_masks else None)


def check_single_shot(result: dict[str, Any], has_background: bool) -> None:
    """Checks what is specific to a single-shot detector."""
    losses, shapes = result['losses'], result['shapes']
    assert min(losses[f'Loss/{kind}_loss'] for kind in ('localization', 'classification')) > 0
    assert shapes['detection_multiclass_scores'] == (DETECTIONS, CLASSES + has_background)
    assert 'detection_masks' not in shapes


def check_masks_of_all_classes(result: dict[str, Any], pipeline: TrainEvalPipelineConfig) -> None:
    """Checks what is specific to DeepMAC."""
    losses, shapes = result['losses'], result['shapes']
    task = pipeline.model.center_net.deepmac_mask_estimation
    # The objects of the records are of the last class.
    learns = CLASSES in (task.allowed_masked_classes_ids or [CLASSES])
    assert (losses['Loss/deep_mask_estimation'] > 0) == learns
    assert shapes['detection_masks'] == (DETECTIONS, task.mask_size, task.mask_size)


def check_center_net(result: dict[str, Any], has_keypoints: bool) -> None:
    """Checks what is specific to a CenterNet."""
    losses, shapes = result['losses'], result['shapes']
    names = ['object_center', 'box/scale', 'box/offset']
    if has_keypoints:
        names += [f'human_pose/keypoint/{kind}' for kind in ('heatmap', 'offset', 'regression')]
    assert min(losses[f'Loss/{name}'] for name in names) > 0
    assert shapes['detection_multiclass_scores'] == (DETECTIONS, CLASSES)
    points = (DETECTIONS, KEYPOINTS, 2) if has_keypoints else None
    assert shapes.get('detection_keypoints') == points


def fields_without_effect(warnings: list[str]) -> list[str]:
    """The fields that warnings name as having no effect; the same one twice if it is told twice."""
    found = [re.match(r'no effect: (.*?) \(', warning) for warning in warnings]
    return sorted(path for match in found if match for path in match[1].split(', '))


def configs_of(kind: str, folder: str) -> set[str]:
    paths = (CONFIGS / folder).glob('*.config')
    return {path.stem for path in paths if re.search(rf'^\s*{kind}:? {{', path.read_text(), re.M)}


# Of TensorFlow 1, whose programs alone ran them.
OLD = sorted(configs_of('faster_rcnn', 'samples') | configs_of('ssd', 'samples'))


def test_the_lists_are_complete():
    assert configs_of('faster_rcnn', 'tf2') == set(TWO_STAGE)
    assert configs_of('ssd', 'tf2') == set(SINGLE_SHOT)
    assert {name for name in configs_of('center_net', 'tf2') if 'deepmac' in name} == set(DEEPMAC)
    center_nets = {name for name in configs_of('center_net', 'tf2') if 'deepmac' not in name}
    assert center_nets == set(CENTER_NET)
    assert len(OLD) == len(list((CONFIGS / 'samples').glob('*.config')))


@pytest.mark.parametrize(
    'name',
    [
        pytest.param(name, marks=pytest.mark.slow if name in SAMPLE else pytest.mark.zoo)
        for name in (*TWO_STAGE, *SINGLE_SHOT, *CENTER_NET, *DEEPMAC)
    ],
)
def test_trains_evaluates_exports_and_runs(name, tmp_path, records):
    config = str(CONFIGS / 'tf2' / f'{name}.config')
    pipeline = read_pipeline(config)
    super_categories = ','.join(pipeline.eval_config.super_categories.values())
    write_label_map(records, sorted(set(filter(None, super_categories.split(',')))))
    result = run_apart(config, tuple(small(pipeline, records)), tmp_path)
    check(result, pipeline)
    if name in CENTER_NET:
        unread = fields_without_effect(result['warnings'])
        assert len(set(unread)) == len(unread)
        return
    unread = TPU_FIELDS if 'tpu' in name else MASK_FIELDS if name.startswith('mask') else ()
    if name in DEEPMAC:
        unread = CENTER_NET_FIELDS
    if name in SINGLE_SHOT:
        unread = (*SINGLE_SHOT_FIELDS, *unread)
    if name == 'ssd_mobilenet_v2_320x320_coco17_tpu-8':
        unread = (*PREDICTOR_FIELDS, *unread)
    assert fields_without_effect(result['warnings']) == list(unread)
    others = [text for text in result['warnings'] if not text.startswith('no effect: ')]
    # The only other ones are about a training of one step, and peaks in the padding of images.
    known = ['the training ends within the warm-up']
    known += ['model.center_net.ignore_padding is false'] if name in DEEPMAC else []
    assert [text for text in others if not any(each in text for each in known)] == []


@pytest.mark.zoo
@pytest.mark.parametrize('name', OLD)
def test_old_configs_train(name, tmp_path, records):
    config = str(CONFIGS / 'samples' / f'{name}.config')
    pipeline = read_pipeline(config)
    result = run_apart(config, tuple(small(pipeline, records)), tmp_path)
    check(result, pipeline)
    unread = fields_without_effect(result['warnings'])
    assert len(set(unread)) == len(unread)
