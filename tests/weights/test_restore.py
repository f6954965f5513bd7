"""Starting from the checkpoints of our own trainings."""

import logging

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.errors import CheckpointError
from object_detection.training.checkpoints import manager
from object_detection.weights import restore
from tests.tiny_models import tiny_detector, tiny_pipeline
from tests.weights.tiny_checkpoints import save, weights

HEADS = {
    'box_head/box_codes/bias',
    'box_head/box_codes/kernel',
    'box_head/classes/bias',
    'box_head/classes/kernel',
}
MASKS = {'mask_head/masks/bias', 'mask_head/masks/kernel'}


def test_a_detector_is_restored_exactly_and_from_a_folder(tmp_path):
    source = weights(1.0)
    save(tmp_path, source)
    target = weights()
    report = restore.restore(target, str(tmp_path))
    assert set(target.values().values()) == {1.0}
    assert report.restored == sorted(source.variables)
    assert report.missing == report.unused == report.mismatched == []


@pytest.mark.parametrize(
    ('checkpoint_type', 'parts'),
    [
        ('classification', {'backbone'}),
        ('detection', {'backbone', 'fpn', 'box_classifier'}),
        ('full', {'backbone', 'fpn', 'box_classifier', 'rpn'}),
    ],
)
def test_what_a_type_takes_with_another_number_of_classes(tmp_path, checkpoint_type, parts):
    prefix = save(tmp_path, weights(1.0, num_classes=7))
    target = weights()
    report = restore.restore(target, prefix, checkpoint_type)
    assert {name.split('/')[0] for name in report.restored} - {'mask_head'} == parts
    values = target.values()
    assert {name for name in values if values[name] == 1.0} == set(report.restored)
    assert set(report.restored) | set(report.missing) | set(report.mismatched) == values.keys()


def test_only_the_heads_concerned_start_anew_and_one_line_says_so(tmp_path, caplog):
    with caplog.at_level(logging.INFO, 'object_detection'):
        report = restore.restore(weights(), save(tmp_path, weights(1.0, num_classes=1)))
    assert set(report.mismatched) == HEADS | MASKS
    assert report.missing == []
    assert report.unused == sorted(f'model/{name}' for name in HEADS | MASKS)
    (line,) = [line for line in caplog.messages if 'num_classes' in line]
    assert line == 'num_classes is 4, and 1 there; initialised: box_head, mask_head/masks'


def test_a_real_detector_with_fewer_classes(tmp_path):
    source = tiny_detector(seed=1)
    target = tiny_detector('model { faster_rcnn { num_classes: 2 } }')
    before = {name: v.numpy() for name, v in target.named_variables().items()}
    report = restore.restore(target, save(tmp_path, source))
    assert set(report.mismatched) == HEADS | MASKS
    assert report.missing == []
    for name, variable in target.named_variables().items():
        kept = name in report.mismatched
        expected = before[name] if kept else source.named_variables()[name]
        np.testing.assert_array_equal(variable, expected, err_msg=name)


def assert_refused(target, path, *texts, **options):
    before = target.values()
    with pytest.raises(CheckpointError) as caught:
        restore.restore(target, str(path), **options)
    for text in (str(path), *texts):
        assert text in str(caught.value)
    assert target.values() == before


def test_what_the_classes_do_not_explain_is_an_error(tmp_path):
    prefix = save(tmp_path, weights(1.0, mask_depth=16))
    shapes = 'mask_head/conv_1/kernel ([3, 3, 4, 16] there, [3, 3, 4, 8] in the model)'
    assert_refused(weights(), prefix, 'of another shape', shapes, 'load_all_detection')
    restore.restore(weights(), prefix, 'detection')


def test_all_that_fits_is_taken_where_that_is_requested(tmp_path):
    prefix = save(tmp_path, weights(1.0, masks=False))
    assert_refused(weights(), prefix, 'not in it: mask_head/conv_1/kernel')
    target = weights()
    report = restore.restore(target, prefix, all_that_fits=True)
    assert report.missing == ['mask_head/conv_1/kernel', *sorted(MASKS)]
    assert target.values()['rpn/conv/kernel'] == 1.0
    assert target.values()['mask_head/conv_1/kernel'] == 0.0


def test_another_backbone_is_refused_in_any_case(tmp_path):
    prefix = save(tmp_path, weights(1.0, blocks=3))
    for options in ({'checkpoint_type': 'classification'}, {'all_that_fits': True}):
        assert_refused(weights(), prefix, 'of 2 basic blocks. Received: a ResNet of 3', **options)


def test_a_norm_that_the_model_lacks_is_not_dropped(tmp_path):
    source = weights(1.0)
    source.variables['backbone/conv1_bn/gamma'] = tf.Variable(tf.ones([4]))
    assert_refused(weights(), save(tmp_path, source), 'only in it: backbone/conv1_bn/gamma')


def test_averages_go_before_the_weights_of_the_last_step(tmp_path):
    model = weights(1.0)
    averages = {'rpn/conv/kernel': tf.Variable(tf.fill([4, 4], 2.0))}
    prefix = manager.Checkpoints(
        str(tmp_path),
        model=model.variables,
        optimizer={'average': averages},
        step=tf.Variable(0, dtype=tf.int64),
    ).save()
    target = weights()
    report = restore.restore(target, prefix)
    assert target.values() == model.values() | {'rpn/conv/kernel': 2.0}
    assert report.unused == []


def test_corrupt_and_third_party_files_change_nothing(tmp_path):
    prefix = save(tmp_path / 'own', weights(1.0))
    data = tmp_path / 'own' / 'ckpt-0.data-00000-of-00001'
    data.write_bytes(data.read_bytes()[:1000])
    assert_refused(weights(), prefix, 'damaged')
    assert_refused(weights(), tmp_path / 'absent', 'absent')
    (tmp_path / 'notes.txt').write_text('weights are elsewhere')
    assert_refused(weights(), tmp_path / 'notes.txt', 'expected the prefix of a checkpoint')
    foreign = tf.train.Checkpoint(net=tf.Variable(1.0)).save(str(tmp_path / 'foreign' / 'ckpt'))
    assert_refused(weights(), foreign, 'another program')


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    broken = weights(1.0)
    broken.variables['fpn/top/kernel'].assign(tf.fill([4, 4], np.nan))
    assert_refused(weights(), save(tmp_path, broken), 'NaN or infinity in fpn/top/kernel')


def test_replicated_and_frozen_variables(tmp_path):
    prefix = save(tmp_path, weights(1.0))
    with tf.distribute.MirroredStrategy(['CPU:0']).scope():
        target = weights()
        target.variables['fpn/top/kernel'] = tf.Variable(tf.zeros([4, 4]), trainable=False)
        restore.restore(target, prefix)
    assert set(target.values().values()) == {1.0}


def test_variables_that_are_not_there_yet_are_made(tmp_path):
    """A detector that has only predicted has no mask head."""
    source = tiny_detector(seed=1)
    target = model_builder.build(tiny_pipeline().model)
    target.predict(tf.zeros([1, 64, 64, 3]), tf.constant([[64, 64, 3]]))
    assert 'mask_head/masks/kernel' not in target.named_variables()
    report = restore.restore(target, save(tmp_path, source))
    assert report.restored == sorted(source.named_variables())


def test_score_maps_of_bins_depend_on_the_classes(tmp_path):
    """R-FCN has a map for each bin and class."""

    def detector(value, num_classes):
        detector = weights(value, num_classes=num_classes, masks=False)
        for name, outputs in (('classes', num_classes + 1), ('box_codes', 4 * num_classes)):
            for kind, shape in (('kernel', (1, 1, 4)), ('bias', ())):
                maps = tf.fill((*shape, 9 * outputs), value)
                detector.variables[f'box_head/{name}/{kind}'] = tf.Variable(maps)
        return detector

    report = restore.restore(detector(0.0, 4), save(tmp_path, detector(1.0, 7)))
    assert set(report.mismatched) == HEADS
    assert report.missing == []
