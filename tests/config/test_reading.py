"""Which fields of a message are read, by hand."""

import pytest
from google.protobuf import text_format
from google.protobuf.message import Message

from object_detection.config import reading
from object_detection.config.oneof import build_named
from object_detection.errors import UserError
from object_detection.protos.center_net_pb2 import CenterNet
from object_detection.protos.post_processing_pb2 import PostProcessing
from object_detection.protos.ssd_pb2 import Ssd
from tests import rows

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
    assert ssd.DESCRIPTOR.name == 'Ssd'
    assert ssd.DESCRIPTOR.fields == Ssd.DESCRIPTOR.fields
    assert ssd.post_processing.SOFTMAX == PostProcessing.SOFTMAX
    with pytest.raises(AttributeError, match=r'model\.ssd\.num_classes: a tracked message cannot'):
        ssd.num_classes = 4
    with pytest.raises(AttributeError, match='no_field'):
        _ = ssd.no_field
    copy = Ssd()
    copy.CopyFrom(message)
    assert copy.num_classes == 3
    assert 'num_classes' in paths(reading.tracked(copy, 'model.ssd'))


@rows.parametrize(
    ('method', 'arguments'),
    [
        ('Clear', ()),
        ('ClearExtension', (None,)),
        ('ClearField', ('num_classes',)),
        ('CopyFrom', (Ssd(),)),
        ('DiscardUnknownFields', ()),
        ('MergeFrom', (Ssd(num_classes=4),)),
        ('MergeFromString', (Ssd(num_classes=4).SerializeToString(),)),
        ('ParseFromString', (b'',)),
        ('SetInParent', ()),
    ],
)
def test_a_view_has_no_method_that_changes_its_message(ssd, method, arguments):
    with pytest.raises(AttributeError, match=rf'model\.ssd\.{method}: a tracked message cannot'):
        getattr(ssd, method)(*arguments)
    assert reading.plain(ssd) == text_format.Parse(TEXT, Ssd())


def test_all_methods_of_messages_are_known():
    # A new one of protocol buffers is either refused or leaves the message as it is.
    harmless = {
        *('ByteSize', 'DESCRIPTOR', 'Extensions', 'FindInitializationErrors', 'FromString'),
        *('HasExtension', 'HasField', 'IsInitialized', 'ListFields', 'SerializePartialToString'),
        *('SerializeToString', 'UnknownFields', 'WhichOneof'),
    }
    names = {name for name in dir(Message) if not name.startswith('_')}
    names |= {name for name in dir(Ssd) if name[:1].isupper()} - {
        *(nested.name for nested in Ssd.DESCRIPTOR.nested_types),
        *(value.name for enum in Ssd.DESCRIPTOR.enum_types for value in enum.values),
    }
    names = {name for name in names if not name.endswith('_FIELD_NUMBER')}
    assert names - harmless == reading.CHANGING


def test_lists_and_maps_of_a_view_are_copies(ssd):
    ratios = ssd.anchor_generator.ssd_anchor_generator.aspect_ratios
    ratios.append(3.0)
    assert list(ssd.anchor_generator.ssd_anchor_generator.aspect_ratios) == [1.0, 2.0]
    message = CenterNet()
    message.keypoint_estimation_task.add(task_name='a').keypoint_label_to_std['nose'] = 1.0
    scales = reading.tracked(message).keypoint_estimation_task[0].keypoint_label_to_std
    with pytest.raises(KeyError):
        _ = scales['eye']
    assert dict(message.keypoint_estimation_task[0].keypoint_label_to_std) == {'nose': 1.0}


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
    name = ssd.box_coder.DESCRIPTOR.full_name
    assert reading.located(ssd, f'{name}.box_coder_oneof is not set.') == (
        'model.ssd.box_coder.box_coder_oneof is not set.'
    )
    name = ssd.box_coder.faster_rcnn_box_coder.DESCRIPTOR.full_name
    place = 'model.ssd.box_coder.faster_rcnn_box_coder'
    assert reading.located(ssd, f'{name}: none.') == f'{place}: none.'
    assert reading.located(ssd, f'{ssd.DESCRIPTOR.full_name}.loss: none.') == (
        'model.ssd.loss: none.'
    )
    assert reading.located(ssd, 'no such type.') == 'model.ssd: no such type.'
    package = 'object_detection.protos'
    assert reading.located(ssd, f'{package}.Loss: none.') == 'model.ssd: Loss: none.'


def test_messages_of_one_type_are_not_confused():
    message = CenterNet()
    for name in 'ab':
        message.keypoint_estimation_task.add(task_name=name).loss.SetInParent()
    view = reading.tracked(message, 'model.center_net')
    first, second = view.keypoint_estimation_task
    # The second is read last.
    losses = [task.loss.localization_loss for task in (first, second)]
    for index, loss in enumerate(losses):
        with pytest.raises(UserError, match='is not set') as error:
            build_named(loss, 'localization_loss', {})
        assert reading.located(view, str(error.value)).startswith(
            f'model.center_net.keypoint_estimation_task[{index}].loss.localization_loss.'
            'localization_loss is not set'
        )


def test_an_error_of_an_option_keeps_its_path(ssd):
    def build_option(option):
        raise UserError(f'{option.DESCRIPTOR.full_name}.y_scale: none.')

    def fail(option):
        raise UserError('none.')

    place = r'^model\.ssd\.box_coder'
    with pytest.raises(UserError, match=rf'{place}\.faster_rcnn_box_coder\.y_scale: none\.$'):
        build_named(ssd.box_coder, 'box_coder_oneof', {'faster_rcnn_box_coder': build_option})
    with pytest.raises(UserError, match=rf'{place}: none\.$'):
        build_named(ssd.box_coder, 'box_coder_oneof', {'faster_rcnn_box_coder': fail})
