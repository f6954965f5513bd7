"""Parts that configs name by `plugin`: their options, and what is refused."""

import dataclasses

import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import losses_builder, preprocessor_builder
from object_detection.config import plugins
from object_detection.errors import UserError
from object_detection.protos.losses_pb2 import ClassificationLoss, LocalizationLoss, Loss
from object_detection.protos.plugin_pb2 import Plugin
from object_detection.protos.preprocessor_pb2 import PreprocessingStep
from object_detection.registry import Registry
from tests import rows


@dataclasses.dataclass(frozen=True)
class Part:
    count: int
    factor: float = 1.0
    is_on: bool = False
    title: str | None = None
    sizes: tuple[int, ...] = ()
    pair: 'tuple[float, float]' = (0.0, 1.0)
    table: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.count < 0:
            raise ValueError(f'count: expected 0 or more. Received: {self.count}.')

    def __call__(self):
        pass


PARTS = Registry('part', {'own': Part})
PARTS.register('toy', Part)
PARTS.register('plain', len)


def build(name='toy', **options):
    return plugins.build(Plugin(name=name, options=options), PARTS, 'a.plugin')


def test_options_are_converted_by_the_annotations_of_the_dataclass():
    part = build(count='3', factor='1e-1', is_on='True', title='a, b', sizes='4, 5', pair='2,3.5')
    assert part == Part(3, 0.1, True, 'a, b', (4, 5), (2.0, 3.5))
    assert build(count='1', sizes='') == Part(1)


@rows.parametrize(
    ('options', 'message'),
    [
        ({'count': '1.5'}, r"count\]: expected an integer \(int\)\. Received: '1\.5'"),
        ({'count': '1', 'factor': 'nan'}, r"factor\]: expected a finite number .*Received: 'nan'"),
        ({'count': '1', 'is_on': '1'}, r'is_on\]: expected true or false \(bool\)'),
        ({'count': '1', 'sizes': '1, x'}, r'expected values separated by commas, each an integer'),
        ({'count': '1', 'pair': '1'}, r'expected 2 values separated by commas, each a finite'),
        ({'count': '1', 'table': '1'}, r'expected a field of type bool.*Received: the type .*dict'),
        ({'count': '1', 'factr': '1'}, r"expected one of count, .*'factr'\. Did you mean 'factor'"),
        ({}, r'count\]: expected an integer \(int\)\. Received: nothing'),
        ({'count': '-1'}, r'\(toy\): count: expected 0 or more'),
    ],
)
def test_options_of_other_types_are_refused(options, message):
    with pytest.raises(UserError, match=rf'^a\.plugin.*{message}'):
        build(**options)


@rows.parametrize(
    ('name', 'message'),
    [
        ('toi', r"name: expected one of toy, plain, which --plugin .*Did you mean 'toy'\?"),
        ('own', r'name: .*Received: .own., which is a part of this package and has'),
        ('plain', r'expected a dataclass with the methods __call__\. Received: <built-in function'),
    ],
)
def test_names_that_are_no_parts_of_plugins_are_refused(name, message):
    with pytest.raises(UserError, match=rf'^a\.plugin.*{message}'):
        build(name)


@pytest.fixture
def registered(monkeypatch):
    """Registers parts in the tables of the package until the test ends."""

    def register(table, **rows):
        monkeypatch.setattr(table, '_rows', {**table._rows, **rows})

    return register


@dataclasses.dataclass(frozen=True)
class Scaled:
    """The weighted absolute differences, as the loss of classes, codes or boxes."""

    compares: str = 'classes'
    is_mean: bool = False

    def __call__(self, predictions, targets, weights):
        differences = tf.abs(predictions - targets)
        if self.compares == 'classes':
            losses = weights * differences
        else:
            losses = weights * tf.reduce_sum(differences, -1)
        return tf.reduce_mean(losses) if self.is_mean else losses


def loss_text(compares, more=''):
    return f"plugin {{ name: 'scaled' options {{ key: 'compares' value: '{compares}' }} {more} }}"


def test_losses_of_plugins_are_built(registered):
    registered(losses_builder.LOSSES, scaled=Scaled)
    config = text_format.Parse(
        f'localization_loss {{ {loss_text("boxes")} }}'
        f'classification_loss {{ {loss_text("classes")} }}',
        Loss(),
    )
    losses = losses_builder.build(config)
    assert losses.compares_boxes
    of_boxes = losses.localization(tf.ones([1, 2, 4]), tf.zeros([1, 2, 4]), tf.constant([[1, 0.5]]))
    assert of_boxes.numpy().tolist() == [[4.0, 2.0]]
    weights = tf.constant([[[1.0], [0.0]]])
    of_classes = losses.classification(tf.ones([1, 2, 3]), tf.zeros([1, 2, 3]), weights)
    assert of_classes.numpy().tolist() == [[[1.0] * 3, [0.0] * 3]]


@rows.parametrize(
    ('function', 'message', 'compares', 'expected'),
    [
        (losses_builder.build_localization_of_codes, LocalizationLoss, 'boxes', 'codes'),
        (losses_builder.build_localization, LocalizationLoss, 'classes', 'codes, boxes'),
        (losses_builder.build_second_stage_classification, ClassificationLoss, 'codes', 'classes'),
    ],
)
def test_losses_of_something_else_are_refused(registered, function, message, compares, expected):
    registered(losses_builder.LOSSES, scaled=Scaled)
    config = text_format.Parse(loss_text(compares), message())
    with pytest.raises(UserError, match=rf'plugin: .* is {expected}\. Received: scaled, .*'):
        function(config)
    config.plugin.name = 'scled'
    with pytest.raises(UserError, match=r'plugin\.name: expected one of scaled, which'):
        function(config)


def test_a_loss_that_is_a_mean_is_refused(registered):
    registered(losses_builder.LOSSES, scaled=Scaled)
    text = loss_text('classes', "options { key: 'is_mean' value: 'true' }")
    loss = losses_builder.build_classification(text_format.Parse(text, ClassificationLoss()))
    with pytest.raises(UserError, match=r"loss 'scaled': expected a result of shape \(1, 2\) or "):
        loss(tf.ones([1, 2, 3]), tf.zeros([1, 2, 3]), tf.ones([1, 2, 1]))


@dataclasses.dataclass(frozen=True)
class Brighter:
    amount: float = 1.0

    def __call__(self, example, seed):
        return {**example, 'image': example['image'] + self.amount}


def test_steps_of_plugins_are_built(registered):
    registered(preprocessor_builder.AUGMENTATIONS, brighter=Brighter)
    text = "plugin { name: 'brighter' options { key: 'amount' value: '2.5' } }"
    step = preprocessor_builder.build(text_format.Parse(text, PreprocessingStep()))
    assert step({'image': tf.zeros([1])}, None)['image'].numpy().tolist() == [2.5]
    # A step of a plug-in may be one of several.
    text = f'one_of {{ steps {{ {text} }} steps {{ rgb_to_gray {{}} }} }}'
    step = preprocessor_builder.build(text_format.Parse(text, PreprocessingStep()))
    assert Brighter(2.5) in step.steps
    with pytest.raises(UserError, match=r"PreprocessingStep\.plugin\.name: .*Received: 'darker'"):
        preprocessor_builder.build(PreprocessingStep(plugin=Plugin(name='darker')))
    assert 'brighter' not in preprocessor_builder.kinds()
