"""Weights for evaluation and export: of our checkpoints, and of the reference's."""

import logging

import pytest
import tensorflow as tf

from object_detection.errors import CheckpointError
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.training.checkpoints import manager
from object_detection.weights import restore
from object_detection.weights.arrays import nest
from object_detection.weights.checkpoint_files import VALUE_SUFFIX
from tests.training.fake_detectors import VariablesDetector
from tests.weights import third_party_files

HEAD = 'model/_mask_rcnn_box_predictor/_class_prediction_head/_class_predictor_layers/1'
KERNEL, MEAN, CLASSES = (
    'backbone/conv1_conv/kernel',
    'backbone/conv1_bn/moving_mean',
    'box_head/classes/kernel',
)
# Our name -> the reference's, with one stage of the backbone.
KEYS = {
    KERNEL: 'model/_feature_extractor_for_proposal_features/layer_with_weights-0/kernel',
    MEAN: 'model/_feature_extractor_for_proposal_features/layer_with_weights-1/moving_mean',
    CLASSES: f'{HEAD}/kernel',
    'box_head/classes/bias': f'{HEAD}/bias',
}


def shapes(num_classes):
    values = ([1, 1, 3, 4], [4], [4, num_classes + 1], [num_classes + 1])
    return dict(zip(KEYS, values, strict=True))


def detector(value=0.0, num_classes=2):
    return VariablesDetector(shapes(num_classes), num_classes=num_classes, value=value)


def write_ours(folder, *, averages=()):
    """Weights of 1 and averages of 2, at step 7."""
    model = detector(1.0).variables
    slots = {name: tf.Variable(tf.fill(model[name].shape, 2.0)) for name in averages}
    return manager.Checkpoints(
        str(folder),
        model=model,
        optimizer={'average': slots},
        step=tf.Variable(7, dtype=tf.int64),
    ).save()


def write_reference(folder, *, averages=(), num_classes=2, step=None, without=()):
    """Weights of 1 and averages of 2."""
    arrays = {}
    for name, shape in shapes(num_classes).items():
        key = KEYS[name]
        if name not in without:
            arrays[key + VALUE_SUFFIX] = tf.fill(shape, 1.0)
        if name in averages:
            slot = f'{key}/.OPTIMIZER_SLOT/optimizer/average{VALUE_SUFFIX}'
            arrays[slot] = tf.fill(shape, 2.0)
    if step is not None:
        arrays[f'step{VALUE_SUFFIX}'] = tf.constant(step, tf.int64)
    return third_party_files.write_checkpoint(folder / 'ckpt-0', arrays)


WRITERS = [write_ours, write_reference]


@pytest.mark.parametrize('write', WRITERS)
def test_all_weights_are_restored(tmp_path, write):
    target = detector()
    step = restore.restore_exactly(target, write(tmp_path), averages=True)
    assert target.values() == dict.fromkeys(KEYS, 1.0)
    assert step == (7 if write is write_ours else 0)


@pytest.mark.parametrize('write', WRITERS)
@pytest.mark.parametrize('averages', [False, True])
def test_averages_are_taken_where_they_are_requested_and_there(tmp_path, write, averages):
    prefix = write(tmp_path, averages=[KERNEL, CLASSES])
    target = detector()
    restore.restore_exactly(target, prefix, averages=averages)
    averaged = dict.fromkeys([KERNEL, CLASSES], 2.0) if averages else {}
    assert target.values() == dict.fromkeys(KEYS, 1.0) | averaged


@pytest.mark.parametrize(('averages', 'which'), [(False, 'without its'), (True, 'its')])
def test_which_weights_of_the_reference_were_taken_is_logged(tmp_path, caplog, averages, which):
    prefix = write_reference(tmp_path, averages=[KERNEL])
    with caplog.at_level(logging.INFO, 'object_detection'):
        restore.restore_exactly(detector(), prefix, averages=averages)
    (message,) = caplog.messages
    assert message.endswith(f'Detection API, {which} moving averages')


def test_the_step_is_read(tmp_path):
    prefix = write_reference(tmp_path, step=25)
    assert restore.read_step(prefix) == 25
    assert restore.restore_exactly(detector(), prefix, averages=True) == 25
    assert restore.read_step(write_ours(tmp_path / 'ours')) == 7


@pytest.mark.parametrize(
    ('options', 'names'),
    [
        ({'num_classes': 90}, 'fit: box_head/classes/bias, box_head/classes/kernel. Use'),
        ({'without': [CLASSES]}, 'fit: box_head/classes/kernel. Use'),
    ],
)
def test_another_model_of_the_reference_changes_nothing(tmp_path, options, names):
    prefix = write_reference(tmp_path, **options)
    target = detector()
    with pytest.raises(CheckpointError) as caught:
        restore.restore_exactly(target, prefix, averages=True)
    for text in (prefix, names, 'pipeline.config that came with it'):
        assert text in str(caught.value)
    assert target.values() == dict.fromkeys(KEYS, 0.0)


class Model(DetectionModel):
    """`VariablesDetector` as a detector."""

    def __init__(self, fake):
        super().__init__(num_classes=fake.num_classes, resizer=None, name='model')
        self.variable_names = fake.variable_names
        self.named_variables, self.parts, self.normalize = (
            fake.named_variables,
            fake.parts,
            fake.normalize,
        )

    parts = normalize = forward = postprocess = loss_sums = loss_names = build_variables = None


def test_tensorflow_restores_a_checkpoint_of_the_reference_into_a_detector(tmp_path):
    values = {KEYS[name]: tf.Variable(tf.fill(s, 1.0)) for name, s in shapes(2).items()}
    prefix = tf.train.Checkpoint(**nest(values)).save(str(tmp_path / 'ckpt'))
    fake = detector()
    status = tf.train.Checkpoint(model=Model(fake)).restore(prefix).expect_partial()
    assert fake.values() == dict.fromkeys(KEYS, 1.0)
    status.assert_existing_objects_matched()
    other = detector(num_classes=3)
    with pytest.raises(CheckpointError, match='checkpoint of another model'):
        tf.train.Checkpoint(model=Model(other)).restore(prefix).expect_partial()
    assert other.values() == dict.fromkeys(KEYS, 0.0)
