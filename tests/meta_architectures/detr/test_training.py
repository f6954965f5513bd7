"""Trainings of detection transformers: precisions, data of all kinds, averages, frozen layers."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.models import precision as precisions
from object_detection.optimizers import schedules
from object_detection.optimizers.gradients import Execution, LossScale
from object_detection.optimizers.moving_averages import Averaging, swapped
from object_detection.optimizers.optimizers import Momentum
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.training import step
from object_detection.training.loop import train
from tests import tiny_models
from tests.meta_architectures.detr import configs
from tests.training import resumed_training

# Share of the whole loss that values of 11 significant bits change, in some twenty layers.
_NEAR = 20 * 2.0**-11
NORMS = 'feature_extractor { freeze_norms: false }'


def batch(
    counts=(3, 0), num_classes=configs.NUM_CLASSES, sides=(64, 64), rows=5
) -> dict[str, tf.Tensor]:
    """Images with some objects each, of which the first `sides` pixels are not padding."""
    random = np.random.default_rng(0)
    count = len(counts)
    low = random.uniform(0.0, 0.6, [count, rows, 2])
    boxes = np.concatenate([low, low + random.uniform(0.1, 0.4, [count, rows, 2])], axis=-1)
    classes = np.eye(num_classes)[random.integers(0, num_classes, [count, rows])]
    weights = np.arange(rows) < np.array(counts)[:, np.newaxis]
    shape = [count, configs.SIDE, configs.SIDE, 3]
    images = random.uniform(0, 255, shape)
    images[:, sides[0] :] = images[:, :, sides[1] :] = 0.0
    numbers = {
        InputFields.IMAGE: images,
        InputFields.GROUNDTRUTH_BOXES: boxes * weights[..., np.newaxis],
        InputFields.GROUNDTRUTH_CLASSES: classes * weights[..., np.newaxis],
        InputFields.GROUNDTRUTH_WEIGHTS: weights,
    }
    return {
        **{name: tf.constant(values, tf.float32) for name, values in numbers.items()},
        InputFields.TRUE_IMAGE_SHAPE: tf.constant([[*sides, 3]] * count),
        InputFields.SOURCE_ID: tf.constant([str(i) for i in range(count)]),
    }


def _momentum() -> Momentum:
    return Momentum(schedules.constant(0.002), momentum=0.9)


def build(kind, *changes):
    """Builds a detector of a kind, with its variables."""
    tf.keras.utils.set_random_seed(0)
    model = DetectionModel(detr=configs.tiny(kind, *changes))
    detector = tiny_models.model_builder.build(model, is_training=True)
    detector.build_variables()
    return detector


def make(kind, data, *changes, precision='float32', any_size=False, **options) -> step.TrainStep:
    optimizer = options.pop('optimizer', None)
    specs = {name: tf.TensorSpec(each.shape, each.dtype) for name, each in data.items()}
    if any_size:
        specs[InputFields.IMAGE] = tf.TensorSpec([len(data[InputFields.IMAGE]), None, None, 3])
    with precisions.scope(precision):
        return step.TrainStep(
            build(kind, *changes),
            optimizer or _momentum(),
            element_spec=specs,
            seed=3,
            clip_norm=1.0,
            **options,
        )


def losses_of(train_step, data, steps=2, precision='float32') -> list[dict[str, float]]:
    with precisions.scope(precision):
        found = [train_step(data) for _ in range(steps)]
    found = [{name: float(value) for name, value in each.items()} for each in found]
    for each in found:
        assert np.all(np.isfinite(list(each.values()))), each
    return found


@pytest.mark.slow
@pytest.mark.parametrize('precision', [precisions.FLOAT16, precisions.BFLOAT16])
@pytest.mark.parametrize('kind', configs.KINDS | configs.NETWORKS)
def test_half_precision_keeps_boxes_and_losses_in_float32(kind, precision):
    data = batch()
    scale = LossScale(1024.0) if precision == precisions.FLOAT16 else None
    half = make(kind, data, precision=precision, loss_scale=scale)
    (found,) = losses_of(half, data, steps=1, precision=precision)
    with precisions.scope(precision):
        detector = half.detector
        groundtruth = Groundtruth(
            boxes=data[InputFields.GROUNDTRUTH_BOXES],
            classes=data[InputFields.GROUNDTRUTH_CLASSES],
            weights=data[InputFields.GROUNDTRUTH_WEIGHTS],
        )
        seeds = tf.constant([[3, 1], [4, 1]])
        prepared, shapes = detector.preprocess(data[InputFields.IMAGE])
        predictions = detector.predict(prepared, shapes, True, groundtruth, seeds)
        assert any(each.dtype != tf.float32 for each in predictions.maps)
        for layer in predictions.layers:
            assert layer.boxes.dtype == layer.class_logits.dtype == tf.float32
        if predictions.selection is not None:
            assert predictions.selection.boxes.dtype == tf.float32
    (expected,) = losses_of(make(kind, data), data, steps=1)
    assert found.keys() - {'loss_scale'} == expected.keys()
    if precision == precisions.FLOAT16:
        # With the 8 bits of the other one, other cells are selected, and other queries matched.
        losses = {name: value for name, value in expected.items() if name.startswith('Loss/')}
        allowed = _NEAR * sum(losses.values())
        assert {name: found[name] for name in losses} == pytest.approx(losses, abs=allowed)


@pytest.mark.parametrize(
    ('kind', 'changes', 'data'),
    [
        # More objects than queries.
        ('rt_detr', ('queries { count: 4 }',), {'counts': (9, 2), 'rows': 9}),
        *(
            pytest.param(kind, *others, marks=pytest.mark.slow)
            for kind, *others in (
                ('rt_detr', (), {'counts': (0, 0)}),
                ('rt_detr', ('num_classes: 1203',), {'num_classes': 1203}),
                ('d_fine', ('num_classes: 1',), {'num_classes': 1}),
                ('d_fine', ('queries { count: 4 }',), {'counts': (0, 9), 'rows': 9}),
                ('rf_detr', ('queries { count: 4 }',), {'counts': (9, 0), 'rows': 9}),
                ('rf_detr', (), {'counts': (0, 0)}),
                ('detr', (), {'counts': (0, 0)}),
                ('detr', ('num_classes: 1',), {'num_classes': 1, 'sides': (40, 64)}),
            )
        ),
    ],
)
def test_data_of_all_kinds_give_finite_losses(kind, changes, data):
    data = batch(**data)
    found = losses_of(make(kind, data, *changes), data)
    names = set(found[0])
    assert {name for name in names if name.startswith('Loss/class')}
    if not np.any(data[InputFields.GROUNDTRUTH_WEIGHTS]):
        for name in names:
            if name.startswith(('Loss/l1', 'Loss/giou')):
                assert found[0][name] == 0.0, name


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['rt_detr', 'detr'])
def test_sizes_of_static_buckets_have_the_losses_of_any_size(kind):
    data, wide = batch(), batch()
    wide[InputFields.IMAGE] = tf.image.resize(wide[InputFields.IMAGE], (64, 96))
    wide[InputFields.TRUE_IMAGE_SHAPE] = tf.constant([[64, 96, 3]] * 2)
    found = []
    for execution in (None, Execution(bucket_sizes=((64, 64), (64, 96)))):
        train_step = make(kind, data, any_size=True, execution=execution)
        found.append([*losses_of(train_step, data, 1), *losses_of(train_step, wide, 1)])
    for ours, theirs in zip(*found, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.usefixtures('without_graphs')
@pytest.mark.parametrize('kind', [pytest.param('rt_detr', marks=pytest.mark.slow), 'detr'])
def test_frozen_stages_and_norms_do_not_train(kind):
    frozen = 'feature_extractor { frozen_stages: 2 }'
    data = batch()
    train_step = make(kind, data, NORMS, frozen, 'freeze_batchnorm: true')
    named = train_step.detector.named_variables()
    before = {name: each.numpy() for name, each in named.items()}
    losses_of(train_step, data, 2)
    changed = {name for name, each in named.items() if np.any(each.numpy() != before[name])}
    assert not any('moving_' in name for name in changed)
    assert changed <= set(train_step.detector.named_trainable_variables())
    backbone = {name for name in changed if name.startswith('backbone/')}
    free = build(kind, NORMS)
    trainable = {n for n in free.named_trainable_variables() if n.startswith('backbone/')}
    assert backbone < trainable
    assert backbone


@pytest.mark.parametrize('kind', [pytest.param('rt_detr', marks=pytest.mark.slow), 'detr'])
def test_averages_are_of_the_weights_after_each_step(kind):
    data, decay, ramp = batch(), 0.9, 2.0
    train_step = make(kind, data, NORMS, optimizer=Averaging(_momentum(), decay=decay, ramp=ramp))
    detector, averages = train_step.detector, train_step.optimizer.averages()
    weights = detector.named_trainable_variables()
    assert averages.keys() == weights.keys()
    expected = dict.fromkeys(weights, 0.0)
    for step_number in range(1, 4):
        losses_of(train_step, data, 1)
        share = decay * (1 - np.exp(-step_number / ramp)) if step_number > 1 else 0.0
        for name, weight in weights.items():
            expected[name] = share * expected[name] + (1 - share) * weight.numpy()
    for name, average in averages.items():
        np.testing.assert_allclose(average, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    prepared, shapes = detector.preprocess(data[InputFields.IMAGE])
    own = detector.predict(prepared, shapes).layers[-1].boxes.numpy()
    with swapped(detector.named_variables(), averages):
        averaged = detector.predict(prepared, shapes).layers[-1].boxes.numpy()
    assert np.any(own != averaged)


@pytest.mark.slow
def test_after_their_last_step_augmentations_are_as_if_they_were_not_there(tmp_path):
    records = resumed_training.write_images(tmp_path)

    def weights(name, *runs):
        """Trains to each step of `runs` with augmentations until another step, or without any."""
        for num_steps, has_steps, stop in runs:
            config = resumed_training.config_of('rt_detr', records)
            steps = config.train_config.data_augmentation_options
            for each in steps:
                each.stop_after_step = stop
            if not has_steps:
                del steps[:]
            folder = tmp_path / name
            train(config, folder, num_steps=num_steps, seed=3, record_summaries=False)
        saved = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(folder)))
        names = [each for each in saved.get_variable_to_shape_map() if each.startswith('model/')]
        return {each: saved.get_tensor(each) for each in names}

    stopped = weights('stopped', (4, True, 2))
    parts = weights('parts', (2, True, 0), (4, False, 0))
    never = weights('never', (4, True, 0))
    assert len(stopped) > 50
    for name, values in stopped.items():
        np.testing.assert_array_equal(values, parts[name], err_msg=name)
    assert any(np.any(values != never[name]) for name, values in stopped.items())
