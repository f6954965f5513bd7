"""The configs that the benchmark of a cascade compares."""

import importlib
import pathlib

import pytest

from object_detection.config import reader

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('cascade')


def test_the_two_differ_in_their_stages_alone(benchmark):
    text = (benchmark.learned.SAMPLES / f'{benchmark._SAMPLE}.config').read_text()
    file = pathlib.Path('detections.json')
    plain, cascade = (
        reader.parse_pipeline(benchmark.changed(text, stages=stages, detections=file), '')
        for stages in ((), benchmark._CASCADE)
    )
    stages = cascade.model.faster_rcnn.cascade_stages
    assert [round(stage.iou_threshold, 6) for stage in stages] == [0.6, 0.7]
    del stages[:]
    assert cascade == plain
    assert not plain.model.faster_rcnn.feature_extractor.HasField('box_head_depth')
