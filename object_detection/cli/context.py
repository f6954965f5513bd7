"""`tfod context`: the jobs that make the data of Context R-CNN."""

import logging
import os
from collections.abc import Callable
from typing import Any

import click

from object_detection.cli.common import option_flags, progress
from object_detection.cli.main import describe_user_error
from object_detection.dataset_tools.context_rcnn import options as job_options
from object_detection.dataset_tools.context_rcnn.options import (
    CameraTrapsOptions,
    ContextOptions,
    DetectionOptions,
    EmbeddingOptions,
)

# The exit status of a program that Ctrl-C ended.
_INTERRUPTED = 130


@click.group(name='context')
def command() -> None:
    """Makes the data of Context R-CNN: four jobs, one after the other."""


class _JobCommand(click.Command):
    """A command whose booleans may be given as `--name False` and `--name=false` too.

    Args:
      *arguments, **options: arguments of `click.Command`.
      kind: the class of the job's options.
    """

    def __init__(self, *arguments: Any, kind: type, **options: Any):
        super().__init__(*arguments, **options)
        self._kind = kind

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(context, job_options.join_booleans(args, self._kind))


def _job(name: str, kind: type) -> Callable[[Callable], click.Command]:
    """Makes a command of a function of the job's options and Beam's."""

    def decorate(function: Callable) -> click.Command:
        function = option_flags.click_options(kind)(function)
        function = click.argument(
            'beam_options', nargs=-1, type=click.UNPROCESSED, metavar='[BEAM_OPTIONS]...'
        )(function)
        made = click.command(
            name, cls=_JobCommand, kind=kind, context_settings={'ignore_unknown_options': True}
        )(function)
        return option_flags.json_option(made)

    return decorate


@_job('camera-traps', CameraTrapsOptions)
def camera_traps(options: CameraTrapsOptions, beam_options: tuple[str, ...]) -> None:
    """Makes records of a data set in the format COCO Camera Traps."""
    _prepare(options, beam_options)
    from object_detection.dataset_tools.context_rcnn import camera_traps
    from object_detection.dataset_tools.converters import conversion_report

    report = _run(camera_traps.run, options, beam_options, 'converting')
    option_flags.show_result(report, [conversion_report.summary(report)])
    if warning := conversion_report.warning(report):
        click.secho(warning, fg='red', err=True)


@_job('detections', DetectionOptions)
def detections(options: DetectionOptions, beam_options: tuple[str, ...]) -> None:
    """Adds detected boxes to images whose class is known.

    An image with boxes keeps them; one with several classes is left out; the others get the boxes
    of a SavedModel whose scores are high enough, with the class of the image.
    """
    _prepare(options, beam_options)
    from object_detection.dataset_tools.context_rcnn import detections

    _show(_run(detections.run, options, beam_options, 'detecting'))


@_job('embeddings', EmbeddingOptions)
def embeddings(options: EmbeddingOptions, beam_options: tuple[str, ...]) -> None:
    """Adds embeddings of detected objects to images.

    The SavedModel needs the output of output_final_box_features.
    """
    _prepare(options, beam_options)
    from object_detection.dataset_tools.context_rcnn import detections

    _show(_run(detections.run_embeddings, options, beam_options, 'embedding'))


@_job('add', ContextOptions)
def add(options: ContextOptions, beam_options: tuple[str, ...]) -> None:
    """Adds the embeddings of other images of the same camera to each image."""
    _prepare(options, beam_options)
    from object_detection.dataset_tools.context_rcnn import context

    _show(_run(context.run, options, beam_options, 'adding context'))


def _prepare(options: job_options.JobOptions, beam_options: tuple[str, ...]) -> None:
    """Finds mistakes in the command line before anything slow is imported."""
    if beam_options and not options.runner:
        raise click.UsageError(f'No such option or argument: {" ".join(beam_options)}')
    job_options.check(options)
    # At its import, Beam warns that clients of Google's services are not installed.
    logging.disable(logging.WARNING)


def _run(
    job: Callable[..., dict[str, Any]],
    options: job_options.JobOptions,
    beam_options: tuple[str, ...],
    what: str,
) -> dict[str, Any]:
    logging.disable(logging.NOTSET)
    try:
        with progress.show(what) as report_progress:
            return job(options, beam_options, report_progress)
    except (OSError, ValueError) as error:
        raise click.ClickException(describe_user_error(error)) from error
    except KeyboardInterrupt:
        # Otherwise Beam's threads would keep the process alive until the job is finished.
        click.echo('\nAborted!', err=True)
        os._exit(_INTERRUPTED)


def _show(report: dict[str, Any]) -> None:
    from object_detection.dataset_tools.context_rcnn import record_job

    option_flags.show_result(report, [record_job.summary(report)])


for _command in (camera_traps, detections, embeddings, add):
    command.add_command(_command)
