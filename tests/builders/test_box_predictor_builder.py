import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import box_predictor_builder
from object_detection.protos import box_predictor_pb2
from tests import rows


def build(text: str, num_classes: int = 3):
    config = text_format.Parse(text, box_predictor_pb2.BoxPredictor())
    return box_predictor_builder.build(config, num_classes)


def test_box_head():
    box_head, mask_head = build(
        'mask_rcnn_box_predictor { box_code_size: 5 share_box_across_classes: true '
        'fc_hyperparams { regularizer { l2_regularizer { weight: 2.0 } } } '
        'use_dropout: true dropout_keep_probability: 0.75 }'
    )
    codes, logits = box_head(tf.zeros([2, 1, 1, 4]))
    assert codes.shape == (2, 1, 5)
    assert logits.shape == (2, 4)
    assert len(box_head.losses) == 2
    assert box_head._dropout_rate == 0.25
    assert mask_head is None


def test_first_values_of_the_boxes():
    box_head, _ = build(
        'mask_rcnn_box_predictor { '
        'fc_hyperparams { initializer { random_normal_initializer { stddev: 0 mean: 3 } } } '
        'box_initializer { random_normal_initializer { stddev: 0 mean: 2 } } }'
    )
    codes, logits = box_head(tf.ones([1, 1, 1, 1]))
    assert set(codes.numpy().ravel()) == {2}
    assert set(logits.numpy().ravel()) == {3}


def test_no_dropout_by_default():
    box_head, _ = build('mask_rcnn_box_predictor { dropout_keep_probability: 0.5 }')
    assert box_head._dropout_rate == 0


@rows.parametrize(
    ('text', 'shape', 'layers'),
    [
        ('', (2, 3, 15, 15), 2),
        ('mask_height: 6 mask_width: 4 masks_are_class_agnostic: true', (2, 1, 6, 4), 2),
        (
            'mask_height: 6 mask_width: 4 convolve_then_upsample_masks: true '
            'mask_prediction_num_conv_layers: 3 mask_prediction_conv_depth: 2',
            (2, 3, 6, 4),
            4,
        ),
        (
            'mask_height: 4 mask_width: 4 mask_head_deconv: true '
            'mask_prediction_num_conv_layers: 3 mask_prediction_conv_depth: 2',
            (2, 3, 4, 4),
            4,
        ),
    ],
)
def test_mask_head(text, shape, layers):
    _, mask_head = build(
        f'mask_rcnn_box_predictor {{ predict_instance_masks: true conv_hyperparams {{}} {text} }}'
    )
    assert mask_head(tf.zeros([2, 2, 2, 4])).shape == shape
    assert len(mask_head.variables) == 2 * layers


def test_box_head_layers():
    config = text_format.Parse(
        'conv_hyperparams { group_norm { groups: 2 } } '
        'fc_hyperparams { batch_norm {} regularizer { l2_regularizer { weight: 2.0 } } } '
        'box_head { num_convs: 4 conv_depth: 6 num_fcs: 1 fc_depth: 7 }',
        box_predictor_pb2.MaskRCNNBoxPredictor(),
    )
    layers = box_predictor_builder.build_box_classifier(config)
    assert layers(tf.zeros([2, 3, 3, 4])).shape == (2, 1, 1, 7)
    assert len(layers.losses) == 1
    names = {v.path.split('/')[1] for v in layers.variables}
    convs = {f'conv_{i}{end}' for i in range(1, 5) for end in ('', '_bn')}
    assert names == convs | {'dense_1', 'dense_1_bn'}
    box_head, _ = box_predictor_builder.build(
        box_predictor_pb2.BoxPredictor(mask_rcnn_box_predictor=config), 3
    )
    box_head(tf.zeros([2, 1, 1, 7]))
    assert not [v.path for v in box_head.variables if '_bn' in v.path]


def test_box_head_layers_without_their_set_up():
    config = box_predictor_pb2.MaskRCNNBoxPredictor()
    config.box_head.num_convs = 4
    with pytest.raises(ValueError, match=r'BoxHead: num_convs needs conv_hyperparams'):
        box_predictor_builder.build_box_classifier(config)


@pytest.mark.parametrize(
    ('text', 'depth', 'bins', 'code_size'),
    [
        ('', 1024, 9, 4),
        (
            'depth: 8 num_spatial_bins_height: 2 num_spatial_bins_width: 4 box_code_size: 5',
            8,
            8,
            5,
        ),
    ],
)
def test_rfcn_head(text, depth, bins, code_size):
    box_head, mask_head = build(
        f'rfcn_box_predictor {{ {text} conv_hyperparams {{ '
        'regularizer { l2_regularizer { weight: 2.0 } } } }'
    )
    codes, logits = box_head(tf.zeros([2, 5, 6, 7]), tf.zeros([2, 3, 4]))
    assert codes.shape == (6, 3, code_size)
    assert logits.shape == (6, 4)
    channels = [v.shape[0] for v in box_head.variables if v.path.endswith('bias')]
    assert channels == [depth, bins * 3 * code_size, bins * 4]
    assert len(box_head.losses) == 3
    assert mask_head is None


@rows.parametrize(
    ('text', 'message'),
    [
        ('', 'is not set'),
        ('convolutional_box_predictor {}', 'Received: convolutional_box_predictor'),
        (
            'rfcn_box_predictor { crop_height: 10 }',
            r'RfcnBoxPredictor: .*multiple of the grid of bins \(3, 3\). Received: \(10, 12\)',
        ),
        (
            'mask_rcnn_box_predictor { predict_instance_masks: true }',
            'expected conv_hyperparams with predict_instance_masks',
        ),
    ],
)
def test_errors(text, message):
    with pytest.raises(ValueError, match=message):
        build(text)


def test_keypoint_head():
    config = text_format.Parse(
        'predict_keypoints: true conv_hyperparams { activation: NONE batch_norm {} } '
        'keypoint_head { num_keypoints: 5 num_convs: 2 conv_depth: 3 }',
        box_predictor_pb2.MaskRCNNBoxPredictor(),
    )
    head = box_predictor_builder.build_keypoint_head(config, is_training=False)
    assert head(tf.zeros([1, 2, 3, 4])).shape == (1, 5, 8, 12)
    shapes = {v.path: tuple(v.shape) for v in head.trainable_variables}
    assert shapes['keypoint_head/conv_2/kernel'] == (3, 3, 3, 3)
    config.ClearField('conv_hyperparams')
    with pytest.raises(ValueError, match='conv_hyperparams with predict_keypoints'):
        box_predictor_builder.build_keypoint_head(config)
