"""The flags of threads and profiles."""

import pytest
import tensorflow as tf

from object_detection.builders.input_readers import batches as batches_builder
from object_detection.config import show
from object_detection.config.job_options import EvalOptions, TrainOptions
from object_detection.errors import ConfigError
from object_detection.training import jobs, resolve_config
from object_detection.training.distribution import devices
from tests.validation.pipelines import sound_pipeline


@pytest.fixture
def pipeline(tmp_path):
    return sound_pipeline(tmp_path)


@pytest.fixture
def path(pipeline, tmp_path):
    path = tmp_path / 'pipeline.config'
    show.write_pipeline(pipeline, str(path))
    return str(path)


def test_threads_of_the_input(path):
    options = TrainOptions(private_threadpool_size=3)
    read = resolve_config.read(path, options, for_what='train')
    assert read.train_input_reader.private_threadpool_size == 3
    assert read.eval_input_reader[0].private_threadpool_size == 3
    read = resolve_config.read(path, TrainOptions(), for_what='train')
    assert not read.train_input_reader.HasField('private_threadpool_size')


@pytest.mark.parametrize('threads', [0, 2])
def test_the_input_has_threads_of_its_own(pipeline, threads):
    batches = tf.data.Dataset.range(3)
    pipeline.train_input_reader.private_threadpool_size = threads
    batches = batches_builder.ahead(batches, pipeline.train_input_reader)
    assert batches.options().threading.private_threadpool_size == (threads or None)
    assert list(batches.as_numpy_iterator()) == [0, 1, 2]


def test_threads_of_tensorflow(monkeypatch):
    given = {}
    for name in ('intra', 'inter'):
        monkeypatch.setattr(
            tf.config.threading,
            f'set_{name}_op_parallelism_threads',
            lambda count, name=name: given.update({name: count}),
        )
    devices.set_up(EvalOptions(intra_op_threads=4))
    assert given == {'intra': 4}
    devices.set_up(EvalOptions(inter_op_threads=2))
    assert given == {'intra': 4, 'inter': 2}


@pytest.mark.parametrize(
    'flag', ['intra_op_threads', 'inter_op_threads', 'private_threadpool_size']
)
def test_impossible_numbers_of_threads_are_reported(path, flag):
    with pytest.raises(ConfigError, match=f'--{flag}: expected 0 to 4096'):
        resolve_config.read(path, TrainOptions(**{flag: -1}), for_what='train')


def test_a_wrong_range_of_profiled_steps_is_reported_before_all_else(tmp_path):
    with pytest.raises(ConfigError, match='--profile_steps'):
        jobs.run_training('no/such.config', str(tmp_path), TrainOptions(profile_steps='9,3'))


def test_wrong_cores_are_reported_before_tensorflow_computes(path, tmp_path):
    with pytest.raises(ConfigError, match='--cpu_affinity'):
        jobs.run_training(path, str(tmp_path), TrainOptions(cpu_affinity='first'))
