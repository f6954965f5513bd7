"""`tfod summary`: the layers of a config's model."""

import click

from object_detection.builders.input_readers import channels
from object_detection.cli.common import option_flags
from object_detection.config.reader import read_pipeline
from object_detection.system import console, tensorflow_setup


@option_flags.json_option
@click.command(name='summary')
@option_flags.config_option()
@option_flags.set_option(
    'Change one field, e.g. model.faster_rcnn.num_classes=3; repeatable, applied in order.'
)
@click.option(
    '--image_size',
    type=(int, int),
    metavar='HEIGHT WIDTH',
    help='Of the resized image; what the resizer makes of a square photo if not given.',
)
@click.option('--every_layer', is_flag=True, help='A line for each layer, not for each group.')
def command(
    config: str, settings: tuple[str, ...], image_size: tuple[int, int] | None, every_layer: bool
) -> None:
    """Print the model's layers with shapes, parameters and floating point operations."""
    pipeline = read_pipeline(config, settings=settings)
    tensorflow_setup.import_tensorflow()
    from object_detection.builders import model_builder
    from object_detection.models import image_channels
    from object_detection.training.monitoring import model_summary

    scope = image_channels.scope(channels.of_detector(pipeline))
    with console.phase('building the model'), scope:
        detector = model_builder.build(pipeline.model)
        detector.build_variables()
        summary = model_summary.summarize(detector, image_size=image_size)
    lines = model_summary.table(summary, detector.name, every_layer=every_layer)
    option_flags.show_result(summary, lines)
