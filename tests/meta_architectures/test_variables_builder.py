import logging
import re

import numpy as np
import pytest
import tensorflow as tf

from object_detection.errors import ConfigError
from object_detection.meta_architectures import trainable_variables
from object_detection.protos.optimizer_pb2 import LearningRateMultiplier
from object_detection.training import setup
from tests import rows, tiny_models
from tests.training import step_runs

NAMES = (
    'backbone/conv1_conv/kernel',
    'backbone/conv1_bn/beta',
    'backbone/conv2_conv/kernel',
    'rpn/conv/kernel',
    'rpn/conv/bias',
    'box_head/classes/kernel',
    'box_head/classes/bias',
)


def choose(update=(), freeze=(), names=NAMES):
    named = {name: tf.zeros([2, 3]) for name in names}
    return trainable_variables.choose(named, update_patterns=update, freeze_patterns=freeze)


@rows.parametrize(
    ('update', 'freeze', 'trained'),
    [
        ([], [], NAMES),
        ([], ['^backbone/'], NAMES[3:]),
        # Found anywhere in the name, as the reference searches.
        ([], ['conv1_(conv|bn)', 'box'], NAMES[2:5]),
        (['^rpn/', 'classes'], [], NAMES[3:]),
        # Freezing wins.
        (['^rpn/', 'classes'], ['bias$'], ('rpn/conv/kernel', 'box_head/classes/kernel')),
    ],
)
def test_expressions_choose_what_is_trained(update, freeze, trained):
    selection = choose(update, freeze)
    assert tuple(selection.trained) == tuple(trained)
    assert tuple(selection.frozen) == tuple(name for name in NAMES if name not in trained)


@rows.parametrize(
    ('update', 'freeze', 'message'),
    [
        ([], ['rpn', 'Conv'], r"train_config\.freeze_variables\[1\]: .*Received: 'Conv'\."),
        (
            ['^conv1'],
            [],
            r'update_trainable_variables\[0\]: .* such as backbone/conv1_conv/kernel, '
            r"backbone/conv2_conv/kernel, rpn/conv/bias.*Received: '\^conv1'",
        ),
        (
            [],
            ['a', '(', '['],
            r"(?s)freeze_variables\[1\]: expected a regular expression\. Received: '\(' \(missing"
            r'.*\n.*freeze_variables\[2\]',
        ),
        (['rpn'], ['conv/'], r"left to train\. Received: freeze_variables \['conv/'\] and"),
    ],
)
def test_expressions_without_effect_are_reported(update, freeze, message):
    with pytest.raises(ConfigError, match=message):
        choose(update, freeze)


def test_the_log_reports_how_much_is_trained_and_sums_up_what_is_frozen():
    assert choose().describe() == ['training 42 parameters in 7 variables']
    assert choose(freeze=['^backbone/', 'rpn/conv/bias']).describe() == [
        'training 18 parameters in 3 variables',
        'frozen are 24 parameters in 4 variables: backbone/* (3 variables), rpn/conv/bias',
    ]
    assert choose(freeze=['conv1']).describe()[1].endswith(': backbone/conv1_* (2 variables)')


def test_one_name_may_be_the_beginning_of_another():
    names = ('head/conv', 'head/conv_bn', 'head/conv_bn/beta', 'head/x')
    frozen = choose(freeze=['conv$', 'beta'], names=names).describe()[1]
    assert frozen == 'frozen are 12 parameters in 2 variables: head/conv, head/conv_bn/beta'


def test_names_of_a_detector():
    named = tiny_models.tiny_detector().named_trainable_variables()
    selection = trainable_variables.choose(
        named, update_patterns=[], freeze_patterns=['^backbone/conv[12]_', '_bn/']
    )
    trained, frozen = selection.describe()
    assert len(selection.trained) + len(selection.frozen) == len(named)
    assert trained.startswith('training ')
    assert 'backbone/conv1_* (3 variables), backbone/conv2_* (12 variables)' in frozen
    assert frozen.endswith(' more')
    assert len(frozen) < 700
    factors = trainable_variables.gradient_factors(named, 2.0)
    assert {name.split('/')[0] for name in factors} == {
        'fpn',
        'rpn',
        'box_classifier',
        'box_head',
        'mask_head',
    }


def test_a_batch_norm_with_frozen_scale_and_offset_keeps_its_statistics(caplog):
    caplog.set_level(logging.INFO)
    detector = tiny_models.tiny_detector()
    pipeline = tiny_models.tiny_pipeline(
        "train_config { freeze_variables: ['^backbone/conv[12]_', 'conv3_block1_1_bn/gamma'] }"
    )
    spec = step_runs.element_spec(step_runs.batches(2)[0])
    setup.build_step(pipeline.train_config, detector, spec, seed=0)
    assert 'moving statistics: 5' in caplog.text
    before = {k: v.numpy() for k, v in detector.named_variables().items() if '_bn/moving' in k}
    images, groundtruth = tiny_models.random_images(2), tiny_models.random_groundtruth(2)
    tiny_models.train_losses(detector, images, groundtruth)
    changed = {
        name
        for name, value in detector.named_variables().items()
        if name in before and np.any(value.numpy() != before[name])
    }
    assert not [name for name in changed if re.match('backbone/conv[12]_', name)]
    # Its offset is trained.
    assert 'backbone/conv3_block1_1_bn/moving_mean' in changed
    assert 'fpn/smoothing_2_bn/moving_mean' in changed


def entries(*pairs):
    return [LearningRateMultiplier(variables=text, multiplier=factor) for text, factor in pairs]


def test_the_first_expression_counts_for_a_multiplier():
    found = trainable_variables.multipliers(NAMES, entries(('conv1', 0.25), ('^backbone/', 0.5)))
    assert found == {NAMES[0]: 0.25, NAMES[1]: 0.25, NAMES[2]: 0.5}
    assert trainable_variables.multipliers(NAMES, []) == {}


@rows.parametrize(
    ('pairs', 'message'),
    [
        ([('conv9', 0.5)], r"multiplier\[0\]\.variables: .* such as .*Received: 'conv9'"),
        (
            [('^backbone/', 0.5), ('conv1', 0.25)],
            r"multiplier\[1\]\.variables: expected variables that no entry before.*'conv1'",
        ),
        ([('rpn', 0.0)], r'multiplier\[0\]\.multiplier: .*train_config\.freeze_variables'),
        ([('rpn', -1.0)], r'multiplier\[0\]\.multiplier: .*Received: -1\.'),
        ([('(', 1.0)], r'multiplier\[0\]\.variables: expected a regular expression'),
    ],
)
def test_multipliers_without_effect_are_reported(pairs, message):
    with pytest.raises(ConfigError, match=rf'train_config\.optimizer\.learning_rate_{message}'):
        trainable_variables.multipliers(NAMES, entries(*pairs))


@pytest.mark.parametrize('factor', [0.0, 1.0])
def test_a_factor_that_changes_nothing_gives_none(factor):
    assert trainable_variables.gradient_factors(NAMES, factor) == {}


def test_gradients_of_biases_are_scaled():
    found = trainable_variables.gradient_factors(NAMES, 2.0)
    assert found == {'rpn/conv/bias': 2.0, 'box_head/classes/bias': 2.0}
