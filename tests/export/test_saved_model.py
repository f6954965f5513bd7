import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from object_detection.core.fields import DetectionFields
from object_detection.export import batch_norm_folding, exporter, saved_model, verification
from object_detection.export.inference import SavedDetector
from object_detection.export.predict import predict_files
from object_detection.training import checkpoints
from tests import tiny_models as tiny

# A real detector's batch norms are not the identity.
INPUT_TYPES = list(saved_model.INPUT_TYPES)


def disturb_batch_norms(detector) -> None:
    rng = np.random.default_rng(0)
    for name, variable in detector.named_variables().items():
        if '_bn/' in name:
            variable.assign(rng.uniform(0.5, 1.5, variable.shape))


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> pathlib.Path:
    """A directory with a checkpoint of the tiny detector."""
    folder = tmp_path_factory.mktemp('trained')
    detector = tiny.tiny_detector()
    disturb_batch_norms(detector)
    checkpoints.save_model(str(folder), detector.named_variables(), 7)
    return folder


@pytest.fixture(scope='module')
def images() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, 255, (48, 80, 3), np.uint8) for _ in range(2)]


@pytest.mark.parametrize('input_type', INPUT_TYPES)
def test_export_gives_the_detections_of_the_model(input_type, trained, images, tmp_path):
    pipeline = tiny.tiny_pipeline()
    exporter.export(pipeline, str(trained), tmp_path, input_type=input_type)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        'checkpoint',
        'pipeline.config',
        'saved_model',
    ]
    detector = exporter.load_detector(pipeline, str(trained))
    comparison = verification.compare(SavedDetector(tmp_path), detector, images)
    assert comparison.detections > 0
    assert comparison.unmatched == 0
    assert comparison.largest_difference < 1e-4


def test_image_tensor_takes_any_batch_and_classes_start_at_1(trained, images, tmp_path):
    exporter.export(tiny.tiny_pipeline(), str(trained), tmp_path)
    model = tf.saved_model.load(str(tmp_path / 'saved_model'))
    serve = model.signatures['serving_default']
    assert list(serve.structured_input_signature[1]) == ['input_tensor']
    both = serve(input_tensor=tf.constant(np.stack(images)))
    for i, image in enumerate(images):
        one = serve(input_tensor=tf.constant(image[np.newaxis]))
        for key, value in one.items():
            assert value.dtype == tf.float32
            np.testing.assert_allclose(value[0], both[key][i], atol=1e-4, err_msg=key)
    count = int(both[DetectionFields.NUM_DETECTIONS][0])
    classes = both[DetectionFields.CLASSES][0, :count].numpy()
    assert set(classes) <= {1.0, 2.0, 3.0, 4.0}


def test_encoded_images_of_many_sizes_with_a_resizer_that_keeps_the_aspect(trained, tmp_path):
    resizer = 'keep_aspect_ratio_resizer { min_dimension: 64 max_dimension: 96 }'
    pipeline = tiny.tiny_pipeline(f'model {{ faster_rcnn {{ image_resizer {{ {resizer} }} }} }}')
    exporter.export(pipeline, str(trained), tmp_path, input_type='encoded_image_string_tensor')
    serve = tf.saved_model.load(str(tmp_path / 'saved_model')).signatures['serving_default']
    rng = np.random.default_rng(0)
    files = [
        tf.io.encode_png(rng.integers(0, 255, (height, width, 3), np.uint8))
        for height, width in ((64, 80), (90, 70))
    ]
    both = serve(input_tensor=tf.stack(files))
    assert both[DetectionFields.BOXES].shape == (2, 6, 4)
    assert both[DetectionFields.BOXES].numpy().max() <= 1


def test_the_exported_checkpoint_is_unfolded(trained, tmp_path):
    exporter.export(tiny.tiny_pipeline(), str(trained), tmp_path)
    original = exporter.load_detector(tiny.tiny_pipeline(), str(trained)).named_variables()
    exported = exporter.load_detector(tiny.tiny_pipeline(), str(tmp_path / 'checkpoint'))
    for name, variable in exported.named_variables().items():
        np.testing.assert_array_equal(variable, original[name], err_msg=name)
    assert checkpoints.read_step(str(tmp_path / 'checkpoint' / 'ckpt-0')) == 7


def test_folding_leaves_no_batch_norm_and_the_same_numbers():
    detector = tiny.tiny_detector(is_training=False)
    disturb_batch_norms(detector)
    images = detector.normalize(tiny.random_images(1))
    before = detector.feature_extractor.proposal_features(images)
    backbone = detector.parts()['backbone']
    norms = [layer for layer in backbone.layers if layer.name.endswith('_bn')]
    folded = batch_norm_folding.fold(backbone, lambda: backbone(images, training=False))
    assert folded == len(norms) == 20
    after = detector.feature_extractor.proposal_features(images)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(a).max())


def test_unknown_input_type_and_missing_checkpoint_are_told(trained, tmp_path):
    with pytest.raises(ValueError, match='input_type must be one of'):
        exporter.export(tiny.tiny_pipeline(), str(trained), tmp_path, input_type='video')
    with pytest.raises(ValueError, match='no checkpoint found'):
        exporter.export(tiny.tiny_pipeline(), str(tmp_path), tmp_path / 'out')
    with pytest.raises(ValueError, match='holds no SavedModel'):
        SavedDetector(tmp_path)


def test_predict_writes_pictures_and_coco_results(trained, images, tmp_path):
    exporter.export(tiny.tiny_pipeline(), str(trained), tmp_path / 'exported')
    files = []
    for name, image in zip(('000012.png', 'cat.jpg'), images, strict=True):
        files.append(tmp_path / name)
        Image.fromarray(image).save(files[-1])
    broken = tmp_path / 'broken.jpg'
    broken.write_bytes(b'no image')
    output = tmp_path / 'out'
    summary = predict_files(tmp_path / 'exported', [*files, broken], output, min_score=0.0)
    assert summary.images == 2
    assert len(summary.problems) == 1
    assert 'broken.jpg' in summary.problems[0]
    results = json.loads((output / 'detections.json').read_text())
    assert len(results) == summary.detections > 0
    assert {result['image_id'] for result in results} == {12, 2}
    for result in results:
        x, y, width, height = result['bbox']
        assert 0 <= x <= x + width <= 80 + 1e-3
        assert 0 <= y <= y + height <= 48 + 1e-3
        assert result['segmentation']['size'] == [48, 80]
    for name in ('000012.png', 'cat.png'):
        assert Image.open(output / name).size[0] >= 80
