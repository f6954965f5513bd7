"""The process that evaluates beside a training: what it does, and that it is the same."""

import logging
import multiprocessing
import os
import threading

import pytest
import tensorflow as tf

from object_detection.config import synthetic_data
from object_detection.config.job_options import EvalOptions
from object_detection.training.checkpoints import manager
from object_detection.training.distribution import devices
from object_detection.training.evaluation import worker as evaluation_process
from object_detection.training.evaluation.async_evaluation import AsyncEvaluation
from object_detection.training.evaluation.eval_job import evaluate_checkpoint
from object_detection.training.evaluation.worker import DONE, LOG, Job
from object_detection.training.monitoring import history
from tests import tiny_models
from tests.training import fakes


@pytest.fixture
def logger():
    """The package's, which the process takes for itself, put back afterwards."""
    logger = logging.getLogger('object_detection')
    before = logger.handlers, logger.level, logger.propagate
    yield logger
    logger.handlers, logger.level, logger.propagate = before


def _save(directory, model, step):
    saver = manager.Checkpoints(
        str(directory),
        model=model.named_variables(),
        optimizer={},
        step=tf.Variable(step, dtype=tf.int64),
    )
    return saver.save()


def test_it_answers_with_results_and_log_and_ends_with_the_connection(
    tmp_path, monkeypatch, logger
):
    fakes.patch_builders(monkeypatch.setattr)
    model = fakes.FakeDetector()
    model.build_variables()
    prefix = _save(tmp_path, model, 6)
    config = fakes.pipeline_config()
    config.eval_config.best_checkpoint.keep = True
    config.eval_config.best_checkpoint.metric = 'images'
    config.eval_input_reader.add().label_map_path = fakes.write_label_map(tmp_path / 'labels')
    ours, theirs = multiprocessing.Pipe()
    ended = []

    def serve():
        try:
            evaluation_process._serve(theirs, evaluation_process._Answers(theirs))
        except EOFError:
            ended.append(True)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    given = []
    monkeypatch.setattr(devices, 'set_up', given.append)
    threads = {'intra_op_threads': 3, 'inter_op_threads': 2, 'run_eagerly': True}
    cores = tuple(os.sched_getaffinity(0))
    options = EvalOptions(device='cpu', **threads)
    ours.send(Job(config.SerializeToString(), str(tmp_path), options, cores=cores))
    ours.send(prefix)
    answers = []
    while not answers or answers[-1][0] == LOG:
        assert ours.poll(120), 'the other side of the pipe has ended without an answer'
        answers.append(ours.recv())
    ours.close()
    thread.join(60)
    theirs.close()
    assert ended
    assert given == [options]
    kind, step, metrics, seconds = answers[-1]
    assert (kind, step, metrics['']['images']) == (DONE, 6, 5.0)
    assert seconds > 0
    assert any('evaluating' in answer[2] for answer in answers[:-1])
    assert [e['step'] for e in history.read(tmp_path / 'eval' / 'metrics.jsonl')] == [6]
    assert (tmp_path / 'best' / 'metrics.json').exists()


# The process knows nothing of graphs that tests leave as they are.
@pytest.mark.optimized
@pytest.mark.slow
def test_it_finds_what_an_evaluation_in_the_training_does(tmp_path):
    config = synthetic_data.without_files(
        tiny_models.tiny_pipeline(
            'eval_config { batch_size: 2 eval_samples: 3 metrics_set: "coco_mask_metrics" }'
        )
    )
    detector = tiny_models.tiny_detector()
    prefix = _save(tmp_path / 'model', detector, 4)
    config.train_config.optimizer.use_moving_average = False
    output = tmp_path / 'model'
    evaluation = AsyncEvaluation(Job(config.SerializeToString(), str(output)), max_waiting=1)
    try:
        evaluation.add(prefix, 4)
        (result,) = evaluation.wait()
    finally:
        evaluation.close()
    expected = evaluate_checkpoint(config, prefix, output_dir=tmp_path / 'other')
    assert result.metrics == expected
    assert (output / 'best' / 'metrics.json').exists()
