import importlib.resources

from click.testing import CliRunner

from object_detection.cli.summary import command


def test_prints_the_table():
    samples = importlib.resources.files('object_detection') / 'samples' / 'configs'
    result = CliRunner().invoke(
        command,
        [
            *('--config', str(samples / 'mask_rcnn_resnet18_fpn_shapes.config')),
            *('--image_size', '64', '96'),
        ],
    )
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert '64 x 96' in lines[0]
    assert any(line.startswith('mask_head') for line in lines)
    assert lines[-1].startswith('total')
