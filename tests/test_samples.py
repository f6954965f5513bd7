"""Every sample config builds, trains a step and exports."""

import importlib.resources
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import model_builder, optimizer_builder
from object_detection.config import overrides
from object_detection.config.reader import read_pipeline
from object_detection.core.fields import InputFields
from object_detection.data.coco import annotations as coco_categories
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.dataset_tools.converters import conversion
from object_detection.dataset_tools.shapes import CATEGORIES, KEYPOINTS, MAX_OBJECTS
from object_detection.export import saved_model
from object_detection.meta_architectures import side_inputs
from object_detection.runtime.saved_detector import SavedModelRuntime
from object_detection.training.step import TrainStep
from object_detection.weights import checkpoints
from tests import rows

SAMPLES = importlib.resources.files('object_detection') / 'samples' / 'configs'
# The recipe with other trainings: batch size, passes over the data.
_RECIPE = 'mask_rcnn_resnet50_fpn_832x1344_coco17'
_TRAININGS = {'8x1': (8, 12), '8x8': (64, 12), '8x12': (96, 12), '1x': (16, 12.2), '2x': (16, 24.3)}
_RECIPES = {f'{_RECIPE}_{training}.config' for training in _TRAININGS}
# The demo's detector with other augmentation.
_DEMO, _AUGMENTED = (f'mask_rcnn_resnet18_fpn_shapes{end}.config' for end in ('', '_augmented'))
_CONTEXT, _CONTEXT_SYNC = (
    f'context_rcnn_resnet101_snapshot_serengeti{end}.config' for end in ('', '_sync')
)
_SAME_MODELS = {*_RECIPES, _AUGMENTED, _CONTEXT_SYNC}
_COCO_IMAGES = 118_287
SIZE = 128
# The maps of SSD300 have no cells of small images.
_SIZES = {'torchvision_ssd300_vgg16.config': 300}
_RESIZER = 'image_resizer={fixed_shape_resizer { height: 128 width: 128 }}'
_FEW_DETECTIONS = ('max_detections_per_class=4', 'max_total_detections=4')
# Family -> what makes its samples small.
SMALL = {
    'faster_rcnn': [
        _RESIZER,
        'first_stage_max_proposals=8',
        'second_stage_batch_size=8',
        *(
            f'second_stage_post_processing.batch_non_max_suppression.{setting}'
            for setting in _FEW_DETECTIONS
        ),
    ],
    'ssd': [
        _RESIZER,
        *(f'post_processing.batch_non_max_suppression.{setting}' for setting in _FEW_DETECTIONS),
    ],
    'center_net': [_RESIZER, 'object_center_params.max_box_predictions=4'],
    # Maps of such images have fewer cells than queries are usual.
    'detr': [_RESIZER, 'max_detections=4', 'queries.count=20'],
}


# Family -> the label map with the names of keypoints.
_LABEL_MAPS = {
    'faster_rcnn': [
        'second_stage_box_predictor.mask_rcnn_box_predictor.keypoint_head.label_map_path'
    ],
    'ssd': [],
    'center_net': ['keypoint_label_map_path'],
    'detr': [],
}


def names() -> list[str]:
    return sorted(path.name for path in SAMPLES.iterdir() if path.name.endswith('.config'))


@rows.parametrize('name', names())
def test_opens_with_what_a_reader_needs(name):
    head = (SAMPLES / name).read_text().split('\nmodel')[0]
    for word in ('Paper', 'https://arxiv.org', 'Command:', 'To expect:'):
        assert word in head


def num_keypoints() -> int:
    """The number of keypoints of the generated shapes."""
    return len({name for names in KEYPOINTS.values() for name in names})


def shapes_label_map(folder: pathlib.Path) -> pathlib.Path:
    """Writes the label map that `tfod convert` makes of the generated shapes."""
    labels = coco_categories.from_categories(CATEGORIES)
    label_map = conversion.label_map_of(labels)
    layout = coco_keypoints.keypoint_layout(CATEGORIES)
    conversion.add_keypoints(label_map, labels, layout)
    path = folder / 'label_map.pbtxt'
    path.write_text(conversion.to_text(label_map))
    return path


def one_batch(num_classes: int, num_points: int, size: int) -> tf.data.Dataset:
    """A batch of one image with one object, as the input pipeline gives it."""
    pixels = np.random.default_rng(0).uniform(0, 255, (size, size, 3))
    example = {
        InputFields.IMAGE: pixels.astype(np.float32),
        InputFields.TRUE_IMAGE_SHAPE: np.array([size, size, 3], np.int32),
        InputFields.SOURCE_ID: np.array('0'),
        InputFields.GROUNDTRUTH_BOXES: np.array([[0.1, 0.1, 0.6, 0.7]], np.float32),
        InputFields.GROUNDTRUTH_CLASSES: np.eye(1, num_classes, dtype=np.float32),
        InputFields.GROUNDTRUTH_WEIGHTS: np.ones(1, np.float32),
        InputFields.GROUNDTRUTH_INSTANCE_MASK_CROPS: np.full((1, 28, 28), 255, np.uint8),
        InputFields.GROUNDTRUTH_KEYPOINTS: np.full((1, num_points, 2), 0.3, np.float32),
    }
    return tf.data.Dataset.from_tensors(example).batch(1)


@rows.parametrize(('training', 'expected'), _TRAININGS.items())
def test_recipes_differ_in_their_training_alone(training, expected):
    base, other = (
        read_pipeline(str(SAMPLES / f'{_RECIPE}{end}.config')) for end in ('', f'_{training}')
    )
    batch_size, epochs = expected
    config = other.train_config
    assert config.batch_size == batch_size
    steps_per_epoch = _COCO_IMAGES / batch_size
    passes = config.num_epochs or config.num_steps / steps_per_epoch
    assert passes == pytest.approx(epochs, abs=0.1)
    # 0.02 for 16 images a step, and the last drop well before the end.
    optimizer = config.optimizer
    if optimizer.learning_rate_unit == optimizer.EPOCHS:
        optimizer = optimizer_builder.in_steps(optimizer, steps_per_epoch=round(steps_per_epoch))
    schedule = optimizer.momentum_optimizer.learning_rate.manual_step_learning_rate.schedule
    assert [stage.learning_rate for stage in schedule] == pytest.approx([0.02, 0.002, 0.0002])
    assert 0.8 < schedule[-1].step / (passes * steps_per_epoch) < 0.9
    assert config.auto_scale_lr.reference_batch_size == 16
    other.train_config.CopyFrom(base.train_config)
    assert other == base


def test_the_augmented_demo_differs_in_its_augmentation_alone():
    base, other = (read_pipeline(str(SAMPLES / name)) for name in (_DEMO, _AUGMENTED))
    steps = list(other.train_config.data_augmentation_options)
    # Each step that stops does so during the training.
    stops = [step.stop_after_step for step in steps if step.stop_after_step]
    assert stops
    assert max(stops) < other.train_config.num_steps
    # Images may have 12 objects (dataset_tools/shapes.py); others are put to them.
    assert other.train_input_reader.max_number_of_boxes > 2 * MAX_OBJECTS
    other.train_input_reader.max_number_of_boxes = base.train_input_reader.max_number_of_boxes
    del other.train_config.data_augmentation_options[:]
    other.train_config.data_augmentation_options.extend(base.train_config.data_augmentation_options)
    assert other == base


def test_context_rcnn_for_several_accelerators_differs_in_its_training_alone():
    base, other = (read_pipeline(str(SAMPLES / name)) for name in (_CONTEXT, _CONTEXT_SYNC))
    assert (base.train_config.batch_size, other.train_config.batch_size) == (8, 64)
    other.train_config.CopyFrom(base.train_config)
    other.eval_config.CopyFrom(base.eval_config)
    assert other == base


# The default run trains and exports the demo's detector, made small (tests/tiny_models.py), and a
# single-shot detector (tests/test_zoo.py).
@pytest.mark.slow
@pytest.mark.usefixtures('graphs_as_they_are')
@pytest.mark.parametrize('name', [name for name in names() if name not in _SAME_MODELS])
def test_builds_trains_a_step_and_exports(name, tmp_path):
    pipeline = read_pipeline(str(SAMPLES / name))
    family = pipeline.model.WhichOneof('model')
    labels = shapes_label_map(tmp_path)
    head = pipeline.model.faster_rcnn.second_stage_box_predictor.mask_rcnn_box_predictor
    # Without a label map, objects have all keypoints of the head.
    num_points = head.keypoint_head.num_keypoints or num_keypoints()
    has_map = 'keypoint' in name and (family != 'faster_rcnn' or head.keypoint_head.label_map_path)
    label_maps = _LABEL_MAPS[family] if has_map else []
    for setting in SMALL[family] + [f'{field}={labels}' for field in label_maps]:
        overrides.apply_setting(pipeline, f'model.{family}.{setting}')
    size = _SIZES.get(name, SIZE)
    resizer = getattr(pipeline.model, family).image_resizer.fixed_shape_resizer
    resizer.height = resizer.width = size
    detector = model_builder.build(pipeline.model)
    detector.build_variables()
    data = one_batch(detector.num_classes, num_points, size).map(
        lambda batch: batch | side_inputs.zeros(detector)  # context, where boxes attend to it
    )
    train_step = TrainStep(
        detector,
        optimizer_builder.build(
            optimizer_builder.in_steps(pipeline.train_config.optimizer, steps_per_epoch=100)
        ),
        element_spec=data.element_spec,
    )
    before = {path: v.numpy() for path, v in detector.named_trainable_variables().items()}
    # Two steps: the learning rate of the first may be zero.
    batch = next(iter(data))
    train_step(batch)
    losses = train_step(batch)
    assert all(np.isfinite(value) for value in losses.values())
    after = detector.named_trainable_variables()
    assert any((variable.numpy() != before[name]).any() for name, variable in after.items())
    saved_model.export(
        detector,
        tmp_path,
        input_type='image_tensor',
        save_checkpoint=lambda directory: checkpoints.save_model(
            directory, detector.named_variables(), 1
        ),
        pipeline_text='',
    )
    image = np.zeros((size, size, 3), np.uint8)
    if detector.side_inputs():
        loaded = tf.saved_model.load(str(tmp_path / 'saved_model'))
        outputs = loaded.signatures['serving_default'](
            input_tensor=image[np.newaxis], **side_inputs.zeros(detector)
        )
        detections = {name: value[0] for name, value in outputs.items()}
    else:
        detections = SavedModelRuntime(tmp_path)(image)
    assert detections['detection_boxes'].shape == (4, 4)
    assert ('detection_masks' in detections) == ('mask' in name)
    assert ('detection_keypoints' in detections) == ('keypoint' in name)
