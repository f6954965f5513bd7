"""The reference's script for TFLite: its flags, and the SavedModel that it writes."""

import importlib.resources
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from object_detection.errors import UserError
from object_detection.export import tflite_graph
from object_detection.export.formats import tflite
from object_detection.weights import checkpoints
from tests.export.formats import sources

CONFIGS = importlib.resources.files('object_detection') / 'samples' / 'configs'
SSD = str(CONFIGS / 'ssd_mobilenet_v2_fpnlite_shapes.config')
MASK_RCNN = str(CONFIGS / 'mask_rcnn_resnet18_fpn_shapes.config')


@pytest.mark.parametrize(
    ('config', 'flags', 'message'),
    [
        (SSD, ['--centernet_include_keypoints'], 'centernet_include_keypoints: expected none'),
        (SSD, ['--keypoint_label_map_path=a'], 'keypoint_label_map_path: expected none'),
        (MASK_RCNN, [], 'Error: model: expected ssd, center_net'),
    ],
)
def test_what_is_not_supported_is_reported(config, flags, message):
    finished = subprocess.run(
        [
            *(sys.executable, '-m', 'object_detection.export_tflite_graph_tf2'),
            f'--pipeline_config_path={config}',
            '--trained_checkpoint_dir=a',
            '--output_directory=b',
            *flags,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1
    assert message in finished.stdout + finished.stderr
    assert 'Traceback' not in finished.stderr


@pytest.fixture(scope='module')
def exported(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('exported')
    model = sources.source('ssd')
    checkpoints.save_model(str(folder / 'model'), model.detector.named_variables(), 3)
    return pathlib.Path(
        tflite_graph.export(
            model.pipeline,
            str(folder / 'model'),
            folder,
            max_detections=4,
            use_regular_nms=True,
        )
    )


@pytest.mark.slow
def test_the_saved_model_takes_normalized_images_and_names_its_outputs(exported, shared):
    assert [path.name for path in exported.parent.glob('saved_model*')] == ['saved_model']
    converter = tf.lite.TFLiteConverter.from_saved_model(str(exported))
    run = tflite.interpreter(exported, converter.convert()).get_signature_runner()
    detector = sources.source('ssd').detector
    (image,) = sources.photos(shared, 1)
    outputs = run(input=detector.preprocess(tf.constant(image[None]))[0].numpy())
    expected = sources.in_process(sources.source('ssd'))(tf.constant(image[None]))
    assert {key: value.shape for key, value in outputs.items()} == {
        'detection_boxes': (1, 4, 4),
        'detection_classes': (1, 4),
        'detection_scores': (1, 4),
        'num_detections': (1,),
    }
    # The converter leaves out the limit of a class, so that the best one alone is sure.
    np.testing.assert_allclose(
        outputs['detection_scores'][0, 0], expected['detection_scores'][0, 0], atol=1e-5
    )
    assert outputs['detection_classes'][0, 0] == expected['detection_classes'][0, 0]


def test_no_detections_are_refused(tmp_path):
    with pytest.raises(UserError, match='--max_detections: expected at least 1'):
        tflite_graph.export(
            sources.source('ssd').pipeline, 'a', tmp_path, max_detections=0, use_regular_nms=True
        )
