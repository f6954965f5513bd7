"""Training data that a tf.data service makes, on loopback."""

import multiprocessing.connection
import re
import signal
import socket

import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import dataset_builder
from object_detection.builders.input_readers import data_service as data_service_reader
from object_detection.builders.input_readers import rules as input_reader_rules
from object_detection.core.fields import InputFields as F
from object_detection.data.pipeline import data_service
from object_detection.protos import input_reader_pb2, train_pb2
from tests import forks, rows
from tests.builders.test_dataset_builder import KEEP, config, ids

BUCKETS = (
    'aspect_ratio_buckets { height: 16 width: 24 } aspect_ratio_buckets {height: 24 width: 16}'
)


@pytest.fixture(scope='module')
def service():
    """The address of a dispatcher and two workers, in a process that SIGTERM ends."""
    here, there = multiprocessing.Pipe()
    process = forks.context().Process(target=_serve, args=(there,))
    process.start()
    there.close()
    try:
        assert here.poll(forks.TIME_LIMIT)
        yield here.recv()
        process.terminate()
        process.join(forks.TIME_LIMIT)
        assert process.exitcode == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.join()


def _serve(connection: multiprocessing.connection.Connection) -> None:
    first = data_service.serve(0, host='localhost')
    second = data_service.serve(0, dispatcher=first.address, host='localhost')
    connection.send(first.address)
    second.wait()


def _read(path, service, seed, more='', **options):
    reader = f"data_service: '{service}' {more}"
    pipeline = config(path, resizer=options.pop('resizer', KEEP), reader=reader)
    return dataset_builder.build_train(pipeline, seed=seed, **options)


@pytest.mark.slow
def test_all_records_of_an_epoch_come_once(records, service):
    batches = list(_read(records, service, 1, 'num_epochs: 2 drop_remainder: false'))
    assert sorted(ids(batches)) == sorted([*range(10)] * 2)


def test_batches_are_those_of_this_process(records, service):
    served = _read(records, service, 3)
    here = _read(records, '', 3)
    spec = dict(here.element_spec)
    del spec[F.STREAM_STATE]
    assert served.element_spec == spec
    for batch in served.take(4):
        for name, tensor in batch.items():
            assert spec[name].is_compatible_with(tensor), name
    assert batch[F.IMAGE].dtype == tf.float32


@pytest.mark.slow
def test_readers_of_one_job_share_it(records, service):
    more = 'num_epochs: 1 drop_remainder: false'
    options = {'batch_size': 1, 'job': 4}
    first, second = (iter(_read(records, service, 4, more, **options)) for _ in range(2))
    taken = [next(first) for _ in range(3)]
    assert sorted(ids([*taken, *second, *first])) == list(range(10))


@pytest.mark.slow
def test_another_start_gets_what_its_own_config_says(records, service):
    """Also beside a training with the same seed and reader, or soon after it."""
    first = iter(_read(records, service, 6))
    assert next(first)[F.IMAGE].shape[1:3] != (8, 8)
    resizer = 'fixed_shape_resizer { height: 8 width: 8 }'
    second = next(iter(_read(records, service, 6, resizer=resizer)))
    assert second[F.IMAGE].shape[1:3] == (8, 8)


@pytest.mark.slow
def test_replicas_have_the_same_size(records, service):
    context = tf.distribute.InputContext(num_replicas_in_sync=2)
    batches = _read(records, service, 5, BUCKETS, input_context=context)
    shapes = [tuple(batch[F.IMAGE].shape) for batch in batches.take(8)]
    assert shapes[::2] == shapes[1::2]
    assert {shape[0] for shape in shapes} == {2}


@pytest.mark.slow
def test_noise_differs_from_epoch_to_epoch(records, service):
    batches = _read(records, service, 7, 'shuffle: false', batch_size=1)
    seen = {}
    for batch in batches.take(100):
        seen.setdefault(ids([batch])[0], set()).add(batch[F.IMAGE].numpy().tobytes())
    assert all(len(images) <= 2 for images in seen.values())
    assert any(len(images) == 2 for images in seen.values())  # flipped or not


@pytest.mark.slow
def test_a_service_that_does_not_answer_is_reported(records, monkeypatch):
    monkeypatch.setattr(data_service_reader, '_SECONDS_TO_ANSWER', 0.0)
    said = r'^--dispatcher: expected HOST:PORT .*Received: localhost:1 '
    with pytest.raises(ValueError, match=said):
        data_service.serve(0, dispatcher='localhost:1', host='localhost')
    with pytest.raises(ValueError, match=r'^train_input_reader\.data_service: expected HOST:PORT'):
        _read(records, 'grpc://localhost:1', 1)


def test_a_service_that_comes_late_is_waited_for(monkeypatch, caplog):
    opened = []

    def open_server(seconds):
        opened.append(socket.create_server(('localhost', port)))

    with socket.create_server(('localhost', 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setattr(data_service.time, 'sleep', open_server)
    data_service.check_answers(f'grpc://localhost:{port}', 'here', 60.0)
    assert f'here: grpc://localhost:{port} does not answer' in caplog.text
    (server,) = opened
    server.close()


@rows.parametrize(
    ('text', 'train', 'path', 'said'),
    [
        ("data_service: 'a:1'", '', 'train_input_reader', 'expected grpc://HOST:PORT.'),
        ("data_service: 'grpc://a'", '', 'train_input_reader', 'expected grpc://HOST:PORT.'),
        ("data_service: 'grpc://a:1'", '', 'eval_input_reader[0]', 'expected none'),
        (
            "data_service: 'grpc://a:1' coco_input_reader {}",
            '',
            'train_input_reader',
            'Received: coco_input_reader',
        ),
        (
            "data_service: 'grpc://a:1' sample_1_of_n_examples: 2",
            '',
            'train_input_reader',
            'sample_1_of_n_examples: 1 with it. Received: 2',
        ),
        (
            "data_service: 'grpc://a:1' sample_from_datasets_weights: 1",
            '',
            'train_input_reader',
            'expected no sample_from_datasets_weights',
        ),
        (
            "data_service: 'grpc://a:1'",
            'deterministic_ops: true',
            'train_input_reader',
            'expected no train_config.deterministic_ops',
        ),
    ],
)
def test_what_does_not_go_with_a_service(text, train, path, said):
    reader = text_format.Parse(text, input_reader_pb2.InputReader())
    train_config = text_format.Parse(train, train_pb2.TrainConfig())
    (problem,) = input_reader_rules.check_data_service(reader, path, train_config)
    assert re.match(re.escape(f'{path}.data_service: '), problem)
    assert said in problem


def test_a_reader_without_one_has_no_problem():
    reader = text_format.Parse("data_service: 'grpc://a:1'", input_reader_pb2.InputReader())
    nothing = train_pb2.TrainConfig()
    assert not list(input_reader_rules.check_data_service(reader, 'train_input_reader', nothing))
    assert not list(
        input_reader_rules.check_data_service(input_reader_pb2.InputReader(), 'eval', nothing)
    )
