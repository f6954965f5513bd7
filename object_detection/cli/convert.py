"""`tfod convert`: converts data sets in other formats to TFRecords."""

import logging
import os
import sys

import click

from object_detection.cli import progress

# The exit status of a program that Ctrl-C ended.
_INTERRUPTED = 130


@click.group(name='convert')
def command() -> None:
    """Converts a data set to sharded TFRecords."""


@command.command(
    name='coco', context_settings={'ignore_unknown_options': True, 'show_default': True}
)
@click.option('--images', required=True, help='Folder of the images.')
@click.option('--annotations', required=True, help='COCO JSON file.')
@click.option(
    '--output',
    required=True,
    metavar='PREFIX',
    help='Beginning of the names of the files to write, with their folder: records/train.',
)
@click.option('--shards', default=10, help='Number of TFRecord files.')
@click.option(
    '--masks/--no_masks',
    default=False,
    help='Write instance masks; off here, and on in `tfod data convert`.',
)
@click.option('--keypoints', is_flag=True, help='Write keypoints, those of the annotation file.')
@click.option(
    '--keypoint_annotations',
    default='',
    help='Write keypoints, those of the same annotations in this JSON file.',
)
@click.option('--drop_empty', is_flag=True, help='Leave out images without objects.')
@click.option('--label_map', default='', help='Label map that numbers the categories by name.')
@click.option(
    '--max_pixels',
    type=click.IntRange(min=0),
    default=178_956_970,
    help='Leave out larger images; 0 sets no limit.',
)
@click.option('--strict', is_flag=True, help='Write nothing if there is any problem.')
@click.option(
    '--workers',
    '--num_workers',
    'workers',
    default=1,
    help='Local processes; each writes whole shards.',
)
@click.option('--runner', default='', help='Another Beam runner; its options may follow.')
@click.argument('beam_options', nargs=-1, type=click.UNPROCESSED, metavar='[BEAM_OPTIONS]...')
def coco(
    images: str,
    annotations: str,
    output: str,
    shards: int,
    masks: bool,
    keypoints: bool,
    keypoint_annotations: str,
    drop_empty: bool,
    label_map: str,
    max_pixels: int,
    strict: bool,
    workers: int,
    runner: str,
    beam_options: tuple[str, ...],
) -> None:
    """Converts a data set in COCO format.

    Writes PREFIX-00000-of-0000N ..., PREFIX_label_map.pbtxt and PREFIX.report.json, which lists
    what could not be converted. Earlier outputs of the same prefix are replaced when the new ones
    are complete.

    The label map holds all categories under their ids; equal names get their id appended. Ids that
    begin at 0, or are text, are numbered from 1 on.
    """
    if beam_options and not runner:
        raise click.UsageError(f'No such option or argument: {" ".join(beam_options)}')
    # Beam takes a second to import, and warns that clients of Google's services are not installed.
    logging.disable(logging.WARNING)
    from object_detection.dataset_tools import beam_job, coco_conversion, conversion_report
    from object_detection.dataset_tools.coco_job import CocoSource

    logging.disable(logging.NOTSET)
    source = CocoSource(
        image_dir=images,
        annotations_file=annotations,
        masks=masks,
        keypoints_file=keypoint_annotations or (annotations if keypoints else ''),
        label_map_file=label_map,
        drop_empty=drop_empty,
        max_pixels=max_pixels or sys.maxsize,
    )
    try:
        with progress.show('converting') as report_progress:
            report = coco_conversion.convert_coco(
                source,
                output,
                shards,
                strict=strict,
                workers=workers,
                runner=runner,
                beam_options=beam_options,
                progress=report_progress,
            )
    except (beam_job.ConversionError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        # Otherwise Beam's threads would keep the process alive until the job is finished.
        click.echo('\nAborted!', err=True)
        os._exit(_INTERRUPTED)
    click.echo(conversion_report.summary(report))
    if warning := conversion_report.warning(report):
        click.secho(warning, fg='red', err=True)
