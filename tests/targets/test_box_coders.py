import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import box_coder_builder
from object_detection.protos import box_coder_pb2
from object_detection.targets.box_coders import (
    DistanceBoxCoder,
    FasterRcnnBoxCoder,
    KeypointBoxCoder,
    MeanStddevBoxCoder,
    SquareBoxCoder,
    centerness,
)
from tests import goldens, rows
from tests.contracts import check_box_coder

# Cases without a config: the reference's coders without scale factors.
UNSCALED = {
    'faster_rcnn_noscale': FasterRcnnBoxCoder((1, 1, 1, 1)),
    'keypoint_noscale': KeypointBoxCoder(5, (1, 1, 1, 1)),
    'square_noscale': SquareBoxCoder((1, 1, 1)),
}


@rows.parametrize(
    'coder', [DistanceBoxCoder(), FasterRcnnBoxCoder(), MeanStddevBoxCoder(), SquareBoxCoder()]
)
def test_contract(coder):
    check_box_coder(coder)


def test_contract_with_keypoints():
    check_box_coder(KeypointBoxCoder(3), num_keypoints=3)


def test_faster_rcnn_by_hand():
    codes = FasterRcnnBoxCoder().encode(
        tf.constant([[2.0, 3, 6, 4]]), tf.constant([[0.0, 0, 4, 2]])
    )
    # Centre (4, 3.5) and size (4, 1) against centre (2, 1) and size (4, 2).
    np.testing.assert_allclose(codes, [[5, 12.5, 0, 5 * np.log(0.5)]], rtol=1e-5, atol=1e-5)


def test_distances_by_hand():
    # The centre of the anchor is (24, 24); its height is 16, its width 8.
    anchors = tf.constant([[[16.0, 20, 32, 28]]])
    boxes = tf.constant([[[12.0, 16, 28, 40]]])
    codes = DistanceBoxCoder().encode(boxes, anchors)
    np.testing.assert_array_equal(codes, [[[12 / 16, 8 / 8, 4 / 16, 16 / 8]]])
    np.testing.assert_array_equal(DistanceBoxCoder().decode(codes, anchors), boxes)
    np.testing.assert_allclose(centerness(codes), [[np.sqrt(4 / 12 * 8 / 16)]], rtol=1e-6)
    assert centerness(tf.zeros([1, 4])) == 0


def test_square_keeps_centre_and_area():
    boxes = tf.constant([[1.0, 1, 3, 9]])
    anchors = tf.constant([[0.0, 0, 5, 4]])
    coder = SquareBoxCoder()
    decoded = coder.decode(coder.encode(boxes, anchors), anchors)
    np.testing.assert_allclose(decoded, [[0, 3, 4, 7]], atol=1e-5)


@rows.parametrize(
    'build',
    [
        lambda: FasterRcnnBoxCoder((10, 0, 5, 5)),
        lambda: KeypointBoxCoder(2, (10, 10, 5, -5)),
        lambda: KeypointBoxCoder(-1),
        lambda: MeanStddevBoxCoder(0),
        lambda: SquareBoxCoder((0, 1, 1)),
    ],
)
def test_parameters_out_of_range_are_rejected(build):
    with pytest.raises(ValueError, match=r'Received'):
        build()


@goldens.rows('box_coders')
def test_golden_box_coders(case_name):
    case = goldens.load('box_coders', case_name)
    coder = UNSCALED.get(case_name)
    config = text_format.Parse(case.config, box_coder_pb2.BoxCoder())
    if case.raises:
        with pytest.raises(ValueError, match='not set'):
            box_coder_builder.build(config)
        return
    coder = coder or box_coder_builder.build(config)
    inputs = {name: tf.constant(value) for name, value in case.inputs.items()}
    for name, actual in _outputs(coder, **inputs).items():
        np.testing.assert_allclose(actual, case.outputs[name], rtol=1e-5, atol=1e-5, err_msg=name)


def _outputs(coder, anchors, boxes=None, codes=None, keypoints=None, encoded=None):
    if encoded is not None:
        return {'decoded': coder.decode(encoded, anchors)}
    actual_codes = coder.encode(boxes, anchors, *([] if keypoints is None else [keypoints]))
    outputs = {
        'encoded': actual_codes,
        'code_size': coder.code_size,
        'decoded_boxes': coder.decode(codes, anchors),
        'roundtrip_boxes': coder.decode(actual_codes, anchors),
    }
    if keypoints is not None:
        outputs['decoded_keypoints'] = coder.decode_keypoints(codes, anchors)
        outputs['roundtrip_keypoints'] = coder.decode_keypoints(actual_codes, anchors)
    return outputs


def test_largest_size_by_hand():
    coder = FasterRcnnBoxCoder((1.0, 1.0, 1.0, 2.0), max_log_size=float(np.log(3.0)))
    # Sizes: 4 * min(exp(5), 3) and 4 * exp(1 / 2).
    half = 2 * np.exp(0.5)
    expected = [2 - 6, 2 - half, 2 + 6, 2 + half]
    found = coder.decode(tf.constant([[0.0, 0, 5, 1]]), tf.constant([[0.0, 0, 4, 4]]))
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)
