"""The examples of the guides that extend the toolkit work; tests/plugin has those of plug-ins."""

import dataclasses
import pathlib
import re

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from object_detection import register
from object_detection.builders import model_builder
from object_detection.config.families import FAMILIES
from object_detection.data.augmentation.pixels import PixelStep
from object_detection.errors import UserError
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from tests import toy_family

GUIDES = pathlib.Path(__file__).parents[1] / 'docs' / 'howto'


def code(guide: str, language: str) -> str:
    """The first block of a language."""
    return re.search(rf'```{language}\n(.+?)```', (GUIDES / guide).read_text(), re.DOTALL)[1]


def test_a_family(monkeypatch):
    monkeypatch.setattr(FAMILIES, '_rows', dict(FAMILIES._rows))
    register.family('toy', toy_family.FAMILY)
    pipeline = text_format.Parse(code('family.md', 'textproto'), TrainEvalPipelineConfig())
    assert model_builder.build(pipeline.model).normalize(255.0) == 0.5


def test_a_loss():
    names = {'tf': tf, 'UserError': UserError}
    exec(code('loss.md', 'python'), names)
    loss = names['LogCoshLocalizationLoss'](sharpness=2.0)
    found = loss(tf.constant([[[1.0, 100.0]]]), tf.zeros([1, 1, 2]), tf.ones([1, 1]))
    np.testing.assert_allclose(found, [[100.3159]], rtol=1e-6)


def test_an_augmentation():
    names = {'tf': tf, 'UserError': UserError, 'dataclasses': dataclasses, 'PixelStep': PixelStep}
    exec(code('augmentation.md', 'python'), names)
    changed = names['Posterize'](bits=2)({'image': tf.constant([63, 64, 255])}, None)['image']
    assert changed.numpy().tolist() == [0, 64, 192]
