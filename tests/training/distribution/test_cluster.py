"""TF_CONFIG, and what is said of mistakes in it."""

import json

import pytest

from object_detection.errors import ConfigError
from object_detection.training.distribution import cluster

TWO = {'worker': ['a:1', 'b:1']}


def _read(num_workers=1, **content):
    return cluster.read(num_workers, {'TF_CONFIG': json.dumps(content)})


@pytest.mark.parametrize('text', [None, '', '{}', '{"cluster": {}, "task": {}}'])
def test_no_cluster_is_one_worker(text):
    read = cluster.read(1, {} if text is None else {'TF_CONFIG': text})
    assert read == cluster.Cluster()
    assert read.num_workers == 1


@pytest.mark.parametrize('num_workers', [1, 2])
def test_workers_come_in_order(num_workers):
    read = _read(num_workers, cluster=TWO, task={'type': 'worker', 'index': 1})
    assert read == cluster.Cluster(('a:1', 'b:1'), 1, 'TF_CONFIG')
    assert read.num_workers == 2


def test_the_chief_is_the_first_worker():
    jobs = {'worker': ['b:1', 'c:1'], 'chief': ['a:1']}
    expected = {('chief', 0): 0, ('worker', 0): 1, ('worker', 1): 2}
    for (kind, index), place in expected.items():
        read = _read(cluster=jobs, task={'type': kind, 'index': index})
        assert read == cluster.Cluster(('a:1', 'b:1', 'c:1'), place, 'TF_CONFIG')


def test_a_cluster_of_one_is_none():
    assert _read(cluster={'chief': ['a:1']}, task={'type': 'chief', 'index': 0}).addresses == ()


@pytest.mark.parametrize(
    ('content', 'said'),
    [
        ([], 'expected an object'),
        ({'cluster': [], 'task': {}}, 'expected an object'),
        ({'cluster': TWO}, r'task.type: .*\[\'worker\'\]. Received: None'),
        ({'cluster': {}, 'task': {'type': 'worker'}}, r'cluster: expected the jobs'),
        ({'cluster': TWO, 'task': {'type': 'master', 'index': 0}}, "Received: 'master'"),
        ({'cluster': TWO, 'task': {'type': 'worker', 'index': 2}}, 'from 0 to 1.* Received: 2'),
        ({'cluster': TWO, 'task': {'type': 'worker', 'index': '0'}}, "Received: '0'"),
        ({'cluster': TWO, 'task': {'type': 'worker'}}, 'Received: None'),
        ({'cluster': TWO, 'task': {'type': 'evaluator', 'index': 0}}, '--checkpoint_dir'),
        (
            {'cluster': TWO | {'ps': ['c:1']}, 'task': {'type': 'worker', 'index': 0}},
            'parameter servers',
        ),
        ({'cluster': {'worker': 'a:1'}, 'task': {'type': 'worker', 'index': 0}}, 'list of addr'),
        ({'cluster': {'worker': ['a']}, 'task': {'type': 'worker', 'index': 0}}, 'host:port'),
        (
            {'cluster': {'worker': ['a:1', 'a:1']}, 'task': {'type': 'worker', 'index': 0}},
            'more than once: a:1',
        ),
        (
            {'cluster': {'chief': ['a:1', 'b:1']}, 'task': {'type': 'chief', 'index': 0}},
            'cluster.chief: expected one',
        ),
        ({'cluster': {'boss': ['a:1']}, 'task': {'type': 'boss', 'index': 0}}, r"\['boss'\]"),
    ],
)
def test_mistakes_are_reported(content, said):
    with pytest.raises(ConfigError, match=f'^TF_CONFIG: .*{said}'):
        cluster.read(1, {'TF_CONFIG': json.dumps(content)})


def test_text_that_is_no_json_is_reported():
    with pytest.raises(ConfigError, match=r'^TF_CONFIG: expected JSON .*Received: \{cluster'):
        cluster.read(1, {'TF_CONFIG': '{cluster'})


def test_the_flag_must_agree():
    with pytest.raises(ConfigError, match=r'TF_CONFIG names 2\. Received: 3'):
        _read(3, cluster=TWO, task={'type': 'worker', 'index': 0})
    with pytest.raises(ConfigError, match=r'there are no such variables\. Received: 2'):
        cluster.read(2, {})
    with pytest.raises(ConfigError, match=r'^--num_workers: expected 1 or more. Received: 0'):
        cluster.read(0, {})


def test_workers_of_one_machine_are_counted():
    addresses = ('a:1', 'a:2', 'b:1', 'a:3')
    places = [cluster.Cluster(addresses, index) for index in range(4)]
    assert [place.local_index for place in places] == [0, 1, 0, 2]
    assert [place.local_size for place in places] == [3, 3, 1, 3]
    assert (cluster.Cluster().local_index, cluster.Cluster().local_size) == (0, 1)


def test_tf_config_has_the_addresses_already():
    content = {'cluster': TWO, 'task': {'type': 'worker', 'index': 0}}
    with pytest.raises(ConfigError, match=r'^--worker_hosts, --worker_port: expected no TF_CONFIG'):
        cluster.read(1, {'TF_CONFIG': json.dumps(content)}, port=5)
