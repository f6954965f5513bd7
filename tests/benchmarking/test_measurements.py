"""Measurements of tiny models: the values are plausible and fit each other."""

import numpy as np
import pytest
from google.protobuf import text_format
from PIL import Image

from object_detection.benchmarking import inference, jobs, rows
from object_detection.benchmarking.jobs import BenchmarkJob
from object_detection.errors import UserError
from tests.tiny_models import tiny_pipeline


@pytest.fixture(autouse=True)
def small_products(monkeypatch):
    monkeypatch.setattr(rows, '_SIDE', 32)


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp('benchmark') / 'tiny.config'
    path.write_text(text_format.MessageToString(tiny_pipeline()))
    return str(path)


@pytest.mark.slow
def test_inference_of_a_config_and_of_photos(config, tmp_path):
    job = BenchmarkJob(task=jobs.EXPORT, source=config, is_config=True, output=str(tmp_path / 'x'))
    made = inference.export(job, 0.0)
    assert made == {'image_size': (64, 64), 'precision': 'float32'}
    job = BenchmarkJob(task=jobs.INFERENCE, source=job.output, batch_size=2, steps=3, warmup=0)
    found = inference.measure(job, 0.0)
    assert 0 < found['fastest'] <= found['p50'] <= found['p90'] <= found['p99']
    assert found['images_per_second'] == pytest.approx(2 / found['mean'])
    assert found['precision'] == 'float32'
    assert 0 < found['detections'] <= 6
    assert found['convolutions'] > 0
    assert found['share_of_matmul'] == pytest.approx(found['rate'] / found['matmul_rate'])
    parts = {each['part']: each for each in found['parts']}
    names = {'preprocess', 'backbone', 'fpn', 'rpn_head', 'proposals', 'roi_align', 'box_head'}
    assert names | {'mask_head', 'detections'} <= set(parts)
    gigaflop = sum(each['gigaflop'] for each in parts.values())
    assert gigaflop == pytest.approx(found['gigaflop'])

    for name, size in (('a.png', (50, 40)), ('b.png', (30, 60))):
        Image.fromarray(np.full((*size, 3), 90, np.uint8)).save(tmp_path / name)
    photos = tuple(str(tmp_path / name) for name in ('a.png', 'b.png'))
    job = BenchmarkJob(task=jobs.INFERENCE, source=job.source, images=photos, steps=1, warmup=1)
    assert inference.measure(job, 0.0)['image_size'] == [50, 40]
    batches = inference._batches(job, (50, 40))
    assert [next(batches).shape for _ in range(3)] == [
        (1, 50, 40, 3),
        (1, 30, 60, 3),
        (1, 50, 40, 3),
    ]


@pytest.mark.slow
@pytest.mark.parametrize('task', [jobs.INFERENCE, jobs.TRAINING])
def test_replicas_share_a_batch(config, task):
    job = BenchmarkJob(
        **{'task': task, 'source': config, 'is_config': True, 'batch_size': 2, 'steps': 2},
        **{'warmup': 1, 'strategy': 'mirrored', 'logical_cpus': 2},
    )
    found = jobs.run_alone(job)
    assert found['replicas'] == 2
    assert len(found['devices']) == 2
    assert found['images_per_second'] > 0
    with pytest.raises(UserError, match='--batch_size: expected a multiple of 2'):
        jobs.run_alone(
            jobs.read(
                f'{{"task": "{task}", "source": "{config}", "is_config": true, '
                '"strategy": "mirrored", "logical_cpus": 2, "batch_size": 3}'
            )
        )


@pytest.mark.slow
def test_training_of_a_config(config):
    job = BenchmarkJob(
        **{'task': jobs.TRAINING, 'source': config, 'is_config': True, 'steps': 2},
        **{'threads': 1, 'settings': ('model.faster_rcnn.pad_mask_rois=false',)},
    )
    found = jobs.run_alone(job)
    assert 0 < found['imports'] < found['first']
    assert np.isfinite(found['loss'])
    names = {each['part'] for each in found['parts']}
    assert {'backbone gradient', 'mask_head', 'mask_head gradient', 'loss'} <= names
    with pytest.raises(UserError, match=r'nothing\.config'):
        jobs.run_alone(BenchmarkJob(task=jobs.TRAINING, source='nothing.config'))
