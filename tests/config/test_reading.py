"""Which fields of a message are read, by hand."""

import pytest
from google.protobuf import text_format
from google.protobuf.message import Message

from object_detection.config import reading
from object_detection.protos.center_net_pb2 import CenterNet
from object_detection.protos.post_processing_pb2 import PostProcessing
from object_detection.protos.ssd_pb2 import Ssd

TEXT = """
  num_classes: 3
  negative_class_weight: 1.0
  image_resizer { fixed_shape_resizer { height: 64 width: 32 } }
  anchor_generator { ssd_anchor_generator { num_layers: 3 aspect_ratios: [1, 2] } }
  box_coder { faster_rcnn_box_coder {} }
  post_processing { batch_non_max_suppression { iou_threshold: 0.5 score_threshold: 0.0 } }
"""


@pytest.fixture
def ssd():
    return reading.tracked(text_format.Parse(TEXT, Ssd()), 'model.ssd')


def paths(view):
    return [path.removeprefix('model.ssd.') for path, _ in reading.unread(view)]


def test_what_nothing_reads(ssd):
    # The weight has the default of the schema; an unread message is one field.
    assert paths(ssd) == [
        'num_classes', 'image_resizer', 'box_coder', 'anchor_generator', 'post_processing'
    ]  # fmt: skip


def test_what_is_read(ssd):
    assert ssd.num_classes == 3
    assert ssd.image_resizer.WhichOneof('image_resizer_oneof') == 'fixed_shape_resizer'
    assert ssd.image_resizer.fixed_shape_resizer.height == 64
    assert list(ssd.anchor_generator.ssd_anchor_generator.aspect_ratios) == [1, 2]
    assert ssd.box_coder.HasField('faster_rcnn_box_coder')
    assert not ssd.box_coder.HasField('square_box_coder')
    assert ssd.post_processing.batch_non_max_suppression.iou_threshold == 0.5
    assert paths(ssd) == [
        'image_resizer.fixed_shape_resizer.width',
        'anchor_generator.ssd_anchor_generator.num_layers',
    ]
    for field, value in ssd.image_resizer.fixed_shape_resizer.ListFields():
        assert value == {'height': 64, 'width': 32}[field.name]
    assert paths(ssd) == ['anchor_generator.ssd_anchor_generator.num_layers']


def test_a_view_is_as_its_message(ssd):
    message = reading.plain(ssd)
    assert isinstance(ssd, Ssd)
    assert isinstance(ssd.post_processing, Message)
    assert ssd == message
    assert message == reading.plain(message)
    assert ssd != Ssd()
    assert str(ssd) == str(message)
    assert ssd.DESCRIPTOR is Ssd.DESCRIPTOR
    assert ssd.post_processing.SOFTMAX == PostProcessing.SOFTMAX
    with pytest.raises(AttributeError, match=r'model\.ssd\.num_classes: a tracked message cannot'):
        ssd.num_classes = 4
    with pytest.raises(AttributeError, match='no_field'):
        _ = ssd.no_field
    copy = Ssd()
    copy.CopyFrom(message)
    assert copy.num_classes == 3
    assert 'num_classes' in paths(reading.tracked(copy, 'model.ssd'))


def test_elements_and_maps():
    message = CenterNet()
    message.keypoint_estimation_task.add(task_name='a', offset_peak_radius=2)
    message.keypoint_estimation_task.add(task_name='b').keypoint_label_to_std['nose'] = 1.0
    view = reading.tracked(message)
    assert len(view.keypoint_estimation_task) == 2
    assert [task.task_name for task in view.keypoint_estimation_task] == ['a', 'b']
    assert [path for path, _ in reading.unread(view)] == [
        'keypoint_estimation_task[0].offset_peak_radius',
        'keypoint_estimation_task[1].keypoint_label_to_std',
    ]
    assert view.keypoint_estimation_task[1].keypoint_label_to_std.get('nose') == 1.0
    assert set(view.keypoint_estimation_task[1].keypoint_label_to_std) == {'nose'}
    post = PostProcessing()
    calibrations = post.calibration_config.class_id_sigmoid_calibrations
    calibrations.class_id_sigmoid_parameters_map[3].a = 2.0
    view = reading.tracked(post)
    calibrations = view.calibration_config.class_id_sigmoid_calibrations
    ((key, entry),) = calibrations.class_id_sigmoid_parameters_map.items()
    place = 'calibration_config.class_id_sigmoid_calibrations.class_id_sigmoid_parameters_map'
    assert [path for path, _ in reading.unread(view)] == [f'{place}[3].a']
    assert (key, entry.a) == (3, 2.0)
    assert not list(reading.unread(view))


def test_reasons(ssd):
    nms = ssd.post_processing.batch_non_max_suppression
    assert nms.iou_threshold
    reading.unused(nms, 'iou_threshold', 'scores decay')
    reading.unused(ssd, ['num_classes', 'image_resizer'], 'of others')
    reading.others_unused(ssd, 'no anchors')
    assert [(path.rpartition('.')[2], why) for path, why in reading.unread(ssd)] == [
        ('num_classes', 'of others'),
        ('image_resizer', 'of others'),
        ('box_coder', 'no anchors'),
        ('anchor_generator', 'no anchors'),
        ('iou_threshold', 'scores decay'),
    ]


def test_values_that_may_be_set_nevertheless(ssd):
    # The default, which the weight has, counts unless there are other values.
    reading.unused(ssd, 'negative_class_weight', 'no reason')
    assert 'negative_class_weight' not in paths(ssd)
    reading.unused(ssd, 'negative_class_weight', 'no reason', harmless=[0.5])
    assert 'negative_class_weight' in paths(ssd)
    reading.unused(ssd, 'num_classes', 'no reason', harmless=[3])
    assert 'num_classes' not in paths(ssd)


def test_plain_messages_take_no_notes():
    message = Ssd(num_classes=2)
    reading.unused(message, 'num_classes', 'no reason')
    reading.others_unused(message, 'no reason')
    assert reading.plain(message) is message
    assert paths(reading.tracked(message, 'model.ssd')) == ['num_classes']


def test_errors_are_located(ssd):
    package = 'object_detection.protos.'
    assert ssd.box_coder.faster_rcnn_box_coder.y_scale == 10.0
    assert reading.located(ssd, f'{package}BoxCoder.box_coder_oneof is not set.') == (
        'model.ssd.box_coder.box_coder_oneof is not set.'
    )
    place = 'model.ssd.box_coder.faster_rcnn_box_coder'
    assert reading.located(ssd, f'{package}FasterRcnnBoxCoder: none.') == f'{place}: none.'
    assert reading.located(ssd, f'{package}Ssd.loss: none.') == 'model.ssd.loss: none.'
    assert reading.located(ssd, 'no such type.') == 'model.ssd: no such type.'
    assert reading.located(ssd, 'model.ssd.loss: none.') == 'model.ssd.loss: none.'
