"""Exports a checkpoint as a SavedModel.

  python -m object_detection.exporter_main_v2 --input_type=image_tensor \
      --pipeline_config_path=FILE --trained_checkpoint_dir=DIR --output_directory=DIR

writes output_directory/{saved_model/, checkpoint/, pipeline.config}.
"""

import logging

from absl import app, flags

from object_detection import registry
from object_detection.cli.common import scripts
from object_detection.config.job_options import PRECISIONS
from object_detection.runtime import side_inputs
from object_detection.runtime.input_types import INPUT_TYPES
from object_detection.system import tensorflow_setup


def define_flags() -> None:
    """Defines the flags; in a function, because other programs have flags of the same names."""
    flags.DEFINE_enum('input_type', INPUT_TYPES[0], INPUT_TYPES, 'What it takes.')
    flags.DEFINE_string('pipeline_config_path', None, 'The pipeline config file.')
    flags.DEFINE_alias('config', 'pipeline_config_path')
    flags.DEFINE_string(
        'trained_checkpoint_dir', None, 'Checkpoints; the newest is exported. E.g. model/best.'
    )
    flags.DEFINE_string('output_directory', None, 'Where to write; an earlier export is replaced.')
    flags.DEFINE_enum(
        'precision', None, PRECISIONS, 'What it computes in; the config says it if not given.'
    )
    flags.DEFINE_string('label_map_path', None, "Class names; the config's label map if not given.")
    flags.DEFINE_string('config_override', '', 'A text proto, or a file of one, merged over it.')
    flags.DEFINE_multi_string(
        'set', [], 'A field to change, e.g. model.faster_rcnn.num_classes=3; repeatable.'
    )
    flags.DEFINE_bool(
        'use_side_inputs', False, 'Sets the side inputs of the signature by --side_input_*.'
    )
    flags.DEFINE_string('side_input_names', '', 'Names, e.g. context_features,valid_context_size.')
    flags.DEFINE_string('side_input_shapes', '', 'Shapes, e.g. 1,2000,2057/1; -1 for any size.')
    flags.DEFINE_string('side_input_types', '', 'Types, e.g. tf.float32,tf.int32.')
    flags.DEFINE_multi_string('plugin', [], registry.PLUGIN_HELP)
    flags.mark_flags_as_required(
        ['pipeline_config_path', 'trained_checkpoint_dir', 'output_directory']
    )


def main(argv: list[str]) -> None:
    """Exports what the flags name."""
    values = flags.FLAGS
    scripts.check_flags_only(argv)
    registry.add_plugins(values.plugin)
    given = (values.side_input_names, values.side_input_shapes, values.side_input_types)
    if any(given) and not values.use_side_inputs:
        raise app.UsageError('--side_input_*: expected with --use_side_inputs only.')
    given_side_inputs = side_inputs.parse(*given) if values.use_side_inputs else None
    from object_detection.config.reader import read_pipeline
    from object_detection.validation.validate import validate

    pipeline = read_pipeline(
        values.pipeline_config_path,
        overrides_text=values.config_override,
        settings=values['set'].value,
    )
    validate(pipeline, for_what='export')
    _hide_others(values.verbosity)
    # Imported here: TensorFlow takes seconds, and mistakes are reported before.
    tensorflow_setup.import_tensorflow()
    from object_detection.export import exporter

    exported = exporter.export(
        pipeline,
        values.trained_checkpoint_dir,
        values.output_directory,
        input_type=values.input_type,
        precision=values.precision,
        label_map_path=values.label_map_path,
        given_side_inputs=given_side_inputs,
    )
    print(
        f'Exported to {values.output_directory} ({values.input_type}, '
        f'computes in {exported.precision}).'
    )


def _hide_others(verbosity: int) -> None:
    """Keeps back what libraries log of their work; --verbosity=1 shows it."""
    if verbosity > 0:
        return
    for handler in logging.getLogger().handlers:
        handler.addFilter(
            lambda record: (
                record.levelno >= logging.WARNING or record.name.startswith('object_detection')
            )
        )


def run() -> None:
    """Parses the command line and runs; users' errors become one line."""
    scripts.run(define_flags, main)


if __name__ == '__main__':
    run()
