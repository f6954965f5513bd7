"""`object_detection.load`, and `tf.train.Checkpoint` with a detector."""

import functools
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import object_detection
from object_detection.builders import model_builder
from object_detection.config import show
from object_detection.config.reader import read_pipeline
from object_detection.core.fields import DetectionFields
from object_detection.errors import CheckpointError
from object_detection.export import exporter
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.metrics.mask_pasting import paste_mask
from object_detection.runtime.runtime import Runtime
from object_detection.utils import label_map_util
from object_detection.utils import ops as utils_ops
from object_detection.utils import visualization_utils as vis_util
from object_detection.weights import checkpoints
from tests import rows
from tests import tiny_models as tiny

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')

IMAGE = np.random.default_rng(0).integers(0, 255, (48, 80, 3), np.uint8)
OTHER_CLASSES = 'model { faster_rcnn { num_classes: 7 } }'


@pytest.fixture(scope='module', autouse=True)
def _plain_backbone():
    with tiny.plain_backbone():
        yield


def a_detector(seed: int) -> DetectionModel:
    detector = tiny.tiny_detector(tiny.PLAIN_BACKBONE, seed=seed)
    tiny.disturb_batch_norms(detector)
    tiny.shrink_last_layers(detector)
    return detector


@pytest.fixture(scope='module')
def model_dir(tmp_path_factory) -> pathlib.Path:
    """As a training leaves it: a last checkpoint, another one that was best, and its config."""
    folder = tmp_path_factory.mktemp('model')
    (folder / 'labels.pbtxt').write_text("item { id: 1 name: 'cat' } item { id: 4 name: 'dog' }")
    pipeline = tiny.tiny_pipeline(
        tiny.PLAIN_BACKBONE,
        f"train_input_reader {{ label_map_path: '{folder / 'labels.pbtxt'}' }}",
    )
    show.write_pipeline(pipeline, str(folder / 'resolved_pipeline.config'))
    checkpoints.save_model(str(folder), a_detector(1).named_variables(), 20, number=3)
    checkpoints.save_model(str(folder / 'best'), a_detector(2).named_variables(), 10)
    return folder


@pytest.fixture(scope='module')
def exported(model_dir, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('exported')
    pipeline = read_pipeline(str(model_dir / 'resolved_pipeline.config'))
    exporter.export(pipeline, str(model_dir), folder)
    return folder


@pytest.fixture(scope='module')
def last(model_dir) -> Runtime:
    """The last checkpoint in this process; it stays as it is."""
    return object_detection.load(model_dir)


def values(detector: DetectionModel) -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in detector.named_variables().items()}


@functools.cache
def weights(seed: int) -> dict[str, np.ndarray]:
    return values(a_detector(seed))


def assert_weights(detector: DetectionModel, seed: int) -> None:
    """Checks that a detector has the weights of `a_detector(seed)`."""
    np.testing.assert_equal(values(detector), weights(seed))


def test_a_model_dir_gives_its_last_checkpoint_or_the_best_one(model_dir, last):
    assert_weights(last.model, 1)
    assert last.source == str(model_dir / 'ckpt-3')
    assert last.class_names == {1: 'cat', 4: 'dog'}
    for best in (
        object_detection.load(model_dir, checkpoint='best'),
        object_detection.load(model_dir / 'best'),
    ):
        assert_weights(best.model, 2)
    assert_weights(object_detection.load(model_dir / 'ckpt-3').model, 1)
    assert_weights(object_detection.load(model_dir / 'best', checkpoint='..').model, 1)


def test_class_names_do_not_depend_on_the_folder_of_the_command(
    model_dir, last, tmp_path, monkeypatch
):
    config = read_pipeline(str(model_dir / 'resolved_pipeline.config'))
    config.train_input_reader.label_map_path = 'data/my_label_map.pbtxt'
    show.write_pipeline(config, str(tmp_path / 'moved.config'))
    stored = model_dir / 'resolved_label_map.pbtxt'
    stored.write_text("item { id: 1 name: 'stored' }")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exporter, 'load_detector', lambda *_, **__: last.model)
    texts = []
    monkeypatch.setattr(
        exporter.saved_model,
        'export',
        lambda *_, label_map_text, **__: texts.append(label_map_text),
    )
    try:
        loaded = object_detection.load(model_dir, config=tmp_path / 'moved.config')
        exporter.export(config, str(model_dir / 'best'), tmp_path / 'out')
    finally:
        stored.unlink()
    assert loaded.class_names == {1: 'stored'}
    assert 'stored' in texts[0]


def test_the_calls_of_the_notebooks_that_draw_the_results_of_a_saved_model(
    exported, model_dir, monkeypatch
):
    monkeypatch.setattr(utils_ops, 'tf', tf.compat.v1)
    category_index = label_map_util.create_category_index_from_labelmap(
        str(model_dir / 'labels.pbtxt'), use_display_name=True
    )
    model = tf.saved_model.load(str(exported / 'saved_model'))
    model_fn = model.signatures['serving_default']
    image = np.asarray(IMAGE).copy()
    output_dict = model_fn(tf.convert_to_tensor(image)[tf.newaxis, ...])
    num_detections = int(output_dict.pop('num_detections')[0])
    output_dict = {key: value[0, :num_detections].numpy() for key, value in output_dict.items()}
    output_dict['num_detections'] = num_detections
    output_dict['detection_classes'] = output_dict['detection_classes'].astype(np.int64)
    detection_masks_reframed = utils_ops.reframe_box_masks_to_image_masks(
        output_dict['detection_masks'],
        output_dict['detection_boxes'],
        image.shape[0],
        image.shape[1],
    )
    detection_masks_reframed = tf.cast(detection_masks_reframed > 0.5, tf.uint8)
    output_dict['detection_masks_reframed'] = detection_masks_reframed.numpy()
    vis_util.visualize_boxes_and_labels_on_image_array(
        image,
        output_dict['detection_boxes'],
        output_dict['detection_classes'],
        output_dict['detection_scores'],
        category_index,
        instance_masks=output_dict.get('detection_masks_reframed'),
        use_normalized_coordinates=True,
        min_score_thresh=0.0,
        line_thickness=8,
    )
    assert num_detections == 6
    assert (image != IMAGE).any()
    expected = object_detection.paste_masks(
        output_dict['detection_masks'], output_dict['detection_boxes'], *IMAGE.shape[:2]
    )
    # Probabilities near 0.5 round to either side.
    differing = output_dict['detection_masks_reframed'] != expected
    assert expected.any()
    assert differing.mean() < 1e-3


def test_an_unpacked_archive_is_loaded(model_dir, tmp_path):
    shutil.copytree(model_dir / 'best', tmp_path / 'zoo' / 'checkpoint')
    shutil.copy(model_dir / 'resolved_pipeline.config', tmp_path / 'zoo' / 'pipeline.config')
    assert_weights(object_detection.load(tmp_path / 'zoo').model, 2)
    assert_weights(object_detection.load(tmp_path / 'zoo' / 'checkpoint').model, 2)


@pytest.mark.slow
def test_images_of_any_size_give_the_detections_of_the_export(last, exported):
    served = object_detection.load(exported)
    assert served.model is None
    assert served.class_names == last.class_names
    serve = served.traced_function
    for image in (IMAGE, IMAGE[:31, :70]):
        expected = serve(input_tensor=tf.constant(image[np.newaxis]))
        for detector in (last, served):
            single, batch = detector(image), detector(np.stack([image, image]))
            assert single.keys() == batch.keys() == expected.keys()
            assert single[DetectionFields.BOXES].shape == (6, 4)
            assert batch[DetectionFields.MASKS].shape == (2, 6, 14, 14)
            for key, value in expected.items():
                # Folded batch norms round differently.
                np.testing.assert_allclose(single[key], value[0], atol=1e-3, err_msg=key)
                np.testing.assert_allclose(batch[key][1], value[0], atol=1e-3, err_msg=key)
    assert set(single[DetectionFields.CLASSES].numpy()) <= {1.0, 2.0, 3.0, 4.0}


@pytest.mark.slow
def test_an_export_that_takes_one_image_at_a_time_takes_batches_here(exported, tmp_path):
    model = tf.saved_model.load(str(exported / 'saved_model'))
    one = tf.Module()
    one.model = model
    spec = tf.TensorSpec([1, None, None, 3], tf.uint8, 'input_tensor')
    one.serve = tf.function(
        lambda input_tensor: {**model(input_tensor), 'anchors': tf.zeros([5, 4])},
        input_signature=[spec],
        autograph=False,
    )
    tf.saved_model.save(one, str(tmp_path), signatures={'serving_default': one.serve})
    both = object_detection.load(tmp_path)(np.stack([IMAGE, IMAGE[::-1]]))
    assert 'anchors' not in both
    for i, image in enumerate((IMAGE, IMAGE[::-1])):
        np.testing.assert_allclose(
            both[DetectionFields.BOXES][i],
            model(image[np.newaxis])['detection_boxes'][0],
            atol=1e-5,
        )


def test_pictures_and_pasted_masks(last):
    found = last(IMAGE)
    picture = last.draw(IMAGE, found, min_score=0.0)
    assert picture.shape == (48 * 6, 80 * 6, 3)
    np.testing.assert_array_equal(picture, last.draw(IMAGE, min_score=0.0))
    assert (picture != last.draw(IMAGE, found, min_score=1.1)).any()
    masks, boxes = found[DetectionFields.MASKS], found[DetectionFields.BOXES].numpy()
    pasted = object_detection.paste_masks(masks, boxes, 48, 80)
    assert pasted.shape == (6, 48, 80)
    assert pasted.dtype == np.uint8
    for mask, box, own in zip(masks.numpy(), boxes, pasted, strict=True):
        np.testing.assert_array_equal(own, paste_mask(mask, box * [48, 80, 48, 80], 48, 80))
    with pytest.raises(ValueError, match=r'Received: \(1, 6, 14, 14\) and \(1, 6, 4\)'):
        object_detection.paste_masks(masks[None], boxes[None], 48, 80)


@rows.parametrize(
    ('images', 'received'),
    [
        (IMAGE.astype(np.int32), r'int32 \[48, 80, 3\]'),
        (IMAGE[..., :1], r'uint8 \[48, 80, 1\]'),
        (IMAGE[0], r'uint8 \[80, 3\]'),
    ],
)
def test_what_is_no_image_is_refused(images, received, last):
    with pytest.raises(ValueError, match=received):
        last(images)


def test_a_folder_without_a_detector_is_reported(model_dir, exported, tmp_path):
    with pytest.raises(ValueError, match='no checkpoint found'):
        object_detection.load(tmp_path)
    checkpoints.save_model(str(tmp_path), a_detector(1).named_variables(), 1)
    with pytest.raises(ValueError, match=r'expected a SavedModel, or a checkpoint with its pipe'):
        object_detection.load(tmp_path)
    config = model_dir / 'resolved_pipeline.config'
    assert_weights(object_detection.load(tmp_path, config=config).model, 1)
    assert object_detection.load(exported, precision='float32').precision == 'float32'
    with pytest.raises(ValueError, match='is a SavedModel, whose precision is fixed: float32'):
        object_detection.load(exported, precision='bfloat16')
    with pytest.raises(ValueError, match=r'Label map none\.pbtxt'):
        object_detection.load(exported, label_map='none.pbtxt')


def test_a_path_that_is_not_there_is_reported_as_such(model_dir):
    with pytest.raises(ValueError, match=r'^absent: there is no such file or folder\.$'):
        object_detection.load('absent')
    with pytest.raises(ValueError, match=rf'there is neither {model_dir}/ckpt-9 nor ckpt-9'):
        object_detection.load(model_dir, checkpoint='ckpt-9')


def test_importing_the_package_does_not_import_tensorflow():
    code = 'import sys, object_detection; object_detection.load; print("tensorflow" in sys.modules)'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout == 'False\n'


def test_a_checkpoint_of_ours_is_restored_before_variables_are_made(model_dir):
    detector = model_builder.build(tiny.tiny_pipeline(tiny.PLAIN_BACKBONE).model, is_training=False)
    status = tf.train.Checkpoint(model=detector).restore(str(model_dir / 'ckpt-3'))
    status.expect_partial().assert_existing_objects_matched()
    assert_weights(detector, 1)


def test_what_is_saved_with_tensorflow_is_restored_and_loaded(model_dir, tmp_path):
    detector = a_detector(1)
    prefix = tf.train.Checkpoint(model=detector).save(str(tmp_path / 'ckpt'))
    other = a_detector(2)
    tf.train.Checkpoint(model=other).restore(prefix).assert_consumed()
    assert_weights(other, 1)
    # The names are those that a training saves.
    names = {name for name, _ in tf.train.list_variables(prefix) if name.startswith('model/')}
    saved = {name for name, _ in tf.train.list_variables(str(model_dir / 'ckpt-3'))}
    assert names
    assert names == {name for name in saved if name.startswith('model/')}
    loaded = object_detection.load(prefix, config=model_dir / 'resolved_pipeline.config')
    assert_weights(loaded.model, 1)


def test_a_checkpoint_of_another_model_is_an_error(model_dir, tmp_path):
    detector = tiny.tiny_detector(tiny.PLAIN_BACKBONE, OTHER_CLASSES)
    before = values(detector)
    with pytest.raises(CheckpointError, match='of another model'):
        tf.train.Checkpoint(model=detector).restore(str(model_dir / 'ckpt-3')).expect_partial()
    np.testing.assert_equal(values(detector), before)
    foreign = tf.train.Checkpoint(model=tf.Module()).save(str(tmp_path / 'ckpt'))
    with pytest.raises(CheckpointError, match='another program'):
        tf.train.Checkpoint(model=detector).restore(foreign)


def test_a_checkpoint_of_tensorflow_1_is_an_error(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable('FirstStageFeatureExtractor/conv1/weights', [2])
        session.run(tf.compat.v1.global_variables_initializer())
        prefix = tf.compat.v1.train.Saver().save(session, os.fspath(tmp_path / 'model.ckpt'))
    detector = tiny.tiny_detector(tiny.PLAIN_BACKBONE)
    with pytest.raises(CheckpointError, match='TensorFlow 1'):
        tf.train.Checkpoint(model=detector).restore(prefix).expect_partial()
