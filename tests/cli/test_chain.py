"""What one command writes, the next ones read: from annotations to a report, on a toy detector."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

import object_detection as od
from object_detection.builders import image_resizer_builder
from object_detection.cli.main import main
from object_detection.config import families
from object_detection.dataset_tools import shapes
from object_detection.errors import UserError
from tests import quick_graphs, toy_family

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')

# Two dense layers, since six commands build it.
CONFIG = """
model {
  experimental_model {
    name: 'toy' num_classes: 4
    image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
  }
}
train_config {
  batch_size: 2 num_steps: 2
  optimizer { momentum_optimizer { learning_rate { constant_learning_rate {} } } }
}
train_input_reader {
  label_map_path: 'data/train_label_map.pbtxt'
  tf_record_input_reader { input_path: 'data/train-00000-of-00001' }
}
eval_config { metrics_set: 'coco_detection_metrics' }
eval_input_reader {
  label_map_path: 'data/train_label_map.pbtxt'
  tf_record_input_reader { input_path: 'data/val-00000-of-00001' }
}
"""


class Detector(toy_family.ToyDetector):
    """Its boxes have their corners in order."""

    def postprocess(self, predictions, true_shapes):
        found = super().postprocess(predictions, true_shapes)
        corners = tf.split(found['detection_boxes'] / 2, 2, axis=-1)
        return found | {'detection_boxes': tf.concat([corners[0], corners[1] + 0.5], axis=-1)}


def build(config, is_training):
    resizer = image_resizer_builder.build(config.image_resizer)
    return Detector(num_classes=config.num_classes, resizer=resizer)


def run(*arguments):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, f'{arguments}: {result.output} {result.exception!r}'
    return result.output


@pytest.fixture(scope='module', autouse=True)
def _registered():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(
            families.FAMILIES._rows, 'toy', dataclasses.replace(toy_family.FAMILY, build=build)
        )
        yield


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Annotations became records, a config was checked, a model was trained for two steps."""
    folder = tmp_path_factory.mktemp('chain')
    with pytest.MonkeyPatch.context() as patch, quick_graphs.unoptimized():
        patch.chdir(folder)
        shapes.write_shapes('shapes', num_train=3, num_val=2, image_size=64)
        for split in ('train', 'val'):
            images, annotations = f'shapes/{split}', f'shapes/instances_{split}.json'
            run(
                *('convert', 'coco', '--images', images, '--annotations', annotations),
                *('--output', f'data/{split}', '--shards', '1'),
            )
            run('data', 'check', f'data/{split}-00000-of-00001')
        (folder / 'toy.config').write_text(CONFIG)
        assert 'ready to train, eval, export' in run('config', 'check', 'toy.config')
        run('train', '--config', 'toy.config', '--model_dir', 'model', '--log_every_n', '1')
    return folder


def test_a_model_dir_is_evaluated_and_reported(folder, monkeypatch):
    monkeypatch.chdir(folder)
    place = ('--checkpoint_dir', 'model', '--model_dir', 'model')
    run('eval', '--config', 'toy.config', *place, '--run_once')
    assert 'step' in run('status', 'model')
    page = (folder / 'model' / 'report.html').read_text()
    assert 'No evaluation has been finished yet' not in page
    assert 'boxes/kernel' in run('checkpoint', 'inspect', 'model')


@pytest.mark.parametrize('source', ['model', 'exported', 'records'])
def test_predictions_are_scored(folder, source, monkeypatch):
    monkeypatch.chdir(folder)
    if source == 'records':
        model = ('--config', 'toy.config', '--checkpoint_dir', 'model')
    else:
        model = ('--model', source, '--input', 'shapes/val', '--min_score', '0')
    if source == 'exported':
        run('export', '--config', 'toy.config', '--checkpoint_dir', 'model', '--output', source)
    run('predict', *model, '--output', f'from_{source}')
    found = json.loads((folder / f'from_{source}' / 'detections.json').read_text())
    assert found
    given = ('--detections', f'from_{source}', '--groundtruth', 'shapes/instances_val.json')
    assert 'AP' in run('eval', *given)


class Watcher(od.Callback):
    """Keeps the events of a training; fails or asks for its end at a step."""

    def __init__(self, fails_at=None, ends_at=None):
        self.fails_at, self.ends_at, self.events = fails_at, ends_at, []

    def on_start(self, start):
        self.events.append(('start', start.step, start.config['train_config']['batch_size']))

    def on_step(self, record):
        self.events.append(('step', record.step, record.values['Loss/total_loss'] > 0))
        if record.step == self.fails_at:
            raise ZeroDivisionError('a mistake')
        return 'it is enough' if record.step == self.ends_at else None

    def on_checkpoint(self, record):
        self.events.append(('checkpoint', record.step, pathlib.Path(record.path).name))

    def on_evaluation(self, record):
        written = json.loads(pathlib.Path(record.folder, 'metrics.json').read_text())
        assert written == record.metrics
        self.events.append(('evaluation', record.step, record.images))

    def on_end(self, end):
        self.events.append(('end', end.step, end.reason or end.error))


def test_callbacks_follow_a_training_and_an_error_of_one_loses_no_step(folder, monkeypatch):
    monkeypatch.chdir(folder)
    options = {'log_every_n': 1, 'checkpoint_every_n': 100, 'seed': 1, 'steps_per_loop': 1}
    failing = Watcher(fails_at=1)
    message = r'Watcher, on_step at step 1: ZeroDivisionError: a mistake \(.*test_chain'
    with pytest.raises(UserError, match=message):
        od.train('toy.config', 'watched', callbacks=[failing], num_train_steps=4, **options)
    assert failing.events[:2] == [('start', 0, 2), ('step', 1, True)]
    assert failing.events[2][:2] == ('end', None)
    assert 'a mistake' in failing.events[2][2]
    status = od.Run('watched').status
    assert (status.state, status.step) == ('failed', 1)
    assert pathlib.Path('watched/ckpt-1.index').exists()

    asking = Watcher(ends_at=3)
    run = od.train(
        'toy.config',
        'watched',
        callbacks=[asking],
        num_train_steps=4,
        eval_every_n_steps=2,
        **options,
    )
    kinds = [event[:2] for event in asking.events]
    assert kinds == [
        ('start', 1),
        ('step', 2),
        ('checkpoint', 2),
        ('evaluation', 2),
        ('step', 3),
        ('checkpoint', 3),
        ('evaluation', 3),
        ('end', 3),
    ]
    assert asking.events[3] == ('evaluation', 2, 2)
    assert asking.events[-1] == ('end', 3, 'it is enough')
    assert (run.status.state, run.status.waits_for) == ('finished', 'it is enough')
    assert [entry['step'] for entry in run.history] == [1, 2, 3]
    assert [entry['step'] for entry in run.evaluations['']] == [2, 3]
    assert run.best_checkpoint == 'watched/best'
    assert repr(run).startswith('<Run in watched: finished at step 3 of 4, best DetectionBoxes_')
    assert pathlib.Path(run.report).name == 'report.html'
    evaluating = Watcher()
    result = od.evaluate('toy.config', 'watched', callbacks=evaluating, eval_samples=1)
    assert result.step == 3
    assert run.metrics == result.flat != {}
    assert [event[:2] for event in evaluating.events] == [
        ('start', 3),
        ('evaluation', 3),
        ('end', 3),
    ]


def test_a_call_of_python_converts_as_the_command_does(folder, monkeypatch):
    monkeypatch.chdir(folder)
    options = {'images': 'shapes/train', 'annotations': pathlib.Path('shapes/instances_train.json')}
    (made,) = od.convert('coco', 'data/again', shards=1, **options)
    assert made.label_map == 'data/again_label_map.pbtxt'
    assert made.report['examples'] == 3
    written = [pathlib.Path(f'data/{name}-00000-of-00001') for name in ('again', 'train')]
    assert written[0].read_bytes() == written[1].read_bytes()


@pytest.mark.slow
def test_a_call_of_python_exports_what_it_predicts_with(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (exported,) = od.export('toy.config', 'model', 'exported_again')
    assert exported.path == pathlib.Path('exported_again/saved_model')
    image = next(pathlib.Path('shapes/val').iterdir())
    found = od.Predictor('exported_again', score_threshold=0)(image)
    boxes = od.Run('model').predictor(score_threshold=0)(image).boxes
    np.testing.assert_allclose(boxes, found.boxes, atol=1e-3)
