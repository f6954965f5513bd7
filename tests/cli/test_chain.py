"""What one command writes, the next ones read: from annotations to a report, on a tiny detector."""

import json

import pytest
from click.testing import CliRunner
from google.protobuf import text_format

from object_detection import register
from object_detection.cli.main import main
from object_detection.dataset_tools import shapes
from object_detection.models.backbones.table import BACKBONES
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from tests import quick_graphs
from tests.meta_architectures.ssd import configs
from tests.plugin.toy_parts.backbones import PLAIN

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')

# Five convolutions, since six commands build it.
MODEL = """
  num_classes: 4
  feature_extractor {
    type: 'ssd_fpn' backbone: 'plain' depth_multiplier: 1 min_depth: 16
    fpn { min_level: 3 max_level: 5 additional_layer_depth: 16 }
  }
"""
REST = """
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


def run(*arguments):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, f'{arguments}: {result.output} {result.exception!r}'
    return result.output


@pytest.fixture(scope='module', autouse=True)
def _registered():
    register.backbone('plain', PLAIN)
    yield
    del BACKBONES._rows['plain']


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
        model = configs.tiny(MODEL)
        model.ssd.feature_extractor.ClearField('num_layers')
        pipeline = TrainEvalPipelineConfig(model=model)
        (folder / 'tiny.config').write_text(text_format.MessageToString(pipeline) + REST)
        assert 'ready to train, eval, export' in run('config', 'check', 'tiny.config')
        run('train', '--config', 'tiny.config', '--model_dir', 'model', '--log_every_n', '1')
    return folder


def test_a_model_dir_is_evaluated_and_reported(folder, monkeypatch):
    monkeypatch.chdir(folder)
    place = ('--checkpoint_dir', 'model', '--model_dir', 'model')
    run('eval', '--config', 'tiny.config', *place, '--run_once')
    assert 'step' in run('status', 'model')
    page = (folder / 'model' / 'report.html').read_text()
    assert 'No evaluation has been finished yet' not in page
    assert 'box_predictor' in run('checkpoint', 'inspect', 'model')


@pytest.mark.parametrize('source', ['model', 'exported', 'records'])
def test_predictions_are_scored(folder, source, monkeypatch):
    monkeypatch.chdir(folder)
    if source == 'records':
        model = ('--config', 'tiny.config', '--checkpoint_dir', 'model')
    else:
        model = ('--model', source, '--input', 'shapes/val', '--min_score', '0')
    if source == 'exported':
        run('export', '--config', 'tiny.config', '--checkpoint_dir', 'model', '--output', source)
    run('predict', *model, '--output', f'from_{source}')
    found = json.loads((folder / f'from_{source}' / 'detections.json').read_text())
    assert found
    given = ('--detections', f'from_{source}', '--groundtruth', 'shapes/instances_val.json')
    assert 'AP' in run('eval', *given)
