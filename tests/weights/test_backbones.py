import logging
import types

import keras
import pytest

from object_detection.meta_architectures.faster_rcnn.variable_names import FASTER_RCNN_NAMES
from object_detection.models.backbones import resnet_v1
from object_detection.models.backbones.resnet_v1 import Options, Padding
from object_detection.models.image_values import Preprocess, subtract_means
from object_detection.weights import backbones
from object_detection.weights.third_party_names import NAME_BASED, TENSORPACK
from tests.weights import third_party_files

NVIDIA, TPU, SLIM = (format_.options for format_ in NAME_BASED)


def make_detector(**members):
    return types.SimpleNamespace(variable_names=FASTER_RCNN_NAMES, **members)


@pytest.fixture
def messages(monkeypatch, caplog):
    """Returns what is said of a network that computes as `theirs`, for one as `ours`."""
    monkeypatch.setattr(resnet_v1, '_STAGE_FILTERS', third_party_files.NARROW)

    def warn(theirs: Options, ours: Options, depth: int = 50) -> list[str]:
        backbone = resnet_v1.trunk(
            depth,
            levels=[3],
            hyperparams=resnet_v1.default_hyperparams(0.0),
            batch_norm_trainable=False,
            name='backbone',
            options=ours,
        )
        detector = make_detector(parts=lambda: {'backbone': backbone})
        with caplog.at_level(logging.WARNING, 'object_detection'):
            backbones.warn_of_differences('the file', theirs, detector, ' (mostly)')
        return caplog.messages

    return warn


@pytest.mark.parametrize(
    ('theirs', 'ours', 'field'),
    [
        (NVIDIA, Options(stride_in_1x1=False), 'padding_mode: SAME'),
        (NVIDIA, Options(padding=Padding.SAME), 'stride_in_1x1: false'),
        (SLIM, Options(stride_in_1x1=False), 'stride_in_1x1: true'),
        (TPU, Options(), 'stride_in_1x1: false'),
        (TENSORPACK.options, Options(), 'stride_in_1x1: false padding_mode: SYMMETRIC_ALL'),
    ],
)
def test_the_fields_that_make_up_for_it_are_named(messages, theirs, ours, field):
    (message,) = messages(theirs, ours)
    assert message.startswith('the file is of a network that differs')
    assert f' (mostly). Set model.faster_rcnn.feature_extractor {{ {field} }}, or' in message
    assert ('3x3' in message) == ('stride' in field)


def test_nothing_is_logged_for_the_same_network(messages):
    assert not messages(NVIDIA, Options(False, Padding.SAME, frozen_stages=2))
    assert not messages(SLIM, Options())


def test_strides_have_one_place_without_bottlenecks(messages):
    assert not messages(TPU, Options(), depth=18)


def test_other_backbones_are_left_to_other_checks(caplog):
    inputs = keras.Input((4,))
    for parts in ({}, {'backbone': keras.Model(inputs, inputs)}):
        detector = make_detector(parts=lambda parts=parts: parts)
        backbones.warn_of_differences('the file', NVIDIA, detector)
    assert not caplog.messages


@pytest.mark.parametrize(
    ('normalize', 'is_told'),
    [
        (subtract_means, False),
        (Preprocess(mean=(123.675, 116.28, 103.53)), False),
        (Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), scale=1 / 255), True),
    ],
)
def test_images_that_keras_and_the_reference_see(monkeypatch, caplog, normalize, is_told):
    monkeypatch.setattr(resnet_v1, '_STAGE_FILTERS', third_party_files.NARROW)
    backbone = resnet_v1.trunk(
        18,
        levels=[2],
        hyperparams=resnet_v1.default_hyperparams(0.0),
        batch_norm_trainable=False,
        name='backbone',
    )
    detector = make_detector(parts=lambda: {'backbone': backbone}, normalize=normalize)
    backbones.warn_of_images('the file', detector)
    assert bool(caplog.messages) == is_told
    if is_told:
        assert caplog.messages[0].startswith('the file is of a network that sees images less')
