"""CenterNets in the formats of files, with keypoints, masks and DensePose."""

import importlib.util

import numpy as np
import pytest
import tensorflow as tf

from object_detection.export import tflite_graph
from object_detection.export.formats import formats, tflite
from object_detection.weights import checkpoints
from tests.export.formats import sources

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')
FIELDS = (
    'detection_keypoints',
    'detection_keypoint_scores',
    'detection_masks',
    'detection_surface_coords',
)


def assert_fields_agree(found, expected):
    """Compares what belongs to detections, which are in the same order."""
    np.testing.assert_allclose(found['detection_scores'], expected['detection_scores'], atol=1e-5)
    for name in FIELDS:
        assert found[name].shape == expected[name].shape
        # A pixel of a mask may be at the threshold.
        differs = np.abs(np.asarray(found[name]) - np.asarray(expected[name])) > 1e-3
        assert np.mean(differs) < 2e-3, name


@pytest.mark.slow
@pytest.mark.parametrize(
    'name',
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                any(not importlib.util.find_spec(each) for each in row.load_packages),
                reason=f'needs {", ".join(row.load_packages)}',
            ),
        )
        for name, row in formats.EXPORT_FORMATS.items()
        if name != 'triton'  # A folder around the file of another format; see test_triton.py.
    ],
)
def test_files_give_the_detections_of_the_model(name, tmp_path, shared):
    model = sources.source('center_net')
    detector = formats.load(sources.written(name, model, tmp_path))
    assert {*FIELDS, 'detection_boxes', 'num_detections'} <= set(detector.description.outputs)
    images = sources.photos(shared, 2)
    sources.assert_agrees(detector, model, images)
    for image in images:
        batch = tf.constant(image[np.newaxis])
        assert_fields_agree(detector.run_batch(batch), sources.in_process(model)(batch))


@pytest.mark.slow
@pytest.mark.parametrize('has_keypoints', [True, False])
def test_the_script_of_the_reference_writes_a_graph_of_pixels(has_keypoints, tmp_path):
    model = sources.source(
        'center_net',
        'model { center_net { image_resizer { fixed_shape_resizer { height: 64 width: 96 } } } }',
    )
    checkpoints.save_model(str(tmp_path / 'model'), model.detector.named_variables(), 3)
    labels = tmp_path / 'labels.pbtxt'
    labels.write_text(sources.POSE_LABELS)
    model.pipeline.model.center_net.keypoint_label_map_path = str(labels)
    folder = tflite_graph.export(
        model.pipeline,
        str(tmp_path / 'model'),
        tmp_path,
        max_detections=4,
        use_regular_nms=False,
        include_keypoints=has_keypoints,
    )
    converter = tf.lite.TFLiteConverter.from_saved_model(folder)
    content = converter.convert()
    run = tflite.interpreter(tmp_path, content).get_signature_runner()
    image = np.random.default_rng(0).integers(0, 255, (1, 64, 96, 3)).astype(np.uint8)
    outputs = run(input=image.astype(np.float32))
    keypoints = {'detection_keypoints': (1, 4, 2, 2), 'detection_keypoint_scores': (1, 4, 2)}
    assert {key: value.shape for key, value in outputs.items()} == {
        'detection_boxes': (1, 4, 4),
        'detection_classes': (1, 4),
        'detection_scores': (1, 4),
        'num_detections': (1,),
        'detection_masks': (1, 4, 16, 12),
        'detection_surface_coords': (1, 4, 16, 12, 2),
        **(keypoints if has_keypoints else {}),
    }
    expected = sources.in_process(model)(tf.constant(image))
    for key in ('detection_boxes', 'detection_scores', *(keypoints if has_keypoints else ())):
        np.testing.assert_allclose(outputs[key], expected[key][:, :4], atol=1e-4, err_msg=key)
