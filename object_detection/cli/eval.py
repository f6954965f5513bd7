"""`tfod eval`: evaluates the checkpoints of a training, or a file of detections."""

import json
import math
import sys
from typing import Any

import click
from click.core import ParameterSource

from object_detection.cli.common import option_flags
from object_detection.config.job_options import EVALUATION_EXIT_STATUSES, FILES, EvalOptions

_TRUTH_FORMATS = ('auto', 'coco', 'voc', 'open_images')
_MOT = 'mot'
_DETECTION_FORMATS = (*_TRUTH_FORMATS, 'csv', _MOT)
# The options of files that tracks have.
_OF_TRACKS = {'detections', 'groundtruth', 'detections_format', 'output'}


def _file_option(*names: str, **options: Any):
    return click.option(*names, cls=option_flags.SectionedOption, section=FILES, **options)


@option_flags.json_option
@click.command(name='eval', cls=option_flags.SectionedCommand, epilog=EVALUATION_EXIT_STATUSES)
@option_flags.click_options(EvalOptions)
@option_flags.config_option(required=False)
@click.option(
    '--checkpoint_dir',
    metavar='PATH',
    help='Folder of checkpoints, one prefix, or an unpacked model of the zoo.',
)
@click.option(
    '--model_dir',
    metavar='FOLDER',
    help='Results go to its folder eval; --checkpoint_dir if not given.',
)
@_file_option(
    '--detections',
    metavar='PATH',
    help='COCO results, comp4_det_test_CLASS.txt files of PASCAL VOC, CSV of Open Images, or the '
    'output of tfod predict; with --detections_format mot, tracks in files of MOT Challenge. In '
    'place of --config and --checkpoint_dir.',
)
@_file_option(
    '--groundtruth',
    metavar='PATH',
    help='COCO annotations, a folder of PASCAL VOC, boxes of Open Images as CSV, or tracks.',
)
@_file_option(
    '--detections_format',
    type=click.Choice(_DETECTION_FORMATS),
    default='auto',
    show_default=True,
    help='Format of --detections.',
)
@_file_option(
    '--groundtruth_format',
    type=click.Choice(_TRUTH_FORMATS),
    default='auto',
    show_default=True,
    help='Format of --groundtruth.',
)
@_file_option(
    '--metrics',
    multiple=True,
    metavar='NAMES',
    help='Metric sets as in metrics_set, and coco_keypoint_metrics, separated by commas; '
    'repeatable. Default: boxes, and masks and keypoints if both files have them.',
)
@_file_option(
    '--max_detections',
    type=click.IntRange(min=1),
    metavar='N',
    help='Detections of an image and class that COCO metrics count, and LVIS of an image, in place '
    'of 100 (keypoints 20, LVIS 300).',
)
@_file_option(
    '--oks_sigmas',
    multiple=True,
    metavar='NAME=SIGMA,...',
    help='Spread of the annotations of keypoints, for coco_keypoint_metrics. Default: 0.05, or '
    "COCO's of persons.",
)
@_file_option('--per_category', is_flag=True, help='Add the metrics of each category.')
@_file_option(
    '--image_list',
    metavar='FILE',
    help='Evaluate the images that this text file, or COCO file, lists.',
)
@_file_option('--label_map', metavar='FILE', help='Label map of the class numbers in --detections.')
@_file_option('--image_labels', metavar='FILE', help='Open Images: CSV of image-level labels.')
@_file_option('--class_descriptions', metavar='FILE', help='Open Images: CSV of MIDs and names.')
@_file_option('--class_hierarchy', metavar='FILE', help='Open Images: JSON of their hierarchy.')
@_file_option(
    '--recall_bounds',
    type=float,
    nargs=2,
    metavar='LOW HIGH',
    help='Recalls that precision_at_recall_detection_metrics averages.',
)
@_file_option('--output', metavar='FILE', help='Write the metrics, name to value, as JSON.')
def command(
    config: str | None,
    checkpoint_dir: str | None,
    model_dir: str | None,
    options: EvalOptions,
    **of_files: Any,
) -> None:
    """Evaluates checkpoints of a training, or a file of detections.

    With --config and --checkpoint_dir: the newest checkpoint, then each that is added until the
    training has ended. With --detections and --groundtruth: the detections in a file, without a
    model; all other options of checkpoints conflict with these.
    """
    of_checkpoints = ['config', 'checkpoint_dir', 'model_dir', *vars(options)]
    if of_files['detections'] or of_files['groundtruth']:
        _check(of_files, ('detections', 'groundtruth'), of_checkpoints, 'a file of detections')
        if of_files['detections_format'] == _MOT:
            _evaluate_tracks(of_files)
        else:
            _evaluate_files(**of_files)
        return
    own = {'config': config, 'checkpoint_dir': checkpoint_dir}
    _check(own, tuple(own), list(of_files), 'checkpoints')
    # Imported here: files of detections need nothing of it.
    from object_detection.cli.common import progress
    from object_detection.tasks import runs

    def show(result: Any) -> None:
        """Prints the metrics with --json; the log has them for a person."""
        option_flags.show_result({'step': result.step, 'metrics': result.metrics}, [])

    status = runs.run_evaluation(
        config,
        checkpoint_dir,
        model_dir,
        options,
        show_progress=lambda: progress.show('evaluating'),
        on_result=show,
    )
    sys.exit(status)


def _check(values: dict[str, Any], needed: tuple[str, ...], others: list[str], what: str) -> None:
    """Refuses a command line without the options of one way, or with options of the other."""
    context = click.get_current_context()
    missing = [name for name in needed if not values[name]]
    if len(missing) == len(needed) == 2 and what == 'checkpoints':
        raise click.UsageError(
            'Expected --config with --checkpoint_dir, or --detections with --groundtruth. '
            'Received: neither.'
        )
    if missing:
        raise click.UsageError(f"Missing option '--{missing[0]}', for an evaluation of {what}.")
    for parameter in context.command.params:
        is_given = context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        if parameter.name in others and is_given:
            raise click.UsageError(
                f'{parameter.opts[0]} conflicts with --{needed[0]}: not for {what}.'
            )


def _evaluate_files(
    *,
    metrics: tuple[str, ...],
    per_category: bool,
    max_detections: int | None,
    oks_sigmas: tuple[str, ...],
    recall_bounds: tuple[float, float] | None,
    image_labels: str | None,
    class_descriptions: str | None,
    class_hierarchy: str | None,
    output: str | None,
    **paths: str | None,
) -> None:
    from object_detection.protos import eval_pb2
    from object_detection.scoring import evaluation, report
    from object_detection.scoring.csv_tables import OpenImagesOptions
    from object_detection.system import disk, files

    names = [name.strip() for value in metrics for name in value.split(',')]
    low, high = recall_bounds or (0.0, 1.0)
    config = eval_pb2.EvalConfig(
        include_metrics_per_category=per_category,
        all_metrics_per_category=per_category,
        max_detections=max_detections or 0,
        recall_lower_bound=low,
        recall_upper_bound=high,
    )
    found = evaluation.evaluate(
        evaluation.FileOptions(
            metrics=tuple(dict.fromkeys(names)),
            sigmas=_sigmas(oks_sigmas),
            open_images=OpenImagesOptions(
                image_labels or '', class_descriptions or '', class_hierarchy or ''
            ),
            **{name: path or '' for name, path in paths.items()},
        ),
        config,
    )
    if output:
        values = {k: v if math.isfinite(v) else None for k, v in found.metrics.items()}
        with disk.full_disk_named(output):
            files.write_text(output, json.dumps(values, indent=1) + '\n')
    for note in found.notes:
        click.echo(f'Note: {note}', err=True)
    heading = f'{found.images} images, {found.objects} objects, {found.num_detections} detections'
    lines = report.lines(found.metrics, per_category=per_category)
    option_flags.show_result(found, [heading, '', *lines])


def _evaluate_tracks(of_files: dict[str, Any]) -> None:
    context = click.get_current_context()
    for name in of_files.keys() - _OF_TRACKS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f'--{name}: not for --detections_format {_MOT}.')
    from object_detection.scoring import tracks
    from object_detection.system import disk, files

    found = tracks.evaluate(of_files['detections'], of_files['groundtruth'])
    if output := of_files['output']:
        with disk.full_disk_named(output):
            files.write_text(output, json.dumps(found.metrics, indent=1) + '\n')
    count = len(found.of_sequences)
    heading = f'{count} sequences, {found.objects} objects, {found.detections} boxes of tracks'
    option_flags.show_result(found, [heading, '', *tracks.lines(found)])


def _sigmas(texts: tuple[str, ...]) -> dict[str, float]:
    sigmas = {}
    for text in filter(None, ','.join(texts).split(',')):
        name, _, value = text.partition('=')
        try:
            sigmas[name.strip()] = float(value)
        except ValueError:
            raise click.BadParameter(
                f'expected NAME=SIGMA, such as nose=0.026. Received: {text!r}.',
                param_hint='--oks_sigmas',
            ) from None
    return sigmas
