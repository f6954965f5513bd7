"""MobileNet v3, EdgeTPU and MobileDet in checkpoints of TensorFlow 1, by tables of their own."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.errors import CheckpointError
from object_detection.meta_architectures.ssd.variable_names import SSD_NAMES
from object_detection.models.backbones.table import BACKBONES, BackboneOptions
from object_detection.protos import model_pb2
from object_detection.weights import networks, restore, slim
from tests import mobile_networks, rows
from tests.weights import third_party_files

FILTERS = (512, 256, 256, 128)
ANCHORS = (3, 6, 6, 6, 6, 6)
MODEL = """
ssd {
  num_classes: 2
  image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
  feature_extractor { use_depthwise: true conv_hyperparams { batch_norm { scale: true } } }
  box_predictor {
    convolutional_box_predictor {
      kernel_size: 3
      use_depthwise: true
      conv_hyperparams { batch_norm { scale: true } }
    }
  }
  anchor_generator {
    ssd_anchor_generator { aspect_ratios: [1, 2, 0.5, 3, 0.3333] }
  }
  box_coder { faster_rcnn_box_coder {} }
  matcher { argmax_matcher {} }
  similarity_calculator { iou_similarity {} }
  loss {
    classification_loss { weighted_sigmoid_focal {} }
    localization_loss { weighted_smooth_l1 {} }
  }
}
"""


def build(type_name: str, settings: str = ''):
    model = text_format.Parse(MODEL, model_pb2.DetectionModel())
    model.ssd.feature_extractor.type = type_name
    text_format.Merge(settings, model.ssd)
    detector = model_builder.build(model)
    detector.build_variables()
    return detector


def checkpoint(name: str) -> mobile_networks.Shapes:
    """Key -> shape of all variables of a detector."""
    channels = (*mobile_networks.NETWORKS[name][3], *FILTERS)
    return {
        **mobile_networks.backbone(name),
        **mobile_networks.extra_maps(name),
        **mobile_networks.predictor(channels, 2, ANCHORS),
    }


def write(folder, shapes: mobile_networks.Shapes) -> tuple[str, dict[str, np.ndarray]]:
    """Writes a checkpoint of random values, with what a training keeps beside the weights."""
    rng = np.random.default_rng(0)
    arrays = {key: rng.normal(size=shape).astype(np.float32) for key, shape in shapes.items()}
    others = {f'{key}/{slot}': value + 1 for key, value in arrays.items() for slot in SLOTS}
    arrays_and_others = arrays | others | {'global_step': np.int64(400000)}
    return third_party_files.write_checkpoint(folder / 'model.ckpt', arrays_and_others), arrays


SLOTS = ('ExponentialMovingAverage', 'Momentum')


def restored(detector, prefix: str, arrays: dict[str, np.ndarray]) -> None:
    """Restores a detector; all of its variables and all keys must have been used."""
    for variable in detector.named_variables().values():
        variable.assign(tf.zeros_like(variable))
    report = restore.restore(detector, prefix, 'full')
    assert report.missing == report.unused == report.mismatched == []
    variables = detector.named_variables()
    assert set(report.restored) == set(variables)
    found = sorted(float(np.sum(np.float64(each))) for each in variables.values())
    np.testing.assert_allclose(found, sorted(np.sum(np.float64(each)) for each in arrays.values()))


@pytest.mark.parametrize(
    'name',
    [
        pytest.param(name, marks=() if name == 'mobilenet_v3_small' else pytest.mark.slow)
        for name in mobile_networks.NETWORKS
    ],
)
def test_a_whole_detector(name, tmp_path):
    detector = build(f'ssd_{name}')
    prefix, arrays = write(tmp_path, checkpoint(name))
    restored(detector, prefix, arrays)
    variables = detector.named_variables()
    scope = f'FeatureExtractor/{mobile_networks.NETWORKS[name][0]}'
    np.testing.assert_array_equal(
        variables['backbone/first_conv/kernel'], arrays[f'{scope}/Conv/weights']
    )
    np.testing.assert_array_equal(
        variables['box_predictor/classes_5/kernel'],
        arrays['BoxPredictor_5/ClassPredictor/weights'],
    )


EMBEDDED = """
image_resizer { fixed_shape_resizer { height: 256 width: 256 } }
feature_extractor { depth_multiplier: 0.125 use_depthwise: false }
anchor_generator { ssd_anchor_generator { num_layers: 5 } }
"""


def embedded() -> mobile_networks.Shapes:
    """Key -> shape of the variables of the embedded type, with a factor of an eighth."""
    scope, widths = 'FeatureExtractor/MobilenetV1', [16] * 4 + [32] * 2 + [64] * 6 + [128] * 2
    keys = mobile_networks.convolution(f'{scope}/Conv2d_0', 3, 3, 16)
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths), start=1):
        keys |= mobile_networks.depthwise(f'{scope}/Conv2d_{i}_depthwise', 3, inputs)
        keys |= mobile_networks.convolution(f'{scope}/Conv2d_{i}_pointwise', 1, inputs, outputs)
    base = f'{scope}/Conv2d_13_pointwise'
    filters = (64, 32, 32)
    keys |= mobile_networks.maps_after(base, 128, filters, separable=False, last_kernel_size=2)
    return keys | mobile_networks.predictor((64, 128, *filters), 2, ANCHORS[:5])


@pytest.mark.slow
def test_an_embedded_detector(tmp_path):
    detector = build('embedded_ssd_mobilenet_v1', EMBEDDED)
    prefix, arrays = write(tmp_path, embedded())
    last = 'FeatureExtractor/MobilenetV1/Conv2d_13_pointwise_2_Conv2d_4_2x2_s2_32/weights'
    assert arrays[last].shape == (2, 2, 16, 32)
    restored(detector, prefix, arrays)
    np.testing.assert_array_equal(detector.named_variables()['fpn/map_4_conv/kernel'], arrays[last])


@rows.parametrize('name', mobile_networks.NETWORKS)
def test_a_classifier_is_known(name):
    keys = {key.removeprefix('FeatureExtractor/') for key in mobile_networks.backbone(name)}
    assert slim.is_known(keys)
    assert not slim.is_detector(keys)


def test_every_layer_of_a_classifier_is_found():
    row = BACKBONES['mobiledet_dsp']
    model = row.trunk((4, 5), BackboneOptions(row.hyperparams, batch_norm_trainable=True))
    ours = {f'backbone/{each.path}': tuple(each.shape) for each in model.variables}
    theirs = {
        key.removeprefix('FeatureExtractor/'): shape
        for key, shape in mobile_networks.backbone('mobiledet_dsp').items()
    }
    found = slim.match(ours, theirs, SSD_NAMES)
    assert {name: theirs[key] for name, key in found.items()} == ours
    assert sorted(found.values()) == sorted(theirs)


@rows.parametrize(
    ('name', 'title'),
    [
        ('mobilenet_v3_large', 'MobileNet v3'),
        ('mobilenet_v3_small', 'MobileNet v3'),
        ('mobilenet_edgetpu', 'MobileNet EdgeTPU'),
        ('mobiledet_cpu', 'MobileDet'),
        ('mobiledet_gpu', 'MobileDet'),
    ],
)
def test_networks_are_told_apart(name, title):
    keys = list(mobile_networks.backbone(name))
    ours = ['backbone/conv_dw_1/depthwise_kernel']
    theirs = list(slim.match([], keys, SSD_NAMES))
    assert networks.differing(ours, theirs) == ('MobileNet v1', title)


@pytest.mark.slow
def test_another_network_is_refused(tmp_path):
    prefix, _ = write(tmp_path, checkpoint('mobilenet_edgetpu'))
    with pytest.raises(CheckpointError, match=r'MobileNet v3. Received: MobileNet EdgeTPU\.'):
        restore.restore(build('ssd_mobilenet_v3_small'), prefix, 'full')
