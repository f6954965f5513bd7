"""The job that adds context, on generated records."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest
from PIL import Image

from object_detection.core import tf_example_keys as keys
from object_detection.data import decoder as decoders
from object_detection.data import tf_examples
from object_detection.dataset_tools.context_rcnn import banks, context, context_records
from object_detection.dataset_tools.context_rcnn.options import ContextOptions
from object_detection.dataset_tools.converters import beam_runners, sharded_writer
from object_detection.errors import UserError
from tests import rows, slow_cases
from tests.dataset_tools.context_rcnn import examples


def _run(path: str, output, **options) -> dict:
    return context.run(ContextOptions(input_tfrecord=path, output_tfrecord=str(output), **options))


def _bank(example) -> np.ndarray:
    length = example.integers(keys.CONTEXT_FEATURE_LENGTH)[0]
    return example.floats(keys.CONTEXT_FEATURES).reshape(-1, length)


def test_groups_of_any_key(tmp_path):
    number = tf_examples.int64_feature
    path = examples.write(
        tmp_path / 'in.record',
        [
            examples.example(3, camera=number([7])),
            examples.example(2, camera=number([7])),
            examples.example(1, camera=number([8]), date_captured=b''),
            examples.example(10, camera=number([8]), date_captured=b''),
        ],
    )
    _run(path, tmp_path / 'out', sequence_key='image/camera', sorted_image_ids=False)
    found = examples.read_set(tmp_path / 'out')
    # By date, and without dates by source id as text.
    assert [_bank(each)[:, 0].tolist() for each in found] == [[1, 10], [1, 10], [2, 3], [2, 3]]
    own = [list(each.integers(keys.CONTEXT_INDICES)) for each in found]
    assert own == [[0], [1], [0], [1]]


def test_an_image_with_more_than_the_maximum_keeps_its_best(tmp_path):
    scores = {1: [0.5], 2: [0.1, 0.9, 0.3, 0.8], 3: [0.2, 0.2]}
    path = examples.write(
        tmp_path / 'in.record', [examples.example(i, each) for i, each in scores.items()]
    )
    report = _run(path, tmp_path / 'out', max_num_elements_in_context_features=2)
    assert (report['banks'], report['images_over_maximum']) == (3, 1)
    first, second, third = examples.read_set(tmp_path / 'out')
    # Of the second image, embeddings 1 and 3 have the best scores.
    np.testing.assert_array_equal(_bank(second), [[2, 2, 1], [2, 2, 3]])
    assert list(second.integers(keys.CONTEXT_INDICES)) == [0, 1]
    assert (len(_bank(first)), len(_bank(third))) == (1, 2)
    assert list(second.integers(keys.EMBEDDING_COUNT)) == [4]


def test_a_bank_may_be_empty(tmp_path):
    path = examples.write(tmp_path / 'in.record', [examples.example(i, []) for i in (1, 2)])
    report = _run(path, tmp_path / 'out', context_feature_length=5)
    assert report['context_features'] == 0
    (output,) = tmp_path.glob('out-*')
    decoder = decoders.ExampleDecoder(fields=['context_features'])
    for place in context.records.places(str(output)):
        serialized = context.tf_record_files.read_record(*place[:2])
        decoded = decoder(serialized)
        assert decoded['context_features'].shape == (0, 5)


def test_embeddings_of_another_length_are_left_out(tmp_path):
    lengths = {1: 3, 2: 3, 3: 4}
    path = examples.write(
        tmp_path / 'in.record', [examples.example(i, length=n) for i, n in lengths.items()]
    )
    report = _run(path, tmp_path / 'out')
    assert report['images_of_other_length'] == 1
    found = examples.read_set(tmp_path / 'out')
    assert [_bank(each)[:, 0].tolist() for each in found] == [[1, 2]] * 3
    assert list(found[2].integers(keys.CONTEXT_INDICES)) == [2001]


def _sequence(**lists: list[bytes]) -> bytes:
    """A sequence of a camera; image 2 has no list of its objects."""
    frames = [2, 0, 1]
    files = [tf_examples.bytes_feature([examples.image_file(seed=i)]) for i in frames]
    ids = [tf_examples.bytes_feature([f'img{i}'.encode()]) for i in frames]
    annotated = [tf_examples.int64_feature([i < 2]) for i in frames]
    named = {keys.ENCODED: files, keys.SOURCE_ID: ids, keys.IS_ANNOTATED: annotated}
    context_features = {keys.MEDIA_ID: tf_examples.bytes_feature([b'm'])}
    return tf_examples.serialize_sequence(context_features, {**named, **lists})


def test_frames_that_are_not_annotated_are_not_written(tmp_path):
    path = examples.write(tmp_path / 'in.record', [_sequence()])
    report = _run(path, tmp_path / 'out', sequence_key=keys.MEDIA_ID)
    assert (report['images'], report['frames_not_annotated']) == (2, 1)
    found = examples.read_set(tmp_path / 'out')
    assert [each.texts(keys.ENCODED)[0] for each in found] == [
        examples.image_file(seed=i) for i in (0, 1)
    ]


@rows.parametrize(
    ('lists', 'match'),
    [
        ({keys.ENCODED: []}, r'in.record, byte 12: expected image/encoded for each frame'),
        ({keys.LOCATION: [tf_examples.bytes_feature([b'A'])]}, r'byte 12: expected 3 .*: 1}'),
        ({keys.ENCODED: [tf_examples.bytes_feature([])] * 3}, r"'img2' \(.*expected image/encoded"),
    ],
)
def test_sequences_that_cannot_be_used_are_named(tmp_path, lists, match):
    path = examples.write(tmp_path / 'in.record', [_sequence(**lists)])
    with pytest.raises(UserError, match=match):
        _run(path, tmp_path / 'out', sequence_key=keys.MEDIA_ID)


@rows.parametrize('kind', ['JPEG', 'PNG'])
def test_large_images_are_reduced_with_what_is_in_pixels(tmp_path, kind):
    encoded = examples.image_file(30, 60, kind=kind)
    others = {
        'encoded': tf_examples.bytes_feature([encoded]),
        'format': tf_examples.bytes_feature([kind.lower().encode()]),
        'object/area': tf_examples.float_feature([100.0]),
    }
    broken = {'encoded': tf_examples.bytes_feature([encoded[:40]])}
    path = examples.write(
        tmp_path / 'in.record',
        [examples.example(1, **others), examples.example(2), examples.example(3, **broken)],
    )
    report = _run(path, tmp_path / 'out', max_image_dimension=32)
    assert (report['images_reduced'], report['images_not_reduced']) == (1, 1)
    reduced, small, same = examples.read_set(tmp_path / 'out')
    assert Image.open(io.BytesIO(reduced.texts(keys.ENCODED)[0])).size == (32, 16)
    assert reduced.text(keys.FORMAT) == 'jpeg'
    assert (reduced.integers(keys.HEIGHT)[0], reduced.integers(keys.WIDTH)[0]) == (16, 32)
    assert reduced.floats(keys.AREA).tolist() == pytest.approx([100 * 16 * 32 / (30 * 60)])
    assert small.texts(keys.ENCODED)[0] == examples.image_file(seed=2)
    assert same.texts(keys.ENCODED)[0] == encoded[:40]


@rows.parametrize(
    ('record', 'options', 'match'),
    [
        ({'encoded': b''}, {}, r"'img1' \(.*in.record, byte 12\): expected image/encoded"),
        ({'location': b''}, {}, r"--sequence_key: .*image/location.*'img1' \(.*in.record, byte 12"),
        ({'date_captured': b''}, {'time_horizon': 'day'}, '--time_horizon: expected image/date'),
        ({'embedding_count': tf_examples.int64_feature([2])}, {}, 'expected image/embedding of'),
        (
            {'object/mask': tf_examples.bytes_feature([b'x'])},
            {'max_image_dimension': 4},
            '--reduce_image_size: expected images without image/object/mask',
        ),
        ({}, {'image_ids_to_keep': 'absent.json'}, '--image_ids_to_keep: absent.json cannot be'),
        ({}, {'max_clip_length': 3}, '--max_clip_length: expected --output_type tf_sequence_exa'),
        (
            {},
            {'reduce_image_size': False, 'max_image_dimension': 8},
            '--max_image_dimension: .*--noreduce_image_size',
        ),
        (
            {},
            {'context_features_score_threshold': 0.5},
            '--context_features_score_threshold: expected --keep_only_positives ',
        ),
        ({}, {'pad_context_features': True, 'add_context_features': False}, '--pad_context'),
    ],
)
def test_what_cannot_be_used_is_named_and_nothing_is_left(tmp_path, record, options, match):
    path = examples.write(tmp_path / 'in.record', [examples.example(1, **record)])
    with pytest.raises(UserError, match=match):
        _run(path, tmp_path / 'out', **options)
    assert not list(tmp_path.glob('out-*'))


def test_corrupt_and_absent_inputs(tmp_path):
    path = tmp_path / 'in.record'
    path.write_bytes(b'no records at all')
    with pytest.raises(UserError, match=r'in\.record is no TFRecord file'):
        _run(str(path), tmp_path / 'out')
    with pytest.raises(UserError, match=r'--input_tfrecord: expected TFRecord files.*absent'):
        _run(str(tmp_path / 'absent*'), tmp_path / 'out')
    (tmp_path / 'set-00000-of-00002').touch()
    with pytest.raises(UserError, match='all 2 files of a set'):
        _run(str(tmp_path / 'set-*'), tmp_path / 'out')


def test_ids_to_keep_and_all_of_them_left_out(tmp_path):
    path = examples.write(tmp_path / 'in.record', [examples.example(i) for i in range(4)])
    ids = tmp_path / 'ids.json'
    ids.write_text(json.dumps(['img1', 'img3', 'other']))
    report = _run(path, tmp_path / 'out', image_ids_to_keep=str(ids))
    assert (report['images'], report['records'], report['banks']) == (2, 2, 1)
    assert [len(_bank(each)) for each in examples.read_set(tmp_path / 'out')] == [4, 4]
    ids.write_text('["other"]')
    with pytest.raises(UserError, match='no record would be written'):
        _run(path, tmp_path / 'other', image_ids_to_keep=str(ids))


def test_an_output_with_fewer_images_may_not_replace_the_input(tmp_path):
    for shard in range(2):
        examples.write(tmp_path / f'a-{shard:05d}-of-00002', [examples.example(shard)])
    before = examples.contents(tmp_path)
    ids = tmp_path / 'ids.json'
    ids.write_text('["img1"]')
    for num_shards in (1, 2):
        with pytest.raises(UserError, match=r'--input_tfrecord: .*image_ids_to_keep.*a-00000-of'):
            _run(
                f'{tmp_path}/a-*',
                tmp_path / 'a',
                image_ids_to_keep=str(ids),
                num_shards=num_shards,
            )
    ids.unlink()
    assert examples.contents(tmp_path) == before


def test_clips_have_a_budget_of_bytes(tmp_path, monkeypatch):
    path = examples.write(tmp_path / 'in.record', [examples.example(i) for i in range(5)])
    sizes = [len(examples.image_file(seed=i)) for i in range(5)]
    monkeypatch.setattr(context_records, 'CLIP_BYTES', sum(sizes[:2]))
    # Images differ by few bytes.
    assert sum(sizes[:2]) < sum(sorted(sizes)[:3])
    expected = banks.within_bytes(range(5), sizes, sum(sizes[:2]))
    report = _run(path, tmp_path / 'out', output_type='tf_sequence_example')
    assert report['records'] == len(expected) >= 3
    assert (report['images'], report['banks']) == (5, 1)
    (output,) = tmp_path.glob('out-*')
    for place, clip in zip(context.records.places(str(output)), expected, strict=True):
        frames = context.records.Reader().read_all(place)
        assert [each.text(keys.SOURCE_ID) for each in frames] == [f'img{i}' for i in clip]
        # All clips have the whole bank.
        assert [_bank(each)[:, 0].tolist() for each in frames] == [list(range(5))] * len(clip)


def test_parts_of_a_clip():
    parts = banks.within_bytes(range(2, 8), [9, 9, 3, 2, 7, 1, 1, 1], 5)
    assert parts == [range(2, 4), range(4, 5), range(5, 8)]
    # The reader's limit is not reached.
    assert context_records._MAX_SEQUENCE_BYTES < context.tf_record_files._MAX_RECORD


def test_a_bank_counts_for_the_size_of_a_clip(tmp_path, monkeypatch):
    path = examples.write(tmp_path / 'in.record', [examples.example(1, length=1000)])
    size = len(examples.image_file(seed=1))
    monkeypatch.setattr(context_records, '_MAX_SEQUENCE_BYTES', size + 3000)
    with pytest.raises(UserError, match='--max_clip_length: expected clips whose images and'):
        _run(path, tmp_path / 'out', output_type='tf_sequence_example')


def _write_cameras(folder, num_images: int) -> str:
    """Two shards of images of two cameras, in no order."""
    order = np.random.default_rng(0).permutation(num_images)
    for shard in range(2):
        examples.write(
            folder / f'in-{shard:05d}-of-00002',
            [
                examples.example(
                    int(i),
                    [0.5] * (i % 3),
                    location=tf_examples.bytes_feature([b'AB'[i % 2 :][:1]]),
                )
                for i in order[shard::2]
            ],
        )
    return str(folder / 'in-?????-of-00002')


@slow_cases.parametrize(1, 'output_type', ['tf_example', 'tf_sequence_example'])
def test_workers_write_the_same(tmp_path, output_type):
    pattern = _write_cameras(tmp_path, 40)
    options = {
        'output_type': output_type,
        'max_clip_length': 4 if output_type == 'tf_sequence_example' else None,
        'max_num_elements_in_context_features': 7,
        'num_shards': 3,
    }
    found = []
    for workers in (1, 2):
        report = _run(pattern, tmp_path / f'out{workers}' / 'a', workers=workers, **options)
        assert report['images'] == 40
        found.append(examples.contents(tmp_path / f'out{workers}'))
    assert found[0] == found[1]
    assert set(found[0]) == {f'a-{i:05d}-of-00003' for i in range(3)}


_KILLED = """
import sys
from object_detection.dataset_tools.context_rcnn import context
from object_detection.dataset_tools.context_rcnn.options import ContextOptions
context.run(ContextOptions(input_tfrecord=sys.argv[1], output_tfrecord=sys.argv[2], num_shards=8))
"""


@pytest.mark.slow
def test_a_killed_job_leaves_no_incomplete_shard(tmp_path):
    pattern = _write_cameras(tmp_path, 400)
    out = tmp_path / 'out'
    out.mkdir()
    (out / 'a-00000-of-00001').write_text('of an earlier run')
    arguments = [sys.executable, '-c', _KILLED, pattern, str(out / 'a')]
    job = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not list(out.glob('a-*-of-00008.tmp-*')):
            assert job.poll() is None, 'the job ended before it could be killed'
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        job.kill()
    assert job.wait() == -signal.SIGKILL
    left = sorted(path.name for path in out.iterdir())
    assert [name for name in left if '.tmp-' not in name] == ['a-00000-of-00001']
    assert len(left) > 1
    _run(pattern, out / 'a', num_shards=8)
    other = tmp_path / 'other'
    _run(pattern, other / 'a', num_shards=8)
    assert examples.contents(out) == examples.contents(other)


@pytest.mark.slow  # Four starts of workers.
def test_a_killed_local_worker_ends_the_job(tmp_path):
    pattern = _write_cameras(tmp_path, 600)

    out = tmp_path / 'out'
    words = ['--input_tfrecord', pattern, '--output_tfrecord', str(out / 'a'), '--num_shards', '8']
    program = [sys.executable, '-m', 'object_detection.cli.main', 'context', 'add', *words]
    job = subprocess.Popen([*program, '--workers', '2'], stderr=subprocess.PIPE, text=True)
    try:
        while not sharded_writer.temporary_files(str(out / 'a')):
            assert job.poll() is None, 'the job ended before a worker could be killed'
            time.sleep(0.005)
        children = psutil.Process(job.pid).children(recursive=True)
        next(each for each in children if beam_runners.__name__ in each.cmdline()).kill()
        _, said = job.communicate(timeout=60)
    finally:
        job.kill()
    assert job.returncode == 1
    assert 'Error: A worker process ended before its work was done' in said
    assert not list(out.iterdir())
    for name, workers in (('out', 2), ('other', 1)):
        _run(pattern, tmp_path / name / 'a', num_shards=8, workers=workers)
    assert examples.contents(tmp_path / 'out') == examples.contents(tmp_path / 'other')


@pytest.mark.slow
def test_a_killed_worker_costs_no_record(tmp_path):
    distributed = pytest.importorskip(
        'distributed', reason='the Dask runner needs `pip install "apache-beam[dask]"`'
    )
    pattern = _write_cameras(tmp_path, 600)
    options = {'num_shards': 8, 'max_num_elements_in_context_features': 50}
    _run(pattern, tmp_path / 'local' / 'a', **options)
    killed = []
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        with distributed.Client(cluster) as client:
            pid, _ = client.run(os.getpid).values()

        def kill() -> None:
            # A bank or a shard is being written.
            while not sharded_writer.temporary_files(str(tmp_path / 'out' / 'a')):
                time.sleep(0.005)
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        try:
            report = context.run(
                ContextOptions(
                    input_tfrecord=pattern,
                    output_tfrecord=str(tmp_path / 'out' / 'a'),
                    runner='apache_beam.runners.dask.dask_runner.DaskRunner',
                    **options,
                ),
                [
                    f'--dask_client_address={cluster.scheduler_address}',
                    '--dask_npartitions=8',
                ],
            )
        finally:
            # Beam leaves it connected.
            distributed.default_client().close()
        thread.join()
    assert killed == [pid]
    assert report['images'] == 600
    assert examples.contents(tmp_path / 'out') == examples.contents(tmp_path / 'local')


def test_what_is_grouped_is_smaller_than_an_embedding(tmp_path):
    large = np.zeros(2057, np.float32)
    path = examples.write(
        tmp_path / 'in.record',
        [examples.example(1, embedding=tf_examples.float_feature(large), length=2057)],
    )
    ((key, row),) = context.rows_of_file((0, path), keys.LOCATION, None)
    assert key == 'A'
    assert len(row) < 300 < large.nbytes
    ((_, plan),) = context.plans_of_group((key, [row]), ContextOptions(), 1)
    assert len(plan) < 600
