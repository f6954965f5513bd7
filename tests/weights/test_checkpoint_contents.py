"""Checkpoints of other models, optimizers and programs are told apart."""

import keras
import pytest
import tensorflow as tf

from object_detection.errors import CheckpointError
from object_detection.optimizers import muon
from object_detection.optimizers import optimizers as optimizer_classes
from object_detection.optimizers.moving_averages import Averaging
from object_detection.training.checkpoints import manager, recovery
from object_detection.weights import checkpoint_contents, checkpoints, restore, sources
from object_detection.weights.arrays import nest
from object_detection.weights.checkpoint_contents import describe_end
from tests import rows
from tests.weights.tiny_checkpoints import make_variables, weights


def _make(directory, slots, names=('backbone/conv1/kernel', 'head/bias'), model=None):
    """Checkpoints of `make_variables()` with an optimizer that keeps `slots` of `names`."""
    model = model or make_variables()
    return manager.Checkpoints(
        str(directory),
        model=model,
        optimizer={
            slot: {name: tf.Variable(tf.zeros_like(model[name])) for name in names}
            for slot in slots
        },
        step=tf.Variable(5, dtype=tf.int64),
    )


@pytest.mark.parametrize(
    ('before', 'now', 'told'),
    [
        (
            {'momentum'},
            {'m', 'v'},
            'was trained with momentum_optimizer, and the config now says adam_optimizer',
        ),
        ({'rms', 'momentum'}, {'momentum'}, 'with rms_prop_optimizer, and'),
        ({'other'}, {'momentum'}, 'with one that keeps other, and'),
        (set(), {'momentum'}, 'with one without state, and'),
        ({'momentum'}, {'momentum', 'average'}, 'without moving averages, and the config is with'),
        ({'momentum', 'average'}, {'momentum'}, 'with moving averages, and the config is without'),
        ({'momentum'}, {'momentum', 'loss_scale'}, 'without a dynamic loss scale, and the config'),
        (
            {'momentum', 'plateau'},
            {'momentum'},
            'with a reduced learning rate, and the config is w',
        ),
        ({'m'}, {'m', 'v'}, 'with lion_optimizer, and the config now says adam_optimizer'),
        ({'m', 'v'}, set(muon.Muon.slot_names), 'adam_optimizer, and the config now says muon_opt'),
        ({'m', 'v', 'average'}, {'rms', 'momentum'}, 'with adam_optimizer, and'),
    ],
)
def test_another_optimizer_is_named(tmp_path, before, now, told):
    _make(tmp_path, before).save()
    with pytest.raises(CheckpointError) as error:
        _make(tmp_path, now).restore_latest()
    assert told in str(error.value)
    assert 'optimizer/' in str(error.value)
    assert 'train_config.fine_tune_checkpoint' in str(error.value)


def test_every_optimizer_has_a_name():
    # Those of plug-ins, which tests may have loaded, are not among them.
    kinds = [
        kind
        for kind in optimizer_classes.Optimizer.__subclasses__()
        if kind.__module__.startswith('object_detection.')
    ]
    assert len(kinds) >= 3
    for kind in kinds:
        assert bool(kind.title) == (kind is not Averaging), kind


def test_other_frozen_variables_are_reported(tmp_path):
    _make(tmp_path, {'momentum'}).save()
    with pytest.raises(CheckpointError, match=r'other variables frozen.*only in the checkpoint'):
        _make(tmp_path, {'momentum'}, names=['head/bias']).restore_latest()


def _reference_checkpoint(directory):
    box = {'_feature_extractor': {'conv': tf.Variable(0.0)}, '_box_predictor': tf.Variable(0.0)}
    saved = tf.train.Checkpoint(step=tf.Variable(3), model=box)
    return tf.train.CheckpointManager(saved, directory, 2, checkpoint_name='ckpt').save()


def _keras_checkpoint(directory):
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    saved = tf.train.Checkpoint(model=model)
    return tf.train.CheckpointManager(saved, directory, 2, checkpoint_name='ckpt').save()


def _tensorflow_1_checkpoint(directory):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable('FeatureExtractor/conv/weights', [1], use_resource=True)
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver()
        return saver.save(session, f'{directory}/model.ckpt', global_step=9)


@pytest.mark.parametrize(
    ('make', 'whose', 'holds'),
    [
        (_reference_checkpoint, 'the TensorFlow Object Detection API', 'model/_box_predictor'),
        (_keras_checkpoint, 'another program', 'model/'),
        (_tensorflow_1_checkpoint, 'TensorFlow 1', 'FeatureExtractor/conv/weights'),
    ],
)
def test_checkpoints_of_other_programs_are_recognised(tmp_path, make, whose, holds):
    prefix = make(str(tmp_path))
    for use in (
        lambda: recovery.prepare(str(tmp_path)),
        lambda: checkpoints.read_step(prefix),
        lambda: checkpoints.restore_model(prefix, make_variables()),
    ):
        with pytest.raises(CheckpointError) as error:
            use()
        assert f'Received one of {whose}, which cannot be used here; it holds' in str(error.value)
        assert holds in str(error.value)
    assert tf.train.latest_checkpoint(str(tmp_path)) == prefix


def test_a_step_alone_is_named(tmp_path):
    prefix = tf.train.Checkpoint(step=tf.Variable(0, dtype=tf.int64)).save(str(tmp_path / 'ckpt'))
    for use in (
        lambda: recovery.prepare(str(tmp_path)),
        lambda: restore.read_step(prefix),
        lambda: restore.restore_exactly(weights(), prefix, averages=True),
        lambda: restore.restore_by_path(weights(), prefix),
        lambda: restore.restore(weights(), prefix, 'detection'),
    ):
        with pytest.raises(CheckpointError) as error:
            use()
        assert str(error.value).startswith(f'{prefix} holds `step`, but no variable of a model')
        assert 'name a later one' in str(error.value)


def test_weights_alone_are_a_model_at_step_0_but_no_training(tmp_path):
    variables = checkpoints.prefixed('model', weights(2.0).variables)
    checkpoint = tf.train.Checkpoint(**nest(variables))
    prefix = tf.train.CheckpointManager(checkpoint, str(tmp_path), 1, checkpoint_name='ckpt').save()
    assert restore.read_step(prefix) == 0
    for use in (
        lambda model: restore.restore_exactly(model, prefix, averages=True),
        lambda model: restore.restore_by_path(model, prefix),
        lambda model: restore.restore(model, prefix),
    ):
        model = weights(0.0)
        use(model)
        assert set(model.values().values()) == {2.0}
    assert sources.list_file(prefix).types
    with pytest.raises(CheckpointError, match='without the `step` and the optimizer') as error:
        recovery.prepare(str(tmp_path))
    assert 'train_config.fine_tune_checkpoint' in str(error.value)


def test_a_model_without_any_name_in_common_is_another(tmp_path):
    prefix = _make(tmp_path, {'momentum'}).save()
    other = {f'neck/{i}': tf.Variable(0.0) for i in range(7)}
    with pytest.raises(CheckpointError, match=r'another model.*model/neck/4, and 2 more') as error:
        checkpoints.restore_model(prefix, other)
    assert 'another model_dir' in str(error.value)


def test_the_end_is_reported():
    assert describe_end('dir', 4, 5) is None
    assert describe_end('dir', 5, 5) == 'dir is at step 5 of 5: nothing left to do'
    beyond = describe_end('dir', 7, 5)
    assert beyond.startswith('dir is at step 7, beyond the 5 steps asked for: nothing left to do')
    assert 'more than 7' in beyond


def test_averages_take_the_place_of_the_weights_that_have_one(tmp_path, caplog):
    saver = _make(tmp_path, {'momentum', 'average'}, names=['backbone/conv1/kernel'])
    saver._variables['optimizer/average/backbone/conv1/kernel'].assign(tf.fill([2, 3], 9.0))
    prefix = saver.save()
    model = make_variables(0.0)
    assert checkpoints.restore_model(prefix, model, averages=True) == 5
    assert model['backbone/conv1/kernel'].numpy().tolist() == [[9.0] * 3] * 2
    # Of a frozen one there is none.
    assert model['head/bias'].numpy().tolist() == [1.0]
    assert checkpoints.restore_model(prefix, model) == 5
    assert model['backbone/conv1/kernel'].numpy().tolist() == [[1.0] * 3] * 2


def test_weights_stand_in_where_there_are_no_averages(tmp_path, caplog):
    prefix = _make(tmp_path, {'momentum'}).save()
    model = make_variables(0.0)
    with caplog.at_level('INFO'):
        checkpoints.restore_model(prefix, model, averages=True)
    assert model['head/bias'].numpy().tolist() == [1.0]
    assert caplog.text.count('holds no moving averages: taking the weights') == 1


@rows.parametrize(
    ('name', 'is_weight'),
    [
        ('model/backbone/conv1_conv/kernel', True),
        ('resnet_v1_50/conv1/BatchNorm/moving_mean', True),
        ('conv0/bn/mean/EMA', True),
        ('optimizer/momentum/backbone/conv1_conv/kernel', False),
        ('model/_box/kernel/.OPTIMIZER_SLOT/optimizer/momentum/.ATTRIBUTES/VARIABLE_VALUE', False),
        ('resnet_v1_50/conv1/weights/Momentum', False),
        ('global_step', False),
        ('step/.ATTRIBUTES/VARIABLE_VALUE', False),
        ('_CHECKPOINTABLE_OBJECT_GRAPH', False),
    ],
)
def test_weights_are_distinguished_from_other_state(name, is_weight):
    assert checkpoint_contents.is_weight(name) == is_weight
