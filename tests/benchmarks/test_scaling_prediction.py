"""Predictions are those of formulas that can be computed by hand, and are told."""

import importlib
import json
import pathlib

import pytest
from click.testing import CliRunner

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'


@pytest.fixture
def prediction(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('scaling_prediction')


@pytest.fixture
def model(prediction):
    return importlib.import_module('scaling_model')


def build(model, *, trained=25, first_pass=0.0, link_share=1.0, jitter=0.0, **measured):
    """A model of 100 bytes of gradients in float32, where nothing else takes time."""
    nothing = {'loop_seconds': 0.0, 'looped_seconds': 0.0, 'images_per_core': 1e9}
    return model.Model(
        model.Measured(**{**nothing, **measured}),
        model.Recipe(trained=trained, first_pass_share=first_pass, backward_share=0.5),
        model.Assumed(link_share=link_share, jitter=jitter),
    )


def network(model, inside=50.0, between=10.0, hop=0.0):
    return model.Network('', inside, between, hop, hop)


def test_ring(model):
    assert model.ring(100.0, 1, 50.0, 1.0) == 0.0
    # Each of two sends half of it twice, with a hop each time.
    assert model.ring(100.0, 2, 50.0, 0.5) == pytest.approx(2.0 + 1.0)
    assert model.ring(100.0, 4, 50.0, 0.5, messages=3) == pytest.approx(3.0 + 9.0)


def test_reduction_within_a_machine_and_between(model):
    settings = model.Settings()
    built = build(model)
    assert built.reduction(1, network(model), settings) == 0.0
    assert built.reduction(8, network(model), settings) == pytest.approx(2 * 7 / 8 * 100 / 50)
    # Two machines: all bytes leave each of them once more, in two halves.
    own, other = 2 * 7 / 8 * 100 / 50, 100 / 10
    assert built.reduction(16, network(model), settings) == pytest.approx(own + other)
    # A message of gradients and one of losses, over 14 hops inside and 2 between.
    hops = built.reduction(16, network(model, hop=1.0), settings)
    assert hops == pytest.approx(own + other + 2 * (14 + 2))
    slower = build(model, link_share=0.5)
    assert slower.reduction(16, network(model), settings) == pytest.approx(2 * (own + other))


def test_settings_of_the_reduction(model):
    built = build(model, ring_rate=5.0)
    half = model.Settings(in_bfloat16=True)
    assert built.reduction(8, network(model), half) == pytest.approx(7 / 8 * 100 / 50)
    # One ring of all, at the rate of the processes.
    ring = model.Settings(uses_nccl=False)
    assert built.reduction(16, network(model), ring) == pytest.approx(2 * 15 / 16 * 100 / 5)
    assert built.packs(model.Settings()) == 1
    assert built.packs(model.Settings(bytes_per_pack=25)) == 4


def test_what_backward_hides(model):
    accelerator = model.Accelerator('', {1: 0.1})
    settings = {'batch': 1, 'jit_compile': False}

    def step(network, **others):
        return build(model, first_pass=0.2).step(
            accelerator, network, 2, model.Settings(**settings | others)
        )

    # 10 s of computing, of which 5 are backward; 2 s of reduction.
    plain = step(network(model))
    assert (plain['compute'], plain['reduction'], plain['hidden']) == (10.0, 2.0, 0.0)
    assert plain['step'] == pytest.approx(12.0)
    assert plain['efficiency'] == pytest.approx(10 / 12)
    assert plain['images_per_second'] == pytest.approx(2 / 12)
    # All but the last of 4 packs.
    assert step(network(model), bytes_per_pack=25)['hidden'] == pytest.approx(1.5)
    # No more than the time of the backward pass.
    assert step(network(model, inside=5.0), bytes_per_pack=25)['hidden'] == pytest.approx(5.0)
    # One program gives all gradients at its end, and counts beforehand.
    compiled = step(network(model), bytes_per_pack=25, jit_compile=True)
    assert (compiled['hidden'], compiled['first_pass']) == (0.0, pytest.approx(2.0))
    in_parts = step(network(model), batch=2, bytes_per_pack=25, parts=2)
    assert (in_parts['compute'], in_parts['hidden']) == (20.0, 0.0)
    assert in_parts['first_pass'] == pytest.approx(4.0)


def test_one_accelerator_is_the_published_speed(model):
    row = build(model, first_pass=0.2, jitter=0.1, process_seconds=1.0).step(
        model.Accelerator('', {2: 4.0, 4: 5.0}), network(model), 1, model.Settings(batch=4)
    )
    assert row['efficiency'] == 1.0
    assert row['images_per_second'] == pytest.approx(5.0)


def test_published_speeds_by_batch(model):
    accelerator = model.Accelerator('', {2: 4.0, 4: 5.0})
    assert [accelerator.speed(batch) for batch in (1, 2, 3, 4, 8)] == [4.0, 4.0, 4.0, 5.0, 5.0]


def test_input_too_slow(model):
    accelerator = model.Accelerator('', {4: 2.0})

    def step(cores):
        settings = model.Settings(batch=4, cores=cores)
        return build(model, images_per_core=4.0).step(accelerator, network(model), 1, settings)

    # 2 s of computing; a core gives 4 images a second.
    assert step(1.0)['step'] == pytest.approx(2.0)
    assert step(1.0)['waits_for'] == 'devices'
    slow = step(0.25)
    assert (slow['input'], slow['step'], slow['waits_for']) == (4.0, 4.0, 'input')
    assert slow['efficiency'] == pytest.approx(0.5)


def test_host(model):
    built = build(model, loop_seconds=0.9e-3, looped_seconds=0.12e-3, process_seconds=1.0)
    assert built.host(8, model.Settings()) == pytest.approx(0.9e-3)
    assert built.host(8, model.Settings(steps_per_loop=100)) == pytest.approx(0.12e-3)
    assert built.host(16, model.Settings()) == pytest.approx(1.0009)


def test_slowest(model):
    assert model.slowest_of(1) == pytest.approx(0.0)
    # Tables of order statistics: 0.564, 1.424, and 3.04 of 512.
    assert model.slowest_of(2) == pytest.approx(0.564, rel=0.05)
    assert model.slowest_of(8) == pytest.approx(1.424, rel=0.01)
    assert model.slowest_of(512) == pytest.approx(3.04, rel=0.01)


def test_skipping(model):
    measured = model.Measured(skip_record_seconds=2.0, skip_byte_seconds=0.5)
    assert model.skip_seconds(measured, 10, 100, 2) == pytest.approx((20 + 50) / 2)


def workers_row(kind, count, seconds, reduction):
    return {
        'kind': kind,
        'count': count,
        'cpu_seconds': seconds,
        'reduction_cpu_seconds': reduction,
        'reduction_seconds': reduction,
        'megabytes': 10.0,
    }


def test_what_other_programs_measured(model, tmp_path):
    rows = [
        workers_row('replicas', 1, 1.0, 0.1),
        workers_row('replicas', 2, 1.5, 0.2),
        workers_row('processes', 2, 2.5, 0.4),
    ]
    # Beyond the replicas: 1 s, of which 0.2 are reduction; each of the two sends 10 MB in 0.4 s.
    assert model.of_workers(rows) == pytest.approx({'process_seconds': 0.4, 'ring_rate': 25e6})
    assert model.of_workers(rows[:1]) == {}
    assert model.of_workers([rows[0], rows[2]]) == pytest.approx({'ring_rate': 25e6})
    starts = [
        {'records': records, 'seconds': seconds, 'cpu_seconds': seconds}
        for records, seconds in ((0, 5.0), (500, 6.0), (1000, 8.0), (0, 4.0))
    ]
    found = model.of_resume(starts)
    assert found == pytest.approx({'start_seconds': 5.0, 'skip_record_seconds': 0.003})

    assert model.read_measured(tmp_path, {}) == model.Measured()
    (tmp_path / 'scaling_workers.json').write_text(json.dumps(rows))
    (tmp_path / 'resume.json').write_text(json.dumps(starts))
    read = model.read_measured(tmp_path, {'ring_rate': 7.0, 'start_seconds': None})
    assert (read.process_seconds, read.ring_rate) == (pytest.approx(0.4), 7.0)
    assert read.start_seconds == 5.0


def test_tables(prediction, tmp_path):
    path = tmp_path / 'out.json'
    words = ['--json', str(path), '--results', str(tmp_path), '--save_seconds', '2']
    ran = CliRunner().invoke(prediction.main, words, catch_exceptions=False)
    assert ran.exit_code == 0
    rows = json.loads(path.read_text())
    by_table = {}
    for row in rows:
        by_table.setdefault(row['table'], []).append(row)
    assert list(by_table) == [
        'steps',
        'settings',
        'batches',
        'input',
        'failures',
        'data',
        'published',
    ]
    counts = [row['count'] for row in by_table['steps']]
    assert counts == [8, 64, 512] * len({row['network'] for row in by_table['steps']})
    # More accelerators, or slower links, are never more efficient.
    by_count = [
        [row['efficiency'] for row in by_table['steps'] if row['count'] == count]
        for count in (8, 64, 512)
    ]
    assert all(each == sorted(each, reverse=True) for each in by_count)
    assert all(a >= b >= c for a, b, c in zip(*by_count, strict=True))
    (failures, *_) = by_table['failures']
    # Young's interval of a failure a year, and a save of 2 s.
    assert failures['interval'] == pytest.approx((2 * 2 * 365 * 86400) ** 0.5)
    assert failures['lost'] < failures['default_lost']
    coco, many = by_table['data']
    assert coco['images'] == pytest.approx(118_287)
    assert many['images'] == pytest.approx(1e9 / 860_001 * 118_287)
    assert '137,542,863' in ran.output


def test_counts_and_accelerator_are_chosen(prediction, tmp_path):
    path = tmp_path / 'out.json'
    words = ['--json', str(path), '--results', str(tmp_path), '--count', '16', '--batch', '2']
    ran = CliRunner().invoke(prediction.main, [*words, '--accelerator', 'V100'])
    assert ran.exit_code == 0
    (first, *_) = json.loads(path.read_text())
    assert (first['accelerator'], first['count'], first['batch']) == ('V100 FP32', 16, 2)
    assert first['compute'] == pytest.approx(2 / 7.57)
