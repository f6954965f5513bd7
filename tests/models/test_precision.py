"""Names of precisions, the scope that sets them, what a machine is told of them."""

import logging

import keras
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.config.job_options import PRECISION_ALIASES, PRECISIONS
from object_detection.models import precision
from object_detection.protos.train_pb2 import TrainConfig

CPU = [tf.config.LogicalDevice('/device:CPU:0', 'CPU')]
GPU = [*CPU, tf.config.LogicalDevice('/device:GPU:0', 'GPU')]


def test_every_name_of_a_flag_is_a_value_of_the_enum_and_the_other_way_round():
    assert {precision.canonical(name) for name in PRECISIONS} == set(precision.POLICIES)
    for name in TrainConfig.DESCRIPTOR.enum_types_by_name['Precision'].values_by_name:
        assert precision.name_of(TrainConfig.Precision.Value(name)) == precision.canonical(
            name.lower()
        )
    assert set(PRECISION_ALIASES) < set(PRECISIONS)


@pytest.mark.parametrize(
    ('text', 'flag', 'use_tpu', 'expected'),
    [
        ('', None, False, 'float32'),
        ('precision: BFLOAT16', None, False, 'mixed_bfloat16'),
        ('precision: MIXED_BFLOAT16', 'float32', False, 'float32'),
        ('precision: TF32', None, False, 'tf32'),
        ('precision: TF32', 'float16', False, 'mixed_float16'),
        ('use_bfloat16: true', None, True, 'mixed_bfloat16'),
        ('use_bfloat16: true', None, False, 'float32'),
        ('use_bfloat16: true', 'float32', True, 'float32'),
    ],
)
def test_resolve(text, flag, use_tpu, expected, caplog):
    config = text_format.Parse(text, TrainConfig())
    with caplog.at_level(logging.INFO):
        assert precision.resolve(config, flag, use_tpu=use_tpu) == expected
    ignored = 'use_bfloat16' in text and not use_tpu
    assert ('use_bfloat16 acts only on TPUs' in caplog.text) == ignored


def test_unknown_precision_is_reported():
    with pytest.raises(ValueError, match=r'expected one of float32, tf32, .*\. Received: half'):
        precision.resolve(TrainConfig(), 'half')


def test_a_flag_is_written_with_all_that_belongs_to_it():
    config = text_format.Parse('precision: MIXED_FLOAT16 loss_scale { static: 8 }', TrainConfig())
    precision.write(config, None)
    assert config.loss_scale.static == 8
    precision.write(config, 'bfloat16')
    assert text_format.MessageToString(config).strip() == 'precision: MIXED_BFLOAT16'
    untouched = TrainConfig()
    assert precision.write(untouched, 'float32') == 'float32'
    assert not untouched.ListFields()


@pytest.fixture(params=[False, True])
def tf32_before(request):
    config = tf.config.experimental
    initially = config.tensor_float_32_execution_enabled()
    config.enable_tensor_float_32_execution(request.param)
    yield request.param
    config.enable_tensor_float_32_execution(initially)


@pytest.mark.parametrize(
    ('name', 'dtype'),
    [
        ('float32', tf.float32),
        ('tf32', tf.float32),
        ('bfloat16', tf.bfloat16),
        ('mixed_float16', tf.float16),
    ],
)
def test_the_scope_sets_the_policy_and_tf32_and_puts_both_back(name, dtype, tf32_before):
    config = tf.config.experimental
    with precision.scope(name):
        layer = keras.layers.Dense(2)
        # TensorFlow's own default is True: float32 has to say no.
        assert config.tensor_float_32_execution_enabled() == (name == 'tf32')
    assert config.tensor_float_32_execution_enabled() == tf32_before
    assert keras.config.dtype_policy().name == 'float32'
    assert layer(tf.ones([1, 3])).dtype == dtype
    assert layer.kernel.dtype == 'float32'


def fail_in_scope():
    with precision.scope('tf32'):
        raise KeyError


def test_the_scope_ends_with_an_error(tf32_before):
    with pytest.raises(KeyError):
        fail_in_scope()
    assert tf.config.experimental.tensor_float_32_execution_enabled() == tf32_before


@pytest.mark.parametrize(
    ('name', 'devices', 'facts', 'told'),
    [
        ('float32', CPU, 'flags : avx2', ''),
        ('tf32', CPU, 'flags : avx2', 'tf32: has no effect on CPUs'),
        ('tf32', GPU, 'flags : avx2', ''),
        ('bfloat16', CPU, 'flags : avx2 avx512_fp16', 'mixed_bfloat16: this CPU has no instructi'),
        ('bfloat16', CPU, 'flags\t: avx2 avx512_bf16', ''),
        ('bfloat16', CPU, 'Features : asimd bf16', ''),
        ('bfloat16', GPU, 'flags : avx2', ''),
        ('float16', CPU, 'flags : avx2 amx_bf16', 'mixed_float16: this CPU has no instructions'),
        ('float16', CPU, 'flags : avx2 amx_fp16', ''),
        ('float16', CPU, None, ''),
    ],
)
def test_exemptions_without_effect_are_logged_once(
    name, devices, facts, told, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(tf.config, 'list_logical_devices', lambda: devices)
    monkeypatch.setattr(precision, '_CPU_FACTS', tmp_path / 'cpuinfo')
    if facts is not None:
        (tmp_path / 'cpuinfo').write_text(f'processor : 0\n{facts}\nbugs : none\n')
    for _ in range(2):
        precision.warn_if_not_faster(name)
    assert [told in record.getMessage() for record in caplog.records] == [True] * bool(told)
