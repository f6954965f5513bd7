"""Common functions of commands that download: progress in megabytes, and interruption."""

import contextlib
from collections.abc import Callable, Iterator

import click

from object_detection.cli.common import progress

_MEGABYTE = 10**6
_STATUS_AFTER_SIGINT = 130


@contextlib.contextmanager
def show(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Shows progress; yields a function of the received bytes and the total, or None."""
    with progress.show(what, 'MB') as report:
        yield lambda done, total: report(
            done // _MEGABYTE, None if total is None else total // _MEGABYTE
        )


def print_line(line: str) -> None:
    """Prints a line while progress is shown."""
    click.echo(line, err=True)


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Converts ctrl-C in the block to a message and the exit status that shells expect."""
    try:
        yield
    except KeyboardInterrupt:
        print_line('Stopped. What has arrived is kept; the same command continues from there.')
        raise click.exceptions.Exit(_STATUS_AFTER_SIGINT) from None


def base_url_option(what: str) -> Callable:
    """Returns the option that names another server."""
    return click.option(
        '--base_url', 'base_urls', multiple=True, help=f'Instead of {what}; repeatable, in order.'
    )
