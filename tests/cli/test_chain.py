"""What one command writes, the next ones read: from annotations to a report, on a toy detector."""

import dataclasses
import json

import pytest
import tensorflow as tf
from click.testing import CliRunner

from object_detection.builders import image_resizer_builder
from object_detection.cli.main import main
from object_detection.config import families
from object_detection.dataset_tools import shapes
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
