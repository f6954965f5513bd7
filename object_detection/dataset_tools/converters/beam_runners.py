"""Creates the Beam runner of a job and its options, and is the worker process of a local job."""

import argparse
import contextlib
import difflib
import io
import os
import shlex
import signal
import sys
import threading
import time
import types
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_provision_api_pb2, beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo
from apache_beam.runners.runner import PipelineResult, PipelineRunner, create_runner

from object_detection.errors import UserError, expected

_BEAM_WORKER_SECONDS_BETWEEN_LOOKS = 1.0
# At its import, Beam warns that clients of Google's services are not installed.
_WORKER = f'import logging; logging.disable(logging.WARNING); import {__name__} as own; own.main()'


def main() -> None:
    """Runs a worker process of a local job: Beam's own, without output, which ends with the job.

    Beam's local runner starts it and passes its task by environment variables.
    """
    # The job ends its workers; otherwise each of them would print a traceback at Ctrl-C.
    signal.signal(signal.SIGINT, _be_silent)
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)


def _be_silent(signal_number: int, frame: types.FrameType | None) -> None:
    """Discards further output to stderr, which would report that the job has ended."""
    del signal_number, frame
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_BEAM_WORKER_SECONDS_BETWEEN_LOOKS)
    os._exit(1)


_SECONDS_BETWEEN_LOOKS = 0.2
# What Beam's error says if a local worker process ends.
_LOST_WORKER = 'Channel closed prematurely'


def create(name: str) -> PipelineRunner:
    """Returns the runner of this name; '' is the local runner.

    The local runner is chosen explicitly, since Beam's default first tries to download another one.

    Raises:
      ValueError: if there is no such runner, or its dependencies are not installed.
    """
    if not name:
        return _LocalRunner()
    try:
        return create_runner(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f'The Beam runner {name!r} cannot be used: {error}') from error


def options(*, workers: int, runner: str, beam_options: Sequence[str]) -> PipelineOptions:
    """Returns the options of a job.

    Call it after `create`, since some runners define further options.

    Args:
      workers: number of local processes; 1 runs in this process.
      runner: name of the runner; '' is the local runner.
      beam_options: Beam's command line options, as '--name=value' or '--name', 'value'.

    Raises:
      ValueError: if Beam has no such option, or the runner does not support `workers`.
    """
    if workers < 1:
        raise UserError(f'The number of workers must be at least 1. Received: {workers}.')
    if runner and workers > 1:
        raise expected(
            'number of workers', 'none with a runner, which has an option of its own', workers
        )
    flags = list(beam_options)
    if workers > 1:
        flags += [f'--direct_num_workers={workers}', '--direct_running_mode=multi_processing']
    parsed = PipelineOptions(flags)
    _check_known(flags, parsed)
    return parsed


def run(pipeline: beam.Pipeline) -> None:
    """Runs a pipeline to its end, in a thread, so that Ctrl-C ends the wait immediately.

    After Ctrl-C the local runner's thread continues; the caller should end the process soon.

    Raises:
      UserError: if a local worker process was killed.
    """
    errors: list[BaseException] = []

    def work() -> None:
        try:
            pipeline.run().wait_until_finish()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name='beam', daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_SECONDS_BETWEEN_LOOKS)
    if errors and _LOST_WORKER in str(errors[0]):
        raise UserError(
            'A worker process ended before its work was done: it was killed, or memory was short. '
            'Nothing was published; run the job again, with fewer --workers if memory was short.'
        ) from errors[0]
    if errors:
        raise errors[0]


def _check_known(flags: list[str], parsed: PipelineOptions) -> None:
    """Raises ValueError for unknown options, which Beam would only log."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            known = parsed.get_all_options()
            everything = parsed.get_all_options(retain_unknown_options=True)
    except SystemExit as error:
        reason = errors.getvalue().strip().splitlines()[-1:]
        raise UserError(f'Beam options {flags}: {" ".join(reason)}') from error
    unknown = sorted(everything.keys() - known.keys())
    # The value of an option may have another name than its flag: --dask_npartitions, `npartitions`.
    names = {flag.split('=')[0].removeprefix('--') for flag in flags if flag.startswith('--')}
    spelled = _flag_names()
    unknown += sorted(name for name in names - spelled if name not in unknown)
    if unknown:
        nearest = difflib.get_close_matches(unknown[0], spelled, n=1)
        nearest = nearest or [name for name in sorted(spelled) if name.endswith(unknown[0])]
        hint = f' Did you mean --{nearest[0]}?' if nearest else ''
        raise UserError(f'Beam has no option --{unknown[0]}.{hint} Received: {flags}.')
    if flags and not flags[0].startswith('--'):
        raise UserError(f'Beam options begin with --. Received: {flags}.')


def _flag_names() -> set[str]:
    """Returns the names of all known flags, without dashes."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for options_class in set(_subclasses(PipelineOptions)):
        if '_add_argparse_args' in vars(options_class):
            with contextlib.suppress(argparse.ArgumentError):
                options_class._add_argparse_args(parser)
    return {
        flag.removeprefix('--')
        for action in parser._actions
        for flag in action.option_strings
        if flag.startswith('--')
    }


def _subclasses(options_class: type) -> list[type]:
    own = options_class.__subclasses__()
    return own + [each for child in own for each in _subclasses(child)]


class _LocalRunner(FnApiRunner):
    """Runs in this process, or in worker processes that log nothing and end with this one."""

    def __init__(self):
        info = beam_provision_api_pb2.ProvisionInfo(retrieval_token='unused')
        # Otherwise each worker logs many lines about its connections.
        info.pipeline_options['beam:option:default_sdk_harness_log_level:v1'] = 'ERROR'
        super().__init__(provision_info=ExtendedProvisionInfo(info))

    def run_via_runner_api(
        self, pipeline_proto: beam_runner_api_pb2.Pipeline, options: PipelineOptions
    ) -> PipelineResult:
        command = f'exec {shlex.quote(sys.executable)} -c {shlex.quote(_WORKER)}'
        for environment in pipeline_proto.components.environments.values():
            if environment.urn == python_urns.SUBPROCESS_SDK:
                environment.payload = command.encode()
        return super().run_via_runner_api(pipeline_proto, options)
