"""Each option of an input reader that asks for fields of its records, from the config on."""

import numpy as np
import pytest
from google.protobuf import text_format

from object_detection.builders import dataset_builder
from object_detection.builders.input_readers import rules
from object_detection.core.fields import InputFields as F
from object_detection.protos import pipeline_pb2
from object_detection.protos.input_reader_pb2 import InputReader
from tests import rows
from tests.data import examples

LABEL_MAP = """
item { name: 'dog' id: 1 ancestor_ids: 2 keypoints { id: 1 label: 'nose' } }
item { name: 'animal' id: 2 descendant_ids: 1 }
"""
CONFIG = """
model {{ ssd {{
  num_classes: 2 image_resizer {{ fixed_shape_resizer {{ height: 8 width: 8 }} }}
}} }}
eval_config {{ batch_size: 1 }}
eval_input_reader {{ label_map_path: '{labels}' {reader}
  max_number_of_boxes: 2 tf_record_input_reader {{ input_path: '{path}' }} }}
"""
RECORD = {
    'image__object__keypoint__x': [0.25, 0.5],
    'image__object__keypoint__y': [0.5, 0.75],
    'image__object__keypoint__z': [3.0, 4.0],
    'image__object__keypoint__text': [b'nose', b'tail'],
    'image__object__track__label': [7],
    'image__object__mask__weight': [0.5],
    'image__object__class__multiclass_scores': [0.9, 0.1],
    'image__object__densepose__num': [1],
    'image__object__densepose__part_index': [3],
    'image__object__densepose__y': [0.5],
    'image__object__densepose__x': [0.5],
    'image__object__densepose__u': [0.25],
    'image__object__densepose__v': [0.75],
    'image__class__text': [b'animal'],
    'image__neg_category_ids': [1],
    'image__not_exhaustive_category_ids': [2],
    'image__context_features': [1.0, 2.0],
    'image__context_feature_length': [2],
    'image__context_features_image_id_list': [b'there'],
}
NAN = float('nan')


@pytest.fixture
def batches(tmp_path):
    def build(reader, **record):
        serialized = examples.example(
            [[0, 0, 1, 1]], [], ['dog'], masks=[np.ones((20, 30))], **{**RECORD, **record}
        )
        text = CONFIG.format(
            labels=examples.write_label_map(tmp_path, LABEL_MAP),
            path=examples.write_records(tmp_path / 'records', [serialized]),
            reader=reader,
        )
        pipeline = text_format.Parse(text, pipeline_pb2.TrainEvalPipelineConfig())
        return dataset_builder.build_eval(pipeline)

    return build


@pytest.mark.parametrize(
    ('reader', 'expected'),
    [
        (
            'num_keypoints: 2 use_keypoint_label_map: true',
            {F.GROUNDTRUTH_KEYPOINTS: [[[NAN, NAN], [0.5, 0.25]], [[NAN, NAN]] * 2]},
        ),
        (
            'load_track_id: true load_instance_masks: true mask_type: PNG_MASKS '
            'num_keypoints: 2 keypoint_type_weight: [2, 3] load_keypoint_depth_features: true '
            'load_dense_pose: true load_image_labels: true load_context_features: true '
            'load_context_image_ids: true expand_labels_hierarchy: true',
            {
                F.GROUNDTRUTH_TRACK_IDS: [7, 7],
                F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS: [0.5, 0.5],
                F.GROUNDTRUTH_KEYPOINTS: [[[0.5, 0.25], [0.75, 0.5]]] * 2,
                F.GROUNDTRUTH_KEYPOINT_WEIGHTS: [[2, 3]] * 2,
                F.GROUNDTRUTH_KEYPOINT_DEPTHS: [[3, 4]] * 2,
                F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS: [[1, 1]] * 2,
                F.GROUNDTRUTH_DP_NUM_POINTS: [1, 1],
                F.GROUNDTRUTH_IMAGE_CLASSES: [0, 1],
                F.GROUNDTRUTH_VERIFIED_NEG_CLASSES: [1, 0],
                F.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES: [0, 1],
                F.CONTEXT_FEATURES: [[1, 2]],
                F.VALID_CONTEXT_SIZE: 1,
                F.CONTEXT_FEATURES_IMAGE_ID_LIST: [b'there'],
                F.EVALUATION_CLASSES: [1, 2],
            },
        ),
    ],
    ids=lambda value: value.partition(':')[0] if isinstance(value, str) else '',
)
def test_an_option_asks_for_its_fields(batches, reader, expected):
    (batch,) = batches(reader)
    for name, values in expected.items():
        np.testing.assert_array_equal(batch[name][0], values, err_msg=name)


def test_nothing_else_is_read(batches):
    names = {F.GROUNDTRUTH_TRACK_IDS, F.GROUNDTRUTH_KEYPOINTS, F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS}
    names |= {F.GROUNDTRUTH_DP_POINTS, F.GROUNDTRUTH_IMAGE_CLASSES, F.CONTEXT_FEATURES}
    assert not names & batches('').element_spec.keys()


def test_positions_of_keypoints_need_room(batches):
    with pytest.raises(ValueError, match=r'num_keypoints: expected more than .*, 1\. Received: 1'):
        batches('num_keypoints: 1 use_keypoint_label_map: true')


@rows.parametrize(
    ('reader', 'problem'),
    [
        ('use_keypoint_label_map: true num_keypoints: 2', 'label_map_path with it'),
        ('expand_labels_hierarchy: true', 'label_map_path with it'),
        ("use_keypoint_label_map: true label_map_path: 'a'", 'num_keypoints with it'),
        ('load_keypoint_depth_features: true', 'num_keypoints with it'),
        ('num_keypoints: 2 keypoint_type_weight: 1', 'one for each of the num_keypoints: 2'),
    ],
)
def test_options_that_need_each_other(reader, problem):
    message = text_format.Parse(reader, InputReader())
    message.tf_record_input_reader.input_path.append('a')
    (found,) = rules.check(message, 'reader')
    assert found.startswith('reader.')
    assert problem in found


@rows.parametrize(
    ('reader', 'problem'),
    [
        ('filter_empty_images: true', 'filter_empty_images: expected input_type: TF_EXAMPLE'),
        ("data_service: 'grpc://a:1'", 'data_service: expected input_type: TF_EXAMPLE'),
        ('num_keypoints: 2', 'num_keypoints: sequences have nothing of the kind'),
        ('load_instance_masks: true', 'load_instance_masks: sequences have nothing of the kind'),
        ("label_map_path: ''", 'needs a label_map_path'),
    ],
)
def test_what_sequences_do_not_have(reader, problem):
    message = text_format.Parse(
        "input_type: TF_SEQUENCE_EXAMPLE label_map_path: 'a' "
        "tf_record_input_reader { input_path: 'a' }",
        InputReader(),
    )
    text_format.Merge(reader, message)
    (found,) = rules.check(message, 'reader')
    assert problem in found
