"""Chooses the Beam runner that a job runs on, and its options."""

import contextlib
import difflib
import io
from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo
from apache_beam.runners.runner import PipelineRunner, create_runner


def create(name: str) -> PipelineRunner:
    """Returns the runner of this name; the local one for ''.

    The local one is named explicitly, as Beam's default first tries to download another.

    Raises:
      ValueError: if there is no such runner, or what it needs is not installed.
    """
    if not name:
        return _local_runner()
    try:
        return create_runner(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f'The Beam runner {name!r} cannot be used: {error}') from error


def options(*, workers: int, runner: str, beam_options: Sequence[str]) -> PipelineOptions:
    """Returns the options of a job.

    Call it after `create`, as some runners bring options of their own.

    Args:
      workers: local processes; 1 runs in this process.
      runner: name of the runner; '' is the local one.
      beam_options: Beam's command line options, as '--name=value' or '--name', 'value'.

    Raises:
      ValueError: if Beam has no such option, or `workers` does not go with the runner.
    """
    if workers < 1:
        raise ValueError(f'The number of workers must be at least 1. Received: {workers}.')
    if runner and workers > 1:
        raise ValueError(
            'The number of workers is for local runs; give the runner an option of its own '
            f'instead. Received: {workers} workers and runner {runner}.'
        )
    flags = list(beam_options)
    if workers > 1:
        flags += [f'--direct_num_workers={workers}', '--direct_running_mode=multi_processing']
    parsed = PipelineOptions(flags)
    _check_known(flags, parsed)
    return parsed


def _check_known(flags: list[str], parsed: PipelineOptions) -> None:
    """Raises ValueError for what Beam would pass over: it only logs options it does not know."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            known = parsed.get_all_options()
            everything = parsed.get_all_options(retain_unknown_options=True)
    except SystemExit as error:
        reason = errors.getvalue().strip().splitlines()[-1:]
        raise ValueError(f'Beam options {flags}: {" ".join(reason)}') from error
    unknown = sorted(everything.keys() - known.keys())
    if unknown:
        nearest = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f' Did you mean --{nearest[0]}?' if nearest else ''
        raise ValueError(f'Beam has no option --{unknown[0]}.{hint} Received: {flags}.')
    if flags and not flags[0].startswith('--'):
        raise ValueError(f'Beam options begin with --. Received: {flags}.')


def _local_runner() -> FnApiRunner:
    """Returns a runner whose worker processes do not log a page about their connections each."""
    info = beam_provision_api_pb2.ProvisionInfo(retrieval_token='unused')
    info.pipeline_options['beam:option:default_sdk_harness_log_level:v1'] = 'ERROR'
    return FnApiRunner(provision_info=ExtendedProvisionInfo(info))
