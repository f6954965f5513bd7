"""Where the class names of a trained model are found, whatever folder a command runs in."""

import logging

import pytest

from object_detection.config.job_options import EvalOptions
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.runtime import class_names
from object_detection.training import resolve_config


def _write(path, name):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"item {{ id: 1 name: '{name}' }}")


def _names(prefix='', config='geti/pipeline.config', path='data/my_label_map.pbtxt'):
    pipeline = TrainEvalPipelineConfig()
    pipeline.train_input_reader.label_map_path = path
    return class_names.parse(
        class_names.read_text(pipeline, checkpoint=prefix, config_path=config)
    ).names


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The folder above that of a training."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_of_the_model_dir(elsewhere):
    _write(elsewhere / 'geti/model/resolved_label_map.pbtxt', 'stored')
    assert _names('geti/model/ckpt-3') == {1: 'stored'}
    assert _names('geti/model/best/ckpt-0') == {1: 'stored'}


def test_the_stored_one_is_before_a_relative_path_and_that_of_the_config_is_last(elsewhere, caplog):
    assert _names('geti/model/ckpt-3') == {}
    assert 'no class names, because label_map_path cannot be used: Label map data/my' in caplog.text
    _write(elsewhere / 'geti/data/my_label_map.pbtxt', 'relative')
    assert _names('geti/model/ckpt-3', '') == {}
    with caplog.at_level(logging.INFO):
        assert _names('geti/model/ckpt-3') == {1: 'relative'}
    assert 'class names are those of geti/data/my_label_map.pbtxt' in caplog.text
    _write(elsewhere / 'data/my_label_map.pbtxt', 'other')
    assert _names('geti/model/ckpt-3') == {1: 'other'}
    assert 'has others' not in caplog.text
    # The folder of another project, whose data have the same path.
    _write(elsewhere / 'geti/model/resolved_label_map.pbtxt', 'stored')
    assert _names('geti/model/ckpt-3') == {1: 'stored'}
    assert 'data/my_label_map.pbtxt has others, which --label_map takes' in caplog.text


def test_an_absolute_path_is_first(elsewhere):
    _write(elsewhere / 'geti/model/resolved_label_map.pbtxt', 'stored')
    _write(elsewhere / 'data/my_label_map.pbtxt', 'first')
    path = str(elsewhere / 'data/my_label_map.pbtxt')
    assert _names('geti/model/ckpt-3', path=path) == {1: 'first'}


def test_of_an_evaluation(elsewhere, monkeypatch):
    read = TrainEvalPipelineConfig()
    read.eval_input_reader.add().label_map_path = 'data/my_label_map.pbtxt'
    monkeypatch.setattr(resolve_config.reader, 'read_pipeline', lambda *_, **__: read)
    monkeypatch.setattr(resolve_config, '_validate', lambda *_, **__: None)
    for stored in ('geti/data/my_label_map.pbtxt', 'geti/model/resolved_label_map.pbtxt'):
        _write(elsewhere / stored, 'cat')
        pipeline = resolve_config.read(
            'geti/pipeline.config', EvalOptions(), for_what='eval', checkpoint='geti/model'
        )
        assert pipeline.eval_input_reader[0].label_map_path == stored
        read.eval_input_reader[0].label_map_path = 'data/my_label_map.pbtxt'
