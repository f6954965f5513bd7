import hashlib
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import dataset_builder
from object_detection.core import tf_example_keys as keys
from object_detection.core.fields import InputFields as F
from object_detection.data import label_map, sequence_examples
from object_detection.data.decoder import ExampleDecoder
from object_detection.protos import pipeline_pb2
from object_detection.validation import records
from tests import goldens, slow_cases
from tests.data import examples

SAMPLES = pathlib.Path(__file__).resolve().parents[3] / 'shared' / 'data' / 'tf_od_api_samples'
SERENGETI = 'snapshot_serengeti_sequence_examples.record'
# The reference takes what does not fit together.
REFUSED = {
    'no_labels': 'one value for each object',
    'frame_count_mismatch': 'one entry of each list a frame',
    'fewer_labels': 'one value for each object',
}
CONTEXT = (F.CONTEXT_FEATURES, F.CONTEXT_FEATURES_IMAGE_ID_LIST)


def read(case):
    """The first sequence of a case, and its decoder."""
    folder = goldens.COMPONENTS / 'examples'
    path, labels = folder / case.params['record'], folder / 'sequence_label_map.pbtxt'
    if 'label_map' in case.params:
        path = SAMPLES / 'test_data' / SERENGETI
        labels = SAMPLES.parent / case.params['label_map']
        if not path.exists():
            pytest.skip('needs ../shared/data')
    kwargs = case.params['decoder_kwargs']
    wanted = kwargs.get('load_context_features'), kwargs.get('load_context_image_ids')
    fields = [name for name, is_wanted in zip(CONTEXT, wanted, strict=True) if is_wanted]
    serialized = next(iter(tf.data.TFRecordDataset(str(path)))).numpy()
    return serialized, ExampleDecoder(label_map=label_map.load(labels), fields=fields)


@goldens.parametrize(
    'tf_sequence_example_decoder',
    without=('make_sequence', 'plain__fully', 'not_annotated__') + ('real_serengeti_fully',),
)
def test_matches_the_reference(case_name):
    case = goldens.load('tf_sequence_example_decoder', case_name)
    serialized, decoder = read(case)
    if case.raises and case_name != 'no_height':
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
            [decoder(frame) for frame in sequence_examples.frames(serialized)]
        return
    if case_name in REFUSED:
        assert case.outputs['num_groundtruth_boxes'] is not None
        with pytest.raises(ValueError, match=REFUSED[case_name]):
            sequence_examples.frames(serialized)
        return
    frames = sequence_examples.frames(serialized)
    if case_name == 'no_height':
        # The reference needs the size, which nothing reads.
        assert decoder(frames[0])[F.IMAGE].shape == (12, 16, 3)
        return
    outputs = dict(case.outputs.items())
    assert [frame is not None for frame in frames] == outputs['is_annotated'].tolist()
    for i, frame in enumerate(frames):
        if frame is not None:
            check_frame(decoder(frame), i, outputs, case_name)
            encoded = tf.train.Example.FromString(frame).features.feature[keys.ENCODED]
            digest = hashlib.sha256(encoded.bytes_list.value[0]).hexdigest()
            assert digest.encode() == outputs['image#sha256'][i]


def check_frame(example, i, outputs, case_name):
    count = outputs['num_groundtruth_boxes'][i]
    assert len(example[F.GROUNDTRUTH_BOXES]) == count
    names = [F.GROUNDTRUTH_BOXES, F.GROUNDTRUTH_WEIGHTS, F.GROUNDTRUTH_CLASSES]
    if case_name.startswith('unknown_labels'):
        # "Zebra" is a display name, which the reference does not look up.
        np.testing.assert_array_equal(example[names.pop()], [[1, -1], [], [2]][i])
    for name in names:
        np.testing.assert_array_equal(example[name], outputs[name][i][:count], err_msg=name)
    assert example[F.SOURCE_ID] == outputs[F.SOURCE_ID][i]
    shape = F.ORIGINAL_IMAGE_SPATIAL_SHAPE
    np.testing.assert_array_equal(example[shape], outputs[shape])
    for name in CONTEXT:
        if name in outputs:
            np.testing.assert_array_equal(example[name], outputs[name])
    if 'context_feature_length' in outputs:
        assert example[F.CONTEXT_FEATURES].shape[1] == outputs['context_feature_length']


def sequence(num_frames=3, annotated=(0, 2), start=0):
    """A clip of grey frames: frame i has i % 2 + 1 objects of class 'cat'."""
    result = tf.train.SequenceExample()
    lists = result.feature_lists.feature_list
    for i in range(num_frames):
        image = examples.png(np.full((8, 8, 3), 10 * i))
        lists[keys.ENCODED].feature.add().bytes_list.value.append(image)
        lists[keys.SOURCE_ID].feature.add().bytes_list.value.append(b'%d' % (start + i))
        lists[keys.IS_ANNOTATED].feature.add().int64_list.value.append(int(i in annotated))
        labels = lists[keys.SEQUENCE_LABEL].feature.add().bytes_list
        labels.value.extend([b'cat'] * (i % 2 + 1))
        for side, value in zip(keys.SEQUENCE_BOX_SIDES, (0, 0, 1, 0.5), strict=True):
            lists[side].feature.add().float_list.value.extend([value] * (i % 2 + 1))
    return result.SerializeToString()


CONFIG = """
model {{ ssd {{
  num_classes: 2 image_resizer {{ fixed_shape_resizer {{ height: 8 width: 8 }} }}
}} }}
train_config {{ batch_size: 1 }}
eval_config {{ batch_size: 1 }}
train_input_reader {{ {reader} }}
eval_input_reader {{ {reader} }}
"""


@pytest.fixture
def pipeline(tmp_path):
    def build(*sequences, options=''):
        path = examples.write_records(tmp_path / 'clips', list(sequences))
        reader = (
            f'input_type: TF_SEQUENCE_EXAMPLE {options} '
            f"label_map_path: '{examples.write_label_map(tmp_path)}' "
            f"tf_record_input_reader {{ input_path: '{path}' }}"
        )
        text = CONFIG.format(reader=reader)
        return text_format.Parse(text, pipeline_pb2.TrainEvalPipelineConfig())

    return build


@pytest.fixture
def ids_alone(monkeypatch):
    """Batches have only the source ids, for tests of which frames are read."""
    monkeypatch.setattr(dataset_builder.batches_builder, 'build', examples.batches_of_ids)


def ids(batches):
    return [int(batch[F.SOURCE_ID][0]) for batch in batches]


def test_evaluation_takes_all_annotated_frames(pipeline, ids_alone):
    config = pipeline(sequence(), sequence(annotated=(), start=10), sequence(start=20))
    assert ids(dataset_builder.build_eval(config)) == [0, 2, 20, 22]
    config = pipeline(sequence(), options='frame_index: 2')
    assert ids(dataset_builder.build_eval(config)) == [2]
    assert ids(dataset_builder.build_eval(pipeline(sequence()), shard=(1, 2))) == [2]


@pytest.mark.slow
def test_training_draws_a_frame_by_the_position_alone(pipeline):
    config = pipeline(sequence(9, range(9)), options='shuffle: false')
    batches = list(dataset_builder.build_train(config, seed=1).take(40))
    drawn = ids(batches)
    assert len(set(drawn)) > 5
    start = np.reshape(batches[4][F.STREAM_STATE], [1, 1])
    resumed = dataset_builder.build_train(config, seed=1, start=start).take(35)
    assert ids(resumed) == drawn[5:]


def test_training_takes_annotated_frames(pipeline, ids_alone):
    config = pipeline(sequence(9, (4, 5)), options='shuffle: false')
    assert set(ids(dataset_builder.build_train(config, seed=1).take(20))) == {4, 5}
    config = pipeline(sequence(), options='frame_index: 2')
    assert ids(dataset_builder.build_train(config, seed=1).take(3)) == [2, 2, 2]


@slow_cases.parametrize(
    1,
    ('options', 'annotated', 'message'),
    [
        ('frame_index: 1', (0,), 'annotated frame of a sequence of 3 frames. Received: 1'),
        ('frame_index: 3', (0,), 'annotated frame of a sequence of 3 frames. Received: 3'),
        ('', (), 'at least one annotated frame'),
    ],
)
def test_a_frame_that_is_not_annotated_is_refused(pipeline, options, annotated, message):
    config = pipeline(sequence(annotated=annotated), options=f'strict_data: true {options}')
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        next(iter(dataset_builder.build_train(config, seed=1)))


def test_what_is_no_sequence_is_refused():
    with pytest.raises(ValueError, match=r'no tf\.SequenceExample'):
        sequence_examples.frames(b'\xff\xff')
    with pytest.raises(ValueError, match='expected image/encoded for each frame'):
        sequence_examples.frames(examples.example([[0, 0, 1, 1]], [1]))


def test_the_records_of_a_config_are_checked(pipeline):
    config = pipeline(sequence())
    assert list(records.check_training(config)) == []
    assert list(records.check_all(config, ('train_input_reader',))) == []
    (problem,) = records.check_training(pipeline(sequence(num_frames=0)))
    assert 'expected image/encoded for each frame' in problem
    lions = sequence().replace(b'cat', b'owl')
    (problem,) = records.check_training(pipeline(lions))
    assert "They have 'owl'" in problem
