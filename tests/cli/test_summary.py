import importlib.resources
import json

import pytest
from click.testing import CliRunner

from object_detection.cli.summary import command
from object_detection.training.monitoring import model_summary


@pytest.fixture(scope='module', autouse=True)
def _summarized_once():
    """Both forms are of the same summary, which takes seconds."""
    made, summarize = [], model_summary.summarize
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            model_summary,
            'summarize',
            lambda *args, **options: (made or made.append(summarize(*args, **options)) or made)[0],
        )
        yield


def run(*arguments):
    samples = importlib.resources.files('object_detection') / 'samples' / 'configs'
    config = str(samples / 'mask_rcnn_resnet18_fpn_shapes.config')
    result = CliRunner().invoke(
        command, ['--config', config, '--image_size', '64', '96', *arguments]
    )
    assert result.exit_code == 0, result.output
    return result


def test_prints_the_table():
    lines = run().output.splitlines()
    assert '64 x 96' in lines[0]
    assert any(line.startswith('mask_head') for line in lines)
    assert lines[-1].startswith('total')


def test_json_has_the_numbers_of_every_layer():
    result = run('--json')
    summary = json.loads(result.stdout)
    assert summary['image_size'] == [64, 96]
    assert {'backbone', 'mask_head'} <= {layer['part'] for layer in summary['layers']}
    assert summary['flops'] >= max(layer['flops'] for layer in summary['layers']) > 0
