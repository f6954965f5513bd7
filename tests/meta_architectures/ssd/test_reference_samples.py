"""Sample configs of the reference: each builds as it stands."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.core.groundtruth import Groundtruth
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.meta_architectures.ssd.extractors import EXTRACTORS
from object_detection.protos import pipeline_pb2

SAMPLES = (
    pathlib.Path(__file__).resolve().parents[4] / 'shared' / 'reference' / 'configs' / 'samples'
)
PPN = 'ssd_mobilenet_v1_ppn_shared_box_predictor_300x300_coco14_sync'


def read(path: pathlib.Path) -> pipeline_pb2.TrainEvalPipelineConfig:
    return text_format.Parse(path.read_text(), pipeline_pb2.TrainEvalPipelineConfig())


def samples() -> list[str]:
    """Names of the samples of single-shot detectors."""
    paths = sorted(SAMPLES.glob('*.config'))
    return [path.stem for path in paths if read(path).model.WhichOneof('model') == 'ssd']


def build(name: str, is_training: bool = True) -> DetectionModel:
    if not SAMPLES.is_dir():
        pytest.skip('needs ../shared/reference')
    return model_builder.build(read(SAMPLES / f'{name}.config').model, is_training)


def test_number_of_samples():
    if not SAMPLES.is_dir():
        pytest.skip('needs ../shared/reference')
    assert len(samples()) == 35
    types = [
        read(SAMPLES / f'{name}.config').model.ssd.feature_extractor.type for name in samples()
    ]
    assert set(types) <= EXTRACTORS.keys()


@pytest.mark.slow
@pytest.mark.parametrize('name', samples())
def test_builds(name):
    detector = build(name)
    detector.build_variables()
    assert detector.named_trainable_variables()


def test_pooling_pyramid_predicts_and_has_losses():
    """As it stands but for its size."""
    if not SAMPLES.is_dir():
        pytest.skip('needs ../shared/reference')
    model = read(SAMPLES / f'{PPN}.config').model
    text_format.Merge(
        'image_resizer { fixed_shape_resizer { height: 96 width: 96 } } '
        'feature_extractor { depth_multiplier: 0.125 } '
        'box_predictor { weight_shared_convolutional_box_predictor { depth: 16 } }',
        model.ssd,
    )
    detector = model_builder.build(model, is_training=True)
    images, shapes = detector.preprocess(
        tf.random.stateless_uniform([1, 96, 96, 3], (1, 2), 0.0, 255.0)
    )
    groundtruth = Groundtruth.from_lists(
        boxes=[np.array([[0.1, 0.2, 0.6, 0.9]], np.float32)],
        classes=[np.eye(90, dtype=np.float32)[[3]]],
    )
    predictions = detector.predict(images, shapes, True, groundtruth, tf.constant([[1, 2]]))
    losses = detector.loss(predictions, groundtruth)
    assert all(np.isfinite(value) for value in losses.values())
    # Six boxes for each cell of the maps.
    cells = sum(side * side for side in (6, 3, 2, 1, 1, 1))
    assert predictions.box_codes.shape == (1, 6 * cells, 4)
    assert predictions.class_logits.shape == (1, 6 * cells, 91)
    # One predictor for all maps: its kernels exist once, and a norm for each map.
    names = [variable.path for variable in detector.parts()['box_predictor'].variables]
    assert sum(name.endswith('/kernel') for name in names) == 3
    assert sum(name.endswith('/gamma') for name in names) == 6
