"""`tfod data_service`: prepares training data for other processes."""

import click

from object_detection.training import jobs


@click.command(name='data_service')
@click.option(
    '--port',
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help='To serve at; 0 takes a free one.',
)
@click.option('--dispatcher', help='HOST:PORT of the first process; this one helps it then.')
@click.option('--host', help='Name or address of this machine, as trainings reach it.')
def command(port: int, dispatcher: str | None, host: str | None) -> None:
    """Reads, decodes and augments for trainings with --data_service, until it is stopped.

    The first process gives out the files; others, started with its address as --dispatcher, share
    them. Files have the same names on all machines. Anyone who reaches the port can use it.
    """
    jobs.show_log()
    from object_detection.system import tensorflow_setup

    tensorflow_setup.import_tensorflow()
    from object_detection.data.pipeline import data_service

    servers = data_service.serve(port, dispatcher=dispatcher, host=host)
    click.echo(f'serving; train with --data_service {servers.address}')
    servers.wait()
